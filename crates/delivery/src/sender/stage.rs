//! Takes a transfer from stage to stage: joining, passes, answers, the next pass.
//!
//! **Spec**: `docs/src/protocol.md` section 6.

use std::{task::Poll, time::Duration};

use base::Instant;
use wire::object::{Message, ObjectId, PassEnd, Seals};

use super::{
    Carriage, Demotion, Stage, TransferSender, TransferSenderEvent,
    member::{Member, State, Way},
    pass::{Place, split},
};
use crate::{Content, RangeSet, parameters::ANSWER_TIMEOUT};

impl<C: Content> TransferSender<C> {
    /// Starts the manifest's pass when all expected receivers have joined, or at the deadline. Over
    /// connections alone, the first receiver that joins starts it. If nobody has joined and nobody
    /// is awaited any more, ends the transfer.
    pub(super) fn all_joined(&mut self, now: Instant) {
        if self.stage != Stage::Joining {
            return;
        }
        let active = self.members.iter().filter(|member| member.is_active());
        let joined = active.clone().count();
        let awaited = active.filter(|member| member.is_expected).count();
        let is_due = now >= self.joining_until();
        let expected = self.config.expected_count() as usize;
        let is_full = match self.config.carriage {
            Carriage::Links(_) => joined > 0,
            Carriage::Packets => expected > 0 && awaited >= expected,
        };
        if joined == 0 && self.invitations.are_settled() {
            return self.finish(now);
        }
        if !is_due && !is_full {
            return;
        }
        if joined == 0 {
            // A receiver that was connected a moment ago may come back.
            if now >= self.clock.join_deadline {
                self.finish(now);
            }
            return;
        }
        if let Carriage::Links(_) = self.config.carriage {
            // Each receiver gets the manifest when it joins.
            self.clock.began_at = now;
            return self.start_pass(now, 0);
        }
        let whole = RangeSet::whole(self.manifest.bytes().len() as u64, self.config.ranges_max);
        self.pass.needs.set(ObjectId::MANIFEST, whole);
        for member in self.members.iter_mut().filter(|member| member.is_active()) {
            member.part.is_awaited = true;
            member.part.is_in_pass = true;
        }
        // A single receiver asks for the manifest after an empty pass, and gets it over its
        // connection.
        if joined == 1 {
            self.pass.needs.clear();
        }
        self.clock.began_at = now;
        self.start_pass(now, 0);
    }

    /// Says when the wait for receivers ends, however many have joined.
    pub(super) fn joining_until(&self) -> Instant {
        let settled = self.settle_time().filter(|_| !self.members.is_empty());
        let settled = settled.map_or(Instant::NEVER, |settle| self.clock.joined_at + settle);
        settled.min(self.clock.join_deadline)
    }

    /// Returns the time after which the transfer starts if no new receiver joins in that time.
    /// `None` when receivers are expected by number or name, or when the settings have no such
    /// time.
    pub(super) fn settle_time(&self) -> Option<Duration> {
        self.config
            .settle
            .filter(|_| self.config.expected_count() == 0)
    }

    pub(super) fn start_pass(&mut self, now: Instant, fill_bytes: u64) {
        self.counters.passes += 1;
        self.pass.at = Place::START;
        self.pass.last_position = None;
        self.stage = Stage::Sending;
        if let Some(control) = &mut self.rate {
            let members = self.members.iter().enumerate();
            let followed = members.filter(|(_, member)| member.is_followed());
            control.start(now, followed.map(|(slot, _)| slot as u32));
        }
        let (pass, bytes) = (self.pass.number, self.pass.needs.bytes());
        self.event(TransferSenderEvent::PassStarted {
            pass,
            bytes,
            fill_bytes,
        });
        self.check_paused();
        self.advance(now);
    }

    /// Leaves [`Stage::Sending`] when nothing is left to send.
    pub(super) fn advance(&mut self, now: Instant) {
        if self.stage != Stage::Sending || self.pass.needs.next_after(self.pass.at).is_some() {
            return;
        }
        if self.pass.number > 0 && !self.pass.has_seals {
            self.stage = Stage::Hashing;
            if self.window.seals_hash().is_some() {
                self.hash(now);
            }
        } else if self.pass.last_position.is_some() {
            self.stage = Stage::Draining;
        } else {
            self.end_pass(now);
        }
    }

