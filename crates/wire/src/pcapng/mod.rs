//! pcapng files: blocks with a type, and their length at both ends.
//!
//! ```text
//! | type u32 | length u32 | body ... | length u32 |     length: whole block, a multiple of 4
//! | code u16 | length u16 | value, padded to 4 | ... | 0 | 0 |     options, at a body's end
//! ```
//! [`Decoder`] reads all block types in both byte orders (a section's first block says which).
//! [`Encoder`] writes little-endian with stamps in nanoseconds. The decoder gives blocks of unknown
//! types unchanged, so that they can be copied.
//!
//! **Spec**: draft-ietf-opsawg-pcapng.

mod block;
pub use block::{Block, Interface, Section, Statistics};

mod decoder;
pub(crate) use decoder::BLOCK_LEN_MIN;
pub use decoder::Decoder;

mod encoder;
pub use encoder::{Encoder, InterfaceText, PacketNotes, SectionText, StatisticsValues};

mod options;
pub use options::{OptionField, Options};

#[cfg(test)]
mod tests;

/// Block type of a section header; the same in both byte orders.
pub const SECTION: u32 = 0x0A0D_0D0A;
/// Block type of an interface description.
pub const INTERFACE: u32 = 1;
/// Block type of a packet in the obsolete form.
pub const PACKET_OBSOLETE: u32 = 2;
/// Block type of a packet without interface and stamp.
pub const PACKET_SIMPLE: u32 = 3;
/// Block type of names for addresses.
pub const NAMES: u32 = 4;
/// Block type of an interface's counters.
pub const STATISTICS: u32 = 5;
/// Block type of a packet.
pub const PACKET: u32 = 6;
/// Block type of an entry of systemd's journal.
pub const JOURNAL: u32 = 9;
/// Block type of keys for decryption.
pub const SECRETS: u32 = 10;
/// Block type of a custom block that may be copied with the file.
pub const CUSTOM: u32 = 0x0BAD;
/// Block type of a custom block that must not be copied.
pub const CUSTOM_UNCOPIED: u32 = 0x4000_0BAD;

/// Option code in any block: the end of the options.
pub(crate) const OPTION_END: u16 = 0;
/// Option code in any block: a comment, UTF-8.
pub const OPTION_COMMENT: u16 = 1;
/// Interface: name.
pub const IF_NAME: u16 = 2;
/// Interface: description.
pub const IF_DESCRIPTION: u16 = 3;
/// Interface: resolution of its stamps.
pub const IF_RESOLUTION: u16 = 9;
/// Interface: the capture filter, after one byte 0.
pub const IF_FILTER: u16 = 11;
/// Interface: seconds to add to its stamps.
pub const IF_OFFSET: u16 = 14;
/// Packet: flags; the lower two bits are the direction.
pub const PACKET_FLAGS: u16 = 2;
/// Packet: packets lost between the previous packet and this one.
pub const PACKET_DROPS: u16 = 4;
/// Statistics: received by the interface.
pub const STATS_RECEIVED: u16 = 4;
/// Statistics: dropped by the interface.
pub const STATS_DROPPED: u16 = 5;
/// Statistics: accepted by the filter.
pub const STATS_ACCEPTED: u16 = 6;
/// Statistics: dropped by the operating system.
pub const STATS_SYSTEM_DROPPED: u16 = 7;
/// Statistics: given to the user.
pub const STATS_DELIVERED: u16 = 8;

/// The most interfaces of a file whose descriptions a reader keeps.
pub const INTERFACES_MAX: usize = 65_536;
/// The `byte order magic` of a section header.
const ORDER: u32 = 0x1A2B_3C4D;
