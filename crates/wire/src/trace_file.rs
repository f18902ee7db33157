//! Files of captured packets in either of two formats, pcap and pcapng.
//!
//! [`TraceDecoder`] is a pull parser over bytes that its caller reads. The caller shows it the
//! bytes that follow those already taken; the decoder answers with one [`Step`] and the number of
//! bytes that it took. It keeps no data, only a few words of memory for each interface of the file.
//!
//! ```text
//! read more --> | ... unread bytes ... |  --step--> (taken, Packet|Block|More|Damaged|Lost)
//! ```
//! Invariants: a step takes at least one byte, asks for more bytes, or says that the rest is lost.
//! It never takes more bytes than it was shown. From a file that was cut, the decoder gives the
//! records before the cut, then asks for more.

use std::{fmt, ops::ControlFlow};

use crate::{
    ParseError, pcap,
    pcapng::{self, Block, Options},
};

/// One captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Number of the interface that saw the packet, from 0, counted through all sections of the
    /// file.
    pub interface: u32,
    /// The packet's link type (`LINKTYPE_*`): 1 is Ethernet.
    pub link_type: u16,
    /// The time of capture, in nanoseconds since 1970; `None` in a simple packet block.
    pub stamp_ns: Option<u64>,
    /// Length that the packet had on the wire, in bytes; more than `data` when the packet was cut.
    pub wire_len: u32,
    /// The bytes that the file keeps of the packet.
    pub data: &'a [u8],
    /// What else the file says of the packet; empty in classic files.
    pub options: Options<'a>,
}

/// The result of one step of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A packet.
    Packet(Record<'a>),
    /// Another block of a pcapng file, or the header of a classic file.
    Block(Block<'a>),
    /// The next step needs at least this many bytes, counted from the first byte shown. At the end
    /// of the file, bytes that are left over are the beginning of a record that was cut.
    More(usize),
    /// These bytes are damaged; reading continues after them.
    Damaged(Damage),
    /// The rest of the file cannot be divided into records: it is lost.
    Lost(Damage),
}

/// The damage of a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The file does not begin as any known format does, or a section's byte-order magic is
    /// unknown.
    Magic(u32),
    /// A record claims more bytes than [`RECORD_LEN_MAX`].
    RecordLength(u32),
    /// A block's length is shorter than any block, not a multiple of 4, or longer than allowed.
    BlockLength(u32),
    /// A block's length at its end differs from the length at its beginning.
    BlockEnd {
        /// The length at the block's beginning.
        first: u32,
        /// The length at the block's end.
        last: u32,
    },
    /// A block ends before its contents do; offsets count from the block's first byte.
    BlockContents(ParseError),
    /// A packet or statistics of an interface that the section has not described.
    Interface(u32),
    /// The file has more interfaces than a reader keeps.
    TooManyInterfaces,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic(word) => write!(
                f,
                "the file begins with {word:#010x}; neither pcap nor \
                                            pcapng does"
            ),
            Self::RecordLength(len) => write!(
                f,
                "a record claims {len} bytes, and at most {RECORD_LEN_MAX} are read"
            ),
            Self::BlockLength(len) => write!(
                f,
                "a block claims {len} bytes; a length is a multiple of 4 from {} to \
                 {RECORD_LEN_MAX}",
                pcapng::BLOCK_LEN_MIN
            ),
            Self::BlockEnd { first, last } => write!(
                f,
                "a block's length is {first} at its beginning and {last} at its end"
            ),
            Self::BlockContents(error) => error.fmt(f),
            Self::Interface(id) => write!(f, "a packet of interface {id}, which is not described"),
            Self::TooManyInterfaces => {
                write!(f, "more than {} interfaces", pcapng::INTERFACES_MAX)
            }
        }
    }
}

/// A reader of both formats; the file's first four bytes tell which it has.
#[derive(Clone, Debug, Default)]
pub struct TraceDecoder {
    format: Format,
}

#[derive(Clone, Debug, Default)]
enum Format {
    #[default]
    Untold,
    Pcap(pcap::Decoder),
    Pcapng(pcapng::Decoder),
}

impl TraceDecoder {
    /// Makes a decoder at the beginning of a file.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next part of the file, which continues with `bytes`. Returns how many bytes the
    /// step took, and what it read.
    ///
    /// **Cost**: a few nanoseconds; no allocation except for an interface.
    #[inline]
    pub fn step<'a>(&mut self, bytes: &'a [u8]) -> (usize, Step<'a>) {
        match &mut self.format {
            Format::Pcap(decoder) => decoder.step(bytes),
            Format::Pcapng(decoder) => decoder.step(bytes),
            Format::Untold => self.begin(bytes),
        }
    }

    /// Passes the packets that `bytes` begin with to `visit`, one after the other, until `visit`
    /// breaks off. Returns how many bytes these packets took, and whether `visit` broke off.
    /// [`TraceDecoder::step`] reads what comes next, a packet or anything else.
    ///
    /// **Cost**: for each packet, half of the cost of [`TraceDecoder::step`].
    #[inline]
    pub fn packets<'a>(
        &self,
        bytes: &'a [u8],
        visit: &mut impl FnMut(&Record<'a>) -> ControlFlow<()>,
    ) -> (usize, ControlFlow<()>) {
        match &self.format {
            Format::Pcap(decoder) => each(bytes, |rest| decoder.next_packet(rest), visit),
            Format::Pcapng(decoder) => each(bytes, |rest| decoder.next_packet(rest), visit),
            Format::Untold => (0, ControlFlow::Continue(())),
        }
    }

    /// Returns the format's name, once a step has read it.
    #[must_use]
    pub const fn format_name(&self) -> Option<&'static str> {
        match self.format {
            Format::Untold => None,
            Format::Pcap(_) => Some("pcap"),
            Format::Pcapng(_) => Some("pcapng"),
        }
    }

    fn begin<'a>(&mut self, bytes: &'a [u8]) -> (usize, Step<'a>) {
        let Some(first) = bytes.first_chunk::<4>() else {
            return (0, Step::More(4));
        };
        self.format = if u32::from_le_bytes(*first) == pcapng::SECTION {
            Format::Pcapng(pcapng::Decoder::new())
        } else if pcap::is_magic(*first) {
            Format::Pcap(pcap::Decoder::new())
        } else {
            return (0, Step::Lost(Damage::Magic(u32::from_be_bytes(*first))));
        };
        self.step(bytes)
    }
}

/// Passes the packets that `next` finds to `visit`, one after the other, until `visit` breaks off.
#[inline]
fn each<'a>(
    bytes: &'a [u8],
    next: impl Fn(&'a [u8]) -> Option<(usize, Record<'a>)>,
    visit: &mut impl FnMut(&Record<'a>) -> ControlFlow<()>,
) -> (usize, ControlFlow<()>) {
    let mut at = 0;
    while let Some((len, record)) = next(&bytes[at..]) {
        at += len;
        if visit(&record).is_break() {
            return (at, ControlFlow::Break(()));
        }
    }
    (at, ControlFlow::Continue(()))
}

/// The longest record or block; a longer one is damage, so that a reader's memory is bounded.
pub const RECORD_LEN_MAX: usize = 16 << 20;

/// The link type of Ethernet frames.
pub const ETHERNET: u16 = 1;
