//! The place for a receiver's bytes.

use std::sync::Arc;

use wire::object::ErrorCode;

use crate::{Manifest, RangeSet, SlabHash};

/// A store for the content of one manifest: it stages content, hashes it, and puts it in place.
///
/// Every call returns at once. An implementation may do the work in the call, or queue it for a
/// thread and answer later; it serves requests in the order they were made, so a hash covers all
/// writes before it. [`Store::poll_event`] gives the outcomes.
pub trait Store {
    /// Takes charge of a manifest: makes room for all of it before any byte arrives.
    /// [`StoreEvent::Prepared`] follows.
    fn prepare(&mut self, manifest: &Arc<Manifest>);

    /// Writes bytes at a position of the content; the range lies within the content and may span
    /// files. Returns false when the queue is full: it took nothing, and the block counts as not
    /// received.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> bool;

    /// Returns true when so much waits to be written that the sender should pause. There is still
    /// room for data under way. The call is cheap, and made once in each turn.
    fn is_behind(&self) -> bool {
        false
    }

    /// Hashes a slab that was written whole; [`StoreEvent::Hashed`] follows. Returns false when the
    /// queue is full: ask again later.
    fn hash_slab(&mut self, slab: u32) -> bool;

    /// Puts all content, which is written and verified, in place: syncs it, creates directories and
    /// links, and gives the final names. [`StoreEvent::Committed`] follows.
    ///
    /// `withdrawn` are indices of [`Manifest::files`], ascending: files that the sender could not
    /// read. What was written of them is not delivered; what has their names already stays.
    fn commit(&mut self, withdrawn: &[usize]);

    /// Gives the transfer up; what is staged may be kept for a later attempt.
    fn abandon(&mut self);

    /// Returns the next outcome.
    fn poll_event(&mut self) -> Option<StoreEvent>;
}

/// A file, link or directory that the receiver has and the sender has not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Surplus {
    /// The file, link or directory was deleted; a directory, with all that was in it.
    Deleted {
        /// The path beneath the receive directory.
        path: Vec<u8>,
    },
    /// The file, link or directory would have been deleted, but the owner asked for a list only.
    Listed {
        /// The path beneath the receive directory.
        path: Vec<u8>,
    },
    /// The file or link, or something in the directory, could not be deleted. With an empty path,
    /// nothing was looked at.
    Kept {
        /// The path beneath the receive directory.
        path: Vec<u8>,
        /// The reason, for a person.
        why: String,
    },
}

/// Something that the sender says of files, and that the receiver could not set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unset {
    /// For a person: what, with its name and number at the sender, and why.
    pub what: String,
    /// How many files, directories and links it could not be set for.
    pub entries: u64,
}

impl Unset {
    /// Names what could not be set, and for how many entries.
    #[must_use]
    pub const fn new(what: String, entries: u64) -> Self {
        Self { what, entries }
    }
}

/// An outcome of a request to a [`Store`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// There is room for the manifest.
    Prepared {
        /// Content that an earlier attempt left behind, as far as the store knows: it counts as
        /// received and is verified like the rest.
        held: RangeSet,
    },
    /// A slab was hashed.
    Hashed {
        /// The slab's number.
        slab: u32,
        /// The hashes of the slab's bytes.
        hash: SlabHash,
    },
    /// What exists and the sender has not. This comes after everything was put in place and before
    /// [`StoreEvent::Committed`], at most once.
    Surplus(Vec<Surplus>),
    /// What the sender says of files and could not be set. This comes after everything was put in
    /// place and before [`StoreEvent::Committed`], at most once.
    Unset(Vec<Unset>),
    /// Everything is in place and synced.
    Committed,
    /// A request failed; the store does nothing further.
    Failed {
        /// The kind of error, for the program.
        code: ErrorCode,
        /// Operation, path, cause and remedy, for a person.
        text: String,
    },
}
