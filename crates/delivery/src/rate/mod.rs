//! How fast a source may send: from what receivers report.
//!
//! It does not send, measure or choose whom to wait for. In: reports of receivers
//! ([`RateControl::report`]) and whether the limit is in use ([`RateControl::steer`]). Out: a limit
//! in bytes a second, or none, and the receiver that sets it.
//!
//! ```text
//!          queue, or loss beyond 10 %, twice              no queue
//!   Start ----------------------------------> Drain ----------------> Cruise
//!     ^                                         ^  |                   |   |
//!     |                                         '--+----- queue -------'   |
//!     '------ limit unused for 1 s ----------------+-----------------------'
//!                                                  |
//!               three drains in vain, or a quarter | given up in many
//!                      queue empty                 v
//!   Cruise <------------------------------- Compete <--> Look
//! ```
//!
//! While nobody reports there is no limit. With the first report it starts at a modest one, which
//! grows fourfold with every round of reports that tell of no queue, until none is needed: what is
//! in flight is bounded by the flow window. The delivery rate of the first report of a queue is
//! what the way carries. From there on **Cruise** goes up by 1 % at a time, faster the longer that
//! goes well, and **Drain** sends 85 % of what arrives until the queue is gone. Alone on a path,
//! that fills it to 98 % with hardly a queue. A source that begins with much data, such as files,
//! starts like this before the first report ([`RateControl::start`]).
//!
//! A sender that fills queues until they overflow, as TCP does, would take everything from one that
//! drains them. So a queue that does not fall, or a share that shrinks bit by bit, counts as
//! another sender's: **Compete** is what one TCP connection with CUBIC would get in this place, a
//! window over the time to an answer. Every few seconds it **Looks**: at half of that the queue
//! empties within moments if nobody else is there.
//!
//! A report counts only when the mark it repeats left after the last change: it tells what that
//! change did. The rate falls at once, and grows when all receivers were heard and the limit was
//! really in use. Loss without a queue that stays as high with less is chance, and no congestion.
//!
//! A queue in a receiver's own host is not congestion (its report leaves it out): the flow window
//! serves a starved receiver better. Packets that its host dropped are: the limit then is its.
//!
//! Invariants: nothing is allocated but one entry for each receiver; a limit is never below
//! [`RateConfig::rate_min`]. The structure is that of TFMCC (RFC 4654), the signal that of Copa and
//! BBR, the competition that of CUBIC (RFC 9438).

use std::{collections::BTreeMap, fmt, time::Duration};

use base::Instant;

mod receiver;
use receiver::{Observation, Receiver, Symptom};

mod report;
pub use report::RateReport;

mod share;
use share::Share;

mod window;

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests;

/// The settings of a rate control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateConfig {
    /// The lowest limit, in bytes a second. Default 100,000.
    pub rate_min: u64,
    /// The first limit once receivers report, in bytes a second; it grows fourfold with every
    /// round of reports until something is in the way. Default 25,000,000.
    pub rate_start: u64,
}

impl Default for RateConfig {
    fn default() -> Self {
        Self {
            rate_min: 100_000,
            rate_start: 25_000_000,
        }
    }
}

/// What sets the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateCause {
    /// A queue of the network, or what it loses beyond what chance explains.
    Network,
    /// The receiver's host drops what arrives.
    Host,
}

impl fmt::Display for RateCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network => "network",
            Self::Host => "host",
        })
    }
}

/// The receiver that sets the limit, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The receiver's number.
    pub slot: u32,
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
    /// The rate that the path carried when it was last seen to be full.
    ceiling: u64,
    /// The highest ceiling since the path was last known to be unshared.
    peak: u64,
    /// Growths in a row.
    steps: u32,
    drained_at: Instant,
    /// Drains in a row that left the queue as it was, and the rate before the first.
    vain: u32,
    rate_before: u64,
    /// Reports of congestion before the first cut.
    warnings: u32,
    /// For how long it competes before it looks whether it still has to.
    patience: Duration,
    used_at: Instant,
    was_limited: bool,
    /// Since when as much was sent as the present limit allows.
    limited_since: Option<Instant>,
    due: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Nothing is known.
    Start,
    /// What the way carries is known.
    Cruise,
    /// Less than that is sent, until the queue is gone, or by when it should have fallen.
    Drain {
        queue: Duration,
        loss: f64,
        /// The rate at which that was so; 0 for none.
        from: u64,
        until: Instant,
    },
    /// Another sender keeps the queue full: sends as much as a TCP connection in its place.
    Compete { share: Share, look_at: Instant },
    /// Sends half of that for a moment: without another sender, the queue empties.
    Look { share: Share, until: Instant },
}

