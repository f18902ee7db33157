//! The repair state of a network element: for each packet that was asked for, the ways on which it
//! is missing, and how far its NAK has come.
//!
//! It does not know packets or addresses. In: NAKs and NCFs by session and number, repairs, time.
//! Out: whether a NAK is passed on, which ways a repair goes, what to ask for again.
//!
//! ```text
//!          NAK: pass it on          NCF
//!   none -----------------> Pending ------> Outstanding --> none   RDATA, or RDATA_IVL is over
//!    |                      | ^   |          ^  |  |
//!    |   again every RPT_RTE'-'   |          |  |  | NAK within ELIM_IVL: nothing
//!    |                            v          |  '--'
//!    |                  RPT_IVL over: none   |  NAK after ELIM_IVL: Pending, pass it on
//!    '---------------------------------------'
//!    |         NCF that nobody asked for
//!    '--> Answered --> none   repaired from what is kept, and not again to a way in ELIM_IVL
//! ```
//!
//! Invariant: there are at most `repairs_max` entries; each has one timer.
//!
//! **Spec**: RFC 3208 sections 7.2 to 7.5, 7.8.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::Instant;
use wire::{Sqn, pgm::Tsi};

use super::{ElementTimers, WaySet};

/// A packet of a session.
pub(super) type Key = (Tsi, u32);

/// All repair state.
#[derive(Debug)]
pub(super) struct Repairs {
    timers: ElementTimers,
    repairs_max: usize,
    entries: BTreeMap<Key, Repair>,
    /// The time of each entry's next timer.
    due: BTreeSet<(Instant, Key)>,
}

#[derive(Clone, Copy, Debug)]
struct Repair {
    /// The ways on which the packet is missing.
    ways: WaySet,
    state: State,
    due: Instant,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The NAK was passed on and is not confirmed.
    Pending { until: Instant },
    /// The NAK is confirmed.
    Outstanding { eliminated_until: Instant },
    /// The packet was repaired without asking upstream.
    Answered,
}

/// What becomes of a NAK for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// It is passed on.
    PassedOn,
    /// The element knows already that the packet is missing.
    Eliminated,
    /// There is no room for its state.
    NoRoom,
}

/// What becomes of a NAK for a packet that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The way gets a repair.
    Repair,
    /// The way was given one a moment ago.
    Eliminated,
    /// There is no room for its state.
    NoRoom,
}

impl Repairs {
    pub(super) const fn new(timers: ElementTimers, repairs_max: usize) -> Self {
        Self {
            timers,
            repairs_max,
            entries: BTreeMap::new(),
            due: BTreeSet::new(),
        }
    }

    /// Takes a NAK that came by `way`.
    pub(super) fn nak(&mut self, now: Instant, key: Key, way: usize) -> Reply {
        let is_known = self.entries.contains_key(&key);
        if !is_known && self.entries.len() >= self.repairs_max {
            return Reply::NoRoom;
        }
        let pending = State::Pending {
            until: now + self.timers.repeat_time,
        };
        let first = Repair {
            ways: WaySet::NONE,
            state: pending,
            due: now,
        };
        let entry = self.entries.entry(key).or_insert(first);
        entry.ways = entry.ways.with(way);
        let is_passed_on = match entry.state {
            State::Pending { .. } => !is_known,
            State::Outstanding { eliminated_until } => now >= eliminated_until,
            State::Answered => false,
        };
        if is_passed_on {
            entry.state = pending;
            let due = now + self.timers.repeat_every;
            self.set_due(key, due);
            return Reply::PassedOn;
        }
        Reply::Eliminated
    }

