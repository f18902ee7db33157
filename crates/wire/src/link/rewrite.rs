//! Changes of a frame's addresses and tags that keep its checksums right.
//!
//! A new address is as long as the old one. The checksums of IPv4, TCP, UDP and ICMPv6 are adjusted
//! by RFC 1624. That works in a frame that was cut short, too, and a checksum that was wrong before
//! stays wrong. A fragment that is not the first has no transport checksum.
//!
//! **Spec**: RFC 1624, RFC 768 (a UDP checksum of zero means none, and stays).

use std::net::IpAddr;

use super::{Ip, Layers, Stop, ipv4, ipv6, tcp, udp};
use crate::checksum;

/// Replaces `from` by `to` where `from` is the source or destination address of an IP packet, or a
/// protocol address of an ARP packet. Returns true when the frame had `from` in such a place.
/// `from` and `to` must be of one family.
///
/// **Cost**: tens of nanoseconds; no allocation.
pub fn replace_address(frame: &mut [u8], from: IpAddr, to: IpAddr) -> bool {
    let layers = innermost(frame);
    match (from, to, layers.ip) {
        (IpAddr::V4(from), IpAddr::V4(to), Some(ip)) if ip.version == 4 => {
            let at = layers.network + ipv4::SOURCE;
            let check = Some(layers.network + ipv4::CHECKSUM);
            replace(frame, &ip, at, &from.octets(), &to.octets(), check)
        }
        (IpAddr::V6(from), IpAddr::V6(to), Some(ip)) if ip.version == 6 => {
            let at = layers.network + ipv6::SOURCE;
            replace(frame, &ip, at, &from.octets(), &to.octets(), None)
        }
        // The IP header is cut short or malformed, but may still hold an address to replace.
        (IpAddr::V4(from), IpAddr::V4(to), None) if layers.ether_type == IPV4 => {
            let mut is_changed = false;
            for at in [ipv4::SOURCE, ipv4::DESTINATION] {
                let at = layers.network + at;
                if put(frame, at, &from.octets(), &to.octets()) {
                    let check = layers.network + ipv4::CHECKSUM;
                    adjust(frame, check, &from.octets(), &to.octets());
                    is_changed = true;
                }
            }
            is_changed
        }
        (IpAddr::V6(from), IpAddr::V6(to), None) if layers.ether_type == IPV6 => {
            let mut is_changed = false;
            for at in [ipv6::SOURCE, ipv6::DESTINATION] {
                is_changed |= put(frame, layers.network + at, &from.octets(), &to.octets());
            }
            is_changed
        }
        (IpAddr::V4(from), IpAddr::V4(to), None) if layers.ether_type == ARP => {
            let mut is_changed = false;
            for at in [layers.network + 14, layers.network + 24] {
                is_changed |= put(frame, at, &from.octets(), &to.octets());
            }
            is_changed
        }
        _ => false,
    }
}

/// Removes the VLAN tags, at most four; returns the frame's new length. The bytes of `frame` behind
/// that length are left over.
pub fn remove_tags(frame: &mut [u8]) -> usize {
    let tags = usize::from(Layers::parse(frame).tags) * TAG_LEN;
    let len = frame.len() - tags;
    if tags > 0 {
        frame.copy_within(MACS_LEN + tags.., MACS_LEN);
    }
    len
}

/// Inserts an 802.1Q tag behind the hardware addresses; a frame without hardware addresses stays as
/// it is.
pub fn insert_tag(frame: &mut Vec<u8>, tag_control: u16) {
    if frame.len() >= MACS_LEN {
        let [a, b] = tag_control.to_be_bytes();
        frame.splice(MACS_LEN..MACS_LEN, [0x81, 0, a, b]);
    }
}

/// Finds the headers behind all VLAN tags, however many there are.
fn innermost(frame: &[u8]) -> Layers {
    let mut layers = Layers::parse(frame);
    // When no IP header was found, `TooMany` means tags, not extension headers.
    while layers.stop == Stop::TooMany && layers.ip.is_none() {
        layers = Layers::behind(frame, Some(layers.ether_type), layers.network);
    }
    layers
}

/// Replaces `from` by `to` in the two addresses at `at`, and adjusts the checksums that cover them.
fn replace(
    frame: &mut [u8],
    ip: &Ip,
    at: usize,
    from: &[u8],
    to: &[u8],
    header_check: Option<usize>,
) -> bool {
    let mut is_changed = false;
    for at in [at, at + from.len()] {
        if !put(frame, at, from, to) {
            continue;
        }
        is_changed = true;
        if let Some(check) = header_check {
            adjust(frame, check, from, to);
        }
        if let Some(check) = transport_check(frame, ip) {
            adjust(frame, check, from, to);
        }
    }
    is_changed
}

