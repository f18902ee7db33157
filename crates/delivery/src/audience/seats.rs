//! The names that have joined, and which receivers get a place.
//!
//! A name stays remembered when its receiver has left. When a new name comes and too many are
//! remembered, the audience forgets the name whose receiver left longest ago. It never forgets the
//! name of an expected receiver. So a host that joins under ever new names keeps nobody out.

use std::{collections::BTreeMap, net::IpAddr};

use base::{Instant, LinkId, Share, share};
use wire::object::{Hello, Refusal};

use super::{
    Audience, LeaveReason,
    tracked::{Seat, Standing, Tracked},
};
use crate::parameters::SILENCE_MAX;

/// Every name that joined and is remembered, with its seat. So a receiver that comes back keeps its
/// slot and is not counted twice.
#[derive(Debug, Default)]
pub(super) struct Seats {
    by_name: BTreeMap<String, Seat>,
    /// The names of receivers that have left and were not expected. The key is the value of
    /// `leaves` when the receiver left.
    gone: BTreeMap<u64, String>,
    /// How many receiver names have joined so far.
    joined: u32,
    /// How often a receiver that was not expected has left.
    leaves: u64,
    /// How many of the joined names have ever reported.
    reported: u32,
}

impl Seats {
    /// Returns how many names are remembered.
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns how many names have joined.
    pub(super) const fn joined(&self) -> u32 {
        self.joined
    }

    /// Returns how many of the joined names have ever reported.
    pub(super) const fn reported(&self) -> u32 {
        self.reported
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Seat)> {
        self.by_name.iter()
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Seat> {
        self.by_name.get_mut(name)
    }

    /// Returns the slot that a receiver of this name has, or gets when it joins.
    pub(super) fn slot_of(&self, name: &str) -> u32 {
        let known = self.by_name.get(name);
        known.map_or(self.joined, |seat| seat.slot)
    }

    /// Notes that a receiver of this name is present. Slots below `expected` belong to expected
    /// receivers.
    pub(super) fn take(&mut self, name: &str, slot: u32, expected: u32) {
        if let Some(seat) = self.by_name.get_mut(name) {
            seat.standing = Standing::Here;
            if let Some(left) = seat.left.take() {
                self.gone.remove(&left);
            }
            return;
        }
        let seat = Seat {
            slot,
            contiguous: 0,
            has_reported: false,
            lost: 0,
            is_astray: false,
            standing: Standing::Here,
            left: None,
        };
        self.by_name.insert(name.to_owned(), seat);
        // After four billion names, slots of unexpected receivers are given out again.
        self.joined = self.joined.checked_add(1).unwrap_or(expected);
    }

    /// Notes that a receiver of this name has reported.
    pub(super) fn note_report(&mut self, name: &str) {
        if let Some(seat) = self.by_name.get_mut(name)
            && !seat.has_reported
        {
            seat.has_reported = true;
            self.reported += 1;
        }
    }

    /// Notes that a receiver is gone, or moves to another connection.
    pub(super) fn leave(&mut self, tracked: &Tracked, standing: Standing, expected: u32) {
        let Some(seat) = self.by_name.get_mut(&tracked.name) else {
            return;
        };
        seat.contiguous = tracked.contiguous;
        seat.standing = standing;
        if standing != Standing::Here && seat.slot >= expected {
            seat.left = Some(self.leaves);
            self.gone.insert(self.leaves, tracked.name.clone());
            self.leaves += 1;
        }
    }

    /// Makes sure that there is room to remember `name` among at most `names_max` names. Returns
    /// true when another name was forgotten for that. Refuses when every remembered name belongs to
    /// a receiver that is present or expected.
    fn make_room(&mut self, name: &str, names_max: usize) -> Result<bool, Refusal> {
        if self.by_name.contains_key(name) || self.by_name.len() < names_max {
            return Ok(false);
        }
        let (_, forgotten) = self.gone.pop_first().ok_or(Refusal::Full)?;
        self.by_name.remove(&forgotten);
        Ok(true)
    }
}

impl Audience {
    /// Returns true for a guest's slot: the receiver is not expected, and the session has no key.
    pub(super) fn is_guest(&self, slot: u32) -> bool {
        self.config.guests_from().is_some_and(|first| slot >= first)
    }

    /// Adds a receiver that is present.
    pub(super) fn track(&mut self, link: LinkId, tracked: Tracked) {
        if tracked.is_awaited {
            self.order.insert((tracked.contiguous, link));
        }
        self.tracked.insert(link, tracked);
    }

    /// Makes room for a receiver that greets, or says why there is none. When an earlier receiver
    /// of the same name has long been silent, it counts as dead, and the new one takes its place.
    pub(super) fn make_room(
        &mut self,
        now: Instant,
        host: IpAddr,
        hello: &Hello<'_>,
    ) -> Result<(), Refusal> {
        if let Some((old, tracked)) = self.earlier(hello.name) {
            if tracked.instance == hello.instance {
                return Ok(());
            }
            if now.since(tracked.heard_at) < SILENCE_MAX {
                return Err(Refusal::DuplicateName);
            }
            self.listener.close(old);
            self.remove(old, LeaveReason::Closed);
            return Ok(());
        }
        let places = self.config.receivers_max as usize;
        let present = self.tracked.values().map(|tracked| tracked.peer.ip());
        let has_share = share(places.div_ceil(2), places, present, host) == Share::Free;
        let is_served = has_share || !self.is_guest(self.seats.slot_of(hello.name));
        if self.tracked.len() >= places || !is_served {
            return Err(Refusal::Full);
        }
        let names_max = self.config.names_max();
        let has_forgotten = self.seats.make_room(hello.name, names_max)?;
        self.counters.names_forgotten += u64::from(has_forgotten);
        Ok(())
    }

    /// Returns the receiver of this name that counts as present, with its connection.
    pub(super) fn earlier(&self, name: &str) -> Option<(LinkId, &Tracked)> {
        let mut all = self.tracked.iter();
        all.find_map(|(&link, tracked)| (tracked.name == name).then_some((link, tracked)))
    }
}