impl RateControl {
    /// A control that begins at `now`.
    #[must_use]
    pub fn new(config: RateConfig, now: Instant) -> Self {
        Self {
            config,
            phase: Phase::Start,
            rate: 0,
            changed_at: now,
            receivers: BTreeMap::new(),
            limit: None,
            ceiling: 0,
            peak: 0,
            steps: 0,
            drained_at: now,
            vain: 0,
            rate_before: 0,
            warnings: 0,
            patience: PATIENCE_MIN,
            used_at: now,
            was_limited: false,
            limited_since: None,
            due: now,
        }
    }

    /// Takes a report of the receiver with number `slot`.
    pub fn report(&mut self, now: Instant, slot: u32, report: &RateReport) {
        // A receiver may claim anything: keep the figure within what the sums below can take.
        let delivery = report.delivery.min(DELIVERY_MAX);
        let report = &RateReport {
            delivery,
            ..*report
        };
        if self.receivers.is_empty() && self.rate == 0 {
            self.begin(now);
        }
        let is_current = report.echo >= self.changed_at;
        let receiver = self.receivers.entry(slot).or_default();
        receiver.answered(now, report);
        let is_fresh = report.echo != receiver.last.echo;
        receiver.last = *report;
        if self.phase.is_shared() {
            return if self.limit.is_some_and(|limit| limit.slot == slot) {
                self.shared(now, slot, report);
            } else {
                self.beside(now, slot, report);
            };
        }
        // At far too high a rate the marks are lost too, so that no report is current. While the
        // rate only grows, what is lost at a lower one is lost all the more now.
        if !is_current && !matches!(self.phase, Phase::Start) {
            return;
        }
        let seen = receiver.observe(report, is_current, is_fresh);
        match self.symptom(now, &seen) {
            Symptom::Queue => self.congested(now, slot, 0.0),
            Symptom::HostDrops => self.host_drops(now, slot),
            Symptom::Loss(loss) => self.congested(now, slot, loss),
            Symptom::Doubtful => {}
            Symptom::None if is_current => self.all_well(now, report.echo, &seen),
            Symptom::None => {}
        }
    }

    /// What `seen` shows to be wrong with the present rate.
    fn symptom(&mut self, now: Instant, seen: &Observation) -> Symptom {
        // A source that sends less than the limit made no queue, unless the queue stays.
        let is_used = now.since(self.used_at) < GROW_INTERVAL * 2;
        let marks = if is_used { WARNINGS } else { WARNINGS_UNUSED };
        let is_draining = matches!(self.phase, Phase::Drain { .. });
        let is_queued = seen.queues >= marks || is_draining && seen.queues > 0;
        let loses = seen.is_starved || seen.is_lossy;
        self.warnings += u32::from(loses);
        let is_first = self.warnings < WARNINGS && matches!(self.phase, Phase::Start);
        match () {
            // Without a limit the flow window bounds what may wait in a queue.
            () if is_queued && self.rate != 0 => Symptom::Queue,
            () if !loses => Symptom::None,
            () if is_first => Symptom::Doubtful,
            () if seen.is_starved => Symptom::HostDrops,
            () => Symptom::Loss(seen.loss.unwrap_or_default()),
        }
    }

    /// A report of what the present rate does, `seen` since the mark that left at `echo`, shows
    /// nothing wrong.
    fn all_well(&mut self, now: Instant, echo: Instant, seen: &Observation) {
        if seen.loss.is_none() && self.phase.is_for_loss() {
            return;
        }
        if seen.loss.is_some() {
            self.warnings = 0;
        }
        self.drained(now);
        // One mark in a queue, or a few packets lost, do not end the start; they only stop its
        // growth for this time.
        if matches!(self.phase, Phase::Start) && seen.is_clean {
            self.ramp(now, echo);
        }
    }

    /// The receivers with these numbers are about to report: what is sent until then is limited as
    /// well, and grows when all of them were heard. For a source that begins with much at once.
    /// Without effect when some were heard already, or there are none.
    pub fn start(&mut self, now: Instant, slots: impl IntoIterator<Item = u32>) {
        if !self.receivers.is_empty() {
            return;
        }
        let fresh = slots.into_iter().map(|slot| (slot, Receiver::default()));
        self.receivers = fresh.collect();
        if !self.receivers.is_empty() {
            self.begin(now);
        }
    }