/// Finds the transport checksum, which covers the addresses; `None` when the frame has none.
fn transport_check(frame: &[u8], ip: &Ip) -> Option<usize> {
    if ip.is_later_fragment {
        return None;
    }
    let at = match ip.protocol {
        TCP => ip.transport + tcp::CHECKSUM,
        UDP => ip.transport + udp::CHECKSUM,
        ICMP_V6 if ip.version == 6 => ip.transport + 2,
        _ => return None,
    };
    let check = frame.get(at..at + 2)?;
    let is_none = ip.protocol == UDP && check == [0, 0];
    (!is_none).then_some(at)
}

fn put(frame: &mut [u8], at: usize, from: &[u8], to: &[u8]) -> bool {
    match frame.get_mut(at..at + from.len()) {
        Some(place) if place == from => {
            place.copy_from_slice(to);
            true
        }
        _ => false,
    }
}

fn adjust(frame: &mut [u8], at: usize, from: &[u8], to: &[u8]) {
    let Some(place) = frame.get(at..at + 2) else {
        return;
    };
    let mut check = u16::from_be_bytes([place[0], place[1]]);
    let (from, to) = (from.as_chunks::<2>().0, to.as_chunks::<2>().0);
    for (from, to) in from.iter().zip(to) {
        check = checksum::adjust(check, u16::from_be_bytes(*from), u16::from_be_bytes(*to));
    }
    frame[at..at + 2].copy_from_slice(&check.to_be_bytes());
}

const MACS_LEN: usize = 12;
const TAG_LEN: usize = 4;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
const ARP: u16 = 0x0806;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP_V6: u8 = 58;

#[cfg(test)]
mod tests {
    use super::*;

    /// A whole UDP datagram in IPv4, checksums filled in.
    fn datagram() -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 33, 0, 0, 0x40, 0, 64, UDP, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0, 9, 0, 7, 0, 13, 0, 0]);
        frame.extend(b"hello");
        let header = !checksum::fold(checksum::sum(&frame[14..34]));
        frame[24..26].copy_from_slice(&header.to_be_bytes());
        let check = checksum::finish(udp_sum(&frame));
        frame[40..42].copy_from_slice(&check.to_be_bytes());
        frame
    }

    fn udp_sum(frame: &[u8]) -> u64 {
        checksum::sum(&frame[26..34])
            + checksum::of_words(u32::from(UDP) + frame.len() as u32 - 34)
            + checksum::sum(&frame[34..])
    }

    #[test]
    fn addresses_change_and_checksums_follow() {
        let mut frame = datagram();
        let (from, to) = (
            "10.0.0.2".parse().unwrap(),
            "192.168.7.254".parse().unwrap(),
        );
        assert!(replace_address(&mut frame, from, to));
        assert_eq!(frame[30..34], [192, 168, 7, 254]);
        assert_eq!(checksum::fold(checksum::sum(&frame[14..34])), 0xFFFF);
        assert_eq!(checksum::fold(udp_sum(&frame)), 0xFFFF);
        assert!(
            !replace_address(&mut frame, from, to),
            "it is not there any more"
        );
        let mut without = datagram();
        without[40..42].fill(0);
        assert!(replace_address(&mut without, from, to));
        assert_eq!(without[40..42], [0, 0], "no checksum stays none");
    }

    #[test]
    fn tags_go_in_and_out() {
        let plain = datagram();
        let mut frame = plain.clone();
        insert_tag(&mut frame, 5);
        assert_eq!(frame[12..18], [0x81, 0, 0, 5, 8, 0]);
        let mut tagged_address = frame.clone();
        let (from, to) = ("10.0.0.1".parse().unwrap(), "10.0.0.9".parse().unwrap());
        assert!(replace_address(&mut tagged_address, from, to));
        assert_eq!(tagged_address[33], 9);
        insert_tag(&mut frame, 7);
        let len = remove_tags(&mut frame);
        assert_eq!(frame[..len], plain);
        let mut short = vec![1; 11];
        insert_tag(&mut short, 5);
        assert_eq!((short.len(), remove_tags(&mut short)), (11, 11));
    }

    #[test]
    fn cut_frames_are_survived() {
        let (from, to) = ("10.0.0.1".parse().unwrap(), "10.0.0.9".parse().unwrap());
        let whole = datagram();
        for len in 0..whole.len() {
            let mut frame = whole[..len].to_vec();
            let is_changed = replace_address(&mut frame, from, to);
            // The old address leaves no host, also where the header was cut behind it.
            assert_eq!(is_changed, len >= 30, "{len}");
        }
    }

    #[test]
    fn no_number_of_tags_hides_an_address() {
        let (from, to) = ("10.0.0.1".parse().unwrap(), "10.0.0.9".parse().unwrap());
        for tags in [0, 1, 4, 5, 8, 9, 300] {
            let mut frame = datagram();
            for _ in 0..tags {
                insert_tag(&mut frame, 5);
            }
            assert!(replace_address(&mut frame, from, to), "{tags} tags");
            assert_eq!(frame[26 + 4 * tags..][..4], [10, 0, 0, 9]);
            // Cut within a tag, it has no address, and the search ends.
            frame.truncate(15 + 4 * tags);
            assert!(!replace_address(&mut frame, from, to));
        }
    }
}
