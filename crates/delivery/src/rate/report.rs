//! What a receiver says about the path to it, and how two of its reports compare.

use std::time::Duration;

use base::Instant;

/// One report of a receiver. Totals count from the time when the receiver found its session.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateReport {
    /// The departure time of the newest mark that the receiver has heard.
    pub echo: Instant,
    /// The shortest recent time from a mark to its report, without the receiver's own time.
    pub round_trip: Duration,
    /// The same time for this report alone, queues and busy hosts included; zero when it is not
    /// known.
    pub answer: Duration,
    /// What arrives, headers included.
    pub delivery_bytes_per_s: u64,
    /// How long the mark waited in queues of the network, beyond the least seen.
    pub queue_delay: Duration,
    /// The highest position that the receiver knows to exist.
    pub lead: u64,
    /// Positions that were missed, each once.
    pub missed: u64,
    /// Packets that the receiver's kernel dropped.
    pub host_drops: u64,
}

impl RateReport {
    /// Returns how long packets may wait because of bursts and busy hosts; a longer wait is a
    /// queue.
    pub(super) fn queue_max(&self) -> Duration {
        QUEUE_MIN.max(self.round_trip / 8)
    }

    /// Estimates how long it takes until a queue is empty and the source has heard so, if the
    /// source sends 85 % of what arrives.
    pub(super) fn drain_time(&self) -> Duration {
        self.queue_delay * 6 + MARK_INTERVAL * 2 + self.round_trip * 2
    }

    /// Returns the share of packets that the receiver's host dropped since `base`.
    pub(super) fn drops_since(&self, base: &Self) -> f64 {
        self.host_drops.saturating_sub(base.host_drops) as f64 / self.span(base).max(1) as f64
    }

    /// Returns the share of packets lost since `base`; `None` when there are too few packets to
    /// tell.
    pub(super) fn loss_since(&self, base: &Self) -> Option<f64> {
        (self.span(base) >= LOSS_SPAN_MIN).then(|| self.share_missed(base))
    }

    /// Returns the share of packets lost since `base`, even for few packets.
    pub(super) fn share_missed(&self, base: &Self) -> f64 {
        // Packets that a host drops have passed the network, so they do not count.
        let dropped = self.host_drops.saturating_sub(base.host_drops);
        let missed = self
            .missed
            .saturating_sub(base.missed.saturating_add(dropped));
        missed as f64 / self.span(base).max(1) as f64
    }

    /// Returns the number of packets between two reports.
    const fn span(&self, base: &Self) -> u64 {
        self.lead.saturating_sub(base.lead)
    }
}

/// A judgement: bursts and busy hosts make packets wait this long.
const QUEUE_MIN: Duration = Duration::from_millis(2);
/// The fewest packets for a share of loss: with fewer, one lost packet is more than half a per
/// cent.
const LOSS_SPAN_MIN: u64 = 200;
/// The usual time between two marks in SPMs of a source that sends data.
pub(super) const MARK_INTERVAL: Duration = Duration::from_millis(10);
