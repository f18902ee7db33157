//! Looks at frames to groups as they enter the host, before rules and routes. Looks at reports of
//! membership as they leave it, behind rules and routes. Seeing frames needs CAP_NET_RAW.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use sys::packet::{Direction, FilterOp, PacketSocket, Packets};
use wire::link::{
    ETHER_TYPE_IPV4, ETHER_TYPE_IPV6, Igmp, Ipv4, Ipv6, Layers, MLD_QUERY, Mld, PROTOCOL_ICMPV6,
    PROTOCOL_IGMP, PROTOCOL_UDP, Udp,
};

use super::{Frames, Querier, notes::has_room};

/// A view of the frames of all interfaces.
#[derive(Debug)]
pub(super) struct FrameWatch {
    socket: Option<PacketSocket>,
    /// The socket that sees only IGMP and MLD, both what enters and what leaves this host.
    leaving: Option<PacketSocket>,
    /// The interfaces by which this host's reports for the group have left.
    pub(super) reported: BTreeSet<u32>,
    buffer: Vec<u8>,
    pub(super) entered: Entered,
}

/// The frames and queries that have entered the host, for the facts.
#[derive(Debug, Default)]
pub(super) struct Entered {
    pub(super) frames: Vec<Frames>,
    pub(super) queriers: Vec<Querier>,
    /// Number of frames and queries for which the lists had no room.
    pub(super) unlisted_frames: u64,
    pub(super) unlisted_queries: u64,
}

/// The content of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    /// A datagram to a group.
    Datagram {
        source: IpAddr,
        to: SocketAddr,
        hops_left: u8,
    },
    /// A query for memberships.
    Query {
        source: IpAddr,
        version: &'static str,
    },
}

