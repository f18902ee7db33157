//! A receiver's files: staged beneath the directory, verified, synced, then given their names.
//!
//! ```text
//!   session's thread                    |  disk's thread
//!   FileStore: extents put together ────────> write ─> journal ─> hash   commit: sync, names, sync
//!              <── events, and a wake-up ─┘
//!
//! DIR/.towline/<manifest>.lock          one receiver of a manifest at a time
//! DIR/.towline/<manifest>/journal       what is staged: survives failure, cancellation and kill -9
//! DIR/.towline/<manifest>/tree/...      the staged files, which take room only as content arrives
//! ```
//!
//! Nothing that a transfer brings is visible under its final name before the whole transfer is
//! verified and synced. Only this user can change the staging directories, so the file that is
//! renamed is the file that was hashed. Every path is opened beneath DIR and no link in it is
//! followed, so that no manifest leads out of DIR. Of a manifest's modes only the permission bits
//! are used, so that no set-user-id program comes from the network. The staged files are removed
//! when this store is dropped after everything has its name. After a failure,
//! [`StoreOptions::keep_staged`] says whether they stay; if they stay, the next attempt continues
//! from them.
//!
//! Invariants: no call of [`Store`] waits for the disk; the content that waits to be written is
//! bounded; the journal names a byte as held only after the byte is in its file; a wrong journal
//! costs time but cannot damage content, because the receiver verifies every slab that the journal
//! names as held.

use std::{
    collections::VecDeque,
    ffi::OsStr,
    fmt, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use delivery::{Manifest, ManifestId, Store, StoreEvent};
#[cfg(doc)]
use wire::object::ManifestHeader;
use wire::object::{EntryRef, ErrorCode};

mod attributes;

mod claim;

mod commit;

mod disk;
use disk::Disk;
pub use disk::{DiskCall, DiskFault, Modes};

mod early;

mod endings;
pub use endings::Endings;

mod holes;

mod journal;

mod leftover;
pub use leftover::{Leftover, discard_leftover, leftovers};

mod owner;
pub use owner::Owners;

mod prepare;
use prepare::Preparation;

mod private;
pub use private::check_directory;

mod queue;
use queue::{Extent, Idle, Queue, Request};

mod room;
pub use room::{KeepFree, Room, RoomLimits};

mod staging;

mod surplus;
pub use surplus::Delete;

mod worker;
use worker::Worker;

/// A store that keeps a manifest's content in a directory.
#[derive(Debug)]
pub struct FileStore {
    /// The path of the receive directory as the owner gave it.
    shown: PathBuf,
    options: StoreOptions,
    /// The manifest that was prepared last.
    manifest: Option<ManifestId>,
    /// The queue to the disk's thread, from the call of `prepare` on.
    queue: Option<Arc<Queue>>,
    /// The queue of an abandoned transfer, whose last requests the disk's thread still serves.
    /// `None` when the [`Endings`] wait for that thread.
    ending: Option<Arc<Queue>>,
    /// The extent that is being filled.
    extent: Option<Extent>,
    /// True while the store accepts content of the transfer.
    is_open: bool,
    /// Number of slabs whose hashes were asked for and have not come.
    hashes_open: usize,
    /// Events that the session's thread made itself and that were not polled yet.
    events: VecDeque<StoreEvent>,
    notes: Vec<String>,
}

/// What happens to files that exist already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// The transfer is refused before any content is sent. If such a file appears later, the
    /// transfer fails when its files get their names.
    #[default]
    Refuse,
    /// Files and links are replaced, each in one step; directories are kept and filled.
    Replace,
    /// As [`Existing::Replace`], except for a regular file whose length and modification time are
    /// those at the sender. Its content is compared with the sender's hashes. Where it differs, the
    /// wrong parts are sent, and the file is replaced.
    SkipUnchanged,
}

