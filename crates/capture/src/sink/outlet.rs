//! The interface by which packets leave: what it takes, what it drops, and how long to wait when it
//! takes nothing.
//!
//! When the driver drops a frame and reports this (no carrier, a full queue), the frame is kept and
//! sent again. The interface counts each such attempt as a drop. So a cable that is unplugged for a
//! moment costs time and no packet; when it stays unplugged, sending ends.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use base::Instant;
use sys::{clock, packet::PacketSocket};

use super::SendOptions;
use crate::{CaptureError, link::LinkCounters};

/// The interface by which packets leave, with its counters.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) index: u32,
    pub(super) mtu_bytes: usize,
    name: String,
    counters: LinkCounters,
    patience: Duration,
    stop: Option<Arc<AtomicBool>>,
    /// The interface's count of dropped packets at the last reading.
    dropped_seen: u64,
    /// How many of these drops were of packets that were then sent again.
    tried_again: u64,
    is_too_long_told: bool,
    remarks: Vec<String>,
}

/// A time in which the interface takes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stall {
    since: Option<Instant>,
    nap: Duration,
    /// How many frames waited at the last look.
    waiting: usize,
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// The sender may try again.
    ForRoom,
    /// The sender must stop.
    ForNothing,
}

impl Outlet {
    pub(super) fn find(name: &str, options: &SendOptions) -> Result<Self, CaptureError> {
        let (counters, link) = LinkCounters::find(name, false)?;
        Ok(Self {
            index: link.index,
            mtu_bytes: link.mtu_bytes as usize,
            name: link.name,
            counters,
            patience: options.patience,
            stop: options.stop.clone(),
            dropped_seen: 0,
            tried_again: 0,
            is_too_long_told: false,
            remarks: Vec::new(),
        })
    }

    /// Returns true for a frame that is too long for the interface; the first such frame leaves a
    /// remark.
    pub(super) fn is_too_long(&mut self, frame: &[u8]) -> bool {
        let most = self.frame_bytes_max(frame);
        let is_too_long = frame.len() > most;
        if is_too_long && !std::mem::replace(&mut self.is_too_long_told, true) {
            self.remarks.push(format!(
                "{} takes frames of at most {most} bytes, because its MTU is {}: it refuses longer \
                 frames, such as super-packets (several packets captured in one piece); the first \
                 such frame has {} bytes",
                self.name,
                self.mtu_bytes,
                frame.len()
            ));
        }
        is_too_long
    }

    /// Takes the remarks for the user; each remark comes once.
    pub(super) fn take_remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remarks)
    }

    /// Returns the length of the longest frame with this header, in bytes: a VLAN tag may exceed
    /// the MTU.
    fn frame_bytes_max(&self, frame: &[u8]) -> usize {
        let tag = match frame.get(12..14) {
            Some([0x81 | 0x91, 0] | [0x88, 0xa8]) => TAG_BYTES,
            _ => 0,
        };
        self.mtu_bytes + HEADER_BYTES + tag
    }

    pub(super) fn failure(&self, cause: io::Error) -> CaptureError {
        CaptureError::os(format!("send on {}", self.name), cause)
    }

    /// Waits a moment for an interface that has not taken all `waiting` frames. The `stall` lasts
    /// until fewer of them wait.
    ///
    /// # Errors
    /// When the interface has taken nothing for as long as the sender's patience.
    pub(super) fn wait(
        &mut self,
        socket: &PacketSocket,
        waiting: usize,
        stall: &mut Stall,
    ) -> Result<Waited, CaptureError> {
        let now = clock::monotonic();
        if waiting < stall.waiting {
            *stall = Stall::default();
        }
        stall.waiting = waiting;
        let waited = now.since(*stall.since.get_or_insert(now));
        let is_stopped = self
            .stop
            .as_ref()
            .is_some_and(|stop| stop.load(Ordering::Relaxed));
        if is_stopped && waited >= FAREWELL.min(self.patience) {
            return Ok(Waited::ForNothing);
        }
        if waited >= self.patience {
            return Err(self.stalled(waited));
        }
        // A queue that was full for a moment soon has room, so the thread sleeps only in longer
        // stalls.
        if !stall.nap.is_zero() {
            thread::sleep(stall.nap);
        }
        stall.nap = (stall.nap * 2).clamp(NAP_LEAST, ROOM_WAIT);
        let waited = socket.wait_writable(ROOM_WAIT).map(drop);
        waited.map_err(|cause| self.failure(cause))?;
        Ok(Waited::ForRoom)
    }

    /// Returns how many packets the interface has dropped on their way out since the start, without
    /// those that were sent again.
    pub(super) fn dropped(&mut self) -> u64 {
        let statistics = self.counters.since_start();
        let dropped = statistics.map_or(0, |since| since.tx_dropped);
        dropped.saturating_sub(self.tried_again)
    }

    /// Notes whether the interface counted a drop for the frame that it has just not taken.
    pub(super) fn note_retry(&mut self) {
        if let Ok(since) = self.counters.since_start() {
            self.tried_again += u64::from(since.tx_dropped > self.dropped_seen);
            self.dropped_seen = since.tx_dropped;
        }
    }

    fn stalled(&mut self, waited: Duration) -> CaptureError {
        let reason = match self.counters.state() {
            None => "the interface is gone: name one that is there (`ip link`)".to_owned(),
            Some((false, _)) => {
                format!(
                    "it is switched off: `ip link set {} up` switches it on",
                    self.name
                )
            }
            Some((true, false)) => {
                "it has no carrier: plug the cable in, or switch the other end on".to_owned()
            }
            Some((true, true)) => format!(
                "its queue stays full: `tc -s qdisc show dev {}` shows what waits in it",
                self.name
            ),
        };
        CaptureError::Stalled {
            name: self.name.clone(),
            waited_s: (waited.as_secs_f64() * 10.0).round() / 10.0,
            reason,
        }
    }
}

/// Bytes of an Ethernet header.
pub(super) const HEADER_BYTES: usize = 14;
pub(super) const TAG_BYTES: usize = 4;
const ROOM_WAIT: Duration = Duration::from_millis(10);
const NAP_LEAST: Duration = Duration::from_micros(20);
/// After a stop, waiting packets still have this long to leave by a busy interface.
const FAREWELL: Duration = Duration::from_millis(100);
