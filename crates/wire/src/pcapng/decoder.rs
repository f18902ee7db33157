//! The reader of pcapng files.

use super::{
    Block, CUSTOM, INTERFACE, INTERFACES_MAX, Interface, ORDER, Options, PACKET, PACKET_OBSOLETE,
    PACKET_SIMPLE, SECTION, STATISTICS, Section, Statistics,
};
use crate::{
    Fault, ParseError,
    trace_file::{Damage, RECORD_LEN_MAX, Record, Step},
};

/// A reader of pcapng files.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    is_big_endian: bool,
    has_begun: bool,
    /// Number of interfaces in earlier sections.
    earlier: u32,
    interfaces: Vec<Described>,
}

/// What the decoder keeps of an interface.
#[derive(Clone, Copy, Debug)]
struct Described {
    link_type: u16,
    snap_len: u32,
    scale: Scale,
    offset_seconds: i64,
}

/// The conversion of stamps to nanoseconds.
#[derive(Clone, Copy, Debug)]
enum Scale {
    Multiply(u64),
    Divide(u64),
    /// Units of 2^-n seconds.
    Binary(u8),
}

impl Decoder {
    /// Makes a decoder at the beginning of a file.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            is_big_endian: false,
            has_begun: false,
            earlier: 0,
            interfaces: Vec::new(),
        }
    }

    /// Reads the next part of the file: see
    /// [`TraceDecoder::step`](crate::trace_file::TraceDecoder::step).
    #[inline]
    pub fn step<'a>(&mut self, bytes: &'a [u8]) -> (usize, Step<'a>) {
        let Some(head) = bytes.first_chunk::<8>() else {
            return (0, Step::More(BLOCK_LEN_MIN));
        };
        let is_section = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) == SECTION;
        if is_section {
            let Some(order) = bytes.get(8..).and_then(<[u8]>::first_chunk::<4>) else {
                return (0, Step::More(BLOCK_LEN_MIN));
            };
            self.is_big_endian = match u32::from_le_bytes(*order) {
                ORDER => false,
                word if word.swap_bytes() == ORDER => true,
                word => return (0, Step::Lost(Damage::Magic(word))),
            };
            self.has_begun = true;
        } else if !self.has_begun {
            let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
            return (0, Step::Lost(Damage::Magic(word)));
        }
        let len = self.word(head, 4);
        let size = len as usize;
        if !is_block_len(size) {
            return (0, Step::Lost(Damage::BlockLength(len)));
        }
        let Some(block) = bytes.get(..size) else {
            return (0, Step::More(size));
        };
        let last = self.word(block, size - 4);
        if last != len {
            return (size, Step::Damaged(Damage::BlockEnd { first: len, last }));
        }
        let body = &block[BLOCK_HEAD_LEN..size - 4];
        let step = match self.word(head, 0) {
            PACKET => self.packet(body),
            kind => self.other(kind, body),
        };
        (size, step.unwrap_or_else(Step::Damaged))
    }

    /// Returns the packet that `bytes` begin with, and the length of its block. Handles only
    /// enhanced packet blocks, the common kind; `None` for other blocks, and for a block that is
    /// damaged or not whole.
    #[inline]
    pub(crate) fn next_packet<'a>(&self, bytes: &'a [u8]) -> Option<(usize, Record<'a>)> {
        let head = bytes.first_chunk::<8>()?;
        if self.word(head, 0) != PACKET {
            return None;
        }
        let size = self.word(head, 4) as usize;
        if !is_block_len(size) {
            return None;
        }
        let block = bytes.get(..size)?;
        if self.word(block, size - 4) as usize != size {
            return None;
        }
        match self.packet(&block[BLOCK_HEAD_LEN..size - 4]) {
            Ok(Step::Packet(record)) => Some((size, record)),
            _ => None,
        }
    }

    /// Reads an enhanced packet: interface, stamp in two halves, lengths, data, options.
    #[inline]
    fn packet<'a>(&self, body: &'a [u8]) -> Result<Step<'a>, Damage> {
        let (fixed, rest) = split("enhanced packet block", body, 20)?;
        let id = self.word(fixed, 0);
        self.record(id, fixed, 4, rest)
    }

    /// Reads a packet whose stamp and lengths stand at `at`.
    #[inline]
    fn record<'a>(
        &self,
        id: u32,
        fixed: &[u8],
        at: usize,
        rest: &'a [u8],
    ) -> Result<Step<'a>, Damage> {
        let described = self.interface(id)?;
        let ticks = u64::from(self.word(fixed, at)) << 32 | u64::from(self.word(fixed, at + 4));
        let captured = self.word(fixed, at + 8) as usize;
        let padded = captured.next_multiple_of(4);
        let Some(data) = rest.get(..captured) else {
            let at = BLOCK_HEAD_LEN + fixed.len();
            return Err(short("captured bytes", at, captured, rest.len()));
        };
        let options = rest.get(padded..).unwrap_or_default();
        Ok(Step::Packet(Record {
            interface: self.earlier + id,
            link_type: described.link_type,
            stamp_ns: Some(described.nanos(ticks)),
            wire_len: self.word(fixed, at + 12),
            data,
            options: Options::new(options, self.is_big_endian),
        }))
    }

    #[cold]
    fn other<'a>(&mut self, kind: u32, body: &'a [u8]) -> Result<Step<'a>, Damage> {
        match kind {
            SECTION => self.section(body),
            INTERFACE => self.describe(body),
            PACKET_OBSOLETE => {
                let (fixed, rest) = split("packet block", body, 20)?;
                let id = self.half(fixed, 0);
                self.record(u32::from(id), fixed, 4, rest)
            }
            PACKET_SIMPLE => self.simple(body),
            STATISTICS => {
                let (fixed, options) = split("interface statistics block", body, 12)?;
                let id = self.word(fixed, 0);
                let described = self.interface(id)?;
                let ticks = u64::from(self.word(fixed, 4)) << 32 | u64::from(self.word(fixed, 8));
                Ok(Step::Block(Block::Statistics(Statistics {
                    interface: self.earlier + id,
                    stamp_ns: described.nanos(ticks),
                    options: Options::new(options, self.is_big_endian),
                })))
            }
            kind => {
                if kind & !UNCOPIED == CUSTOM {
                    split("custom block", body, 4)?;
                }
                Ok(Step::Block(Block::Other {
                    kind,
                    body,
                    is_big_endian: self.is_big_endian,
                }))
            }
        }
    }

    fn section<'a>(&mut self, body: &'a [u8]) -> Result<Step<'a>, Damage> {
        let (fixed, options) = split("section header block", body, 16)?;
        self.earlier += self.interfaces.len() as u32;
        self.interfaces.clear();
        let parts = (self.word(fixed, 8), self.word(fixed, 12));
        let (high, low) = if self.is_big_endian {
            parts
        } else {
            (parts.1, parts.0)
        };
        let len = u64::from(high) << 32 | u64::from(low);
        Ok(Step::Block(Block::Section(Section {
            is_big_endian: self.is_big_endian,
            version: (self.half(fixed, 4), self.half(fixed, 6)),
            len: (len != u64::MAX).then_some(len),
            options: Options::new(options, self.is_big_endian),
        })))
    }

    fn describe<'a>(&mut self, body: &'a [u8]) -> Result<Step<'a>, Damage> {
        let (fixed, options) = split("interface description block", body, 8)?;
        if self.earlier as usize + self.interfaces.len() >= INTERFACES_MAX {
            return Err(Damage::TooManyInterfaces);
        }
        let options = Options::new(options, self.is_big_endian);
        let resolution = options.find(super::IF_RESOLUTION);
        let resolution = resolution.and_then(|option| option.value.first().copied());
        let offset = options
            .find(super::IF_OFFSET)
            .and_then(|option| option.u64());
        let described = Described {
            link_type: self.half(fixed, 0),
            snap_len: self.word(fixed, 4),
            scale: Scale::new(resolution.unwrap_or(MICROSECONDS)),
            offset_seconds: offset.unwrap_or(0).cast_signed(),
        };
        let index = self.earlier + self.interfaces.len() as u32;
        self.interfaces.push(described);
        Ok(Step::Block(Block::Interface(Interface {
            index,
            link_type: described.link_type,
            snap_len: described.snap_len,
            options,
        })))
    }

    /// Reads a simple packet block: a packet of the first interface, without a stamp, cut to the
    /// snap length.
    fn simple<'a>(&self, body: &'a [u8]) -> Result<Step<'a>, Damage> {
        let (fixed, rest) = split("simple packet block", body, 4)?;
        let described = self.interface(0)?;
        let wire_len = self.word(fixed, 0);
        let limit = match described.snap_len {
            0 => u32::MAX,
            limit => limit,
        };
        let captured = wire_len.min(limit) as usize;
        // When a writer cut the packet without naming a snap length, `wire_len` and `captured` are
        // more than the bytes that are there.
        let data = &rest[..captured.min(rest.len())];
        Ok(Step::Packet(Record {
            interface: self.earlier,
            link_type: described.link_type,
            stamp_ns: None,
            wire_len,
            data,
            options: Options::empty(),
        }))
    }

    #[inline]
    fn interface(&self, id: u32) -> Result<&Described, Damage> {
        let found = self.interfaces.get(id as usize);
        found.ok_or(Damage::Interface(id))
    }

    #[inline]
    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.is_big_endian {
            u32::from_be_bytes(word)
        } else {
            u32::from_le_bytes(word)
        }
    }

    fn half(&self, bytes: &[u8], at: usize) -> u16 {
        let half = [bytes[at], bytes[at + 1]];
        if self.is_big_endian {
            u16::from_be_bytes(half)
        } else {
            u16::from_le_bytes(half)
        }
    }
}