/// How a [`FileStore`] works.
pub struct StoreOptions {
    /// What happens to files that exist already. Default: the transfer is refused.
    pub existing: Existing,
    /// What happens to files that the transfer does not bring. Default: they stay.
    pub delete: Delete,
    /// A function that the store's thread calls when [`Store::poll_event`] should be called: there
    /// is an event, or the disk has caught up or has nothing to do. The function should end the
    /// wait of the thread that polls, as [`crate::Waker::wake`] does, and do nothing else. Default
    /// none: the owner polls at times of its own choice.
    pub notify: Option<Box<dyn Fn() + Send + Sync>>,
    /// Stretches of zeros take no room on the disk, even when the sender does not ask for that
    /// ([`ManifestHeader::SPARSE`]). Then no space is reserved beforehand, so a full disk shows
    /// only while content is written. Default false.
    pub sparse: bool,
    /// The owners that arriving files get, where the sender names owners. Default: the user that
    /// receives them.
    pub owner: Owners,
    /// Files and directories get the extended attributes that they have at the sender, where the
    /// sender tells these. A user attribute (`user.*`) that the sender's copy lacks is then
    /// removed. Default false.
    pub attributes: bool,
    /// Which permission bits are set. Default: those that the process's umask leaves.
    pub modes: Modes,
    /// Names that begin with a dot are accepted at the top of a transfer, too. In a home directory
    /// such names may be a program's settings. Default false.
    pub takes_dot_names: bool,
    /// What was received stays staged after a failure, for a later attempt, unless it is less than
    /// both 1 MiB and a hundredth of the transfer. Default true.
    pub keep_staged: bool,
    /// The disk room that transfers may take; the stores of one receiver share it. Default: the
    /// defaults of [`RoomLimits`].
    pub room: Room,
    /// A list of the dropped stores whose disk threads still work. With a list, the drop of a store
    /// does not wait for its thread. Instead, the drop of the list's last clone waits for all these
    /// threads together, 2 s at most. The thread of a new store first waits for those of earlier
    /// stores of the same manifest, 10 s at most. Default none: the drop of each store waits for
    /// its thread, 2 s at most.
    pub endings: Option<Endings>,
    /// The most memory for content that is not written yet, in bytes; at least 128 KiB. When about
    /// a quarter is used, the store holds the sender back. The rest is for data that is already
    /// under way at that moment. When the process is killed, data that is not written (up to 64 KiB
    /// even on an idle disk) is lost. Default 6 MiB.
    pub queue_bytes_max: usize,
    /// A fault to simulate, for tests. Default none.
    pub fault: Option<DiskFault>,
}

/// A failed operation: what it was, on which path, and its error.
#[derive(Debug)]
struct Fault {
    doing: &'static str,
    path: PathBuf,
    error: io::Error,
}

impl FileStore {
    /// Makes a store beneath `directory`. The call does not touch the disk. When a manifest is
    /// prepared, the store's thread opens the directory, or makes it if it does not exist.
    #[must_use]
    pub fn new(directory: &Path, options: impl Into<StoreOptions>) -> Self {
        Self {
            shown: directory.to_path_buf(),
            options: options.into(),
            manifest: None,
            queue: None,
            ending: None,
            extent: None,
            is_open: false,
            hashes_open: 0,
            events: VecDeque::new(),
            notes: Vec::new(),
        }
    }

    /// Takes the notes about earlier attempts that a person should read, one sentence each.
    pub fn take_notes(&mut self) -> Vec<String> {
        if let Some(queue) = &self.queue {
            self.notes.append(&mut queue.take_notes());
        }
        std::mem::take(&mut self.notes)
    }

    fn start(&mut self, manifest: &Arc<Manifest>) -> io::Result<Arc<Queue>> {
        let (bytes_max, notify) = (self.options.queue_bytes_max, self.options.notify.take());
        let queue = Arc::new(Queue::new(bytes_max, notify));
        queue.push(Request::Prepare(Arc::clone(manifest)));
        let endings = self.options.endings.as_ref();
        let worker = Worker {
            queue: Arc::clone(&queue),
            former: endings.map_or_else(Vec::new, |it| it.of(manifest.id())),
            preparation: Preparation {
                disk: Disk::new(self.options.fault, self.options.modes),
                takes_dot_names: self.options.takes_dot_names,
                existing: self.options.existing,
                has_holes: self.options.sparse,
                room: self.options.room.clone(),
            },
            shown: self.shown.clone(),
            delete: self.options.delete,
            owner: self.options.owner,
            attributes: self.options.attributes,
            keep: self.options.keep_staged,
            staging: None,
            is_committed: false,
            has_failed: false,
            events: Vec::new(),
        };
        thread::Builder::new()
            .name("store".into())
            .spawn(move || worker.run())?;
        Ok(queue)
    }

