//! Classic pcap files of simulated datagrams: UDP in IPv4 or IPv6, nanosecond stamps.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use base::Instant;
use wire::{
    link::{Ipv4, Ipv4Header, Ipv6, Ipv6Header, PROTOCOL_UDP, UdpHeader},
    pcap,
};

/// A growing pcap file in memory.
#[derive(Clone, Debug)]
pub struct Pcap {
    file: Vec<u8>,
}

impl Pcap {
    /// Makes a file with its header and no packet.
    #[must_use]
    pub fn new() -> Self {
        let mut file = Vec::new();
        pcap::Header::new(LINKTYPE_RAW, SNAP_BYTES).emit(&mut file);
        Self { file }
    }

    /// Adds one datagram.
    pub fn push(&mut self, at: Instant, from: SocketAddr, to: SocketAddr, hops: u8, bytes: &[u8]) {
        let packet = packet(from, to, hops, bytes);
        let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        pcap::emit_record(&mut self.file, at.as_nanos(), len, &packet);
    }

    /// Returns the whole file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.file
    }
}

impl Default for Pcap {
    fn default() -> Self {
        Self::new()
    }
}

fn packet(from: SocketAddr, to: SocketAddr, hops: u8, data: &[u8]) -> Vec<u8> {
    let udp = UdpHeader {
        source_port: from.port(),
        destination_port: to.port(),
    };
    let udp_len = 8 + data.len();
    let mut packet = Vec::with_capacity(40 + udp_len);
    let pseudo = match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = Ipv4Header {
                source,
                destination,
                protocol: PROTOCOL_UDP,
                hops_left: hops,
                total_len: u16::try_from(20 + udp_len).unwrap_or(u16::MAX),
                is_whole: true,
            };
            ip.emit(&mut packet);
            Ipv4::of(&packet).map(|ip| ip.pseudo_sum(PROTOCOL_UDP, udp_len))
        }
        (from, to) => {
            let ip = Ipv6Header {
                source: mapped(from),
                destination: mapped(to),
                next_header: PROTOCOL_UDP,
                hops_left: hops,
                payload_len: u16::try_from(udp_len).unwrap_or(u16::MAX),
            };
            ip.emit(&mut packet);
            Ipv6::of(&packet).map(|ip| ip.pseudo_sum(PROTOCOL_UDP, udp_len))
        }
    };
    let pseudo = pseudo.expect("the header that was just written is whole");
    udp.emit(&mut packet, data, pseudo);
    packet
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

const SNAP_BYTES: u32 = 262_144;
/// Packets start with their IPv4 or IPv6 header.
const LINKTYPE_RAW: u16 = 101;

#[cfg(test)]
mod tests {
    use wire::trace_file::Step;

    use super::*;
    use crate::frame::ones_sum;

    /// Returns the only packet of a file, and its stamp.
    fn only_packet(pcap: &Pcap) -> (Vec<u8>, u64) {
        let mut decoder = pcap::Decoder::new();
        let (header_len, _) = decoder.step(pcap.bytes());
        let (len, step) = decoder.step(&pcap.bytes()[header_len..]);
        assert_eq!(header_len + len, pcap.bytes().len());
        let Step::Packet(record) = step else {
            panic!("{step:?}");
        };
        assert_eq!(record.link_type, LINKTYPE_RAW);
        assert_eq!(record.wire_len as usize, record.data.len());
        (record.data.to_vec(), record.stamp_ns.unwrap())
    }

    #[test]
    fn a_packet_has_right_lengths_and_checksums() {
        let (from, to) = (
            SocketAddr::from(([10, 0, 0, 1], 7)),
            SocketAddr::from(([239, 1, 1, 1], 9)),
        );
        let mut pcap = Pcap::new();
        pcap.push(Instant::from_nanos(1_500_000_000), from, to, 16, b"abc");
        let (ip, stamp_ns) = only_packet(&pcap);
        assert_eq!((ip.len(), stamp_ns), (31, 1_500_000_000));
        assert_eq!((&ip[2..4], ip[8]), (&[0, 31][..], 16));
        // Sums by the simulator's own code: a right checksum makes them 0.
        assert_eq!(ones_sum(&ip[..20]), 0);
        let pseudo = [&ip[12..20], &[0, PROTOCOL_UDP, 0, 11], &ip[20..]].concat();
        assert_eq!(ones_sum(&pseudo), 0);
    }

    #[test]
    fn a_packet_of_ipv6_has_right_lengths_and_checksums() {
        let from: SocketAddr = "[fd00::1]:7".parse().unwrap();
        let to: SocketAddr = "[ff15::9]:9".parse().unwrap();
        let mut pcap = Pcap::new();
        pcap.push(Instant::from_nanos(5), from, to, 16, b"abcd");
        let (ip, _) = only_packet(&pcap);
        assert_eq!((ip.len(), &ip[4..8]), (52, &[0, 12, PROTOCOL_UDP, 16][..]));
        let pseudo = [&ip[8..40], &[0, 0, 0, 12, 0, 0, 0, PROTOCOL_UDP], &ip[40..]].concat();
        assert_eq!(ones_sum(&pseudo), 0);
    }
}
