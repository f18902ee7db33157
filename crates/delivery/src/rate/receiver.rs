//! What is known about one receiver: its last report, and what its reports showed at the present
//! rate.

use std::time::Duration;

use base::Instant;

use super::RateReport;

/// The state of one receiver, from its reports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Receiver {
    pub(super) last: RateReport,
    /// The report from which losses are counted. At first, this is the first report since the last
    /// change of rate. Later, it is the last report for which a share of loss could be computed.
    pub(super) base: Option<RateReport>,
    /// The highest delivery rate in any report since the last change of rate.
    pub(super) delivery_bytes_per_s: u64,
    pub(super) was_heard: bool,
    /// Number of consecutive marks, up to the last reported one, that waited in a queue.
    pub(super) queues: u32,
    /// The highest share of lost packets that counts as chance: lower rates do not prevent such
    /// loss.
    pub(super) chance: f64,
    /// The shortest time that an answer took in the present half minute, which began at
    /// `half_since`. `least_before` is the shortest time in the half minute before.
    least: Option<Duration>,
    least_before: Option<Duration>,
    half_since: Instant,
}

/// What the reports of a receiver show, up to the newest one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    /// The share of packets lost; `None` when there are too few packets to tell.
    pub(super) loss: Option<f64>,
    /// The receiver's host drops more than [`DROPS_SHARE_MAX`] of the packets.
    pub(super) is_starved: bool,
    /// More is lost than chance explains.
    pub(super) is_lossy: bool,
    /// There is no queue, and at most [`LOSS_SHARE_MAX`] of the packets is lost, even when there
    /// are too few packets for `loss`.
    pub(super) is_clean: bool,
    /// Number of consecutive marks, up to the last reported one, that waited in a queue.
    pub(super) queues: u32,
}

/// What is wrong with the present rate, as a report shows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Symptom {
    /// Nothing is wrong.
    None,
    /// Loss for the first time, before anything is known of the path: it may be an accident.
    Doubtful,
    /// Packets wait on the path.
    Queue,
    /// The receiver's host drops what arrives.
    HostDrops,
    /// This share of packets is lost.
    Loss(f64),
}

impl Receiver {
    /// Takes a report, and returns what the receiver's reports show. `is_current` says that the
    /// report's mark left at the present rate. `is_fresh` says that the previous report was about
    /// another mark.
    pub(super) fn observe(
        &mut self,
        report: &RateReport,
        is_current: bool,
        is_fresh: bool,
    ) -> Observation {
        let base = *self.base.get_or_insert(*report);
        self.delivery_bytes_per_s = self.delivery_bytes_per_s.max(report.delivery_bytes_per_s);
        let loss = report.loss_since(&base);
        let mut is_starved = false;
        if let Some(loss) = loss {
            self.base = Some(*report);
            is_starved = report.drops_since(&base) > DROPS_SHARE_MAX;
            if loss < self.chance / 2.0 {
                self.chance = loss;
            }
        }
        if is_current {
            self.was_heard = true;
            self.count_queue(report, is_fresh);
        }
        Observation {
            loss,
            is_starved,
            is_lossy: loss.is_some_and(|loss| loss > LOSS_SHARE_MAX.max(self.chance)),
            is_clean: self.queues == 0 && report.share_missed(&base) <= LOSS_SHARE_MAX,
            queues: self.queues,
        }
    }

    /// Takes a report of this receiver, which does not set the limit, while another sender keeps a
    /// queue full. Returns a symptom when this receiver loses more than chance explains, or its
    /// host drops packets.
    pub(super) fn observe_beside(&mut self, report: &RateReport) -> Option<Symptom> {
        self.delivery_bytes_per_s = self.delivery_bytes_per_s.max(report.delivery_bytes_per_s);
        let base = *self.base.get_or_insert(*report);
        let loss = report.loss_since(&base)?;
        self.base = Some(*report);
        if report.drops_since(&base) > DROPS_SHARE_MAX {
            return Some(Symptom::HostDrops);
        }
        (loss > LOSS_SHARE_MAX.max(self.chance)).then_some(Symptom::Loss(loss))
    }

    /// Counts consecutive marks that met a queue; a repeated mark counts once.
    fn count_queue(&mut self, report: &RateReport, is_fresh: bool) {
        if report.queue_delay <= report.queue_max() {
            self.queues = 0;
        } else if is_fresh {
            self.queues += 1;
        }
    }

    /// Notes how long the receiver's answer took, to know the shortest time of the last 30 to 60 s.
    pub(super) fn answered(&mut self, now: Instant, report: &RateReport) {
        if report.answer.is_zero() {
            return;
        }
        if now.since(self.half_since) >= LEAST_HALF {
            (self.least_before, self.least, self.half_since) = (self.least, None, now);
        }
        self.least = Some(
            self.least
                .map_or(report.answer, |least| least.min(report.answer)),
        );
    }

    /// Returns the longest time that packets may have waited on the path: the time that the answer
    /// in `report` took, minus the shortest time that an answer took lately.
    pub(super) fn queue(&self, report: &RateReport) -> Duration {
        let least = [self.least, self.least_before].into_iter().flatten().min();
        report.answer.saturating_sub(least.unwrap_or_default())
    }

    /// Returns true when the report shows that nothing waits on the path.
    pub(super) fn is_empty(&self, report: &RateReport) -> bool {
        !report.answer.is_zero() && self.queue(report) <= report.queue_max()
    }
}

/// A judgement: random loss of up to this share, as on radio links, does not count as congestion.
const LOSS_SHARE_MAX: f64 = 0.10;
/// The largest share of packets that a host may drop by accident.
const DROPS_SHARE_MAX: f64 = 0.01;
/// The shortest answer time is noted for each interval of this length. Those of the present and the
/// previous interval count; older ones do not, because routes change within minutes.
const LEAST_HALF: Duration = Duration::from_secs(30);
