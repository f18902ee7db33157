//! The TCP header.
//!
//! ```text
//!  0                                   2                                   4
//! +-----------------------------------+-----------------------------------+
//! | source port                       | destination port                  |
//! +-----------------------------------+-----------------------------------+
//! | sequence number                                                       |
//! +-----------------------------------------------------------------------+
//! | acknowledged number                                                   |
//! +--------+--------+-----------------+-----------------------------------+
//! | words  | 0      | flags           | window                            |
//! +--------+--------+-----------------+-----------------------------------+
//! | checksum                          | urgent pointer                    |
//! +-----------------------------------+-----------------------------------+
//! | options, (words - 5) * 4 bytes                                        |
//! +-----------------------------------------------------------------------+
//! ```
//!
//! **Spec**: RFC 9293.

use std::fmt;

use crate::{
    checksum,
    cursor::{array_at, put_u16, u16_at},
};

/// A view of a segment: its fixed header is whole, its options and data may be cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Tcp<T> {
    /// Views the segment in `bytes`; `None` when they end within the fixed header, or the header's
    /// length field says less than the fixed header.
    #[inline]
    pub fn of(bytes: T) -> Option<Self> {
        let header = bytes.as_ref();
        let is_right = header.len() >= LEN_MIN && header[WORDS] >> 4 >= 5;
        is_right.then_some(Self { bytes })
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

    /// Returns the sequence number of the first byte of data.
    #[inline]
    pub fn sequence(&self) -> u32 {
        u32::from_be_bytes(array_at(self.bytes.as_ref(), SEQUENCE))
    }

    /// Returns the number of the byte that the sender of this segment expects next. The field is
    /// valid only when the flag ACK (0x10) is set.
    #[inline]
    pub fn acknowledged(&self) -> u32 {
        u32::from_be_bytes(array_at(self.bytes.as_ref(), ACKNOWLEDGED))
    }

    /// Returns the length of the header in bytes, options included: 20 to 60.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.bytes.as_ref()[WORDS] >> 4) * 4
    }

    /// Returns the flags, from CWR (0x80) to FIN (0x01).
    #[inline]
    pub fn flags(&self) -> u8 {
        self.bytes.as_ref()[FLAGS]
    }

    /// Returns how much more data the sender of this segment takes, in units of 2^scale bytes. Only
    /// the first segments of a connection say the scale (RFC 7323).
    #[inline]
    pub fn window(&self) -> u16 {
        u16_at(self.bytes.as_ref(), WINDOW)
    }

    /// Returns the fields as a value, without options.
    pub fn header(&self) -> TcpHeader {
        TcpHeader {
            source_port: self.source_port(),
            destination_port: self.destination_port(),
            sequence: self.sequence(),
            acknowledged: self.acknowledged(),
            flags: self.flags(),
            window: self.window(),
        }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Tcp<T> {
    /// Sets the sequence number of the first byte of data.
    #[inline]
    pub fn set_sequence(&mut self, sequence: u32) {
        self.bytes.as_mut()[SEQUENCE..SEQUENCE + 4].copy_from_slice(&sequence.to_be_bytes());
    }

    /// Sets the flags, from CWR (0x80) to FIN (0x01).
    #[inline]
    pub fn set_flags(&mut self, flags: u8) {
        self.bytes.as_mut()[FLAGS] = flags;
    }

    /// Computes the checksum over all bytes of the view; `pseudo` is the partial sum of the pseudo
    /// header.
    #[inline]
    pub fn fill_checksum(&mut self, pseudo: u64) {
        let bytes = self.bytes.as_mut();
        put_u16(bytes, CHECKSUM, 0);
        let check = !checksum::fold(pseudo + checksum::sum(bytes));
        put_u16(bytes, CHECKSUM, check);
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Tcp<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.source_port(), self.destination_port());
        let (sequence, flags) = (self.sequence(), self.flags());
        write!(
            f,
            "TCP {from} > {to} sequence {sequence} flags {flags:#04x}"
        )
    }
}

