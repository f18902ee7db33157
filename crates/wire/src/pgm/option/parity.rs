//! OPT_PARITY_PRM, OPT_PARITY_GRP, OPT_CURR_TGSIZE: forward error correction.
//!
//! ```text
//!  0      1   2     3       4              8
//!  +------+---+-----+-------+--------------+
//!  | 0x08 | 8 | OPX | flags | group size   |   OPT_PARITY_PRM
//!  | 0x09 | 8 | OPX | 0     | group number |   OPT_PARITY_GRP
//!  | 0x0A | 8 | OPX | 0     | packet count |   OPT_CURR_TGSIZE
//!  +------+---+-----+-------+--------------+
//! ```
//!
//! Deviation: in OPT_PARITY_PRM the RFC (and Wireshark) put pro-active at 0x02 and on-demand at
//! 0x01; OpenPGM has them the other way round. [`ParityPrm`] keeps the bits, and the caller says
//! which reading it wants.
//!
//! **Spec**: RFC 3208 section 11.8.

use std::fmt;

use super::Contents;
use crate::{
    ParseError,
    cursor::{Reader, Writer},
};

/// The parity that a source offers. Only SPMs carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParityPrm {
    /// The flags as on the wire (seven bits).
    pub flags: u8,
    /// Number of data packets in a full transmission group; by the RFC a power of two.
    pub group_size: u32,
}

impl ParityPrm {
    /// Makes an offer whose flags stand where `reading` puts them.
    #[must_use]
    pub const fn new(
        is_proactive: bool,
        is_on_demand: bool,
        group_size: u32,
        reading: ParityReading,
    ) -> Self {
        let (proactive, on_demand) = reading.masks();
        let first = if is_proactive { proactive } else { 0 };
        let second = if is_on_demand { on_demand } else { 0 };
        Self {
            flags: first | second,
            group_size,
        }
    }

    /// Returns true when the source sends parity without being asked for it.
    #[must_use]
    pub const fn is_proactive(&self, reading: ParityReading) -> bool {
        self.flags & reading.masks().0 != 0
    }

    /// Returns true when the source answers parity NAKs.
    #[must_use]
    pub const fn is_on_demand(&self, reading: ParityReading) -> bool {
        self.flags & reading.masks().1 != 0
    }
}

/// The meaning of the two flags of OPT_PARITY_PRM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParityReading {
    /// The RFC's meaning: pro-active is 0x02, on-demand is 0x01.
    Rfc,
    /// OpenPGM's meaning: pro-active is 0x01, on-demand is 0x02.
    OpenPgm,
    /// For peers that may mean either. A reader takes either bit as an offer of both kinds; a
    /// sender that offers either kind sets both bits.
    #[default]
    Lax,
}

impl ParityReading {
    /// Returns the bits for pro-active and for on-demand.
    const fn masks(self) -> (u8, u8) {
        match self {
            Self::Rfc => (0x02, 0x01),
            Self::OpenPgm => (0x01, 0x02),
            Self::Lax => (0x03, 0x03),
        }
    }
}

impl<'a> Contents<'a> for ParityPrm {
    const NAME: &'static str = "OPT_PARITY_PRM";
    const KIND: u8 = 0x08;

    fn parse(reader: &mut Reader<'a>, specific: u8) -> Result<Self, ParseError> {
        Ok(Self {
            flags: specific,
            group_size: reader.u32()?,
        })
    }

    fn value_len(&self) -> usize {
        4
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.u32(self.group_size);
    }

    fn specific(&self) -> u8 {
        self.flags & 0x7F
    }
}

impl fmt::Display for ParityPrm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (flags, size) = (self.flags, self.group_size);
        write!(f, "parity-prm flags {flags:#04x} group {size}")
    }
}

/// The set that a parity packet belongs to. A group's parity packets come in sets of k, the number
/// of data packets in a full group. Only parity packets carry this option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParityGrp {
    /// The parity packet's index divided by k, rounded down. A source leaves the option out when
    /// this is 0.
    pub group: u32,
}

impl<'a> Contents<'a> for ParityGrp {
    const NAME: &'static str = "OPT_PARITY_GRP";
    const KIND: u8 = 0x09;

    fn parse(reader: &mut Reader<'a>, _specific: u8) -> Result<Self, ParseError> {
        let group = reader.u32()?;
        Ok(Self { group })
    }

    fn value_len(&self) -> usize {
        4
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.u32(self.group);
    }
}

impl fmt::Display for ParityGrp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "parity-grp {}", self.group)
    }
}

/// The number of data packets in a transmission group that is not full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrTgsize {
    /// Data packets in this group; at most the size of a full group.
    pub packet_count: u32,
}

impl<'a> Contents<'a> for CurrTgsize {
    const NAME: &'static str = "OPT_CURR_TGSIZE";
    const KIND: u8 = 0x0A;

    fn parse(reader: &mut Reader<'a>, _specific: u8) -> Result<Self, ParseError> {
        let packet_count = reader.u32()?;
        Ok(Self { packet_count })
    }

    fn value_len(&self) -> usize {
        4
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.u32(self.packet_count);
    }
}

impl fmt::Display for CurrTgsize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "curr-tgsize {}", self.packet_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_readings_swap_the_flags() {
        let offer = ParityPrm::new(true, false, 64, ParityReading::Rfc);
        assert_eq!(offer.flags, 0x02);
        assert!(offer.is_proactive(ParityReading::Rfc));
        assert!(!offer.is_on_demand(ParityReading::Rfc));
        assert!(offer.is_on_demand(ParityReading::OpenPgm));
        assert!(!offer.is_proactive(ParityReading::OpenPgm));
        assert!(offer.is_proactive(ParityReading::Lax) && offer.is_on_demand(ParityReading::Lax));
    }

    #[test]
    fn a_lax_offer_is_understood_by_both() {
        let offer = ParityPrm::new(false, true, 8, ParityReading::Lax);
        assert!(offer.is_on_demand(ParityReading::Rfc));
        assert!(offer.is_on_demand(ParityReading::OpenPgm));
        let none = ParityPrm::new(false, false, 8, ParityReading::Lax);
        assert!(!none.is_on_demand(ParityReading::Lax));
    }
}
