//! How fast a source may send: from what receivers report, or from what they ask for.
//!
//! It does not send, measure or choose whom to wait for. In: reports of receivers
//! ([`RateControl::report`]) and what was sent ([`RateControl::steer`]). Out: a limit in bytes a
//! second, or none, and who sets it.
//!
//! ```text
//!            queue, or loss beyond 10 %, twice                no queue, limit unused for 1 s
//!   Start ----------------------------------> Cruise --------------------------------> Start
//!   none, or doubling                          |  ^
//!   without reports          four cuts in vain v  | no queue for a while
//!                                             Compete: not below the TFRC equation
//! ```
//!
//! While receivers that hold the source back report, it starts without a limit: the flow window
//! bounds what can be lost before the first report of a queue, whose delivery rate is the rate to
//! begin with. A report counts only when the mark it repeats left after the last change: it tells
//! what that change did. The rate falls at once, and grows when all receivers were heard and the
//! limit was really in use.
//!
//! A queue in a receiver's own host is not congestion (its report leaves it out): the flow window
//! serves a starved receiver better. Packets that its host dropped are: the limit then is its.
//!
//! Invariants: nothing is allocated but one entry for each receiver; a limit is never below
//! [`RateConfig::rate_min`]. The structure is that of TFMCC (RFC 4654), the signal that of Copa and
//! BBR.

use std::{collections::BTreeMap, time::Duration};

use base::Instant;

mod equation;
use equation::tfrc_rate;

#[cfg(test)]
mod tests;

/// What a rate control is told at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateConfig {
    /// The lowest limit, in bytes a second. Default 100,000.
    pub rate_min: u64,
    /// The first limit without reports, in bytes a second. Default 125,000,000.
    pub rate_start: u64,
    /// Receivers that drop packets in their own hosts are followed.
    pub follows_hosts: bool,
}

impl Default for RateConfig {
    fn default() -> Self {
        Self {
            rate_min: 100_000,
            rate_start: 125_000_000,
            follows_hosts: true,
        }
    }
}

/// One report of a receiver. Totals are since its session was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateReport {
    /// When the mark left that the receiver heard last.
    pub echo: Instant,
    /// From a mark to the report, without the receiver's own time.
    pub round_trip: Duration,
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

/// What a source has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sending {
    /// New packets sent.
    pub packets: u64,
    /// Packets that were asked for again, each once.
    pub asked: u64,
    /// Something waits for the limit at the moment.
    pub is_limited: bool,
    /// Receivers that report, when they hold the source back: what is in flight is bounded.
    pub is_held: bool,
}

/// What sets the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateCause {
    /// A queue of the network, or what it loses beyond what chance explains.
    Network,
    /// The receiver's host drops what arrives.
    Host,
}

/// Who sets the limit, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The receiver's number; `None` when nobody reports.
    pub slot: Option<u32>,
    /// Why.
    pub cause: RateCause,
}

/// The rate of one source.
#[derive(Clone, Debug)]
pub struct RateControl {
    config: RateConfig,
    phase: Phase,
    /// 0 for none.
    rate: u64,
    changed_at: Instant,
    receivers: BTreeMap<u32, Receiver>,
    limit: Option<RateLimit>,
    /// Cuts in a row without a low queue in between, and the queue at the last.
    cuts: u32,
    queue_at_cut: Duration,
    /// Reports of congestion before the first cut.
    warnings: u32,
    used_at: Instant,
    was_limited: bool,
    due: Instant,
    sent_before: Sending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Start,
    Cruise,
    Compete,
}

/// What one receiver told since the last change.
#[derive(Clone, Copy, Debug, Default)]
struct Receiver {
    last: RateReport,
    /// Where losses are counted from.
    base: Option<RateReport>,
    was_heard: bool,
    has_queue: bool,
    /// Smoothed share of lost packets, and where the next sample begins.
    loss: f64,
    loss_base: Option<(u64, u64)>,
}

impl RateControl {
    /// A control that begins at `now`.
    #[must_use]
    pub fn new(config: RateConfig, now: Instant) -> Self {
        Self {
            config,
            phase: Phase::Start,
            rate: config.rate_start,
            changed_at: now,
            receivers: BTreeMap::new(),
            limit: None,
            cuts: 0,
            queue_at_cut: Duration::ZERO,
            warnings: 0,
            used_at: now,
            was_limited: false,
            due: now + PLAIN_INTERVAL,
            sent_before: Sending::default(),
        }
    }

