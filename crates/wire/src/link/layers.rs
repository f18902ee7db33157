//! The places where the headers of a frame begin.
//!
//! **Spec**: <https://www.tcpdump.org/linktypes.html> for packets that do not begin with an
//! Ethernet header.

use super::{
    Ipv4, Ipv6,
    ethernet::{self, is_tag},
    ipv4, ipv6,
};

/// The headers of a frame, as offsets into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// Number of VLAN tags in front of the network header.
    pub tags: u8,
    /// The type of what follows the tags: 0x0800 IPv4, 0x86DD IPv6.
    pub ether_type: u16,
    /// Where the network header begins.
    pub network: usize,
    /// The IP header; `None` when the frame ends within the header's fixed part, when the header is
    /// malformed, or when the search did not reach it.
    pub ip: Option<Ip>,
    /// Why the search for headers ended.
    pub stop: Stop,
}

/// The reason why the search for headers ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stop {
    /// The search reached the place of the transport header: all headers in front of it are whole.
    #[default]
    Transport,
    /// The frame ends within a header, or in front of the next.
    Cut,
    /// What follows is neither a VLAN tag nor IP.
    OtherType,
    /// An IP header has another version than its type says, or a length below its fixed part.
    Malformed,
    /// The frame has more VLAN tags or extension headers than the search follows: 4 tags, 8
    /// headers.
    TooMany,
}

/// An IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// 4 or 6.
    pub version: u8,
    /// The protocol behind the extension headers: 6 TCP, 17 UDP. When the search stopped at an
    /// extension header of IPv6, the number of that header.
    pub protocol: u8,
    /// Where the transport header begins; in a fragment other than the first, where it would begin.
    /// When the search stopped earlier, this is another place. For IPv6, it is the beginning of the
    /// extension header at which the search stopped. For IPv4, it is the end of the IP header by
    /// its own length, which may lie beyond the frame.
    pub transport: usize,
    /// True for a part of a fragmented packet.
    pub is_fragment: bool,
    /// True for a fragment other than the first, which has no transport header.
    pub is_later_fragment: bool,
}

impl Layers {
    /// Finds the headers of `frame`.
    ///
    /// **Cost**: a few nanoseconds; no allocation.
    #[must_use]
    #[inline]
    pub fn parse(frame: &[u8]) -> Self {
        Self::behind(frame, half(frame, 12), ethernet::LEN)
    }

    /// Finds the headers of a packet of one of these link types (`LINKTYPE_*`): Ethernet, IP
    /// without anything in front (RAW, IPV4, IPV6), the loopback of other systems (NULL, LOOP), and
    /// Linux's "any" (SLL, SLL2). `None` for other link types.
    ///
    /// **Cost**: the same as [`Layers::parse`].
    #[must_use]
    #[inline]
    pub fn of(link_type: u16, packet: &[u8]) -> Option<Self> {
        if link_type == ETHERNET {
            return Some(Self::parse(packet));
        }
        Self::of_other(link_type, packet)
    }

    fn of_other(link_type: u16, packet: &[u8]) -> Option<Self> {
        let (ether_type, network) = match link_type {
            RAW | RAW_BSD | RAW_OPENBSD | ONLY_IPV4 | ONLY_IPV6 => (by_version(packet, 0), 0),
            NULL | LOOP => (by_version(packet, 4), 4),
            SLL => (half(packet, 14), 16),
            SLL2 => (half(packet, 0), 20),
            _ => return None,
        };
        Some(Self::behind(packet, ether_type, network))
    }

    /// Finds the headers from `network` on, where VLAN tags may come first. `ether_type` is the
    /// type of what begins there; `None` when the frame ends before that type.
    #[inline]
    pub(super) fn behind(frame: &[u8], ether_type: Option<u16>, network: usize) -> Self {
        let mut layers = Self {
            network,
            ether_type: ether_type.unwrap_or(0),
            tags: 0,
            ip: None,
            stop: Stop::Cut,
        };
        if ether_type.is_none() || frame.len() < network {
            return layers;
        }
        while is_tag(layers.ether_type) {
            if layers.tags == TAGS_MAX {
                layers.stop = Stop::TooMany;
                return layers;
            }
            let Some(ether_type) = half(frame, layers.network + 2) else {
                return layers;
            };
            layers.tags += 1;
            layers.network += 4;
            layers.ether_type = ether_type;
        }
        (layers.ip, layers.stop) = match layers.ether_type {
            ethernet::ETHER_TYPE_IPV4 => Ip::v4(frame, layers.network),
            ethernet::ETHER_TYPE_IPV6 => Ip::v6(frame, layers.network),
            _ => (None, Stop::OtherType),
        };
        layers
    }
}

