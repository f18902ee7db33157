//! Enters in [`Facts`] what beacons say, and answers what a beacon may say of it. Bounded: what a
//! list has no room for is counted in [`super::Unlisted`].

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use super::{
    Facts, Heard, PeerFacts, PeerWord,
    beacon::{Beacon, HEARD_MAX, UNICAST_HOPS},
};

impl Facts {
    /// Notes a beacon that came through the group: from which address, by which interface, with
    /// which time to live left. `token` is this host's own.
    pub(super) fn hear(
        &mut self,
        beacon: &Beacon,
        (source, interface, hops_left): (IpAddr, String, Option<u8>),
        token: u64,
        now: Duration,
    ) {
        let is_known = |it: &&mut Heard| it.token == beacon.token && it.interface == interface;
        if let Some(known) = self.heard.iter_mut().find(is_known) {
            known.count += 1;
            known.last = now;
            known.hops.1 = hops_left;
        } else if !beacon.is_group {
            // Not sent to the group: it says nothing about it.
        } else if self.heard.len() < LISTED_MAX {
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
            });
        } else {
            self.unlisted.heard += 1;
        }
    }

    /// Notes a beacon that a host at `source` has sent to this one alone.
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
            routers: hops_left.map(|left| UNICAST_HOPS.saturating_sub(left)),
            token: beacon.token,
            times: 1,
        };
        let mut peers = self.peers.iter_mut();
        if let Some(peer) = peers.find(|peer| peer.address.ip() == source.ip()) {
            let before = peer.word.take();
            let is_same = |it: &PeerWord| it.token == word.token;
            let times = before.filter(is_same).map_or(1, |it| it.times + 1);
            peer.word = Some(PeerWord { times, ..word });
        } else if self.peers.len() < LISTED_MAX {
            self.peers.push(PeerFacts {
                address: source,
                word: Some(word),
            });
        } else {
            self.unlisted.peers += 1;
        }
    }

    /// Tokens of the hosts that are heard, for a beacon to the host at `peer`, and whether more are
    /// heard than these. The host itself comes first: whether it is heard is what it wants to know.
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
            if tokens.len() == HEARD_MAX {
                return (tokens, true);
            }
            tokens.push(heard.token);
        }
        (tokens, self.unlisted.heard > 0)
    }
}

/// Entries of each list of hosts. A host sends to each of them five times a second, and looks
/// through them for each frame.
pub(super) const LISTED_MAX: usize = 256;
