//! `ring:IF`: packets are sent through a transmit ring, a batch with each system call.

use std::{io, time::Duration};

use sys::{
    errno::{EINVAL, EMSGSIZE},
    packet::{PacketSocket, Packets, TransmitRing},
};

use super::Sink;
use crate::{Account, CaptureError, Interface, Packet, link::LinkCounters};

/// How packets are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendOptions {
    /// Bytes of memory shared with the kernel.
    pub ring_bytes: usize,
    /// Packets with each system call; 1 sends each at once.
    pub batch: usize,
    /// Send around the queueing discipline: faster, without queue, unseen by other taps.
    pub bypasses_queue: bool,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self {
            ring_bytes: 1 << 20,
            batch: 64,
            bypasses_queue: true,
        }
    }
}

/// Sends through a transmit ring.
#[derive(Debug)]
pub struct RingSink {
    outlet: Outlet,
    ring: TransmitRing,
    batch: usize,
    too_long: u64,
}

impl RingSink {
    /// Opens the ring.
    ///
    /// # Errors
    /// No such interface, no permission, or a refusal.
    pub fn open(name: &str, options: &SendOptions) -> Result<Self, CaptureError> {
        let outlet = Outlet::find(name)?;
        let open = || -> io::Result<_> {
            let socket = PacketSocket::open()?;
            socket.set_queue_bypass(options.bypasses_queue)?;
            let frame_bytes = outlet.mtu + HEADER_BYTES + TAG_BYTES;
            let ring = TransmitRing::new(socket, options.ring_bytes, frame_bytes)?;
            ring.socket().bind(outlet.index, Packets::None)?;
            Ok(ring)
        };
        let opened = open();
        let ring = opened
            .map_err(|cause| CaptureError::os(format!("make a transmit ring for {name}"), cause))?;
        Ok(Self {
            batch: options.batch.clamp(1, ring.slots() / 2),
            outlet,
            ring,
            too_long: 0,
        })
    }

    /// Has the kernel take what was written; waits while it has no room.
    fn push(&mut self) -> Result<(), CaptureError> {
        while self.ring.waiting() > 0 {
            match self.ring.flush() {
                Ok(0) => self.wait()?,
                Ok(_) => {}
                // The frame was skipped and counted; those behind it go on.
                Err(cause) if matches!(cause.raw_os_error(), Some(EMSGSIZE | EINVAL)) => {}
                Err(cause) => return Err(self.outlet.failure(cause)),
            }
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), CaptureError> {
        let waited = self.ring.socket().wait_writable(ROOM_WAIT).map(drop);
        waited.map_err(|cause| self.outlet.failure(cause))
    }
}

impl Sink for RingSink {
    fn interface(&mut self, _: &Interface) -> Result<(), CaptureError> {
        Ok(())
    }

    #[inline]
    fn write(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError> {
        let data = packet.data;
        if data.len() > self.outlet.frame_bytes_max(data) {
            self.too_long += 1;
            return Ok(());
        }
        let mut slot = loop {
            // Found, but borrowed: asked for again below, as the borrow cannot outlive the test.
            if self.ring.next_slot().is_some() {
                break self
                    .ring
                    .next_slot()
                    .expect("free a moment ago, and nobody else's");
            }
            self.push()?;
            self.wait()?;
        };
        slot.bytes()[..data.len()].copy_from_slice(data);
        slot.send(data.len());
        if self.ring.waiting() >= self.batch {
            self.push()?;
        }
        Ok(())
    }

    fn note(&mut self, _: &Account, _: u64) -> Result<(), CaptureError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        self.push()
    }

    fn unwritten(&self) -> u64 {
        self.too_long + self.ring.refused()
    }

    fn dropped_later(&mut self) -> u64 {
        self.outlet.dropped()
    }
}

/// The interface that packets leave by, with its counters.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) index: u32,
    mtu: usize,
    name: String,
    counters: LinkCounters,
}

impl Outlet {
    pub(super) fn find(name: &str) -> Result<Self, CaptureError> {
        let (counters, link) = LinkCounters::find(name)?;
        Ok(Self {
            index: link.index,
            mtu: link.mtu as usize,
            name: link.name,
            counters,
        })
    }

    /// Bytes that a frame may have which begins as `frame` does: one tag comes on top of the MTU.
    fn frame_bytes_max(&self, frame: &[u8]) -> usize {
        let tag = match frame.get(12..14) {
            Some([0x81 | 0x91, 0] | [0x88, 0xa8]) => TAG_BYTES,
            _ => 0,
        };
        self.mtu + HEADER_BYTES + tag
    }

    pub(super) fn failure(&self, cause: io::Error) -> CaptureError {
        CaptureError::os(format!("send on {}", self.name), cause)
    }

    /// Packets that the interface has dropped on their way out since the start.
    pub(super) fn dropped(&mut self) -> u64 {
        let statistics = self.counters.since_start();
        statistics.map_or(0, |since| since.tx_dropped)
    }
}

/// An Ethernet header.
const HEADER_BYTES: usize = 14;
const TAG_BYTES: usize = 4;
const ROOM_WAIT: Duration = Duration::from_millis(10);
