//! The repair state of a network element: for each packet that was asked for, the ways on which it
//! is missing, and whether its NAK was confirmed.
//!
//! The module does not know packets or addresses. In: NAKs and NCFs by session and number, repairs,
//! time. Out: whether to pass a NAK on, the ways by which a repair goes on, and which NAKs to
//! repeat.
//!
//! ```text
//!   none         a NAK comes: pass it on; to Pending
//!                an NCF comes first: to Outstanding
//!   Pending      each RPT_RTE: pass the NAK on again; RPT_IVL is over: to none
//!                an NCF comes: to Outstanding; the repair comes: to none
//!   Outstanding  a NAK comes within ELIM_IVL: nothing; later: pass it on; to Pending
//!                the repair comes, or RDATA_IVL is over: to none
//!   none         a NAK comes, and the element has the packet: repair it; to Answered
//!   Answered     ELIM_IVL is over: to none
//! ```
//!
//! A repair may take longer than ELIM_IVL, on a long way or from a busy host. A NAK that was passed
//! on again meanwhile would bring a second repair. So ELIM_IVL grows with the time that a session's
//! repairs take, up to a quarter of RDATA_IVL. When the packet itself comes and goes on by all
//! ways, its state is forgotten: receivers asked for it before it was there.
//!
//! In every state, the element repairs a packet that it has for each way once in ELIM_IVL. It drops
//! NAKs that come by such a way within that time. Other ways may wait for a repair from upstream
//! meanwhile: those that have had their share of the element's own repairs.
//!
//! **Spec**: RFC 3208 sections 7.2 to 7.5, 7.8.

use std::time::Duration;

use base::Instant;
use wire::{Sqn, pgm::Tsi};

use super::{
    ElementTimers, WaySet,
    repair_time::Measure,
    timed::{Key, Timed},
};

/// The repair state of all packets that were asked for.
#[derive(Debug)]
pub(super) struct Repairs {
    timers: ElementTimers,
    packets: Timed<Repair>,
}

#[derive(Clone, Copy, Debug)]
struct Repair {
    /// The ways on which the packet is missing, and which wait for a repair from upstream.
    ways: WaySet,
    /// The ways that the element has repaired the packet for, and until when that counts. A repair
    /// for one more way extends the time of all, so a way may wait for as many ELIM_IVL as there
    /// are ways.
    given: WaySet,
    given_until: Instant,
    measure: Measure,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The NAK was passed on and is not confirmed.
    Pending { until: Instant },
    /// The NAK is confirmed.
    Outstanding { eliminated_until: Instant },
    /// The element repaired the packet itself, and no way waits for a repair from upstream.
    Answered,
}

impl Repair {
    /// Returns true when the element has just repaired the packet for `way`.
    fn is_given(&self, now: Instant, way: usize) -> bool {
        now < self.given_until && self.given.contains(way)
    }
}

/// The answer to a NAK for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The NAK is passed on.
    PassedOn,
    /// The element knows already that the packet is missing.
    Eliminated,
    /// The element has just repaired the packet for the NAK's way.
    Repaired,
    /// There is no room for the packet's state.
    NoRoom,
}

/// The answer to a NAK for a packet that the element keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The element sends a repair by the way on which the NAK came.
    Repair,
    /// The element sends none, because it sent one by the NAK's way a moment ago.
    Eliminated,
    /// There is no room for the packet's state.
    NoRoom,
}

impl Repairs {
    pub(super) const fn new(timers: ElementTimers, repairs_max: usize) -> Self {
        Self {
            timers,
            packets: Timed::new(repairs_max),
        }
    }

    /// Takes a NAK that came by `way`.
    pub(super) fn nak(&mut self, now: Instant, key: Key, way: usize) -> Reply {
        if !self.packets.has_room(key) {
            return Reply::NoRoom;
        }
        let known = self.known(now, key);
        if known.is_given(now, way) {
            return Reply::Repaired;
        }
        let ways = known.ways.with(way);
        let is_passed_on = match known.state {
            State::Answered => true,
            State::Outstanding { eliminated_until } => now >= eliminated_until,
            State::Pending { .. } => false,
        };
        if is_passed_on {
            let state = State::Pending {
                until: now + self.timers.repeat_time,
            };
            let due = now + self.timers.repeat_every;
            let mut pending = Repair {
                ways,
                state,
                ..known
            };
            pending.measure.ask();
            self.packets.set(key, due, pending);
            return Reply::PassedOn;
        }
        if let Some(entry) = self.packets.get_mut(key) {
            entry.ways = ways;
        }
        Reply::Eliminated
    }

