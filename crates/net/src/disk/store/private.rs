//! Checks that a staging directory is this user's alone.
//!
//! A receiver verifies files in the staging directory, and later renames them without reading them
//! again. If other users may write in the receive directory, one of them could make the staging
//! directory first, and then change verified files. So a staging directory is checked once it is
//! open, through its descriptor.

use std::{
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use sys::file::{Directory, Status};

use super::STAGING;
use crate::SystemError;

/// Makes the receive directory `directory` unless it is there, and checks that this process can
/// stage content in it. A receiver does this before it waits for a sender. No link beneath
/// `directory` is followed.
///
/// # Errors
/// When the directory cannot be made or written, or when its staging directory is another user's
/// or may be written by others.
pub fn check_directory(directory: &Path) -> Result<(), SystemError> {
    let failed = |error: io::Error| unusable(directory, &error);
    std::fs::create_dir_all(directory).map_err(failed)?;
    let opened = Directory::open(directory).map_err(failed)?;
    let staging = Path::new(STAGING);
    let proven = match opened.make_directory(staging, 0o700) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => opened
            .directory(staging)
            .map_err(no_directory)
            .and_then(|staging| check(&staging).and_then(|()| probe(&staging).map(drop))),
        made => made,
    };
    // This fails while a transfer is staged in the directory, which then stays.
    drop(opened.remove_directory(staging));
    match proven {
        // Another transfer has just removed its staging directory, so one can be made here.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        proven => proven.map_err(failed),
    }
}

/// Makes the error of a receive directory that cannot be used.
fn unusable(directory: &Path, error: &io::Error) -> SystemError {
    let failed = SystemError::system("write into", directory.display(), error);
    match error.kind() {
        // An error from `check` already says what to do.
        _ if failed.remedy().is_some() || failed.errno().is_none() => failed,
        io::ErrorKind::PermissionDenied => {
            failed.advise("receive into a directory that this user may write")
        }
        io::ErrorKind::AlreadyExists => failed.advise("it is no directory: name one"),
        io::ErrorKind::NotADirectory => {
            failed.advise("a part of the path is no directory: check the path")
        }
        io::ErrorKind::NotFound => failed.advise("no directory can be made there: check the path"),
        _ => failed.advise("receive into another directory"),
    }
}

/// Says what to do when the staging directory's name is taken by something else.
fn no_directory(error: io::Error) -> io::Error {
    match error.kind() {
        kind @ io::ErrorKind::NotADirectory => {
            let text = format!(
                "{STAGING} in it is not a directory: remove {STAGING}, or receive into another \
                 directory"
            );
            io::Error::new(kind, text)
        }
        _ => error,
    }
}

/// Checks that an open directory is this user's, and that nobody else may write in it.
pub(super) fn check(directory: &Directory) -> io::Result<()> {
    let found = Status::of(directory)?;
    if found.owner == sys::file::effective_user() && found.mode & OTHERS_WRITE == 0 {
        return Ok(());
    }
    // Some filesystems report one owner for everything, or that everybody may write everywhere. If
    // a directory that this process makes looks the same as `directory`, this is such a filesystem.
    let own = probe(directory)?;
    if (own.owner, own.mode & OTHERS_WRITE) == (found.owner, found.mode & OTHERS_WRITE) {
        return Ok(());
    }
    let text = format!(
        "{STAGING} in it belongs to user {} and has mode {:04o}, so others may change what \
         has arrived: remove {STAGING}, or receive into another directory",
        found.owner, found.mode
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Makes a directory in `within` and removes it; returns what the filesystem says of that
/// directory.
fn probe(within: &Directory) -> io::Result<Status> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..ATTEMPTS_MAX {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = PathBuf::from(format!("probe-{}-{count}", std::process::id()));
        match within.make_directory(&name, 0o700) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(()) => {
                let status = within.status(&name);
                within.remove_directory(&name)?;
                return status;
            }
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Permission bits by which the group or others may write.
const OTHERS_WRITE: u32 = 0o022;
/// The most names that [`probe`] tries for its directory: a killed process with the same process ID
/// may have left directories with some of these names.
const ATTEMPTS_MAX: usize = 100;
