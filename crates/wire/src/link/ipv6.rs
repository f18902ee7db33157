//! The fixed header of IPv6; extension headers may follow.
//!
//! ```text
//!  0        1                 2                                   4
//! +--------+-----------------+-----------------------------------+
//! | 6      | traffic class   | flow label                        |
//! +--------+-----------------+-----------------+-----------------+
//! | payload length           | next header     | hops left       |
//! +--------------------------+-----------------+-----------------+
//! | source, 16 bytes                                             |
//! +--------------------------------------------------------------+
//! | destination, 16 bytes                                        |
//! +--------------------------------------------------------------+
//! ```
//!
//! **Spec**: RFC 8200.

use std::{fmt, net::Ipv6Addr};

use super::pseudo_sum;
use crate::cursor::{array_at, put_u16, u16_at};

/// A view of the whole fixed header of IPv6 at the beginning of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Ipv6<T> {
    /// Views the header at the beginning of `bytes`; `None` when the bytes end within it, or the
    /// version is not 6.
    #[inline]
    pub fn of(bytes: T) -> Option<Self> {
        let header = bytes.as_ref();
        let is_right = header.len() >= LEN && header[0] >> 4 == 6;
        is_right.then_some(Self { bytes })
    }

    /// Returns the length of what follows the fixed header in bytes, as the header says it.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        u16_at(self.header_bytes(), PAYLOAD_LEN)
    }

    /// Returns the number of the header that follows: an extension header, or 6 TCP, 17 UDP.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.header_bytes()[NEXT_HEADER]
    }

    /// Returns how many more hops the packet may go.
    #[inline]
    pub fn hops_left(&self) -> u8 {
        self.header_bytes()[HOPS_LEFT]
    }

    /// Returns the source address.
    #[inline]
    pub fn source(&self) -> Ipv6Addr {
        array_at::<16>(self.header_bytes(), SOURCE).into()
    }

    /// Returns the destination address.
    #[inline]
    pub fn destination(&self) -> Ipv6Addr {
        array_at::<16>(self.header_bytes(), DESTINATION).into()
    }

    /// Returns the source and the destination address, as they stand in the header.
    #[inline]
    pub fn addresses(&self) -> [u8; 32] {
        array_at(self.header_bytes(), SOURCE)
    }

    /// Returns the fields as a value, without traffic class and flow label.
    pub fn header(&self) -> Ipv6Header {
        Ipv6Header {
            source: self.source(),
            destination: self.destination(),
            next_header: self.next_header(),
            hops_left: self.hops_left(),
            payload_len: self.payload_len(),
        }
    }

    /// Returns the partial sum of the pseudo header. `protocol` names the transport header, and
    /// `len` is the length of that header and its data, in bytes.
    #[inline]
    pub fn pseudo_sum(&self, protocol: u8, len: usize) -> u64 {
        pseudo_sum(&self.addresses(), protocol, len)
    }

    fn header_bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6<T> {
    /// Sets the length of what follows the fixed header, in bytes.
    #[inline]
    pub fn set_payload_len(&mut self, len: u16) {
        put_u16(self.bytes.as_mut(), PAYLOAD_LEN, len);
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Ipv6<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "IPv6 {} > {} next header {} payload {} hops {}",
            self.source(),
            self.destination(),
            self.next_header(),
            self.payload_len(),
            self.hops_left()
        )
    }
}

/// The fields of a fixed header of IPv6; traffic class and flow label are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Header {
    /// The source address.
    pub source: Ipv6Addr,
    /// The destination address.
    pub destination: Ipv6Addr,
    /// The number of the header that follows: an extension header, or 6 TCP, 17 UDP.
    pub next_header: u8,
    /// How many hops the packet may go.
    pub hops_left: u8,
    /// The length of what follows in bytes.
    pub payload_len: u16,
}

impl Ipv6Header {
    /// Appends the header: 40 bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend([0x60, 0, 0, 0]);
        out.extend(self.payload_len.to_be_bytes());
        out.extend([self.next_header, self.hops_left]);
        out.extend(self.source.octets());
        out.extend(self.destination.octets());
    }
}

/// Length of the fixed header in bytes.
pub(super) const LEN: usize = 40;

/// Offsets of fields.
const PAYLOAD_LEN: usize = 4;
const NEXT_HEADER: usize = 6;
const HOPS_LEFT: usize = 7;
pub(super) const SOURCE: usize = 8;
pub(super) const DESTINATION: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Vec<u8> {
        let mut bytes = vec![0; LEN];
        bytes[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 9, 17, 64]);
        (bytes[8], bytes[23], bytes[24], bytes[39]) = (0xFD, 1, 0xFF, 2);
        bytes
    }

    #[test]
    fn fields_are_where_the_drawing_has_them() {
        let mut bytes = header();
        let mut ip = Ipv6::of(&mut bytes).unwrap();
        assert_eq!(
            ip.to_string(),
            "IPv6 fd00::1 > ff00::2 next header 17 payload 9 hops 64"
        );
        let addresses = [ip.source().octets(), ip.destination().octets()].concat();
        assert_eq!(addresses, ip.addresses());
        ip.set_payload_len(0x0203);
        assert_eq!(ip.payload_len(), 0x0203);
    }

    #[test]
    fn what_is_emitted_is_read() {
        let value = Ipv6Header {
            source: "fd00::1".parse().unwrap(),
            destination: "ff00::2".parse().unwrap(),
            next_header: 17,
            hops_left: 64,
            payload_len: 9,
        };
        let mut bytes = Vec::new();
        value.emit(&mut bytes);
        assert_eq!(bytes, header());
        assert_eq!(Ipv6::of(&bytes).unwrap().header(), value);
    }

    #[test]
    fn every_shorter_length_and_another_version_are_none() {
        let mut bytes = header();
        for len in 0..LEN {
            assert_eq!(Ipv6::of(&bytes[..len]), None, "{len}");
        }
        bytes[0] = 0x45;
        assert_eq!(Ipv6::of(&bytes), None);
    }
}