    /// Takes a report of the receiver with number `slot`.
    pub fn report(&mut self, now: Instant, slot: u32, report: &RateReport) {
        let receiver = self.receivers.entry(slot).or_default();
        receiver.last = *report;
        receiver.smooth_loss(report);
        if report.echo < self.changed_at {
            return;
        }
        let base = *receiver.base.get_or_insert(*report);
        receiver.was_heard = true;
        let threshold = QUEUE_MIN.max(report.round_trip / 2);
        receiver.has_queue = report.queue_delay > threshold;
        let span = report.lead.saturating_sub(base.lead);
        let missed = report.missed.saturating_sub(base.missed);
        let mut share = 0.0;
        if span >= LOSS_SPAN_MIN {
            share = missed as f64 / span as f64;
            receiver.base = Some(*report);
        }
        let has_queue = receiver.has_queue;
        if self.config.follows_hosts && report.host_drops > base.host_drops {
            self.cut(now, slot, report, RateCause::Host);
        } else if has_queue || share > LOSS_SHARE_MAX {
            self.congested(now, slot, report);
        } else {
            self.warnings = 0;
        }
    }

    /// The receiver with number `slot` is gone.
    pub fn forget(&mut self, slot: u32) {
        self.receivers.remove(&slot);
        if self.limit.is_some_and(|limit| limit.slot == Some(slot)) {
            self.limit = None;
        }
    }

    /// Does what is due; to be called once a turn. The limit in bytes a second, 0 for none.
    pub fn steer(&mut self, now: Instant, sending: &Sending) -> u64 {
        self.was_limited |= sending.is_limited;
        if now >= self.due {
            self.due = now + self.interval();
            if self.receivers.is_empty() {
                self.steer_by_requests(now, sending);
            } else {
                self.grow(now, sending);
            }
            self.was_limited = false;
            self.sent_before = *sending;
        }
        self.rate
    }

    /// Who sets the limit; `None` while nobody does.
    #[must_use]
    pub const fn limit(&self) -> Option<RateLimit> {
        self.limit
    }

    fn interval(&self) -> Duration {
        let receivers = self.receivers.values();
        let round_trip = receivers.map(|receiver| receiver.last.round_trip).max();
        match round_trip {
            None => PLAIN_INTERVAL,
            Some(round_trip) => GROW_INTERVAL.max(round_trip * 2),
        }
    }

    /// A receiver sees a queue, or loss that is none of chance.
    fn congested(&mut self, now: Instant, slot: u32, report: &RateReport) {
        self.warnings += 1;
        if self.phase == Phase::Start && self.warnings < WARNINGS {
            return;
        }
        // It falls, only slowly: the last cut is at work.
        let is_falling = report.queue_delay < self.queue_at_cut.mul_f64(0.9);
        if self.phase == Phase::Compete || (self.cuts > 0 && is_falling) {
            return;
        }
        self.cut(now, slot, report, RateCause::Network);
    }

    fn cut(&mut self, now: Instant, slot: u32, report: &RateReport, cause: RateCause) {
        let delivery = match report.delivery {
            0 => self.rate.max(self.config.rate_start) / 2,
            delivery => delivery,
        };
        let rate = match self.phase {
            Phase::Start => part(delivery, 85),
            Phase::Cruise | Phase::Compete => {
                part(self.rate.min(delivery), 90).max(part(self.rate, 70))
            }
        };
        self.limit = Some(RateLimit {
            slot: Some(slot),
            cause,
        });
        if self.phase == Phase::Start {
            self.phase = Phase::Cruise;
        }
        if cause == RateCause::Network {
            self.cuts += 1;
            self.queue_at_cut = report.queue_delay;
            if self.cuts > CUTS_IN_VAIN {
                self.phase = Phase::Compete;
            }
        }
        self.set(now, rate);
    }

    /// Receivers report: the limit grows when all were heard, none sees a queue, and it was used.
    fn grow(&mut self, now: Instant, sending: &Sending) {
        if self.was_limited || self.rate == 0 {
            self.used_at = now;
        }
        if self.phase == Phase::Start {
            if sending.is_held {
                self.rate = 0;
            } else if self.rate != 0 && self.was_limited && self.all_heard(now) {
                self.set(now, self.rate.saturating_mul(2));
            }
            return;
        }
        if self.receivers.values().any(|receiver| receiver.has_queue) {
            if self.phase == Phase::Compete {
                self.compete(now);
            }
            return;
        }
        if !self.all_heard(now) {
            return;
        }
        self.cuts = 0;
        self.phase = Phase::Cruise;
        if self.was_limited {
            self.set(now, part(self.rate, 105));
        } else if now.since(self.used_at) >= UNUSED {
            self.phase = Phase::Start;
            self.warnings = 0;
            self.limit = None;
        }
    }

