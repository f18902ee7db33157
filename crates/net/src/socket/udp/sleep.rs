//! Sleeping in the group's socket instead of the poll set: the wake-up is several microseconds
//! cheaper, and the sleeping call also receives packets.
//!
//! The packets that a sleep has received wait here. The owner's next receive swaps its empty batch
//! for the batch that holds them.

use std::time::Duration;

use base::{Instant, RecvBatch};
use sys::clock;

/// How to sleep, and what the last sleep received.
#[derive(Debug)]
pub(super) struct GroupSleep {
    /// The packets that the last sleep received, in a batch of the same shape as the owner's
    /// batches. The batch has no buffers before the first sleep.
    ahead: RecvBatch,
    /// The number of buffers in the batch that the owner last received into, and the bytes of each
    /// buffer. The number is 0 before the owner's first receive.
    shape: (usize, usize),
    /// The shortest wait that is done as a sleep in the socket. Shorter waits are left to the poll
    /// set.
    shortest: Duration,
}

impl GroupSleep {
    pub(super) fn new() -> Self {
        Self {
            ahead: RecvBatch::new(0, 1),
            shape: (0, 1),
            shortest: clock::tick() * 2 + SLEEP_MAX,
        }
    }

    /// Notes that the owner receives into batches of this shape.
    pub(super) const fn note_shape(&mut self, batch: &RecvBatch) {
        self.shape = shape(batch);
    }

    /// Returns true when the shape of the owner's batch is known, and the next deadline is further
    /// away than a sleep may last.
    pub(super) fn is_possible(&self, until: Option<Instant>) -> bool {
        let is_far = |until: Instant| until.since(clock::monotonic()) >= self.shortest;
        self.shape.0 > 0 && until.is_none_or(is_far)
    }

    /// Returns the batch to receive into during a sleep.
    pub(super) fn batch(&mut self) -> &mut RecvBatch {
        if shape(&self.ahead) != self.shape {
            self.ahead = RecvBatch::new(self.shape.0, self.shape.1);
        }
        &mut self.ahead
    }

    /// Returns true when a sleep has received packets that the owner does not have yet.
    pub(super) const fn has_packets(&self) -> bool {
        self.ahead.filled() > 0
    }

    /// Swaps the empty `batch` for the one with the packets of the last sleep. Returns how many
    /// buffers are filled. When there are no packets or `batch` is not empty, returns `None`.
    pub(super) const fn hand_over(&mut self, batch: &mut RecvBatch) -> Option<usize> {
        if !self.has_packets() || batch.filled() > 0 {
            return None;
        }
        std::mem::swap(batch, &mut self.ahead);
        Some(batch.filled())
    }
}

const fn shape(batch: &RecvBatch) -> (usize, usize) {
    (batch.slots(), batch.slot_bytes())
}

/// The longest sleep in the group's socket; after it, the receiver looks at all sockets again. The
/// kernel may add up to two ticks. A wait with a deadline before that end is done in the poll set,
/// which keeps deadlines to the microsecond.
pub(super) const SLEEP_MAX: Duration = Duration::from_millis(1);
