//! `ring:IF`: packets are sent through a transmit ring, a batch in each system call.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use sys::{
    errno::{EINVAL, EMSGSIZE},
    packet::{PacketSocket, Packets, TransmitRing},
};

use super::{
    Sink,
    outlet::{HEADER_BYTES, Outlet, Stall, TAG_BYTES, Waited},
};
use crate::{Account, CaptureError, Interface, Packet, Unwritten, account::UnwrittenList};

/// How packets are sent.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// Bytes of memory shared with the kernel.
    pub ring_bytes: usize,
    /// Packets in each system call; 1 sends each at once.
    pub batch: usize,
    /// True to send past the queueing discipline: faster, without a queue, and unseen by other
    /// captures.
    pub bypasses_queue: bool,
    /// How long to wait for an interface that takes nothing, because it has no carrier or its queue
    /// stays full.
    pub patience: Duration,
    /// Once this flag is set, the wait for an interface that takes nothing ends. Packets that have
    /// not left then count as unwritten.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self {
            ring_bytes: 1 << 20,
            batch: 64,
            bypasses_queue: true,
            patience: PATIENCE,
            stop: None,
        }
    }
}

/// A sink that sends through a transmit ring.
#[derive(Debug)]
pub struct RingSink {
    outlet: Outlet,
    ring: TransmitRing,
    batch: usize,
    /// Frames in the ring that the kernel may not have taken yet, in order.
    waiting: VecDeque<Waiting>,
    unwritten: UnwrittenList,
    /// True when the sink has stopped sending.
    is_over: bool,
}

/// A frame in the ring.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    interface: u32,
    bytes: u32,
    is_cut: bool,
}

impl RingSink {
    /// Opens the ring.
    ///
    /// # Errors
    /// When there is no such interface or no permission, or when the kernel refuses.
    pub fn open(name: &str, options: &SendOptions) -> Result<Self, CaptureError> {
        let outlet = Outlet::find(name, options)?;
        let open = || -> io::Result<_> {
            let socket = PacketSocket::open()?;
            socket.set_queue_bypass(options.bypasses_queue)?;
            let frame_bytes = outlet.mtu_bytes + HEADER_BYTES + TAG_BYTES;
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
            waiting: VecDeque::new(),
            unwritten: UnwrittenList::default(),
            is_over: false,
        })
    }

    /// Makes the kernel take the frames in the ring, and waits while it has no room. Frames that it
    /// never takes count as unwritten.
    fn push(&mut self) -> Result<(), CaptureError> {
        let pushed = self.try_push();
        if !matches!(pushed, Ok(Waited::ForRoom)) {
            self.give_up();
        }
        pushed.map(drop)
    }

    fn try_push(&mut self) -> Result<Waited, CaptureError> {
        let mut stall = Stall::default();
        while self.ring.waiting() > 0 {
            match self.ring.flush() {
                Ok(0) => {
                    self.outlet.note_retry();
                    let untaken = self.ring.untaken();
                    let socket = self.ring.socket();
                    if self.outlet.wait(socket, untaken, &mut stall)? == Waited::ForNothing {
                        return Ok(Waited::ForNothing);
                    }
                }
                Ok(_) => stall = Stall::default(),
                Err(cause) => {
                    let is_frames = matches!(cause.raw_os_error(), Some(EMSGSIZE | EINVAL));
                    let refused = self.ring.take_refused().filter(|_| is_frames);
                    let refused = refused.and_then(|at| self.waiting.remove(at));
                    // The kernel skipped the frame; sending goes on with the next one.
                    let refused = refused.ok_or_else(|| self.outlet.failure(cause))?;
                    self.note_unwritten(refused);
                }
            }
        }
        self.waiting.clear();
        Ok(Waited::ForRoom)
    }

    /// Takes back from the ring the frames that the kernel has not taken, and counts them as
    /// unwritten.
    fn give_up(&mut self) {
        self.is_over = true;
        let untaken = self.ring.take_back().min(self.waiting.len());
        for lost in self.waiting.split_off(self.waiting.len() - untaken) {
            self.note_unwritten(lost);
        }
        self.waiting.clear();
    }

    fn note_unwritten(&mut self, lost: Waiting) {
        let lost_one = Unwritten {
            packets: 1,
            bytes: lost.bytes.into(),
            cut: lost.is_cut.into(),
        };
        self.unwritten.add(lost.interface, lost_one);
    }

    /// Frees a slot of the ring, or gives up.
    fn make_room(&mut self) -> Result<(), CaptureError> {
        let mut stall = Stall::default();
        while self.ring.next_slot().is_none() && !self.is_over {
            self.push()?;
            if self.ring.next_slot().is_some() || self.is_over {
                break;
            }
            // The kernel has taken all frames, but no frame has left yet.
            let waited = self.outlet.wait(self.ring.socket(), 0, &mut stall);
            if !matches!(waited, Ok(Waited::ForRoom)) {
                self.give_up();
            }
            waited?;
        }
        Ok(())
    }
}

impl Sink for RingSink {
    fn interface(&mut self, _: &Interface) -> Result<(), CaptureError> {
        Ok(())
    }

    #[inline]
    fn write(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError> {
        let data = packet.data;
        let room = if self.ring.next_slot().is_some() {
            Ok(())
        } else {
            self.make_room()
        };
        let is_too_long = self.outlet.is_too_long(data);
        let slot = self.ring.next_slot();
        let Some(mut slot) = slot.filter(|_| !is_too_long && !self.is_over && room.is_ok()) else {
            self.unwritten.add(packet.interface, Unwritten::of(packet));
            return room;
        };
        slot.bytes()[..data.len()].copy_from_slice(data);
        slot.send(data.len());
        self.waiting.push_back(Waiting {
            interface: packet.interface,
            bytes: data.len() as u32,
            is_cut: packet.is_cut(),
        });
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

    fn take_unwritten(&mut self) -> Vec<Unwritten> {
        self.unwritten.take()
    }

    fn take_remarks(&mut self) -> Vec<String> {
        self.outlet.take_remarks()
    }

    fn dropped_later(&mut self) -> u64 {
        self.outlet.dropped()
    }
}

/// Longer than any adapter needs to find its speed after its cable is plugged in again.
const PATIENCE: Duration = Duration::from_secs(5);