    /// Somebody else keeps the queue full: as much as one TCP connection would get.
    fn compete(&mut self, now: Instant) {
        let fair = self.receivers.values().map(|receiver| {
            let last = &receiver.last;
            tfrc_rate(receiver.loss, last.round_trip + last.queue_delay)
        });
        let fair = fair.fold(f64::INFINITY, f64::min);
        let (low, high) = (part(self.rate, 85), part(self.rate, 105));
        let rate = if fair >= high as f64 {
            high
        } else {
            (fair as u64).max(low)
        };
        // What does not arrive only makes the queue longer.
        let arrives = self
            .receivers
            .values()
            .map(|receiver| receiver.last.delivery)
            .min();
        self.set(now, rate.min(part(arrives.unwrap_or(rate), 125)));
    }

    /// Nobody reports: what is asked for tells.
    fn steer_by_requests(&mut self, now: Instant, sending: &Sending) {
        let sent = sending.packets.saturating_sub(self.sent_before.packets);
        let asked = sending.asked.saturating_sub(self.sent_before.asked);
        if sent < LOSS_SPAN_MIN {
            return;
        }
        let share_percent = asked.saturating_mul(100) / sent;
        if share_percent > ASKED_PERCENT_MAX {
            let base = if self.rate == 0 {
                self.config.rate_start
            } else {
                self.rate
            };
            let rate = part(base, 100_u64.saturating_sub(share_percent).clamp(50, 85));
            self.limit = Some(RateLimit {
                slot: None,
                cause: RateCause::Network,
            });
            self.phase = Phase::Cruise;
            self.set(now, rate);
        } else if self.was_limited && asked * 200 <= sent {
            let percent = if self.phase == Phase::Start { 200 } else { 105 };
            self.set(now, part(self.rate, percent));
        }
    }

    /// Every receiver has told what the last change did, or had the time to.
    fn all_heard(&self, now: Instant) -> bool {
        let is_late = now >= self.changed_at + SILENCE_MAX;
        is_late || self.receivers.values().all(|receiver| receiver.was_heard)
    }

    fn set(&mut self, now: Instant, rate: u64) {
        self.rate = rate.max(self.config.rate_min);
        self.changed_at = now;
        self.due = now + self.interval();
        for receiver in self.receivers.values_mut() {
            receiver.was_heard = false;
            receiver.base = None;
        }
    }
}

impl Receiver {
    fn smooth_loss(&mut self, report: &RateReport) {
        let (lead, missed) = *self.loss_base.get_or_insert((report.lead, report.missed));
        let span = report.lead.saturating_sub(lead);
        if span >= LOSS_SPAN_MIN {
            let share = report.missed.saturating_sub(missed) as f64 / span as f64;
            self.loss += (share - self.loss) / LOSS_WEIGHT;
            self.loss_base = Some((report.lead, report.missed));
        }
    }
}

/// `percent` of a rate.
const fn part(rate: u64, percent: u64) -> u64 {
    rate / 100 * percent + rate % 100 * percent / 100
}

/// A shorter queue is a burst's own, or a busy host's.
const QUEUE_MIN: Duration = Duration::from_millis(2);
/// Packets over which a share of lost ones means something.
const LOSS_SPAN_MIN: u64 = 50;
/// Samples over which the loss that TCP would see is smoothed.
const LOSS_WEIGHT: f64 = 16.0;
/// Random loss up to this is not congestion.
const LOSS_SHARE_MAX: f64 = 0.10;
/// Of those asked for by receivers that do not report, this many per cent are congestion.
const ASKED_PERCENT_MAX: u64 = 3;
/// Reports of congestion in a row that end the start.
const WARNINGS: u32 = 2;
/// Cuts in a row after which a queue is somebody else's.
const CUTS_IN_VAIN: u32 = 4;
const GROW_INTERVAL: Duration = Duration::from_millis(50);
const PLAIN_INTERVAL: Duration = Duration::from_millis(100);
/// A limit that was not reached for so long is none.
const UNUSED: Duration = Duration::from_secs(1);
/// A receiver that says nothing for so long holds no growth back.
const SILENCE_MAX: Duration = Duration::from_secs(2);
