//! Finds receivers that hold the others back or are missing, and acts on them.
//!
//! The packet stream waits for the slowest of its receivers. That is right while all of them are
//! about equally far; [`holds_back`] finds a receiver that is far behind the others.
//!
//! **Spec**: `docs/src/protocol.md` section 6.

use base::Instant;
use wire::object::{ErrorCode, PassEnd};

use super::{
    Stage, TransferSender,
    config::{Demotion, SlowPolicy},
    member::{Member, State},
};
use crate::Content;
use crate::{parameters::SENDER_TICK, steering::holds_back};

impl<C: Content> TransferSender<C> {
    /// Notes whether the packet stream waits for receivers; `lead` is the stream's highest
    /// position. Drops or demotes a receiver that has held the others back for `slow_after`.
    pub(super) fn stream_waits(&mut self, now: Instant, lead: u64, is_waiting: bool) {
        if self.config.slow == SlowPolicy::Wait || now < self.clock.slow_at {
            return;
        }
        self.clock.slow_at = now + SENDER_TICK;
        let is_waiting = is_waiting && self.may_send_content();
        let slow = is_waiting.then(|| self.awaited(lead)).flatten();
        for slot in 0..self.members.len() {
            let member = &mut self.members[slot];
            if Some(slot) != slow {
                member.stream.slow_since = None;
                continue;
            }
            let since = *member.stream.slow_since.get_or_insert(now);
            if now.since(since) >= self.config.slow_after {
                self.act_on_slow(now, slot);
            }
        }
    }

    /// Returns the receiver that the others wait for, as an index in `members`.
    fn awaited(&self, lead: u64) -> Option<usize> {
        let followed = self.members.iter().enumerate().filter(|(_, member)| {
            let has_place = member.stream.moved_at.is_some();
            member.is_followed() && has_place
        });
        let behind = followed.map(|(slot, member)| {
            let at = wire::Sqn::of(member.stream.pos.contiguous)
                .extend(lead)
                .min(lead + 1);
            (lead + 1 - at, slot)
        });
        holds_back(behind.collect())
    }

    fn act_on_slow(&mut self, now: Instant, slot: usize) {
        if self.config.slow == SlowPolicy::Drop {
            let limit = self.members[slot].limited_by();
            let text = format!("it held the others back; it was limited by {limit}");
            return self.fail(now, slot, ErrorCode::TooSlow, &text);
        }
        self.demote_one(slot, Demotion::Slow);
        let member = &mut self.members[slot];
        member.stream.slow_since = None;
        member.part.is_in_pass = false;
        member.part.is_awaited = false;
        // This message makes the receiver tell at once which ranges it lacks. The sender then sends
        // these ranges over the receiver's own connection, beside the pass.
        let end = PassEnd {
            pass: self.pass.number,
            position: None,
        };
        self.send_pass_end(now, slot, end);
    }

    /// Pauses sending while no active receiver is left to serve. Guests (receivers that are not
    /// expected) count only at the end of the transfer, while guests alone are served.
    pub(super) fn check_paused(&mut self) {
        let is_for_guests = self.clock.guests_until.is_some();
        let is_there =
            |member: &Member| member.is_active() && (member.is_expected || is_for_guests);
        let is_paused = self.stage == Stage::Sending && !self.members.iter().any(is_there);
        if is_paused && !self.is_paused {
            self.counters.pauses += 1;
        }
        self.is_paused = is_paused;
    }

    /// Returns the expected receiver that is furthest behind or, when all are done, took longest.
    /// Failed receivers do not count; `None` when fewer than two are left.
    pub(super) fn slowest(&self) -> Option<u32> {
        let expected = self.members.iter().enumerate();
        let expected = expected.filter(|(_, member)| member.is_expected);
        let alive = expected.filter(|(_, member)| !matches!(member.state, State::Failed { .. }));
        if alive.clone().count() < 2 {
            return None;
        }
        let last = alive.max_by_key(|(_, member)| {
            let took = member.took(self.clock.began_at);
            let lost = member.told.progress.lost;
            let held = std::cmp::Reverse(member.told.progress.held);
            (took.is_none(), held, took, lost)
        });
        last.map(|(slot, _)| u32::try_from(slot).unwrap_or(u32::MAX))
    }
}
