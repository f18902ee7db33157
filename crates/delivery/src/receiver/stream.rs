//! What a transfer receiver knows about its packet streams.

use crate::{StreamCounts, StreamState};

/// The current packet stream, and the totals of earlier ones: when a sender restarts, its manifest
/// continues in a new stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// The low 32 bits of a position. Every packet before this position has arrived or is lost.
    /// `None` until the stream's state is known.
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

    /// Notes that no block of the stream can arrive any more.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.past += std::mem::take(&mut self.counts);
    }

    /// Notes that blocks of the stream, or of its successor, may arrive.
    pub(super) const fn begin(&mut self) {
        self.is_over = false;
        self.settled = None;
    }

    /// Returns true when no packet up to position `last` can arrive any more.
    pub(super) fn is_past(&self, last: u32) -> bool {
        // Serial arithmetic, because both ends know only the low 32 bits of a position.
        let is_past = |next: u32| next.wrapping_sub(last) as i32 > 0;
        self.is_over || self.settled.is_some_and(is_past)
    }

    /// Returns the totals over all streams.
    pub(super) fn totals(&self) -> StreamCounts {
        let mut sum = self.past;
        sum += self.counts;
        sum
    }
}
