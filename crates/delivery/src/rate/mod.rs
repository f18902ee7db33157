//! Decides how fast a source may send, from what receivers report.
//!
//! [`RateControl`] does not send, measure or choose whom to wait for. In: reports of receivers
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
//!   three drains in vain, or a quarter of the rate |
//!                              given up bit by bit |
//!                      queue empty                 v
//!   Cruise <------------------------------- Compete <--> Look
//! ```
//!
//! While nobody reports there is no limit. With the first report the limit starts low, and grows
//! fourfold with every round of reports that show no queue. Above 400 MB/s there is no limit any
//! more: the flow window then bounds the data in flight. When reports first show a queue, the
//! delivery rate in them is what the path carries. **Drain** sends at 85 % of that rate until the
//! queue is gone. **Cruise** then raises the rate by 1 % at a time, and by more when no queue
//! returns for long. In this way a source that is alone on a path uses 98 % of it, with hardly a
//! queue. A source that begins with much data, such as files, sets the first limit before the first
//! report ([`RateControl::start`]).
//!
//! A sender that fills queues until they overflow, as TCP does, would take all of the path from a
//! sender that drains them. When a queue does not fall, or the source's share shrinks bit by bit, a
//! sender that fills queues must be there. **Compete** then sends as much as one TCP connection
//! would: the window of CUBIC divided by the time to an answer. Every 3 to 24 s **Look** sends
//! half of that for a moment: if no other sender is there, the queue empties at once.
//!
//! In **Cruise** and **Drain** a report counts only when the mark that it repeats left after the
//! last change of rate. Only such a report shows the effect of that change. The reports of one
//! receiver are enough to lower the rate. The rate grows only when all receivers were heard (or 2 s
//! have passed) since its last change, and the limit was really in use. Loss without a queue counts
//! as chance, and not as congestion, when it stays high at a lower rate.
//!
//! Reports leave out a queue in the receiver's own host: the flow window handles slow hosts better.
//! Packets that the host drops do count: that receiver then sets the limit.
//!
//! Invariants: nothing is allocated except one entry for each receiver; a limit is never below
//! [`RateConfig::bytes_per_s_min`]. The structure is from TFMCC (RFC 4654), the use of queues as a
//! signal from Copa and BBR, the competition from CUBIC (RFC 9438).

use std::{collections::BTreeMap, fmt, time::Duration};

use base::{Instant, Pace};

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
    pub bytes_per_s_min: u64,
    /// The first limit, in bytes a second. It grows fourfold with every round of reports, until the
    /// reports show a queue or loss, or until no limit is needed. Default 25,000,000.
    pub bytes_per_s_start: u64,
    /// Receivers with this number or a higher one are guests. When there is more than one receiver,
    /// a guest cannot set a limit below 10 Mbit/s. Default: none is a guest.
    pub guests_from: u32,
}

impl Default for RateConfig {
    fn default() -> Self {
        Self {
            bytes_per_s_min: 100_000,
            bytes_per_s_start: 25_000_000,
            guests_from: u32::MAX,
        }
    }
}

/// The reason why a receiver sets the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateCause {
    /// Packets wait in a queue of the network, or the network loses more than chance explains.
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
    /// Why this receiver sets the limit.
    pub cause: RateCause,
}

/// What is known about the path of one source, and the limit that follows from it.
#[derive(Clone, Debug)]
pub struct RateControl {
    config: RateConfig,
    phase: Phase,
    /// The present limit of the sending rate.
    pace: Pace,
    changed_at: Instant,
    receivers: BTreeMap<u32, Receiver>,
    limit: Option<RateLimit>,
    /// The rate that the path carried when it was last seen full.
    carried_bytes_per_s: u64,
    /// The highest `carried_bytes_per_s` since the path was last known to have no other sender.
    carried_bytes_per_s_max: u64,
    /// How often in a row the rate has grown.
    steps: u32,
    drained_at: Instant,
    /// How many drains in a row left the queue as it was; `pace_before` is the pace before the
    /// first of these drains.
    vain: u32,
    pace_before: Pace,
    /// How many reports showed losses (on the path or in the host) since one last showed none.
    warnings: u32,
    /// How long to compete before the next Look, which tests whether another sender is there.
    patience: Duration,
    used_at: Instant,
    was_limited: bool,
    /// Since when the source has sent as much as the present limit allows.
    limited_since: Option<Instant>,
    due: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Nothing is known about the path, or the path needs no limit.
    Start,
    /// The rate that the path carries is known.
    Cruise,
    /// The source sends less than the path carries, until the queue is gone or `until` has passed.
    Drain {
        queue: Duration,
        loss: f64,
        /// The limit before the drain, in bytes a second, if there was one.
        from: Option<u64>,
        until: Instant,
    },
    /// Another sender keeps the queue full: the source sends as much as a TCP connection would.
    Compete { share: Share, look_at: Instant },
    /// The source sends half of `share` briefly: if no other sender is there, the queue empties.
    Look { share: Share, until: Instant },
}