/// The fields of a TCP header without options and without an urgent pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpHeader {
    /// The source port.
    pub source_port: u16,
    /// The destination port.
    pub destination_port: u16,
    /// The sequence number of the first byte of data.
    pub sequence: u32,
    /// The number of the byte that is expected next; valid only when the flag ACK (0x10) is set.
    pub acknowledged: u32,
    /// The flags, from CWR (0x80) to FIN (0x01).
    pub flags: u8,
    /// How much more data is taken, in units of 2 to the power of the connection's window scale.
    pub window: u16,
}

impl TcpHeader {
    /// Appends the header (20 bytes) with its checksum, and `data`. `pseudo` is the partial sum of
    /// the pseudo header for the length of both.
    pub fn emit(&self, out: &mut Vec<u8>, data: &[u8], pseudo: u64) {
        let at = out.len();
        out.extend(self.source_port.to_be_bytes());
        out.extend(self.destination_port.to_be_bytes());
        out.extend(self.sequence.to_be_bytes());
        out.extend(self.acknowledged.to_be_bytes());
        out.extend([(LEN_MIN as u8 / 4) << 4, self.flags]);
        out.extend(self.window.to_be_bytes());
        out.extend([0; 4]);
        out.extend_from_slice(data);
        let check = !checksum::fold(pseudo + checksum::sum(&out[at..]));
        put_u16(&mut out[at..], CHECKSUM, check);
    }
}

/// Length of the fixed header in bytes.
const LEN_MIN: usize = 20;

/// Offsets of fields.
const SOURCE_PORT: usize = 0;
const DESTINATION_PORT: usize = 2;
const SEQUENCE: usize = 4;
const ACKNOWLEDGED: usize = 8;
const WORDS: usize = 12;
const FLAGS: usize = 13;
const WINDOW: usize = 14;
pub(super) const CHECKSUM: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Vec<u8> {
        let mut bytes = vec![0, 9, 0, 80, 1, 2, 3, 4, 0, 0, 0, 0, 0x60, 0x11];
        bytes.resize(24, 0);
        bytes
    }

    #[test]
    fn what_is_set_is_read_and_summed() {
        let mut bytes = header();
        let mut tcp = Tcp::of(&mut bytes).unwrap();
        assert_eq!((tcp.sequence(), tcp.header_len()), (0x0102_0304, 24));
        tcp.set_sequence(7);
        tcp.set_flags(0x10);
        tcp.fill_checksum(checksum::of_words(6 + 24));
        assert_eq!(tcp.to_string(), "TCP 9 > 80 sequence 7 flags 0x10");
        let sum = checksum::of_words(6 + 24) + checksum::sum(&bytes);
        assert_eq!(checksum::fold(sum), 0xFFFF);
    }

    #[test]
    fn what_is_emitted_is_read_and_its_sum_is_right() {
        let value = TcpHeader {
            source_port: 9,
            destination_port: 80,
            sequence: 0x0102_0304,
            acknowledged: 0x0506_0708,
            flags: 0x18,
            window: 0x090A,
        };
        let mut bytes = vec![0xEE];
        let pseudo = checksum::of_words(6 + 25);
        value.emit(&mut bytes, b"hello", pseudo);
        let expected = [0, 9, 0, 80, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x18, 9, 10];
        assert_eq!(bytes[1..17], expected);
        assert_eq!(bytes[19..], *b"\0\0hello");
        let tcp = Tcp::of(&bytes[1..]).unwrap();
        assert_eq!((tcp.header(), tcp.header_len()), (value, LEN_MIN));
        let sum = pseudo + checksum::sum(&bytes[1..]);
        assert_eq!(checksum::fold(sum), 0xFFFF);
    }

    #[test]
    fn every_length_below_the_fixed_header_is_none() {
        let mut bytes = header();
        for len in 0..=bytes.len() {
            assert_eq!(Tcp::of(&bytes[..len]).is_some(), len >= LEN_MIN, "{len}");
        }
        bytes[WORDS] = 0x40;
        assert_eq!(Tcp::of(&bytes), None, "a header of 16 bytes");
    }
}
