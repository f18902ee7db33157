//! The directory of the sockets at which processes give out their counters. No other user may put a
//! socket there.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// Returns the path of this user's directory. The directory need not exist.
pub(super) fn path() -> io::Result<PathBuf> {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()) {
        Some(runtime) => Ok(PathBuf::from(runtime).join("towline")),
        None => Ok(PathBuf::from(format!("/tmp/towline-{}", user()?))),
    }
}

/// Makes the directory, or makes sure that the existing one belongs to this user alone.
pub(super) fn create(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(PRIVATE).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check(path),
        Err(error) => {
            let remedy = match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                    "; set XDG_RUNTIME_DIR to a directory that exists and that this user may write"
                }
                _ => "",
            };
            let cause = sys::with_usual_remedy(&error);
            let text = format!("cannot make {}: {cause}{remedy}", path.display());
            Err(io::Error::new(error.kind(), text))
        }
    }
}

/// Returns an error unless `path` is a directory (not a link to one) of this user. When others may
/// enter it, makes it private.
pub(super) fn check(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    let fault = if found.is_symlink() {
        Some("it is a symbolic link; remove it".to_owned())
    } else if !found.is_dir() {
        Some("it is not a directory; remove it".to_owned())
    } else if found.uid() != user()? {
        let owner = found.uid();
        let text =
            format!("user {owner} owns it; remove it as user {owner}, or set XDG_RUNTIME_DIR");
        Some(text)
    } else {
        None
    };
    if let Some(fault) = fault {
        let text = format!("cannot use {} for counters: {fault}", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(PRIVATE))?;
    }
    Ok(())
}

/// Returns the path of one process's socket.
pub(super) fn socket(directory: &Path, pid: u32) -> PathBuf {
    directory.join(format!("{pid}.sock"))
}

/// Finds the effective user by the owner of `/proc/self`.
pub(super) fn user() -> io::Result<u32> {
    Ok(fs::metadata("/proc/self")?.uid())
}

const PRIVATE: u32 = 0o700;
