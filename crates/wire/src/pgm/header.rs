//! The common header: the first 16 bytes of every PGM packet.
//!
//! ```text
//!  0             2                4      5       6          8        14            16
//! +-------------+----------------+------+-------+----------+--------+-------------+
//! | source port | destination p. | type | flags | checksum |  GSI   | TSDU length |
//! +-------------+----------------+------+-------+----------+--------+-------------+
//! ```
//!
//! **Spec**: RFC 3208 section 8. Deviation: the RFC numbers the flag bits from the left, but all
//! implementations number them from the right; [`Flags`] does so, too.

use std::{
    fmt,
    ops::{BitOr, BitOrAssign},
};

use super::{Gsi, Tsi};
use crate::{Fault, ParseError, cursor::Writer};

/// The common header of a PGM packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Data-source port downstream, data-destination port upstream.
    pub source_port: u16,
    /// Data-destination port downstream, data-source port upstream.
    pub destination_port: u16,
    /// The type of the packet.
    pub kind: PacketType,
    /// Flags: presence and significance of options, parity.
    pub flags: Flags,
    /// The checksum as on the wire; 0 when the sender made no checksum.
    pub checksum: u16,
    /// The data source's identifier, in both directions.
    pub gsi: Gsi,
    /// Length of the data after header and options, in bytes.
    pub tsdu_len: u16,
}

impl Header {
    /// Length of the header in bytes.
    pub const LEN: usize = 16;
    /// Offset of the checksum.
    pub const CHECKSUM_AT: usize = 6;
    /// Offset of the type, which a repair changes from ODATA to RDATA.
    pub const TYPE_AT: usize = 4;

    /// Reads the header at the beginning of `tpdu`.
    ///
    /// **Errors**: fewer than 16 bytes; a version other than 0 or reserved type bits; an unknown
    /// type.
    #[inline]
    pub fn parse(tpdu: &[u8]) -> Result<Self, ParseError> {
        let Some(bytes) = tpdu.first_chunk::<{ Self::LEN }>() else {
            return Err(too_short(tpdu.len()));
        };
        let [s0, s1, d0, d1, kind, flags, c0, c1, gsi @ .., l0, l1] = *bytes;
        Ok(Self {
            source_port: u16::from_be_bytes([s0, s1]),
            destination_port: u16::from_be_bytes([d0, d1]),
            kind: PacketType::parse(kind)?,
            flags: Flags(flags),
            checksum: u16::from_be_bytes([c0, c1]),
            gsi: Gsi(gsi),
            tsdu_len: u16::from_be_bytes([l0, l1]),
        })
    }

    /// Writes the header with the checksum that it holds; computes none.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        self.write(&mut Writer::new(out));
    }

    #[inline]
    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        writer.u16(self.source_port);
        writer.u16(self.destination_port);
        writer.u8(self.kind.code());
        writer.u8(self.flags.0);
        writer.u16(self.checksum);
        writer.put(&self.gsi.0);
        writer.u16(self.tsdu_len);
    }

    /// Returns the sum of the header's 16-bit words, including the checksum field.
    #[inline]
    pub(super) const fn word_sum(&self) -> u32 {
        let [a, b, c, d, e, f] = self.gsi.0;
        word(self.kind.code(), self.flags.0)
            + word(a, b)
            + word(c, d)
            + word(e, f)
            + self.source_port as u32
            + self.destination_port as u32
            + self.checksum as u32
            + self.tsdu_len as u32
    }

    /// Returns the session of a packet that travels from the source to the receivers.
    #[inline]
    #[must_use]
    pub const fn tsi(&self) -> Tsi {
        Tsi {
            gsi: self.gsi,
            port: self.source_port,
        }
    }

    /// Returns the session of a packet that travels from a receiver to the source: the ports are
    /// swapped.
    #[inline]
    #[must_use]
    pub const fn upstream_tsi(&self) -> Tsi {
        Tsi {
            gsi: self.gsi,
            port: self.destination_port,
        }
    }

    /// Returns the session, read in the direction in which packets of this type travel.
    #[inline]
    #[must_use]
    pub const fn session(&self) -> Tsi {
        if self.kind.is_upstream() {
            self.upstream_tsi()
        } else {
            self.tsi()
        }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, gsi) = (self.kind.name(), self.gsi);
        let (from, to) = (self.source_port, self.destination_port);
        write!(f, "{name} {gsi} {from} > {to}{}", self.flags)
    }
}

const fn word(high: u8, low: u8) -> u32 {
    u16::from_be_bytes([high, low]) as u32
}

#[cold]
const fn too_short(available: usize) -> ParseError {
    ParseError {
        layer: LAYER,
        offset: 0,
        needed: Header::LEN,
        available,
        limited_by: "the packet's end",
        what: Fault::Truncated,
    }
}

