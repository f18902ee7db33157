//! `ring2:IF`: a ring of slots (TPACKET_V2), which has the lowest delay.

use std::os::fd::{AsFd as _, BorrowedFd};

use sys::packet::SlotRing;

use super::{
    LiveOptions, Progress, Source, Visit,
    live::{Tap, shut},
    memory::Memory,
};
use crate::{CaptureError, Interface, Losses, Packet};

/// The packets of one interface, through a ring of slots.
#[derive(Debug)]
pub struct SlotSource {
    tap: Tap,
    ring: SlotRing,
}

impl SlotSource {
    /// Opens the ring, so that packets come. A slot holds a frame of the interface's MTU; with
    /// [`LiveOptions::has_room_for_super_packets`] it holds a super-packet. Longer frames are cut,
    /// and counted as cut. The memory has the limits of [`RingSource`](super::RingSource).
    ///
    /// # Errors
    /// When there is no such interface or no permission, or when the kernel refuses.
    pub fn open(name: &str, options: &LiveOptions) -> Result<Self, CaptureError> {
        let mut tap = Tap::find(name, "TPACKET_V2 ring", options.snap_len)?;
        let frame_bytes = frame_bytes(tap.link.mtu_bytes as usize, options);
        let memory = Memory::new(
            name,
            options.ring_bytes,
            frame_bytes.next_power_of_two() * 4,
        );
        let mut remarks = Vec::new();
        let ring = memory.make(&mut remarks, SlotRing::bytes, |bytes| {
            Ok(SlotRing::new(tap.socket(options)?, bytes, frame_bytes))
        })?;
        if ring.slot_bytes() > SLOT_BYTES_REMARKABLE {
            let (bytes, slots) = (ring.slot_bytes(), ring.bytes() / ring.slot_bytes());
            remarks.push(format!(
                "{name}: the ring has {slots} slots of {bytes} bytes, for frames of {frame_bytes} \
                 bytes; a larger --ring makes more slots, a smaller --snaplen makes smaller ones"
            ));
        }
        tap.remarks.append(&mut remarks);
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
        Ok(if has_read {
            Progress::Some
        } else {
            self.tap.idle(self.ring.socket())
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

/// Returns the length in bytes of the longest frame that is captured whole.
fn frame_bytes(mtu: usize, options: &LiveOptions) -> usize {
    let packet_bytes = if options.has_room_for_super_packets {
        mtu.max(SUPER_PACKET_BYTES)
    } else {
        mtu
    };
    (packet_bytes + HEADER_BYTES).min(options.snap_len as usize)
}

const SLOTS_A_SHARE: usize = 4096;
/// Bytes of an Ethernet header and two VLAN tags.
const HEADER_BYTES: usize = 14 + 2 * 4;
/// The largest super-packet that a kernel makes by default (`gso_max_size` raises it).
const SUPER_PACKET_BYTES: usize = 65_536;
/// Larger slots leave a remark, because the ring then has fewer of them than a user may expect.
const SLOT_BYTES_REMARKABLE: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_as_large_as_the_frames() {
        let mut options = LiveOptions::default();
        assert_eq!(frame_bytes(1500, &options), 1522);
        assert_eq!(frame_bytes(9000, &options), 9022);
        options.has_room_for_super_packets = true;
        assert_eq!(frame_bytes(1500, &options), 65_558);
        options.snap_len = 96;
        assert_eq!(frame_bytes(1500, &options), 96);
    }
}
