//! When a receiver reports its position in a packet stream.

use std::time::Duration;

use base::{Instant, Rng};
use wire::{
    object::{Pos, Welcome},
    pgm::Mark,
};

use super::{Heard, StreamState};
use crate::parameters::{
    KEEP_ALIVE, REPORT_FAR_INTERVAL_MIN, REPORT_INTERVAL_MAX, REPORT_INTERVAL_MIN, REPORT_SHARE,
};

/// What a receiver reports about one packet stream, and when.
#[derive(Debug)]
pub(crate) struct Feedback {
    habit: Habit,
    heard: Heard,
    /// When the receive socket was last seen empty.
    empty_at: Instant,
    /// What the sender asks for on this connection; `None` while there is no connection on which
    /// the sender has admitted this receiver.
    terms: Option<Terms>,
    /// How many receivers the session has, as far as this receiver knows. The more there are, the
    /// less often each reports.
    count: u32,
    /// The position to report; `None` before the first one.
    pos: Option<Pos>,
    /// The report last sent on this connection; `None` before the first.
    sent: Option<Pos>,
    timing: Timing,
}

/// How the reports of the two kinds of session differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Messages: a report also shows that the receiver is alive. After a change of the rate, every
    /// receiver sends one early report.
    Messages,
    /// Files: PROGRESS shows that the receiver is alive. While the rate is limited, every report is
    /// early, because the sender always needs to know the effect of the rate.
    Objects,
}

#[derive(Clone, Copy, Debug)]
struct Terms {
    slot: u32,
    interval: Duration,
    /// A receiver whose position has moved by this many packets since its last report need not wait
    /// for the report interval. 0: every receiver waits for it.
    sqns: u64,
}

/// When a repeated message was last sent, and until when the next one waits. The wait is random, so
/// that receivers that see the same packet do not all send at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    said_at: Instant,
    held_until: Option<Instant>,
}

impl Timing {
    pub(crate) const fn new(said_at: Instant) -> Self {
        Self {
            said_at,
            held_until: None,
        }
    }

    /// Says when the next message is due: `after` the last one, or at the end of the random wait if
    /// that is later.
    pub(crate) fn due(&self, after: Duration) -> Instant {
        let due = self.said_at + after;
        self.held_until.map_or(due, |until| due.max(until))
    }

    /// Returns true when the message must be sent now. A message that has become due still waits
    /// for a random time up to `spread`.
    pub(crate) fn is_due(
        &mut self,
        now: Instant,
        after: Duration,
        spread: Duration,
        rng: &mut Rng,
    ) -> bool {
        if self.due(after) > now {
            return false;
        }
        if self.held_until.is_none() && !spread.is_zero() {
            self.held_until = Some(now + rng.duration_up_to(spread));
        }
        self.due(after) <= now
    }

    pub(crate) const fn said(&mut self, now: Instant) {
        *self = Self::new(now);
    }
}

impl Feedback {
    /// Makes the state for a packet stream of which nothing has been heard.
    pub(crate) const fn new(now: Instant, habit: Habit) -> Self {
        Self {
            habit,
            heard: Heard::nothing(now),
            empty_at: now,
            terms: None,
            count: 0,
            pos: None,
            sent: None,
            timing: Timing::new(Instant::ZERO),
        }
    }

    /// Takes a mark of the sender. Later reports repeat the time at which the mark left, and tell
    /// how long ago the mark came and how long it waited in queues. From this the sender learns the
    /// round trip, and the effect of its rate.
    pub(crate) fn mark(&mut self, now: Instant, mark: &Mark) {
        self.heard.mark(now, mark, self.empty_at);
        self.count = mark.receiver_count;
        if self.is_limiting() {
            self.timing.held_until = None;
        }
    }

    /// Takes the sender's admission: the first report is due at once.
    pub(crate) fn welcomed(&mut self, welcome: &Welcome) {
        self.count = self.count.max(welcome.receiver_count);
        self.terms = Some(Terms {
            slot: welcome.slot,
            interval: interval(welcome),
            sqns: welcome.report_sqns.into(),
        });
        self.sent = None;
        self.timing = Timing::new(Instant::ZERO);
    }

    /// Notes that the connection is gone: there is nobody to report to.
    pub(crate) const fn disconnected(&mut self) {
        self.terms = None;
    }

