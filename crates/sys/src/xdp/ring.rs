//! The two rings of an AF_XDP socket: one for descriptors of received frames, one for free chunks
//! that later frames will fill. A ring's producer writes one index, its consumer another: one is
//! the kernel, the other this process. Both indexes only grow, modulo 2^32.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::net::xdp::XdpRingOffset;

use crate::mapping::Mapping;

/// The kernel's description of one frame, or of one piece of it: `struct xdp_desc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// Offset of the frame's (or piece's) first byte in the socket's memory.
    pub(super) at: u64,
    pub(super) len: u32,
    /// True when the frame goes on in the next descriptor.
    pub(super) goes_on: bool,
}

/// The ring of received frames: the kernel produces, this process consumes.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    ring: Ring,
    /// The index of the next descriptor to read.
    at: u32,
    /// The kernel's index, as this process last read it.
    end: u32,
}

/// The ring of chunks that the kernel may fill: this process produces, the kernel consumes.
#[derive(Debug)]
pub(super) struct FillRing {
    ring: Ring,
    at: u32,
}

#[derive(Debug)]
struct Ring {
    mapping: Mapping,
    producer_at: usize,
    consumer_at: usize,
    entries_at: usize,
    /// Offset of the ring's flags in `mapping`; `None` before Linux 5.4.
    flags_at: Option<usize>,
    mask: u32,
}

impl ReceiveRing {
    /// Maps the socket's ring of `entries` descriptors, a power of two.
    pub(super) fn new(
        fd: BorrowedFd<'_>,
        offsets: &XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        let ring = Ring::new(fd, offsets, entries, DESCRIPTOR_BYTES, RECEIVE_PAGE)?;
        Ok(Self {
            ring,
            at: 0,
            end: 0,
        })
    }

    /// Returns the number of descriptors to read, as the last [`ReceiveRing::refresh`] found it.
    #[inline]
    pub(super) const fn len(&self) -> u32 {
        self.end.wrapping_sub(self.at)
    }

    /// Reads the kernel's index again, and returns the number of descriptors to read.
    #[inline]
    pub(super) fn refresh(&mut self) -> u32 {
        self.end = self.ring.producer().load(Ordering::Acquire);
        self.len()
    }

    /// Reads the descriptor that is `ahead` places after the next one; `ahead` must be below
    /// [`ReceiveRing::len`].
    #[inline]
    pub(super) fn peek(&self, ahead: u32) -> Descriptor {
        let slot = self.at.wrapping_add(ahead) & self.ring.mask;
        let start = self.ring.entries_at + slot as usize * DESCRIPTOR_BYTES;
        // The kernel wrote these two words before it moved its index.
        let words = [start, start + 8].map(|at| self.ring.mapping.long_word(at));
        let [at, rest] = words.map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        let half = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| rest[at + byte]));
        Descriptor {
            at: u64::from_ne_bytes(at),
            len: half(0),
            goes_on: half(4) & libc::XDP_PKT_CONTD != 0,
        }
    }

    /// Goes on to the next descriptor.
    #[inline]
    pub(super) const fn advance(&mut self) {
        self.at = self.at.wrapping_add(1);
    }

    /// Gives back, to the kernel, the places of all descriptors that were read.
    #[inline]
    pub(super) fn release(&self) {
        self.ring.consumer().store(self.at, Ordering::Release);
    }
}

impl FillRing {
    /// Maps the socket's ring of `entries` chunks, a power of two.
    pub(super) fn new(
        fd: BorrowedFd<'_>,
        offsets: &XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        let ring = Ring::new(fd, offsets, entries, ADDRESS_BYTES, FILL_PAGE)?;
        Ok(Self { ring, at: 0 })
    }

    /// Adds a chunk. The ring is never full, because it has room for all chunks.
    #[inline]
    pub(super) fn push(&mut self, chunk: u64) {
        let slot = (self.at & self.ring.mask) as usize;
        let place = self.ring.entries_at + slot * ADDRESS_BYTES;
        let word = self.ring.mapping.long_word(place);
        word.store(chunk, Ordering::Relaxed);
        self.at = self.at.wrapping_add(1);
    }

    /// Gives the kernel the chunks that were added.
    #[inline]
    pub(super) fn submit(&self) {
        self.ring.producer().store(self.at, Ordering::Release);
    }

    /// Returns true when the driver sleeps for lack of chunks and must be woken.
    #[inline]
    pub(super) fn wants_call(&self) -> bool {
        let flags = self.ring.flags_at.map(|at| self.ring.mapping.word(at));
        flags.is_some_and(|flags| flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0)
    }
}

impl Ring {
    fn new(
        fd: BorrowedFd<'_>,
        offsets: &XdpRingOffset,
        entries: u32,
        entry_bytes: usize,
        page: u64,
    ) -> io::Result<Self> {
        let place = |offset: u64| usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidData);
        let entries_at = place(offsets.desc)?;
        let bytes = entries_at + entries as usize * entry_bytes;
        Ok(Self {
            mapping: Mapping::at(fd, bytes, page)?,
            producer_at: place(offsets.producer)?,
            consumer_at: place(offsets.consumer)?,
            entries_at,
            flags_at: offsets.flags.map(place).transpose()?,
            mask: entries - 1,
        })
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        self.mapping.word(self.producer_at)
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        self.mapping.word(self.consumer_at)
    }
}

const DESCRIPTOR_BYTES: usize = size_of::<libc::xdp_desc>();
const ADDRESS_BYTES: usize = 8;
const RECEIVE_PAGE: u64 = libc::XDP_PGOFF_RX_RING as u64;
const FILL_PAGE: u64 = libc::XDP_UMEM_PGOFF_FILL_RING;

const _: () = {
    assert!(DESCRIPTOR_BYTES == 16);
    assert!(std::mem::offset_of!(libc::xdp_desc, len) == 8);
    assert!(std::mem::offset_of!(libc::xdp_desc, options) == 12);
};
