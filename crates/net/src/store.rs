//! A receiver's files: staged beneath the directory, verified, synced, then given their names.
//!
//! ```text
//! DIR/.towline/<plan>/0, 1, 2 ...   content of file 0, 1, 2, allocated before any byte arrives
//!     --all verified--> sync --> directories --> rename each --> links --> times --> sync
//! ```
//!
//! Nothing is visible under its final name before all of it is verified and synced. Every name is
//! opened beneath DIR and no link is followed on the way, so that no plan leads out of it.

use std::{
    collections::VecDeque,
    ffi::OsStr,
    fs::{File, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
};

use delivery::{Plan, PlanId, RangeSet, Store, StoreEvent};
use sys::file::{Directory, FileTime, Taken};
use wire::object::{EntryKind, EntryRef, ErrorCode};

use crate::NetError;

/// Keeps a plan's content in a directory.
#[derive(Debug)]
pub struct FileStore {
    directory: Arc<Directory>,
    shown: PathBuf,
    overwrite: bool,
    staging: Option<Staging>,
    events: VecDeque<StoreEvent>,
    committing: Option<mpsc::Receiver<StoreEvent>>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Staging {
    plan: Arc<Plan>,
    path: PathBuf,
    /// The files written last, the latest first.
    open: VecDeque<(usize, File)>,
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
            buffer: Vec::new(),
        })
    }

    fn fail(&mut self, fault: &Fault) {
        let (code, remedy) = kind_of(&fault.error);
        let path = self.shown.join(&fault.path);
        let text = format!(
            "cannot {} {}: {}{remedy}",
            fault.doing,
            path.display(),
            fault.error
        );
        self.events.push_back(StoreEvent::Failed { code, text });
    }

    fn stage(&mut self, plan: &Arc<Plan>) -> Result<(), Fault> {
        if !self.overwrite {
            self.refuse_existing(plan)?;
        }
        let path = staging_path(plan.id());
        remove_staging(&self.directory, &path);
        self.make_directory(Path::new(STAGING), 0o700)?;
        self.make_directory(&path, 0o700)?;
        let needed = plan.content_bytes();
        if let Ok(space) = self.directory.space()
            && space.available_bytes < needed
        {
            let error = io::Error::from(io::ErrorKind::StorageFull);
            return Err(Fault {
                doing: "make room in",
                path,
                error,
            });
        }
        for (index, file) in plan.files().iter().enumerate() {
            let staged = path.join(index.to_string());
            let made = self.directory.create(&staged, 0o600);
            made.and_then(|made| sys::file::allocate(&made, file.size))
                .map_err(|error| Fault {
                    doing: "make room for",
                    path: staged,
                    error,
                })?;
        }
        self.staging = Some(Staging {
            plan: Arc::clone(plan),
            path,
            open: VecDeque::new(),
        });
        Ok(())
    }

    fn make_directory(&self, path: &Path, mode: u32) -> Result<(), Fault> {
        match self.directory.make_directory(path, mode) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Fault {
                doing: "make",
                path: path.to_path_buf(),
                error,
            }),
            _ => Ok(()),
        }
    }

    fn refuse_existing(&self, plan: &Plan) -> Result<(), Fault> {
        for entry in plan
            .entries()
            .filter(|entry| entry.kind != EntryKind::Directory)
        {
            let path = path_of(&entry);
            if self.directory.status(path).is_ok() {
                let error = io::Error::from(io::ErrorKind::AlreadyExists);
                return Err(Fault {
                    doing: "write",
                    path: path.to_path_buf(),
                    error,
                });
            }
        }
        Ok(())
    }

    fn write_pieces(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let Some(staging) = &mut self.staging else {
            return Ok(());
        };
        let plan = Arc::clone(&staging.plan);
        let mut rest = bytes;
        for (index, file_offset, range) in plan.pieces(offset..offset + bytes.len() as u64) {
            let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            let (piece, after) = rest.split_at(len);
            rest = after;
            let written = staging
                .file(&self.directory, index)
                .and_then(|file| file.write_all_at(piece, file_offset));
            written.map_err(|error| staging.fault("write", index, error))?;
        }
        Ok(())
    }

    fn hash(&mut self, slab: u32) -> Result<StoreEvent, Fault> {
        let Some(staging) = &mut self.staging else {
            let error = io::Error::from(io::ErrorKind::NotFound);
            return Err(Fault {
                doing: "read",
                path: PathBuf::from(STAGING),
                error,
            });
        };
        let place = staging.plan.slab(slab);
        self.buffer.resize(place.len as usize, 0);
        let index = place.file as usize;
        let read = staging
            .file(&self.directory, index)
            .and_then(|file| file.read_exact_at(&mut self.buffer, place.file_offset));
        read.map_err(|error| staging.fault("read back", index, error))?;
        let mut hasher = place.hasher();
        hasher.update(&self.buffer);
        Ok(StoreEvent::Sealed {
            slab,
            seal: hasher.finish(),
        })
    }
}

