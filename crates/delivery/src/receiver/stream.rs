//! What a transfer receiver knows of its packet streams.

use crate::{StreamCounts, StreamState};

/// The packet stream that is followed, and what those before it have counted: a restarted sender's
/// manifest continues in a new one.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Its next position, as it counts; only the low 32 bits are compared. None before the first.
    settled: Option<u32>,
    is_over: bool,
    counts: StreamCounts,
    past: StreamCounts,
}

impl Stream {
    pub(super) const fn observe(&mut self, stream: &StreamState) {
        self.settled = Some(stream.contiguous as u32);
        self.counts = stream.counts;
    }

    /// No block of it arrives any more.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.past += std::mem::take(&mut self.counts);
    }

    /// Blocks of it, or of its successor, may arrive.
    pub(super) const fn begin(&mut self) {
        self.is_over = false;
        self.settled = None;
    }

    /// True when nothing up to position `last` can arrive any more.
    pub(super) fn is_past(&self, last: u32) -> bool {
        // Serial arithmetic: both ends agree on the low 32 bits only.
        let is_past = |next: u32| next.wrapping_sub(last) as i32 > 0;
        self.is_over || self.settled.is_some_and(is_past)
    }

    /// What all of them have counted.
    pub(super) fn totals(&self) -> StreamCounts {
        let mut sum = self.past;
        sum += self.counts;
        sum
    }
}
