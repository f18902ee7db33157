//! The disk's thread: serves the queue, one request after the other.

use std::{path::PathBuf, sync::Arc, time::Duration};

use delivery::{Manifest, StoreEvent};
use sys::file::Directory;

use super::{
    Delete, Fault, Owners,
    attributes::Attributes,
    claim, commit, endings,
    leftover::{self, Current},
    owner::Ownership,
    prepare::Preparation,
    queue::{Queue, Request},
    staging::Staging,
    surplus,
};

/// The state of the disk's thread.
pub(super) struct Worker {
    pub(super) queue: Arc<Queue>,
    /// The queues of former stores of the same manifest. Their threads are still at work, and one
    /// may still hold the claim (lock) that this store needs.
    pub(super) former: Vec<Arc<Queue>>,
    pub(super) preparation: Preparation,
    /// The path of the receive directory as the user knows it, for texts.
    pub(super) shown: PathBuf,
    pub(super) delete: Delete,
    pub(super) owner: Owners,
    pub(super) attributes: bool,
    pub(super) keep: bool,
    pub(super) staging: Option<Staging>,
    pub(super) is_committed: bool,
    pub(super) has_failed: bool,
    pub(super) events: Vec<StoreEvent>,
}

impl Worker {
    pub(super) fn run(mut self) {
        let queue = Arc::clone(&self.queue);
        // This runs even when a bug ends the thread: the session must not wait for ever.
        let _end = End(Arc::clone(&queue));
        while let Some(request) = queue.next() {
            let served = self.serve(request);
            self.answer(served);
        }
        self.end();
    }

    fn serve(&mut self, request: Request) -> Result<(), Fault> {
        if self.has_failed || self.is_committed {
            if let Request::Extent(extent) = request {
                self.queue.give_back(extent);
            }
            return Ok(());
        }
        match (request, &mut self.staging) {
            (Request::Prepare(manifest), _) => {
                if !endings::wait_for_all(self.former.drain(..), FORMER_WAIT) {
                    return Err(claim::not_ended());
                }
                let prepared = self.preparation.prepare(&self.shown, &manifest)?;
                let directory = Arc::clone(&prepared.staging.directory);
                self.staging = Some(prepared.staging);
                prepared
                    .notes
                    .into_iter()
                    .for_each(|note| self.queue.note(note));
                self.tidy(&directory, &manifest, false);
                let held = prepared.held;
                self.events.push(StoreEvent::Prepared { held });
            }
            (Request::Extent(extent), Some(staging)) => {
                staging.write(&extent)?;
                for &slab in &extent.slabs {
                    let hash = staging.hash_slab(slab, Some(&extent))?;
                    self.events.push(StoreEvent::Hashed { slab, hash });
                }
                self.queue.give_back(extent);
                staging.tell_journal(self.queue.is_empty())?;
                let notes = staging.notes.drain(..);
                notes.for_each(|note| self.queue.note(note));
            }
            (Request::Hash(slab), Some(staging)) => {
                let hash = staging.hash_slab(slab, None)?;
                self.events.push(StoreEvent::Hashed { slab, hash });
                staging.tell_journal(self.queue.is_empty())?;
            }
            (Request::Commit(withdrawn), Some(staging)) => {
                let owners = Ownership::of(&staging.manifest, self.owner);
                let attributes = Attributes::of(&staging.manifest, self.attributes);
                let existing = self.preparation.existing;
                let unset = commit::commit(staging, existing, (owners, attributes), &withdrawn)?;
                if !unset.is_empty() {
                    self.events.push(StoreEvent::Unset(unset));
                }
                let manifest = Arc::clone(&staging.manifest);
                let directory = Arc::clone(&staging.directory);
                self.is_committed = true;
                let found =
                    surplus::sweep((&staging.directory, &staging.disk), &manifest, self.delete);
                if !found.is_empty() {
                    self.events.push(StoreEvent::Surplus(found));
                }
                self.events.push(StoreEvent::Committed);
                self.tidy(&directory, &manifest, true);
            }
            // The session makes no such request before it prepares a manifest.
            (_, None) => {}
        }
        Ok(())
    }

    /// Removes leftovers of earlier attempts that probably nobody will continue.
    fn tidy(&self, directory: &Arc<Directory>, manifest: &Manifest, is_in_place: bool) {
        let current = Current {
            manifest,
            is_in_place,
        };
        leftover::tidy(directory, &self.shown, &current)
            .into_iter()
            .for_each(|note| self.queue.note(note));
    }

    fn answer(&mut self, served: Result<(), Fault>) {
        if let Err(fault) = served {
            self.has_failed = true;
            self.events.push(fault.event(&self.shown));
            // The staged content is kept, or removed, before the session hears of the failure.
            self.release();
        }
        self.queue.tell(&mut self.events);
    }

    fn end(&mut self) {
        self.release();
    }

    /// Removes the staged content, or keeps it so that a later attempt can use it.
    fn release(&mut self) {
        let Some(mut staging) = self.staging.take() else {
            return;
        };
        if self.is_committed || !self.keep || staging.is_worthless() {
            staging.claim.clear();
        } else {
            // If this fails, the only harm is that a later attempt fetches more content again.
            let _is_told = staging.tell_journal(true).is_ok();
        }
    }
}

/// A guard whose drop tells the queue that the disk's thread is over.
struct End(Arc<Queue>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// The longest time that a store waits for the former stores of its manifest. A stalled disk
/// usually works again well within this time, and a sender waits longer than this for progress, so
/// that it does not give up meanwhile.
const FORMER_WAIT: Duration = Duration::from_secs(10);
