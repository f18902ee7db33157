//! One socket for one receive queue: its rings, and the memory into which the kernel writes frames.

use std::{
    io,
    ops::ControlFlow,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with,
        sockopt::{
            set_xdp_rx_ring_size, set_xdp_umem_completion_ring_size, set_xdp_umem_fill_ring_size,
            set_xdp_umem_reg, socket_error, xdp_mmap_offsets, xdp_statistics,
        },
        xdp::{SocketAddrXdp, SocketAddrXdpFlags, XdpUmemReg, XdpUmemRegFlags},
    },
};

use super::{
    redirect::STAMP_LEN,
    ring::{FillRing, ReceiveRing},
};
use crate::mapping::Mapping;

/// The size of a socket's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpSpec {
    /// Length of one chunk in bytes: 2048 or 4096. With [`XdpCopy::InPieces`], a frame that is
    /// longer than [`XdpSpec::room`] takes several chunks.
    pub chunk_bytes: u32,
    /// Number of chunks, at least 1; each holds one piece of a frame that waits to be read.
    pub chunks: u32,
}

impl XdpSpec {
    /// Returns the number of bytes of a frame that fit one chunk: the kernel keeps the first bytes
    /// of a chunk for itself.
    #[must_use]
    pub const fn room(&self) -> u32 {
        self.chunk_bytes - HEADROOM
    }

    /// Returns the length of the shared memory in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.chunk_bytes as usize * self.chunks as usize
    }
}

/// How frames get into the memory that a socket shares with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpCopy {
    /// The adapter itself writes frames into the shared memory. This needs a driver with zero-copy
    /// support and a native XDP program.
    Zero,
    /// The kernel copies frames, and cuts frames longer than a chunk into pieces. From Linux 6.6
    /// on.
    InPieces,
    /// The kernel copies frames, and drops frames longer than a chunk.
    Whole,
}

/// One frame, which borrows the socket's memory.
#[derive(Clone, Copy, Debug)]
pub struct XdpFrame<'a> {
    /// The frame from its first link-layer byte to its last, tags in place.
    pub data: &'a [u8],
    /// The time when the XDP program saw the frame: nanoseconds of CLOCK_MONOTONIC. `None` where
    /// the driver leaves no room in front of a frame.
    pub stamp_ns: Option<u64>,
}

/// Counts of the frames that a socket has dropped since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpDrops {
    /// Frames for which there was no chunk, or that were too long for a chunk.
    pub dropped: u64,
    /// Frames for which there was no place in the RX ring.
    pub ring_full: u64,
    /// How often the kernel looked for a chunk and found none. When the kernel copies, each frame
    /// for which that happens is also in `dropped`.
    pub fill_ring_empty: u64,
}

/// A socket with its memory. It receives nothing until it is bound and a program sends it frames.
#[derive(Debug)]
pub struct XdpSocket {
    receive: ReceiveRing,
    fill: FillRing,
    // Dropped before `memory`. Safety does not need this order, because the kernel itself pins the
    // pages of `memory`.
    socket: OwnedFd,
    memory: Mapping,
    spec: XdpSpec,
    /// Number of chunks that are given back to the kernel at a time.
    batch: u32,
    times_full: u64,
    /// The buffer in which the pieces of a long frame are put together.
    long: Vec<u8>,
}

