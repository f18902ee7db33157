//! A transfer over connections alone: the sender dials its receivers, and each gets everything over
//! its own connection, at its own pace.
//!
//! The passes are those of any transfer, but no data goes into a packet stream. No receiver waits
//! for another. A receiver gets the manifest as soon as it has joined, and its content as soon as
//! it has said what it holds. Content is hashed when it is read for the first receiver that gets
//! it; the seals are sent when all content is hashed.

use base::{Instant, LinkId};
use wire::object::{ErrorCode, ObjectId, PassEnd, Refusal};

use super::{Carriage, TransferSender, TransferSenderEvent, member::Member, pass::Place};
use crate::{Content, RangeSet, control::GivenUp};

impl<C: Content> TransferSender<C> {
    /// Dials each host whose next attempt is due.
    pub(super) fn dial(&mut self, now: Instant) {
        if self.is_finished() {
            return;
        }
        while let Some((place, peer)) = self.invitations.dial(now) {
            let key = u32::try_from(place).expect("as many hosts as a person names");
            self.listener.links.open(peer, key);
        }
    }

    /// Invites the peer to the session, on a connection that has just opened.
    pub(super) fn invite(&mut self, now: Instant, link: LinkId) {
        let count = self.announced_count();
        if let Some(peer) = self.invitations.opened(link) {
            self.listener.invite(now, link, peer, count);
        }
    }

    /// Notes that the connection to a dialled host is lost, or could not be opened.
    pub(super) fn not_reached(&mut self, now: Instant, link: LinkId) {
        if let Some((peer, text)) = self.invitations.lost(now, link) {
            let text = text.to_owned();
            self.event(TransferSenderEvent::NotReached { peer, text });
        }
    }

    /// Notes that a dialled host makes this sender wait its turn.
    pub(super) fn told_to_wait(&mut self, now: Instant, link: LinkId) {
        let slot = self.invitations.slot_of(link);
        let held = slot.map_or(0, |slot| self.members[slot].told.progress.held);
        let waits = self.invitations.waits(now, link, held);
        let news = waits.map(|(peer, text)| (peer, text.to_owned()));
        // A host that says WAIT and closes at once is no longer in line at a later check, so the
        // line timeout is checked here.
        self.check_line(now);
        self.put_off_deadline(now);
        if let Some((peer, text)) = news {
            self.event(TransferSenderEvent::NotReached { peer, text });
        }
    }

    /// Gives up each host that has made this sender wait in line for at least the line timeout.
    pub(super) fn check_line(&mut self, now: Instant) {
        let timeout = self.config.line_timeout;
        let mut is_one_given_up = false;
        while let Some(given_up) = self.invitations.give_up_waiting(now, timeout) {
            let GivenUp {
                link,
                peer,
                slot,
                text,
            } = given_up;
            self.listener.close(link);
            match slot {
                Some(slot) => self.fail(now, slot, ErrorCode::TimedOut, &text),
                None => self.event(TransferSenderEvent::NotReached { peer, text }),
            }
            is_one_given_up = true;
        }
        if is_one_given_up {
            self.all_joined(now);
            self.check_finished(now);
        }
    }

    /// Puts off the deadline by which receivers must join, while a host makes this sender wait its
    /// turn. That host has answered, and its receiver joins when it has a place for this sender.
    pub(super) fn put_off_deadline(&mut self, now: Instant) {
        if self.invitations.is_in_line() {
            let deadline = now + self.config.join_timeout;
            self.clock.join_deadline = self.clock.join_deadline.max(deadline);
        }
    }

    /// Notes that a dialled host refused this sender, or that this sender refused that host's
    /// receiver.
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

    /// Returns true when the next content to hash will be read for a receiver anyway, so that it
    /// need not be read for the hash alone. Returns false while a receiver waits only for the
    /// seals: otherwise hashing would go at the pace of the slowest other receiver, and the seals
    /// would come late.
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
    use std::{net::SocketAddr, time::Duration};

    use base::LinkEvent;
    use wire::object::{Hello, Message, VERSION};

