//! What a receiver of files decides: from whom, and where to.

use std::{fmt, io::Write, path::PathBuf, sync::Arc};

use delivery::{Decline, Intake, Offer, Plan, Sender, Store, StoreEvent};
use net::{Existing, FileStore, StoreOptions};
use wire::object::ErrorCode;

use super::stream::StreamStore;
use crate::sources::Sources;

/// Where received files go.
pub enum Target {
    /// Beneath a directory, which is made when it is not there.
    Directory {
        /// Which.
        path: PathBuf,
        /// What becomes of files that are there already.
        existing: Existing,
    },
    /// One file, to a stream, when all of it is verified. A tree is refused.
    Stream(Box<dyn Write + Send>),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory { path, .. } => f.debug_tuple("Directory").field(path).finish(),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// The store of one transfer.
#[derive(Debug)]
pub enum ReceiverStore {
    /// Beneath a directory.
    Files(Box<FileStore>),
    /// To a stream.
    Stream(Box<StreamStore>),
}

impl ReceiverStore {
    fn store(&mut self) -> &mut dyn Store {
        match self {
            Self::Files(store) => store.as_mut(),
            Self::Stream(store) => store.as_mut(),
        }
    }
}

impl Store for ReceiverStore {
    fn prepare(&mut self, plan: &Arc<Plan>) {
        self.store().prepare(plan);
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) -> bool {
        match self {
            Self::Files(store) => store.write(offset, bytes),
            Self::Stream(store) => store.write(offset, bytes),
        }
    }

    fn is_behind(&self) -> bool {
        match self {
            Self::Files(store) => store.is_behind(),
            Self::Stream(store) => store.is_behind(),
        }
    }

    fn seal(&mut self, slab: u32) -> bool {
        self.store().seal(slab)
    }

    fn commit(&mut self) {
        self.store().commit();
    }

    fn abandon(&mut self) {
        self.store().abandon();
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        self.store().poll_event()
    }
}

/// Takes plans of those who may send, into the target.
#[derive(Debug)]
pub struct FileIntake {
    pub(super) sources: Sources,
    pub(super) target: Target,
    pub(super) is_stream_taken: bool,
    pub(super) waker: Arc<net::Waker>,
}

impl Intake for FileIntake {
    type Store = ReceiverStore;

    fn admit(&mut self, sender: &Sender) -> Result<(), String> {
        self.sources.admit(sender.address.ip())
    }

    fn accept(&mut self, _sender: &Sender, _offer: &Offer) -> Result<ReceiverStore, Decline> {
        let waker = Arc::clone(&self.waker);
        let notify = move || waker.wake();
        match &mut self.target {
            Target::Directory { path, existing } => {
                let options = StoreOptions {
                    existing: *existing,
                    notify: Some(Box::new(notify)),
                    ..StoreOptions::default()
                };
                let store = FileStore::open(path, options).map_err(|error| Decline {
                    code: ErrorCode::Io,
                    text: error.to_string(),
                })?;
                Ok(ReceiverStore::Files(Box::new(store)))
            }
            Target::Stream(_) if self.is_stream_taken => Err(Decline {
                code: ErrorCode::Limit,
                text: "this receiver prints one file, and has begun with another".to_owned(),
            }),
            Target::Stream(out) => {
                self.is_stream_taken = true;
                let out = std::mem::replace(out, Box::new(std::io::sink()));
                let store = StreamStore::new(out, Arc::new(notify));
                Ok(ReceiverStore::Stream(Box::new(store)))
            }
        }
    }
}
