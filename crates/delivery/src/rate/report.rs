//! What a receiver says about the path to it, and how two of its reports compare.

use std::time::Duration;

use base::Instant;

/// One report of a receiver. Totals are since its session was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateReport {
    /// When the mark left that the receiver heard last.
    pub echo: Instant,
    /// From a mark to the report, without the receiver's own time.
    pub round_trip: Duration,
    /// As `round_trip`, of this report alone, queues and busy hosts on the way included; zero when
    /// it is not known.
    pub answer: Duration,
    /// Bytes a second that arrive, headers included.
    pub delivery: u64,
    /// Time in queues of the network, above the least seen.
    pub queue_delay: Duration,
    /// The highest position it knows to exist.
    pub lead: u64,
    /// Positions missed, each once.
    pub missed: u64,
    /// Packets its kernel dropped.
    pub host_drops: u64,
}

impl RateReport {
    /// A longer queue is more than bursts and busy hosts make.
    pub(super) fn queue_max(&self) -> Duration {
        QUEUE_MIN.max(self.round_trip / 8)
    }

    /// The time until its queue is gone, and the sender knows it, when 85 % of what arrives is
    /// sent.
    pub(super) fn drain_time(&self) -> Duration {
        self.queue_delay * 6 + MARK_INTERVAL * 2 + self.round_trip * 2
    }

    /// The share of packets that the receiver's host dropped since `base`.
    pub(super) fn drops_since(&self, base: &Self) -> f64 {
        self.host_drops.saturating_sub(base.host_drops) as f64 / self.span(base).max(1) as f64
    }

    /// The share of packets lost since `base`; `None` over too few.
    pub(super) fn loss_since(&self, base: &Self) -> Option<f64> {
        (self.span(base) >= LOSS_SPAN_MIN).then(|| self.share_missed(base))
    }

    /// The same over however few.
    pub(super) fn share_missed(&self, base: &Self) -> f64 {
        // What a host drops has come through the network.
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

/// Judgement: bursts and busy hosts make queues of this length themselves.
const QUEUE_MIN: Duration = Duration::from_millis(2);
/// Below this many packets one lost packet is more than half a per cent: a share says nothing.
const LOSS_SPAN_MIN: u64 = 200;
/// The usual time between two marks in SPMs of a source that sends data.
pub(super) const MARK_INTERVAL: Duration = Duration::from_millis(10);
