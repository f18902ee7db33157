//! How fast packets arrive, and how long they waited in the network.
//!
//! This module does not see packets. It gets the total number of bytes that have arrived, and the
//! times when *marks* left and came. A mark is what a sender says of itself in its SPMs. The time
//! in queues is a mark's travel time minus the least travel time of the last 5 to 10 s. The time
//! since the receive socket was last seen empty is subtracted too: the mark may have waited in
//! this host, and only waits in the network are to count.

use std::time::Duration;

use crate::parameters::{ARRIVAL_SPAN_MIN, TRAVEL_HALF};
use base::{Instant, Pace};
use wire::{object::Pos, pgm::Mark};

/// What a receiver has learnt from a sender's marks, and repeats in its reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    echo_us: u64,
    echo_at: Instant,
    /// The number of the receiver that, according to the last mark, holds the sender back or sets
    /// its rate.
    limiting: u32,
    pace: Pace,
    has_new_pace: bool,
    arrival: ArrivalMeter,
}

impl Heard {
    /// Makes the state for a sender that has said nothing.
    pub(crate) const fn nothing(now: Instant) -> Self {
        Self {
            echo_us: 0,
            echo_at: now,
            limiting: Mark::NO_RECEIVER,
            pace: Pace::Unlimited,
            has_new_pace: false,
            arrival: ArrivalMeter::new(now),
        }
    }

    /// Takes a mark; this host's receive socket was last seen empty at `empty_at`.
    pub(crate) fn mark(&mut self, now: Instant, mark: &Mark, empty_at: Instant) {
        self.limiting = mark.limiting_receiver;
        self.has_new_pace |= self.pace != mark.announced_pace;
        self.pace = mark.announced_pace;
        self.echo_us = mark.tx_time_us;
        self.echo_at = now;
        self.arrival.mark(now, mark.tx_time_us, empty_at);
    }

    /// Notes that `bytes` have arrived in total.
    pub(crate) fn arrived(&mut self, now: Instant, bytes: u64) {
        self.arrival.arrived(now, bytes);
    }

    /// Returns true when, according to the sender's last mark, the receiver with number `slot`
    /// holds the sender back or sets its rate.
    pub(crate) const fn is_limiting(&self, slot: u32) -> bool {
        self.limiting == slot
    }

    /// Returns true when the sender has a rate limit.
    pub(crate) const fn is_limited(&self) -> bool {
        !matches!(self.pace, Pace::Unlimited)
    }

    /// Returns true when the sender's rate has changed since the last report: the sender wants to
    /// know the effect.
    pub(crate) const fn has_new_pace(&self) -> bool {
        self.has_new_pace
    }

    /// Writes what was heard into a report that leaves now.
    pub(crate) fn report(&mut self, now: Instant, pos: &mut Pos) {
        let in_us = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        pos.echo_us = self.echo_us;
        pos.echo_age_us = in_us(now.since(self.echo_at));
        pos.bytes_per_s = self.arrival.bytes_per_s();
        pos.queue_delay_us = in_us(self.arrival.queue_delay());
        self.has_new_pace = false;
    }
}

/// A meter of how fast one session's bytes arrive, and how long its marks wait in queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivalMeter {
    /// The start of the current interval.
    since: Instant,
    /// The total of bytes that had arrived when the current interval started.
    bytes: u64,
    /// The arrival rates in the last two complete intervals, in bytes a second.
    rates: [u64; 2],
    /// Total number of bytes arrived. It last grew at `last_at`.
    last_bytes: u64,
    last_at: Instant,
    /// The shortest travel time of a mark in the current period of 5 s, in nanoseconds. It contains
    /// the difference between the sender's clock and this host's.
    least_ns: i64,
    /// The shortest travel time of a mark in the previous period, measured like `least_ns`.
    least_before_ns: i64,
    half_since: Instant,
    queue_delay: Duration,
}