impl Staging {
    fn file(&mut self, directory: &Directory, index: usize) -> io::Result<&File> {
        match self.open.iter().position(|(open, _)| *open == index) {
            Some(0) => {}
            Some(at) => self.open.swap(0, at),
            None => {
                let file = directory.open_to_write(&self.path.join(index.to_string()))?;
                self.open.truncate(OPEN_MAX - 1);
                self.open.push_front((index, file));
            }
        }
        Ok(&self.open[0].1)
    }

    fn fault(&self, doing: &'static str, index: usize, error: io::Error) -> Fault {
        Fault {
            doing,
            path: self.path.join(index.to_string()),
            error,
        }
    }
}

impl Store for FileStore {
    fn prepare(&mut self, plan: &Arc<Plan>) {
        match self.stage(plan) {
            Ok(()) => {
                let held = RangeSet::new(1);
                self.events.push_back(StoreEvent::Prepared { held });
            }
            Err(fault) => self.fail(&fault),
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> bool {
        match self.write_pieces(offset, bytes) {
            Ok(()) => true,
            Err(fault) => {
                self.fail(&fault);
                false
            }
        }
    }

    fn seal(&mut self, slab: u32) -> bool {
        match self.hash(slab) {
            Ok(event) => self.events.push_back(event),
            Err(fault) => self.fail(&fault),
        }
        true
    }

    fn commit(&mut self) {
        let Some(staging) = self.staging.take() else {
            return;
        };
        let (sender, receiver) = mpsc::channel();
        let commit = Commit {
            directory: Arc::clone(&self.directory),
            plan: staging.plan,
            staging: staging.path,
            taken: if self.overwrite {
                Taken::Replace
            } else {
                Taken::Refuse
            },
        };
        let shown = self.shown.clone();
        // Syncing may take seconds, and the session's timers must not wait for a disk.
        let spawned = thread::Builder::new().name("commit".into()).spawn(move || {
            let event = match commit.run() {
                Ok(()) => StoreEvent::Committed,
                Err(fault) => {
                    let (code, remedy) = kind_of(&fault.error);
                    let path = shown.join(&fault.path);
                    let (doing, error) = (fault.doing, fault.error);
                    let text = format!("cannot {doing} {}: {error}{remedy}", path.display());
                    StoreEvent::Failed { code, text }
                }
            };
            // Nobody listens any more when the transfer was given up meanwhile.
            drop(sender.send(event));
        });
        match spawned {
            Ok(_detached) => self.committing = Some(receiver),
            Err(error) => self.fail(&Fault {
                doing: "start a thread to sync",
                path: PathBuf::new(),
                error,
            }),
        }
    }

    fn abandon(&mut self) {
        if let Some(staging) = self.staging.take() {
            remove_staging(&self.directory, &staging.path);
        }
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        if let Some(event) = self
            .committing
            .as_ref()
            .and_then(|events| events.try_recv().ok())
        {
            self.committing = None;
            self.events.push_back(event);
        }
        self.events.pop_front()
    }
}

/// Puts verified content in place.
struct Commit {
    directory: Arc<Directory>,
    plan: Arc<Plan>,
    staging: PathBuf,
    taken: Taken,
}

impl Commit {
    fn run(&self) -> Result<(), Fault> {
        self.sync()?;
        for entry in self.entries(EntryKind::Directory) {
            match self.directory.make_directory(path_of(&entry), 0o700) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(fault("make", &entry, error));
                }
                _ => {}
            }
        }
        for (index, file) in self.plan.files().iter().enumerate() {
            self.place(index, &self.plan.entry(file.entry as usize))?;
        }
        for entry in self.entries(EntryKind::Symlink) {
            self.link(&entry)?;
        }
        for entry in self
            .plan
            .entries()
            .rev()
            .filter(|e| e.kind == EntryKind::Directory)
        {
            let opened = self.directory.directory(path_of(&entry));
            let set = opened.and_then(|directory| directory.set_mode(u32::from(entry.mode)));
            set.and_then(|()| {
                self.directory
                    .set_modified(path_of(&entry), time_of(&entry))
            })
            .map_err(|error| fault("set the attributes of", &entry, error))?;
        }
        remove_staging(&self.directory, &self.staging);
        self.sync()
    }

