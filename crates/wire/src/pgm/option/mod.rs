//! Option extensions: the chain between body and data.
//!
//! ```text
//! +----+---+-------+   +---+------+--------+----------+---+-------+----------+-----------+
//! | 00 | 4 | total |   | E | type | length | reserved | F | OPX   | U | spec.| value ... | ...
//! +----+---+-------+   +---+------+--------+----------+---+-------+----------+-----------+
//!    OPT_LENGTH          bit 7      byte 1    0xF8      0x04 0x03    byte 3: U = 0x80
//! ```
//!
//! `total` counts OPT_LENGTH itself; E is set on the last option and on no other; at most 16
//! options follow OPT_LENGTH. Each option has a file of its own, except that small related options
//! share one.
//!
//! Deviation: F ("encoded") is 0x04 by the RFC, but OpenPGM sets 0x08; both are read as F. They are
//! read so only in data packets with parity: in options of other packets, OpenPGM leaves old memory
//! in the third byte.
//!
//! **Spec**: RFC 3208 section 9.

use std::fmt;

use super::{Flags, Header, PacketType};
use crate::{
    Fault, ParseError,
    cursor::{Reader, Writer},
};

mod back_off;
mod congestion;
mod fragment;
mod join;
#[cfg(test)]
mod kit;
mod mark;
mod nak_list;
mod packed;
mod parity;
mod path;
mod pgmcc;
mod reset;

pub use back_off::{NakBackOffInterval, NakBackOffRange};
pub use congestion::{Cr, Crqst, Loads};
pub use fragment::Fragment;
pub use join::Join;
pub use mark::{Mark, MarkTag, Profile, Refusal};
pub use nak_list::NakList;
pub use packed::Packed;
pub use parity::{CurrTgsize, ParityGrp, ParityPrm, ParityReading};
pub use path::{PathNla, Redirect};
pub use pgmcc::{Feedback, PgmccData};
pub use reset::Rst;

/// The interface of every option with contents; this file handles the chain itself.
trait Contents<'a>: Sized {
    /// The option's name in errors; the RFC's name where it has one.
    const NAME: &'static str;
    /// The type code.
    const KIND: u8;

    /// Reads the value; `specific` is the option's fourth byte without U.
    fn parse(reader: &mut Reader<'a>, specific: u8) -> Result<Self, ParseError>;
    /// Returns the length of the value in bytes.
    fn value_len(&self) -> usize;
    /// Writes the value.
    fn emit(&self, writer: &mut Writer<'_>);
    /// Returns the option's third byte.
    fn bits(&self) -> u8 {
        0
    }
    /// Returns the option's fourth byte.
    fn specific(&self) -> u8 {
        0
    }
}

macro_rules! options {
    (
        contents { $($variant:ident($($body:tt)+) $help:literal;)+ }
        bare { $($bare:ident $code:literal $name:literal $bare_help:literal;)+ }
    ) => {
        /// One option of a packet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum PgmOption<'a> {
            $(#[doc = $help] $variant($($body)+),)+
            $(#[doc = $bare_help] $bare,)+
            /// An option of a parity packet. It encodes the same option of the data packets, as the
            /// parity packet's payload encodes their payloads.
            Encoded(RawOption<'a>),
            /// An option that a network element neutralised (type 0x7F).
            Invalid(RawOption<'a>),
            /// An option that this end does not know.
            Unknown(RawOption<'a>),
        }

        impl<'a> PgmOption<'a> {
            /// Reads `raw`, whose value begins `base` bytes into the packet.
            fn parse(raw: RawOption<'a>, parity: bool, base: usize) -> Result<Self, ParseError> {
                if parity && raw.is_encoded() {
                    return Ok(Self::Encoded(raw));
                }
                match raw.kind {
                    <Mark as Contents<'_>>::KIND if !Mark::is_ours(raw.value) => {
                        Ok(Self::Unknown(raw))
                    }
                    <Packed as Contents<'_>>::KIND if !Packed::is_ours(raw.value) => {
                        Ok(Self::Unknown(raw))
                    }
                    $(<$($body)+>::KIND => raw.contents(base).map(Self::$variant),)+
                    $($code => raw.no_contents(base, $name).map(|()| Self::$bare),)+
                    RawOption::INVALID => Ok(Self::Invalid(raw)),
                    _ => Ok(Self::Unknown(raw)),
                }
            }

            /// Returns the type code, without the END bit.
            #[must_use]
            pub const fn kind(&self) -> u8 {
                match self {
                    $(Self::$variant(_) => <$($body)+>::KIND,)+
                    $(Self::$bare => $code,)+
                    Self::Encoded(raw) | Self::Invalid(raw) | Self::Unknown(raw) => raw.kind,
                }
            }

            fn value_len(&self) -> usize {
                match self {
                    $(Self::$variant(contents) => contents.value_len(),)+
                    $(Self::$bare => 0,)+
                    Self::Encoded(raw) | Self::Invalid(raw) | Self::Unknown(raw) => raw.value.len(),
                }
            }

            /// Returns the third and the fourth byte.
            fn bits(&self) -> (u8, u8) {
                match self {
                    $(Self::$variant(contents) => (contents.bits(), contents.specific()),)+
                    $(Self::$bare => (0, 0),)+
                    Self::Encoded(raw) | Self::Invalid(raw) | Self::Unknown(raw) => {
                        (raw.bits, raw.specific)
                    }
                }
            }

            fn emit_value(&self, writer: &mut Writer<'_>) {
                match self {
                    $(Self::$variant(contents) => contents.emit(writer),)+
                    $(Self::$bare => {})+
                    Self::Encoded(raw) | Self::Invalid(raw) | Self::Unknown(raw) => {
                        writer.put(raw.value);
                    }
                }
            }
        }

        impl fmt::Display for PgmOption<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant(contents) => contents.fmt(f),)+
                    $(Self::$bare => f.write_str($name),)+
                    Self::Encoded(raw) => write!(f, "encoded {raw}"),
                    Self::Invalid(raw) => write!(f, "invalidated {raw}"),
                    Self::Unknown(raw) => write!(f, "unknown {raw}"),
                }
            }
        }
    };
}

