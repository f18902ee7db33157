//! Withdraws files that cannot be read or have changed, while the rest of the transfer goes on.
//!
//! ```text
//!   read fails --> withdrawn: zeros from here on, out of every pass and need
//!              --> seals of zeros --SEALS--> receivers count it as held and do not keep it
//! ```
//!
//! Receivers learn this only from the seals, which every receiver checks, even one that comes back
//! or joins later. A proof over seals that were told earlier remains valid.
//!
//! **Spec**: `docs/src/protocol.md` section 6.

use base::Instant;
use wire::object::{Done, ObjectId, PassEnd};

use super::{TransferSender, TransferSenderEvent, Unsent};
use crate::{Content, Hash};

/// What a receiver that holds everything proves: by the present seals, or by those from before a
/// withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proof {
    pub(super) root: Hash,
    /// Bytes of content without the files that were withdrawn by then.
    bytes: u64,
}

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
            let range = file.start..file.start + file.size;
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
        if !self.proofs.is_empty() {
            self.note_proof();
        }
        true
    }

    /// Notes what receivers prove from now on, because all content is hashed or its seals have
    /// changed.
    pub(super) fn note_proof(&mut self) {
        let seals = self.window.seals().expect("everything is hashed");
        let root = self.manifest.tree_root(seals);
        let bytes = self.delivered_bytes();
        self.proofs.push(Proof { root, bytes });
    }

    /// Tells a receiver the seals again when it needs nothing but withdrawn content, which it does
    /// not know to be withdrawn. Returns true then.
    pub(super) fn forgo(&mut self, now: Instant, slot: usize) -> bool {
        let need = &mut self.members[slot].lists.need;
        let had_bytes = need.bytes();
        for &index in self.window.withdrawn() {
            let file = self.manifest.files()[index];
            need.remove(ObjectId::CONTENT, file.start..file.start + file.size);
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

    /// Returns true when a receiver has what was sent, by the present seals or by those told
    /// earlier.
    pub(super) fn is_proof(&self, done: &Done) -> bool {
        let (root, bytes) = (done.root, done.numbers.bytes);
        self.proofs.contains(&Proof { root, bytes })
    }

    /// Returns the bytes of the content without withdrawn files.
    pub(super) fn delivered_bytes(&self) -> u64 {
        let files = self.unsent_files();
        self.manifest.content_bytes() - files.map(|file| file.size).sum::<u64>()
    }

    /// Returns true for content of a withdrawn file, which nobody is sent.
    pub(super) fn is_withdrawn(&self, object: ObjectId, offset: u64) -> bool {
        let withdrawn = self.window.withdrawn();
        object == ObjectId::CONTENT
            && !withdrawn.is_empty()
            && withdrawn.contains(&self.manifest.file_at(offset))
    }

    fn unsent_files(&self) -> impl Iterator<Item = &crate::File> {
        let files = self.manifest.files();
        self.window.withdrawn().iter().map(|&index| &files[index])
    }
}
