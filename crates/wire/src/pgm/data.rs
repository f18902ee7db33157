//! Data packets: ODATA for the first time, RDATA as a repair.
//!
//! ```text
//!  0          4          8
//! +----------+----------+------------------+--------
//! | data sqn | trail    | options, if any  | TSDU ...
//! +----------+----------+------------------+--------
//! ```
//!
//! **Spec**: RFC 3208 section 8.2.

use std::fmt;

use super::Header;
use crate::{
    ParseError, Sqn,
    cursor::{Reader, Writer},
};

/// The body of ODATA and RDATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// The number that the source gave this data when it was new.
    pub sqn: Sqn,
    /// The oldest data that could still be repaired when this packet was made.
    pub trail: Sqn,
}

impl Data {
    /// Length of the body in bytes.
    pub const LEN: usize = 8;
    /// Bytes of a data packet in front of its options, or in front of its TSDU when there are no
    /// options.
    pub const HEAD_LEN: usize = Header::LEN + Self::LEN;
    /// Offset of the trail in the packet: a repair brings the trail up to date.
    pub const TRAIL_AT: usize = Header::LEN + 4;

    #[inline]
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let [s0, s1, s2, s3, t0, t1, t2, t3] = reader.take()?;
        Ok(Self {
            sqn: Sqn(u32::from_be_bytes([s0, s1, s2, s3])),
            trail: Sqn(u32::from_be_bytes([t0, t1, t2, t3])),
        })
    }

    /// Returns the sum of the body's 16-bit words.
    #[inline]
    pub(super) const fn word_sum(&self) -> u32 {
        let (sqn, trail) = (self.sqn.0, self.trail.0);
        (sqn >> 16) + (sqn & 0xFFFF) + (trail >> 16) + (trail & 0xFFFF)
    }

    #[inline]
    pub(super) fn emit(&self, writer: &mut Writer<'_>) {
        writer.sqn(self.sqn);
        writer.sqn(self.trail);
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sqn {} trail {}", self.sqn, self.trail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checksum,
        pgm::{Addressing, Body, Packet, body_kit::assert_bytes, emit},
    };

    const DATA: Data = Data {
        sqn: Sqn(0xFFFF_FFFE),
        trail: Sqn(0x0001_0203),
    };
    const BYTES: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFE, 0, 1, 2, 3];

    #[test]
    fn s8_2_data_and_repairs_have_their_number_and_the_trail() {
        assert_bytes(&BYTES, Body::Odata(DATA));
        assert_bytes(&BYTES, Body::Rdata(DATA));
    }

    #[test]
    fn the_sum_of_the_fields_is_that_of_their_bytes() {
        assert_eq!(
            u64::from(DATA.word_sum()),
            0xFFFF + 0xFFFE + 0x0001 + 0x0203
        );
        let of_bytes = checksum::fold(checksum::sum(&BYTES));
        assert_eq!(
            checksum::fold(checksum::of_words(DATA.word_sum())),
            of_bytes
        );
    }

    #[test]
    fn a_repair_finds_the_trail_where_it_is_brought_up_to_date() {
        let mut packet = Vec::new();
        let addressing = Addressing::default();
        emit(&mut packet, &addressing, &Body::Rdata(DATA), &[], b"x");
        packet[Data::TRAIL_AT..Data::TRAIL_AT + 4].copy_from_slice(&[0, 0, 0, 9]);
        let moved = Data {
            trail: Sqn(9),
            ..DATA
        };
        let packet = Packet::parse(&packet).unwrap();
        assert_eq!(packet.body(), Body::Rdata(moved));
        assert_eq!(packet.tsdu_range(), Data::HEAD_LEN..Data::HEAD_LEN + 1);
    }
}