    /// The receiver with number `slot` is gone.
    pub fn forget(&mut self, slot: u32) {
        if self.receivers.remove(&slot).is_some() && self.receivers.is_empty() {
            // Nobody reports: nothing is known, and nothing limited.
            (self.phase, self.rate, self.limit) = (Phase::Start, 0, None);
        }
        if self.limit.is_some_and(|limit| limit.slot == slot) {
            self.limit = None;
            if self.phase.is_shared() {
                self.phase = Phase::Cruise;
            }
        }
    }

    /// Does what is due; to be called once a turn, with whether something waits for the limit. The
    /// limit in bytes a second, 0 for none.
    pub fn steer(&mut self, now: Instant, is_limited: bool) -> u64 {
        if is_limited {
            (self.was_limited, self.used_at) = (true, now);
            self.limited_since.get_or_insert(now);
        }
        if now >= self.due {
            self.due = now + self.interval();
            self.grow(now);
            if !std::mem::take(&mut self.was_limited) {
                self.limited_since = None;
            }
        }
        self.rate
    }

    /// The receiver that sets the limit; `None` while none does.
    #[must_use]
    pub const fn limit(&self) -> Option<RateLimit> {
        self.limit
    }

    fn interval(&self) -> Duration {
        let receivers = self.receivers.values();
        let round_trip = receivers.map(|receiver| receiver.last.round_trip).max();
        GROW_INTERVAL.max(round_trip.unwrap_or_default() * 2)
    }

    /// The first receiver reports: something is known from here on.
    fn begin(&mut self, now: Instant) {
        self.phase = Phase::Start;
        self.warnings = 0;
        self.set(now, self.config.rate_start);
    }

    /// What is sent arrives without a queue, the mark that left at `echo` too: much more is tried
    /// when that was sent for long enough to fill one.
    fn ramp(&mut self, now: Instant, echo: Instant) {
        let is_tried = self
            .limited_since
            .is_some_and(|since| echo >= since + RAMP_TRIAL);
        if self.rate == 0 || !self.was_limited || !is_tried || !self.all_heard(now) {
            return;
        }
        self.was_limited = false;
        let rate = self.rate.saturating_mul(4);
        self.set(now, if rate >= RAMP_END { 0 } else { rate });
    }

    /// A receiver sees a queue, or more loss than chance explains: `loss` is then its share.
    fn congested(&mut self, now: Instant, slot: u32, loss: f64) {
        let report = self.receivers[&slot].last;
        let Phase::Drain {
            queue,
            loss: before,
            from,
            until,
        } = self.phase
        else {
            self.vain = 0;
            self.rate_before = self.rate;
            self.drain(now, slot, loss);
            self.peak = self.peak.max(self.ceiling);
            if loss == 0.0 && self.ceiling < part(self.peak, YIELD_MAX_PERCENT) {
                // The share shrank bit by bit, because of queues that others make.
                self.compete(now, slot);
            }
            return;
        };
        if loss > 0.0 {
            // The loss that a full path would cause at this rate.
            let expected = 1.0 - (1.0 - before) * from as f64 / self.rate as f64;
            let is_conclusive = from > 0 && before > 0.0 && expected < before / 2.0;
            if is_conclusive && loss > before / 2.0 {
                self.is_chance(now, slot, loss);
            } else {
                self.drain(now, slot, loss);
            }
        } else if report.queue_delay < queue.mul_f64(0.7) {
            // It falls: the last cut is at work.
            self.phase = Phase::Drain {
                queue: report.queue_delay,
                loss: 0.0,
                from,
                until: now + report.drain_time(),
            };
        } else if now >= until {
            self.vain += 1;
            if self.vain >= VAIN_MAX {
                self.compete(now, slot);
            } else {
                self.drain(now, slot, loss);
            }
        }
    }

    /// Sends less than arrives.
    fn drain(&mut self, now: Instant, slot: u32, loss: f64) {
        let report = self.receivers[&slot].last;
        self.ceiling = self.carried(now, slot, loss);
        self.limit = Some(RateLimit {
            slot,
            cause: RateCause::Network,
        });
        self.phase = Phase::Drain {
            queue: report.queue_delay,
            loss,
            from: self.rate,
            until: now + report.drain_time(),
        };
        self.set(now, part(self.ceiling, 85));
    }

