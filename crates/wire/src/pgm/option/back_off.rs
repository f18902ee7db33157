//! OPT_NAK_BO_IVL and OPT_NAK_BO_RNG: how long receivers wait before a NAK.
//!
//! ```text
//!  0      1    2     3   4          8           12
//!  +------+----+-----+---+----------+-----------+
//!  | 0x04 | 12 | OPX | 0 | time us  | sqn of    |   OPT_NAK_BO_IVL
//!  |      |    |     |   |          | the poll  |
//!  +------+----+-----+---+----------+-----------+
//!  | 0x05 | 12 | OPX | 0 | most us  | least us  |   OPT_NAK_BO_RNG
//!  +------+----+-----+---+----------+-----------+
//! ```
//!
//! The RFC puts the maximum of a range first, and so does this code. Wireshark shows the two in the
//! other order.
//!
//! **Spec**: RFC 3208 sections 15.4.1 and 15.4.2.

use std::fmt;

use super::Contents;
use crate::{
    ParseError, Sqn,
    cursor::{Reader, Writer},
};

/// The NAK back-off interval that receivers should use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NakBackOffInterval {
    /// The interval, in microseconds.
    pub interval_us: u32,
    /// The poll that found the interval; 0 when no poll did. Receivers may then use the interval at
    /// once.
    pub poll_sqn: Sqn,
}

impl<'a> Contents<'a> for NakBackOffInterval {
    const NAME: &'static str = "OPT_NAK_BO_IVL";
    const KIND: u8 = 0x04;

    fn parse(reader: &mut Reader<'a>, _specific: u8) -> Result<Self, ParseError> {
        Ok(Self {
            interval_us: reader.u32()?,
            poll_sqn: reader.sqn()?,
        })
    }

    fn value_len(&self) -> usize {
        8
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.u32(self.interval_us);
        writer.sqn(self.poll_sqn);
    }
}

impl fmt::Display for NakBackOffInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (interval, poll) = (self.interval_us, self.poll_sqn);
        write!(f, "nak-bo-ivl {interval} us poll {poll}")
    }
}

/// The bounds of the NAK back-off interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NakBackOffRange {
    /// The longest interval, in microseconds. First on the wire.
    pub max_us: u32,
    /// The shortest interval, in microseconds.
    pub min_us: u32,
}

impl<'a> Contents<'a> for NakBackOffRange {
    const NAME: &'static str = "OPT_NAK_BO_RNG";
    const KIND: u8 = 0x05;

    fn parse(reader: &mut Reader<'a>, _specific: u8) -> Result<Self, ParseError> {
        Ok(Self {
            max_us: reader.u32()?,
            min_us: reader.u32()?,
        })
    }

    fn value_len(&self) -> usize {
        8
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.u32(self.max_us);
        writer.u32(self.min_us);
    }
}

impl fmt::Display for NakBackOffRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nak-bo-rng {} to {} us", self.min_us, self.max_us)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::kit::assert_bytes, *};

    #[test]
    fn s15_4_1_an_interval_names_the_poll_that_found_it() {
        let interval = NakBackOffInterval {
            interval_us: 100_000,
            poll_sqn: Sqn(5),
        };
        assert_bytes(&[0, 1, 0x86, 0xA0, 0, 0, 0, 5], 0, &interval);
    }

    #[test]
    fn s15_4_2_the_longest_interval_comes_first() {
        let range = NakBackOffRange {
            max_us: 0x0A0B_0C0D,
            min_us: 1,
        };
        assert_bytes(&[0x0A, 0x0B, 0x0C, 0x0D, 0, 0, 0, 1], 0, &range);
    }
}
