//! Withdraws files that cannot be read or have changed, while the rest of the transfer goes on.
//!
//! ```text
//!   read fails --> withdrawn: sent as zeros, removed from every pass and need
//!              --> seals of zeros --SEALS--> receivers count it as held and do not keep it
//! ```
//!
//! Receivers learn of a withdrawal only from the seals, which every receiver checks, even one that
//! comes back or joins later. A proof that rests on seals told before a withdrawal remains valid.
//!
//! **Spec**: `docs/src/protocol.md` section 6.

use base::Instant;
use wire::object::{Done, ObjectId, PassEnd};

use super::{TransferSender, TransferSenderEvent, Unsent};
use crate::{
    Content,
    proof::{Holding, Occasion},
};

impl<C: Content> TransferSender<C> {
    /// Removes newly withdrawn content from everything that is still to be sent. Returns true when
    /// there was any.
    pub(super) fn note_withdrawn(&mut self) -> bool {
        let news = self.window.take_news();
        if news.is_empty() {
            return false;
        }
        for error in news {
            let Some(index) = error.file else {
                continue;
            };
            let file = self.manifest.files()[index];
            let range = file.start..file.start + file.size_bytes;
            self.pass.needs.remove(ObjectId::CONTENT, range.clone());
            for member in &mut self.members {
                member.fills.needs.remove(ObjectId::CONTENT, range.clone());
                member.lists.need.remove(ObjectId::CONTENT, range.clone());
            }
            let paths = self.manifest.paths_of(index);
            let paths: Vec<_> = paths
                .map(|path| Unsent::new(path, &error.text[..]))
                .collect();
            for unsent in paths {
                self.unsent.push(unsent.clone());
                self.event(TransferSenderEvent::Withdrawn(unsent));
            }
        }
        if !self.holdings.is_empty() {
            self.note_holding();
        }
        true
    }

    /// Notes the present hashes as content that receivers may prove. Called when all content has
    /// been hashed, and again when a withdrawal has changed the hashes.
    pub(super) fn note_holding(&mut self) {
        let hashes = self.window.hashes().expect("everything is hashed");
        self.holdings.push(Holding::of(&self.manifest, hashes));
    }

    /// Notes the present hashes as content that receivers may prove, unless any were noted before.
    pub(super) fn note_first_holding(&mut self) {
        if self.holdings.is_empty() {
            self.note_holding();
        }
    }

    /// Removes withdrawn content from what a receiver needs. A receiver that needed only such
    /// content has not learnt of the withdrawal. So it is told the seals again, if they are known.
    /// Returns true when it was told.
    pub(super) fn forgo(&mut self, now: Instant, slot: usize) -> bool {
        let need = &mut self.members[slot].lists.need;
        let had_bytes = need.bytes();
        for &index in self.window.withdrawn() {
            let file = self.manifest.files()[index];
            need.remove(ObjectId::CONTENT, file.start..file.start + file.size_bytes);
        }
        if had_bytes == 0 || !need.is_empty() || self.window.seals_hash().is_none() {
            return false;
        }
        let end = PassEnd {
            pass: self.pass.number,
            position: None,
        };
        self.send_pass_end(now, slot, end);
        true
    }

    /// Returns what is wrong with a receiver's proof; `None` when the proof is right. A proof may
    /// rest on the present seals, or on seals told earlier.
    pub(super) fn fault_of(&self, slot: usize, done: &Done) -> Option<&'static str> {
        let member = &self.members[slot];
        let occasion = Occasion {
            nonce: member.nonce,
            session_id: self.config.session_id,
            instance: member.instance,
            name: &member.name,
        };
        let is_same = |it: &&Holding| it.root == done.root && it.bytes == done.numbers.bytes;
        let mut same = self.holdings.iter().filter(is_same).peekable();
        if same.peek().is_none() {
            return Some("its files are not those that were sent: its root hash differs");
        }
        let is_proven = same.any(|it| it.prove(&occasion) == done.proof);
        (!is_proven).then_some(
            "it claims what it cannot show: its proof that it has hashed every byte is wrong",
        )
    }

    /// Returns the size of the content in bytes, without withdrawn files.
    pub(super) fn delivered_bytes(&self) -> u64 {
        let files = self.unsent_files();
        self.manifest.content_bytes() - files.map(|file| file.size_bytes).sum::<u64>()
    }

    fn unsent_files(&self) -> impl Iterator<Item = &crate::File> {
        let files = self.manifest.files();
        self.window.withdrawn().iter().map(|&index| &files[index])
    }
}
