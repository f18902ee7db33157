//! What a receiver says about the path to it, and how two of its reports compare.

use std::time::Duration;

use base::Instant;

/// One report of a receiver. Totals count from when its session was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateReport {
    /// When the newest mark that the receiver heard left the sender.
    pub echo: Instant,
    /// The shortest recent time from a mark to its report, without the receiver's own time.
    pub round_trip: Duration,
    /// The same time for this report alone, with queues and busy hosts on the way; zero when it is
    /// not known.
    pub answer: Duration,
    /// Bytes a second that arrive, headers included.
    pub delivery: u64,
    /// Time in queues of the network, beyond the least seen.
    pub queue_delay: Duration,
    /// The highest position it knows to exist.
    pub lead: u64,
    /// Positions missed, each once.
    pub missed: u64,
    /// Packets its kernel dropped.
    pub host_drops: u64,
}

impl RateReport {
    /// Bursts and busy hosts do not make a queue that is longer than this.
    pub(super) fn queue_max(&self) -> Duration {
        QUEUE_MIN.max(self.round_trip / 8)
    }

    /// How long a queue takes to empty when 85 % of what arrives is sent, until the sender knows
    /// it.
    pub(super) fn drain_time(&self) -> Duration {
        self.queue_delay * 6 + MARK_INTERVAL * 2 + self.round_trip * 2
    }

    /// The share of packets that the receiver's host dropped since `base`.
    pub(super) fn drops_since(&self, base: &Self) -> f64 {
        self.host_drops.saturating_sub(base.host_drops) as f64 / self.span(base).max(1) as f64
    }

    /// The share of packets lost since `base`; `None` when there are too few packets to tell.
    pub(super) fn loss_since(&self, base: &Self) -> Option<f64> {
        (self.span(base) >= LOSS_SPAN_MIN).then(|| self.share_missed(base))
    }

    /// The share of packets lost since `base`, even for few packets.
    pub(super) fn share_missed(&self, base: &Self) -> f64 {
        // Packets that a host drops have passed the network.
        let dropped = self.host_drops.saturating_sub(base.host_drops);
        let missed = self
            .missed
            .saturating_sub(base.missed.saturating_add(dropped));
        missed as f64 / self.span(base).max(1) as f64
    }

    /// Packets between two reports.
    const fn span(&self, base: &Self) -> u64 {
        self.lead.saturating_sub(base.lead)
    }
}

/// A judgement: bursts and busy hosts make queues of this length.
const QUEUE_MIN: Duration = Duration::from_millis(2);
/// With fewer packets one lost packet is more than half a per cent, so a share tells nothing.
const LOSS_SPAN_MIN: u64 = 200;
/// The usual time between two marks in SPMs of a source that sends data.
pub(super) const MARK_INTERVAL: Duration = Duration::from_millis(10);