    /// Hashes some of the content that no pass has sent. When all content is hashed, the seals join
    /// the pass.
    pub(super) fn hash(&mut self, now: Instant) {
        let hashed = match self.window.hash_ahead() {
            Ok(hashed) => hashed,
            Err(error) => return self.content_failed(now, error),
        };
        let _is_news = self.note_withdrawn();
        if hashed != Poll::Ready(true) {
            return;
        }
        self.note_first_holding();
        let whole = RangeSet::whole(self.manifest.seals_bytes(), self.config.ranges_max);
        // If the pass put no content into the packet stream, it puts no seals there either:
        // receivers request them.
        if self.pass.last_position.is_some() {
            self.pass.needs.set(ObjectId::SEALS, whole);
        }
        self.pass.has_seals = true;
        self.stage = Stage::Sending;
        for slot in 0..self.members.len() {
            if std::mem::take(&mut self.members[slot].fills.waits_for_seals) {
                self.filling.insert(slot);
            }
            if let Some(done) = self.members[slot].early.take() {
                self.done(now, slot, &done);
            }
        }
        self.advance(now);
    }

    /// Tells the pass's receivers that the pass is over. A receiver that still gets blocks over its
    /// connection is told after the last of them.
    pub(super) fn end_pass(&mut self, now: Instant) {
        let end = PassEnd {
            pass: self.pass.number,
            position: self.pass.last_position,
        };
        self.stage = Stage::Answering {
            deadline: now + ANSWER_TIMEOUT,
        };
        for slot in 0..self.members.len() {
            let member = &mut self.members[slot];
            if member.part.is_awaited && member.is_active() {
                if self.filling.contains(slot) {
                    member.fills.after = Some(end);
                } else {
                    self.send_pass_end(now, slot, end);
                }
            }
        }
        self.check_answers(now);
    }

    pub(super) fn send_pass_end(&mut self, now: Instant, slot: usize, end: PassEnd) {
        if let Some(hash) = self.window.seals_hash() {
            // From here on this receiver may prove that it holds the files that these seals cover.
            self.note_first_holding();
            let bytes = self.manifest.seals_bytes();
            self.tell(now, slot, &Message::Seals(Seals { bytes, hash }));
        }
        self.tell(now, slot, &Message::PassEnd(end));
        let member = &mut self.members[slot];
        member.part.owes_answer = true;
        member.told.progress_at = now;
    }

    /// Stops waiting for answers; answers that come late are still taken.
    pub(super) fn stop_waiting(&mut self, now: Instant) {
        for member in &mut self.members {
            if member.part.is_awaited {
                member.part.is_awaited = false;
                self.counters.answers_late += 1;
            }
        }
        self.check_answers(now);
    }

    /// Goes on to the next pass when no answer of an expected receiver is awaited any more.
    pub(super) fn check_answers(&mut self, now: Instant) {
        let Stage::Answering { .. } = self.stage else {
            return;
        };
        if self
            .members
            .iter()
            .any(|member| member.part.is_awaited && member.is_expected)
        {
            return;
        }
        if self.pass.number > 0 {
            self.transfer_pass(now);
            return;
        }
        let is_joining = |member: &Member| member.is_expected && member.state == State::Joining;
        let has_all = self.has_expected() && !self.members.iter().any(is_joining);
        let has_one = self.members.iter().any(Member::is_ready);
        let is_time = match self.config.carriage {
            // Over connections alone, no receiver waits for another.
            Carriage::Links(_) => true,
            Carriage::Packets => has_all || now >= self.clock.join_deadline,
        };
        if has_one && is_time {
            self.start_content(now);
        }
    }

    /// Starts the first pass over the content. Over a group, the pass sends what any ready receiver
    /// lacks. Guests count for this only if no expected receiver is ready. Over connections alone,
    /// each receiver gets just what it lacks itself.
    pub(super) fn start_content(&mut self, now: Instant) {
        if let Carriage::Links(_) = self.config.carriage {
            self.pass.number = 1;
            let ready = |slot: &usize| self.members[*slot].is_ready();
            let ready: Vec<usize> = (0..self.members.len()).filter(ready).collect();
            for slot in ready {
                self.push_content(now, slot);
            }
            return self.start_pass(now, 0);
        }
        let len = self.manifest.content_bytes();
        let max = self.config.ranges_max;
        // Guests get what is sent to everybody; what else they lack comes over their connections.
        let has_expected = self.members.iter().any(|m| m.is_ready() && m.is_expected);
        let ready = self.members.iter().filter(|member| member.is_ready());
        let ready = ready.filter(|member| member.is_expected || !has_expected);
        let lacks: Vec<RangeSet> = ready
            .map(|member| RangeSet::covering(member.lists.have.missing(len), len, max))
            .collect();
        let common = split(&lacks.iter().collect::<Vec<_>>(), 0, max).common;
        self.pass.number = 1;
        self.pass.needs.clear();
        self.pass.needs.set(ObjectId::CONTENT, common);
        for member in self.members.iter_mut().filter(|member| member.is_ready()) {
            member.part.is_awaited = true;
            member.lists.need_before = len - member.lists.have.bytes();
            member.part.is_in_pass = member.lists.need_before > 0;
            member.told.progress_at = now;
        }
        self.start_pass(now, 0);
    }