impl RateControl {
    /// Makes a rate control that begins at `now`.
    #[must_use]
    pub fn new(config: RateConfig, now: Instant) -> Self {
        Self {
            config,
            phase: Phase::Start,
            pace: Pace::Unlimited,
            changed_at: now,
            receivers: BTreeMap::new(),
            limit: None,
            carried_bytes_per_s: 0,
            carried_bytes_per_s_max: 0,
            steps: 0,
            drained_at: now,
            vain: 0,
            pace_before: Pace::Unlimited,
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
        // A receiver may claim anything. With this bound, sums cannot overflow.
        let delivery_bytes_per_s = report.delivery_bytes_per_s.min(DELIVERY_BYTES_PER_S_MAX);
        let report = &RateReport {
            delivery_bytes_per_s,
            ..*report
        };
        if self.receivers.is_empty() && self.pace == Pace::Unlimited {
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
        // Only a report about a mark sent at the present rate counts. In Start an older one counts
        // too: the rate has only grown since, and at far too high a rate all newer marks are lost.
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

    /// Says what is wrong with the present rate, as `seen` shows.
    fn symptom(&mut self, now: Instant, seen: &Observation) -> Symptom {
        // While the source sends less than its limit, others cause most queues. Outside of Drain, a
        // queue then counts only if it stays for `WARNINGS_UNUSED` marks in a row.
        let is_used = now.since(self.used_at) < GROW_INTERVAL * 2;
        let marks = if is_used { WARNINGS } else { WARNINGS_UNUSED };
        let is_draining = matches!(self.phase, Phase::Drain { .. });
        let is_queued = seen.queues >= marks || is_draining && seen.queues > 0;
        let loses = seen.is_starved || seen.is_lossy;
        self.warnings += u32::from(loses);
        let is_first = self.warnings < WARNINGS && matches!(self.phase, Phase::Start);
        match () {
            // Without a limit, the flow window bounds the queue.
            () if is_queued && self.pace != Pace::Unlimited => Symptom::Queue,
            () if !loses => Symptom::None,
            () if is_first => Symptom::Doubtful,
            () if seen.is_starved => Symptom::HostDrops,
            () => Symptom::Loss(seen.loss.unwrap_or_default()),
        }
    }

    /// Handles a report that shows nothing wrong with the present rate. The report repeats the mark
    /// that left at `echo`.
    fn all_well(&mut self, now: Instant, echo: Instant, seen: &Observation) {
        if seen.loss.is_none() && self.phase.is_for_loss() {
            return;
        }
        if seen.loss.is_some() {
            self.warnings = 0;
        }
        self.drained(now);
        // One mark that met a queue, or a few lost packets, only stop the growth: Start goes on.
        if matches!(self.phase, Phase::Start) && seen.is_clean {
            self.ramp(now, echo);
        }
    }

    /// Sets the first limit before the receivers numbered `slots` report. The limit grows once all
    /// of them were heard. The call has no effect when a receiver is known already, or when `slots`
    /// is empty.
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

    /// Forgets the receiver with number `slot`, which has left.
    pub fn forget(&mut self, slot: u32) {
        if self.receivers.remove(&slot).is_some() && self.receivers.is_empty() {
            // Nobody reports any more, so nothing is known and there is no limit.
            (self.phase, self.pace, self.limit) = (Phase::Start, Pace::Unlimited, None);
        }
        if self.limit.is_some_and(|limit| limit.slot == slot) {
            self.limit = None;
            if self.phase.is_shared() {
                self.phase = Phase::Cruise;
            }
        }
    }

    /// Raises the limit if that is due, and returns the limit. Call it in each turn of the event
    /// loop. `is_limited` says whether the limit holds data back.
    pub fn steer(&mut self, now: Instant, is_limited: bool) -> Pace {
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
        self.pace
    }

    /// Returns the receiver that sets the limit; `None` while none does.
    #[must_use]
    pub const fn limit(&self) -> Option<RateLimit> {
        self.limit
    }

    fn interval(&self) -> Duration {
        let receivers = self.receivers.values();
        let round_trip = receivers.map(|receiver| receiver.last.round_trip).max();
        GROW_INTERVAL.max(round_trip.unwrap_or_default() * 2)
    }

    /// Sets the first limit.
    fn begin(&mut self, now: Instant) {
        self.phase = Phase::Start;
        self.warnings = 0;
        self.limit_to(now, self.config.bytes_per_s_start);
    }

    /// Raises the limit fourfold in Start, once all receivers were heard or had time to report. The
    /// mark that left at `echo` met no queue. Before it left, the source must have used the present
    /// limit for long enough to fill a queue.
    fn ramp(&mut self, now: Instant, echo: Instant) {
        let is_tried = self
            .limited_since
            .is_some_and(|since| echo >= since + RAMP_TRIAL);
        let Some(bytes_per_s) = self.pace.bytes_per_s() else {
            return;
        };
        if !self.was_limited || !is_tried || !self.all_heard(now) {
            return;
        }
        self.was_limited = false;
        self.raise(now, bytes_per_s.saturating_mul(4));
    }

    /// Handles a receiver that sees a queue, or more loss than chance explains; `loss` is the share
    /// of packets lost, 0 for a queue.
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
            self.pace_before = self.pace;
            self.drain(now, slot, loss);
            self.carried_bytes_per_s_max =
                self.carried_bytes_per_s_max.max(self.carried_bytes_per_s);
            if loss == 0.0
                && self.carried_bytes_per_s < part(self.carried_bytes_per_s_max, YIELD_MAX_PERCENT)
            {
                // This source's share has shrunk bit by bit, so another sender makes the queues.
                self.compete(now, slot);
            }
            return;
        };
        if loss > 0.0 {
            // The loss to expect at the present rate, if the path was overfull at the rate before.
            let expected = match (from, self.pace.bytes_per_s()) {
                (Some(from), Some(now)) => Some(1.0 - (1.0 - before) * from as f64 / now as f64),
                _ => None,
            };
            let is_conclusive =
                before > 0.0 && expected.is_some_and(|expected| expected < before / 2.0);
            if is_conclusive && loss > before / 2.0 {
                self.is_chance(now, slot, loss);
            } else {
                self.drain(now, slot, loss);
            }
        } else if report.queue_delay < queue.mul_f64(0.7) {
            // The queue falls, so the last cut has an effect.
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

    /// Cuts the rate to less than what arrives at receiver `slot`, so that the queue shrinks.
    fn drain(&mut self, now: Instant, slot: u32, loss: f64) {
        let report = self.receivers[&slot].last;
        self.carried_bytes_per_s = self.carried(now, slot, loss);
        self.limit = Some(RateLimit {
            slot,
            cause: RateCause::Network,
        });
        self.phase = Phase::Drain {
            queue: report.queue_delay,
            loss,
            from: self.pace.bytes_per_s(),
            until: now + report.drain_time(),
        };
        self.limit_to(now, part(self.carried_bytes_per_s, 85));
    }

    /// Returns the rate at which data arrives at a receiver, kept within believable bounds: a busy
    /// host may report too low a rate, or too high a rate when it then takes many packets at once.
    /// `loss` is the share of packets that the receiver loses.
    fn carried(&self, now: Instant, slot: u32, loss: f64) -> u64 {
        let arrived = self.receivers[&slot].delivery_bytes_per_s;
        let Some(bytes_per_s) = self.pace.bytes_per_s() else {
            return arrived.max(self.least_of(slot));
        };
        let floor = match self.phase {
            Phase::Start => part(bytes_per_s, 20),
            Phase::Cruise if now.since(self.drained_at) > RELAPSE => {
                part(self.carried_bytes_per_s, 95).min(part(bytes_per_s, 95))
            }
            _ => part(bytes_per_s, 70),
        };
        let most = (bytes_per_s as f64 * (1.0 - loss)) as u64;
        // The lower bound for a guest applies here too: otherwise the guest's low rate would still
        // count after the guest has left.
        arrived.max(floor).min(most).max(self.least_of(slot))
    }

    /// Counts loss as chance, as it stays high at a lower rate; restores the rate from before.
    fn is_chance(&mut self, now: Instant, slot: u32, loss: f64) {
        self.receivers
            .entry(slot)
            .and_modify(|receiver| receiver.chance = (loss * 1.3 + 0.05).min(CHANCE_MAX));
        self.limit = None;
        self.warnings = 0;
        self.phase = if self.pace_before == Pace::Unlimited {
            Phase::Start
        } else {
            Phase::Cruise
        };
        self.set(now, self.pace_before);
    }

    /// Ends the phase in which queues drain, once no receiver sees a queue. From then on the source
    /// sends 97 % of what the path has carried, so that no queue grows again.
    fn drained(&mut self, now: Instant) {
        let has_queue = self.receivers.values().any(|receiver| receiver.queues > 0);
        if matches!(self.phase, Phase::Drain { .. }) && !has_queue {
            self.vain = 0;
            self.drained_at = now;
            self.cruise(now, part(self.carried_bytes_per_s, 97));
        }
    }

    fn cruise(&mut self, now: Instant, bytes_per_s: u64) {
        self.phase = Phase::Cruise;
        self.steps = 0;
        self.limit_to(now, bytes_per_s);
    }

    /// Handles a receiver whose host drops packets.
    fn host_drops(&mut self, now: Instant, slot: u32) {
        self.carried_bytes_per_s = self.carried(now, slot, 0.0);
        self.limit = Some(RateLimit {
            slot,
            cause: RateCause::Host,
        });
        self.cruise(now, part(self.carried_bytes_per_s, 90));
    }

    /// In Cruise, raises the limit when all receivers were heard, none sees a queue, and the limit
    /// was in use. Begins anew with Start when the limit was not in use for [`UNUSED`].
    fn grow(&mut self, now: Instant) {
        if self.pace == Pace::Unlimited {
            self.used_at = now;
        }
        let is_free = self.receivers.values().all(|receiver| receiver.queues == 0);
        if !matches!(self.phase, Phase::Cruise) || !is_free || !self.all_heard(now) {
            return;
        }
        if let (true, Some(bytes_per_s)) = (self.was_limited, self.pace.bytes_per_s()) {
            let percent = 100 + (1 << (self.steps / STEPS_ALIKE).min(4));
            self.steps += 1;
            // A rate that the path has carried before is reached again in a few steps.
            let known = part(self.carried_bytes_per_s_max, 95).saturating_sub(bytes_per_s) / 4;
            let grown = part(bytes_per_s, percent).max(bytes_per_s + known);
            if grown >= RAMP_BYTES_PER_S_MAX {
                (self.phase, self.limit) = (Phase::Start, None);
            }
            self.raise(now, grown);
        } else if now.since(self.used_at) >= UNUSED {
            self.phase = Phase::Start;
            self.warnings = 0;
            self.limit = None;
        }
    }

    /// Starts to compete, because another sender keeps the queue full.
    fn compete(&mut self, now: Instant, slot: u32) {
        let report = self.receivers[&slot].last;
        let before = self
            .pace_before
            .bytes_per_s()
            .unwrap_or(self.carried_bytes_per_s);
        let share = Share::new(now, before, &report, self.config.bytes_per_s_min);
        self.limit = Some(RateLimit {
            slot,
            cause: RateCause::Network,
        });
        self.phase = Phase::Compete {
            share,
            look_at: now + self.patience,
        };
        self.limit_to(now, share.bytes_per_s());
    }

    /// Handles a report of the receiver that sets the limit, while another sender keeps the queue
    /// on that receiver's path full.
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
                    self.limit_to(now, share.bytes_per_s() / 2);
                } else {
                    self.phase = Phase::Compete { share, look_at };
                    self.pace = self.at_most(share.bytes_per_s());
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
                self.limit_to(now, share.bytes_per_s());
            }
            _ => {}
        }
    }

