//! A transfer over connections alone: the sender dials its receivers, and each gets everything over
//! its own connection, at its own pace.
//!
//! The passes are those of any transfer, with nothing in them for a packet stream. Nobody waits for
//! anybody: a receiver gets the manifest as soon as it has joined, and its content as soon as it
//! has said what it holds. Content is hashed when it is read for the first receiver that gets it;
//! the seals follow.

use base::{Instant, LinkId};
use wire::object::{ObjectId, PassEnd, Refusal};

use super::{Carriage, TransferSender, TransferSenderEvent, member::Member, pass::Place};
use crate::{Content, RangeSet};

impl<C: Content> TransferSender<C> {
    /// Dials the hosts that are due.
    pub(super) fn dial(&mut self, now: Instant) {
        if self.is_finished() {
            return;
        }
        while let Some((place, peer)) = self.invitations.dial(now) {
            let key = u32::try_from(place).expect("as many hosts as a person names");
            self.listener.links.open(peer, key);
        }
    }

    /// Tells the peer of the session, on a connection that has just opened.
    pub(super) fn invite(&mut self, now: Instant, link: LinkId) {
        let count = self.announced_count();
        if let Some(peer) = self.invitations.opened(link) {
            self.listener.invite(now, link, peer, count);
        }
    }

    /// Notes that a connection to a host that is dialled is lost, or could not be opened.
    pub(super) fn not_reached(&mut self, now: Instant, link: LinkId) {
        if let Some((peer, text)) = self.invitations.lost(now, link) {
            let text = text.to_owned();
            self.event(TransferSenderEvent::NotReached { peer, text });
        }
    }

    /// Notes that a dialled host has this sender wait its turn.
    pub(super) fn told_to_wait(&mut self, now: Instant, link: LinkId) {
        let waits = self.invitations.waits(link);
        let news = waits.map(|(peer, text)| (peer, text.to_owned()));
        self.put_off_deadline(now);
        if let Some((peer, text)) = news {
            self.event(TransferSenderEvent::NotReached { peer, text });
        }
    }

    /// Moves the end of the wait for receivers while a host has this sender wait its turn: the host
    /// has answered, and greets when it has a place.
    pub(super) fn put_off_deadline(&mut self, now: Instant) {
        if self.invitations.is_in_line() {
            let deadline = now + self.config.join_timeout;
            self.clock.join_deadline = self.clock.join_deadline.max(deadline);
        }
    }

    /// Notes that a dialled host refused this sender, or this sender its receiver.
    pub(super) fn not_taken(&mut self, now: Instant, link: LinkId, reason: Refusal, text: &str) {
        if let Some((peer, text)) = self.invitations.refused(now, link, reason, text) {
            let text = text.to_owned();
            self.event(TransferSenderEvent::NotReached { peer, text });
        }
        if let Carriage::Links(_) = self.config.carriage {
            self.all_joined(now);
            self.check_finished(now);
        }
    }

    /// Sends the manifest to a receiver that has just joined.
    pub(super) fn push_manifest(&mut self, slot: usize) {
        let whole = RangeSet::whole(self.manifest.bytes().len() as u64, self.config.ranges_max);
        self.fill_alone(slot, ObjectId::MANIFEST, whole, 0);
    }

    /// Sends a receiver all content that it did not hold when it last said what it holds.
    pub(super) fn push_content(&mut self, now: Instant, slot: usize) {
        let (len, max) = (self.manifest.content_bytes(), self.config.ranges_max);
        let member = &mut self.members[slot];
        let lacks = RangeSet::covering(member.lists.have.missing(len), len, max);
        member.part.is_awaited = false;
        member.lists.need_before = lacks.bytes();
        member.told.progress_at = now;
        self.fill_alone(slot, ObjectId::CONTENT, lacks, self.pass.number);
    }

    fn fill_alone(&mut self, slot: usize, object: ObjectId, ranges: RangeSet, pass: u32) {
        let fills = &mut self.members[slot].fills;
        fills.needs.clear();
        fills.needs.set(object, ranges);
        fills.at = Place::START;
        fills.after = Some(PassEnd {
            pass,
            position: None,
        });
        self.filling.insert(slot);
    }

    /// Returns true when what is being sent to a receiver will be hashed as it is read, so that
    /// nothing need be read for the hash alone. Returns false while a receiver that has everything
    /// waits for the seals: it would have to wait for the slowest of the others.
    pub(super) fn hashes_on_the_way(&self) -> bool {
        let waits = |member: &Member| member.fills.waits_for_seals || member.early.is_some();
        if self.members.iter().any(waits) {
            return false;
        }
        let cursor = self.window.cursor();
        self.filling.iter().any(|&slot| {
            let fills = &self.members[slot].fills;
            let content = fills.needs.of(ObjectId::CONTENT);
            let is_ahead = fills.at.object < ObjectId::CONTENT
                || (fills.at.object == ObjectId::CONTENT && fills.at.offset <= cursor);
            is_ahead
                && content
                    .first_from(cursor)
                    .is_some_and(|next| next.start == cursor)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use base::LinkEvent;
    use wire::object::Message;

    use super::*;
    use crate::{Entry, LinkCommand, TransferSenderConfig, memory::MemoryContent};

    #[test]
    fn a_sender_that_waits_its_turn_does_not_give_up_and_afterwards_has_all_its_time() {
        let at = |seconds: u64| Instant::from_nanos((seconds + 1) * 1_000_000_000);
        let (manifest, content) =
            MemoryContent::generate(vec![Entry::file("a", 9)], [0; 16], 1).unwrap();
        let mut config = TransferSenderConfig::new(5, 1, 1);
        let peer = SocketAddr::from(([10, 0, 0, 1], 7500));
        config.carriage = Carriage::Links(vec![peer]);
        let wait = config.join_timeout.as_secs();
        let mut sender = TransferSender::new(config, manifest, content, at(0));
        sender.handle_timeout(at(0));
        let link = LinkId(1);
        assert!(matches!(sender.poll_link(), Some(LinkCommand::Open { .. })));
        sender.link_opened(0, link);
        sender.handle_link(at(0), link, LinkEvent::Opened, &[]);
        while let Some(command) = sender.poll_link() {
            if let LinkCommand::Send { link, bytes } = command {
                let taken = bytes.len();
                sender.link_sent(link, taken);
            }
        }
        let mut bytes = Vec::new();
        Message::Wait.emit(&mut bytes);
        sender.handle_link(at(1), link, LinkEvent::Data, &bytes);
        let told = std::iter::from_fn(|| sender.pop_event())
            .any(|event| format!("{event:?}").contains("waits its turn"));
        assert!(told);
        let late = at(100 * wait);
        for now in [at(wait + 1), at(10 * wait), late] {
            sender.handle_timeout(now);
            assert!(!sender.is_finished());
        }
        // Its place in line is lost: it dials again, for as long as at the beginning.
        sender.handle_link(late, link, LinkEvent::Closed, &[]);
        sender.handle_timeout(at(100 * wait + wait - 1));
        assert!(!sender.is_finished());
        sender.handle_timeout(at(101 * wait));
        assert!(sender.is_finished());
    }
}