    /// Takes a NAK that came by `way`, for a packet that is kept.
    pub(super) fn answer(&mut self, now: Instant, key: Key, way: usize) -> Answer {
        if !self.packets.has_room(key) {
            return Answer::NoRoom;
        }
        let known = self.known(now, key);
        if known.is_given(now, way) {
            return Answer::Eliminated;
        }
        let given = match now < known.given_until {
            true => known.given,
            false => WaySet::NONE,
        };
        let mut answered = Repair {
            ways: known.ways.without(way),
            given: given.with(way),
            given_until: now + self.timers.elimination,
            ..known
        };
        let is_confirmed = matches!(known.state, State::Outstanding { .. });
        if answered.ways == WaySet::NONE && !is_confirmed {
            (answered.state, answered.measure) = (State::Answered, Measure::Idle);
            self.packets.set(key, answered.given_until, answered);
        } else if let Some(entry) = self.packets.get_mut(key) {
            // A repair from upstream is still to come, and its timer goes on.
            *entry = answered;
        }
        Answer::Repair
    }

    /// Takes an NCF of the neighbour upstream. It confirms this element's NAK, or the NAK of
    /// another host for the same packet. Until `eliminated_until`, no NAK for it is passed on.
    pub(super) fn ncf(&mut self, now: Instant, key: Key, eliminated_until: Instant) {
        let known = self.packets.get(key);
        let is_answered = known.is_some_and(|entry| matches!(entry.state, State::Answered));
        if is_answered || !self.packets.has_room(key) {
            return;
        }
        let mut confirmed = Repair {
            state: State::Outstanding { eliminated_until },
            ..self.known(now, key)
        };
        confirmed.measure.confirm(now);
        let due = now + self.timers.rdata_wait;
        self.packets.set(key, due, confirmed);
    }

    /// Takes a repair from upstream: forgets the packet. Returns the ways that asked for it, and
    /// how long the repair took, if that is known. Returns no way, and forgets nothing, when the
    /// element has just repaired the packet itself.
    pub(super) fn rdata(&mut self, now: Instant, key: Key) -> (WaySet, Option<Duration>) {
        let is_answered = |entry: &Repair| matches!(entry.state, State::Answered);
        if self.packets.get(key).is_some_and(is_answered) {
            return (WaySet::NONE, None);
        }
        match self.packets.remove(key) {
            Some(mut entry) => (entry.ways, entry.measure.end(now)),
            None => (WaySet::NONE, None),
        }
    }

    /// Takes a packet that the source has sent for the first time, and that goes on by all ways:
    /// forgets who asked for it.
    pub(super) fn odata(&mut self, key: Key) {
        self.packets.remove(key);
    }

    /// Returns what is known of a packet; of one without repair state, that nothing is missing.
    fn known(&self, now: Instant, key: Key) -> Repair {
        let none = Repair {
            ways: WaySet::NONE,
            given: WaySet::NONE,
            given_until: now,
            measure: Measure::Idle,
            state: State::Answered,
        };
        self.packets.get(key).copied().unwrap_or(none)
    }

    /// Forgets the packets of a session.
    pub(super) fn forget(&mut self, tsi: Tsi) {
        self.packets.forget(tsi);
    }

    /// Forgets each packet whose time is over at `now`, and adds to `again` each packet whose NAK
    /// must be repeated.
    pub(super) fn expire(&mut self, now: Instant, again: &mut Vec<Key>) {
        let every = self.timers.repeat_every;
        self.packets.expire(now, |key, entry| match entry.state {
            State::Pending { until } if now < until => {
                again.push(key);
                Some((now + every).min(until))
            }
            State::Pending { .. } | State::Outstanding { .. } | State::Answered => None,
        });
    }

    /// Returns the time from which [`Repairs::expire`] has something to do.
    pub(super) fn due(&self) -> Instant {
        self.packets.due()
    }

    /// Returns the number of packets with repair state.
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }
}

/// Returns the key of a packet.
pub(super) const fn key(tsi: Tsi, sqn: Sqn) -> Key {
    (tsi, sqn.0)
}

impl ElementTimers {
    /// Returns the timers within their limits. The elimination interval is at most a quarter of the
    /// wait for RDATA, so that NAKs are passed on, and renew this wait, before it ends. Repeated
    /// NAKs are at least 1 ms apart.
    pub(super) fn settled(mut self) -> Self {
        self.elimination = self.elimination.min(self.rdata_wait / 4);
        self.repeat_every = self.repeat_every.max(Duration::from_millis(1));
        self
    }
}
