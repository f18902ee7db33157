//! The IPv4 header.
//!
//! ```text
//!  0                 1                 2                                   4
//! +--------+--------+-----------------+-----------------------------------+
//! | 4      | words  | traffic class   | total length                      |
//! +--------+--------+-----------------+--------+--------------------------+
//! | identification                    | flags  | fragment offset          |
//! +-----------------+-----------------+--------+--------------------------+
//! | hops left       | protocol        | checksum of the header            |
//! +-----------------+-----------------+-----------------------------------+
//! | source                                                                |
//! +-----------------------------------------------------------------------+
//! | destination                                                           |
//! +-----------------------------------------------------------------------+
//! | options, (words - 5) * 4 bytes                                        |
//! +-----------------------------------------------------------------------+
//! ```
//!
//! **Spec**: RFC 791.

use std::{fmt, net::Ipv4Addr};

use super::pseudo_sum;
use crate::{
    checksum,
    cursor::{array_at, put_u16, u16_at},
};

/// A view of the IPv4 header at the beginning of some bytes: its fixed part is whole, its options
/// may be cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Ipv4<T> {
    /// Views the header at the beginning of `bytes`; `None` when the bytes end within the fixed
    /// part, the version is not 4, or the header's length field says less than the fixed part.
    #[inline]
    pub fn of(bytes: T) -> Option<Self> {
        let header = bytes.as_ref();
        let is_right = header.len() >= LEN_MIN && header[0] >> 4 == 4 && header[0] & 15 >= 5;
        is_right.then_some(Self { bytes })
    }

    /// Returns the length of the header in bytes, options included: 20 to 60, also when the options
    /// are cut short.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.header_bytes()[0] & 15) * 4
    }

    /// Returns the length of header and contents in bytes, as the header says it.
    #[inline]
    pub fn total_len(&self) -> u16 {
        u16_at(self.header_bytes(), TOTAL_LEN)
    }

    /// Returns the number that fragments of one packet have in common.
    #[inline]
    pub fn identification(&self) -> u16 {
        u16_at(self.header_bytes(), IDENTIFICATION)
    }

    /// Returns true for a part of a fragmented packet.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        u16_at(self.header_bytes(), FRAGMENT) & 0x3FFF != 0
    }

    /// Returns true for a fragment other than the first.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        u16_at(self.header_bytes(), FRAGMENT) & 0x1FFF != 0
    }

    /// Returns how many more hops the packet may go (TTL).
    #[inline]
    pub fn hops_left(&self) -> u8 {
        self.header_bytes()[HOPS_LEFT]
    }

    /// Returns the protocol of the contents: 6 TCP, 17 UDP.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.header_bytes()[PROTOCOL]
    }

    /// Returns the source address.
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        array_at::<4>(self.header_bytes(), SOURCE).into()
    }

    /// Returns the destination address.
    #[inline]
    pub fn destination(&self) -> Ipv4Addr {
        array_at::<4>(self.header_bytes(), DESTINATION).into()
    }

    /// Returns the source and the destination address, as they stand in the header.
    #[inline]
    pub fn addresses(&self) -> [u8; 8] {
        array_at(self.header_bytes(), SOURCE)
    }

    /// Returns the fields as a value, without options, identification and place of a fragment.
    pub fn header(&self) -> Ipv4Header {
        Ipv4Header {
            source: self.source(),
            destination: self.destination(),
            protocol: self.protocol(),
            hops_left: self.hops_left(),
            total_len: self.total_len(),
            is_whole: u16_at(self.header_bytes(), FRAGMENT) & 0x4000 != 0,
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

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4<T> {
    /// Sets the length of header and contents, in bytes.
    #[inline]
    pub fn set_total_len(&mut self, len: u16) {
        put_u16(self.bytes.as_mut(), TOTAL_LEN, len);
    }

    /// Sets the number that fragments of one packet have in common.
    #[inline]
    pub fn set_identification(&mut self, identification: u16) {
        put_u16(self.bytes.as_mut(), IDENTIFICATION, identification);
    }

    /// Computes the header's checksum; leaves it as it is when the options are cut short.
    #[inline]
    pub fn fill_checksum(&mut self) {
        let len = self.header_len();
        if let Some(header) = self.bytes.as_mut().get_mut(..len) {
            put_u16(header, CHECKSUM, 0);
            let check = !checksum::fold(checksum::sum(header));
            put_u16(header, CHECKSUM, check);
        }
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Ipv4<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "IPv4 {} > {} protocol {} length {} hops {}",
            self.source(),
            self.destination(),
            self.protocol(),
            self.total_len(),
            self.hops_left()
        )
    }
}

/// The fields of an IPv4 header without options, of a packet that is no fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Header {
    /// The source address.
    pub source: Ipv4Addr,
    /// The destination address.
    pub destination: Ipv4Addr,
    /// The protocol of the contents: 6 TCP, 17 UDP.
    pub protocol: u8,
    /// How many hops the packet may go (TTL).
    pub hops_left: u8,
    /// The length of header and contents in bytes.
    pub total_len: u16,
    /// True when routers must not cut the packet into fragments.
    pub is_whole: bool,
}

