//! OPT_JOIN: how far back a receiver that joins late may ask for repairs.
//!
//! ```text
//!  0      1   2     3   4             8
//!  +------+---+-----+---+-------------+
//!  | 0x03 | 8 | OPX | 0 | minimum sqn |
//!  +------+---+-----+---+-------------+
//! ```
//!
//! **Spec**: RFC 3208 section 9.4.

use std::fmt;

use super::Contents;
use crate::{
    ParseError, Sqn,
    cursor::{Reader, Writer},
};

/// The source's offer to late joiners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The oldest data that a late joiner may request.
    pub min: Sqn,
}

impl<'a> Contents<'a> for Join {
    const NAME: &'static str = "OPT_JOIN";
    const KIND: u8 = 0x03;

    fn parse(reader: &mut Reader<'a>, _specific: u8) -> Result<Self, ParseError> {
        let min = reader.sqn()?;
        Ok(Self { min })
    }

    fn value_len(&self) -> usize {
        4
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.sqn(self.min);
    }
}

impl fmt::Display for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "join min {}", self.min)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::kit::assert_bytes, *};

    #[test]
    fn s9_4_the_offer_is_the_oldest_data_that_may_be_requested() {
        let join = Join {
            min: Sqn(0x0102_0304),
        };
        assert_bytes(&[1, 2, 3, 4], 0, &join);
    }
}