options! {
    contents {
        Fragment(Fragment) "OPT_FRAGMENT: this TSDU is a piece of a longer message.";
        NakList(NakList<'a>) "OPT_NAK_LIST: more sequence numbers of a NAK or NCF.";
        Join(Join) "OPT_JOIN: how far back a late joiner may ask.";
        NakBackOffInterval(NakBackOffInterval) "OPT_NAK_BO_IVL: the NAK back-off to use.";
        NakBackOffRange(NakBackOffRange) "OPT_NAK_BO_RNG: bounds of the NAK back-off.";
        Redirect(Redirect) "OPT_REDIRECT: a repairer to send NAKs to.";
        ParityPrm(ParityPrm) "OPT_PARITY_PRM: what parity the source offers.";
        ParityGrp(ParityGrp) "OPT_PARITY_GRP: which k of a group's parity packets.";
        CurrTgsize(CurrTgsize) "OPT_CURR_TGSIZE: the real size of a short group.";
        PathNla(PathNla) "OPT_PATH_NLA: the network element's interface.";
        Rst(Rst) "OPT_RST: the source breaks the session off.";
        Cr(Cr) "OPT_CR: a congestion report.";
        Crqst(Crqst) "OPT_CRQST: asks for congestion reports.";
        PgmccData(PgmccData) "PGMCC: the ACKer and a time stamp on data.";
        Feedback(Feedback) "PGMCC: what the ACKer reports.";
        Packed(Packed) "Our own option in data packets: several messages, each after its length.";
        Mark(Mark) "Our own option in SPMs: session profile, control port, rate.";
    }
    bare {
        NbrUnreach 0x0B "nbr-unreach" "OPT_NBR_UNREACH: the window in this SPM does not hold.";
        Syn 0x0D "syn" "OPT_SYN: the first data of the session.";
        Fin 0x0E "fin" "OPT_FIN: the session's data ends here.";
    }
}

impl PgmOption<'_> {
    /// Returns the length of the option on the wire, in bytes.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        RawOption::HEADER_LEN + self.value_len()
    }

    /// Returns true when network elements must look at this option in a packet of type `packet`.
    #[must_use]
    pub const fn is_network_significant(&self, packet: PacketType) -> bool {
        match self.kind() {
            0x02 | 0x04 | 0x05 | 0x07 | 0x08 | 0x0B | 0x0C | 0x10 | 0x11 => true,
            0x0A => !matches!(packet, PacketType::Odata),
            _ => false,
        }
    }

    /// Writes the option, with the END bit when it is the `last`.
    pub(super) fn emit(&self, last: bool, writer: &mut Writer<'_>) {
        let len = u8::try_from(self.wire_len()).expect("an option is at most 255 bytes long");
        let (bits, specific) = self.bits();
        let end = if last { RawOption::END } else { 0 };
        writer.put(&[self.kind() | end, len, bits, specific]);
        self.emit_value(writer);
    }
}