    /// Handles a report of a receiver that does not set the limit, while another sender keeps a
    /// queue full. When this receiver loses more than chance explains, or its host drops packets,
    /// it sets the limit.
    fn beside(&mut self, now: Instant, slot: u32, report: &RateReport) {
        let receiver = self.receivers.get_mut(&slot);
        match receiver.and_then(|receiver| receiver.observe_beside(report)) {
            Some(Symptom::HostDrops) => self.host_drops(now, slot),
            Some(Symptom::Loss(loss)) => self.congested(now, slot, loss),
            _ => {}
        }
    }

    /// Stops competing, because the other sender is gone.
    fn leave(&mut self, now: Instant, share: &Share) {
        self.vain = 0;
        let least = self.limit.map_or(0, |limit| self.least_of(limit.slot));
        let carried = share.carried.max(least);
        self.carried_bytes_per_s = carried;
        self.carried_bytes_per_s_max = carried;
        self.cruise(now, part(carried, 97));
    }

    /// Returns true when every receiver has reported the effect of the last change of rate, or had
    /// time to do so.
    fn all_heard(&self, now: Instant) -> bool {
        let is_late = now >= self.changed_at + QUIET_MAX;
        is_late || self.receivers.values().all(|receiver| receiver.was_heard)
    }

    /// Sets the limit to `bytes_per_s`; from [`RAMP_BYTES_PER_S_MAX`] on, removes the limit.
    fn raise(&mut self, now: Instant, bytes_per_s: u64) {
        if bytes_per_s >= RAMP_BYTES_PER_S_MAX {
            self.set(now, Pace::Unlimited);
        } else {
            self.limit_to(now, bytes_per_s);
        }
    }