    /// Hands the extent that is being filled to the disk's thread.
    fn hand_over(&mut self) {
        if let (Some(extent), Some(queue)) = (self.extent.take(), &self.queue) {
            queue.push(Request::Extent(extent));
        }
    }

    fn take_event(&mut self) -> Option<StoreEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let queue = self.queue.as_ref()?;
        let holds = self.extent.as_ref().is_some_and(Extent::is_worth_a_wake_up);
        let (event, idle) = queue.poll(holds);
        match (event, idle) {
            (Some(event), _) => Some(event),
            (None, Idle::Ended) => {
                self.queue = None;
                self.is_open = false;
                let error = sys::panicked("that writes");
                Some(Fault::new("write to", Path::new(""), error).event(&self.shown))
            }
            (None, Idle::Yes) => {
                // The disk's thread is idle, so it gets the extent that is being filled, unless the
                // extent holds little and no hash waits for it.
                if holds {
                    self.hand_over();
                }
                None
            }
            (None, Idle::No) => None,
        }
    }
}

impl Store for FileStore {
    fn prepare(&mut self, manifest: &Arc<Manifest>) {
        self.manifest = Some(manifest.id());
        match self.start(manifest) {
            Ok(queue) => self.queue = Some(queue),
            Err(error) => {
                let fault = Fault::new("start a thread to write to", Path::new(""), error);
                self.events.push_back(fault.event(&self.shown));
            }
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> bool {
        if !self.is_open {
            return false;
        }
        if self
            .extent
            .as_mut()
            .is_some_and(|extent| extent.push(offset, bytes))
        {
            return true;
        }
        self.hand_over();
        self.extent = self.queue.as_ref().and_then(|queue| queue.take_spare());
        // There may be no empty extent, because all are queued for a disk that is behind.
        self.extent
            .as_mut()
            .is_some_and(|extent| extent.push(offset, bytes))
    }

    fn is_behind(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.is_behind())
    }

    fn hash_slab(&mut self, slab: u32) -> bool {
        let Some(queue) = self.queue.as_ref().filter(|_| self.is_open) else {
            return false;
        };
        if self.hashes_open >= HASHES_MAX {
            return false;
        }
        self.hashes_open += 1;
        match &mut self.extent {
            // The extent may hold bytes of this slab, so the request goes with it.
            Some(extent) if !extent.is_empty() => extent.slabs.push(slab),
            _ => queue.push(Request::Hash(slab)),
        }
        true
    }

    fn commit(&mut self, withdrawn: &[usize]) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        self.hand_over();
        if let Some(queue) = &self.queue {
            queue.push(Request::Commit(withdrawn.to_vec()));
        }
    }

    fn abandon(&mut self) {
        self.is_open = false;
        self.events.clear();
        self.hand_over();
        if let Some(queue) = self.queue.take() {
            queue.stop();
            self.notes.append(&mut queue.take_notes());
            match (self.manifest, &self.options.endings) {
                // A new store of the same manifest may start before this store is dropped. It finds
                // this queue in the list and waits for the queue's thread.
                (Some(manifest), Some(endings)) => endings.add(manifest, queue),
                _ => self.ending = Some(queue),
            }
        }
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        let event = self.take_event();
        match &event {
            Some(StoreEvent::Prepared { .. }) => self.is_open = true,
            Some(StoreEvent::Hashed { .. }) => self.hashes_open -= 1,
            Some(StoreEvent::Failed { .. }) => self.is_open = false,
            Some(StoreEvent::Surplus(_) | StoreEvent::Unset(_) | StoreEvent::Committed) | None => {}
        }
        event
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        self.abandon();
        if let Some(queue) = self.ending.take() {
            queue.wait_for_end(END_WAIT);
        }
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            existing: Existing::default(),
            delete: Delete::default(),
            notify: None,
            sparse: false,
            owner: Owners::default(),
            attributes: false,
            modes: Modes::default(),
            takes_dot_names: false,
            keep_staged: true,
            room: Room::default(),
            endings: None,
            queue_bytes_max: 6 << 20,
            fault: None,
        }
    }
}