impl FrameWatch {
    /// Starts to look at frames, if this user may.
    pub(super) fn open() -> Self {
        let open = |is_entering, filter: &[FilterOp]| {
            let socket = PacketSocket::open()?;
            socket.set_ignore_outgoing(is_entering)?;
            socket.attach_filter(filter)?;
            let _granted = socket.set_receive_buffer(BUFFER_BYTES)?;
            socket.bind(ALL_INTERFACES, Packets::All)?;
            Ok::<_, std::io::Error>(socket)
        };
        Self {
            socket: open(true, &GROUPS_ONLY).ok(),
            leaving: open(false, &MEMBERSHIPS_ONLY).ok(),
            reported: BTreeSet::new(),
            buffer: vec![0; FRAME_BYTES],
            entered: Entered::default(),
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.socket.is_some() && self.leaving.is_some()
    }

    /// Reads the frames that have come; `name` gives an interface's name.
    pub(super) fn look(&mut self, group: IpAddr, name: &dyn Fn(u32) -> String) {
        self.look_out(group);
        let Some(socket) = &self.socket else {
            return;
        };
        for _ in 0..FRAMES_A_LOOK {
            let Ok(Some(packet)) = socket.receive(&mut self.buffer) else {
                return;
            };
            let interface = name(packet.interface);
            if let Some(seen) = parse(packet.data) {
                self.entered.enter(seen, interface, group);
            }
        }
    }
}

impl FrameWatch {
    /// Reads the reports that have left.
    fn look_out(&mut self, group: IpAddr) {
        let Some(socket) = &self.leaving else {
            return;
        };
        for _ in 0..FRAMES_A_LOOK {
            let Ok(Some(packet)) = socket.receive(&mut self.buffer) else {
                return;
            };
            if packet.direction == Direction::Outgoing && reports(packet.data, group) {
                self.reported.insert(packet.interface);
            }
        }
    }
}

/// Returns true for a frame that reports a membership of `group`.
fn reports(frame: &[u8], group: IpAddr) -> bool {
    let layers = Layers::parse(frame);
    let Some(ip) = layers.ip else { return false };
    let Some(message) = frame.get(ip.transport..) else {
        return false;
    };
    match (group, ip.version, ip.protocol) {
        (IpAddr::V4(group), 4, PROTOCOL_IGMP) => {
            Igmp::of(message).is_some_and(|igmp| igmp.reports(group))
        }
        (IpAddr::V6(group), 6, PROTOCOL_ICMPV6) => {
            Mld::of(message).is_some_and(|mld| mld.reports(group))
        }
        _ => false,
    }
}

impl Entered {
    /// Notes a datagram to `group`, or a query.
    fn enter(&mut self, seen: Seen, interface: String, group: IpAddr) {
        match seen {
            Seen::Datagram {
                source,
                to,
                hops_left,
            } if to.ip() == group => {
                let port = to.port();
                let is_known = |it: &&mut Frames| {
                    it.source == source && it.port == port && it.interface == interface
                };
                if let Some(known) = self.frames.iter_mut().find(is_known) {
                    known.count += 1;
                    known.hops_left = hops_left;
                } else if has_room(self.frames.iter().map(|it| it.source), source) {
                    let count = 1;
                    self.frames.push(Frames {
                        interface,
                        source,
                        port,
                        hops_left,
                        count,
                    });
                } else {
                    self.unlisted_frames += 1;
                }
            }
            Seen::Query { source, version } => {
                // The first querier of an interface always has room, because the verdict asks
                // whether there is one.
                let is_first = self.queriers.iter().all(|it| it.interface != interface);
                let version = version.to_owned();
                let querier = Querier {
                    interface,
                    source,
                    version,
                };
                if self.queriers.contains(&querier) {
                    return;
                }
                let hosts = self.queriers.iter().map(|it| it.source);
                if is_first || has_room(hosts, source) {
                    self.queriers.push(querier);
                } else {
                    self.unlisted_queries += 1;
                }
            }
            Seen::Datagram { .. } => {}
        }
    }
}

/// Reads an Ethernet frame, with or without a VLAN tag.
fn parse(frame: &[u8]) -> Option<Seen> {
    let layers = Layers::parse(frame);
    let ip = layers.ip?;
    let header = frame.get(layers.network..)?;
    let body = frame.get(ip.transport..)?;
    let (source, to, hops_left) = if ip.version == 4 {
        let ip = Ipv4::of(header)?;
        (
            IpAddr::V4(ip.source()),
            IpAddr::V4(ip.destination()),
            ip.hops_left(),
        )
    } else {
        let ip = Ipv6::of(header)?;
        (
            IpAddr::V6(ip.source()),
            IpAddr::V6(ip.destination()),
            ip.hops_left(),
        )
    };
    match (ip.version, ip.protocol) {
        // Only the first fragment has the UDP header with the port.
        (_, PROTOCOL_UDP) if !ip.is_later_fragment => {
            let to = SocketAddr::new(to, Udp::of(body)?.destination_port());
            Some(Seen::Datagram {
                source,
                to,
                hops_left,
            })
        }
        (4, PROTOCOL_IGMP) => {
            let total = usize::from(Ipv4::of(header)?.total_len());
            let len = (layers.network + total).saturating_sub(ip.transport);
            let version = match Igmp::of(body)?.query_version(len)? {
                1 => "IGMPv1",
                2 => "IGMPv2",
                _ => "IGMPv3",
            };
            Some(Seen::Query { source, version })
        }
        (6, PROTOCOL_ICMPV6) if Mld::of(body)?.kind() == MLD_QUERY => {
            let version = "MLD";
            Some(Seen::Query { source, version })
        }
        _ => None,
    }
}

const ALL_INTERFACES: u32 = 0;
/// Keeps the beginning of frames whose Ethernet address has the group bit.
const GROUPS_ONLY: [FilterOp; 4] = [
    FilterOp::load_byte(0),
    FilterOp::jump_if_any_bit(1, 0, 1),
    FilterOp::keep(SNAP_BYTES),
    FilterOp::keep(0),
];
/// Keeps IGMP, and IPv6 with hop-by-hop options: reports of memberships have such options before
/// them. The offsets are those of an untagged frame's type, protocol and next header.
const MEMBERSHIPS_ONLY: [FilterOp; 9] = [
    FilterOp::load_half(12),
    FilterOp::jump_if_equal(ETHER_TYPE_IPV4 as u32, 1, 0),
    FilterOp::jump_if_equal(ETHER_TYPE_IPV6 as u32, 2, 5),
    FilterOp::load_byte(14 + 9),
    FilterOp::jump_if_equal(PROTOCOL_IGMP as u32, 2, 3),
    FilterOp::load_byte(14 + 6),
    FilterOp::jump_if_equal(HOP_BY_HOP, 0, 1),
    FilterOp::keep(REPORT_BYTES),
    FilterOp::keep(0),
];
const SNAP_BYTES: u32 = 256;
/// Bytes that are kept of a report of memberships: enough for a whole report, because it names all
/// groups of the host.
const REPORT_BYTES: u32 = 2_048;
const FRAME_BYTES: usize = 2_304;
const BUFFER_BYTES: usize = 1 << 20;
const FRAMES_A_LOOK: usize = 4_096;
/// The protocol number of hop-by-hop options in IPv6.
const HOP_BY_HOP: u32 = 0;

#[cfg(test)]
mod tests {
    use wire::link::{EthernetHeader, Ipv4Header, VlanTag};

