//! TPACKET_V3: the kernel packs packets into blocks and releases a whole block at a time.
//!
//! ```text
//! block: | descriptor 48 | header, room, frame | header, room, frame | ... |
//!                          \__ next offset ____/
//! ```
//! The kernel releases a block when the next packet does not fit or when the block's retire time
//! has passed. So a lone packet waits up to the retire time: never measure delays through this
//! ring.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::Ordering,
    time::Duration,
};

use super::{PacketSocket, RawPacket, SocketDrops, frame::RingHeader};
use crate::{call::set_option, mapping::Mapping};

/// The size of a ring of blocks, and how long the kernel may fill a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRingSpec {
    /// Length of a block in bytes: a multiple of the page size. A packet longer than a block is
    /// cut.
    pub block_bytes: u32,
    /// Number of blocks, at least 2.
    pub blocks: u32,
    /// The retire time, in whole milliseconds: after it the kernel releases a block that holds a
    /// packet, even when there is room for more.
    pub retire: Duration,
}

/// A receiving ring of blocks.
#[derive(Debug)]
pub struct BlockRing {
    // Declared before the socket, so that the mapping is dropped first.
    mapping: Mapping,
    socket: PacketSocket,
    block_bytes: usize,
    blocks: usize,
    at: usize,
}

impl BlockRing {
    /// Gives `socket` its ring. The caller binds the socket afterwards, so that no packet comes
    /// before the ring.
    ///
    /// # Errors
    /// ENOMEM when the kernel has no room for that many blocks; EINVAL for a block size that is no
    /// multiple of the page size.
    pub fn new(socket: PacketSocket, spec: &BlockRingSpec) -> io::Result<Self> {
        socket.prepare_ring(libc::tpacket_versions::TPACKET_V3 as libc::c_int)?;
        let frames = spec.block_bytes / FRAME_BYTES * spec.blocks;
        let request = libc::tpacket_req3 {
            tp_block_size: spec.block_bytes,
            tp_block_nr: spec.blocks,
            // The kernel packs packets whatever this size is. It only checks that the size divides
            // a block.
            tp_frame_size: FRAME_BYTES,
            tp_frame_nr: frames,
            tp_retire_blk_tov: u32::try_from(spec.retire.as_millis().max(1)).unwrap_or(u32::MAX),
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set_option(
            socket.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_RX_RING,
            &request,
        )?;
        let (block_bytes, blocks) = (spec.block_bytes as usize, spec.blocks as usize);
        Ok(Self {
            mapping: Mapping::new(socket.as_fd(), block_bytes * blocks)?,
            socket,
            block_bytes,
            blocks,
            at: 0,
        })
    }

    /// Returns the next block that the kernel has released, if there is one. Dropping the block
    /// gives it back to the kernel.
    ///
    /// **Cost**: one load; no system call.
    #[inline]
    pub fn next_block(&mut self) -> Option<Block<'_>> {
        let start = self.at * self.block_bytes;
        let status = self.mapping.word(start + STATUS).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let word = |at: usize| self.mapping.word(start + at).load(Ordering::Relaxed);
        let (packets, first) = (word(PACKET_COUNT), word(FIRST_PACKET) as usize);
        self.at = (self.at + 1) % self.blocks;
        Some(Block {
            ring: self,
            start,
            next: start + first,
            remaining: packets,
            is_losing: status & libc::TP_STATUS_LOSING != 0,
            is_timed_out: status & libc::TP_STATUS_BLK_TMO != 0,
        })
    }

    /// Returns and clears the counts of dropped packets: see [`PacketSocket::take_drops`].
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

    /// Returns the length of the memory shared with the kernel, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.mapping.len()
    }
}

impl AsFd for BlockRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A block that the kernel has released; dropping this value gives the block back to the kernel.
#[derive(Debug)]
pub struct Block<'r> {
    ring: &'r BlockRing,
    start: usize,
    next: usize,
    remaining: u32,
    is_losing: bool,
    is_timed_out: bool,
}

