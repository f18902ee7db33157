//! A receiver's files: staged beneath the directory, verified, synced, then given their names.
//!
//! ```text
//! DIR/.towline/<plan>.lock          one receiver of a plan at a time
//! DIR/.towline/<plan>/0, 1, 2 ...   content of file 0, 1, 2, allocated before any byte arrives
//!     --all verified--> sync --> directories --> rename each --> links --> times --> sync
//! ```
//!
//! Nothing is visible under its final name before all of it is verified and synced. Every name is
//! opened beneath DIR and no link is followed on the way, so that no plan leads out of it. Of a
//! plan's modes only the permission bits are used: nobody gets a set-user-id program from the
//! network.

use std::{
    collections::VecDeque,
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
};

use delivery::{Plan, RangeSet, Store, StoreEvent};
use sys::file::{Directory, Kind, Taken};
use wire::object::{EntryKind, EntryRef, ErrorCode};

use crate::NetError;

mod claim;

mod commit;
use commit::Commit;

mod staging;
use staging::Staging;

/// Keeps a plan's content in a directory.
#[derive(Debug)]
pub struct FileStore {
    directory: Arc<Directory>,
    shown: PathBuf,
    overwrite: bool,
    staging: Option<Staging>,
    events: VecDeque<StoreEvent>,
    committing: Option<mpsc::Receiver<StoreEvent>>,
}

/// Why something could not be done, and what it was done to.
#[derive(Debug)]
struct Fault {
    doing: &'static str,
    path: PathBuf,
    error: io::Error,
}

impl FileStore {
    /// A store beneath `directory`, which is made when it is not there. With `overwrite`, files and
    /// links of the same name are replaced.
    ///
    /// # Errors
    /// When the directory cannot be made or opened.
    pub fn open(directory: &Path, overwrite: bool) -> Result<Self, NetError> {
        std::fs::create_dir_all(directory)
            .map_err(|error| NetError::system("make", directory.display(), &error))?;
        let opened = Directory::open(directory)
            .map_err(|error| NetError::system("open", directory.display(), &error))?;
        Ok(Self {
            directory: Arc::new(opened),
            shown: directory.to_path_buf(),
            overwrite,
            staging: None,
            events: VecDeque::new(),
            committing: None,
        })
    }

    fn fail(&mut self, fault: &Fault) {
        self.events.push_back(fault.event(&self.shown));
    }

    /// Finds out early whether every name can be given at the end.
    fn check_names(&self, plan: &Plan) -> Result<(), Fault> {
        // In depth-first order, what is below a directory that is not there is not there either.
        let mut absent: Option<&[u8]> = None;
        for entry in plan.entries() {
            if absent.is_some_and(|absent| is_below(entry.path, absent)) {
                continue;
            }
            let path = path_of(&entry);
            let found = match self.directory.status(path) {
                Ok(status) => status.kind,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    absent = Some(entry.path);
                    continue;
                }
                Err(error) => return Err(Fault::new("write", path, error)),
            };
            let is_fine = match (entry.kind, found) {
                (EntryKind::Directory, Kind::Directory) => true,
                (EntryKind::Directory, _) | (_, Kind::Directory) => false,
                _ => self.overwrite,
            };
            if !is_fine {
                let error = io::Error::from(io::ErrorKind::AlreadyExists);
                return Err(Fault::new("write", path, error));
            }
        }
        Ok(())
    }

    fn spawn_commit(&mut self, commit: Commit) -> io::Result<()> {
        let (sender, receiver) = mpsc::channel();
        let shown = self.shown.clone();
        // Syncing may take seconds, and the session's timers must not wait for a disk.
        thread::Builder::new()
            .name("commit".into())
            .spawn(move || {
                let event = match commit.run() {
                    Ok(()) => StoreEvent::Committed,
                    Err(fault) => fault.event(&shown),
                };
                // Nobody listens any more when the transfer was given up meanwhile.
                drop(sender.send(event));
            })?;
        self.committing = Some(receiver);
        Ok(())
    }
}

