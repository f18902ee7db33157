//! The writer of pcapng files: little-endian, stamps in nanoseconds.

use super::{
    IF_DESCRIPTION, IF_FILTER, IF_NAME, IF_RESOLUTION, INTERFACE, OPTION_COMMENT, OPTION_END,
    ORDER, Options, PACKET, PACKET_DROPS, PACKET_FLAGS, SECTION, STATISTICS, STATS_ACCEPTED,
    STATS_DELIVERED, STATS_DROPPED, STATS_RECEIVED, STATS_SYSTEM_DROPPED,
};

/// A writer that appends blocks to a buffer. It holds no state, because the format needs none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Encoder;

/// The description of a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectionText<'a> {
    /// The hardware of the machine that writes the file.
    pub hardware: &'a str,
    /// The operating system of that machine.
    pub system: &'a str,
    /// The program that writes the file.
    pub application: &'a str,
    /// A remark.
    pub comment: &'a str,
}

/// The description of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceText<'a> {
    /// The link type (`LINKTYPE_*`) of the interface.
    pub link_type: u16,
    /// The most bytes kept of a packet; 0 for no limit.
    pub snap_len: u32,
    /// The interface's name.
    pub name: &'a str,
    /// How the program captured packets from the interface.
    pub description: &'a str,
    /// The capture filter, in its own language.
    pub filter: &'a str,
}

/// Notes on a packet besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketNotes<'a> {
    /// The flags word: direction in the lower two bits (1 in, 2 out), kind of reception in the next
    /// three.
    pub flags: Option<u32>,
    /// Packets lost between the previous packet and this one.
    pub drops: Option<u64>,
    /// A remark.
    pub comment: Option<&'a str>,
    /// Options that the packet had in another file; only the remarks among them are kept.
    pub carried: Options<'a>,
}

/// Counters of an interface since the capture began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatisticsValues<'a> {
    /// Packets that arrived at the interface, where known.
    pub received: Option<u64>,
    /// Packets that the interface or its driver lost, where known.
    pub dropped: Option<u64>,
    /// Packets that the filter accepted.
    pub accepted: Option<u64>,
    /// Packets lost because the operating system had no room for them.
    pub system_dropped: Option<u64>,
    /// Packets that are in the file.
    pub delivered: Option<u64>,
    /// A remark.
    pub comment: Option<&'a str>,
}

impl Encoder {
    /// Appends the header of a section.
    pub fn section(self, out: &mut Vec<u8>, section: &SectionText<'_>) {
        block(out, SECTION, |out| {
            out.extend_from_slice(&ORDER.to_le_bytes());
            out.extend_from_slice(&[1, 0, 0, 0]);
            // The section is written packet by packet, so its length is not known yet.
            out.extend_from_slice(&u64::MAX.to_le_bytes());
            let texts = [
                (OPTION_COMMENT, section.comment),
                (2, section.hardware),
                (3, section.system),
                (4, section.application),
            ];
            for (code, text) in texts {
                text_option(out, code, text);
            }
            end_of_options(out);
        });
    }

    /// Appends the description of the next interface.
    pub fn interface(self, out: &mut Vec<u8>, interface: &InterfaceText<'_>) {
        block(out, INTERFACE, |out| {
            out.extend_from_slice(&interface.link_type.to_le_bytes());
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(&interface.snap_len.to_le_bytes());
            text_option(out, IF_NAME, interface.name);
            text_option(out, IF_DESCRIPTION, interface.description);
            option(out, IF_RESOLUTION, &[NANOSECONDS]);
            if !interface.filter.is_empty() {
                let text = [&[0], interface.filter.as_bytes()].concat();
                option(out, IF_FILTER, &text);
            }
            end_of_options(out);
        });
    }

