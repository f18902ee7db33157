//! The line of senders that stay connected and wait until this receiver can let them in.
//!
//! Invariants: a sender stands in line once, and not while a transfer goes on with it. A host has
//! at most half of the line's places, and a network at most three quarters. When the line is full,
//! the host or network with most places loses one to a newcomer whose host or network has fewer.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use base::{Instant, LinkId, Share};

use super::Sender;
use crate::{
    control::{Crowd, Seat},
    parameters::WAIT_INTERVAL,
};

/// The senders in line.
#[derive(Debug)]
pub(super) struct Line {
    /// For each connection, its sender, and the time at which to tell that sender again that it
    /// waits.
    senders: BTreeMap<LinkId, (Sender, Instant)>,
    links: BTreeMap<Sender, LinkId>,
    to_tell: BTreeSet<(Instant, LinkId)>,
    hosts: Crowd,
    places_max: usize,
    /// When to check next whether a sender that waits can be let in.
    pub(super) look_at: Instant,
}

impl Line {
    /// Makes an empty line with room for `places_max` senders.
    pub(super) const fn new(places_max: usize) -> Self {
        Self {
            senders: BTreeMap::new(),
            links: BTreeMap::new(),
            to_tell: BTreeSet::new(),
            hosts: Crowd::new(),
            places_max,
            look_at: Instant::NEVER,
        }
    }

    /// Says whether a sender at `host` may wait. When the line or the share of its network is full,
    /// the sender may wait only instead of another whose host or network has more places in line.
    pub(super) fn room_for(&self, host: IpAddr) -> Seat<LinkId> {
        let own_max = self.places_max.div_ceil(2);
        let other = match self.hosts.share(own_max, self.places_max, host) {
            Share::HostFull => None,
            Share::NetworkFull => self.hosts.newest_of_most_near(host),
            Share::Free if self.hosts.len() < self.places_max => return Seat::Free,
            Share::Free => self.hosts.newest_of_most(host),
        };
        other.map_or(Seat::None, Seat::InsteadOf)
    }

    /// Adds a sender that was just told that it waits.
    pub(super) fn join(&mut self, now: Instant, link: LinkId, sender: Sender) {
        self.links.insert(sender, link);
        self.hosts.add(link, sender.address.ip());
        self.told(now, link, sender);
    }

    fn told(&mut self, now: Instant, link: LinkId, sender: Sender) {
        let again_at = now + WAIT_INTERVAL;
        self.senders.insert(link, (sender, again_at));
        self.to_tell.insert((again_at, link));
    }

    /// Removes a connection from the line; returns its sender.
    pub(super) fn leave(&mut self, link: LinkId) -> Option<Sender> {
        let (sender, again_at) = self.senders.remove(&link)?;
        self.to_tell.remove(&(again_at, link));
        self.links.remove(&sender);
        self.hosts.remove(link);
        Some(sender)
    }

    /// Returns a connection whose sender is to be told that it still waits, and notes that the
    /// sender is told.
    pub(super) fn tell_next(&mut self, now: Instant) -> Option<LinkId> {
        let &(again_at, link) = self.to_tell.first().filter(|&&(at, _)| at <= now)?;
        self.to_tell.remove(&(again_at, link));
        let &(sender, _) = self.senders.get(&link)?;
        self.told(now, link, sender);
        Some(link)
    }

    /// Returns when a sender is to be told again that it waits, or `look_at` if that is earlier;
    /// `None` when no sender waits.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let &(tell_at, _) = self.to_tell.first()?;
        Some(tell_at.min(self.look_at))
    }

    /// Returns the sender to let in next, with its connection. Networks and hosts take turns.
    pub(super) fn next_turn(&mut self) -> Option<(LinkId, Sender)> {
        let link = self.hosts.next_turn()?;
        let &(sender, _) = self.senders.get(&link)?;
        Some((link, sender))
    }

    /// Returns the connection on which a sender waits.
    pub(super) fn link_of(&self, sender: &Sender) -> Option<LinkId> {
        self.links.get(sender).copied()
    }

    pub(super) fn contains(&self, link: LinkId) -> bool {
        self.senders.contains_key(&link)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Returns the connections of all senders that wait.
    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> {
        self.senders.keys().copied()
    }
}