    fn entries(&self, kind: EntryKind) -> impl Iterator<Item = EntryRef<'_>> {
        self.plan.entries().filter(move |entry| entry.kind == kind)
    }

    fn sync(&self) -> Result<(), Fault> {
        let synced = self.directory.sync_filesystem();
        synced.map_err(|error| Fault {
            doing: "sync",
            path: PathBuf::new(),
            error,
        })
    }

    fn place(&self, index: usize, entry: &EntryRef<'_>) -> Result<(), Fault> {
        let staged = self.staging.join(index.to_string());
        let opened = self.directory.open_to_write(&staged);
        let mode = Permissions::from_mode(u32::from(entry.mode));
        opened
            .and_then(|file| file.set_permissions(mode))
            .and_then(|()| self.directory.set_modified(&staged, time_of(entry)))
            .and_then(|()| {
                self.directory
                    .rename(&staged, &self.directory, path_of(entry), self.taken)
            })
            .map_err(|error| fault("put in place", entry, error))
    }

    fn link(&self, entry: &EntryRef<'_>) -> Result<(), Fault> {
        let target = Path::new(OsStr::from_bytes(entry.target));
        let staged = self.staging.join("link");
        self.directory
            .make_link(target, &staged)
            .and_then(|()| self.directory.set_modified(&staged, time_of(entry)))
            .and_then(|()| {
                self.directory
                    .rename(&staged, &self.directory, path_of(entry), self.taken)
            })
            .map_err(|error| fault("put in place", entry, error))
    }
}

fn fault(doing: &'static str, entry: &EntryRef<'_>, error: io::Error) -> Fault {
    Fault {
        doing,
        path: path_of(entry).to_path_buf(),
        error,
    }
}

/// Removes what was staged; what stays, because it was changed by others, is hidden and harmless.
fn remove_staging(directory: &Directory, path: &Path) {
    let names = directory
        .directory(path)
        .and_then(|staging| staging.names());
    for name in names.into_iter().flatten() {
        drop(directory.remove_file(&path.join(name)));
    }
    drop(directory.remove_directory(path));
    drop(directory.remove_directory(Path::new(STAGING)));
}

fn staging_path(id: PlanId) -> PathBuf {
    let hex: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
    Path::new(STAGING).join(hex)
}

fn path_of<'a>(entry: &EntryRef<'a>) -> &'a Path {
    Path::new(OsStr::from_bytes(entry.path))
}

fn time_of(entry: &EntryRef<'_>) -> FileTime {
    FileTime {
        seconds: entry.mtime.seconds,
        nanoseconds: entry.mtime.nanoseconds,
    }
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
        io::ErrorKind::InvalidFilename => (ErrorCode::NameTooLong, ""),
        _ => (ErrorCode::Io, ""),
    }
}

/// What is staged lies here, beneath the directory: plans may not use the name.
const STAGING: &str = ".towline";
/// Files kept open for writing.
const OPEN_MAX: usize = 64;