    /// The arrival rate of a receiver that sees a queue or this share lost, within believable
    /// bounds: a busy host reports false queues, and measures too little, or too much when it takes
    /// at once what came while it was busy.
    fn carried(&self, now: Instant, slot: u32, loss: f64) -> u64 {
        let arrived = self.receivers[&slot].delivery;
        if self.rate == 0 {
            return arrived.max(self.config.rate_min);
        }
        let floor = match self.phase {
            Phase::Start => part(self.rate, 20),
            Phase::Cruise if now.since(self.drained_at) > RELAPSE => {
                part(self.ceiling, 95).min(part(self.rate, 95))
            }
            _ => part(self.rate, 70),
        };
        let most = (self.rate as f64 * (1.0 - loss)) as u64;
        arrived.max(floor).min(most)
    }

    /// The loss is as high at a lower rate: this source does not cause it.
    fn is_chance(&mut self, now: Instant, slot: u32, loss: f64) {
        self.receivers
            .entry(slot)
            .and_modify(|receiver| receiver.chance = (loss * 1.3 + 0.05).min(CHANCE_MAX));
        self.limit = None;
        self.warnings = 0;
        self.phase = if self.rate_before == 0 {
            Phase::Start
        } else {
            Phase::Cruise
        };
        self.set(now, self.rate_before);
    }

    /// A receiver sees no queue. When no receiver does, the path is used in full again.
    fn drained(&mut self, now: Instant) {
        let has_queue = self.receivers.values().any(|receiver| receiver.queues > 0);
        if matches!(self.phase, Phase::Drain { .. }) && !has_queue {
            self.vain = 0;
            self.drained_at = now;
            self.cruise(now, part(self.ceiling, 97));
        }
    }

    fn cruise(&mut self, now: Instant, rate: u64) {
        self.phase = Phase::Cruise;
        self.steps = 0;
        self.set(now, rate);
    }

    /// A receiver's host takes less than arrives.
    fn host_drops(&mut self, now: Instant, slot: u32) {
        self.ceiling = self.carried(now, slot, 0.0);
        self.limit = Some(RateLimit {
            slot,
            cause: RateCause::Host,
        });
        self.cruise(now, part(self.ceiling, 90));
    }

    /// Receivers report: the limit grows when all were heard, none sees a queue, and it was used.
    fn grow(&mut self, now: Instant) {
        if self.rate == 0 {
            self.used_at = now;
        }
        let is_free = self.receivers.values().all(|receiver| receiver.queues == 0);
        if !matches!(self.phase, Phase::Cruise) || !is_free || !self.all_heard(now) {
            return;
        }
        if self.was_limited {
            let percent = 100 + (1 << (self.steps / STEPS_ALIKE).min(4));
            self.steps += 1;
            // A rate that the path carried before is reached again in a few steps.
            let known = part(self.peak, 95).saturating_sub(self.rate) / 4;
            let rate = part(self.rate, percent).max(self.rate + known);
            if rate >= RAMP_END {
                (self.phase, self.limit) = (Phase::Start, None);
            }
            self.set(now, if rate >= RAMP_END { 0 } else { rate });
        } else if now.since(self.used_at) >= UNUSED {
            self.phase = Phase::Start;
            self.warnings = 0;
            self.limit = None;
        }
    }

    /// Somebody else keeps the queue full.
    fn compete(&mut self, now: Instant, slot: u32) {
        let report = self.receivers[&slot].last;
        let rate = if self.rate_before == 0 {
            self.ceiling
        } else {
            self.rate_before
        };
        let share = Share::new(now, rate, &report, self.config.rate_min);
        self.limit = Some(RateLimit {
            slot,
            cause: RateCause::Network,
        });
        self.phase = Phase::Compete {
            share,
            look_at: now + self.patience,
        };
        self.set(now, share.rate().max(self.config.rate_min));
    }

    /// A report while somebody else keeps the queue full.
    fn shared(&mut self, now: Instant, slot: u32, report: &RateReport) {
        let receiver = &self.receivers[&slot];
        let is_empty = receiver.is_empty(report);
        match self.phase {
            Phase::Compete { mut share, look_at } => {
                share.report(now, report, self.was_limited);
                share.empty = if is_empty { share.empty + 1 } else { 0 };
                if share.empty >= WARNINGS {
                    self.leave(now, &share);
                } else if now >= look_at {
                    let queue = receiver.queue(report);
                    let until = now + LOOK + report.round_trip * 2 + queue * 3;
                    self.phase = Phase::Look { share, until };
                    self.set(now, (share.rate() / 2).max(self.config.rate_min));
                } else {
                    self.phase = Phase::Compete { share, look_at };
                    self.rate = share.rate().max(self.config.rate_min);
                }
            }
            Phase::Look { share, .. } if is_empty && report.echo >= self.changed_at => {
                self.leave(now, &share);
            }
            Phase::Look { mut share, until } if now >= until => {
                share.missed = report.missed;
                share.at = now;
                self.patience = (self.patience * 2).min(PATIENCE_MAX);
                self.phase = Phase::Compete {
                    share,
                    look_at: now + self.patience,
                };
                self.set(now, share.rate().max(self.config.rate_min));
            }
            _ => {}
        }
    }

