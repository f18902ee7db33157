//! The UDP header.
//!
//! ```text
//!  0                       2                       4
//! +-----------------------+-----------------------+
//! | source port           | destination port      |
//! +-----------------------+-----------------------+
//! | length                | checksum, 0 for none  |
//! +-----------------------+-----------------------+
//! ```
//!
//! **Spec**: RFC 768.

use std::fmt;

use crate::{
    checksum,
    cursor::{put_u16, u16_at},
};

/// A view of a datagram: its header is whole, its data may be cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Udp<T> {
    /// Views the datagram in `bytes`; `None` when they end within the header.
    #[inline]
    pub fn of(bytes: T) -> Option<Self> {
        (bytes.as_ref().len() >= LEN).then_some(Self { bytes })
    }

    /// Returns the source port.
    #[inline]
    pub fn source_port(&self) -> u16 {
        u16_at(self.bytes.as_ref(), SOURCE_PORT)
    }

    /// Returns the destination port.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        u16_at(self.bytes.as_ref(), DESTINATION_PORT)
    }

    /// Returns the length of header and data in bytes, as the header says it.
    #[inline]
    pub fn total_len(&self) -> u16 {
        u16_at(self.bytes.as_ref(), TOTAL_LEN)
    }

    /// Returns the checksum; 0 means that the sender made none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes.as_ref(), CHECKSUM)
    }

    /// Returns the ports as a value.
    pub fn header(&self) -> UdpHeader {
        UdpHeader {
            source_port: self.source_port(),
            destination_port: self.destination_port(),
        }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Udp<T> {
    /// Sets the source port.
    #[inline]
    pub fn set_source_port(&mut self, port: u16) {
        put_u16(self.bytes.as_mut(), SOURCE_PORT, port);
    }

    /// Sets the destination port.
    #[inline]
    pub fn set_destination_port(&mut self, port: u16) {
        put_u16(self.bytes.as_mut(), DESTINATION_PORT, port);
    }

    /// Sets the length of header and data, in bytes.
    #[inline]
    pub fn set_total_len(&mut self, len: u16) {
        put_u16(self.bytes.as_mut(), TOTAL_LEN, len);
    }

    /// Computes the checksum over all bytes of the view; `pseudo` is the partial sum of the pseudo
    /// header.
    #[inline]
    pub fn fill_checksum(&mut self, pseudo: u64) {
        let bytes = self.bytes.as_mut();
        put_u16(bytes, CHECKSUM, 0);
        let check = checksum::finish(pseudo + checksum::sum(bytes));
        put_u16(bytes, CHECKSUM, check);
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Udp<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.source_port(), self.destination_port());
        write!(f, "UDP {from} > {to} length {}", self.total_len())
    }
}

/// The fields of a UDP header that do not follow from the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpHeader {
    /// The source port.
    pub source_port: u16,
    /// The destination port.
    pub destination_port: u16,
}

impl UdpHeader {
    /// Appends the header and `data`, with length and checksum; `pseudo` is the partial sum of the
    /// pseudo header for a datagram of that length.
    ///
    /// **Shape**: a length beyond 65,535 bytes does not fit the field, which then has 65,535.
    pub fn emit(&self, out: &mut Vec<u8>, data: &[u8], pseudo: u64) {
        let at = out.len();
        let len = u16::try_from(LEN + data.len()).unwrap_or(u16::MAX);
        for field in [self.source_port, self.destination_port, len, 0] {
            out.extend(field.to_be_bytes());
        }
        out.extend_from_slice(data);
        let check = checksum::finish(pseudo + checksum::sum(&out[at..]));
        put_u16(&mut out[at..], CHECKSUM, check);
    }
}

/// Length of the header in bytes.
pub(super) const LEN: usize = 8;

/// Offsets of fields.
const SOURCE_PORT: usize = 0;
const DESTINATION_PORT: usize = 2;
const TOTAL_LEN: usize = 4;
pub(super) const CHECKSUM: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_read_and_summed() {
        let mut bytes = *b"\0\0\0\0\0\0\xFF\xFFhello";
        let mut udp = Udp::of(&mut bytes).unwrap();
        udp.set_source_port(0x0102);
        udp.set_destination_port(0x0304);
        udp.set_total_len(13);
        udp.fill_checksum(checksum::of_words(17 + 13));
        assert_eq!(udp.to_string(), "UDP 258 > 772 length 13");
        let check = udp.checksum();
        assert_eq!(bytes[..6], [1, 2, 3, 4, 0, 13]);
        assert_eq!(bytes[6..8], check.to_be_bytes());
        let sum = checksum::of_words(17 + 13) + checksum::sum(&bytes);
        assert_eq!(checksum::fold(sum), 0xFFFF);
    }

    #[test]
    fn what_is_emitted_is_read_and_its_sum_is_right() {
        let mut bytes = vec![0xEE];
        let header = UdpHeader {
            source_port: 258,
            destination_port: 772,
        };
        let pseudo = checksum::of_words(17 + 13);
        header.emit(&mut bytes, b"hello", pseudo);
        let udp = Udp::of(&bytes[1..]).unwrap();
        assert_eq!(udp.to_string(), "UDP 258 > 772 length 13");
        assert_eq!(udp.header(), header);
        assert_eq!(bytes[9..], *b"hello");
        let sum = pseudo + checksum::sum(&bytes[1..]);
        assert_eq!(checksum::fold(sum), 0xFFFF);
    }

    #[test]
    fn every_shorter_length_is_none() {
        for len in 0..=LEN {
            assert_eq!(Udp::of(&[0; LEN][..len]).is_some(), len == LEN);
        }
    }
}