impl From<Existing> for StoreOptions {
    fn from(existing: Existing) -> Self {
        Self {
            existing,
            ..Self::default()
        }
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("existing", &self.existing)
            .field("delete", &self.delete)
            .field("sparse", &self.sparse)
            .field("owner", &self.owner)
            .field("attributes", &self.attributes)
            .field("modes", &self.modes)
            .field("takes_dot_names", &self.takes_dot_names)
            .field("keep_staged", &self.keep_staged)
            .field("room", &self.room)
            .field("endings", &self.endings)
            .field("queue_bytes_max", &self.queue_bytes_max)
            .field("fault", &self.fault)
            .finish_non_exhaustive()
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

    /// Makes the event for the fault that ends a transfer, with paths as the user knows them.
    fn event(&self, shown: &Path) -> StoreEvent {
        let (code, remedy) = kind_of(&self.error);
        let path = shown_path(&shown.join(&self.path));
        let cause = match remedy {
            "" => sys::with_usual_remedy(&self.error),
            remedy => format!("{}; {remedy}", self.error),
        };
        let text = format!("cannot {} {path}: {cause}", self.doing);
        StoreEvent::Failed { code, text }
    }
}

/// Returns a path for a person to read, safe for a terminal: the sender chose the name.
fn shown_path(path: &Path) -> String {
    let path = path.display().to_string();
    base::text::printable(&path, usize::MAX).into_owned()
}

fn path_of<'a>(entry: &EntryRef<'a>) -> &'a Path {
    Path::new(OsStr::from_bytes(entry.path))
}

fn kind_of(error: &io::Error) -> (ErrorCode, &'static str) {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => (
            ErrorCode::DiskFull,
            "make room or receive into another directory",
        ),
        // The sender shows this text, too, so it names no flag of the receiver.
        io::ErrorKind::AlreadyExists => (
            ErrorCode::Exists,
            "remove it, or have the receiver replace what exists",
        ),
        // An error that comes from no system call has its own text, which says what to do.
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
            (ErrorCode::Permission, "")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => (
            ErrorCode::Permission,
            "receive into a directory that this user may write",
        ),
        // No flag of the receiver helps here: a directory has the name of a sent file, or a file
        // that of a sent directory; another receiver takes the transfer; or a file changed while it
        // was compared.
        io::ErrorKind::ResourceBusy => (ErrorCode::Io, ""),
        // Only the start of a thread fails like this, when the system has no room for one.
        io::ErrorKind::WouldBlock => (ErrorCode::Io, sys::THREAD_REMEDY),
        io::ErrorKind::InvalidFilename => (
            ErrorCode::NameTooLong,
            "rename it at the sender, or receive into another filesystem",
        ),
        // No system call fails with this kind: it marks what this store itself refuses.
        io::ErrorKind::InvalidData => (ErrorCode::ManifestRefused, ""),
        _ if error.raw_os_error() == Some(EIO) => (
            ErrorCode::Io,
            "look for the disk's errors in the system's log, then start again",
        ),
        _ => (ErrorCode::Io, ""),
    }
}

/// The directory of staged files, beneath the receive directory: manifests may not use its name.
const STAGING: &str = ".towline";
/// The most slabs whose hashes may be asked for at a time.
const HASHES_MAX: usize = 16_384;
/// The longest wait for disk threads when a store, or the last clone of [`Endings`], is dropped.
const END_WAIT: Duration = Duration::from_secs(2);
const EIO: i32 = 5;

#[cfg(test)]
mod tests;