    fn limit_to(&mut self, now: Instant, bytes_per_s: u64) {
        self.set(now, self.at_most(bytes_per_s));
    }

    /// Makes a limit of `bytes_per_s`, or of the lowest allowed rate if that is higher.
    fn at_most(&self, bytes_per_s: u64) -> Pace {
        let own = self.config.bytes_per_s_min;
        let least = self.limit.map_or(own, |limit| self.least_of(limit.slot));
        Pace::at_most(bytes_per_s.max(least))
    }

    /// Returns the lowest limit that receiver `slot` can set, however slow it says that it is.
    fn least_of(&self, slot: u32) -> u64 {
        let is_guest = self.receivers.len() > 1 && slot >= self.config.guests_from;
        let least = if is_guest { GUEST_BYTES_PER_S_MIN } else { 0 };
        least.max(self.config.bytes_per_s_min)
    }

    fn set(&mut self, now: Instant, pace: Pace) {
        self.pace = pace;
        self.changed_at = now;
        self.limited_since = None;
        self.due = now + self.interval();
        for receiver in self.receivers.values_mut() {
            receiver.was_heard = false;
            receiver.base = None;
            receiver.delivery_bytes_per_s = 0;
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

/// Returns `percent` per cent of a rate.
const fn part(bytes_per_s: u64, percent: u64) -> u64 {
    bytes_per_s / 100 * percent + bytes_per_s % 100 * percent / 100
}

/// 10 Mbit/s, the lowest limit that a guest can set when there are other receivers. The protocol
/// parameter `stranger_repair_bytes_per_s_min` has the same default.
const GUEST_BYTES_PER_S_MIN: u64 = 1_250_000;
/// The highest believable delivery rate, about 1 TB/s. Sums and products of rates up to this cannot
/// overflow.
const DELIVERY_BYTES_PER_S_MAX: u64 = 1 << 40;
/// The highest share of loss that can count as chance: a receiver that loses more gets nothing
/// useful anyway.
const CHANCE_MAX: f64 = 0.75;
/// The rate above which no limit is needed, 400 MB/s. On most paths without a queue, the flow
/// window alone keeps the rate below this.
const RAMP_BYTES_PER_S_MAX: u64 = 400_000_000;
/// How long a rate is tried before it grows fourfold. If the rate is four times what the path
/// carries, 5 ms at this rate fill a queue of 15 ms, which the next report shows.
const RAMP_TRIAL: Duration = Duration::from_millis(5);
/// A queue that returns this soon after a drain is real, and not imagined by a busy host. So the
/// delivery rate in its report is believed, if it is at least 70 % of the limit.
const RELAPSE: Duration = Duration::from_millis(300);
/// How many marks in a row must meet a queue before the queue counts: one may be an accident. In
/// Start, the same number of reports must show loss before the loss counts.
const WARNINGS: u32 = 2;
/// Replaces [`WARNINGS`] while the source sends less than its limit. The number is higher, because
/// other senders cause most queues then.
const WARNINGS_UNUSED: u32 = 10;
/// After this many drains in a row without effect, another sender must be filling the queue.
const VAIN_MAX: u32 = 3;
/// When the path carries less than this part of the most it carried, the source begins to compete.
const YIELD_MAX_PERCENT: u64 = 75;
/// How many times the limit grows by 1 %, then by 2 %, by 4 % and by 8 %; from then on by 16 %.
const STEPS_ALIKE: u32 = 4;
/// The shortest time between two increases of the limit in Cruise. Before the second increase,
/// reports on the effect of the first can arrive.
const GROW_INTERVAL: Duration = Duration::from_millis(50);
/// When the source has not reached its limit for this long, the path counts as unknown again.
const UNUSED: Duration = Duration::from_secs(1);
/// A receiver that is silent for this long after a change of rate no longer holds growth back.
const QUIET_MAX: Duration = Duration::from_secs(2);
/// How long to compete before the first Look, which tests whether another sender is there. Each
/// Look that finds one doubles the time, up to [`PATIENCE_MAX`], because a Look halves the rate.
const PATIENCE_MIN: Duration = Duration::from_secs(3);
const PATIENCE_MAX: Duration = Duration::from_secs(24);
/// A [`Phase::Look`] lasts at most this plus two round trips plus three times the queueing delay.
const LOOK: Duration = Duration::from_millis(25);
