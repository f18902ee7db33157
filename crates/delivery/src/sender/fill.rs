//! Sends blocks to single receivers over their connections.
//!
//! **Spec**: `docs/src/protocol.md` section 5 (BLOCK), section 6.

use std::{collections::BTreeSet, task::Poll};

use wire::object::{BLOCK_DATA_MAX, ObjectId};

use super::{
    Carriage, TransferSender,
    pass::Place,
    window::{Copying, Window},
};
use crate::{Content, ContentError};

/// Slots of the receivers that still get blocks over their connections.
#[derive(Debug, Default)]
pub(super) struct Filling {
    slots: BTreeSet<usize>,
    /// The slots among `slots` whose connections may have room for more blocks.
    hungry: BTreeSet<usize>,
    /// The slots among `slots` whose next block is being fetched.
    waiting: BTreeSet<usize>,
}

impl Filling {
    pub(super) fn insert(&mut self, slot: usize) {
        self.slots.insert(slot);
        self.hungry.insert(slot);
    }

    pub(super) fn remove(&mut self, slot: usize) {
        self.slots.remove(&slot);
        self.hungry.remove(&slot);
        self.waiting.remove(&slot);
    }

    /// Notes that bytes have left on a receiver's connection.
    pub(super) fn has_room(&mut self, slot: usize) {
        if self.slots.contains(&slot) {
            self.hungry.insert(slot);
        }
    }

    /// Takes a slot out of `hungry`. [`Filling::has_room`] puts it back when bytes have left on the
    /// receiver's connection.
    fn pop_hungry(&mut self) -> Option<usize> {
        self.hungry.pop_first()
    }

    /// Returns true when a receiver's next block is being fetched.
    pub(super) fn waits(&self, slot: usize) -> bool {
        self.waiting.contains(&slot)
    }

    /// Tries again to serve all that wait for their next block.
    pub(super) fn look_again(&mut self) {
        self.hungry.append(&mut self.waiting);
    }

    pub(super) fn contains(&self, slot: usize) -> bool {
        self.slots.contains(&slot)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &usize> {
        self.slots.iter()
    }

    fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<C: Content> TransferSender<C> {
    /// Queues blocks on connections that have room. After its last block, each connection gets the
    /// end of the pass.
    ///
    /// This looks only at receivers that were just added, and at connections from which the system
    /// has taken bytes since the last call. So the cost of a call does not grow with the number of
    /// receivers.
    pub(super) fn top_up(&mut self) {
        while let Some(slot) = self.filling.pop_hungry() {
            self.top_up_one(slot);
        }
    }

    fn top_up_one(&mut self, slot: usize) {
        let (low, high) = self.queue_marks();
        let mut most = low;
        loop {
            let member = &self.members[slot];
            let Some(queued) = member
                .link
                .and_then(|link| self.listener.links.queued(link))
            else {
                self.filling.remove(slot);
                return;
            };
            if queued >= most {
                return;
            }
            most = high;
            let Some((object, range)) = member.fills.needs.next_after(member.fills.at) else {
                break;
            };
            let len = (range.end - range.start).min(BLOCK_DATA_MAX as u64);
            if !self.send_block(slot, object, range.start, len) {
                return;
            }
        }
        self.filling.remove(slot);
        let now = self.clock.now;
        let has_seals = self.pass.number == 0 || self.window.seals_hash().is_some();
        let member = &mut self.members[slot];
        member.fills.needs.clear();
        if member.fills.after.is_some_and(|end| end.pass > 0) && !has_seals {
            member.fills.waits_for_seals = true;
            return;
        }
        if let Some(end) = member.fills.after.take() {
            self.send_pass_end(now, slot, end);
        }
    }

    /// Returns two lengths of a connection's queue, in bytes. When the queue is shorter than the
    /// first length, it is filled up to the second. If there are few connections, their queues are
    /// long, so that the system is called seldom. If there are many, the queues are short, which
    /// bounds the memory of all.
    fn queue_marks(&self) -> (usize, usize) {
        let share = QUEUED_ALL / self.filling.len().max(1);
        let high = share.clamp(QUEUED_MIN, QUEUED_MAX);
        (high / 2, high)
    }

    /// Queues one block for a receiver. Returns false when the receiver gets no more blocks, or
    /// none now: the content cannot be read, or is not there yet.
    fn send_block(&mut self, slot: usize, object: ObjectId, offset: u64, len: u64) -> bool {
        let Some(link) = self.members[slot].link else {
            return false;
        };
        let now = self.clock.now;
        let bytes = usize::try_from(len).expect("a block is short");
        let copy: Copying<C> = match self.config.carriage {
            Carriage::Links(_) if self.filling.len() == 1 => Window::copy_alone,
            Carriage::Links(_) => Window::copy_hashing,
            Carriage::Packets => Window::copy_apart,
        };
        let (window, links) = (&mut self.window, &mut self.listener.links);
        let queued = links.queue_block(link, (object, offset), bytes, |out| {
            let place = (object, offset);
            match window.append(copy, place, bytes, out) {
                Err(error) => Err(NotQueued::Failed(error)),
                Ok(Poll::Pending) => Err(NotQueued::Coming),
                // If the read has failed, the file is withdrawn, and the rest of it is sent to
                // nobody.
                Ok(Poll::Ready(())) if window.is_withdrawn(object, offset) => {
                    Err(NotQueued::Withdrawn)
                }
                Ok(Poll::Ready(())) => Ok(()),
            }
        });
        let mut is_read = true;
        match queued {
            Ok(true) => {
                self.counters.fill_bytes += len;
                if object == ObjectId::CONTENT {
                    self.counters.content_fill_bytes += len;
                    self.members[slot].fills.bytes += len;
                }
                self.members[slot].fills.at = Place {
                    object,
                    offset: offset + len,
                };
            }
            Ok(false) => self.unread(now, slot, link),
            Err(NotQueued::Withdrawn) => {}
            Err(NotQueued::Coming) => {
                self.filling.waiting.insert(slot);
                is_read = false;
            }
            Err(NotQueued::Failed(error)) => {
                self.content_failed(now, error);
                is_read = false;
            }
        }
        if self.note_withdrawn() {
            // Perhaps only the withdrawn blocks were left to send in the current pass.
            self.advance(now);
        }
        is_read && self.filling.contains(slot)
    }
}

/// Why a block was not queued.
enum NotQueued {
    /// Its file was withdrawn.
    Withdrawn,
    /// Its bytes are being fetched.
    Coming,
    /// Its bytes cannot be read.
    Failed(ContentError),
}

/// A connection whose queue has this many bytes gets no further block.
const QUEUED_MAX: usize = 8 * BLOCK_DATA_MAX;
/// Every connection may queue this many bytes of blocks, however many connections there are.
const QUEUED_MIN: usize = 2 * BLOCK_DATA_MAX;
/// The bytes of blocks that all connections together may queue. With so many connections that each
/// one's share is below [`QUEUED_MIN`], they may queue more.
const QUEUED_ALL: usize = 16 << 20;
