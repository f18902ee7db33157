//! Cuts super-packets, which never crossed a wire in one piece, into the packets that the wire
//! would carry.

use sys::packet::{Checksum, GsoKind, Offload};
use wire::{
    link::{SegmentKind, fill_checksum, segment},
    pcapng::Options,
};

use crate::Packet;

/// A cutter of packets, with memory of its own.
#[derive(Debug, Default)]
pub(crate) struct Segmenter {
    buffer: Vec<u8>,
}

impl Segmenter {
    /// Passes to `emit` what the wire would carry of `packet`: its pieces, or the packet itself. It
    /// fills in checksums that the kernel left to the adapter. Returns true for a super-packet that
    /// it has cut up. Returns false for a packet that it has passed whole: an ordinary packet, or a
    /// super-packet that was cut short or is of an unknown kind.
    pub(crate) fn segment(
        &mut self,
        packet: &Packet<'_>,
        emit: &mut dyn FnMut(&Packet<'_>),
    ) -> bool {
        let Some(offload) = &packet.offload else {
            emit(packet);
            return false;
        };
        if let Some(kind) = kind(offload)
            && !packet.is_cut()
        {
            let payload_bytes = usize::from(offload.segment_bytes);
            return segment(packet.data, kind, payload_bytes, &mut self.buffer, |data| {
                emit(&on_the_wire(packet, data));
            }) || self.as_it_is(packet, offload, emit);
        }
        self.as_it_is(packet, offload, emit)
    }

    /// Passes a packet on in one piece, and fills in its checksum when it can. Always returns
    /// false, which [`Segmenter::segment`] then returns.
    fn as_it_is(
        &mut self,
        packet: &Packet<'_>,
        offload: &Offload,
        emit: &mut dyn FnMut(&Packet<'_>),
    ) -> bool {
        match offload.checksum {
            Some((start, offset)) if offload.gso.is_none() && !packet.is_cut() => {
                self.buffer.clear();
                self.buffer.extend_from_slice(packet.data);
                if fill_checksum(&mut self.buffer, start.into(), offset.into()) {
                    emit(&on_the_wire(packet, &self.buffer));
                } else {
                    emit(packet);
                }
            }
            _ => emit(packet),
        }
        false
    }
}

const fn kind(offload: &Offload) -> Option<SegmentKind> {
    match offload.gso {
        Some(GsoKind::TcpV4 | GsoKind::TcpV6) => Some(SegmentKind::Tcp),
        Some(GsoKind::Udp) => Some(SegmentKind::Udp),
        Some(GsoKind::UdpFragments | GsoKind::Other(_)) | None => None,
    }
}

/// Returns a piece of `packet` as the wire carries it, with no work left for an adapter.
const fn on_the_wire<'a>(packet: &Packet<'_>, data: &'a [u8]) -> Packet<'a> {
    Packet {
        data,
        wire_len: data.len() as u32,
        stamp_ns: packet.stamp_ns,
        interface: packet.interface,
        direction: packet.direction,
        checksum: Checksum::Valid,
        offload: None,
        notes: Options::empty(),
        is_rejected: false,
    }
}