    /// Takes the state of the packet stream. While `is_waiting`, the reported position stays the
    /// same, so that the sender waits for this receiver.
    pub(crate) fn observe(&mut self, now: Instant, stream: &StreamState, is_waiting: bool) {
        self.heard.arrived(now, stream.counts.bytes);
        if stream.is_caught_up {
            self.empty_at = now;
        }
        if is_waiting && self.pos.is_none() {
            return;
        }
        let pos = self.pos.get_or_insert_default();
        stream.apply(pos);
        if !is_waiting {
            pos.contiguous = stream.contiguous;
        }
    }

    /// Returns the time over which many receivers spread messages that are due at once; zero for
    /// few receivers.
    pub(crate) fn spread(&self) -> Duration {
        match share(self.count) {
            share if share < REPORT_INTERVAL_MIN => Duration::ZERO,
            share => share,
        }
    }

    /// Says when the next report is due, by what is known now.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.after().map(|after| self.timing.due(after))
    }

    /// Returns the report to send now; `None` when none is due.
    pub(crate) fn poll(&mut self, now: Instant, rng: &mut Rng) -> Option<Pos> {
        let after = self.after()?;
        let spread = match self.is_limiting() {
            true => Duration::ZERO,
            false => self.spread(),
        };
        self.timing.is_due(now, after, spread, rng).then_some(())?;
        self.report(now)
    }

    /// Makes a report that leaves now, whether or not it is due; `None` while there is no position
    /// to report or no connection.
    pub(crate) fn report(&mut self, now: Instant) -> Option<Pos> {
        self.terms?;
        let pos = self.pos.as_mut()?;
        self.heard.report(now, pos);
        self.sent = Some(*pos);
        self.timing.said(now);
        self.pos
    }

    /// Returns true when this receiver holds the others back or sets the rate.
    fn is_limiting(&self) -> bool {
        self.terms
            .is_some_and(|terms| self.heard.is_limiting(terms.slot))
    }

    /// Returns how long after the last report the next one is due; `None` when none is.
    fn after(&self) -> Option<Duration> {
        let (terms, pos) = (self.terms?, self.pos?);
        let Some(sent) = self.sent else {
            return Some(Duration::ZERO);
        };
        let share = match self.is_limiting() {
            true => share(self.count).min(REPORT_INTERVAL_MIN),
            false => share(self.count),
        };
        let interval = terms.interval.max(share);
        let moved = pos.contiguous.saturating_sub(sent.contiguous);
        // Newly missed packets (`naks`) count as a change, too: while their repairs are lost as
        // well, the position does not move.
        if moved == 0 && pos.naks == sent.naks {
            return (self.habit == Habit::Messages).then(|| KEEP_ALIVE.max(interval));
        }
        if terms.sqns > 0 && moved >= terms.sqns {
            return Some(REPORT_FAR_INTERVAL_MIN.max(share));
        }
        // The sender waits for the report of a receiver that holds the others back or has just
        // caught up. A sender that must learn the effect of its rate waits for every receiver.
        let is_caught_up = pos.contiguous > pos.lead;
        let is_asked =
            self.heard.has_new_pace() || self.habit == Habit::Objects && self.heard.is_limited();
        if self.is_limiting() || is_caught_up || is_asked {
            return Some(interval.min(REPORT_INTERVAL_MIN.max(share)));
        }
        Some(interval)
    }
}

/// Returns the report interval that a sender asks for, within the bounds that receivers keep to.
pub(crate) fn interval(welcome: &Welcome) -> Duration {
    let asked = Duration::from_micros(welcome.report_interval_us.into());
    asked.clamp(REPORT_INTERVAL_MIN, REPORT_INTERVAL_MAX)
}

/// Returns the shortest time between two reports of one receiver, chosen so that the reports of
/// `count` receivers do not take too much of the sender's time.
pub(crate) fn share(count: u32) -> Duration {
    REPORT_INTERVAL_MAX.min(REPORT_SHARE.saturating_mul(count))
}

/// Returns the report interval that a sender asks of `count` receivers, in microseconds; at least
/// `least`.
pub(crate) fn interval_us(count: u32, least: Duration) -> u32 {
    let interval = REPORT_SHARE.saturating_mul(count).max(least);
    u32::try_from(interval.as_micros()).unwrap_or(u32::MAX)
}
