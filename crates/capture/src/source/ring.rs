//! `ring:IF`: a ring of blocks (TPACKET_V3), which costs the least for each packet.

use std::os::fd::{AsFd as _, BorrowedFd};

use sys::packet::{BlockRing, BlockRingSpec};

use super::{
    LiveOptions, Progress, Source, Visit,
    live::{RETIRE_MAX, Tap, shut},
    memory::Memory,
};
use crate::{CaptureError, Interface, Losses, Packet};

/// The packets of one interface, through a ring of blocks.
#[derive(Debug)]
pub struct RingSource {
    tap: Tap,
    ring: BlockRing,
}

impl RingSource {
    /// Opens the ring, so that packets come. The ring takes at most half of the available memory.
    /// When the kernel has no room for it, half the size is tried, then a quarter, and so on. A
    /// ring that is smaller than asked leaves a remark.
    ///
    /// # Errors
    /// When there is no such interface or no permission, or when the kernel refuses.
    pub fn open(name: &str, options: &LiveOptions) -> Result<Self, CaptureError> {
        let source = Self::closed(name, options)?;
        source.tap.start(source.ring.socket(), options)?;
        Ok(source)
    }

    /// Opens `workers` rings as [`RingSource::open`] does. They share the interface's packets (each
    /// flow goes to one ring) and the memory of `options`. Only the first ring reports the losses
    /// of the interface itself.
    ///
    /// # Errors
    /// As for [`RingSource::open`], and before Linux 4.12.
    pub fn open_shared(
        name: &str,
        options: &LiveOptions,
        workers: usize,
    ) -> Result<Vec<Self>, CaptureError> {
        let options = LiveOptions {
            ring_bytes: Memory::new(name, options.ring_bytes, BYTES_LEAST).wanted()
                / workers.max(1),
            ..options.clone()
        };
        let mut sources: Vec<Self> = Vec::new();
        let mut group = None;
        for _ in 0..workers {
            let mut source = Self::closed(name, &options)?;
            group = Some(source.tap.join(source.ring.socket(), &options, group)?);
            sources.push(source);
        }
        for source in &sources {
            source.tap.open_shared(source.ring.socket(), &options)?;
        }
        Ok(sources)
    }

    /// Makes a source with its ring; no packet comes yet.
    fn closed(name: &str, options: &LiveOptions) -> Result<Self, CaptureError> {
        let mut tap = Tap::find(name, "TPACKET_V3 ring", options.snap_len)?;
        let retire = options.retire.min(RETIRE_MAX);
        // The kernel still gives out the block that it was filling, at the latest after the retire
        // time.
        tap.late_packets += retire;
        let memory = Memory::new(name, options.ring_bytes, BYTES_LEAST);
        let mut remarks = Vec::new();
        let ring = memory.make(&mut remarks, BlockRing::bytes, |bytes| {
            let (block_bytes, blocks) = shape(bytes);
            let spec = BlockRingSpec {
                block_bytes: u32::try_from(block_bytes).unwrap_or(u32::MAX),
                blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
                retire,
            };
            Ok(BlockRing::new(tap.socket(options)?, &spec))
        })?;
        tap.remarks.append(&mut remarks);
        Ok(Self { tap, ring })
    }

    /// Returns the length of the ring in bytes.
    #[must_use]
    pub const fn ring_bytes(&self) -> usize {
        self.ring.bytes()
    }
}

impl Source for RingSource {
    fn interfaces(&self) -> &[Interface] {
        &self.tap.interface
    }

    fn read(&mut self, visit: &mut Visit<'_>) -> Result<Progress, CaptureError> {
        let mut has_read = false;
        for _ in 0..BLOCKS_A_SHARE {
            let Some(mut block) = self.ring.next_block() else {
                break;
            };
            has_read = true;
            let mut is_enough = false;
            for raw in block.packets() {
                // A block is given whole: after a visitor wants no more, the other packets count as
                // unread.
                is_enough |= visit(&Packet::of_ring(&raw, 0)).is_break();
            }
            if is_enough {
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

/// Returns the bytes of a block and the number of blocks, for a ring of about `bytes`. A block is a
/// sixteenth of the ring, rounded down to a power of two, with at least 4 KiB and at most 1 MiB.
fn shape(bytes: usize) -> (usize, usize) {
    let block = (bytes / 16).clamp(BLOCK_BYTES_LEAST, BLOCK_BYTES);
    // The kernel allocates powers of two, so the block gets the largest one that is not above.
    let block = 1 << block.ilog2();
    (block, (bytes / block).max(2))
}

const BLOCK_BYTES: usize = 1 << 20;
const BLOCK_BYTES_LEAST: usize = 4096;
const BYTES_LEAST: usize = BLOCK_BYTES_LEAST * 2;
/// How many blocks are read before the session looks at its clock.
const BLOCKS_A_SHARE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_cut_into_blocks_that_leave_some_to_fill() {
        assert_eq!(shape(32 << 20), (1 << 20, 32));
        assert_eq!(shape(2 << 20), (128 << 10, 16));
        assert_eq!(shape(16 << 10), (4096, 4));
        assert_eq!(shape(8 << 10), (4096, 2));
        assert_eq!(shape(3_000_000), (131_072, 22));
    }
}
