//! The store: where a receiver puts the content that it gets.

use std::sync::Arc;

use wire::object::ErrorCode;

use crate::{Manifest, RangeSet, SlabHash};

/// A store for the content of one manifest: it stages content, hashes it, and puts it in place.
///
/// An implementation may do the work within the call, or queue it for a thread. Requests are served
/// in the order in which they were made, so a hash covers all writes before it.
/// [`Store::poll_event`] gives the outcomes. [`StoreEvent::Failed`] may come in place of any of
/// them.
pub trait Store {
    /// Takes charge of a manifest: before any byte arrives, the store checks that there is room for
    /// all of the content. [`StoreEvent::Prepared`] follows.
    fn prepare(&mut self, manifest: &Arc<Manifest>);

    /// Writes bytes at a position of the content; the range lies within the content and may span
    /// files. Returns false when the queue is full: the store then took nothing, and the bytes
    /// count as not received.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> bool;

    /// Returns true when so much waits to be written that the sender should pause. Data that is
    /// already under way still has room. The call must be cheap: it is made several times a turn.
    fn is_behind(&self) -> bool {
        false
    }

    /// Hashes a slab of which the store has every byte; [`StoreEvent::Hashed`] follows. Returns
    /// false when the queue is full: ask again later.
    fn hash_slab(&mut self, slab: u32) -> bool;

    /// Puts the content, which is now verified, in place: syncs it, creates directories and links,
    /// and gives the final names. [`StoreEvent::Committed`] follows.
    ///
    /// `withdrawn` are indices of [`Manifest::files`], ascending: files that the sender has
    /// withdrawn. What was written of these files is not delivered. If a file of the same name
    /// exists already, it stays.
    fn commit(&mut self, withdrawn: &[usize]);

    /// Gives the transfer up; what is staged may be kept for a later attempt.
    fn abandon(&mut self);

    /// Returns the next outcome.
    fn poll_event(&mut self) -> Option<StoreEvent>;
}

/// A file, link or directory that the receiver has and the sender does not have.
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
    /// The file or link, or something in the directory, could not be deleted. An empty path stands
    /// for the whole receive directory.
    Kept {
        /// The path beneath the receive directory.
        path: Vec<u8>,
        /// The reason, for a person.
        why: String,
    },
}

/// A property that the sender announced for some files, and that the receiver could not set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unset {
    /// What could not be set, and why, for a person: for example an owner, or an attribute with its
    /// name.
    pub what: String,
    /// The number of files, directories and links for which the property could not be set.
    pub entries: u64,
}

impl Unset {
    /// Makes the entry for a property, named by `what`, that could not be set for `entries` files,
    /// directories and links.
    #[must_use]
    pub const fn new(what: String, entries: u64) -> Self {
        Self { what, entries }
    }
}

/// An outcome of a request to a [`Store`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// There is room for the content of the manifest.
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
    /// The files, links and directories that the receiver has and the sender does not have. This
    /// event comes after everything was put in place and before [`StoreEvent::Committed`], at most
    /// once.
    Surplus(Vec<Surplus>),
    /// The properties that the sender announced for some files, and that the store could not set.
    /// This event comes after everything was put in place and before [`StoreEvent::Committed`], at
    /// most once.
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
