//! The right to stage a plan's content beneath a directory, which one receiver has at a time.
//!
//! Two receivers of one plan in one directory would otherwise write the same staged files, and one
//! of them would rename what only the other has verified. The right is a lock on a file beside the
//! staged ones; it ends with the process, so that nothing is left to clear up by hand.
//!
//! ```text
//! DIR/.towline/<plan>.lock   locked from before the first staged file until after the last
//! DIR/.towline/<plan>/       made empty by `take`, removed with all that is in it by `give_up`
//! ```
//!
//! Invariant: the lock file's name is removed by who holds its lock, and by nobody else.

use std::{
    fs::{File, TryLockError},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use delivery::PlanId;
use sys::file::Directory;

use super::{Fault, STAGING};

/// Held while there are staged files; dropping it removes them.
#[derive(Debug)]
pub(super) struct Claim {
    directory: Arc<Directory>,
    path: PathBuf,
    lock_path: PathBuf,
    /// None once the claim was given up: what has these names then is another receiver's.
    lock: Option<File>,
}

impl Claim {
    /// Claims the staging of a plan and makes it empty.
    pub(super) fn take(directory: &Arc<Directory>, id: PlanId) -> Result<Self, Fault> {
        let staging = Path::new(STAGING);
        let lock_path = staging.join(format!("{id}.lock"));
        let lock = lock(directory, &lock_path)?;
        let claim = Self {
            directory: Arc::clone(directory),
            path: staging.join(id.to_string()),
            lock_path,
            lock: Some(lock),
        };
        claim.remove_staged();
        make_directory(directory, &claim.path)
            .map_err(|error| Fault::new("make", &claim.path, error))?;
        Ok(claim)
    }

    /// Removes what was staged, and lets others stage.
    pub(super) fn give_up(&mut self) {
        let Some(lock) = self.lock.take() else {
            return;
        };
        self.remove_staged();
        drop(self.directory.remove_file(&self.lock_path));
        // Stays while others stage other plans.
        drop(self.directory.remove_directory(Path::new(STAGING)));
        drop(lock);
    }

    /// Where the staged files are.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What stays, because it was changed by others, is hidden and harmless.
    fn remove_staged(&self) {
        let names = self
            .directory
            .directory(&self.path)
            .and_then(|staging| staging.names());
        for name in names.into_iter().flatten() {
            drop(self.directory.remove_file(&self.path.join(name)));
        }
        drop(self.directory.remove_directory(&self.path));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// The lock file, locked and under its name.
fn lock(directory: &Directory, path: &Path) -> Result<File, Fault> {
    // Whoever gives up removes the file and the directory: both may go between two calls here.
    for _ in 0..ATTEMPTS_MAX {
        make_directory(directory, Path::new(STAGING))
            .map_err(|error| Fault::new("make", Path::new(STAGING), error))?;
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
    let text = "another process receives this transfer into it; wait for its end or receive into \
                another directory";
    let error = io::Error::new(io::ErrorKind::ResourceBusy, text);
    Fault::new("receive into", Path::new(""), error)
}

fn make_directory(directory: &Directory, path: &Path) -> io::Result<()> {
    match directory.make_directory(path, 0o700) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Each failed attempt is another receiver's end; nobody sees that many.
const ATTEMPTS_MAX: usize = 100;
