//! What a receiver says about the path to it, and how two of its reports compare.

use std::time::Duration;

use base::Instant;

/// One report of a receiver. Totals count from the time when the receiver found its session.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateReport {
    /// The departure time of the newest mark that the receiver has heard.
    pub echo: Instant,
    /// The shortest recent time from the departure of a mark to the arrival of a report that
    /// repeats the mark, less the time for which the receiver kept the mark before it reported.
    pub round_trip: Duration,
    /// The time from `echo` to the arrival of this report, less the time for which the receiver
    /// kept the mark. Delays by queues and busy hosts are included. Zero when unknown.
    pub answer: Duration,
    /// Bytes that arrive at the receiver per second, headers included.
    pub delivery_bytes_per_s: u64,
    /// How much longer the newest mark waited in the network's queues than the recent mark with the
    /// shortest wait.
    pub queue_delay: Duration,
    /// The highest position that the receiver knows to exist.
    pub lead: u64,
    /// Positions that were missed, each counted once.
    pub missed: u64,
    /// Packets that the receiver's kernel dropped.
    pub host_drops: u64,
}

impl RateReport {
    /// Returns the longest wait that may come from bursts and busy hosts; a longer wait counts as a
    /// queue.
    pub(super) fn queue_max(&self) -> Duration {
        QUEUE_MIN.max(self.round_trip / 8)
    }

    /// Estimates how long it takes until the queue is empty and a report has told the source so, if
    /// the source sends at about 85 % of the rate at which data arrives.
    pub(super) fn drain_time(&self) -> Duration {
        self.queue_delay * 6 + MARK_INTERVAL * 2 + self.round_trip * 2
    }

    /// Returns the share of packets that the receiver's host dropped since `base`.
    pub(super) fn drops_since(&self, base: &Self) -> f64 {
        self.host_drops.saturating_sub(base.host_drops) as f64 / self.span(base).max(1) as f64
    }

    /// Returns the share of packets that the network lost since the report `base`; `None` when
    /// there are too few packets to tell.
    pub(super) fn loss_since(&self, base: &Self) -> Option<f64> {
        (self.span(base) >= LOSS_SPAN_MIN).then(|| self.share_missed(base))
    }

    /// Returns the share of packets that the network lost since the report `base`, however few
    /// packets there were.
    pub(super) fn share_missed(&self, base: &Self) -> f64 {
        // Packets that the host dropped had passed the network, so they do not count as lost.
        let dropped = self.host_drops.saturating_sub(base.host_drops);
        let missed = self
            .missed
            .saturating_sub(base.missed.saturating_add(dropped));
        missed as f64 / self.span(base).max(1) as f64
    }

    /// Returns how many positions `lead` has advanced since the report `base`.
    const fn span(&self, base: &Self) -> u64 {
        self.lead.saturating_sub(base.lead)
    }
}

/// A wait of at most this time never counts as a queue, because bursts and busy hosts also cause
/// such waits. The time is a judgement.
const QUEUE_MIN: Duration = Duration::from_millis(2);
/// The fewest packets from which a share of loss is computed, so that one lost packet counts at
/// most half a per cent.
const LOSS_SPAN_MIN: u64 = 200;
/// The usual time between two marks in SPMs of a source that sends data.
pub(super) const MARK_INTERVAL: Duration = Duration::from_millis(10);