impl Described {
    /// Converts a stamp to nanoseconds since 1970; saturates at both ends of 64 bits.
    #[inline]
    fn nanos(&self, ticks: u64) -> u64 {
        let ns = match self.scale {
            Scale::Multiply(1) if self.offset_seconds == 0 => return ticks,
            Scale::Multiply(by) => u128::from(ticks) * u128::from(by),
            Scale::Divide(by) => u128::from(ticks / by),
            Scale::Binary(bits) => (u128::from(ticks) * 1_000_000_000) >> bits,
        };
        let offset_ns = i128::from(self.offset_seconds) * 1_000_000_000;
        let ns = (ns.cast_signed() + offset_ns).max(0);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// Splits a block's body into its first `len` bytes and the rest.
#[inline]
fn split<'a>(
    layer: &'static str,
    body: &'a [u8],
    len: usize,
) -> Result<(&'a [u8], &'a [u8]), Damage> {
    let parts = body.split_at_checked(len);
    parts.ok_or_else(|| short(layer, BLOCK_HEAD_LEN, len, body.len()))
}

/// Makes the [`Damage`] for a block that ends before its contents do.
#[cold]
const fn short(layer: &'static str, offset: usize, needed: usize, available: usize) -> Damage {
    Damage::BlockContents(ParseError {
        layer,
        offset,
        needed,
        available,
        limited_by: "the block's length",
        what: Fault::Truncated,
    })
}

fn is_block_len(size: usize) -> bool {
    (BLOCK_LEN_MIN..=RECORD_LEN_MAX).contains(&size) && size.is_multiple_of(4)
}

impl Scale {
    /// Makes the scale from the option's byte: the unit is a power of ten, or of two when the
    /// highest bit is set.
    const fn new(resolution: u8) -> Self {
        let exponent = resolution & 0x7F;
        match (resolution & 0x80 != 0, exponent) {
            (true, bits) => Self::Binary(bits),
            (false, 0..=9) => Self::Multiply(10_u64.pow(9 - exponent as u32)),
            (false, 10..=28) => Self::Divide(10_u64.pow(exponent as u32 - 9)),
            // The unit is so fine that no 64-bit count of it reaches a nanosecond.
            (false, _) => Self::Multiply(0),
        }
    }
}

/// Length of the shortest block in bytes: its type and its two lengths.
pub(crate) const BLOCK_LEN_MIN: usize = 12;
/// Length of a block's head, which precedes the body, in bytes.
const BLOCK_HEAD_LEN: usize = 8;
/// Resolution of stamps when the file names none.
const MICROSECONDS: u8 = 6;
/// The bit that the types of custom blocks have when the blocks must not be copied.
const UNCOPIED: u32 = 0x4000_0000;
