//! Names of files on a line for people. Whatever a name contains, it cannot break the line or
//! control the terminal.

use std::path::Path;

use towline::text::printable;

/// Returns the path as [`printable`] shows it, whole.
pub(crate) fn shown(path: &Path) -> String {
    printable(&path.display().to_string(), usize::MAX).into_owned()
}
