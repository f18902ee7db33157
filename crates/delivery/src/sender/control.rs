//! The control connections of a transfer sender: which receivers may join, and what their messages
//! mean.
//!
//! **Spec**: `docs/src/protocol.md` sections 5 and 6.

use std::net::{IpAddr, SocketAddr};

use base::{Instant, LinkEvent, LinkId, Share, share};
use wire::object::{
    Done, ErrorCode, Hello, Message, ObjectId, PassEnd, RangeList, Refusal, VERSION, Welcome,
};

use super::{
    Carriage, Stage, TransferSender,
    config::TransferSenderEvent,
    member::{Member, State, Way},
    pass::Place,
};
use crate::parameters::SILENCE_MAX;
use crate::{
    Content,
    control::{Hosts, Listener},
    feedback::interval_us,
    proof::nonce,
};

impl<C: Content> TransferSender<C> {
    /// Handles what happened on a control connection; `data` holds the bytes of
    /// [`LinkEvent::Data`].
    pub fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        self.clock.contract.tell_time(now);
        self.clock.now = now;
        self.link_event(now, link, event, data);
    }

    /// Finds the place of a receiver that greets: its old place if it comes back, else a new one.
    fn admit(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        hello: &Hello<'_>,
    ) -> Result<usize, Refusal> {
        let Some(&slot) = self.roll.by_name.get(hello.name) else {
            return self.enrol(now, peer, hello);
        };
        let member = &mut self.members[slot];
        let is_same = member.instance == hello.instance;
        let is_out = matches!(member.state, State::Failed { .. });
        if (is_same && is_out) || (!is_same && member.is_final() && !is_out) {
            return Err(Refusal::Over);
        }
        // A live receiver sends a message every second, so one that was silent for `SILENCE_MAX`
        // counts as dead.
        let is_heard = now.since(member.heard_at) < SILENCE_MAX;
        match member.link {
            Some(_) if !is_same && is_heard => return Err(Refusal::DuplicateName),
            Some(old) => {
                // The receiver is back on a new connection, or another receiver takes over its
                // name. In both cases its old connection is dead.
                self.roll.by_link.remove(&old);
                self.listener.close(old);
                member.disconnect(now);
            }
            None => {}
        }
        self.hosts.remove(member.peer.ip());
        if !is_same {
            let is_expected = member.is_expected;
            let mut fresh = self.new_member(now, peer, hello);
            fresh.is_expected = is_expected;
            self.members[slot] = fresh;
            if is_expected {
                self.roll.unfinished.insert(slot);
            }
            self.counters.successors += 1;
        }
        self.filling.remove(slot);
        let slot_number = u32::try_from(slot).unwrap_or(u32::MAX);
        self.event(TransferSenderEvent::Reconnected { slot: slot_number });
        Ok(slot)
    }

    fn new_member(&self, now: Instant, peer: SocketAddr, hello: &Hello<'_>) -> Member {
        let max = self.config.ranges_max;
        let mut member = Member::new(now, hello.name, hello.instance, peer, max);
        member.way = match self.config.carriage {
            Carriage::Links(_) => Way::Connection,
            Carriage::Packets => Way::Packets,
        };
        member
    }

    fn enrol(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        hello: &Hello<'_>,
    ) -> Result<usize, Refusal> {
        let slot = self.members.len();
        let names = &self.config.expected_names;
        let is_named = names.iter().any(|name| name == hello.name);
        if !is_named && !self.has_place(peer.ip()) {
            return Err(Refusal::Full);
        }
        let mut member = self.new_member(now, peer, hello);
        member.is_expected = match (&self.config.carriage, self.config.expected) {
            _ if !names.is_empty() => is_named,
            // Only the first receiver at a dialled host is expected: a second one must not count in
            // place of a receiver at another host.
            (Carriage::Links(_), _) => self.invitations.awaits(peer),
            (Carriage::Packets, 0) => self.stage == Stage::Joining || self.settle_time().is_some(),
            (Carriage::Packets, wanted) => self.roll.expected_count < wanted as usize,
        };
        self.clock.joined_at = now;
        if member.is_expected {
            self.roll.expected_count += 1;
            self.roll.unfinished.insert(slot);
        }
        self.members.push(member);
        self.roll.by_name.insert(hello.name.to_owned(), slot);
        self.event(TransferSenderEvent::Joined {
            slot: u32::try_from(slot).unwrap_or(u32::MAX),
            name: hello.name.to_owned(),
            peer,
        });
        Ok(slot)
    }

    /// Returns true when `host` may have a place for one more receiver that is not expected by
    /// name. There are `receivers_max` such places, and a receiver that has left keeps its place.
    /// Where anybody may join, the receivers of one host get at most half of the places.
    fn has_place(&self, host: IpAddr) -> bool {
        let places = self.config.receivers_max as usize;
        let has_names = !self.config.expected_names.is_empty();
        let unnamed = |member: &&Member| !(has_names && member.is_expected);
        let taken = || self.members.iter().filter(unnamed);
        let may_anybody_join =
            self.config.key.is_none() && matches!(self.config.carriage, Carriage::Packets);
        let hosts = taken().map(|member| member.peer.ip());
        let is_within_share =
            !may_anybody_join || share(places.div_ceil(2), places, hosts, host) == Share::Free;
        taken().count() < places && is_within_share
    }

    /// Takes a receiver's HAVE: the receiver holds the manifest, has made room for the content, and
    /// says which content it holds already.
    fn have(&mut self, now: Instant, slot: usize, list: &RangeList<'_>) {
        let len = self.manifest.content_bytes();
        let member = &mut self.members[slot];
        if list.object != ObjectId::CONTENT || list.ranges.iter().any(|range| range.end > len) {
            return self.violate(now, slot, "HAVE names bytes that do not exist");
        }
        if std::mem::replace(&mut member.lists.is_have_whole, list.is_last) {
            member.lists.have.clear();
        }
        for range in list.ranges.iter() {
            // `have` holds at most `ranges_max` ranges. The content of ranges that are left out is
            // sent again.
            let is_omitted = member.lists.have.insert(range, |_| {}).is_err();
            self.counters.ranges_omitted += u64::from(is_omitted);
        }
        if !list.is_last || member.is_final() {
            return;
        }
        member.state = State::Ready;
        member.part.owes_answer = false;
        member.part.is_awaited = false;
        member.told.progress_at = now;
        member.stream_at_join = self.counters.content_block_bytes;
        member.fills.bytes = 0;
        let number = self.pass.number;
        match self.stage {
            _ if matches!(member.way, Way::Connection) && number > 0 => {
                self.push_content(now, slot);
            }
            Stage::Sending | Stage::Hashing | Stage::Draining if number > 0 => {
                member.part.is_awaited = true;
                member.part.is_in_pass = true;
            }
            Stage::Answering { .. } | Stage::Idle if number > 0 => {
                let end = PassEnd {
                    pass: number,
                    position: None,
                };
                self.send_pass_end(now, slot, end);
            }
            _ => {}
        }
        self.check_answers(now);
    }

    /// Takes one NEED message: a part of the list of what the receiver lacks.
    fn need(&mut self, now: Instant, slot: usize, list: &RangeList<'_>) {
        let len = self.object_bytes(list.object);
        let is_early = list.object == ObjectId::SEALS && self.window.seals_hash().is_none();
        let member = &mut self.members[slot];
        if member.state == State::Joining && list.object != ObjectId::MANIFEST {
            return self.violate(now, slot, "NEED names content before the manifest is held");
        }
        if std::mem::replace(&mut member.lists.is_need_whole, list.is_last) {
            member.lists.need.clear();
        }
        let has_end = list.ranges.iter().any(|range| range.end > len);
        let Some(set) = member.lists.need.of_mut(list.object).filter(|_| !has_end) else {
            return self.violate(now, slot, "NEED names bytes that do not exist");
        };
        // Seals that do not exist yet are announced later; the receiver requests them then.
        for range in list.ranges.iter().filter(|_| !is_early) {
            // The set holds at most `ranges_max` ranges. The receiver requests the ranges that are
            // left out after the next pass.
            self.counters.ranges_omitted += u64::from(set.insert(range, |_| {}).is_err());
        }
        if !list.is_last || member.is_final() {
            return;
        }
        member.part.owes_answer = false;
        if member.state == State::Joining {
            return self.need_manifest(slot);
        }
        member.state = State::Ready;
        member.part.is_awaited = false;
        if self.forgo(now, slot) {
            return self.check_answers(now);
        }
        let member = &mut self.members[slot];
        if member.lists.need.bytes() < member.lists.need_before {
            member.told.progress_at = now;
        }
        if member.is_alone() {
            self.serve(slot);
        } else if self.stage == Stage::Idle {
            self.transfer_pass(now);
        }
        self.check_answers(now);
    }

    /// Sends the manifest over a receiver's connection, because the receiver lacks it.
    fn need_manifest(&mut self, slot: usize) {
        let member = &mut self.members[slot];
        std::mem::swap(&mut member.fills.needs, &mut member.lists.need);
        member.lists.need.clear();
        member.fills.at = Place::START;
        member.fills.after = Some(PassEnd {
            pass: 0,
            position: None,
        });
        self.filling.insert(slot);
    }

    fn complete(&mut self, now: Instant, slot: usize, _pass: u32) {
        let member = &mut self.members[slot];
        if member.state != State::Ready {
            return;
        }
        member.state = State::Complete;
        member.part.owes_answer = false;
        member.part.is_awaited = false;
        member.lists.need.clear();
        member.told.progress_at = now;
        self.check_answers(now);
    }

    pub(super) fn done(&mut self, now: Instant, slot: usize, done: &Done) {
        if self.members[slot].state == State::Joining {
            return self.violate(now, slot, "DONE, but this receiver holds nothing yet");
        }
        if self.holdings.is_empty() {
            // This sender has restarted and is still reading its content, so it cannot check DONE
            // yet. The receiver had everything before the restart.
            self.members[slot].early = Some(Box::new(*done));
            return;
        }
        if let Some(text) = self.fault_of(slot, done) {
            return self.fail(now, slot, ErrorCode::HashMismatch, text);
        }
        self.tell(now, slot, &Message::Acknowledged);
        let member = &mut self.members[slot];
        if member.is_final() {
            return;
        }
        member.state = State::Done(Box::new(*done));
        member.done_at = now;
        member.part.is_awaited = false;
        member.told.progress.held = done.numbers.bytes;
        member.told.progress.verified = done.numbers.bytes;
        self.filling.remove(slot);
        self.roll.unfinished.remove(&slot);
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        self.event(TransferSenderEvent::Done { slot });
        self.check_answers(now);
        self.check_finished(now);
    }

    fn bye(&mut self, now: Instant, slot: usize, link: LinkId) {
        self.roll.by_link.remove(&link);
        self.invitations.end(slot);
        self.listener.links.close(link);
        self.members[slot].disconnect(now);
        self.filling.remove(slot);
        self.failed(
            now,
            slot,
            ErrorCode::Cancelled,
            "it left before it was done",
        );
    }

    /// Handles a receiver's connection that ended without a good-bye.
    fn gone(&mut self, now: Instant, slot: usize) {
        self.disconnected(now, slot);
        self.check_paused();
        self.check_answers(now);
    }

    /// Notes that a receiver has no connection any more, and may come back.
    fn disconnected(&mut self, now: Instant, slot: usize) {
        let member = &mut self.members[slot];
        member.disconnect(now);
        self.filling.remove(slot);
        if !member.is_final() {
            let slot = u32::try_from(slot).unwrap_or(u32::MAX);
            self.event(TransferSenderEvent::Disconnected { slot });
        }
    }

    /// Queues a message for a receiver. If the receiver does not read, closes its connection
    /// instead.
    pub(super) fn tell(&mut self, now: Instant, slot: usize, message: &Message<'_>) {
        let Some(link) = self.members[slot].link else {
            return;
        };
        if !self.listener.links.queue(link, message) {
            self.unread(now, slot, link);
        }
    }

    /// Closes the connection of a receiver that does not read.
    pub(super) fn unread(&mut self, now: Instant, slot: usize, link: LinkId) {
        self.listener.close(link);
        self.not_reached(now, link);
        self.roll.by_link.remove(&link);
        self.disconnected(now, slot);
    }

    /// Gives up an admitted receiver that broke the protocol.
    fn violate(&mut self, now: Instant, slot: usize, text: &str) {
        self.counters.violations += 1;
        self.fail(now, slot, ErrorCode::Protocol, text);
    }

    fn object_bytes(&self, object: ObjectId) -> u64 {
        match object {
            ObjectId::MANIFEST => self.manifest.bytes().len() as u64,
            ObjectId::CONTENT => self.manifest.content_bytes(),
            ObjectId::SEALS => self.manifest.seals_bytes(),
            _ => 0,
        }
    }
}