/// The bytes of an option, whatever they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawOption<'a> {
    /// The type code, without the END bit.
    pub kind: u8,
    /// The third byte: reserved bits, F, OPX.
    pub bits: u8,
    /// The fourth byte: U and seven bits that depend on the type.
    pub specific: u8,
    /// The bytes after the first four.
    pub value: &'a [u8],
}

impl<'a> RawOption<'a> {
    /// Length of what precedes the value, in bytes.
    pub const HEADER_LEN: usize = 4;
    /// The bit of the type byte that marks the last option.
    pub const END: u8 = 0x80;
    /// The type that a network element gives to an option that it must neutralise.
    pub const INVALID: u8 = 0x7F;
    /// The U bit of the fourth byte: the data packet had no such option.
    pub const ENCODED_NULL: u8 = 0x80;

    /// Returns true when F is set, at the RFC's bit or at OpenPGM's.
    #[must_use]
    pub const fn is_encoded(&self) -> bool {
        self.bits & 0x0C != 0
    }

    fn contents<T: Contents<'a>>(self, base: usize) -> Result<T, ParseError> {
        let mut reader = Reader::new(self.value, base, T::NAME, LENGTH_FIELD);
        let contents = T::parse(&mut reader, self.specific & !Self::ENCODED_NULL)?;
        match reader.rest() {
            [] => Ok(contents),
            _ => Err(self.wrong_length(base, T::NAME, reader.position())),
        }
    }

    fn no_contents(self, base: usize, name: &'static str) -> Result<(), ParseError> {
        match self.value {
            [] => Ok(()),
            _ => Err(self.wrong_length(base, name, 0)),
        }
    }

    const fn wrong_length(&self, base: usize, layer: &'static str, needed: usize) -> ParseError {
        ParseError {
            layer,
            offset: base - Self::HEADER_LEN,
            needed: Self::HEADER_LEN + needed,
            available: Self::HEADER_LEN + self.value.len(),
            limited_by: LENGTH_FIELD,
            what: Fault::Length,
        }
    }
}

impl fmt::Display for RawOption<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, len) = (self.kind, self.value.len());
        write!(f, "option {kind:#04x}, {len} bytes")?;
        if self.bits != 0 || self.specific != 0 {
            write!(f, ", bits {:#04x} {:#04x}", self.bits, self.specific)?;
        }
        Ok(())
    }
}

/// The options of one packet, in their order on the wire.
///
/// The iterator does not give OPT_LENGTH, which belongs to the framing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// The rest of the chain, after OPT_LENGTH.
    chain: &'a [u8],
    /// True in a data packet with parity, where F has its meaning.
    parity: bool,
}

impl<'a> Options<'a> {
    /// Length of the OPT_LENGTH that begins every chain, in bytes.
    pub(super) const LENGTH_LEN: usize = 4;

    /// Length of a chain that holds one OPT_FRAGMENT and nothing else, in bytes.
    pub(super) const LONE_FRAGMENT_LEN: usize = 20;

    /// Returns true when `bytes` begin with a lone OPT_FRAGMENT. The chain then needs no other
    /// check.
    #[inline]
    pub(super) const fn is_lone_fragment(bytes: &[u8]) -> bool {
        const END_FRAGMENT: u8 = 0x01 | RawOption::END;
        matches!(bytes, [0, 4, 0, 20, END_FRAGMENT, 16, ..]) && bytes.len() >= 20
    }

    /// Checks the whole chain at the start of `bytes`, which begin `base` bytes into the packet.
    ///
    /// Returns the length of the chain in bytes; the data begins behind it.
    pub(super) fn check(bytes: &[u8], header: &Header, base: usize) -> Result<usize, ParseError> {
        let total = chain_len(bytes, base)?;
        let mut walk = Walk {
            chain: &bytes[Self::LENGTH_LEN..total],
            base: base + Self::LENGTH_LEN,
            seen: 0,
        };
        let parity = has_parity_data(header);
        while let Some(raw) = walk.step()? {
            PgmOption::parse(raw, parity, walk.base - raw.value.len())?;
        }
        Ok(total)
    }

    /// Makes the list of the options in a checked `chain`, which begins behind OPT_LENGTH.
    #[inline]
    pub(super) const fn of(chain: &'a [u8], header: &Header) -> Self {
        Self {
            chain,
            parity: has_parity_data(header),
        }
    }

    /// Returns true when no option is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }

    /// Returns the options as bytes, without reading their values.
    pub fn raw(self) -> impl Iterator<Item = RawOption<'a>> {
        let mut rest = self.chain;
        std::iter::from_fn(move || {
            let (raw, tail) = split_option(rest)?;
            rest = tail;
            Some(raw)
        })
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = PgmOption<'a>;