impl XdpSocket {
    /// Makes a socket with its memory and rings.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW; EAFNOSUPPORT for a kernel without XDP sockets; ENOBUFS beyond
    /// RLIMIT_MEMLOCK without CAP_IPC_LOCK; ENOMEM.
    pub fn new(spec: &XdpSpec) -> io::Result<Self> {
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        let socket = socket_with(AddressFamily::XDP, kind, flags, None)?;
        let memory = Mapping::anonymous(spec.bytes())?;
        let region = XdpUmemReg {
            addr: memory.address(),
            len: memory.len() as u64,
            chunk_size: spec.chunk_bytes,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        set_xdp_umem_reg(&socket, region)?;
        // The fill ring and the RX ring each have room for every chunk, so no frame is dropped
        // because a ring is full.
        let entries = spec.chunks.next_power_of_two();
        set_xdp_umem_fill_ring_size(&socket, entries)?;
        // The socket sends nothing, but the kernel demands this ring.
        set_xdp_umem_completion_ring_size(&socket, 2)?;
        set_xdp_rx_ring_size(&socket, entries)?;
        let offsets = xdp_mmap_offsets(&socket)?;
        let mut fill = FillRing::new(socket.as_fd(), &offsets.fr, entries)?;
        for chunk in 0..u64::from(spec.chunks) {
            fill.push(chunk * u64::from(spec.chunk_bytes));
        }
        fill.submit();
        Ok(Self {
            receive: ReceiveRing::new(socket.as_fd(), &offsets.rx, entries)?,
            fill,
            socket,
            memory,
            spec: *spec,
            batch: (spec.chunks / 4).clamp(1, BATCH_MAX),
            times_full: 0,
            long: Vec::new(),
        })
    }

    /// Binds to a receive queue of an interface.
    ///
    /// # Errors
    /// EOPNOTSUPP or EINVAL when the driver or the kernel does not know this way of copying
    /// (another attempt needs a new socket); EBUSY when the queue has another socket, or had one a
    /// moment ago; EINVAL when there is no such queue.
    pub fn bind(&self, interface: u32, queue: u32, copy: XdpCopy) -> io::Result<()> {
        use SocketAddrXdpFlags as Flags;
        let copy = match copy {
            XdpCopy::Zero => Flags::XDP_ZEROCOPY,
            XdpCopy::InPieces => Flags::XDP_COPY | Flags::XDP_USE_SG,
            XdpCopy::Whole => Flags::XDP_COPY,
        };
        let flags = Flags::XDP_USE_NEED_WAKEUP | copy;
        let address = SocketAddrXdp::new(flags, interface, queue);
        Ok(bind(&self.socket, &address)?)
    }

    /// Passes up to `limit` frames to `visit`, in order, until no frame is left or `visit` breaks
    /// off. Each frame is passed once. Returns the number of frames passed.
    ///
    /// # Errors
    /// When a driver that sleeps cannot be woken.
    ///
    /// **Cost**: a copy for each frame longer than a chunk; a system call when the driver sleeps
    /// because it has no chunks; otherwise neither.
    pub fn read(
        &mut self,
        limit: u32,
        visit: &mut dyn FnMut(&XdpFrame<'_>) -> ControlFlow<()>,
    ) -> io::Result<u32> {
        let (mut given, mut unsubmitted) = (0, 0);
        while given < limit {
            if self.receive.len() == 0 {
                let waiting = self.receive.refresh();
                self.times_full += u64::from(waiting + unsubmitted >= self.spec.chunks);
                if waiting == 0 {
                    break;
                }
            }
            let (pieces, is_enough) = self.give_one(visit);
            if pieces == 0 {
                break;
            }
            given += 1;
            unsubmitted += pieces;
            if unsubmitted >= self.batch {
                self.give_back();
                unsubmitted = 0;
            }
            if is_enough {
                break;
            }
        }
        self.give_back();
        if given > 0 && self.fill.wants_call() {
            self.wake()?;
        }
        Ok(given)
    }

    /// Returns the counts of frames that the socket has dropped so far.
    ///
    /// # Errors
    /// Never in practice.
    pub fn drops(&self) -> io::Result<XdpDrops> {
        let stats = xdp_statistics(&self.socket)?;
        Ok(XdpDrops {
            dropped: stats.rx_dropped,
            ring_full: stats.rx_ring_full.unwrap_or(0),
            fill_ring_empty: stats.rx_fill_ring_empty_descs.unwrap_or(0),
        })
    }

    /// Returns the error that the kernel has noted for the socket, such as ENETDOWN when its
    /// interface is gone, and clears it.
    ///
    /// # Errors
    /// Never in practice.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(socket_error(&self.socket)?.err().map(io::Error::from))
    }

    /// Returns how often a read found every chunk in use, so that the kernel would have had to drop
    /// a further frame.
    #[must_use]
    pub const fn times_full(&self) -> u64 {
        self.times_full
    }

    /// Returns the size of the socket's memory.
    #[must_use]
    pub const fn spec(&self) -> &XdpSpec {
        &self.spec
    }

    /// Passes the next frame to `visit`, and its chunks to the fill ring. Returns how many chunks
    /// the frame had (0 when its last piece has not come), and whether `visit` broke off.
    #[inline]
    fn give_one(&mut self, visit: &mut dyn FnMut(&XdpFrame<'_>) -> ControlFlow<()>) -> (u32, bool) {
        let first = self.receive.peek(0);
        if first.goes_on {
            return self.give_long(visit);
        }
        if self.receive.len() > 1 {
            // Another processor usually wrote the next frame: it is fetched into this processor's
            // cache while the present frame is handled.
            let next = self.receive.peek(1).at as usize;
            self.memory.prefetch(next.saturating_sub(STAMP_BYTES));
            self.memory.prefetch(next);
        }
        let is_enough = self.place(first.at, first.len).is_some_and(|(at, len)| {
            let stamp_ns = self.take_stamp(at);
            // SAFETY: the kernel released the chunk with this descriptor, and gets it back only
            // when the fill ring is submitted, after the slice is gone.
            let data = unsafe { self.memory.bytes(at, len) };
            visit(&XdpFrame { data, stamp_ns }).is_break()
        });
        self.return_chunk(first.at);
        (1, is_enough)
    }

    /// Does what [`XdpSocket::give_one`] does for a frame in several pieces.
    #[cold]
    fn give_long(
        &mut self,
        visit: &mut dyn FnMut(&XdpFrame<'_>) -> ControlFlow<()>,
    ) -> (u32, bool) {
        let here = self.receive.refresh();
        let last = (0..here).find(|ahead| !self.receive.peek(*ahead).goes_on);
        let Some(last) = last else {
            return (0, false);
        };
        self.long.clear();
        let mut stamp_ns = None;
        for piece in 0..=last {
            let descriptor = self.receive.peek(0);
            if let Some((at, len)) = self.place(descriptor.at, descriptor.len) {
                if piece == 0 {
                    stamp_ns = self.take_stamp(at);
                }
                // SAFETY: the kernel released the chunk with this descriptor, and gets it back only
                // when the fill ring is submitted, after the copy.
                self.long
                    .extend_from_slice(unsafe { self.memory.bytes(at, len) });
            }
            self.return_chunk(descriptor.at);
        }
        let data = self.long.as_slice();
        (last + 1, visit(&XdpFrame { data, stamp_ns }).is_break())
    }

    /// Checks that a frame and the stamp in front of it lie inside the memory. Returns the offset
    /// and length of the frame.
    #[inline]
    fn place(&self, at: u64, len: u32) -> Option<(usize, usize)> {
        let (at, len) = (usize::try_from(at).ok()?, len as usize);
        let is_inside = at <= self.memory.len() && self.memory.len() - at >= len;
        (is_inside && at >= STAMP_BYTES).then_some((at, len))
    }

    /// Takes the stamp in front of the frame at `at` and clears it, so that a frame without a stamp
    /// does not show an old one.
    #[inline]
    fn take_stamp(&self, at: usize) -> Option<u64> {
        // SAFETY: the eight bytes in front of a frame are in the same chunk (the kernel keeps 256
        // bytes there), which the kernel released and which has no other borrower yet.
        let bytes = unsafe { self.memory.bytes_mut(at - STAMP_BYTES, STAMP_BYTES) };
        let stamp = u64::from_ne_bytes(std::array::from_fn(|byte| bytes[byte]));
        bytes.fill(0);
        (stamp != 0).then_some(stamp)
    }

    #[inline]
    fn return_chunk(&mut self, at: u64) {
        let chunk = at & !u64::from(self.spec.chunk_bytes - 1);
        self.receive.advance();
        self.fill.push(chunk);
    }

    #[inline]
    fn give_back(&self) {
        self.receive.release();
        self.fill.submit();
    }

    /// Wakes a sleeping driver, because there are chunks for it again.
    fn wake(&self) -> io::Result<()> {
        match recv(&self.socket, &mut [0_u8; 0], RecvFlags::DONTWAIT) {
            Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NETDOWN | Errno::NOBUFS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// `XDP_PACKET_HEADROOM`.
const HEADROOM: u32 = 256;
const STAMP_BYTES: usize = STAMP_LEN as usize;
const BATCH_MAX: u32 = 64;
