//! ACK: the feedback packet of PGMCC congestion control.
//!
//! ```text
//!  0          4          8
//! +----------+----------+
//! |  rx_max  |  bitmap  |   bit 0 (lowest) stands for rx_max, bit n for rx_max - n
//! +----------+----------+
//! ```
//!
//! **Spec**: draft-ietf-rmt-bb-pgmcc; type code 0x0D as OpenPGM and Wireshark have it.

use std::fmt;

use crate::{
    ParseError, Sqn,
    cursor::{Reader, Writer},
};

/// The body of an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The highest data sequence number received.
    pub rx_max: Sqn,
    /// A bit for each of the last 32 packets, set when the packet arrived.
    pub bitmap: u32,
}

impl Ack {
    /// Length of the body in bytes.
    pub const LEN: usize = 8;

    /// Returns true when the packet numbered `rx_max - age` has arrived. False for ages from 32 on,
    /// where the bitmap ends.
    #[must_use]
    pub const fn has(&self, age: u32) -> bool {
        age < 32 && self.bitmap >> age & 1 == 1
    }

    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(Self {
            rx_max: reader.sqn()?,
            bitmap: reader.u32()?,
        })
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) {
        writer.sqn(self.rx_max);
        writer.u32(self.bitmap);
    }
}

impl fmt::Display for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rx-max {} bitmap {:#010x}", self.rx_max, self.bitmap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_bit_is_the_newest_packet() {
        let ack = Ack {
            rx_max: Sqn(9),
            bitmap: 0x8000_0001,
        };
        assert!(ack.has(0) && !ack.has(1) && ack.has(31) && !ack.has(32));
    }
}
