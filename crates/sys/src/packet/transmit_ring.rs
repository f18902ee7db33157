//! The transmit ring: frames are written into slots, and one system call sends a batch of them.
//!
//! ```text
//! | slot | slot | slot | ...     written: SEND_REQUEST   kernel at it: SENDING   done: AVAILABLE
//! ```
//! A slot is free again when neither the SEND_REQUEST nor the SENDING bit is set; time stamps may
//! set other bits.
//!
//! Each frame has a virtio header in front. It tells the kernel how much of the frame to copy into
//! the packet itself: all of it, up to `COPY_MAX` bytes. Otherwise the kernel would attach the
//! ring's pages, and a virtual cable (veth) would copy these into pages of its own. That copy is a
//! tenth of the cost of sending a small frame.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::{Ordering, fence},
};

use rustix::{
    io::Errno,
    net::{SendFlags, send},
};

use super::{PacketSocket, frame::OFFLOAD_LEN, slots::make_slots};
use crate::mapping::Mapping;

/// A sending ring (TPACKET_V2: version 3 has no advantage for sending).
#[derive(Debug)]
pub struct TransmitRing {
    // Declared before the socket, so that the mapping is dropped first.
    mapping: Mapping,
    socket: PacketSocket,
    slot_bytes: usize,
    slots: usize,
    /// Index of the next slot to write.
    at: usize,
    /// Number of frames written since the kernel had last taken every frame.
    untold: usize,
    refused: u64,
    /// The index, among the waiting frames, of a frame that the kernel refused: the result of
    /// [`TransmitRing::take_refused`].
    refused_at: Option<usize>,
}

impl TransmitRing {
    /// Gives `socket` a ring of at least `bytes` bytes for frames of up to `frame_bytes` bytes. The
    /// caller binds the socket for [`Packets::None`](super::Packets::None).
    ///
    /// # Errors
    /// ENOMEM when the kernel has no room for the ring.
    pub fn new(mut socket: PacketSocket, bytes: usize, frame_bytes: usize) -> io::Result<Self> {
        socket.set_offload(true)?;
        socket.option(
            libc::PACKET_VERSION,
            libc::tpacket_versions::TPACKET_V2 as libc::c_int,
        )?;
        let slot_bytes = (frame_bytes + DATA).next_power_of_two();
        let (mapping, slots) =
            make_slots(socket.as_fd(), libc::PACKET_TX_RING, bytes, slot_bytes, 2)?;
        Ok(Self {
            mapping,
            socket,
            slot_bytes,
            slots,
            at: 0,
            untold: 0,
            refused: 0,
            refused_at: None,
        })
    }

