//! Sends blocks to single receivers over their connections.
//!
//! **Spec**: `docs/src/protocol.md` section 5 (BLOCK), section 6.

use wire::object::{BLOCK_DATA_MAX, Block, Message, ObjectId};

use super::{TransferSender, pass::Place};
use crate::Content;

impl<C: Content> TransferSender<C> {
    /// Queues blocks on connections that have room, and after the last block the end of the pass.
    pub(super) fn top_up(&mut self) {
        let mut from = 0;
        while let Some(&slot) = self.filling.range(from..).next() {
            from = slot + 1;
            self.top_up_one(slot);
        }
    }

    fn top_up_one(&mut self, slot: usize) {
        loop {
            let member = &self.members[slot];
            let Some(queued) = member
                .link
                .and_then(|link| self.listener.links.queued(link))
            else {
                self.filling.remove(&slot);
                return;
            };
            if queued >= QUEUED_MAX {
                return;
            }
            let Some((object, range)) = member.fills.needs.next_after(member.fills.at) else {
                break;
            };
            let len = (range.end - range.start).min(BLOCK_DATA_MAX as u64);
            if !self.send_block(slot, object, range.start, len) {
                return;
            }
        }
        self.filling.remove(&slot);
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

    /// Queues one block; returns false when that ended the receiver's part or the whole transfer.
    fn send_block(&mut self, slot: usize, object: ObjectId, offset: u64, len: u64) -> bool {
        let now = self.clock.now;
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(usize::try_from(len).expect("a block is short"), 0);
        let read = match self.is_by_links() {
            true => self.window.copy_hashing(object, offset, &mut scratch),
            false => self.window.copy_apart(object, offset, &mut scratch),
        };
        let is_read = match read {
            Ok(()) if self.is_withdrawn(object, offset) => self.filling.contains(&slot),
            Ok(()) => {
                let data = &scratch[..];
                self.tell(
                    now,
                    slot,
                    &Message::Block(Block {
                        object,
                        offset,
                        data,
                    }),
                );
                self.counters.fill_bytes += len;
                if object == ObjectId::CONTENT {
                    self.counters.content_fill_bytes += len;
                    self.members[slot].fills.bytes += len;
                }
                self.members[slot].fills.at = Place {
                    object,
                    offset: offset + len,
                };
                self.filling.contains(&slot)
            }
            Err(error) => {
                self.content_failed(now, error);
                false
            }
        };
        self.scratch = scratch;
        if self.note_withdrawn() {
            // Perhaps nothing else is left of the current pass.
            self.advance(now);
        }
        is_read && self.filling.contains(&slot)
    }
}

/// The number of bytes queued on a connection from which on no blocks are added.
const QUEUED_MAX: usize = 2 * BLOCK_DATA_MAX;
