//! The blocks of a file besides packets.

use super::Options;
use crate::pcap;

/// One block other than a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block<'a> {
    /// The header of a classic file, which takes the place of section and interface.
    Pcap(pcap::Header),
    /// A section begins; descriptions of interfaces before it no longer apply.
    Section(Section<'a>),
    /// An interface is described.
    Interface(Interface<'a>),
    /// The counters of an interface.
    Statistics(Statistics<'a>),
    /// Any other block: names, secrets, journal entries, custom blocks, and unknown types.
    Other {
        /// The block's type.
        kind: u32,
        /// The block's body, in the section's byte order.
        body: &'a [u8],
        /// The section's byte order: true when the most significant byte comes first.
        is_big_endian: bool,
    },
}

/// The description of a section: where it was made, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section<'a> {
    /// True when the most significant byte comes first.
    pub is_big_endian: bool,
    /// Version of the format.
    pub version: (u16, u16),
    /// Length of the section in bytes; `None` when its writer did not know.
    pub len: Option<u64>,
    /// Hardware, operating system, application, comments.
    pub options: Options<'a>,
}

/// One interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface<'a> {
    /// The interface's number in the file, from 0, counted through all sections.
    pub index: u32,
    /// The link type (`LINKTYPE_*`) of the interface.
    pub link_type: u16,
    /// The most bytes kept of a packet; 0 for no limit.
    pub snap_len: u32,
    /// Name, description, filter, comments.
    pub options: Options<'a>,
}

/// Counters of one interface, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics<'a> {
    /// The interface's number in the file.
    pub interface: u32,
    /// The time of counting, in nanoseconds since 1970.
    pub stamp_ns: u64,
    /// The counters: `STATS_*`.
    pub options: Options<'a>,
}