    /// Returns the next slot if it is free.
    #[inline]
    pub fn next_slot(&mut self) -> Option<TransmitSlot<'_>> {
        let start = self.at * self.slot_bytes;
        let status = self.mapping.word(start).load(Ordering::Acquire);
        if status & BUSY != 0 {
            return None;
        }
        Some(TransmitSlot { ring: self, start })
    }

    /// Makes the kernel send the frames that were written. Returns how many bytes the
    /// kernel took. When it did not take all frames, call again once the socket is writable.
    ///
    /// # Errors
    /// EMSGSIZE or EINVAL for a frame that the interface does not take ([`TransmitRing::refused`]
    /// counts it, and it is skipped); ENETDOWN.
    ///
    /// **Cost**: one system call; the kernel sends within it.
    pub fn flush(&mut self) -> io::Result<usize> {
        if self.untold == 0 {
            return Ok(0);
        }
        // The call sends no bytes: the frames are in the ring.
        match send(&self.socket, &[], SendFlags::DONTWAIT) {
            Ok(bytes) => {
                if !self.has_waiting() {
                    self.untold = 0;
                }
                Ok(bytes)
            }
            Err(Errno::AGAIN | Errno::NOBUFS) => Ok(0),
            Err(error) => {
                self.skip_refused();
                Err(error.into())
            }
        }
    }

    /// Returns true while the kernel has not yet taken or finished a frame that was written.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        (0..self.slots).any(|slot| self.status(slot) & BUSY != 0)
    }

    /// Returns the number of frames written since the kernel had last taken every frame.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.untold
    }

    /// Returns the number of frames that the kernel refused, because they are wrong for the
    /// interface.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns which frame was refused since the last call: its index among the frames that were
    /// [`TransmitRing::waiting`] before the flush.
    pub const fn take_refused(&mut self) -> Option<usize> {
        self.refused_at.take()
    }

    /// Returns how many of the [`TransmitRing::waiting`] frames the kernel has not begun to send.
    /// They are the last of the waiting frames.
    #[must_use]
    pub fn untaken(&self) -> usize {
        let untold = self.untold.min(self.slots);
        let is_untaken = |back: &usize| {
            let slot = (self.at + self.slots - back) % self.slots;
            self.status(slot) & libc::TP_STATUS_SEND_REQUEST != 0
        };
        (1..=untold).take_while(is_untaken).count()
    }

    /// Takes back the frames that the kernel has not begun to send. Returns their number.
    pub fn take_back(&mut self) -> usize {
        let untaken = self.untaken();
        for _ in 0..untaken {
            self.at = (self.at + self.slots - 1) % self.slots;
            let status = self.mapping.word(self.at * self.slot_bytes);
            status.store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
        }
        self.untold = 0;
        untaken
    }

    /// Returns the number of slots of the ring.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the length of the longest frame that fits a slot, in bytes.
    #[must_use]
    pub const fn frame_bytes_max(&self) -> usize {
        self.slot_bytes - DATA
    }

    /// Returns the socket beneath the ring: to bind it, and to wait for room.
    #[must_use]
    pub const fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// Removes a refused frame by moving up the frames behind it; otherwise the kernel would stop
    /// at the refused frame for ever.
    fn skip_refused(&mut self) {
        let first = self.at + self.slots - self.untold.min(self.slots);
        let is_refused =
            |slot: &usize| self.status(slot % self.slots) & libc::TP_STATUS_WRONG_FORMAT != 0;
        let Some(refused) = (first..self.at + self.slots).find(is_refused) else {
            return;
        };
        self.refused_at = Some(refused - first);
        for slot in refused..self.at + self.slots - 1 {
            let to = slot % self.slots * self.slot_bytes;
            let from = (slot + 1) % self.slots * self.slot_bytes;
            let len = self.mapping.word(from + LEN).load(Ordering::Relaxed);
            self.mapping.word(to + LEN).store(len, Ordering::Relaxed);
            let bytes = (len as usize).min(self.slot_bytes - HEADER);
            // SAFETY: the kernel reads frames only during this process's send calls; no slot is
            // lent out while `self` is borrowed.
            let source = unsafe { self.mapping.bytes(from + HEADER, bytes) };
            // SAFETY: as for `source`; and the two slots differ, because there are at least two.
            let target = unsafe { self.mapping.bytes_mut(to + HEADER, bytes) };
            target.copy_from_slice(source);
            let status = self.mapping.word(to);
            status.store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        }
        self.at = (self.at + self.slots - 1) % self.slots;
        let last = self.mapping.word(self.at * self.slot_bytes);
        last.store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
        self.untold -= 1;
        self.refused += 1;
    }

    /// Returns true when the kernel has not yet taken the last frame that was written.
    fn has_waiting(&self) -> bool {
        let last = (self.at + self.slots - 1) % self.slots;
        self.status(last) & libc::TP_STATUS_SEND_REQUEST != 0
    }

    fn status(&self, slot: usize) -> u32 {
        let word = self.mapping.word(slot * self.slot_bytes);
        word.load(Ordering::Acquire)
    }
}

impl AsFd for TransmitRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A free slot. Dropped without [`TransmitSlot::send`], it stays free.
#[derive(Debug)]
pub struct TransmitSlot<'r> {
    ring: &'r mut TransmitRing,
    start: usize,
}

impl TransmitSlot<'_> {
    /// Returns the memory into which the frame is to be written.
    #[must_use]
    pub fn bytes(&mut self) -> &mut [u8] {
        let len = self.ring.slot_bytes - DATA;
        // SAFETY: the slot is not the kernel's, and the borrow of `self` makes this the only
        // reference into it.
        unsafe { self.ring.mapping.bytes_mut(self.start + DATA, len) }
    }

    /// Marks the slot's first `len` bytes for sending with the next flush.
    ///
    /// **Panics** (bug): when `len` is more than the slot holds.
    pub fn send(self, len: usize) {
        assert!(
            len <= self.ring.slot_bytes - DATA,
            "a frame beyond its slot"
        );
        let ring = self.ring;
        // SAFETY: the slot is not the kernel's, and the frame's bytes, lent out by `bytes`, lie
        // behind these.
        let header = unsafe { ring.mapping.bytes_mut(self.start + HEADER, OFFLOAD_LEN) };
        header.fill(0);
        let copied = len.min(COPY_MAX) as u16;
        header[COPIED..COPIED + 2].copy_from_slice(&copied.to_ne_bytes());
        let word = ring.mapping.word(self.start + LEN);
        word.store((len + OFFLOAD_LEN) as u32, Ordering::Relaxed);
        // The frame must be written before its status, because the kernel may look from another
        // processor.
        fence(Ordering::Release);
        let status = ring.mapping.word(self.start);
        status.store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        ring.at = (ring.at + 1) % ring.slots;
        ring.untold += 1;
    }
}

const BUSY: u32 = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING;
/// Offset of `tp_len` in a slot.
const LEN: usize = 4;
/// Offset, in a slot, of the virtio header: the length of `tpacket2_hdr`, aligned to 16.
const HEADER: usize = 32;
/// Offset, in a slot, of the frame, which follows its virtio header.
const DATA: usize = HEADER + OFFLOAD_LEN;
/// Offset, in the virtio header, of the number of bytes that the kernel copies into the packet.
const COPIED: usize = 2;
/// The most bytes of a frame that the kernel copies. The rest of a longer frame is attached as
/// pages, which costs less than copying that many bytes.
const COPY_MAX: usize = 2048;