    /// Takes a NAK that came by `way`, for a packet that is kept.
    pub(super) fn answer(&mut self, now: Instant, key: Key, way: usize) -> Answer {
        let entry = self.entries.get(&key);
        if entry.is_none() && self.entries.len() >= self.repairs_max {
            return Answer::NoRoom;
        }
        let given = entry.filter(|entry| matches!(entry.state, State::Answered));
        let given = given.map_or(WaySet::NONE, |entry| entry.ways);
        if given.contains(way) {
            return Answer::Eliminated;
        }
        let due = entry.map_or(now, |entry| entry.due);
        let answered = Repair {
            ways: given.with(way),
            state: State::Answered,
            due,
        };
        self.entries.insert(key, answered);
        self.set_due(key, now + self.timers.elimination);
        Answer::Repair
    }

    /// Takes an NCF of the neighbour upstream: it confirms our NAK, or another's, which makes ours
    /// needless.
    pub(super) fn ncf(&mut self, now: Instant, key: Key) {
        let known = self.entries.get(&key);
        let is_answered = known.is_some_and(|entry| matches!(entry.state, State::Answered));
        if is_answered || (known.is_none() && self.entries.len() >= self.repairs_max) {
            return;
        }
        let state = State::Outstanding {
            eliminated_until: now + self.timers.elimination,
        };
        let anticipated = Repair {
            ways: WaySet::NONE,
            state,
            due: now,
        };
        self.entries.entry(key).or_insert(anticipated).state = state;
        self.set_due(key, now + self.timers.rdata_wait);
    }

    /// Takes a repair: returns the ways that it goes, and forgets the packet. Ways that were given
    /// one already get no other.
    pub(super) fn rdata(&mut self, key: Key) -> WaySet {
        let is_answered = |entry: &Repair| matches!(entry.state, State::Answered);
        if self.entries.get(&key).is_some_and(is_answered) {
            return WaySet::NONE;
        }
        self.remove(key).unwrap_or(WaySet::NONE)
    }

    /// Forgets a session.
    pub(super) fn forget(&mut self, tsi: Tsi) {
        let keys: Vec<Key> = self.of(tsi).collect();
        for key in keys {
            self.remove(key);
        }
    }

    /// Does what is due at `now`, and collects in `again` what to ask for once more.
    pub(super) fn expire(&mut self, now: Instant, again: &mut Vec<Key>) {
        while let Some(&(due, key)) = self.due.first() {
            if due > now {
                break;
            }
            let pending = self.entries.get(&key).and_then(|entry| match entry.state {
                State::Pending { until } if now < until => Some(until),
                State::Pending { .. } | State::Outstanding { .. } | State::Answered => None,
            });
            match pending {
                Some(until) => {
                    again.push(key);
                    self.set_due(key, (now + self.timers.repeat_every).min(until));
                }
                None => {
                    self.remove(key);
                }
            }
        }
    }

    /// Returns the time from which [`Repairs::expire`] has something to do.
    pub(super) fn due(&self) -> Instant {
        self.due.first().map_or(Instant::NEVER, |(due, _)| *due)
    }

    /// Returns the number of packets with repair state.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn of(&self, tsi: Tsi) -> impl Iterator<Item = Key> {
        let range = self.entries.range((tsi, 0)..=(tsi, u32::MAX));
        range.map(|(key, _)| *key)
    }

    fn set_due(&mut self, key: Key, due: Instant) {
        if let Some(entry) = self.entries.get_mut(&key) {
            self.due.remove(&(entry.due, key));
            entry.due = due;
            self.due.insert((due, key));
        }
    }

    fn remove(&mut self, key: Key) -> Option<WaySet> {
        let entry = self.entries.remove(&key)?;
        self.due.remove(&(entry.due, key));
        Some(entry.ways)
    }
}

/// Returns the key of a packet.
pub(super) const fn key(tsi: Tsi, sqn: Sqn) -> Key {
    (tsi, sqn.0)
}

impl ElementTimers {
    /// Returns the timers with the elimination interval at most a quarter of the wait for RDATA:
    /// NAKs that are passed on keep the repair state alive.
    pub(super) fn settled(mut self) -> Self {
        self.elimination = self.elimination.min(self.rdata_wait / 4);
        self.repeat_every = self.repeat_every.max(Duration::from_millis(1));
        self
    }
}
