//! How fast a source may send: from what receivers report.
//!
//! It does not send, measure or choose whom to wait for. In: reports of receivers
//! ([`RateControl::report`]) and whether the limit is in use ([`RateControl::steer`]). Out: a limit
//! in bytes a second, or none, and who sets it.
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
//! goes well, and **Drain** sends 85 % of what arrives until the queue is gone. Alone that keeps a
//! way full to 98 % with hardly a queue. A source that begins with much at once, as one of files,
//! starts so before the first report ([`RateControl::start`]).
//!
//! Whoever fills queues until they overflow, as TCP does, would get everything from a sender that
//! drains them. A queue that does not fall, or a share that is given up bit by bit, is thus taken
//! for somebody else's: **Compete** is what one TCP connection with CUBIC would get in this place,
//! a window over the time to an answer. Every few seconds it **Looks**: at half of that the queue
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

mod window;
use window::CubicWindow;

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests;

/// What a rate control is told at its beginning.
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

/// What sets the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Who sets the limit, and why.
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
    /// What the way carried when it was last seen to be full.
    ceiling: u64,
    /// The highest ceiling since it was last known that nobody else is there.
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
    /// Somebody else keeps the queue full: as much as a TCP connection in its place.
    Compete { share: Share, look_at: Instant },
    /// Half of that for a moment: with nobody else, the queue empties.
    Look { share: Share, until: Instant },
}

/// What one TCP connection would get.
#[derive(Clone, Copy, Debug)]
struct Share {
    window: CubicWindow,
    /// Positions missed, at the last report, and when that was.
    missed: u64,
    at: Instant,
    /// What is reported lost until then left before the window was cut.
    cut_until: Instant,
    round_trip: Duration,
    /// The most that arrived lately, in bytes a second.
    carried: u64,
    /// Reports of an empty queue in a row.
    empty: u32,
}