    /// Appends a packet.
    ///
    /// **Cost**: one copy of the packet; allocates only as `out` grows.
    #[inline]
    pub fn packet(
        self,
        out: &mut Vec<u8>,
        interface: u32,
        stamp_ns: u64,
        wire_len: u32,
        data: &[u8],
        notes: &PacketNotes<'_>,
    ) {
        let start = out.len();
        let flags_only = PacketNotes {
            flags: notes.flags,
            ..PacketNotes::default()
        };
        let is_plain = *notes == flags_only;
        let padding = (4 - data.len() % 4) % 4;
        let options_len = match (notes.flags, is_plain) {
            (None, _) => 0,
            (Some(_), true) => 12,
            (Some(_), false) => 8,
        };
        let len = 28 + data.len() + padding + options_len + 4;
        // The tail of most packets has only padding, the flags with the end of the options, and the
        // length.
        let mut tail = [0; 3 + 12 + 4];
        let mut tail_len = padding + options_len;
        if let Some(flags) = notes.flags {
            let [a, b, c, d] = flags.to_le_bytes();
            let option = [PACKET_FLAGS as u8, 0, 4, 0, a, b, c, d];
            tail[padding..padding + 8].copy_from_slice(&option);
        }
        if is_plain {
            tail[tail_len..tail_len + 4].copy_from_slice(&(len as u32).to_le_bytes());
            tail_len += 4;
        }
        let mut head = [0; 28];
        let words = [
            PACKET,
            len as u32,
            interface,
            (stamp_ns >> 32) as u32,
            stamp_ns as u32,
            data.len() as u32,
            wire_len,
        ];
        for (place, word) in head.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        out.reserve(len);
        out.extend_from_slice(&head);
        out.extend_from_slice(data);
        out.extend_from_slice(&tail[..tail_len]);
        if !is_plain {
            if let Some(drops) = notes.drops {
                option(out, PACKET_DROPS, &drops.to_le_bytes());
            }
            if let Some(comment) = notes.comment {
                text_option(out, OPTION_COMMENT, comment);
            }
            let carried = notes.carried.iter();
            for comment in carried.filter(|option| option.code == OPTION_COMMENT) {
                option(out, OPTION_COMMENT, comment.value);
            }
            end_of_options(out);
            finish(out, start);
        }
    }

    /// Appends the counters that an interface had at the time `stamp_ns`.
    pub fn statistics(
        self,
        out: &mut Vec<u8>,
        interface: u32,
        stamp_ns: u64,
        values: &StatisticsValues<'_>,
    ) {
        block(out, STATISTICS, |out| {
            out.extend_from_slice(&interface.to_le_bytes());
            out.extend_from_slice(&((stamp_ns >> 32) as u32).to_le_bytes());
            out.extend_from_slice(&(stamp_ns as u32).to_le_bytes());
            let counts = [
                (STATS_RECEIVED, values.received),
                (STATS_DROPPED, values.dropped),
                (STATS_ACCEPTED, values.accepted),
                (STATS_SYSTEM_DROPPED, values.system_dropped),
                (STATS_DELIVERED, values.delivered),
            ];
            for (code, count) in counts {
                if let Some(count) = count {
                    option(out, code, &count.to_le_bytes());
                }
            }
            if let Some(comment) = values.comment {
                text_option(out, OPTION_COMMENT, comment);
            }
            end_of_options(out);
        });
    }

    /// Appends a block as it is; its body must be in little-endian order.
    pub fn other(self, out: &mut Vec<u8>, kind: u32, body: &[u8]) {
        block(out, kind, |out| out.extend_from_slice(body));
    }
}

fn block(out: &mut Vec<u8>, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    fill(out);
    pad(out, start);
    finish(out, start);
}

/// Writes the block's length at both its ends.
#[inline]
fn finish(out: &mut Vec<u8>, start: usize) {
    let len = (out.len() - start + 4) as u32;
    out[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
}

#[inline]
fn pad(out: &mut Vec<u8>, start: usize) {
    let missing = (4 - (out.len() - start) % 4) % 4;
    out.extend_from_slice(&[0; 3][..missing]);
}

/// Appends a text option. A text that is too long for an option is cut between two characters.
fn text_option(out: &mut Vec<u8>, code: u16, text: &str) {
    if !text.is_empty() {
        let end = text.floor_char_boundary(OPTION_LEN_MAX);
        option(out, code, &text.as_bytes()[..end]);
    }
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(OPTION_LEN_MAX)];
    let start = out.len();
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, start);
}

fn end_of_options(out: &mut Vec<u8>) {
    out.extend_from_slice(&OPTION_END.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
}

const NANOSECONDS: u8 = 9;
const OPTION_LEN_MAX: usize = u16::MAX as usize;
