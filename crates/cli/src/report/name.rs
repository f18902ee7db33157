//! Names of files on a line for people: whatever they hold, they neither break the line nor command
//! the terminal.

use std::path::Path;

use towline::text::printable;

/// Returns the path as [`printable`] shows it, whole.
pub(crate) fn shown(path: &Path) -> String {
    printable(&path.display().to_string(), usize::MAX).into_owned()
}
