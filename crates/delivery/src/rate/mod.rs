//! How fast a source may send: from what receivers report, or from what they ask for.
//!
//! It does not send, measure or choose whom to wait for. In: reports of receivers
//! ([`RateControl::report`]) and what was sent ([`RateControl::steer`]). Out: a limit in bytes a
//! second, or none, and who sets it.
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
//! While receivers that hold the source back report, it starts without a limit: the flow window
//! bounds what can be lost before the first report of a queue, whose delivery rate is what the way
//! carries. From there on **Cruise** goes up by 1 % at a time, faster the longer that goes well,
//! and **Drain** sends 85 % of what arrives until the queue is gone. Alone that keeps a way full
//! to 98 % with hardly a queue.
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

use std::{collections::BTreeMap, time::Duration};

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
    /// What the way carried when it was last seen to be full.
    ceiling: u64,
    /// The highest ceiling since it was last known that nobody else is there.
    peak: u64,
    /// Growths in a row.
    steps: u32,
    /// Drains in a row that left the queue as it was, and the rate before the first.
    vain: u32,
    rate_before: u64,
    /// Reports of congestion before the first cut.
    warnings: u32,
    /// For how long it competes before it looks whether it still has to.
    patience: Duration,
    used_at: Instant,
    was_limited: bool,
    due: Instant,
    sent_before: Sending,
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
    was_heard: bool,
    has_queue: bool,
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
            rate: config.rate_start,
            changed_at: now,
            receivers: BTreeMap::new(),
            limit: None,
            ceiling: 0,
            peak: 0,
            steps: 0,
            vain: 0,
            rate_before: 0,
            warnings: 0,
            patience: PATIENCE_MIN,
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
        receiver.answered(now, report);
        if matches!(self.phase, Phase::Compete { .. } | Phase::Look { .. }) {
            return self.shared(now, slot, report);
        }
        if report.echo < self.changed_at {
            return;
        }
        let base = *receiver.base.get_or_insert(*report);
        receiver.was_heard = true;
        receiver.has_queue = report.queue_delay > report.queue_max();
        let share = report.loss_since(&base);
        if let Some(share) = share {
            receiver.base = Some(*report);
            if share < receiver.chance / 2.0 {
                receiver.chance = share;
            }
        }
        let has_queue = receiver.has_queue;
        let is_lossy = share.is_some_and(|share| share > LOSS_SHARE_MAX.max(receiver.chance));
        if self.config.follows_hosts && report.host_drops > base.host_drops {
            self.host_drops(now, slot, report);
        } else if has_queue || is_lossy {
            let loss = share.filter(|_| !has_queue).unwrap_or_default();
            self.congested(now, slot, report, loss);
        } else if share.is_some() || !self.phase.is_for_loss() {
            self.warnings = 0;
            self.drained(now);
        }
    }

    /// The receiver with number `slot` is gone.
    pub fn forget(&mut self, slot: u32) {
        self.receivers.remove(&slot);
        if self.limit.is_some_and(|limit| limit.slot == Some(slot)) {
            self.limit = None;
            if self.phase.is_shared() {
                self.phase = Phase::Cruise;
            }
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

    /// A receiver sees a queue, or loss that is none of chance: `loss` is then its share.
    fn congested(&mut self, now: Instant, slot: u32, report: &RateReport, loss: f64) {
        self.warnings += 1;
        match self.phase {
            Phase::Start if self.warnings < WARNINGS => {}
            Phase::Drain {
                queue,
                loss: before,
                until,
            } => {
                if loss > 0.0 {
                    if before > 0.0 && loss > before / 2.0 {
                        self.is_chance(now, slot, loss);
                    } else {
                        self.drain(now, slot, report, loss);
                    }
                } else if report.queue_delay < queue.mul_f64(0.7) {
                    // It falls: the last cut is at work.
                    self.phase = Phase::Drain {
                        queue: report.queue_delay,
                        loss: 0.0,
                        until: now + report.drain_time(),
                    };
                } else if now >= until {
                    self.vain += 1;
                    if self.vain >= VAIN_MAX {
                        self.compete(now, slot, report);
                    } else {
                        self.drain(now, slot, report, loss);
                    }
                }
            }
            _ => {
                self.vain = 0;
                self.rate_before = self.rate;
                self.drain(now, slot, report, loss);
                self.peak = self.peak.max(self.ceiling);
                if loss == 0.0 && self.ceiling < part(self.peak, YIELD_MAX_PERCENT) {
                    // It was given up bit by bit, for the sake of queues that others make.
                    self.compete(now, slot, report);
                }
            }
        }
    }

    /// Sends less than arrives.
    fn drain(&mut self, now: Instant, slot: u32, report: &RateReport, loss: f64) {
        let rate = if self.rate == 0 { u64::MAX } else { self.rate };
        let floor = match self.phase {
            Phase::Start => 0,
            _ => part(rate, 70),
        };
        let carried = match report.delivery {
            0 => rate.min(self.config.rate_start) / 2,
            delivery => delivery.min(rate),
        };
        self.ceiling = carried.max(floor);
        self.limit = Some(RateLimit {
            slot: Some(slot),
            cause: RateCause::Network,
        });
        self.phase = Phase::Drain {
            queue: report.queue_delay,
            loss,
            until: now + report.drain_time(),
        };
        self.set(now, part(self.ceiling, 85));
    }

    /// The loss is as high with less: it is not ours.
    fn is_chance(&mut self, now: Instant, slot: u32, loss: f64) {
        self.receivers
            .entry(slot)
            .and_modify(|receiver| receiver.chance = loss * 1.3 + 0.05);
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
        let has_queue = self.receivers.values().any(|receiver| receiver.has_queue);
        if matches!(self.phase, Phase::Drain { .. }) && !has_queue {
            self.vain = 0;
            self.cruise(now, part(self.ceiling, 97));
        }
    }

    fn cruise(&mut self, now: Instant, rate: u64) {
        self.phase = Phase::Cruise;
        self.steps = 0;
        self.set(now, rate);
    }

    /// A receiver's host takes less than arrives.
    fn host_drops(&mut self, now: Instant, slot: u32, report: &RateReport) {
        let rate = if self.rate == 0 { u64::MAX } else { self.rate };
        let taken = match report.delivery {
            0 => rate.min(self.config.rate_start) / 2,
            delivery => delivery.min(rate),
        };
        let floor = if matches!(self.phase, Phase::Start) {
            0
        } else {
            part(rate, 70)
        };
        self.limit = Some(RateLimit {
            slot: Some(slot),
            cause: RateCause::Host,
        });
        self.ceiling = taken.max(floor);
        self.cruise(now, part(self.ceiling, 90));
    }

    /// Receivers report: the limit grows when all were heard, none sees a queue, and it was used.
    fn grow(&mut self, now: Instant, sending: &Sending) {
        if self.was_limited || self.rate == 0 {
            self.used_at = now;
        }
        match self.phase {
            Phase::Start if sending.is_held => self.rate = 0,
            Phase::Start if self.rate != 0 && self.was_limited && self.all_heard(now) => {
                self.set(now, self.rate.saturating_mul(2));
            }
            Phase::Cruise if self.receivers.values().all(|receiver| !receiver.has_queue) => {
                if !self.all_heard(now) {
                } else if self.was_limited {
                    let percent = 100 + (1 << (self.steps / STEPS_ALIKE).min(4));
                    self.steps += 1;
                    self.set(now, part(self.rate, percent));
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
    fn compete(&mut self, now: Instant, slot: u32, report: &RateReport) {
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
            carried: report.delivery,
            empty: 0,
        };
        self.limit = Some(RateLimit {
            slot: Some(slot),
            cause: RateCause::Network,
        });
        self.phase = Phase::Compete {
            share,
            look_at: now + self.patience,
        };
        self.set(now, share.rate());
    }

    /// A report while somebody else keeps the queue full.
    fn shared(&mut self, now: Instant, slot: u32, report: &RateReport) {
        if self.limit.is_none_or(|limit| limit.slot != Some(slot)) {
            return;
        }
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
                    self.set(now, share.rate() / 2);
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
                self.set(now, share.rate());
            }
            _ => {}
        }
    }

    /// Nobody else is there any more.
    fn leave(&mut self, now: Instant, share: &Share) {
        self.vain = 0;
        self.ceiling = share.carried;
        self.peak = share.carried;
        self.cruise(now, part(share.carried, 97));
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
            let percent = if matches!(self.phase, Phase::Start) {
                200
            } else {
                105
            };
            self.set(now, part(self.rate, percent));
        }
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
        self.due = now + self.interval();
        for receiver in self.receivers.values_mut() {
            receiver.was_heard = false;
            receiver.base = None;
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
            self.round_trip = (self.round_trip * 3 + answer) / 4;
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

    /// The share of packets lost since `base`; `None` over too few.
    fn loss_since(&self, base: &Self) -> Option<f64> {
        let span = self.lead.saturating_sub(base.lead);
        let missed = self.missed.saturating_sub(base.missed);
        (span >= LOSS_SPAN_MIN).then(|| missed as f64 / span as f64)
    }
}

/// `percent` of a rate.
const fn part(rate: u64, percent: u64) -> u64 {
    rate / 100 * percent + rate % 100 * percent / 100
}

/// A shorter queue is a burst's own, or a busy host's.
const QUEUE_MIN: Duration = Duration::from_millis(2);
/// Packets over which a share of lost ones means something.
const LOSS_SPAN_MIN: u64 = 200;
/// Random loss up to this is not congestion.
const LOSS_SHARE_MAX: f64 = 0.10;
/// Of those asked for by receivers that do not report, this many per cent are congestion.
const ASKED_PERCENT_MAX: u64 = 3;
/// Reports of congestion in a row that end the start.
const WARNINGS: u32 = 2;
/// Drains in a row after which a queue is somebody else's.
const VAIN_MAX: u32 = 3;
/// Who keeps less of what the way once carried, has yielded enough.
const YIELD_MAX_PERCENT: u64 = 75;
/// Growths of 1 %, then of 2 %, and so on to 16 %.
const STEPS_ALIKE: u32 = 6;
const GROW_INTERVAL: Duration = Duration::from_millis(50);
const PLAIN_INTERVAL: Duration = Duration::from_millis(100);
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
