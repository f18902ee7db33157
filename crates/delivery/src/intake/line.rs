//! The line of senders that wait, connected, until a place is free.
//!
//! Invariants: a sender stands in line once, and not while a transfer goes on with it. A host has
//! at most half of the places, and a network at most three quarters. When the line is full, the
//! host or network that has most places loses one to a newcomer that would still have fewer.

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
    /// For each connection, its sender and the time at which to tell it again that it waits.
    senders: BTreeMap<LinkId, (Sender, Instant)>,
    links: BTreeMap<Sender, LinkId>,
    to_tell: BTreeSet<(Instant, LinkId)>,
    hosts: Crowd,
    places_max: usize,
    /// When to look next whether a sender that waits can have a place.
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
    /// the sender may wait only in place of another sender whose host or network has more places.
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

    /// Takes a connection out; returns its sender.
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

    /// Says when something is to be done even if no sender comes or goes.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let &(tell_at, _) = self.to_tell.first()?;
        Some(tell_at.min(self.look_at))
    }

    /// Returns the sender whose turn it is, with its connection.
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
