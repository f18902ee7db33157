//! Connections by the network and the host that they come from: how many each network and host has,
//! which connection is the oldest, and whose turn is next.
//!
//! An IPv6 host can use any number of addresses of its network ([`base::network_of`]). So
//! connections are first compared, and take turns, by network; and within a network by host.
//!
//! A connection's number says its age: back ends count upwards. The *largest* host or network is
//! the one with the most connections.
//!
//! Invariant: every host and every network that is kept has a connection, so the maps are no larger
//! than the number of connections.
//!
//! **Cost**: each call takes time logarithmic in the number of connections.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    ops::Bound,
};

use base::{LinkId, Share, counted_share, network_of};

/// The connections of many hosts.
#[derive(Debug)]
pub(crate) struct Crowd {
    all: BTreeMap<LinkId, IpAddr>,
    networks: BTreeMap<IpAddr, Network>,
    /// The networks by the number of their connections.
    by_size: BTreeSet<(usize, IpAddr)>,
    /// The network that had its turn last.
    last: Option<IpAddr>,
}

/// The connections of one network.
#[derive(Debug, Default)]
struct Network {
    links: BTreeSet<LinkId>,
    hosts: BTreeMap<IpAddr, BTreeSet<LinkId>>,
    /// The hosts by the number of their connections.
    by_size: BTreeSet<(usize, IpAddr)>,
    /// The host that had its turn last.
    last: Option<IpAddr>,
}

impl Crowd {
    pub(crate) const fn new() -> Self {
        Self {
            all: BTreeMap::new(),
            networks: BTreeMap::new(),
            by_size: BTreeSet::new(),
            last: None,
        }
    }

    /// Adds a connection of a host.
    pub(crate) fn add(&mut self, link: LinkId, host: IpAddr) {
        let (host, place) = (host.to_canonical(), network_of(host));
        self.all.insert(link, host);
        let network = self.networks.entry(place).or_default();
        self.by_size.remove(&(network.links.len(), place));
        network.links.insert(link);
        self.by_size.insert((network.links.len(), place));
        let links = network.hosts.entry(host).or_default();
        network.by_size.remove(&(links.len(), host));
        links.insert(link);
        network.by_size.insert((links.len(), host));
    }

    /// Takes a connection away; returns false when it is not here.
    pub(crate) fn remove(&mut self, link: LinkId) -> bool {
        let Some(host) = self.all.remove(&link) else {
            return false;
        };
        let place = network_of(host);
        let Some(network) = self.networks.get_mut(&place) else {
            return false;
        };
        self.by_size.remove(&(network.links.len(), place));
        network.links.remove(&link);
        if network.links.is_empty() {
            self.networks.remove(&place);
            return true;
        }
        self.by_size.insert((network.links.len(), place));
        if let Some(links) = network.hosts.get_mut(&host) {
            network.by_size.remove(&(links.len(), host));
            links.remove(&link);
            if links.is_empty() {
                network.hosts.remove(&host);
            } else {
                network.by_size.insert((links.len(), host));
            }
        }
        true
    }

    /// Returns the number of connections.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true when there is no connection.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the oldest connection of `host`, or else of its network, or else of all.
    pub(crate) fn oldest_near(&self, host: IpAddr) -> Option<LinkId> {
        let network = self.networks.get(&network_of(host));
        let oldest = network.and_then(|network| {
            let own = network.hosts.get(&host.to_canonical());
            own.unwrap_or(&network.links).first()
        });
        oldest.or_else(|| self.all.keys().next()).copied()
    }

    /// Says whether `host` may have one more of `places_max` places, of which `own_max` are the
    /// share of one host ([`base::share`]).
    pub(crate) fn share(&self, own_max: usize, places_max: usize, host: IpAddr) -> Share {
        let network = self.networks.get(&network_of(host));
        let own = network.map_or(0, |network| network.count_of(host));
        let near = network.map_or(0, |network| network.links.len());
        counted_share(own_max, places_max, own, near)
    }

    /// Returns the connection that gives way to a new one of `host`. If the largest network has
    /// more connections than the network of `host` would have with the new one, the newest
    /// connection of its largest host gives way. Otherwise only the network of `host` is searched,
    /// as in [`Crowd::newest_of_most_near`].
    pub(crate) fn newest_of_most(&self, host: IpAddr) -> Option<LinkId> {
        let near = self.networks.get(&network_of(host));
        let near = near.map_or(0, |network| network.links.len());
        let &(most, place) = self.by_size.last()?;
        if near + 1 < most {
            return self.networks.get(&place)?.newest_of_most(0);
        }
        self.newest_of_most_near(host)
    }

