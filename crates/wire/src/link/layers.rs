//! The places where the headers of a frame begin.
//!
//! **Spec**: <https://www.tcpdump.org/linktypes.html> for packets that do not begin with an
//! Ethernet header.

/// The headers of a frame, as offsets into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// Number of VLAN tags in front of the network header.
    pub tags: u8,
    /// The type of what follows the tags: 0x0800 IPv4, 0x86DD IPv6.
    pub ether_type: u16,
    /// Where the network header begins.
    pub network: usize,
    /// The IP header, when the frame has a whole one.
    pub ip: Option<Ip>,
}

/// An IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// 4 or 6.
    pub version: u8,
    /// The protocol behind the extension headers: 6 TCP, 17 UDP.
    pub protocol: u8,
    /// Where the transport header begins; in a fragment other than the first, where it would begin.
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
        Self::behind(frame, half(frame, 12).unwrap_or(0), ETHERNET_LEN)
    }

    /// Finds the headers of a packet of any link type (`LINKTYPE_*`): Ethernet, IP without anything
    /// in front (RAW, IPV4, IPV6), the loopback of other systems (NULL, LOOP), and Linux's "any"
    /// (SLL, SLL2). `None` for other link types.
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
            SLL => (half(packet, 14).unwrap_or(0), 16),
            SLL2 => (half(packet, 0).unwrap_or(0), 20),
            _ => return None,
        };
        Some(Self::behind(packet, ether_type, network))
    }

    /// Finds the headers from `network` on; `ether_type` says what begins there, and VLAN tags may
    /// come first.
    #[inline]
    pub(super) fn behind(frame: &[u8], ether_type: u16, network: usize) -> Self {
        let mut layers = Self {
            network,
            ether_type,
            ..Self::default()
        };
        while layers.tags < TAGS_MAX && layers.ends_at_tag() {
            let Some(ether_type) = half(frame, layers.network + 2) else {
                return layers;
            };
            layers.tags += 1;
            layers.network += 4;
            layers.ether_type = ether_type;
        }
        layers.ip = match layers.ether_type {
            IPV4 => Ip::v4(frame, layers.network),
            IPV6 => Ip::v6(frame, layers.network),
            _ => None,
        };
        layers
    }
}

impl Layers {
    /// Returns true when a VLAN tag stands where the network header should begin: the frame has
    /// more tags than the parser follows.
    #[inline]
    pub(super) const fn ends_at_tag(&self) -> bool {
        matches!(self.ether_type, 0x8100 | 0x88a8 | 0x9100)
    }
}

/// Returns the type of the IP packet that begins at `at`, by the packet's first four bits.
fn by_version(packet: &[u8], at: usize) -> u16 {
    match packet.get(at).map(|first| first >> 4) {
        Some(4) => IPV4,
        Some(6) => IPV6,
        _ => 0,
    }
}

impl Ip {
    #[inline]
    fn v4(frame: &[u8], at: usize) -> Option<Self> {
        let header = frame.get(at..)?.first_chunk::<20>()?;
        let len = usize::from(header[0] & 15) * 4;
        if header[0] >> 4 != 4 || len < 20 {
            return None;
        }
        let fragment = u16::from_be_bytes([header[6], header[7]]);
        Some(Self {
            version: 4,
            protocol: header[9],
            transport: at + len,
            is_fragment: fragment & 0x3FFF != 0,
            is_later_fragment: fragment & 0x1FFF != 0,
        })
    }

    fn v6(frame: &[u8], at: usize) -> Option<Self> {
        let header = frame.get(at..)?.first_chunk::<40>()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let mut ip = Self {
            version: 6,
            protocol: header[6],
            transport: at + 40,
            is_fragment: false,
            is_later_fragment: false,
        };
        for _ in 0..EXTENSIONS_MAX {
            let Some(extension) = frame.get(ip.transport..).and_then(<[u8]>::first_chunk::<8>)
            else {
                break;
            };
            let len = match ip.protocol {
                // Hop-by-hop, routing and destination options: the length field counts units of 8
                // bytes after the first unit.
                0 | 43 | 60 => 8 + usize::from(extension[1]) * 8,
                44 => {
                    let offset = u16::from_be_bytes([extension[2], extension[3]]);
                    ip.is_fragment = offset & 0xFFF9 != 0;
                    ip.is_later_fragment |= offset & 0xFFF8 != 0;
                    8
                }
                // Authentication: the length field counts units of 4 bytes after the first two.
                51 => 8 + usize::from(extension[1]) * 4,
                _ => break,
            };
            ip.protocol = extension[0];
            ip.transport += len;
            if ip.is_later_fragment {
                break;
            }
        }
        Some(ip)
    }
}

fn half(frame: &[u8], at: usize) -> Option<u16> {
    let bytes = frame.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*bytes))
}

const ETHERNET_LEN: usize = 14;
const TAGS_MAX: u8 = 4;
const EXTENSIONS_MAX: usize = 8;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;

/// Values of `LINKTYPE_*`.
const NULL: u16 = 0;
const ETHERNET: u16 = 1;
/// The numbers that BSDs and OpenBSD write for RAW.
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
                cut.is_some_and(|layers| layers.ip.is_none())
            }));
        }
        assert_eq!(Layers::of(105, &ip), None);
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