impl Ipv4Header {
    /// Appends the header with its checksum: 20 bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let at = out.len();
        let flags = if self.is_whole { 0x40 } else { 0 };
        out.extend([0x45, 0]);
        out.extend(self.total_len.to_be_bytes());
        out.extend([0, 0, flags, 0, self.hops_left, self.protocol, 0, 0]);
        out.extend(self.source.octets());
        out.extend(self.destination.octets());
        let check = !checksum::fold(checksum::sum(&out[at..]));
        put_u16(&mut out[at..], CHECKSUM, check);
    }
}

/// Length of the fixed part in bytes.
pub(super) const LEN_MIN: usize = 20;

/// Offsets of fields.
const TOTAL_LEN: usize = 2;
const IDENTIFICATION: usize = 4;
const FRAGMENT: usize = 6;
const HOPS_LEFT: usize = 8;
const PROTOCOL: usize = 9;
pub(super) const CHECKSUM: usize = 10;
pub(super) const SOURCE: usize = 12;
pub(super) const DESTINATION: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Vec<u8> {
        let mut bytes = vec![0x46, 0, 0, 33, 1, 2, 0x20, 0, 64, 17, 0, 0];
        bytes.extend([10, 0, 0, 1, 239, 1, 2, 3, 1, 1, 1, 0]);
        bytes
    }

    #[test]
    fn fields_are_where_the_drawing_has_them() {
        let bytes = header();
        let ip = Ipv4::of(&bytes).unwrap();
        assert_eq!((ip.header_len(), ip.total_len()), (24, 33));
        assert_eq!(ip.identification(), 0x0102);
        assert!(ip.is_fragment() && !ip.is_later_fragment());
        assert_eq!(ip.addresses(), [10, 0, 0, 1, 239, 1, 2, 3]);
        assert_eq!(
            ip.to_string(),
            "IPv4 10.0.0.1 > 239.1.2.3 protocol 17 length 33 hops 64"
        );
    }

    #[test]
    fn what_is_set_is_read_and_summed() {
        let mut bytes = header();
        let mut ip = Ipv4::of(&mut bytes).unwrap();
        ip.set_total_len(0x0203);
        ip.set_identification(0xFFFE);
        ip.fill_checksum();
        assert_eq!((ip.total_len(), ip.identification()), (0x0203, 0xFFFE));
        assert_eq!(checksum::fold(checksum::sum(&bytes)), 0xFFFF);
    }

    #[test]
    fn what_is_emitted_is_read_and_its_sum_is_right() {
        let value = Ipv4Header {
            source: [10, 0, 0, 1].into(),
            destination: [239, 1, 2, 3].into(),
            protocol: 17,
            hops_left: 9,
            total_len: 0x0203,
            is_whole: true,
        };
        let mut bytes = vec![0xEE];
        value.emit(&mut bytes);
        assert_eq!(bytes.len(), 1 + LEN_MIN);
        assert_eq!(checksum::fold(checksum::sum(&bytes[1..])), 0xFFFF);
        assert_eq!(bytes[1 + FRAGMENT..][..2], [0x40, 0]);
        let ip = Ipv4::of(&bytes[1..]).unwrap();
        assert!(!ip.is_fragment());
        assert_eq!(ip.header(), value);
        assert_eq!(
            ip.to_string(),
            "IPv4 10.0.0.1 > 239.1.2.3 protocol 17 length 515 hops 9"
        );
    }

    #[test]
    fn every_length_below_the_fixed_part_and_other_versions_are_none() {
        let whole = header();
        for len in 0..=whole.len() {
            let mut bytes = whole[..len].to_vec();
            let ip = Ipv4::of(&mut bytes);
            assert_eq!(ip.is_some(), len >= LEN_MIN, "{len}");
            if let Some(mut ip) = ip {
                ip.fill_checksum();
                assert_eq!(bytes == whole[..len], len < whole.len(), "{len}");
            }
        }
        for first in [0x44, 0x66, 0x05] {
            let mut bytes = header();
            bytes[0] = first;
            assert_eq!(Ipv4::of(&bytes), None);
        }
    }
}