    use base::network_share;

    use super::*;
    use crate::reach::notes::{LISTED_MAX, LISTED_PER_HOST_MAX};

    fn frame_v4(protocol: u8, body: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        let ethernet = EthernetHeader {
            destination: [1, 0, 0x5E, 1, 1, 1],
            source: [2, 0, 0, 0, 0, 1],
            tag: Some(VlanTag {
                kind: 0x8100,
                control: 5,
            }),
            ether_type: ETHER_TYPE_IPV4,
        };
        ethernet.emit(&mut frame);
        let ip = Ipv4Header {
            source: [10, 0, 0, 9].into(),
            destination: [239, 1, 1, 1].into(),
            protocol,
            hops_left: 3,
            total_len: (20 + body.len()) as u16,
            is_whole: false,
        };
        ip.emit(&mut frame);
        frame.extend(body);
        frame
    }

    #[test]
    fn datagrams_and_queries_are_read_and_any_cut_is_none() {
        let frame = frame_v4(PROTOCOL_UDP, &[0, 1, 0x1d, 0x4c, 0, 8, 0, 0]);
        let expected = Seen::Datagram {
            source: [10, 0, 0, 9].into(),
            to: "239.1.1.1:7500".parse().unwrap(),
            hops_left: 3,
        };
        assert_eq!(parse(&frame), Some(expected));
        for (body, expected) in [
            (&[0x11, 0, 0, 0, 0, 0, 0, 0][..], "IGMPv1"),
            (&[0x11, 9, 0, 0, 0, 0, 0, 0], "IGMPv2"),
            (&[0x11, 9, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0], "IGMPv3"),
        ] {
            let seen = parse(&frame_v4(PROTOCOL_IGMP, body));
            assert!(matches!(seen, Some(Seen::Query { version, .. }) if version == expected));
        }
        for cut in 0..frame.len() {
            assert_eq!(parse(&frame[..cut]), None);
        }
    }

    #[test]
    fn reports_are_told_by_their_group_and_any_cut_is_none() {
        let group = IpAddr::from([239, 1, 1, 1]);
        let older = frame_v4(PROTOCOL_IGMP, &[0x16, 0, 0, 0, 239, 1, 1, 1]);
        let newer = [
            &[0x22, 0, 0, 0, 0, 0, 0, 2][..],
            &[4, 1, 0, 1, 239, 9, 9, 9, 10, 0, 0, 1, 7, 7, 7, 7],
            &[4, 0, 0, 0, 239, 1, 1, 1],
        ];
        let newer = frame_v4(PROTOCOL_IGMP, &newer.concat());
        for frame in [older, newer] {
            assert!(reports(&frame, group));
            assert!(!reports(&frame, [239, 1, 1, 2].into()));
            for cut in 0..frame.len() {
                assert!(!reports(&frame[..cut], group), "{cut}");
            }
        }
        assert!(!reports(
            &frame_v4(PROTOCOL_IGMP, &[0x11, 0, 0, 0, 239, 1, 1, 1]),
            group
        ));
    }

