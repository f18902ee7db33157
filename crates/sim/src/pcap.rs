//! Classic pcap files of simulated datagrams: UDP in IPv4 or IPv6, nanosecond stamps.

use std::net::{IpAddr, SocketAddr};

use base::Instant;

/// A growing pcap file in memory.
#[derive(Clone, Debug)]
pub struct Pcap {
    file: Vec<u8>,
}

impl Pcap {
    /// A file with its header and no packet.
    #[must_use]
    pub fn new() -> Self {
        let mut file = Vec::new();
        // The magic number for nanoseconds, big-endian: readers learn the byte order from it.
        file.extend(0xa1b2_3c4d_u32.to_be_bytes());
        file.extend([0, 2, 0, 4]);
        file.extend([0; 8]);
        file.extend(SNAP_LEN.to_be_bytes());
        file.extend(LINKTYPE_RAW.to_be_bytes());
        Self { file }
    }

    /// Adds one datagram.
    pub fn push(&mut self, at: Instant, from: SocketAddr, to: SocketAddr, hops: u8, bytes: &[u8]) {
        let ip = packet(from, to, hops, bytes);
        let ns = at.as_nanos();
        let words = [
            ns / 1_000_000_000,
            ns % 1_000_000_000,
            ip.len() as u64,
            ip.len() as u64,
        ];
        for word in words {
            self.file
                .extend(u32::try_from(word).unwrap_or(u32::MAX).to_be_bytes());
        }
        self.file.extend(ip);
    }

    /// The whole file.
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

fn packet(from: SocketAddr, to: SocketAddr, hops: u8, bytes: &[u8]) -> Vec<u8> {
    let udp_len = u16::try_from(8 + bytes.len()).unwrap_or(u16::MAX);
    let mut udp = Vec::with_capacity(8 + bytes.len());
    udp.extend(from.port().to_be_bytes());
    udp.extend(to.port().to_be_bytes());
    udp.extend(udp_len.to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(bytes);
    let mut pseudo = Vec::new();
    let mut ip = Vec::new();
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            pseudo.extend(from.octets());
            pseudo.extend(to.octets());
            pseudo.extend([0, UDP]);
            pseudo.extend(udp_len.to_be_bytes());
            ip.extend([0x45, 0]);
            ip.extend((udp_len.saturating_add(20)).to_be_bytes());
            ip.extend([0, 0, 0x40, 0, hops, UDP, 0, 0]);
            ip.extend(from.octets());
            ip.extend(to.octets());
            let check = checksum(&[&ip]);
            ip[10..12].copy_from_slice(&check.to_be_bytes());
        }
        (from, to) => {
            let [from, to] = [from, to].map(|address| match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            });
            pseudo.extend(from);
            pseudo.extend(to);
            pseudo.extend([0, 0]);
            pseudo.extend(udp_len.to_be_bytes());
            pseudo.extend([0, 0, 0, UDP]);
            ip.extend([0x60, 0, 0, 0]);
            ip.extend(udp_len.to_be_bytes());
            ip.extend([UDP, hops]);
            ip.extend(from);
            ip.extend(to);
        }
    }
    let check = match checksum(&[&pseudo, &udp]) {
        0 => 0xffff,
        sum => sum,
    };
    udp[6..8].copy_from_slice(&check.to_be_bytes());
    ip.extend(udp);
    ip
}

fn checksum(parts: &[&[u8]]) -> u16 {
    // Every part but the last has an even length, so the sums of the parts add up.
    let mut sum: u32 = parts
        .iter()
        .map(|part| u32::from(crate::frame::ones_sum(part)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

const SNAP_LEN: u32 = 262_144;
/// Packets start with their IPv4 or IPv6 header.
const LINKTYPE_RAW: u32 = 101;
const UDP: u8 = 17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_right_lengths_and_checksums() {
        let (from, to) = (
            SocketAddr::from(([10, 0, 0, 1], 7)),
            SocketAddr::from(([239, 1, 1, 1], 9)),
        );
        let mut pcap = Pcap::new();
        pcap.push(Instant::from_nanos(1_500_000_000), from, to, 16, b"abc");
        let record = &pcap.bytes()[24..];
        assert_eq!(
            record[..16],
            [0, 0, 0, 1, 0x1d, 0xcd, 0x65, 0, 0, 0, 0, 31, 0, 0, 0, 31]
        );
        let ip = &record[16..];
        assert_eq!(ip.len(), 31);
        assert!(matches!(checksum(&[&ip[..20]]), 0 | 0xffff));
        let pseudo = [&ip[12..20], &[0, UDP, 0, 11]].concat();
        assert!(matches!(checksum(&[&pseudo, &ip[20..]]), 0 | 0xffff));
    }
}
