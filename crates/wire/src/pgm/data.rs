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
    /// Bytes of the body.
    pub const LEN: usize = 8;
    /// Bytes before the options of a data packet, or before its TSDU when it has none.
    pub const HEAD_LEN: usize = Header::LEN + Self::LEN;
    /// Where the trail lies in the packet: what a repair brings up to date.
    pub const TRAIL_AT: usize = Header::LEN + 4;

    #[inline]
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let [s0, s1, s2, s3, t0, t1, t2, t3] = reader.take()?;
        Ok(Self {
            sqn: Sqn(u32::from_be_bytes([s0, s1, s2, s3])),
            trail: Sqn(u32::from_be_bytes([t0, t1, t2, t3])),
        })
    }

    /// The sum of the body's 16-bit words.
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