    /// Returns the newest connection of the largest host in the network of `host`; `None` when the
    /// largest host has at most one connection more than `host`.
    pub(crate) fn newest_of_most_near(&self, host: IpAddr) -> Option<LinkId> {
        let network = self.networks.get(&network_of(host))?;
        network.newest_of_most(network.count_of(host) + 1)
    }

    /// Returns the connection whose turn it is: the oldest of the next host in the next network, in
    /// the order of addresses. So every network has its turn, and in it every host.
    pub(crate) fn next_turn(&mut self) -> Option<LinkId> {
        let place = next_key(&self.networks, self.last)?;
        self.last = Some(place);
        let network = self.networks.get_mut(&place)?;
        let host = next_key(&network.hosts, network.last)?;
        network.last = Some(host);
        network.hosts.get(&host)?.first().copied()
    }
}

impl Network {
    fn count_of(&self, host: IpAddr) -> usize {
        let links = self.hosts.get(&host.to_canonical());
        links.map_or(0, BTreeSet::len)
    }

    /// Returns the newest connection of the largest host, if that host has more than `than`
    /// connections.
    fn newest_of_most(&self, than: usize) -> Option<LinkId> {
        let (_, host) = self.by_size.last().filter(|&&(most, _)| most > than)?;
        self.hosts.get(host)?.last().copied()
    }
}

/// Returns the key after `last`, or else the first one.
fn next_key<V>(all: &BTreeMap<IpAddr, V>, last: Option<IpAddr>) -> Option<IpAddr> {
    let later = last.and_then(|last| {
        let later = (Bound::Excluded(last), Bound::Unbounded);
        all.range(later).next()
    });
    later.or_else(|| all.first_key_value()).map(|(&key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_oldest_of_a_host_is_found_before_that_of_its_network_and_of_all() {
        let mut crowd = Crowd::new();
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
        assert!(crowd.networks.is_empty() && crowd.by_size.is_empty() && crowd.is_empty());
    }

    #[test]
    fn shares_are_those_that_are_counted_one_by_one() {
        let mut crowd = Crowd::new();
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

    /// Removes up to `count` connections in the order of their turns, and returns their numbers.
    fn turns(crowd: &mut Crowd, count: usize) -> Vec<u32> {
        let turn = |_| {
            let link = crowd.next_turn()?;
            assert!(crowd.remove(link));
            Some(link.0)
        };
        (0..count).map_while(turn).collect()
    }

    #[test]
    fn every_host_has_its_turn() {
        let mut crowd = Crowd::new();
        for number in 0..100 {
            crowd.add(LinkId(number), ip("10.0.0.1"));
        }
        crowd.add(LinkId(100), ip("fd00::2"));
        crowd.add(LinkId(101), ip("10.0.0.3"));
        assert_eq!(turns(&mut crowd, 5), [0, 101, 100, 1, 2]);
    }

    #[test]
    fn a_network_of_many_addresses_has_one_turn_of_each_round() {
        let mut crowd = Crowd::new();
        for number in 0..100 {
            crowd.add(LinkId(number), ip(&format!("fd00::{:x}", 1 + number)));
        }
        crowd.add(LinkId(100), ip("fd00:0:0:1::1"));
        crowd.add(LinkId(101), ip("fd00::1"));
        crowd.add(LinkId(102), ip("10.0.0.3"));
        assert_eq!(turns(&mut crowd, 5), [102, 0, 100, 1, 2]);
        let rest = turns(&mut crowd, 1_000);
        assert_eq!((rest.len(), rest.last()), (98, Some(&101)), "{rest:?}");
    }

    #[test]
    fn who_has_most_loses_its_newest_and_who_would_have_more_gets_nothing() {
        let mut crowd = Crowd::new();
        let hosts = ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.2"];
        for (number, host) in hosts.into_iter().enumerate() {
            crowd.add(LinkId(number as u32), ip(host));
        }
        let newest = |crowd: &Crowd, host| crowd.newest_of_most(ip(host)).map(|link| link.0);
        assert_eq!(newest(&crowd, "10.0.0.3"), Some(4));
        assert_eq!(newest(&crowd, "10.0.0.1"), None, "they would change places");
        assert_eq!(newest(&crowd, "10.0.0.2"), None);
        // A network of four addresses has more than each other host.
        for number in 5..9 {
            crowd.add(LinkId(number), ip(&format!("fd00::{number}")));
        }
        assert_eq!(newest(&crowd, "10.0.0.1"), Some(8));
        assert_eq!(newest(&crowd, "fd00::66"), None, "one each");
        crowd.add(LinkId(9), ip("fd00::6"));
        assert_eq!(newest(&crowd, "fd00::66"), Some(9));
        assert_eq!(crowd.newest_of_most_near(ip("fd00::66")), Some(LinkId(9)));
        assert_eq!(crowd.newest_of_most_near(ip("10.0.0.3")), None);
    }
}
