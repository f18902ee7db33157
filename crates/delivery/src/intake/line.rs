//! The line of senders that wait, connected, until a place is free.
//!
//! Invariants: a sender stands in line once, and not while a transfer goes on with it; a host has
//! half of the line at most, and a network three quarters. When the line is full, nobody keeps a
//! place that a host with fewer of them wants.

use std::{collections::BTreeMap, net::IpAddr};

use base::{Instant, LinkId, Share};

use super::Sender;
use crate::control::{Crowd, Seat};

/// The senders in line.
#[derive(Debug)]
pub(super) struct Line {
    senders: BTreeMap<LinkId, Sender>,
    links: BTreeMap<Sender, LinkId>,
    hosts: Crowd,
    places_max: usize,
    /// When to look next, while senders wait.
    pub(super) look_at: Instant,
}

impl Line {
    /// Makes an empty line with room for `places_max` senders.
    pub(super) const fn new(places_max: usize) -> Self {
        Self {
            senders: BTreeMap::new(),
            links: BTreeMap::new(),
            hosts: Crowd::new(),
            places_max,
            look_at: Instant::NEVER,
        }
    }

    /// Says whether a sender at `host` may wait: when the line is full, in place of the newest
    /// connection of the host that has most, if that has more.
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

    /// Adds a sender at the end.
    pub(super) fn join(&mut self, link: LinkId, sender: Sender) {
        self.senders.insert(link, sender);
        self.links.insert(sender, link);
        self.hosts.add(link, sender.address.ip());
    }

    /// Takes a connection out; returns its sender.
    pub(super) fn leave(&mut self, link: LinkId) -> Option<Sender> {
        let sender = self.senders.remove(&link)?;
        self.links.remove(&sender);
        self.hosts.remove(link);
        Some(sender)
    }

    /// Returns the sender whose turn it is, with its connection.
    pub(super) fn next_turn(&mut self) -> Option<(LinkId, Sender)> {
        let link = self.hosts.next_turn()?;
        Some((link, *self.senders.get(&link)?))
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

    /// Returns the connections of all that wait.
    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> {
        self.senders.keys().copied()
    }
}
