//! Writes what beacons say into [`Facts`], and reads from there what this host's beacons say. The
//! lists are bounded; [`super::Unlisted`] counts what they have no room for.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use base::{Share, share};
use measure::Beacon;

use super::{Facts, Heard, PeerFacts, PeerWord};

impl Facts {
    /// Notes a beacon of `len` bytes that came through the group: its source, its interface, and
    /// the time to live with which it arrived. `token` is this host's own.
    pub(super) fn hear(
        &mut self,
        (beacon, len): (&Beacon, usize),
        (source, interface, hops_left): (IpAddr, String, Option<u8>),
        token: u64,
        now: Duration,
    ) {
        let is_known = |it: &&mut Heard| it.token == beacon.token && it.interface == interface;
        if let Some(known) = self.heard.iter_mut().find(is_known) {
            known.count += 1;
            known.bytes += if known.source == source {
                len as u64
            } else {
                0
            };
            known.last = now;
            known.hops.1 = hops_left;
        } else if !beacon.is_group {
            // A beacon that was not sent to the group says nothing about the group.
        } else if has_room(self.heard.iter().map(|it| it.source), source) {
            self.heard.push(Heard {
                name: beacon.name.clone(),
                source,
                interface,
                hops: (beacon.hops, hops_left),
                count: 1,
                first: now,
                last: now,
                is_self: beacon.token == token,
                token: beacon.token,
                bytes: len as u64,
            });
        } else {
            self.unlisted.heard += 1;
        }
    }

    /// Notes a beacon that a host at `source` sent to this host alone.
    pub(super) fn note(
        &mut self,
        beacon: &Beacon,
        source: SocketAddr,
        hops_left: Option<u8>,
        token: u64,
    ) {
        let word = PeerWord {
            name: beacon.name.clone(),
            group: beacon.group,
            hops: beacon.hops,
            source: beacon.address,
            interface: beacon.interface.clone(),
            refusal: beacon.refusal.clone(),
            hears_us: beacon.hears(token),
            routers: hops_left.map(|left| Beacon::UNICAST_HOPS.saturating_sub(left)),
            token: beacon.token,
            times: 1,
        };
        let mut peers = self.peers.iter_mut();
        if let Some(peer) = peers.find(|peer| peer.address.ip() == source.ip()) {
            let before = peer.word.take();
            let is_same = |it: &PeerWord| it.token == word.token;
            let times = before.filter(is_same).map_or(1, |it| it.times + 1);
            peer.word = Some(PeerWord { times, ..word });
        } else if has_room(self.peers.iter().map(|it| it.address.ip()), source.ip()) {
            self.peers.push(PeerFacts {
                address: source,
                word: Some(word),
            });
        } else {
            self.unlisted.peers += 1;
        }
    }

    /// Returns how many bytes of beacons came through the group from `source`.
    pub(super) fn bytes_of(&self, source: IpAddr) -> u64 {
        let of_source = self.heard.iter().filter(|it| it.source == source);
        of_source.map(|it| it.bytes).sum()
    }

    /// Returns the tokens that a beacon to the host at `peer` names, and whether this host hears
    /// more hosts than these. The peer's own token comes first, because the peer wants to know
    /// whether it is heard.
    pub(super) fn heard_for(&self, peer: IpAddr) -> (Vec<u64>, bool) {
        let said = self.peers.iter().find(|it| it.address.ip() == peer);
        let said = said.and_then(|it| Some(it.word.as_ref()?.token));
        let is_peer = |heard: &&Heard| heard.source == peer || Some(heard.token) == said;
        let others = |heard: &&Heard| !heard.is_self;
        let first = self.heard.iter().filter(others).filter(is_peer);
        let mut tokens: Vec<u64> = Vec::new();
        for heard in first.chain(self.heard.iter().filter(others)) {
            if tokens.contains(&heard.token) {
                continue;
            }
            if tokens.len() == Beacon::HEARD_MAX {
                return (tokens, true);
            }
            tokens.push(heard.token);
        }
        (tokens, self.unlisted.heard > 0)
    }
}

/// Returns true when a list with entries of the hosts `listed` has room for one more of `host`.
pub(super) fn has_room(listed: impl ExactSizeIterator<Item = IpAddr>, host: IpAddr) -> bool {
    listed.len() < LISTED_MAX && share(LISTED_PER_HOST_MAX, LISTED_MAX, listed, host) == Share::Free
}

/// The most entries of each list of hosts. This host sends to each listed host five times a second,
/// and searches the list for each frame.
pub(super) const LISTED_MAX: usize = 256;
/// Entries of one host in a list: it may run several searches, and be heard on several interfaces.
pub(super) const LISTED_PER_HOST_MAX: usize = 16;