    use super::*;
    use crate::{
        Entry, LinkCommand, TransferSenderConfig,
        memory::MemoryContent,
        parameters::{WAIT_INTERVAL, WAIT_PATIENCE},
    };

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos((seconds + 1) * 1_000_000_000)
    }

    /// A sender that has invited the receiver at its only host, on this connection.
    fn inviting(link: LinkId) -> TransferSender<MemoryContent> {
        let (manifest, content) =
            MemoryContent::generate(vec![Entry::file("a", 9)], [0; 16], 1).unwrap();
        let mut config = TransferSenderConfig::new(5, 1, 1);
        let peer = SocketAddr::from(([10, 0, 0, 1], 7500));
        config.carriage = Carriage::Links(vec![peer]);
        let mut sender = TransferSender::new(config, manifest, content, at(0));
        sender.handle_timeout(at(0));
        connect(&mut sender, at(0), link);
        sender
    }

    /// Opens the connection that the sender asks for, and takes what the sender says on it.
    fn connect(sender: &mut TransferSender<MemoryContent>, now: Instant, link: LinkId) {
        assert!(matches!(sender.poll_link(), Some(LinkCommand::Open { .. })));
        sender.link_opened(0, link);
        sender.handle_link(now, link, LinkEvent::Opened, &[]);
        while let Some(command) = sender.poll_link() {
            if let LinkCommand::Send { link, bytes } = command {
                let taken = bytes.len();
                sender.link_sent(link, taken);
            }
        }
    }

    fn hear(
        sender: &mut TransferSender<MemoryContent>,
        now: Instant,
        link: LinkId,
        message: &Message<'_>,
    ) {
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        sender.handle_link(now, link, LinkEvent::Data, &bytes);
    }

    /// Lets the receiver tell this sender 100 times to wait its turn. Returns the time after that.
    fn wait(sender: &mut TransferSender<MemoryContent>, from: Instant, link: LinkId) -> Instant {
        let mut now = from;
        for _ in 0..100 {
            hear(sender, now, link, &Message::Wait);
            now += WAIT_INTERVAL;
            sender.handle_timeout(now);
            assert!(!sender.is_finished());
        }
        now
    }

    #[test]
    fn a_sender_that_waits_its_turn_does_not_give_up_and_afterwards_has_all_its_time() {
        // The connection is lost and the place in line with it, or the receiver falls silent.
        for is_stuck in [false, true] {
            let link = LinkId(1);
            let mut sender = inviting(link);
            let join_timeout = sender.config.join_timeout;
            let mut now = wait(&mut sender, at(1), link);
            let told = std::iter::from_fn(|| sender.pop_event())
                .any(|event| format!("{event:?}").contains("waits its turn"));
            assert!(told);
            match is_stuck {
                true => {
                    now += WAIT_PATIENCE;
                    sender.handle_timeout(now);
                    assert!(sender.poll_link().is_some(), "the connection is closed");
                }
                false => sender.handle_link(now, link, LinkEvent::Closed, &[]),
            }
            // It dials again, for as long as at the beginning.
            sender.handle_timeout(now + join_timeout - Duration::from_secs(1));
            assert!(!sender.is_finished());
            sender.handle_timeout(now + join_timeout);
            assert!(sender.is_finished());
        }
    }

    #[test]
    fn a_host_that_has_the_sender_wait_for_ever_is_given_up() {
        let link = LinkId(1);
        let mut sender = inviting(link);
        sender.config.line_timeout = WAIT_INTERVAL * 101;
        let now = wait(&mut sender, at(1), link);
        hear(&mut sender, now, link, &Message::Wait);
        sender.handle_timeout(now + WAIT_INTERVAL);
        assert!(sender.is_finished());
        let told: Vec<_> = std::iter::from_fn(|| sender.pop_event()).collect();
        let last = format!("{told:?}");
        assert!(last.contains("wait its turn for 1010 s"), "{last}");
    }

    #[test]
    fn a_receiver_whose_host_has_the_sender_wait_again_is_not_given_up() {
        let link = LinkId(1);
        let mut sender = inviting(link);
        let hello = Message::Hello(Hello {
            version_min: VERSION,
            version_max: VERSION,
            session_id: 5,
            instance: 1,
            name: "r",
            nonce: None,
        });
        hear(&mut sender, at(1), link, &hello);
        assert_eq!(sender.members.len(), 1, "it was admitted");
        // The receiver has no place for what was offered.
        sender.handle_link(at(1), link, LinkEvent::Closed, &[]);
        sender.handle_timeout(at(3));
        let again = LinkId(2);
        connect(&mut sender, at(3), again);
        wait(&mut sender, at(3), again);
        let events: Vec<_> = std::iter::from_fn(|| sender.pop_event()).collect();
        let has_failed =
            |event: &TransferSenderEvent| matches!(event, TransferSenderEvent::Failed { .. });
        assert!(!events.iter().any(has_failed), "{events:?}");
    }
}