impl Block<'_> {
    /// Returns the packets that have not been taken yet, in order. They borrow the block:
    ///
    /// ```compile_fail,E0505
    /// fn keep(ring: &mut towline_sys::packet::BlockRing) -> Option<Vec<u8>> {
    ///     let mut block = ring.next_block()?;
    ///     let packet = block.packets().next()?;
    ///     drop(block); // back to the kernel, which may overwrite it
    ///     Some(packet.data.to_vec())
    /// }
    /// ```
    pub fn packets(&mut self) -> impl Iterator<Item = RawPacket<'_>> {
        let ring = self.ring;
        let end = self.start + ring.block_bytes;
        let (next, remaining) = (&mut self.next, &mut self.remaining);
        let visit = move || {
            *remaining = remaining.checked_sub(1)?;
            let start = *next;
            if start > end || end - start < HEADER_LEN {
                *remaining = 0;
                return None;
            }
            // SAFETY: the header is part of a block that the kernel has released and gets back only
            // when `self` is dropped; no packet's bytes, which might be borrowed, contain it.
            let header = unsafe { ring.mapping.bytes(start, HEADER_LEN) };
            let (header, next_offset) = parse(header);
            // The safety proofs trust the kernel that this offset leads to the header of the next
            // packet. An offset that leads out of the block ends the iteration. A wrong offset
            // inside the block could make two packets overlap, which this code cannot detect.
            *next = start.saturating_add(next_offset);
            // The kernel wrote the headers on another processor: without a prefetch, this code
            // would stall at each packet until the header has come from there. Where the later
            // header lies is a guess: packets that come together usually have one size.
            let ahead = next.saturating_add(next_offset.saturating_mul(AHEAD));
            ring.mapping.prefetch(ahead);
            ring.mapping.prefetch(ahead.saturating_add(64));
            // SAFETY: the kernel gets the packet's block back only when `self` is dropped. Every
            // packet is visited once, because `next` only grows.
            unsafe { header.packet(&ring.mapping, start, end, ring.socket.has_offload) }
        };
        std::iter::from_fn(visit)
    }

    /// Returns the number of packets not taken yet.
    #[must_use]
    pub const fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Returns true when the kernel has dropped packets since its counters were last read.
    #[must_use]
    pub const fn is_losing(&self) -> bool {
        self.is_losing
    }

    /// Returns true when the kernel released the block because its retire time had passed, not
    /// because it was full.
    #[must_use]
    pub const fn is_timed_out(&self) -> bool {
        self.is_timed_out
    }
}

impl Drop for Block<'_> {
    #[inline]
    fn drop(&mut self) {
        let status = self.ring.mapping.word(self.start + STATUS);
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// Reads a `struct tpacket3_hdr` and the `struct sockaddr_ll` behind it. Also returns the offset
/// from this header to that of the next packet.
#[inline]
fn parse(bytes: &[u8]) -> (RingHeader, usize) {
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
    let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let header = RingHeader {
        seconds: word(4),
        nanos: word(8),
        captured: word(12),
        wire_len: word(16),
        status: word(20),
        mac: half(24).into(),
        tag_control: word(32) as u16,
        tag_protocol: half(36),
        interface: word(ADDRESS + 4),
        direction: bytes[ADDRESS + 10],
    };
    let next = word(0) as usize;
    // At the last packet of a block, the offset is 0. The block's packet count ends the iteration
    // there.
    (header, if next == 0 { usize::MAX } else { next })
}

/// Offsets in a block, in bytes, of the fields `block_status`, `num_pkts` and `offset_to_first_pkt`
/// of `tpacket_hdr_v1`. The block has two words of 32 bits before that structure.
const STATUS: usize = 8;
const PACKET_COUNT: usize = 12;
const FIRST_PACKET: usize = 16;
/// Offset of the `struct sockaddr_ll` behind a packet's header: `sizeof(struct tpacket3_hdr)`.
const ADDRESS: usize = 48;
const HEADER_LEN: usize = ADDRESS + 20;
const FRAME_BYTES: u32 = 2048;
/// The header that is prefetched belongs to the packet this many packets after the next one.
const AHEAD: usize = 3;

const _: () = {
    assert!(size_of::<libc::tpacket3_hdr>() == ADDRESS);
    assert!(size_of::<libc::sockaddr_ll>() == HEADER_LEN - ADDRESS);
    assert!(std::mem::offset_of!(libc::tpacket3_hdr, tp_mac) == 24);
    assert!(std::mem::offset_of!(libc::tpacket3_hdr, hv1) == 28);
    assert!(std::mem::offset_of!(libc::tpacket_block_desc, hdr) == STATUS);
    assert!(std::mem::offset_of!(libc::tpacket_hdr_v1, num_pkts) == PACKET_COUNT - STATUS);
    assert!(std::mem::offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt) == 16 - STATUS);
    assert!(std::mem::offset_of!(libc::sockaddr_ll, sll_pkttype) == 10);
};
