//! Classic pcap files: a header of 24 bytes, then records, each a header of 16 bytes and a packet.
//!
//! ```text
//! | magic | major minor | zone | sigfigs | snaplen | linktype |
//! | seconds | fraction | captured | on the wire | data ... |  and so on
//! ```
//! This code reads both byte orders, stamps in micro- or nanoseconds, and the longer records of
//! Kuznetzov's variant. It writes records in little-endian order with stamps in nanoseconds.
//!
//! **Spec**: draft-ietf-opsawg-pcap.

use crate::{
    pcapng::{Block, Options},
    trace_file::{Damage, RECORD_LEN_MAX, Record, Step},
};

/// A reader of classic files.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    header: Option<Header>,
}

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// True when the most significant byte comes first.
    pub is_big_endian: bool,
    /// Nanoseconds in one unit of a stamp's fraction: 1 or 1,000.
    pub nanos_per_unit: u32,
    /// Bytes of a record's header: 16, or 24 in Kuznetzov's variant.
    pub record_header_len: u8,
    /// The link type (`LINKTYPE_*`) of all packets.
    pub link_type: u16,
    /// The most bytes that the file keeps of a packet.
    pub snap_len: u32,
}

impl Decoder {
    /// Makes a decoder at the beginning of a file.
    #[must_use]
    pub const fn new() -> Self {
        Self { header: None }
    }

    /// Reads the next part of the file: see
    /// [`TraceDecoder::step`](crate::trace_file::TraceDecoder::step). The header comes as the block
    /// [`Block::Pcap`].
    #[inline]
    pub fn step<'a>(&mut self, bytes: &'a [u8]) -> (usize, Step<'a>) {
        let Some(header) = &self.header else {
            return self.begin(bytes);
        };
        match header.record(bytes) {
            Ok((len, record)) => (len, Step::Packet(record)),
            Err(step) => (0, step),
        }
    }

    /// Returns the packet that `bytes` begin with, and the length of its record.
    #[inline]
    pub(crate) fn next_packet<'a>(&self, bytes: &'a [u8]) -> Option<(usize, Record<'a>)> {
        self.header.as_ref()?.record(bytes).ok()
    }

    /// Returns the file's header, once a step has read it.
    #[must_use]
    pub const fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    fn begin<'a>(&mut self, bytes: &'a [u8]) -> (usize, Step<'a>) {
        let Some(fixed) = bytes.first_chunk::<FILE_HEADER_LEN>() else {
            return (0, Step::More(FILE_HEADER_LEN));
        };
        match Header::parse(fixed) {
            Ok(header) => {
                self.header = Some(header);
                (FILE_HEADER_LEN, Step::Block(Block::Pcap(header)))
            }
            Err(damage) => (0, Step::Lost(damage)),
        }
    }
}

impl Header {
    /// Makes a header for files with stamps in nanoseconds.
    #[must_use]
    pub const fn new(link_type: u16, snap_len: u32) -> Self {
        Self {
            is_big_endian: false,
            nanos_per_unit: 1,
            record_header_len: 16,
            link_type,
            snap_len,
        }
    }

    /// Returns the record that `bytes` begin with, and its length; or says why there is no record.
    #[inline]
    fn record<'a>(&self, bytes: &'a [u8]) -> Result<(usize, Record<'a>), Step<'a>> {
        let header_len = usize::from(self.record_header_len);
        let Some(fixed) = bytes.first_chunk::<16>() else {
            return Err(Step::More(header_len));
        };
        let word = |at: usize| {
            let word = [fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]];
            if self.is_big_endian {
                u32::from_be_bytes(word)
            } else {
                u32::from_le_bytes(word)
            }
        };
        let captured = word(8) as usize;
        if captured > RECORD_LEN_MAX {
            return Err(Step::Lost(Damage::RecordLength(word(8))));
        }
        let len = header_len + captured;
        let Some(data) = bytes.get(header_len..len) else {
            return Err(Step::More(len));
        };
        let fraction_ns = u64::from(word(4)) * u64::from(self.nanos_per_unit);
        let record = Record {
            interface: 0,
            link_type: self.link_type,
            stamp_ns: Some(u64::from(word(0)) * 1_000_000_000 + fraction_ns),
            wire_len: word(12),
            data,
            options: Options::empty(),
        };
        Ok((len, record))
    }

    fn parse(bytes: &[u8; FILE_HEADER_LEN]) -> Result<Self, Damage> {
        let first = [bytes[0], bytes[1], bytes[2], bytes[3]];
        let (is_big_endian, magic) = if is_little_endian_magic(first) {
            (false, u32::from_le_bytes(first))
        } else {
            (true, u32::from_be_bytes(first))
        };
        let (nanos_per_unit, record_header_len) = match magic {
            MICROS => (1_000, 16),
            NANOS => (1, 16),
            KUZNETZOV => (1_000, 24),
            _ => return Err(Damage::Magic(u32::from_be_bytes(first))),
        };
        let word = |at: usize| {
            let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            if is_big_endian {
                u32::from_be_bytes(word)
            } else {
                u32::from_le_bytes(word)
            }
        };
        Ok(Self {
            is_big_endian,
            nanos_per_unit,
            record_header_len,
            // The upper half says whether packets end with a frame check sequence.
            link_type: word(20) as u16,
            snap_len: word(16),
        })
    }

    /// Appends the header of a file, little-endian.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let magic = match (self.nanos_per_unit, self.record_header_len) {
            (1, _) => NANOS,
            (_, 24) => KUZNETZOV,
            _ => MICROS,
        };
        out.extend_from_slice(&magic.to_le_bytes());
        out.extend_from_slice(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&self.snap_len.to_le_bytes());
        out.extend_from_slice(&u32::from(self.link_type).to_le_bytes());
    }
}