/// Returns the type of the IP packet that begins at `at`, by the packet's first four bits: 0 when
/// it is not IP, `None` when the packet ends there.
fn by_version(packet: &[u8], at: usize) -> Option<u16> {
    packet.get(at).map(|first| match first >> 4 {
        4 => ethernet::ETHER_TYPE_IPV4,
        6 => ethernet::ETHER_TYPE_IPV6,
        _ => 0,
    })
}

impl Ip {
    #[inline]
    fn v4(frame: &[u8], at: usize) -> (Option<Self>, Stop) {
        let packet = frame.get(at..).unwrap_or_default();
        let Some(header) = Ipv4::of(packet) else {
            return (None, without_view(packet, ipv4::LEN_MIN));
        };
        let ip = Self {
            version: 4,
            protocol: header.protocol(),
            transport: at + header.header_len(),
            is_fragment: header.is_fragment(),
            is_later_fragment: header.is_later_fragment(),
        };
        let is_cut = ip.transport > frame.len();
        (Some(ip), if is_cut { Stop::Cut } else { Stop::Transport })
    }

    fn v6(frame: &[u8], at: usize) -> (Option<Self>, Stop) {
        let packet = frame.get(at..).unwrap_or_default();
        let Some(header) = Ipv6::of(packet) else {
            return (None, without_view(packet, ipv6::LEN));
        };
        let mut ip = Self {
            version: 6,
            protocol: header.next_header(),
            transport: at + ipv6::LEN,
            is_fragment: false,
            is_later_fragment: false,
        };
        for _ in 0..EXTENSIONS_MAX {
            if ip.is_later_fragment || !is_extension(ip.protocol) {
                return (Some(ip), Stop::Transport);
            }
            if !ip.pass_extension(frame) {
                return (Some(ip), Stop::Cut);
            }
        }
        let is_passed = ip.is_later_fragment || !is_extension(ip.protocol);
        let stop = if is_passed {
            Stop::Transport
        } else {
            Stop::TooMany
        };
        (Some(ip), stop)
    }

    /// Steps over the extension header at `transport`; false when the frame ends within it.
    fn pass_extension(&mut self, frame: &[u8]) -> bool {
        let rest = frame.get(self.transport..).unwrap_or_default();
        let Some(extension) = rest.first_chunk::<8>() else {
            return false;
        };
        let len = match self.protocol {
            FRAGMENT => 8,
            // The length field counts units of 4 bytes after the first two.
            AUTHENTICATION => 8 + usize::from(extension[1]) * 4,
            // The length field counts units of 8 bytes after the first.
            _ => 8 + usize::from(extension[1]) * 8,
        };
        if rest.len() < len {
            return false;
        }
        if self.protocol == FRAGMENT {
            let offset = u16::from_be_bytes([extension[2], extension[3]]);
            self.is_fragment = offset & 0xFFF9 != 0;
            self.is_later_fragment |= offset & 0xFFF8 != 0;
        }
        self.protocol = extension[0];
        self.transport += len;
        true
    }
}

/// Returns why `packet` does not begin with a header that can be viewed; the header has at least
/// `len` bytes.
const fn without_view(packet: &[u8], len: usize) -> Stop {
    if packet.len() < len {
        Stop::Cut
    } else {
        Stop::Malformed
    }
}

const fn is_extension(protocol: u8) -> bool {
    matches!(
        protocol,
        HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION
    )
}

fn half(frame: &[u8], at: usize) -> Option<u16> {
    let bytes = frame.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*bytes))
}

