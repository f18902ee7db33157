//! A ring of the kind TPACKET_V2: each packet has its own slot, which the kernel hands over at
//! once. Of all kinds of rings, this one has the lowest delay.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::Ordering,
};

use super::{PacketSocket, RawPacket, SocketDrops, frame::RingHeader, slots::make_slots};
use crate::mapping::Mapping;

/// A receiving ring of slots.
#[derive(Debug)]
pub struct SlotRing {
    // Declared before the socket, so that the mapping is dropped first.
    mapping: Mapping,
    socket: PacketSocket,
    slot_bytes: usize,
    slots: usize,
    at: usize,
}

impl SlotRing {
    /// Gives `socket` a ring of at least `bytes` bytes whose slots hold frames of at least
    /// `frame_bytes` bytes. A frame that does not fit is cut. The caller binds the socket
    /// afterwards.
    ///
    /// # Errors
    /// ENOMEM when the kernel has no room for the ring.
    pub fn new(socket: PacketSocket, bytes: usize, frame_bytes: usize) -> io::Result<Self> {
        socket.prepare_ring(libc::tpacket_versions::TPACKET_V2 as libc::c_int)?;
        let slot_bytes = (frame_bytes + HEADROOM).next_power_of_two();
        let (mapping, slots) =
            make_slots(socket.as_fd(), libc::PACKET_RX_RING, bytes, slot_bytes, 1)?;
        Ok(Self {
            mapping,
            socket,
            slot_bytes,
            slots,
            at: 0,
        })
    }

    /// Returns the next packet that the kernel has released, if there is one. Dropping the guard
    /// gives the packet's slot back to the kernel.
    ///
    /// **Cost**: one load; no system call.
    #[inline]
    pub fn next_slot(&mut self) -> Option<SlotGuard<'_>> {
        let start = self.at * self.slot_bytes;
        let status = self.mapping.word(start).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        self.at = (self.at + 1) % self.slots;
        Some(SlotGuard { ring: self, start })
    }

    /// Returns and clears the counters: see [`PacketSocket::take_drops`].
    ///
    /// # Errors
    /// Never in practice.
    pub fn take_drops(&self) -> io::Result<SocketDrops> {
        self.socket.take_drops()
    }

    /// Returns the socket beneath the ring: to bind it, and to ask for its counters.
    #[must_use]
    pub const fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// Returns the length of a slot in bytes, the kernel's headers included.
    #[must_use]
    pub const fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Returns the length of the memory shared with the kernel, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.mapping.len()
    }
}

impl AsFd for SlotRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A slot that the kernel has released. Dropping the guard gives the slot back to the kernel.
#[derive(Debug)]
pub struct SlotGuard<'r> {
    ring: &'r SlotRing,
    start: usize,
}

impl SlotGuard<'_> {
    /// Returns the packet in the slot; `None` when the kernel's header makes no sense.
    ///
    /// The call writes a VLAN tag that the kernel took out back into the packet, so it takes the
    /// guard by exclusive reference. A second call returns `None`.
    #[must_use]
    pub fn packet(&mut self) -> Option<RawPacket<'_>> {
        let mapping = &self.ring.mapping;
        // SAFETY: the kernel has released the slot, and gets it back only when `self` is dropped.
        let bytes = unsafe { mapping.bytes_mut(self.start, HEADER_LEN) };
        let header = parse(bytes);
        // Mark the slot as read: no packet has the offset 0.
        bytes[MAC..MAC + 2].fill(0);
        let end = self.start + self.ring.slot_bytes;
        // SAFETY: the kernel has released the slot. A slot marked as read gives no second packet.
        unsafe { header.packet(mapping, self.start, end, self.ring.socket.has_offload) }
    }
}

impl Drop for SlotGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let status = self.ring.mapping.word(self.start);
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// Reads a `struct tpacket2_hdr` and the `struct sockaddr_ll` behind it.
fn parse(bytes: &[u8]) -> RingHeader {
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
    let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    RingHeader {
        status: word(0),
        wire_len: word(4),
        captured: word(8),
        mac: half(MAC).into(),
        seconds: word(16),
        nanos: word(20),
        tag_control: half(24),
        tag_protocol: half(26),
        interface: word(ADDRESS + 4),
        direction: bytes[ADDRESS + 10],
    }
}

const MAC: usize = 12;
/// Offset of the `struct sockaddr_ll` in a slot: `sizeof(struct tpacket2_hdr)`.
const ADDRESS: usize = 32;
const HEADER_LEN: usize = ADDRESS + 20;
/// Number of bytes in a slot that are set aside in front of the frame: for the kernel's header, an
/// address, alignment and a VLAN tag.
const HEADROOM: usize = 128;

const _: () = {
    assert!(size_of::<libc::tpacket2_hdr>() == ADDRESS);
    assert!(std::mem::offset_of!(libc::tpacket2_hdr, tp_mac) == MAC);
    assert!(std::mem::offset_of!(libc::tpacket2_hdr, tp_sec) == 16);
};
