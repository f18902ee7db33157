//! `ring2:IF`: a ring of slots (TPACKET_V2), the lowest delay.

use std::os::fd::{AsFd as _, BorrowedFd};

use sys::packet::SlotRing;

use super::{
    LiveOptions, Progress, Source, Visit,
    live::{Tap, shut},
};
use crate::{CaptureError, Interface, Losses, Packet};

/// Packets of one interface through a ring of slots.
#[derive(Debug)]
pub struct SlotSource {
    tap: Tap,
    ring: SlotRing,
}

impl SlotSource {
    /// Opens the ring and lets packets in. A slot holds a frame of the interface's MTU; what is
    /// longer is cut, and counted as cut.
    ///
    /// # Errors
    /// No such interface, no permission, or a refusal.
    pub fn open(name: &str, options: &LiveOptions) -> Result<Self, CaptureError> {
        let tap = Tap::find(name, "TPACKET_V2 ring", options.snap_len)?;
        let frame_bytes = (options.snap_len as usize).min(FRAME_BYTES);
        let ring = SlotRing::new(tap.socket(options)?, options.ring_bytes, frame_bytes);
        let ring = ring.map_err(|cause| {
            let bytes = options.ring_bytes;
            CaptureError::os(format!("make a ring of {bytes} bytes for {name}"), cause)
        })?;
        tap.start(ring.socket(), options)?;
        Ok(Self { tap, ring })
    }
}

impl Source for SlotSource {
    fn interfaces(&self) -> &[Interface] {
        &self.tap.interface
    }

    fn read(&mut self, visit: &mut Visit<'_>) -> Result<Progress, CaptureError> {
        let mut has_read = false;
        for _ in 0..SLOTS_A_SHARE {
            let Some(mut slot) = self.ring.next_slot() else {
                break;
            };
            has_read = true;
            if let Some(raw) = slot.packet()
                && visit(&Packet::of_ring(&raw, 0)).is_break()
            {
                break;
            }
        }
        if !has_read {
            self.tap.note_error(self.ring.socket());
        }
        Ok(if has_read {
            Progress::Some
        } else {
            Progress::Idle
        })
    }

    fn losses(&mut self) -> Result<Losses, CaptureError> {
        let drops = self.ring.take_drops();
        self.tap.losses(drops)
    }

    fn stop(&mut self) -> Result<bool, CaptureError> {
        shut(self.ring.socket())?;
        Ok(true)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.as_fd())
    }

    fn named_losses(&mut self) -> Vec<(String, u64)> {
        self.tap.named_losses()
    }

    fn take_remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.tap.remarks)
    }
}

/// A slot of 2 KiB less what the kernel needs of it.
const FRAME_BYTES: usize = 2048 - 128;
const SLOTS_A_SHARE: usize = 4096;
