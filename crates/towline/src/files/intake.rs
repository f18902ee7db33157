//! The decisions of a receiver of files: from which senders it takes files, and where it puts them.

use std::{fmt, io::Write, net::IpAddr, path::PathBuf, sync::Arc};

use delivery::{Decline, Intake, Manifest, Offer, Sender, Store, StoreEvent};
use net::{Delete, Endings, Existing, FileStore, Modes, Owners, Room, StoreOptions};
use wire::object::ErrorCode;

use super::{MemoryFiles, memory::MemoryStore, stream::StreamStore};
use crate::sources::Sources;

/// A function that makes the store of each offered transfer, or declines the offer. A store that
/// works on its own thread must wake the receiver, with the receiver's [`crate::Waker`], when the
/// store has an event.
pub type OwnStores =
    Box<dyn FnMut(&Sender, &Offer) -> Result<Box<dyn Store + Send>, Decline> + Send>;

/// Where received files go.
#[non_exhaustive]
pub enum Target {
    /// Files go beneath a directory. If the directory does not exist, the receiver makes it.
    Directory {
        /// The directory.
        path: PathBuf,
        /// What happens to files that exist already.
        existing: Existing,
    },
    /// A single file goes into a stream, once all of it is verified. A tree is refused.
    Stream(Box<dyn Write + Send>),
    /// Files go into memory, once all of a transfer is verified.
    Memory(MemoryFiles),
    /// Files go into the caller's own stores.
    Own(OwnStores),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory { path, .. } => f.debug_tuple("Directory").field(path).finish(),
            Self::Stream(_) => f.write_str("Stream"),
            Self::Memory(files) => f.debug_tuple("Memory").field(files).finish(),
            Self::Own(_) => f.write_str("Own"),
        }
    }
}

/// The kinds of store for one transfer.
#[non_exhaustive]
pub enum ReceiverStore {
    /// A store that puts files beneath a directory.
    Files(Box<FileStore>),
    /// A store that puts a single file into a stream.
    Stream(Box<StreamStore>),
    /// A store in memory, or the caller's own store.
    Own(Box<dyn Store + Send>),
}

impl fmt::Debug for ReceiverStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files(_) => "Files",
            Self::Stream(_) => "Stream",
            Self::Own(_) => "Own",
        })
    }
}

impl ReceiverStore {
    fn store(&mut self) -> &mut dyn Store {
        match self {
            Self::Files(store) => store.as_mut(),
            Self::Stream(store) => store.as_mut(),
            Self::Own(store) => store.as_mut(),
        }
    }
}

impl Store for ReceiverStore {
    fn prepare(&mut self, manifest: &Arc<Manifest>) {
        self.store().prepare(manifest);
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) -> bool {
        match self {
            Self::Files(store) => store.write(offset, bytes),
            Self::Stream(store) => store.write(offset, bytes),
            Self::Own(store) => store.write(offset, bytes),
        }
    }

    fn is_behind(&self) -> bool {
        match self {
            Self::Files(store) => store.is_behind(),
            Self::Stream(store) => store.is_behind(),
            Self::Own(store) => store.is_behind(),
        }
    }

    fn hash_slab(&mut self, slab: u32) -> bool {
        self.store().hash_slab(slab)
    }

    fn commit(&mut self, withdrawn: &[usize]) {
        self.store().commit(withdrawn);
    }

    fn abandon(&mut self) {
        self.store().abandon();
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        self.store().poll_event()
    }
}

/// Decides from which senders transfers are taken, and makes their stores in the target.
#[derive(Debug)]
pub struct FileIntake {
    pub(super) sources: Sources,
    pub(super) target: Target,
    pub(super) is_stream_taken: bool,
    /// The directory that keeps a stream until all of it is verified.
    pub(super) spool: Option<PathBuf>,
    /// What happens to files that lie in a transfer's directories but do not belong to the
    /// transfer.
    pub(super) delete: Delete,
    /// True when runs of zeros become holes, which take no room.
    pub(super) sparse: bool,
    /// Who owns the files and directories that arrive.
    pub(super) owner: Owners,
    /// True when files and directories get the extended attributes that they have at the sender.
    pub(super) attributes: bool,
    /// Which permission bits received files and directories get.
    pub(super) modes: Modes,
    /// True when names at the top level of a transfer may begin with a dot.
    pub(super) takes_dot_names: bool,
    /// How much of the disk all transfers together may take.
    pub(super) room: Room,
    /// The most bytes of one transfer that may wait for the disk.
    pub(super) queue_bytes_max: usize,
    /// Stores whose transfers are over, but whose disk is still at work. The thread that serves
    /// other transfers does not wait for these stores.
    pub(super) endings: Endings,
    pub(super) waker: Arc<net::Waker>,
}

impl Intake for FileIntake {
    type Store = ReceiverStore;

    fn admit(&mut self, sender: &Sender) -> Result<(), String> {
        self.sources.admit(sender.address.ip())
    }

    fn admit_host(&self, host: IpAddr) -> Result<(), String> {
        self.sources.admit(host)
    }

    fn stores_ending(&self) -> usize {
        self.endings.count()
    }

    fn accept(&mut self, sender: &Sender, offer: &Offer) -> Result<ReceiverStore, Decline> {
        let waker = Arc::clone(&self.waker);
        let notify = move || waker.wake();
        match &mut self.target {
            Target::Directory { path, existing } => {
                let options = StoreOptions {
                    existing: *existing,
                    delete: self.delete,
                    sparse: self.sparse,
                    owner: self.owner,
                    attributes: self.attributes,
                    modes: self.modes,
                    takes_dot_names: self.takes_dot_names,
                    room: self.room.clone(),
                    queue_bytes_max: self.queue_bytes_max,
                    endings: Some(self.endings.clone()),
                    notify: Some(Box::new(notify)),
                    ..StoreOptions::default()
                };
                let store = FileStore::new(path, options);
                Ok(ReceiverStore::Files(Box::new(store)))
            }
            Target::Memory(files) => {
                let store = MemoryStore::new(files.clone());
                Ok(ReceiverStore::Own(Box::new(store)))
            }
            Target::Own(stores) => stores(sender, offer).map(ReceiverStore::Own),
            Target::Stream(_) if self.is_stream_taken => Err(Decline {
                code: ErrorCode::Limit,
                text: "this receiver takes one file, and has already begun with another".to_owned(),
            }),
            Target::Stream(out) => {
                self.is_stream_taken = true;
                let out = std::mem::replace(out, Box::new(std::io::sink()));
                let store = StreamStore::new(out, self.spool.clone(), Arc::new(notify));
                Ok(ReceiverStore::Stream(Box::new(store)))
            }
        }
    }
}
