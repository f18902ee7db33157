//! The right to stage a manifest's content beneath a directory; one receiver at a time has it.
//!
//! Two receivers of one manifest in one directory would otherwise write the same staged files. One
//! of them would rename files that only the other has verified. The claim is a lock on a file next
//! to the staged ones. It ends with the process, so that nobody has to clear it up by hand.
//!
//! ```text
//! DIR/.towline/<manifest>.lock   locked while its receiver may stage files
//! DIR/.towline/<manifest>/       outlives its receiver when something is kept for a later attempt
//! ```
//!
//! Invariant: only the holder of the lock removes the lock file.

use std::{
    fs::{File, TryLockError},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use delivery::ManifestId;
use sys::file::{Directory, Kind};

use super::{Fault, STAGING, private};

/// The right to stage a manifest. Dropping the right leaves the staged files in place.
#[derive(Debug)]
pub(super) struct Claim {
    directory: Arc<Directory>,
    path: PathBuf,
    lock_path: PathBuf,
    lock: File,
}

impl Claim {
    /// Claims the right to stage a manifest.
    pub(super) fn take(directory: &Arc<Directory>, id: ManifestId) -> Result<Self, Fault> {
        let staging = Path::new(STAGING);
        let lock_path = staging.join(format!("{id}.lock"));
        let lock = lock(directory, &lock_path)?;
        Ok(Self {
            directory: Arc::clone(directory),
            path: staging.join(id.to_string()),
            lock_path,
            lock,
        })
    }

    /// Opens the staging directory; makes it when it does not exist.
    pub(super) fn open(&self) -> Result<Directory, Fault> {
        make_directory(&self.directory, &self.path)
            .and_then(|()| self.directory.directory(&self.path))
            .and_then(|place| private::check(&place).map(|()| place))
            .map_err(|error| Fault::new("keep unfinished files in", &self.path, error))
    }

    /// Removes what was staged.
    pub(super) fn clear(&self) {
        if let Ok(place) = self.directory.directory(&self.path) {
            remove_below(&place);
        }
        drop(self.directory.remove_directory(&self.path));
    }

    /// Returns the path of the staging directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        drop(self.directory.remove_file(&self.lock_path));
        // When the directory is not empty, this fails, and the directory stays.
        drop(self.directory.remove_directory(Path::new(STAGING)));
        drop(self.lock.unlock());
    }
}

/// Removes everything in a directory. What cannot be removed stays: it is in a hidden directory and
/// does no harm.
fn remove_below(place: &Directory) {
    let mut to_read = vec![PathBuf::new()];
    let mut directories = Vec::new();
    while let Some(path) = to_read.pop() {
        let names = if path.as_os_str().is_empty() {
            place.names()
        } else {
            place.directory(&path).and_then(|below| below.names())
        };
        for name in names.into_iter().flatten() {
            let below = path.join(name);
            match place.status(&below) {
                Ok(status) if status.kind == Kind::Directory => {
                    directories.push(below.clone());
                    to_read.push(below);
                }
                _ => drop(place.remove_file(&below)),
            }
        }
    }
    // A directory is found before its subdirectories, so the last one found is removed first.
    for path in directories.iter().rev() {
        drop(place.remove_directory(path));
    }
}

/// Opens the lock file, makes it if it is missing, and locks it.
fn lock(directory: &Directory, path: &Path) -> Result<File, Fault> {
    // Another receiver removes the lock file and the staging directory when it drops its claim,
    // perhaps between two calls here.
    for _ in 0..ATTEMPTS_MAX {
        let staging = Path::new(STAGING);
        let made = make_directory(directory, staging).and_then(|()| directory.directory(staging));
        let checked = match made {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            made => made.and_then(|staging| private::check(&staging)),
        };
        checked.map_err(|error| Fault::new("keep unfinished files in", staging, error))?;
        let opened = match directory.create(path, 0o600) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                directory.open_to_write(path)
            }
            created => created,
        };
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(|error| Fault::new("make", path, error))?,
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(taken()),
            Err(TryLockError::Error(error)) => return Err(Fault::new("lock", path, error)),
        }
        let status = file
            .metadata()
            .map_err(|error| Fault::new("lock", path, error))?;
        if status.nlink() > 0 {
            return Ok(file);
        }
    }
    Err(taken())
}

fn taken() -> Fault {
    busy(format!(
        "{TAKEN}; wait for its end or receive into another directory"
    ))
}

/// Makes the fault for a transfer whose earlier attempt in this process still waits for the disk.
pub(super) fn not_ended() -> Fault {
    let text = "an earlier attempt of this transfer still waits for the disk; send it again when \
                the disk works";
    busy(text.to_owned())
}

fn busy(text: String) -> Fault {
    let error = io::Error::new(io::ErrorKind::ResourceBusy, text);
    Fault::new("receive into", Path::new(""), error)
}

fn make_directory(directory: &Directory, path: &Path) -> io::Result<()> {
    match directory.make_directory(path, 0o700) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// The reason why a claim is refused: another receiver has it.
pub(super) const TAKEN: &str = "another receiver takes this transfer into it";
/// The most attempts to lock the file. An attempt is repeated only when another receiver ends at
/// that moment, which does not happen 100 times in a row.
const ATTEMPTS_MAX: usize = 100;