const TAGS_MAX: u8 = 4;
const EXTENSIONS_MAX: usize = 8;
/// Extension headers of IPv6.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

/// Values of `LINKTYPE_*`.
const NULL: u16 = 0;
const ETHERNET: u16 = 1;
/// The number that BSDs other than OpenBSD write for RAW.
const RAW_BSD: u16 = 12;
const RAW_OPENBSD: u16 = 14;
const RAW: u16 = 101;
const LOOP: u16 = 108;
const SLL: u16 = 113;
const ONLY_IPV4: u16 = 228;
const ONLY_IPV6: u16 = 229;
const SLL2: u16 = 276;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::link::{Tcp, Udp};

    fn frame(ether: &[u8], rest: &[u8]) -> Vec<u8> {
        [&[0; 12], ether, rest].concat()
    }

    #[test]
    fn tags_and_extensions_are_passed_over() {
        let mut ip = [0_u8; 20];
        (ip[0], ip[9]) = (0x45, 17);
        let qinq = frame(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 5, 8, 0], &ip);
        let layers = Layers::parse(&qinq);
        assert_eq!((layers.tags, layers.network), (2, 22));
        assert_eq!(
            layers.ip.map(|ip| (ip.protocol, ip.transport)),
            Some((17, 42))
        );

        let mut ip = [0_u8; 40 + 8 + 8 + 8];
        (ip[0], ip[6]) = (0x60, 0);
        (ip[40], ip[48], ip[51]) = (44, 6, 1);
        let layers = Layers::parse(&frame(&[0x86, 0xdd], &ip));
        let ip = layers.ip.unwrap();
        assert_eq!((ip.protocol, ip.transport), (6, 14 + 56));
        assert!(ip.is_fragment && !ip.is_later_fragment);
    }

    #[test]
    fn packets_of_other_link_types_have_their_headers_elsewhere() {
        let mut ip = [0_u8; 20];
        (ip[0], ip[9]) = (0x45, 17);
        let heads: [(u16, &[u8]); 8] = [
            (1, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]),
            (101, &[]),
            (12, &[]),
            (228, &[]),
            (0, &[2, 0, 0, 0]),
            (108, &[0, 0, 0, 2]),
            (113, &[0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]),
            (
                276,
                &[8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0],
            ),
        ];
        for (link_type, head) in heads {
            let packet = [head, &ip].concat();
            let layers = Layers::of(link_type, &packet).unwrap();
            let found = layers.ip.map(|ip| (ip.protocol, ip.transport));
            assert_eq!(found, Some((17, head.len() + 20)), "{link_type}");
            assert_eq!(layers.network, head.len());
            assert!((0..packet.len()).all(|len| {
                let cut = Layers::of(link_type, &packet[..len]);
                cut.is_some_and(|layers| layers.ip.is_none() && layers.stop == Stop::Cut)
            }));
        }
        assert_eq!(Layers::of(105, &ip), None);
    }

    /// IPv6 with hop-by-hop options of 16 bytes, routing, authentication of 12, and UDP behind.
    fn v6_with_extensions() -> (Vec<u8>, [usize; 5]) {
        let mut ip = vec![0_u8; 40];
        (ip[0], ip[6]) = (0x60, HOP_BY_HOP);
        let mut ends = [14, 14 + 40, 0, 0, 0];
        for (at, (next, units, len)) in [
            (ROUTING, 1, 16),
            (AUTHENTICATION, 0, 8),
            (17, 1, 12), // AH counts in words
        ]
        .into_iter()
        .enumerate()
        {
            ip.extend([next, units]);
            ip.resize(ip.len() + len - 2, 0);
            ends[at + 2] = 14 + ip.len();
        }
        ip.extend([0, 9, 0, 7, 0, 8, 0, 0]);
        (frame(&[0x86, 0xdd], &ip), ends)
    }

    #[test]
    fn a_cut_within_extension_headers_is_told_at_each_length() {
        let (whole, [ethernet, fixed, hops, routing, all]) = v6_with_extensions();
        for len in 0..=whole.len() {
            let layers = Layers::parse(&whole[..len]);
            let found = layers.ip.map(|ip| (ip.protocol, ip.transport));
            let expected = match len {
                _ if len < fixed => None,
                _ if len < hops => Some((HOP_BY_HOP, fixed)),
                _ if len < routing => Some((ROUTING, hops)),
                _ if len < all => Some((AUTHENTICATION, routing)),
                _ => Some((17, all)),
            };
            assert_eq!(found, expected, "{len} bytes");
            let is_cut = len < all;
            assert_eq!(layers.stop == Stop::Cut, is_cut, "{len} bytes");
            assert_eq!(layers.stop == Stop::Transport, !is_cut, "{len} bytes");
            let ether_type = if len < ethernet {
                0
            } else {
                ethernet::ETHER_TYPE_IPV6
            };
            assert_eq!(layers.ether_type, ether_type);
        }
    }

    #[test]
    fn a_cut_within_options_of_ipv4_is_told_at_each_length() {
        for (protocol, transport_len) in [(6, 20), (17, 8)] {
            let mut ip = [1_u8; 28 + 20];
            (ip[0], ip[9], ip[28 + 12]) = (0x47, protocol, 0x50);
            let whole = frame(&[0x81, 0, 0, 5, 8, 0], &ip);
            for len in 0..=whole.len() {
                let layers = Layers::parse(&whole[..len]);
                let found = layers.ip.map(|ip| (ip.protocol, ip.transport));
                let expected = (len >= 18 + 20).then_some((protocol, 18 + 28));
                assert_eq!(found, expected, "{len} bytes");
                let is_cut = len < 18 + 28;
                assert_eq!(layers.stop == Stop::Cut, is_cut, "{len} bytes");
                let transport = whole[..len].get(18 + 28..).unwrap_or_default();
                let is_seen = match protocol {
                    6 => Tcp::of(transport).is_some(),
                    _ => Udp::of(transport).is_some(),
                };
                assert_eq!(is_seen, len >= 18 + 28 + transport_len, "{len} bytes");
            }
        }
    }

    #[test]
    fn a_search_that_ends_says_why() {
        let stop = |ether: &[u8], rest: &[u8]| Layers::parse(&frame(ether, rest)).stop;
        assert_eq!(stop(&[8, 6], &[0; 28]), Stop::OtherType);
        assert_eq!(stop(&[8, 0], &[0x44; 20]), Stop::Malformed);
        assert_eq!(stop(&[0x86, 0xdd], &[0x45; 40]), Stop::Malformed);
        assert_eq!(stop(&[0x81, 0].repeat(12), &[]), Stop::TooMany);
        assert_eq!(Layers::of(RAW, &[]).unwrap().stop, Stop::Cut);
        assert_eq!(Layers::of(RAW, &[0]).unwrap().stop, Stop::OtherType);
        // Nine extension headers, of which eight are followed.
        let mut ip = [0_u8; 40 + 9 * 8];
        ip[0] = 0x60;
        assert_eq!(stop(&[0x86, 0xdd], &ip), Stop::TooMany);
        ip[40 + 7 * 8] = 17;
        assert_eq!(stop(&[0x86, 0xdd], &ip), Stop::Transport);
    }

    #[test]
    fn what_is_cut_or_strange_has_fewer_layers() {
        assert_eq!(Layers::parse(&[]).ip, None);
        assert_eq!(Layers::parse(&frame(&[8, 0], &[0x45; 19])).ip, None);
        assert_eq!(Layers::parse(&frame(&[8, 0], &[0x44; 20])).ip, None);
        assert_eq!(Layers::parse(&frame(&[8, 6], &[0; 28])).ip, None);
        assert_eq!(Layers::parse(&frame(&[0x81, 0], &[0])).tags, 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(
            data in prop::collection::vec(any::<u8>(), 0..200),
            kind in 0..3_usize,
        ) {
            let mut data = data;
            if data.len() > 14 {
                let kinds: [&[u8]; 3] = [&[8, 0, 0x45], &[0x86, 0xdd, 0x60], &[0x81, 0, 0]];
                data[12..15].copy_from_slice(kinds[kind]);
            }
            let layers = Layers::parse(&data);
            prop_assert!(layers.network >= 14 && layers.network <= 14 + 16);
        }
    }
}
