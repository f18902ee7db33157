//! OPT_RST: the source breaks the session off. (OPT_SYN and OPT_FIN have no contents.)
//!
//! ```text
//!  0      1   2     3                4
//!  +------+---+-----+----------------+
//!  | 0x0F | 4 | OPX | N 0x40, reason |
//!  +------+---+-----+----------------+
//! ```
//!
//! The fourth byte holds everything: N (0x40) and a 6-bit reason below it.
//!
//! **Spec**: RFC 3208 section 9.8.

use std::fmt;

use super::Contents;
use crate::{
    ParseError,
    cursor::{Reader, Writer},
};

/// The source's reset of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rst {
    /// True when the source will not answer NAKs for earlier data.
    pub is_deaf: bool,
    /// The reason, in the application's own numbers; 0 is unknown. Six bits.
    pub reason: u8,
}

impl<'a> Contents<'a> for Rst {
    const NAME: &'static str = "OPT_RST";
    const KIND: u8 = 0x0F;

    fn parse(_reader: &mut Reader<'a>, specific: u8) -> Result<Self, ParseError> {
        Ok(Self {
            is_deaf: specific & N != 0,
            reason: specific & REASON,
        })
    }

    fn value_len(&self) -> usize {
        0
    }

    fn emit(&self, _writer: &mut Writer<'_>) {}

    fn specific(&self) -> u8 {
        let deaf = if self.is_deaf { N } else { 0 };
        deaf | self.reason & REASON
    }
}

impl fmt::Display for Rst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deaf = if self.is_deaf { " no-repairs" } else { "" };
        write!(f, "rst reason {}{deaf}", self.reason)
    }
}

const N: u8 = 0x40;
const REASON: u8 = 0x3F;

#[cfg(test)]
mod tests {
    use super::{
        super::kit::{assert_bytes, read},
        *,
    };

    #[test]
    fn s9_8_a_reset_says_why_and_whether_repairs_go_on() {
        for (specific, is_deaf, reason) in [(0, false, 0), (0x40, true, 0), (0x7F, true, 63)] {
            assert_bytes(&[], specific, &Rst { is_deaf, reason });
        }
        // The highest bit is that of every option, and says nothing here.
        let reset = read::<Rst>(&[], 0x83);
        assert_eq!(
            reset,
            Ok(Rst {
                is_deaf: false,
                reason: 3
            })
        );
    }
}
