//! Cuts super-packets (GSO) into the packets that the wire would carry.
//!
//! ```text
//! | Ethernet, tags | IP | TCP or UDP | payload ................................ |
//! | headers, patched            | payload 0 |   | headers | payload 1 |   ...
//! ```
//! The code patches headers as the kernel's own segmentation does. It sets lengths, TCP sequence
//! numbers and all checksums, and counts the IPv4 identification up. FIN and PSH stay only in the
//! last packet, CWR only in the first.
//!
//! **Spec**: Linux net/ipv4/tcp_offload.c, udp_offload.c, af_inet.c (`inet_gso_segment`).

use super::{Ipv4, Ipv6, Layers, Tcp, Udp, ipv6, udp};
use crate::{checksum, cursor::put_u16};

/// The kind of packets that a super-packet consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// TCP segments.
    Tcp,
    /// UDP datagrams.
    Udp,
}

/// Cuts `frame` into packets of up to `payload_bytes` of payload and passes each to `emit`;
/// `buffer` is scratch space. Returns false, and passes no packet, when `payload_bytes` is 0. Does
/// the same when the frame is not what `kind` says, is a fragment, or ends within its headers.
///
/// **Cost**: one copy and one sum of the frame.
pub fn segment(
    frame: &[u8],
    kind: SegmentKind,
    payload_bytes: usize,
    buffer: &mut Vec<u8>,
    mut emit: impl FnMut(&[u8]),
) -> bool {
    let Some(headers) = Headers::find(frame, kind) else {
        return false;
    };
    if payload_bytes == 0 {
        return false;
    }
    let payload = &frame[headers.payload..];
    let count = payload.len().div_ceil(payload_bytes).max(1);
    for index in 0..count {
        let start = index * payload_bytes;
        let end = payload.len().min(start + payload_bytes);
        buffer.clear();
        buffer.extend_from_slice(&frame[..headers.payload]);
        buffer.extend_from_slice(&payload[start..end]);
        headers.patch_network(buffer, index);
        match kind {
            SegmentKind::Tcp => headers.patch_tcp(buffer, start, index == 0, index + 1 == count),
            SegmentKind::Udp => headers.patch_udp(buffer),
        }
        emit(buffer);
    }
    true
}

/// Fills in a checksum that the sender left to its network adapter: the sum of everything from
/// `start` on. The two bytes `offset` bytes behind `start` hold the sum of the pseudo header, and
/// get the checksum. Returns false when these two bytes are not in the frame.
pub fn fill_checksum(frame: &mut [u8], start: usize, offset: usize) -> bool {
    let at = start + offset;
    if frame.len() < at + 2 {
        return false;
    }
    let check = checksum::finish(checksum::sum(&frame[start..]));
    put_u16(frame, at, check);
    true
}

/// The places of the headers of a super-packet.
struct Headers {
    network: usize,
    transport: usize,
    payload: usize,
}

impl Headers {
    fn find(frame: &[u8], kind: SegmentKind) -> Option<Self> {
        let layers = Layers::parse(frame);
        let ip = layers.ip?;
        let transport = ip.transport;
        let (protocol, len) = match kind {
            SegmentKind::Tcp => (TCP, Tcp::of(frame.get(transport..)?)?.header_len()),
            SegmentKind::Udp => (UDP, udp::LEN),
        };
        let is_whole = frame.len() >= transport + len;
        let is_right = ip.protocol == protocol && !ip.is_fragment && is_whole;
        is_right.then_some(Self {
            network: layers.network,
            transport,
            payload: transport + len,
        })
    }

    fn patch_network(&self, frame: &mut [u8], index: usize) {
        let packet = &mut frame[self.network..];
        let len = packet.len();
        if let Some(mut ip) = Ipv4::of(&mut *packet) {
            ip.set_total_len(len as u16);
            ip.set_identification(ip.identification().wrapping_add(index as u16));
            ip.fill_checksum();
        } else if let Some(mut ip) = Ipv6::of(packet) {
            ip.set_payload_len((len - ipv6::LEN) as u16);
        }
    }

    fn patch_tcp(&self, frame: &mut [u8], offset: usize, is_first: bool, is_last: bool) {
        let pseudo = self.pseudo_sum(frame, TCP);
        let Some(mut tcp) = Tcp::of(&mut frame[self.transport..]) else {
            return;
        };
        tcp.set_sequence(tcp.sequence().wrapping_add(offset as u32));
        if !is_last {
            tcp.set_flags(tcp.flags() & !(FIN | PUSH));
        }
        if !is_first {
            tcp.set_flags(tcp.flags() & !WINDOW_REDUCED);
        }
        tcp.fill_checksum(pseudo);
    }

    fn patch_udp(&self, frame: &mut [u8]) {
        let pseudo = self.pseudo_sum(frame, UDP);
        let len = frame.len() - self.transport;
        if let Some(mut udp) = Udp::of(&mut frame[self.transport..]) {
            udp.set_total_len(len as u16);
            udp.fill_checksum(pseudo);
        }
    }