impl ArrivalMeter {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            since: now,
            bytes: 0,
            rates: [0; 2],
            last_bytes: 0,
            last_at: now,
            least_ns: i64::MAX,
            least_before_ns: i64::MAX,
            half_since: now,
            queue_delay: Duration::ZERO,
        }
    }

    /// Notes that `bytes` have arrived in total.
    pub(crate) fn arrived(&mut self, now: Instant, bytes: u64) {
        let is_resuming = now.since(self.last_at) >= ARRIVAL_SPAN_MIN;
        if bytes != self.last_bytes {
            if is_resuming {
                // No data came for a while because the sender paused, so a new interval begins.
                (self.since, self.bytes) = (now, bytes);
            }
            (self.last_bytes, self.last_at) = (bytes, now);
        }
        let span = now.since(self.since);
        if span < ARRIVAL_SPAN_MIN || is_resuming {
            return;
        }
        let new = u128::from(bytes.saturating_sub(self.bytes));
        let rate = new * 1_000_000_000 / span.as_nanos().max(1);
        self.rates = [u64::try_from(rate).unwrap_or(u64::MAX), self.rates[0]];
        (self.since, self.bytes) = (now, bytes);
    }

    /// Takes a mark that left at `left_us` by its sender's clock; this host's receive socket was
    /// last seen empty at `empty_at`.
    pub(crate) fn mark(&mut self, now: Instant, left_us: u64, empty_at: Instant) {
        let left_ns = left_us.saturating_mul(1000).cast_signed();
        let travel_ns = now.as_nanos().cast_signed().saturating_sub(left_ns);
        if now.since(self.half_since) >= TRAVEL_HALF {
            (self.least_before_ns, self.least_ns) = (self.least_ns, travel_ns);
            self.half_since = now;
        }
        self.least_ns = self.least_ns.min(travel_ns);
        let least = self.least_ns.min(self.least_before_ns);
        let above = u64::try_from(travel_ns.saturating_sub(least)).unwrap_or(0);
        self.queue_delay = Duration::from_nanos(above).saturating_sub(now.since(empty_at));
    }

    /// Returns the arrival rate in bytes a second: the higher one of the last two intervals,
    /// because packets come in bursts.
    pub(crate) fn bytes_per_s(&self) -> u64 {
        self.rates[0].max(self.rates[1])
    }

    /// Returns how long the last mark waited in queues.
    pub(crate) const fn queue_delay(&self) -> Duration {
        self.queue_delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
    }

    #[test]
    fn a_queue_is_what_a_mark_takes_longer_but_for_the_host() {
        let mut meter = ArrivalMeter::new(at(0));
        // The sender's clock is 900 s ahead.
        let left = |ms| 900_000_000 + 1_000_000 + ms * 1000;
        meter.mark(at(3), left(0), at(3));
        assert_eq!(meter.queue_delay(), Duration::ZERO);
        meter.mark(at(18), left(10), at(17));
        assert_eq!(meter.queue_delay(), Duration::from_millis(4));
        meter.mark(at(28), left(20), at(10));
        assert_eq!(
            meter.queue_delay(),
            Duration::ZERO,
            "in the socket all the time"
        );
        for ms in (1_000..12_000).step_by(1_000) {
            meter.mark(at(ms + 8), left(ms), at(ms + 8));
        }
        assert_eq!(meter.queue_delay(), Duration::ZERO, "a longer way by now");
    }

    #[test]
    fn the_rate_is_that_of_whole_intervals() {
        let mut meter = ArrivalMeter::new(at(0));
        for (ms, bytes, rate) in [
            (5, 1_000, 0),
            (14, 10_000, 714_285),
            (15, 90_000, 714_285),
            (24, 100_000, 9_000_000),
            (200, 100_000, 9_000_000),
            (201, 110_000, 9_000_000),
            (209, 111_000, 9_000_000),
            (211, 120_000, 9_000_000),
            (220, 130_000, 9_000_000),
            (221, 130_000, 1_000_000),
        ] {
            meter.arrived(at(ms), bytes);
            assert_eq!(meter.bytes_per_s(), rate, "{ms}");
        }
    }
}
