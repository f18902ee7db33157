//! The names that have joined, and who gets a place.
//!
//! A name stays remembered when its receiver has left. When a new name comes and too many are
//! remembered, the audience forgets the name whose receiver left first. It never forgets the name
//! of an expected receiver. So a host that joins under ever new names keeps nobody out.

use std::net::IpAddr;

use base::{Instant, LinkId, Share, share};
use wire::object::{Hello, Refusal};

use super::{
    Audience, LeaveReason,
    tracked::{Seat, Standing, Tracked},
};
use crate::parameters::SILENCE_MAX;

impl Audience {
    /// Returns the number that a receiver of this name has, or gets when it joins.
    pub(super) fn slot_of(&self, name: &str) -> u32 {
        let known = self.seats.get(name);
        known.map_or(self.joined, |seat| seat.slot)
    }

    /// Returns true for the number of a receiver that is not expected and has shown no key.
    pub(super) fn is_guest(&self, slot: u32) -> bool {
        self.config.guests_from().is_some_and(|first| slot >= first)
    }

    /// Notes that a receiver of this name is here.
    pub(super) fn take_seat(&mut self, name: &str, slot: u32) {
        if let Some(seat) = self.seats.get_mut(name) {
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
        self.seats.insert(name.to_owned(), seat);
        // After four billion names, numbers of guests are used again.
        self.joined = self.joined.checked_add(1).unwrap_or(self.config.expected);
    }

    /// Notes that a receiver is gone, or moves to another connection.
    pub(super) fn leave_seat(&mut self, tracked: &Tracked, standing: Standing) {
        let Some(seat) = self.seats.get_mut(&tracked.name) else {
            return;
        };
        seat.contiguous = tracked.contiguous;
        seat.standing = standing;
        if standing != Standing::Here && seat.slot >= self.config.expected {
            seat.left = Some(self.leaves);
            self.gone.insert(self.leaves, tracked.name.clone());
            self.leaves += 1;
        }
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
        let is_served = has_share || !self.is_guest(self.slot_of(hello.name));
        if self.tracked.len() >= places || !is_served {
            return Err(Refusal::Full);
        }
        let is_known = self.seats.contains_key(hello.name);
        if !is_known && self.seats.len() >= self.config.names_max() {
            let (_, name) = self.gone.pop_first().ok_or(Refusal::Full)?;
            self.seats.remove(&name);
            self.counters.names_forgotten += 1;
        }
        Ok(())
    }

    /// Returns the receiver of this name that counts as present, with its connection.
    pub(super) fn earlier(&self, name: &str) -> Option<(LinkId, &Tracked)> {
        let mut all = self.tracked.iter();
        all.find_map(|(&link, tracked)| (tracked.name == name).then_some((link, tracked)))
    }
}
