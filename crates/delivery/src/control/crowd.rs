//! Connections by the host and the network that they come from: who has how many, and which of them
//! is the oldest.
//!
//! A connection's number says its age: back ends count upwards.
//!
//! Invariant: no host and no network without a connection is kept, so the maps are no larger than
//! the number of connections.
//!
//! **Cost**: each call takes time logarithmic in the number of connections.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    ops::Bound,
};

use base::{LinkId, Party, Share, network_share};

/// The connections of many hosts.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    all: BTreeMap<LinkId, IpAddr>,
    parties: BTreeMap<Party, BTreeSet<LinkId>>,
}

impl Crowd {
    /// Adds a connection of a host.
    pub(crate) fn add(&mut self, link: LinkId, host: IpAddr) {
        self.all.insert(link, host);
        for party in Party::all_of(host) {
            self.parties.entry(party).or_default().insert(link);
        }
    }

    /// Takes a connection away; returns false when it is not here.
    pub(crate) fn remove(&mut self, link: LinkId) -> bool {
        let Some(host) = self.all.remove(&link) else {
            return false;
        };
        for party in Party::all_of(host) {
            if let Some(links) = self.parties.get_mut(&party) {
                links.remove(&link);
                if links.is_empty() {
                    self.parties.remove(&party);
                }
            }
        }
        true
    }

    /// Returns the oldest connection of `host`, or else of its network, or else of all.
    pub(crate) fn oldest_near(&self, host: IpAddr) -> Option<LinkId> {
        let mut near = Party::all_of(host).filter_map(|party| self.parties.get(&party));
        let oldest = near.find_map(|links| links.first());
        oldest.or_else(|| self.all.keys().next()).copied()
    }

    /// Says whether `host` may have one more of `places_max` places, of which `own_max` are the
    /// share of one host ([`base::share`]).
    pub(crate) fn share(&self, own_max: usize, places_max: usize, host: IpAddr) -> Share {
        let count = |party| self.parties.get(&party).map_or(0, BTreeSet::len);
        if count(Party::host(host)) >= own_max {
            return Share::HostFull;
        }
        let near = Party::network(host).map_or(0, count);
        if near >= network_share(own_max, places_max) {
            return Share::NetworkFull;
        }
        Share::Free
    }

    /// Returns the host after `last` in the order of addresses, or else the first one, with its
    /// oldest connection: so every host has its turn.
    pub(crate) fn next_host(&self, last: Option<Party>) -> Option<(Party, LinkId)> {
        // Hosts come before networks in the map.
        let is_host = |(party, links): (&Party, &BTreeSet<LinkId>)| match party {
            Party::Host(_) => links.first().map(|&link| (*party, link)),
            Party::Network(_) => None,
        };
        let later = last.and_then(|last| {
            let mut later = self
                .parties
                .range((Bound::Excluded(last), Bound::Unbounded));
            later.next().and_then(is_host)
        });
        later.or_else(|| self.parties.iter().next().and_then(is_host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_oldest_of_a_host_is_found_before_that_of_its_network_and_of_all() {
        let mut crowd = Crowd::default();
        let hosts = [
            "10.0.0.1",
            "fd00::1",
            "fd00::2",
            "fd00::1",
            "::ffff:10.0.0.1",
        ];
        for (number, host) in hosts.into_iter().enumerate() {
            crowd.add(LinkId(number as u32), ip(host));
        }
        let oldest = |crowd: &Crowd, host| crowd.oldest_near(ip(host)).map(|link| link.0);
        assert_eq!(oldest(&crowd, "fd00::2"), Some(2));
        assert_eq!(oldest(&crowd, "fd00::3"), Some(1), "of the network");
        assert_eq!(oldest(&crowd, "fd00:0:0:1::1"), Some(0), "of all");
        assert!(crowd.remove(LinkId(0)) && !crowd.remove(LinkId(0)));
        assert_eq!(oldest(&crowd, "10.0.0.1"), Some(4));
        for number in 1..5 {
            assert!(crowd.remove(LinkId(number)));
        }
        assert!(crowd.parties.is_empty() && crowd.all.is_empty());
    }

    #[test]
    fn shares_are_those_that_are_counted_one_by_one() {
        let mut crowd = Crowd::default();
        let hosts = ["10.0.0.1", "fd00::1", "fd00::2", "fd00::1", "10.0.0.1"].map(ip);
        for (number, host) in hosts.into_iter().enumerate() {
            crowd.add(LinkId(number as u32), host);
        }
        for host in [
            "10.0.0.1",
            "10.0.0.2",
            "fd00::1",
            "fd00::3",
            "fd00:0:0:1::1",
        ]
        .map(ip)
        {
            for (own_max, places_max) in [(1, 2), (2, 4), (3, 4), (3, 6), (8, 16)] {
                let counted = base::share(own_max, places_max, hosts.into_iter(), host);
                let found = crowd.share(own_max, places_max, host);
                assert_eq!(found, counted, "{host} {own_max} of {places_max}");
            }
        }
    }

    #[test]
    fn every_host_has_its_turn() {
        let mut crowd = Crowd::default();
        for number in 0..100 {
            crowd.add(LinkId(number), ip("10.0.0.1"));
        }
        crowd.add(LinkId(100), ip("fd00::2"));
        crowd.add(LinkId(101), ip("10.0.0.3"));
        let (mut last, mut turns) = (None, Vec::new());
        while let Some((host, link)) = crowd.next_host(last) {
            if turns.len() == 5 {
                break;
            }
            turns.push(link.0);
            crowd.remove(link);
            last = Some(host);
        }
        assert_eq!(turns, [0, 101, 100, 1, 2]);
    }
}