/// Appends one record to a file whose header [`Header::new`] made.
#[inline]
pub fn emit_record(out: &mut Vec<u8>, stamp_ns: u64, wire_len: u32, data: &[u8]) {
    let mut head = [0; 16];
    // The format has 32 bits for seconds, which last until 2106.
    let seconds = (stamp_ns / 1_000_000_000) as u32;
    let nanos = (stamp_ns % 1_000_000_000) as u32;
    let words = [seconds, nanos, data.len() as u32, wire_len];
    for (place, word) in head.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    out.extend_from_slice(&head);
    out.extend_from_slice(data);
}

/// Returns true when a classic file begins with these bytes.
#[must_use]
pub const fn is_magic(first: [u8; 4]) -> bool {
    is_little_endian_magic(first) || matches!(u32::from_be_bytes(first), MICROS | NANOS | KUZNETZOV)
}

const fn is_little_endian_magic(first: [u8; 4]) -> bool {
    matches!(u32::from_le_bytes(first), MICROS | NANOS | KUZNETZOV)
}

const FILE_HEADER_LEN: usize = 24;
const MICROS: u32 = 0xa1b2_c3d4;
const NANOS: u32 = 0xa1b2_3c4d;
const KUZNETZOV: u32 = 0xa1b2_cd34;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(is_big_endian: bool, words: &[u32]) -> Vec<u8> {
        let bytes = |word: &u32| {
            if is_big_endian {
                word.to_be_bytes()
            } else {
                word.to_le_bytes()
            }
        };
        words.iter().flat_map(bytes).collect()
    }

    #[test]
    fn both_orders_and_all_three_kinds_are_read() {
        for is_big_endian in [false, true] {
            for (magic, unit, extra) in [(MICROS, 1_000, 0), (NANOS, 1, 0), (KUZNETZOV, 1_000, 8)] {
                let mut file = words(is_big_endian, &[magic]);
                let version = if is_big_endian {
                    [0, 2, 0, 4]
                } else {
                    [2, 0, 4, 0]
                };
                file.extend(version);
                file.extend(words(is_big_endian, &[0, 0, 65_535, 0x1000_0001]));
                file.extend(words(is_big_endian, &[7, 9, 3, 60]));
                file.extend(vec![0xee; extra]);
                file.extend(b"abc");
                let mut decoder = Decoder::new();
                let (taken, step) = decoder.step(&file);
                assert!(matches!(step, Step::Block(Block::Pcap(_))));
                let (record_len, step) = decoder.step(&file[taken..]);
                let Step::Packet(record) = step else {
                    panic!("{step:?}");
                };
                assert_eq!(taken + record_len, file.len());
                assert_eq!(record.stamp_ns, Some(7_000_000_000 + 9 * unit));
                assert_eq!((record.wire_len, record.data), (60, &b"abc"[..]));
                assert_eq!(record.link_type, 1);
            }
        }
    }

    #[test]
    fn a_length_beyond_reason_ends_the_reading() {
        let mut file = Vec::new();
        Header::new(1, 65_535).emit(&mut file);
        file.extend(words(false, &[0, 0, u32::MAX, 60]));
        let mut decoder = Decoder::new();
        let (taken, _) = decoder.step(&file);
        let (_, step) = decoder.step(&file[taken..]);
        assert_eq!(step, Step::Lost(Damage::RecordLength(u32::MAX)));
    }
}
