//! A packet on its way from source to sink, and the interface that captured it.

use sys::packet::{Checksum, Direction, Offload, RawPacket, STUB_LEN};
use wire::pcapng::Options;

/// One packet; it borrows the memory of its source.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The packet's bytes from the first of the link layer on, as many as were kept.
    pub data: &'a [u8],
    /// Bytes of the whole frame; more than in `data` when the packet was cut.
    pub wire_len: u32,
    /// The time of capture, in nanoseconds since 1970; 0 when the packet's file does not say.
    pub stamp_ns: u64,
    /// The number, among the source's interfaces, of the interface that captured the packet.
    pub interface: u32,
    /// Where the packet came from or went to, when known.
    pub direction: Option<Direction>,
    /// What is known of the packet's checksums.
    pub checksum: Checksum,
    /// What the kernel left for an adapter to do.
    pub offload: Option<Offload>,
    /// Options that the packet's file has for it, such as comments; they stay with the packet.
    pub notes: Options<'a>,
    /// True when the kernel's filter has rejected the packet. It is then only counted, and `data`
    /// holds just the first two bytes.
    pub is_rejected: bool,
}

impl<'a> Packet<'a> {
    pub(crate) const fn of_ring(raw: &RawPacket<'a>, interface: u32) -> Self {
        Self {
            data: raw.data,
            wire_len: raw.wire_len,
            stamp_ns: raw.stamp_ns,
            interface,
            direction: Some(raw.direction),
            checksum: raw.checksum,
            offload: raw.offload,
            notes: Options::empty(),
            is_rejected: raw.data.len() == STUB_LEN as usize,
        }
    }

    /// Returns true when some of the packet's bytes were not kept.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.data.len() < self.wire_len as usize
    }

    /// Returns the packet with at most its first `len` bytes.
    #[must_use]
    pub fn cut_to(mut self, len: usize) -> Self {
        self.data = &self.data[..self.data.len().min(len)];
        self
    }

    /// Returns true for a super-packet: several packets of the wire in one piece.
    #[must_use]
    pub const fn is_super_packet(&self) -> bool {
        matches!(self.offload, Some(Offload { gso: Some(_), .. }))
    }
}

/// An interface that captured packets, live or in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name; empty when a file does not say.
    pub name: String,
    /// `LINKTYPE_*`: 1 is Ethernet.
    pub link_type: u16,
    /// Packets are cut to this many bytes; 0 for no limit.
    pub snap_len: u32,
    /// How packets are captured from it, for people.
    pub description: String,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A whole packet.
    pub(crate) const fn packet(data: &[u8], stamp_ns: u64) -> Packet<'_> {
        Packet {
            data,
            wire_len: data.len() as u32,
            stamp_ns,
            interface: 0,
            direction: None,
            checksum: Checksum::Unknown,
            offload: None,
            notes: Options::empty(),
            is_rejected: false,
        }
    }

    #[test]
    fn a_cut_packet_keeps_its_length() {
        let cut = packet(b"abcdef", 1).cut_to(4);
        assert_eq!(
            (cut.data, cut.wire_len, cut.is_cut()),
            (&b"abcd"[..], 6, true)
        );
        assert!(!packet(b"ab", 1).cut_to(4).is_cut());
    }
}
