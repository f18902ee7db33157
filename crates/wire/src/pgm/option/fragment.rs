//! OPT_FRAGMENT: where the TSDU lies in a message that is longer than one packet.
//!
//! ```text
//!  0      1    2     3   4           8        12         16
//!  +------+----+-----+---+-----------+--------+----------+
//!  | 0x01 | 16 | OPX | 0 | first sqn | offset | APDU len |
//!  +------+----+-----+---+-----------+--------+----------+
//! ```
//!
//! Deviation: the RFC's text says 12 bytes; its own diagram and all implementations have 16.
//!
//! **Spec**: RFC 3208 section 9.2.

use std::fmt;

use super::Contents;
use crate::{
    ParseError, Sqn,
    cursor::{Reader, Writer},
};

/// The place of a fragment in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The packet that carries the first fragment of the message.
    pub first: Sqn,
    /// Offset of this fragment in the message, in bytes.
    pub offset: u32,
    /// Length of the whole message in bytes.
    pub apdu_len: u32,
}

impl Fragment {
    /// Returns true when `tsdu_len` bytes from `offset` on lie within the message.
    #[must_use]
    pub const fn holds(&self, tsdu_len: usize) -> bool {
        self.offset as u64 + tsdu_len as u64 <= self.apdu_len as u64
    }

    /// Returns true when a fragment of `tsdu_len` bytes is the message's last.
    #[must_use]
    pub const fn is_last(&self, tsdu_len: usize) -> bool {
        self.offset as u64 + tsdu_len as u64 == self.apdu_len as u64
    }
}

impl<'a> Contents<'a> for Fragment {
    const NAME: &'static str = "OPT_FRAGMENT";
    const KIND: u8 = 0x01;

    fn parse(reader: &mut Reader<'a>, _specific: u8) -> Result<Self, ParseError> {
        Ok(Self {
            first: reader.sqn()?,
            offset: reader.u32()?,
            apdu_len: reader.u32()?,
        })
    }

    fn value_len(&self) -> usize {
        12
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.sqn(self.first);
        writer.u32(self.offset);
        writer.u32(self.apdu_len);
    }
}

impl fmt::Display for Fragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            first,
            offset,
            apdu_len,
        } = self;
        write!(f, "fragment first {first} offset {offset} of {apdu_len}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_must_lie_within_its_message() {
        let fragment = Fragment {
            first: Sqn(1),
            offset: u32::MAX - 10,
            apdu_len: u32::MAX,
        };
        assert!(fragment.holds(9) && !fragment.is_last(9));
        assert!(fragment.holds(10) && fragment.is_last(10));
        assert!(!fragment.holds(11));
    }
}