    /// Runs a filter as the kernel does; returns how many bytes it keeps.
    fn kept(filter: &[FilterOp], frame: &[u8]) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let op = filter[at];
            let skips = |holds: bool| usize::from(if holds { op.if_true } else { op.if_false });
            let from = op.operand as usize;
            at += 1;
            let kind = FilterOp {
                operand: 0,
                if_true: 0,
                if_false: 0,
                ..op
            };
            match kind {
                it if it == FilterOp::load_byte(0) => loaded = u32::from(frame[from]),
                it if it == FilterOp::load_half(0) => {
                    loaded = u32::from(u16::from_be_bytes([frame[from], frame[from + 1]]));
                }
                it if it == FilterOp::jump_if_equal(0, 0, 0) => at += skips(loaded == op.operand),
                it if it == FilterOp::jump_if_any_bit(0, 0, 0) => {
                    at += skips(loaded & op.operand != 0);
                }
                _ => return op.operand,
            }
        }
    }

    #[test]
    fn the_filters_keep_groups_and_memberships_alone() {
        let frame = |ether_type: u16, protocol: u8, first: u8| {
            let mut frame = vec![0; 60];
            frame[0] = first;
            frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
            let at = if ether_type == ETHER_TYPE_IPV4 {
                23
            } else {
                20
            };
            frame[at] = protocol;
            frame
        };
        for (ether_type, protocol, is_kept) in [
            (ETHER_TYPE_IPV4, PROTOCOL_IGMP, true),
            (ETHER_TYPE_IPV4, PROTOCOL_UDP, false),
            (ETHER_TYPE_IPV6, 0, true),
            (ETHER_TYPE_IPV6, PROTOCOL_UDP, false),
            (0x0806, PROTOCOL_IGMP, false),
        ] {
            let frame = frame(ether_type, protocol, 1);
            let bytes = if is_kept { REPORT_BYTES } else { 0 };
            assert_eq!(
                kept(&MEMBERSHIPS_ONLY, &frame),
                bytes,
                "{ether_type:x} {protocol}"
            );
        }
        assert_eq!(kept(&GROUPS_ONLY, &frame(0x0800, 17, 1)), SNAP_BYTES);
        assert_eq!(kept(&GROUPS_ONLY, &frame(0x0800, 17, 2)), 0);
    }

    #[test]
    fn what_the_lists_have_no_room_for_is_counted() {
        let mut entered = Entered::default();
        let group: IpAddr = [239, 1, 1, 1].into();
        let hosts = LISTED_MAX as u16 + 10;
        for n in 0..hosts {
            let [high, low] = n.to_be_bytes();
            let source = [10, 0, high, low].into();
            let to = SocketAddr::new(group, 7_500);
            let hops_left = 1;
            let datagram = Seen::Datagram {
                source,
                to,
                hops_left,
            };
            entered.enter(datagram, "e0".to_owned(), group);
            let version = "IGMPv3";
            entered.enter(Seen::Query { source, version }, "e0".to_owned(), group);
        }
        assert_eq!(
            (entered.frames.len(), entered.unlisted_frames),
            (LISTED_MAX, 10)
        );
        assert_eq!(
            (entered.queriers.len(), entered.unlisted_queries),
            (LISTED_MAX, 10)
        );

        // A host that sends to many ports leaves room for others.
        let mut entered = Entered::default();
        for port in 0..100 {
            let datagram = Seen::Datagram {
                source: [10, 0, 0, 1].into(),
                to: SocketAddr::new(group, port),
                hops_left: 1,
            };
            entered.enter(datagram, "e0".to_owned(), group);
        }
        assert_eq!(
            (entered.frames.len(), entered.unlisted_frames),
            (LISTED_PER_HOST_MAX, 100 - LISTED_PER_HOST_MAX as u64)
        );

        // A host of IPv6 has many addresses, and leaves room for hosts of other networks.
        let mut entered = Entered::default();
        let group: IpAddr = "ff02::7".parse().unwrap();
        let of_host = (0..1_000_u16).map(|n| [0xfd00, 0, 0, 0, 1, 1, 1, n].into());
        let other: IpAddr = [0xfd00, 0, 0, 1, 1, 1, 1, 1].into();
        for source in of_host.chain([other]) {
            let datagram = Seen::Datagram {
                source,
                to: SocketAddr::new(group, 7_500),
                hops_left: 1,
            };
            entered.enter(datagram, "e0".to_owned(), group);
        }
        let share = network_share(LISTED_PER_HOST_MAX, LISTED_MAX);
        assert_eq!(entered.frames.len(), share + 1);
        assert_eq!(entered.frames.last().unwrap().source, other);

        // The first querier of an interface is kept: without it the verdict would differ.
        let (source, version) = ([10, 1, 0, 1].into(), "IGMPv2");
        entered.enter(Seen::Query { source, version }, "e1".to_owned(), group);
        assert_eq!(entered.queriers.last().unwrap().interface, "e1");
    }
}