impl Store for FileStore {
    fn prepare(&mut self, plan: &Arc<Plan>) {
        let staged = self
            .check_names(plan)
            .and_then(|()| Staging::make(&self.directory, plan));
        match staged {
            Ok(staging) => {
                self.staging = Some(staging);
                let held = RangeSet::new(1);
                self.events.push_back(StoreEvent::Prepared { held });
            }
            Err(fault) => self.fail(&fault),
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let Some(staging) = &mut self.staging else {
            return false;
        };
        match staging.write(&self.directory, offset, bytes) {
            Ok(()) => true,
            Err(fault) => {
                self.fail(&fault);
                false
            }
        }
    }

    fn seal(&mut self, slab: u32) -> bool {
        let Some(staging) = &mut self.staging else {
            return false;
        };
        match staging.seal(&self.directory, slab) {
            Ok(seal) => self.events.push_back(StoreEvent::Sealed { slab, seal }),
            Err(fault) => self.fail(&fault),
        }
        true
    }

    fn commit(&mut self) {
        let Some(mut staging) = self.staging.take() else {
            return;
        };
        if let Err(fault) = staging.flush(&self.directory) {
            return self.fail(&fault);
        }
        let (plan, claim) = staging.finish();
        let taken = match self.overwrite {
            true => Taken::Replace,
            false => Taken::Refuse,
        };
        let directory = Arc::clone(&self.directory);
        let commit = Commit {
            directory,
            plan,
            claim,
            taken,
        };
        if let Err(error) = self.spawn_commit(commit) {
            self.fail(&Fault::new("start a thread to sync", Path::new(""), error));
        }
    }

    fn abandon(&mut self) {
        // Its claim removes what was staged.
        self.staging = None;
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        let committed = self.committing.as_ref().map(mpsc::Receiver::try_recv);
        match committed {
            Some(Ok(event)) => {
                self.committing = None;
                self.events.push_back(event);
            }
            Some(Err(mpsc::TryRecvError::Disconnected)) => {
                self.committing = None;
                let error = io::Error::other("the thread that does it has died");
                self.fail(&Fault::new("sync", Path::new(""), error));
            }
            Some(Err(mpsc::TryRecvError::Empty)) | None => {}
        }
        self.events.pop_front()
    }
}

impl Fault {
    fn new(doing: &'static str, path: &Path, error: io::Error) -> Self {
        Self {
            doing,
            path: path.to_path_buf(),
            error,
        }
    }

    /// The fault as the transfer's end, with paths as the user knows them.
    fn event(&self, shown: &Path) -> StoreEvent {
        let (code, remedy) = kind_of(&self.error);
        let path = shown.join(&self.path);
        let text = format!(
            "cannot {} {}: {}{remedy}",
            self.doing,
            path.display(),
            self.error
        );
        StoreEvent::Failed { code, text }
    }
}

fn path_of<'a>(entry: &EntryRef<'a>) -> &'a Path {
    Path::new(OsStr::from_bytes(entry.path))
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    let below = path.strip_prefix(directory);
    below.is_some_and(|below| below.first() == Some(&b'/'))
}

fn kind_of(error: &io::Error) -> (ErrorCode, &'static str) {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => (
            ErrorCode::DiskFull,
            "; make room or receive into another directory",
        ),
        io::ErrorKind::AlreadyExists => (ErrorCode::Exists, "; remove it or use --overwrite"),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => (
            ErrorCode::Permission,
            "; receive into a directory that this user may write",
        ),
        // The text says what to do.
        io::ErrorKind::ResourceBusy => (ErrorCode::Exists, ""),
        io::ErrorKind::InvalidFilename => (ErrorCode::NameTooLong, ""),
        _ => (ErrorCode::Io, ""),
    }
}

/// What is staged lies here, beneath the directory: plans may not use the name.
const STAGING: &str = ".towline";

#[cfg(test)]
mod tests;