impl<C: Content> Hosts for TransferSender<C> {
    fn listener(&mut self) -> &mut Listener {
        &mut self.listener
    }

    fn challenged(&mut self) {
        self.counters.challenged += 1;
    }

    fn greet(&mut self, now: Instant, link: LinkId, peer: SocketAddr, hello: &Hello<'_>) {
        let slot = match self.admit(now, peer, hello) {
            Ok(slot) => slot,
            Err(reason) => {
                self.listener.refuse(link, reason);
                return self.refused(now, link, peer, reason);
            }
        };
        let joined = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        let receiver_count = self.config.expected_count().max(joined);
        let nonce = nonce(self.config.seed, self.config.session_id, link, now);
        let welcome = Message::Welcome(Welcome {
            version: VERSION,
            slot: u32::try_from(slot).unwrap_or(u32::MAX),
            manifest: self.manifest.id().0,
            session_id: self.config.session_id,
            receiver_count,
            report_interval_us: interval_us(receiver_count, self.config.report_interval),
            report_sqns: self.config.report_sqns,
            manifest_bytes: self.manifest.bytes().len() as u64,
            is_late: match self.config.carriage {
                Carriage::Packets => self.stage != Stage::Joining,
                // Without a packet stream, each receiver gets the manifest right after its WELCOME,
                // so no receiver is late.
                Carriage::Links(_) => false,
            },
            nonce,
        });
        self.listener.admit(link);
        self.invitations.admitted(link, slot);
        self.hosts.add(peer.ip());
        self.roll.by_link.insert(link, slot);
        let member = &mut self.members[slot];
        member.link = Some(link);
        member.peer = peer;
        // On each connection, the receiver must prove anew what it has, so the nonce is new.
        (member.nonce, member.early) = (nonce, None);
        member.told.progress_at = now;
        let is_new = member.state == State::Joining;
        self.tell(now, slot, &welcome);
        match self.config.carriage {
            Carriage::Links(_) if is_new => self.push_manifest(slot),
            Carriage::Links(_) | Carriage::Packets => {}
        }
        self.check_paused();
        self.all_joined(now);
    }

