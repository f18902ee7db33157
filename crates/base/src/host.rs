//! Shares of hosts: how much of something one host may have, so that it leaves some to others.
//!
//! An IPv6 host can mostly use as many addresses as it likes, all of one /64: its *network*. But
//! all hosts of a LAN are in one /64, too, and none of them may take what the others need. So an
//! address has a share, and all addresses of a network together have three quarters of the whole.

use std::net::{IpAddr, Ipv6Addr};

use crate::parameters::NETWORK_SHARE;

/// The answer to the question whether an address may have one more place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// The address may have one more.
    Free,
    /// The address has its share already.
    HostFull,
    /// All addresses of its network together have their share already.
    NetworkFull,
}

impl Share {
    /// Returns true when a new place for `newcomer`, to which this answer was given, may displace
    /// one of `holder`. One who has its share already displaces only its own.
    #[must_use]
    pub fn may_displace(self, newcomer: IpAddr, holder: IpAddr) -> bool {
        match self {
            Self::Free => true,
            Self::HostFull => Party::host(newcomer) == Party::host(holder),
            Self::NetworkFull => network_of(newcomer) == network_of(holder),
        }
    }
}

/// Says whether `address` may have one more place. For each place that is taken, `taken` gives the
/// address that has it. There are `places_max` places, and `own_max` of them are the share of one
/// address.
#[must_use]
pub fn share(
    own_max: usize,
    places_max: usize,
    taken: impl Iterator<Item = IpAddr>,
    address: IpAddr,
) -> Share {
    let address = address.to_canonical();
    let network = network_of(address);
    let (mut own, mut near) = (0, 0);
    for other in taken {
        own += usize::from(other.to_canonical() == address);
        near += usize::from(network_of(other) == network);
    }
    counted_share(own_max, places_max, own, near)
}

/// As [`share`], for a caller that keeps count: the address has `own` places, and all addresses of
/// its network together have `near`.
#[must_use]
pub fn counted_share(own_max: usize, places_max: usize, own: usize, near: usize) -> Share {
    if own >= own_max {
        Share::HostFull
    } else if near >= network_share(own_max, places_max) {
        Share::NetworkFull
    } else {
        Share::Free
    }
}

/// Returns how many of `places_max` places are the share of a network: [`NETWORK_SHARE`] percent of
/// them, rounded up, and at least `own_max`, the share of one address.
#[must_use]
pub fn network_share(own_max: usize, places_max: usize) -> usize {
    let places = places_max * NETWORK_SHARE as usize;
    places.div_ceil(100).max(own_max)
}

/// Returns the address that stands for the whole network of `address`, an IPv6 /64. An IPv4 address
/// stands for itself.
#[must_use]
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = address.to_bits() >> HOST_BITS << HOST_BITS;
            Ipv6Addr::from_bits(bits).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// The owner of an account: one host, or all addresses of a network together. As the key of a map,
/// it keeps a host and its network apart, even when the host has the very address that stands for
/// the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// The host at this address.
    Host(IpAddr),
    /// All addresses of this network.
    Network(IpAddr),
}

impl Party {
    /// Makes the key of the host at `address`.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self::Host(address.to_canonical())
    }

    /// Returns the keys of the host at `address` and, where it has one, of its network.
    pub fn all_of(address: IpAddr) -> impl Iterator<Item = Self> {
        std::iter::once(Self::host(address)).chain(Self::network(address))
    }

    /// Makes the key of the network of `address`; `None` for IPv4, where an address is its own
    /// network.
    #[must_use]
    pub fn network(address: IpAddr) -> Option<Self> {
        let is_v6 = address.to_canonical().is_ipv6();
        is_v6.then(|| Self::Network(network_of(address)))
    }
}

/// The bits that tell the addresses of one network apart (RFC 4291 section 2.5.4).
const HOST_BITS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_has_its_share_and_a_network_three_quarters() {
        let taken = |texts: &[&str], who: &str| {
            let taken: Vec<IpAddr> = texts.iter().map(|text| ip(text)).collect();
            share(2, 4, taken.into_iter(), ip(who))
        };
        let own = ["fd00::1", "fd00::1"];
        assert_eq!(taken(&own, "fd00::1"), Share::HostFull);
        assert_eq!(taken(&own, "fd00::2"), Share::Free);
        let near = ["fd00::1", "fd00::1", "fd00::ffff:0:0:2"];
        assert_eq!(taken(&near, "fd00::3"), Share::NetworkFull);
        assert_eq!(taken(&near, "fd00:0:0:1::3"), Share::Free);
        let four = ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2", "10.0.0.3"];
        assert_eq!(taken(&four, "10.0.0.1"), Share::HostFull);
        assert_eq!(taken(&four, "10.0.0.4"), Share::Free);
        assert_eq!(network_of(ip("::ffff:10.0.0.1")), ip("10.0.0.1"));
    }

    #[test]
    fn a_network_has_room_for_two_hosts_wherever_there_are_two_places() {
        for places in 2..100 {
            for own in 1..=places / 2 {
                let near = std::iter::repeat_n(ip("fd00::1"), own);
                assert_eq!(
                    share(own, places, near, ip("fd00::2")),
                    Share::Free,
                    "{own} of {places}"
                );
            }
        }
        assert_eq!(network_share(8, 64), 48);
        assert_eq!(network_share(8, 8), 8, "one address may have everything");
    }
}
