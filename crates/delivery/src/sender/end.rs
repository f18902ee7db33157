//! How the transfer ends for one receiver, and for all.
//!
//! **Spec**: `docs/src/protocol.md` sections 6 and 10.

use std::time::Duration;

use base::Instant;
use wire::object::{ErrorCode, Message};

use super::{
    Stage, TransferSender, TransferSenderEvent,
    member::{Member, State},
};
use crate::{
    Content, ContentError,
    parameters::{GUEST_TIME_MIN, TRANSFER_LINGER},
};

impl<C: Content> TransferSender<C> {
    pub(super) fn check_progress(&mut self, now: Instant, slot: usize) {
        let patience = self
            .config
            .reconnect_timeout
            .min(self.config.progress_timeout);
        let member = &mut self.members[slot];
        if member.is_final() {
            return;
        }
        if member.link.is_none() {
            if self.invitations.waits_for(slot) {
                // The receiver's host has answered, and makes this sender wait its turn. This wait
                // does not count as a lost connection.
                member.gone_at = now;
            }
            if now.since(member.gone_at) >= patience {
                let seconds = patience.as_secs();
                let text = format!(
                    "the connection to it was lost, and no new one came up within {seconds} s"
                );
                self.fail(now, slot, ErrorCode::TimedOut, &text);
            }
            return;
        }
        let is_sending = self.stage == Stage::Sending && self.pass.number > 0;
        let is_fed = member.part.is_in_pass
            && is_sending
            && now.since(self.clock.committed_at) < Duration::from_secs(1);
        let is_first = match self.stage {
            Stage::Joining => true,
            Stage::Sending | Stage::Draining => self.pass.number == 0,
            _ => false,
        };
        let is_filled = self.filling.contains(slot);
        let owes = match member.state {
            State::Joining => !is_first,
            State::Ready => member.part.owes_answer || is_fed || is_filled,
            State::Complete => true,
            State::Done(_) | State::Failed { .. } => false,
        };
        if !owes {
            member.told.progress_at = now;
        } else if now.since(member.told.progress_at) >= self.config.progress_timeout {
            let seconds = self.config.progress_timeout.as_secs();
            let text = if self.filling.waits(slot) {
                format!("the sender's own disk gave nothing for {seconds} s")
            } else {
                format!("no progress for {seconds} s while {}", member.told.phase)
            };
            self.fail(now, slot, ErrorCode::TimedOut, &text);
        }
    }

    /// Gives a receiver up, and tells the receiver.
    pub(super) fn fail(&mut self, now: Instant, slot: usize, code: ErrorCode, text: &str) {
        if self.members[slot].is_final() {
            return;
        }
        self.tell(now, slot, &Message::Error { code, text });
        self.failed(now, slot, code, text);
    }

    /// Notes that a receiver has failed.
    pub(super) fn failed(&mut self, now: Instant, slot: usize, code: ErrorCode, text: &str) {
        let member = &mut self.members[slot];
        if member.is_final() {
            return;
        }
        let text = text.to_owned();
        member.state = State::Failed {
            code,
            text: text.clone(),
        };
        self.roll.unfinished.remove(&slot);
        self.filling.remove(slot);
        self.invitations.end(slot);
        if let Some(link) = member.link {
            self.listener.links.close(link);
            self.roll.by_link.remove(&link);
            member.disconnect(now);
        }
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        self.event(TransferSenderEvent::Failed { slot, code, text });
        self.check_paused();
        self.check_answers(now);
        self.check_finished(now);
    }

    pub(super) fn content_failed(&mut self, now: Instant, error: ContentError) {
        self.cancel(now, error.code, &error.text);
    }

    /// Returns true when the expected number of receivers has joined.
    pub(super) fn has_expected(&self) -> bool {
        self.roll.expected_count >= self.config.expected_count() as usize
    }

    pub(super) fn check_finished(&mut self, now: Instant) {
        if self.is_finished() || self.stage == Stage::Joining {
            return;
        }
        let is_settled = self.invitations.are_settled();
        let nobody_misses = self.has_expected() || is_settled || now >= self.clock.join_deadline;
        if nobody_misses && self.roll.unfinished.is_empty() {
            if self.serves_guests(now) {
                self.check_paused();
            } else {
                self.finish(now);
            }
        } else {
            self.clock.guests_until = None;
        }
    }

    /// Returns true while guests (receivers that were not expected) are served although all
    /// expected receivers are done or have failed.
    fn serves_guests(&mut self, now: Instant) -> bool {
        let took = now.since(self.clock.began_at);
        let time = took.min(self.config.progress_timeout).max(GUEST_TIME_MIN);
        let until = *self.clock.guests_until.get_or_insert(now + time);
        let is_served = |member: &Member| {
            let holds_list = matches!(member.state, State::Ready | State::Complete);
            let is_moving = now.since(member.told.progress_at) < GUEST_TIME_MIN;
            member.is_active() && holds_list && is_moving
        };
        now < until && self.members.iter().any(is_served)
    }

    pub(super) fn finish(&mut self, now: Instant) {
        self.stage = Stage::Closing {
            deadline: now + TRANSFER_LINGER,
        };
        self.clock.tick_at = now;
        for slot in 0..self.members.len() {
            let text = if self.members[slot].is_expected {
                "its connection was lost before the transfer began"
            } else {
                "the sender has ended the transfer, and does not wait for receivers that it was \
                 not told to expect"
            };
            self.fail(now, slot, ErrorCode::Cancelled, text);
            if let Some(link) = self.members[slot].link {
                self.tell(now, slot, &Message::Bye);
                self.listener.links.close(link);
            }
        }
        self.invitations.end_all();
        self.listener.close_greeting();
        self.filling.clear();
        self.event(TransferSenderEvent::Finished);
    }
}