    fn refused(&mut self, now: Instant, link: LinkId, peer: SocketAddr, reason: Refusal) {
        self.counters.refused += 1;
        self.event(TransferSenderEvent::Refused { peer, reason });
        self.not_taken(now, link, reason, &reason.to_string());
    }

    fn opened(&mut self, now: Instant, link: LinkId) {
        self.invite(now, link);
    }

    fn waits(&mut self, now: Instant, link: LinkId) {
        self.told_to_wait(now, link);
    }

    fn declined(&mut self, now: Instant, link: LinkId, reason: Refusal, text: &str) {
        self.not_taken(now, link, reason, text);
    }

    fn message(&mut self, now: Instant, link: LinkId, message: &Message<'_>) {
        let Some(&slot) = self.roll.by_link.get(&link) else {
            return;
        };
        self.members[slot].heard_at = now;
        match message {
            Message::Have(list) => self.have(now, slot, list),
            Message::Need(list) => self.need(now, slot, list),
            Message::Complete { pass } => self.complete(now, slot, *pass),
            Message::Progress(report) => {
                // While the store commits or prepares, each report counts as progress, but only for
                // this long. One progress timeout after the last of these reports, the commit
                // timeout is over.
                let work_max = self.config.commit_timeout() - self.config.progress_timeout;
                self.members[slot].note(now, report, work_max);
            }
            Message::Pos(pos) => {
                let member = &mut self.members[slot];
                let report = member.place(now, pos);
                self.round_trip = self.round_trip.max(member.stream.round_trip.least());
                if let Some(control) = self.rate.as_mut().filter(|_| member.is_followed()) {
                    control.report(now, u32::try_from(slot).unwrap_or(u32::MAX), &report);
                    if let Some(limit) = control.limit() {
                        self.members[limit.slot as usize].stream.sets_rate = Some(limit.cause);
                    }
                }
            }
            Message::Done(done) => self.done(now, slot, done),
            Message::Error { code, text } => self.failed(now, slot, *code, text),
            Message::Bye => self.bye(now, slot, link),
            Message::Unknown { .. } => self.counters.messages_ignored += 1,
            other => {
                let name = other.name();
                self.violation(now, link, &format!("{name} is not for a sender"));
            }
        }
    }

    fn violation(&mut self, now: Instant, link: LinkId, text: &str) {
        if let Some(&slot) = self.roll.by_link.get(&link) {
            return self.violate(now, slot, text);
        }
        self.counters.violations += 1;
        self.listener.break_off(link, text);
    }

    fn forged(&mut self) {
        self.counters.violations += 1;
    }

    fn is_over(&self) -> bool {
        self.is_finished()
    }

    fn lost(&mut self, now: Instant, link: LinkId) {
        self.not_reached(now, link);
        if let Some(slot) = self.roll.by_link.remove(&link) {
            self.gone(now, slot);
        }
    }
}