/// What one receiver told.
#[derive(Clone, Copy, Debug, Default)]
struct Receiver {
    last: RateReport,
    /// Where losses are counted from, since the last change.
    base: Option<RateReport>,
    /// The most that arrived in any of these reports.
    delivery: u64,
    was_heard: bool,
    /// Marks in a row that waited in a queue.
    queues: u32,
    /// The share of packets that it loses whatever the rate.
    chance: f64,
    /// The shortest answers of this half minute and the one before, and since when.
    least: Option<Duration>,
    least_before: Option<Duration>,
    half_since: Instant,
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
        // Whatever it claims, it can be reckoned with.
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
        // Where far too much is sent, the marks are lost too. While the rate only grows, what is
        // lost at a lower one is lost all the more now.
        if !is_current && !matches!(self.phase, Phase::Start) {
            return;
        }
        let base = *receiver.base.get_or_insert(*report);
        receiver.delivery = receiver.delivery.max(report.delivery);
        let loss = report.loss_since(&base);
        let mut is_starved = false;
        if let Some(loss) = loss {
            receiver.base = Some(*report);
            is_starved = report.drops_since(&base) > DROPS_SHARE_MAX;
            if loss < receiver.chance / 2.0 {
                receiver.chance = loss;
            }
        }
        if is_current {
            receiver.was_heard = true;
            receiver.saw(report, is_fresh);
        }
        // One mark in a queue, or a few packets lost, end no start; it goes no further then either.
        let is_clean = receiver.queues == 0 && report.share_missed(&base) <= LOSS_SHARE_MAX;
        let is_lossy = loss.is_some_and(|loss| loss > LOSS_SHARE_MAX.max(receiver.chance));
        let is_draining = matches!(self.phase, Phase::Drain { .. });
        // Who sends less than the limit has made no queue, unless that stays.
        let is_used = now.since(self.used_at) < GROW_INTERVAL * 2;
        let marks = if is_used { WARNINGS } else { WARNINGS_UNUSED };
        let is_queued = receiver.queues >= marks || is_draining && receiver.queues > 0;
        // Without a limit, the flow window bounds what may be in a queue.
        let is_queued = is_queued && self.rate != 0;
        if is_starved || is_lossy || is_queued {
            self.warnings += u32::from(is_starved || is_lossy);
            if is_queued {
                self.congested(now, slot, 0.0);
            } else if self.warnings < WARNINGS && matches!(self.phase, Phase::Start) {
            } else if is_starved {
                self.host_drops(now, slot);
            } else {
                self.congested(now, slot, loss.unwrap_or_default());
            }
        } else if is_current && (loss.is_some() || !self.phase.is_for_loss()) {
            self.warnings = if loss.is_some() { 0 } else { self.warnings };
            self.drained(now);
            if matches!(self.phase, Phase::Start) && is_clean {
                self.ramp(now, report.echo);
            }
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

    /// Who sets the limit; `None` while nobody does.
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

    /// A receiver sees a queue, or loss that is none of chance: `loss` is then its share.
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
                // It was given up bit by bit, for the sake of queues that others make.
                self.compete(now, slot);
            }
            return;
        };
        if loss > 0.0 {
            // What a full way would lose at this rate, were all that was lost its.
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

    /// What arrives at a receiver that sees a queue or this share lost, as far as that is to be
    /// believed: a busy host makes queues that are none, and measures too little, or too much when
    /// it takes at once what came while it was busy.
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

    /// The loss is as high with less: it is not ours.
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

    /// A receiver sees no queue: with nobody who does, the way is used in full again.
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
        match self.phase {
            Phase::Cruise if self.receivers.values().all(|receiver| receiver.queues == 0) => {
                if !self.all_heard(now) {
                } else if self.was_limited {
                    let percent = 100 + (1 << (self.steps / STEPS_ALIKE).min(4));
                    self.steps += 1;
                    // What was there once is soon tried again.
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
            _ => {}
        }
    }

    /// Somebody else keeps the queue full.
    fn compete(&mut self, now: Instant, slot: u32) {
        let report = self.receivers[&slot].last;
        let round_trip = report.answer.max(ANSWER_MIN);
        let rate = if self.rate_before == 0 {
            self.ceiling
        } else {
            self.rate_before
        };
        let window = rate as f64 * round_trip.as_secs_f64() / SEGMENT_BYTES;
        let share = Share {
            window: CubicWindow::new(window),
            missed: report.missed,
            at: now,
            cut_until: now,
            round_trip,
            carried: report.delivery.max(self.config.rate_min),
            empty: 0,
        };
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
        let Some(receiver) = self.receivers.get_mut(&slot) else {
            return;
        };
        receiver.delivery = receiver.delivery.max(report.delivery);
        let base = *receiver.base.get_or_insert(*report);
        let Some(loss) = report.loss_since(&base) else {
            return;
        };
        receiver.base = Some(*report);
        if report.drops_since(&base) > DROPS_SHARE_MAX {
            self.host_drops(now, slot);
        } else if loss > LOSS_SHARE_MAX.max(receiver.chance) {
            self.congested(now, slot, loss);
        }
    }

    /// Nobody else is there any more.
    fn leave(&mut self, now: Instant, share: &Share) {
        self.vain = 0;
        self.ceiling = share.carried;
        self.peak = share.carried;
        self.cruise(now, part(share.carried, 97).max(self.config.rate_min));
    }

    /// Every receiver has told what the last change did, or had the time to.
    fn all_heard(&self, now: Instant) -> bool {
        let is_late = now >= self.changed_at + SILENCE_MAX;
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

impl Share {
    /// What a TCP connection would make of this report: `is_used` says whether all was sent that
    /// may be.
    fn report(&mut self, now: Instant, report: &RateReport, is_used: bool) {
        if !report.answer.is_zero() {
            let answer = report.answer.max(ANSWER_MIN);
            // A queue that grows is believed at once, as by a connection whose window is full.
            self.round_trip = answer.max((self.round_trip * 3 + answer) / 4);
        }
        self.carried = part(self.carried, 98).max(report.delivery);
        let has_lost = report.missed > self.missed;
        self.missed = report.missed;
        let round_trips = now.since(self.at).as_secs_f64() / self.round_trip.as_secs_f64();
        self.at = now;
        if now < self.cut_until {
            return;
        }
        if has_lost {
            self.window.lose();
            self.cut_until = now + self.round_trip + MARK_INTERVAL;
        } else if is_used {
            let segments = self.window.segments() * round_trips.min(1.0);
            self.window.acknowledge(now, self.round_trip, segments);
        }
    }

    /// In bytes a second: more than a little more than arrives only makes the queue longer.
    fn rate(&self) -> u64 {
        let rate = self.window.segments() * SEGMENT_BYTES / self.round_trip.as_secs_f64();
        (rate as u64).min(part(self.carried, 125))
    }
}

impl Receiver {
    /// What the mark that `report` repeats has met on its way.
    fn saw(&mut self, report: &RateReport, is_fresh: bool) {
        if report.queue_delay <= report.queue_max() {
            self.queues = 0;
        } else if is_fresh {
            self.queues += 1;
        }
    }

    fn answered(&mut self, now: Instant, report: &RateReport) {
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

    /// The longest that what is under way may have to wait.
    fn queue(&self, report: &RateReport) -> Duration {
        let least = [self.least, self.least_before].into_iter().flatten().min();
        report.answer.saturating_sub(least.unwrap_or_default())
    }

    fn is_empty(&self, report: &RateReport) -> bool {
        !report.answer.is_zero() && self.queue(report) <= report.queue_max()
    }
}

impl RateReport {
    /// A longer queue is more than bursts and busy hosts make.
    fn queue_max(&self) -> Duration {
        QUEUE_MIN.max(self.round_trip / 8)
    }

    /// By when its queue is gone when 85 % of what arrives are sent, and that is known.
    fn drain_time(&self) -> Duration {
        self.queue_delay * 6 + MARK_INTERVAL * 2 + self.round_trip * 2
    }

    /// The share of packets that the receiver's host dropped since `base`.
    fn drops_since(&self, base: &Self) -> f64 {
        self.host_drops.saturating_sub(base.host_drops) as f64 / self.span(base).max(1) as f64
    }

    /// The share of packets lost since `base`; `None` over too few.
    fn loss_since(&self, base: &Self) -> Option<f64> {
        (self.span(base) >= LOSS_SPAN_MIN).then(|| self.share_missed(base))
    }

    /// The same over however few.
    fn share_missed(&self, base: &Self) -> f64 {
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

/// `percent` of a rate.
const fn part(rate: u64, percent: u64) -> u64 {
    rate / 100 * percent + rate % 100 * percent / 100
}

/// Nothing delivers more, in bytes a second.
const DELIVERY_MAX: u64 = 1 << 40;
/// A shorter queue is a burst's own, or a busy host's.
const QUEUE_MIN: Duration = Duration::from_millis(2);
/// Packets over which a share of lost ones means something.
const LOSS_SPAN_MIN: u64 = 200;
/// Random loss up to this is not congestion.
const LOSS_SHARE_MAX: f64 = 0.10;
/// Not even chance takes more.
const CHANCE_MAX: f64 = 0.75;
/// A way that carries as much without a queue needs no limit: the flow window is one.
const RAMP_END: u64 = 400_000_000;
/// What is sent for so long at four times what a way carries makes a queue of three times that.
const RAMP_TRIAL: Duration = Duration::from_millis(5);
/// A queue that is back so soon was one.
const RELAPSE: Duration = Duration::from_millis(300);
/// More dropped by a receiver's host is more than an accident.
const DROPS_SHARE_MAX: f64 = 0.01;
/// Marks in a queue, or reports of loss, in a row that mean something.
const WARNINGS: u32 = 2;
/// And when the limit is not in use.
const WARNINGS_UNUSED: u32 = 10;
/// Drains in a row after which a queue is somebody else's.
const VAIN_MAX: u32 = 3;
/// Who keeps less of what the way once carried, has yielded enough.
const YIELD_MAX_PERCENT: u64 = 75;
/// Growths of 1 %, then of 2 %, and so on to 16 %.
const STEPS_ALIKE: u32 = 4;
const GROW_INTERVAL: Duration = Duration::from_millis(50);
/// Marks are about as far apart.
const MARK_INTERVAL: Duration = Duration::from_millis(10);
/// A limit that was not reached for so long is none.
const UNUSED: Duration = Duration::from_secs(1);
/// A receiver that says nothing for so long holds no growth back.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Half of the time of which the shortest answer counts.
const LEAST_HALF: Duration = Duration::from_secs(30);
/// For how long it competes before it looks for the first time, and at the most.
const PATIENCE_MIN: Duration = Duration::from_secs(3);
const PATIENCE_MAX: Duration = Duration::from_secs(24);
/// How long that takes beyond the queue's own time.
const LOOK: Duration = Duration::from_millis(25);
/// Shorter answers are taken for this long.
const ANSWER_MIN: Duration = Duration::from_micros(200);
/// A full packet of TCP on Ethernet.
const SEGMENT_BYTES: f64 = 1514.0;
