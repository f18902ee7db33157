//! NAK confirmations that wait to be sent: a short queue of complete TPDUs.
//!
//! The queue does not decide which NAK to confirm. It is bounded: when it is full, no confirmation
//! is made, and the receiver repeats its NAK.
//!
//! **Spec**: RFC 3208 sections 5.2, 9.3.4.

use std::ops::Range;

/// A queue of complete NCFs, first in first out.
///
/// **Cost**: one allocation of 80 KiB.
#[derive(Debug)]
pub(super) struct NcfQueue {
    memory: Vec<u8>,
    lens: [u16; SLOTS],
    front: usize,
    len: usize,
}

impl NcfQueue {
    pub(super) fn new() -> Self {
        Self {
            memory: vec![0; SLOTS * SLOT_BYTES],
            lens: [0; SLOTS],
            front: 0,
            len: 0,
        }
    }

    /// Queues a TPDU. Returns false when the queue is full.
    pub(super) fn push(&mut self, tpdu: &[u8]) -> bool {
        if self.len == SLOTS {
            return false;
        }
        assert!(tpdu.len() <= SLOT_BYTES, "an NCF is at most 320 bytes long");
        let slot = (self.front + self.len) % SLOTS;
        self.memory[slot * SLOT_BYTES..][..tpdu.len()].copy_from_slice(tpdu);
        self.lens[slot] = tpdu.len() as u16;
        self.len += 1;
        true
    }

    /// Fills `ranges` with the byte ranges in `memory` of the first NCFs, which have equal lengths,
    /// except that the last may be shorter. Takes at most `datagrams` NCFs and `bytes` bytes, but
    /// at least one NCF if there is one.
    pub(super) fn collect(&self, bytes: usize, datagrams: usize, ranges: &mut Vec<Range<usize>>) {
        ranges.clear();
        let mut total = 0;
        let segment = usize::from(self.lens[self.front]);
        for i in 0..self.len.min(datagrams.max(1)) {
            let slot = (self.front + i) % SLOTS;
            let len = usize::from(self.lens[slot]);
            if i > 0 && (len > segment || total + len > bytes) {
                break;
            }
            ranges.push(slot * SLOT_BYTES..slot * SLOT_BYTES + len);
            total += len;
            if len < segment {
                break;
            }
        }
    }

    /// Takes out the first NCF, and returns its length.
    pub(super) fn pop(&mut self) -> Option<usize> {
        let len = usize::from(self.lens[self.front]);
        self.len = self.len.checked_sub(1)?;
        self.front = (self.front + 1) % SLOTS;
        Some(len)
    }

    pub(super) fn memory(&self) -> &[u8] {
        &self.memory
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true when the queue is more than half full: NAKs come faster than the source may
    /// send confirmations.
    pub(super) const fn is_storm(&self) -> bool {
        self.len > SLOTS / 2
    }
}

const SLOTS: usize = 256;
/// Length of a slot in bytes: the longest NCF (IPv6, full list of sequence numbers) has 316.
const SLOT_BYTES: usize = 320;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lengths_leave_together() {
        let mut queue = NcfQueue::new();
        for len in [36, 36, 36, 40, 36, 44] {
            assert!(queue.push(&vec![7; len]));
        }
        let mut ranges = Vec::new();
        let mut collect = |queue: &NcfQueue, bytes, datagrams| {
            queue.collect(bytes, datagrams, &mut ranges);
            ranges
                .iter()
                .map(ExactSizeIterator::len)
                .collect::<Vec<_>>()
        };
        assert_eq!(collect(&queue, 1000, 10), [36, 36, 36]);
        assert_eq!(collect(&queue, 80, 10), [36, 36]);
        assert_eq!(collect(&queue, 1, 10), [36]);
        assert_eq!(collect(&queue, 1000, 2), [36, 36]);
        assert_eq!((0..3).filter_map(|_| queue.pop()).sum::<usize>(), 108);
        assert_eq!(collect(&queue, 1000, 10), [40, 36]);
    }

    #[test]
    fn it_is_bounded_and_empties() {
        let mut queue = NcfQueue::new();
        for _ in 0..SLOTS {
            assert!(queue.push(&[1; 36]));
        }
        assert!(queue.is_storm() && !queue.push(&[1; 36]));
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), SLOTS);
        assert!(queue.is_empty() && queue.pop().is_none());
    }
}