    /// A report of a receiver that is not the one on whose way somebody else is: what it loses
    /// beyond chance makes it the one that limits.
    fn beside(&mut self, now: Instant, slot: u32, report: &RateReport) {
        let receiver = self.receivers.get_mut(&slot);
        match receiver.and_then(|receiver| receiver.observe_beside(report)) {
            Some(Symptom::HostDrops) => self.host_drops(now, slot),
            Some(Symptom::Loss(loss)) => self.congested(now, slot, loss),
            _ => {}
        }
    }

    /// Nobody else is there any more.
    fn leave(&mut self, now: Instant, share: &Share) {
        self.vain = 0;
        self.ceiling = share.carried;
        self.peak = share.carried;
        self.cruise(now, part(share.carried, 97).max(self.config.rate_min));
    }

    /// Every receiver has reported the effect of the last change, or had the time to.
    fn all_heard(&self, now: Instant) -> bool {
        let is_late = now >= self.changed_at + QUIET_MAX;
        is_late || self.receivers.values().all(|receiver| receiver.was_heard)
    }

    fn set(&mut self, now: Instant, rate: u64) {
        self.rate = match rate {
            0 => 0,
            rate => rate.max(self.config.rate_min),
        };
        self.changed_at = now;
        self.limited_since = None;
        self.due = now + self.interval();
        for receiver in self.receivers.values_mut() {
            receiver.was_heard = false;
            receiver.base = None;
            receiver.delivery = 0;
        }
    }
}

impl Phase {
    fn is_for_loss(&self) -> bool {
        matches!(self, Self::Drain { loss, .. } if *loss > 0.0)
    }

    const fn is_shared(&self) -> bool {
        matches!(self, Self::Compete { .. } | Self::Look { .. })
    }
}

/// `percent` of a rate.
const fn part(rate: u64, percent: u64) -> u64 {
    rate / 100 * percent + rate % 100 * percent / 100
}

/// No receiver takes more than 1 TB/s: sums and products of rates stay far within 64 bits.
const DELIVERY_MAX: u64 = 1 << 40;
/// The highest loss that is put down to chance: a receiver that loses more is of no use anyway.
const CHANCE_MAX: f64 = 0.75;
/// Above this rate no limit is needed: 400 MB/s without a queue is more than the flow window lets
/// through on most paths, so the flow window is the limit.
const RAMP_END: u64 = 400_000_000;
/// How long a rate is tried before it grows fourfold. If the path carries only a quarter of it,
/// 5 ms fill a queue of 15 ms, which the next report shows.
const RAMP_TRIAL: Duration = Duration::from_millis(5);
/// If a queue returns within this time after it was drained, the first one was real, and the
/// delivery rate that was measured then is believed.
const RELAPSE: Duration = Duration::from_millis(300);
/// Marks that met a queue, or reports of loss, in a row before they count: one may be an accident.
const WARNINGS: u32 = 2;
/// The same while the source sends less than the limit: then most queues are not of its making.
const WARNINGS_UNUSED: u32 = 10;
/// Drains in a row that leave the queue as it was, after which somebody else must be filling it.
const VAIN_MAX: u32 = 3;
/// Below this share of the highest rate that the path carried, the source stops yielding.
const YIELD_MAX_PERCENT: u64 = 75;
/// The limit grows by 1 % this many times, then by 2 % as many times, and so on to 16 %.
const STEPS_ALIKE: u32 = 4;
/// The least time between two growths, so that reports of the one before can arrive.
const GROW_INTERVAL: Duration = Duration::from_millis(50);
/// A limit that was not reached for this long is removed.
const UNUSED: Duration = Duration::from_secs(1);
/// A receiver that has said nothing for this long no longer holds growth back.
const QUIET_MAX: Duration = Duration::from_secs(2);
/// How long it competes before it looks for the first time whether it still has to. Each look that
/// finds somebody doubles the time, up to the maximum: a look costs half of the rate.
const PATIENCE_MIN: Duration = Duration::from_secs(3);
const PATIENCE_MAX: Duration = Duration::from_secs(24);
/// How long a look takes beyond the time that the queue itself needs to empty.
const LOOK: Duration = Duration::from_millis(25);
