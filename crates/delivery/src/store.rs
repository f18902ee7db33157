//! Where a receiver's bytes go.

use std::sync::Arc;

use wire::object::ErrorCode;

use crate::{Hash, Manifest, RangeSet};

/// Keeps the content of one manifest: stages it, hashes it, and puts it in place.
///
/// Every call returns at once. An implementation may do the work in the call, or queue it for a
/// thread and answer later; requests are served in the order they were made, so a seal covers all
/// writes before it. Outcomes come by [`Store::poll_event`].
pub trait Store {
    /// Takes charge of a manifest: makes room for all of it before any byte arrives. Answered by
    /// [`StoreEvent::Prepared`].
    fn prepare(&mut self, manifest: &Arc<Manifest>);

    /// Writes bytes at a position of the content; the range lies within the content and may span
    /// files. False when the queue is full: nothing was taken, the block counts as not received.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> bool;

    /// True when so much waits to be written that the sender should pause. There is still room for
    /// what is under way. It is cheap, and asked once in each turn.
    fn is_behind(&self) -> bool {
        false
    }

    /// Hashes a slab that was written whole. Answered by [`StoreEvent::Sealed`]. False when the
    /// queue is full: ask again later.
    fn seal(&mut self, slab: u32) -> bool;

    /// Everything is written and verified: syncs it, creates directories and links, and moves it to
    /// its final names. Answered by [`StoreEvent::Committed`].
    ///
    /// `withdrawn` are indices of [`Manifest::files`], ascending: files that the sender could not
    /// read. What was written of them is not to be delivered; what has their names already stays.
    fn commit(&mut self, withdrawn: &[usize]);

    /// The transfer is given up; what is staged may be kept for a later attempt.
    fn abandon(&mut self);

    /// The next outcome.
    fn poll_event(&mut self) -> Option<StoreEvent>;
}

/// Something that a receiver has and its sender has not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Surplus {
    /// It was deleted, with all that was in it.
    Deleted {
        /// Its path beneath the receiver's directory.
        path: Vec<u8>,
    },
    /// It would be deleted if it were not only to be listed.
    Listed {
        /// Its path beneath the receiver's directory.
        path: Vec<u8>,
    },
    /// It, or something in it, is still there; with an empty path nothing was looked at.
    Kept {
        /// Its path beneath the receiver's directory.
        path: Vec<u8>,
        /// For a person: why.
        why: String,
    },
}

/// An outcome of something asked of a [`Store`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// There is room for the manifest.
    Prepared {
        /// What an earlier attempt left behind, as far as the store knows: it counts as received
        /// and is verified like the rest.
        held: RangeSet,
    },
    /// A slab's seal.
    Sealed {
        /// Which.
        slab: u32,
        /// What its bytes hash to.
        seal: Hash,
    },
    /// After everything was put in place and before [`StoreEvent::Committed`]: something is there
    /// that the sender has not.
    Surplus(Surplus),
    /// Everything is in place and synced.
    Committed,
    /// Something could not be done; nothing further will be.
    Failed {
        /// For the program.
        code: ErrorCode,
        /// For a person: operation, path, cause, remedy.
        text: String,
    },
}