    /// Returns the partial sum of the pseudo header.
    fn pseudo_sum(&self, frame: &[u8], protocol: u8) -> u64 {
        let packet = &frame[self.network..];
        let len = frame.len() - self.transport;
        let v4 = Ipv4::of(packet).map(|ip| ip.pseudo_sum(protocol, len));
        let sum = v4.or_else(|| Ipv6::of(packet).map(|ip| ip.pseudo_sum(protocol, len)));
        sum.expect("the headers were found")
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const FIN: u8 = 0x01;
const PUSH: u8 = 0x08;
/// The TCP flag CWR.
const WINDOW_REDUCED: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    /// A super-packet with `payload` bytes behind headers of that version and kind.
    fn super_packet(version: u8, kind: SegmentKind, tagged: bool, payload: usize) -> Vec<u8> {
        let tag: &[u8] = if tagged { &[0x81, 0, 0, 5] } else { &[] };
        let protocol = if kind == SegmentKind::Tcp { TCP } else { UDP };
        let ip = if version == 4 {
            let mut ip = vec![0_u8; 20];
            (ip[0], ip[5], ip[9]) = (0x45, 254, protocol);
            ip[4] = 0xFF;
            ip[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
            [vec![8, 0], ip].concat()
        } else {
            let mut ip = vec![7_u8; 40];
            (ip[0], ip[6]) = (0x60, protocol);
            [vec![0x86, 0xdd], ip].concat()
        };
        let transport = match kind {
            SegmentKind::Tcp => {
                let mut tcp = vec![0_u8; 32];
                tcp[4..8].copy_from_slice(&[0xFF, 0xFF, 0xFF, 0xF0]);
                (tcp[12], tcp[13]) = (0x80, 0x80 | 0x10 | 0x08 | 0x01);
                tcp
            }
            SegmentKind::Udp => vec![0, 9, 0, 9, 0, 0, 0, 0],
        };
        let data: Vec<u8> = (0..payload).map(|at| (at % 251) as u8).collect();
        [&[1; 12], tag, &ip, &transport, &data].concat()
    }

    #[test]
    fn every_packet_is_whole_and_they_make_up_the_payload() {
        let mut buffer = Vec::new();
        for version in [4, 6] {
            for kind in [SegmentKind::Tcp, SegmentKind::Udp] {
                for (tagged, payload) in [(false, 2_500), (true, 3_000), (false, 0), (true, 1)] {
                    let frame = super_packet(version, kind, tagged, payload);
                    let headers = Headers::find(&frame, kind).unwrap();
                    let (mut sum, mut count) = (Vec::new(), 0);
                    assert!(segment(&frame, kind, 1000, &mut buffer, |packet| {
                        assert_eq!(
                            checksum::fold(transport_sum(&headers, packet, frame_protocol(kind))),
                            0xFFFF
                        );
                        if version == 4 {
                            let header = &packet[headers.network..headers.transport];
                            assert_eq!(checksum::fold(checksum::sum(header)), 0xFFFF);
                            let id = u16::from_be_bytes([header[4], header[5]]);
                            assert_eq!(id, 0xFFFE_u16.wrapping_add(count));
                        }
                        if kind == SegmentKind::Tcp {
                            let flags = packet[headers.transport + 13];
                            let is_last = sum.len() + 1000 >= payload;
                            assert_eq!(flags & 0x09 != 0, is_last);
                            assert_eq!(flags & 0x80 != 0, count == 0);
                            let at = headers.transport + 4;
                            let sequence =
                                u32::from_be_bytes(std::array::from_fn(|i| packet[at + i]));
                            assert_eq!(sequence, 0xFFFF_FFF0_u32.wrapping_add(sum.len() as u32));
                        }
                        sum.extend_from_slice(&packet[headers.payload..]);
                        count += 1;
                    }));
                    assert_eq!(sum, &frame[headers.payload..]);
                    assert_eq!(usize::from(count), payload.div_ceil(1000).max(1));
                }
            }
        }
    }

    fn transport_sum(headers: &Headers, packet: &[u8], protocol: u8) -> u64 {
        headers.pseudo_sum(packet, protocol) + checksum::sum(&packet[headers.transport..])
    }

    const fn frame_protocol(kind: SegmentKind) -> u8 {
        match kind {
            SegmentKind::Tcp => TCP,
            SegmentKind::Udp => UDP,
        }
    }

    #[test]
    fn what_is_not_as_said_stays_whole() {
        let mut buffer = Vec::new();
        let frame = super_packet(4, SegmentKind::Udp, false, 100);
        let mut refuses = |frame: &[u8], kind, bytes| {
            !segment(frame, kind, bytes, &mut buffer, |_| {
                panic!("nothing is given")
            })
        };
        assert!(refuses(&frame, SegmentKind::Tcp, 10));
        assert!(refuses(&frame, SegmentKind::Udp, 0));
        for len in 0..42 {
            assert!(refuses(&frame[..len], SegmentKind::Udp, 10));
        }
    }

    #[test]
    fn a_tcp_header_that_says_it_is_short_is_not_cut() {
        let mut buffer = Vec::new();
        for version in [4, 6] {
            let whole = super_packet(version, SegmentKind::Tcp, false, 40);
            let transport = Headers::find(&whole, SegmentKind::Tcp).unwrap().transport;
            for words in 0..=15 {
                let mut frame = whole.clone();
                frame[transport + 12] = words << 4;
                for len in 0..=frame.len() {
                    let is_cut = segment(&frame[..len], SegmentKind::Tcp, 10, &mut buffer, |_| {});
                    let header_len = usize::from(words) * 4;
                    let is_whole = len >= transport + header_len;
                    assert_eq!(is_cut, words >= 5 && is_whole, "{words} words, {len} bytes");
                }
            }
        }
    }

    #[test]
    fn a_checksum_that_was_left_over_is_filled_in() {
        let whole = super_packet(4, SegmentKind::Udp, false, 33);
        let headers = Headers::find(&whole, SegmentKind::Udp).unwrap();
        let mut expected = whole.clone();
        headers.patch_udp(&mut expected);
        // The kernel leaves the pseudo header's sum in the field.
        let mut frame = expected.clone();
        let pseudo = headers.pseudo_sum(&frame, UDP);
        put_u16(&mut frame, 40, checksum::fold(pseudo));
        assert!(fill_checksum(&mut frame, 34, 6));
        assert_eq!(frame, expected);
        assert!(!fill_checksum(&mut frame[..41], 34, 6));
    }
}