macro_rules! packet_types {
    ($($variant:ident $code:literal $name:literal $help:literal;)+) => {
        /// The type of a PGM packet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum PacketType { $(#[doc = $help] $variant = $code,)+ }

        impl PacketType {
            /// Every type, in the order of their codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the type's name as the RFC writes it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            #[inline]
            const fn of(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

packet_types! {
    Spm 0x00 "SPM" "Source path message: the window, and the way for NAKs. Downstream.";
    Poll 0x01 "POLL" "Asks neighbours to reply, to count them. Downstream.";
    Polr 0x02 "POLR" "A reply to POLL. Upstream.";
    Odata 0x04 "ODATA" "Data for the first time. Downstream.";
    Rdata 0x05 "RDATA" "Data again, as a repair. Downstream.";
    Nak 0x08 "NAK" "A receiver misses data. Upstream.";
    Nnak 0x09 "NNAK" "A repairer tells the source what it repaired. Upstream.";
    Ncf 0x0A "NCF" "Confirms a NAK to the whole group. Downstream.";
    Spmr 0x0C "SPMR" "Asks the source for an SPM. Upstream.";
    Ack 0x0D "ACK" "PGMCC feedback; not in the RFC. Upstream.";
}

impl PacketType {
    /// Returns the type's code on the wire.
    #[inline]
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns true for packets that travel from receivers towards the source. Their ports are
    /// swapped.
    #[inline]
    #[must_use]
    pub const fn is_upstream(self) -> bool {
        matches!(
            self,
            Self::Polr | Self::Nak | Self::Nnak | Self::Spmr | Self::Ack
        )
    }

    /// Returns true for ODATA and RDATA: the types that carry a TSDU and must carry a checksum.
    #[inline]
    #[must_use]
    pub const fn is_data(self) -> bool {
        matches!(self, Self::Odata | Self::Rdata)
    }

    /// Returns true for the types that network elements on the way shall look at: over raw IP they
    /// have the Router Alert option.
    ///
    /// **Spec**: RFC 3208 sections 4, 8 and 14.7.1.
    #[inline]
    #[must_use]
    pub const fn has_router_alert(self) -> bool {
        matches!(self, Self::Spm | Self::Poll | Self::Rdata | Self::Ncf)
    }

    /// Returns the type of a packet and checks nothing else. `None` when the packet ends before its
    /// type, or the type is unknown.
    #[inline]
    #[must_use]
    pub fn of_packet(packet: &[u8]) -> Option<Self> {
        Self::of(*packet.get(Header::TYPE_AT)?)
    }

    #[inline]
    fn parse(byte: u8) -> Result<Self, ParseError> {
        Self::of(byte).ok_or_else(|| unknown(byte))
    }
}

#[cold]
const fn unknown(byte: u8) -> ParseError {
    ParseError {
        layer: LAYER,
        offset: Header::TYPE_AT,
        needed: 1,
        available: 1,
        limited_by: "the type field",
        what: if byte & 0xF0 == 0 {
            Fault::UnknownType(byte)
        } else {
            Fault::Version(byte)
        },
    }
}

impl fmt::Display for PacketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The flags byte of the common header. Bits are numbered as all implementations number them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// No flag set.
    pub const NONE: Self = Self(0);
    /// Options follow the body.
    pub const PRESENT: Self = Self(0x01);
    /// At least one option concerns network elements.
    pub const NETWORK: Self = Self(0x02);
    /// A parity packet over data of several lengths; set only together with [`Flags::PARITY`].
    pub const VAR_PKTLEN: Self = Self(0x40);
    /// A parity packet, or a NAK or NCF that counts packets of a transmission group.
    pub const PARITY: Self = Self(0x80);

    /// Returns true when every flag of `other` is set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns these flags and those of `other`.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns these flags without those of `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.with(other);
    }
}

impl fmt::Display for Flags {
    /// Writes all flags except PRESENT, which the options show: network, parity, and bits without a
    /// meaning.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::NETWORK, " network"),
            (Self::PARITY, " parity"),
            (Self::VAR_PKTLEN, " var-pktlen"),
        ];
        for (flag, name) in names {
            if self.contains(flag) {
                f.write_str(name)?;
            }
        }
        match self.0 & 0x3C {
            0 => Ok(()),
            odd => write!(f, " flags {odd:#04x}"),
        }
    }
}

const LAYER: &str = "PGM header";

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 16] = [
        0x12, 0x34, 0x1d, 0x4c, 0x04, 0x81, 0xab, 0xcd, 1, 2, 3, 4, 5, 6, 0x05, 0xa8,
    ];

    #[test]
    fn fields_lie_where_the_layout_says() {
        let header = Header::parse(&BYTES).unwrap();
        assert_eq!(
            (header.source_port, header.destination_port),
            (0x1234, 7500)
        );
        assert_eq!(header.kind, PacketType::Odata);
        assert_eq!(header.flags, Flags::PARITY | Flags::PRESENT);
        assert_eq!((header.checksum, header.tsdu_len), (0xabcd, 1448));
        assert_eq!(header.tsi().to_string(), "1.2.3.4.5.6.4660");
        assert_eq!(header.upstream_tsi().port, 7500);
        let mut out = [0; 16];
        header.emit(&mut out);
        assert_eq!(out, BYTES);
    }

    #[test]
    fn versions_and_types_other_than_ours_are_refused() {
        for byte in 0..=255_u8 {
            let mut bytes = BYTES;
            bytes[Header::TYPE_AT] = byte;
            let known = [0, 1, 2, 4, 5, 8, 9, 10, 12, 13].contains(&byte);
            let parsed = Header::parse(&bytes);
            assert_eq!(parsed.is_ok(), known, "type byte {byte:#04x}");
            match parsed {
                Ok(header) => assert_eq!(header.kind.code(), byte),
                Err(error) if byte < 16 => assert_eq!(error.what, Fault::UnknownType(byte)),
                Err(error) => assert_eq!(error.what, Fault::Version(byte)),
            }
        }
    }

    #[test]
    fn upstream_types_read_the_session_from_the_destination_port() {
        let upstream: Vec<_> = PacketType::ALL
            .iter()
            .filter(|kind| kind.is_upstream())
            .map(|kind| kind.name())
            .collect();
        assert_eq!(upstream, ["POLR", "NAK", "NNAK", "SPMR", "ACK"]);
        let mut header = Header::parse(&BYTES).unwrap();
        assert_eq!(header.session(), header.tsi());
        header.kind = PacketType::Nak;
        assert_eq!(header.session(), header.upstream_tsi());
    }
}