    #[inline]
    fn next(&mut self) -> Option<PgmOption<'a>> {
        let (raw, rest) = split_option(self.chain)?;
        self.chain = rest;
        // The chain was checked, so reading cannot fail; if it did, the option would appear as
        // unknown.
        let option = PgmOption::parse(raw, self.parity, RawOption::HEADER_LEN);
        Some(option.unwrap_or(PgmOption::Unknown(raw)))
    }
}

/// A pass that checks each option of a chain.
struct Walk<'a> {
    chain: &'a [u8],
    base: usize,
    seen: usize,
}

impl<'a> Walk<'a> {
    /// Returns the next option, or `None` at the proper end of the chain.
    fn step(&mut self) -> Result<Option<RawOption<'a>>, ParseError> {
        let mut reader = Reader::new(self.chain, self.base, LAYER, TOTAL_FIELD);
        if self.chain.is_empty() {
            return Ok(None);
        }
        if self.seen == OPTIONS_MAX {
            let mut error = reader.fault(Fault::TooManyOptions);
            error.needed = OPTIONS_MAX;
            return Err(error);
        }
        let [kind, len, ..] = reader.take::<{ RawOption::HEADER_LEN }>()?;
        let Some((raw, rest)) = split_option(self.chain) else {
            return Err(self.bad_length(usize::from(len)));
        };
        if raw.kind == 0 {
            return Err(reader.fault(Fault::OptionOrder(kind)));
        }
        if (kind & RawOption::END != 0) != rest.is_empty() {
            return Err(reader.fault(Fault::OptionEnd));
        }
        self.base += self.chain.len() - rest.len();
        self.chain = rest;
        self.seen += 1;
        Ok(Some(raw))
    }

    const fn bad_length(&self, len: usize) -> ParseError {
        let too_small = len < RawOption::HEADER_LEN;
        ParseError {
            layer: LAYER,
            offset: self.base,
            needed: if too_small {
                RawOption::HEADER_LEN
            } else {
                len
            },
            available: if too_small { len } else { self.chain.len() },
            limited_by: if too_small { LENGTH_FIELD } else { TOTAL_FIELD },
            what: if too_small {
                Fault::Length
            } else {
                Fault::Truncated
            },
        }
    }
}

const fn has_parity_data(header: &Header) -> bool {
    header.kind.is_data() && header.flags.contains(Flags::PARITY)
}

/// Splits off the first option; `None` when there is none or its length does not fit.
#[inline]
fn split_option(chain: &[u8]) -> Option<(RawOption<'_>, &[u8])> {
    let [kind, len, bits, specific, ..] = *chain else {
        return None;
    };
    let value = chain.get(RawOption::HEADER_LEN..usize::from(len))?;
    let raw = RawOption {
        kind: kind & !RawOption::END,
        bits,
        specific,
        value,
    };
    Some((raw, &chain[usize::from(len)..]))
}

/// Reads OPT_LENGTH and returns the length of the whole chain in bytes, OPT_LENGTH included.
fn chain_len(bytes: &[u8], base: usize) -> Result<usize, ParseError> {
    let mut reader = Reader::new(bytes, base, "OPT_LENGTH", "the packet's end");
    let first = reader;
    let [kind, len] = reader.take()?;
    let total = usize::from(reader.u16()?);
    if kind & !RawOption::END != 0 {
        return Err(first.fault(Fault::OptionOrder(kind)));
    }
    let wrong = |needed, available, limited_by, what| ParseError {
        layer: "OPT_LENGTH",
        offset: base,
        needed,
        available,
        limited_by,
        what,
    };
    if usize::from(len) != Options::LENGTH_LEN {
        return Err(wrong(4, usize::from(len), LENGTH_FIELD, Fault::Length));
    }
    if total < Options::LENGTH_LEN {
        return Err(wrong(4, total, TOTAL_FIELD, Fault::Length));
    }
    if total > bytes.len() {
        let end = "the packet's end";
        return Err(wrong(total, bytes.len(), end, Fault::Truncated));
    }
    if (kind & RawOption::END != 0) != (total == Options::LENGTH_LEN) {
        return Err(first.fault(Fault::OptionEnd));
    }
    Ok(total)
}

/// The most options in one packet, not counting OPT_LENGTH.
pub const OPTIONS_MAX: usize = 16;

const LAYER: &str = "PGM option";
const LENGTH_FIELD: &str = "the option's length field";
const TOTAL_FIELD: &str = "OPT_LENGTH's total";