    /// Starts the next pass, with what receivers have requested since the last one. Without
    /// requests it starts none.
    pub(super) fn transfer_pass(&mut self, now: Instant) {
        let max = self.config.ranges_max;
        let wanting: Vec<usize> = (0..self.members.len())
            .filter(|&slot| {
                let member = &self.members[slot];
                member.is_ready() && member.lists.is_need_whole && !member.lists.need.is_empty()
            })
            .collect();
        if wanting.is_empty() {
            self.stage = Stage::Idle;
            return;
        }
        self.pass.number += 1;
        self.pass.needs.clear();
        self.demote(&wanting);
        let few = (self.receiver_count() as usize / 50).max(1);
        let together: Vec<usize> = wanting
            .iter()
            .copied()
            .filter(|&slot| !self.members[slot].is_alone() && self.members[slot].is_expected)
            .collect();
        for object in [ObjectId::MANIFEST, ObjectId::CONTENT, ObjectId::SEALS] {
            let wanted: Vec<&RangeSet> = together
                .iter()
                .map(|&slot| self.members[slot].lists.need.of(object))
                .collect();
            let division = split(&wanted, few, max);
            self.counters.ranges_omitted += division.ranges_omitted;
            self.pass.needs.set(object, division.common);
            for (&slot, lone) in together.iter().zip(division.lone) {
                self.members[slot].fills.needs.set(object, lone);
            }
        }
        let mut fill_bytes = 0;
        for &slot in &wanting {
            fill_bytes += self.serve(slot);
        }
        if self.pass.needs.is_empty() {
            self.counters.passes += 1;
            let (pass, bytes) = (self.pass.number, 0);
            self.event(TransferSenderEvent::PassStarted {
                pass,
                bytes,
                fill_bytes,
            });
            self.stage = Stage::Idle;
        } else {
            self.start_pass(now, fill_bytes);
        }
    }

    /// Demotes each receiver to which the last pass brought less than a quarter of what it lacked.
    /// The packet stream does not reach such a receiver. From then on it gets everything over its
    /// connection.
    pub(super) fn demote(&mut self, wanting: &[usize]) {
        for &slot in wanting {
            let member = &mut self.members[slot];
            let bytes = member.lists.need.bytes();
            // A receiver that lacked nothing was sent nothing, so the pass does not show whether
            // packets reach the receiver.
            let had_need = member.lists.need_before > 0 && !member.is_alone();
            let most = u128::from(member.lists.need_before) * 3;
            let is_unreached = had_need && u128::from(bytes) * 4 > most;
            member.lists.need_before = bytes;
            if is_unreached {
                self.demote_one(slot, Demotion::Unreached);
            }
        }
    }

    pub(super) fn demote_one(&mut self, slot: usize, reason: Demotion) {
        self.members[slot].way = Way::Demoted(reason);
        self.counters.demoted += 1;
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        self.event(TransferSenderEvent::Demoted { slot, reason });
    }

    /// Serves a receiver's request: decides whether the pass waits for the receiver, and begins to
    /// send, over the receiver's connection, what the pass does not bring. Returns how many bytes
    /// the connection will carry.
    pub(super) fn serve(&mut self, slot: usize) -> u64 {
        let pass = self.pass.number;
        let member = &mut self.members[slot];
        // No pass waits for a guest, and what only guests lack is not sent to everybody.
        let is_apart = member.is_alone() || !member.is_expected;
        member.part.is_in_pass = !is_apart && member.lists.need.overlaps(&self.pass.needs);
        if is_apart {
            std::mem::swap(&mut member.fills.needs, &mut member.lists.need);
        }
        member.part.is_awaited = member.part.is_in_pass;
        member.lists.need.clear();
        member.fills.at = Place::START;
        member.fills.after = (!member.part.is_in_pass).then_some(PassEnd {
            pass,
            position: None,
        });
        if !member.fills.needs.is_empty() || member.fills.after.is_some() {
            self.filling.insert(slot);
        }
        self.members[slot].fills.needs.bytes()
    }
}
