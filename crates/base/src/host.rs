//! Shares of hosts: how much of something one host may have, so that it leaves some to others.
//!
//! A host of IPv6 mostly has as many addresses as it likes, all of one /64: its *network*. But all
//! hosts of a LAN are in one /64, too, and none of them may take what the others need. So an
//! address has a share, and all addresses of a network together have one and a half.

use std::net::{IpAddr, Ipv6Addr};

/// Whether an address may have one more place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// It may.
    Free,
    /// It has its share.
    HostFull,
    /// All addresses of its network together have theirs.
    NetworkFull,
}

/// Says whether `address` may have one more place beside those that are `taken`, each by an
/// address: `own_max` is the share of one.
#[must_use]
pub fn share(own_max: usize, taken: impl Iterator<Item = IpAddr>, address: IpAddr) -> Share {
    let address = address.to_canonical();
    let network = network_of(address);
    let (mut own, mut near) = (0, 0);
    for other in taken {
        own += usize::from(other.to_canonical() == address);
        near += usize::from(network_of(other) == network);
    }
    if own >= own_max {
        Share::HostFull
    } else if near >= own_max + own_max / 2 {
        Share::NetworkFull
    } else {
        Share::Free
    }
}

/// Returns what stands for all addresses of a network: those of an IPv6 /64. An IPv4 address stands
/// for itself.
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

/// The bits that tell the addresses of one network apart (RFC 4291 section 2.5.4).
const HOST_BITS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_has_its_share_and_a_network_one_and_a_half() {
        let taken = |texts: &[&str], who: &str| {
            let taken: Vec<IpAddr> = texts.iter().map(|text| ip(text)).collect();
            share(2, taken.into_iter(), ip(who))
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
}
