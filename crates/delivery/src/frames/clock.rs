//! Tells when a frame is due, by this host's clock.
//!
//! The sender's clock and this host's may differ by any time. So a frame's deadline counts from the
//! time when the frame would have arrived with the delay of the fastest frame. The fastest frame is
//! the one, in the present and the previous span, with the least difference between the arrival of
//! its first packet and its timestamp. A span lasts 10 s or more.
//!
//! ```text
//!   difference   .  .     .   .  .          least of this span and the one before
//!                  .   .    .      .   .
//!               |--- span ---|--- span ---|
//! ```

use std::time::Duration;

use base::Instant;

/// The least difference between a frame's arrival and its timestamp, over two spans of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockFloor {
    since: Instant,
    /// The least difference between arrival and timestamp in the present span, in nanoseconds. It
    /// wraps, because the clocks of the two hosts begin at different times.
    least: i64,
    least_before: i64,
}

impl ClockFloor {
    pub(super) const fn new(now: Instant, timestamp_ns: u64) -> Self {
        let difference = difference(now, timestamp_ns);
        Self {
            since: now,
            least: difference,
            least_before: difference,
        }
    }

    /// Takes the first packet of a frame. `is_set_back` says that an earlier frame has a later
    /// timestamp: the sender's clock was set back, so the least differences no longer hold.
    pub(super) fn take(&mut self, now: Instant, timestamp_ns: u64, is_set_back: bool) -> Heard {
        let difference = difference(now, timestamp_ns);
        if now.since(self.since) >= SPAN {
            self.since = now;
            self.least_before = self.least;
            self.least = difference;
        }
        // A change by more than `STEP_NS` shows that a clock was set: the least differences no
        // longer hold.
        if is_set_back || difference.abs_diff(self.least) > STEP_NS {
            (self.least, self.least_before) = (difference, difference);
        }
        self.least = self.least.min(difference);
        Heard {
            at: now,
            difference,
        }
    }

    /// Returns when a frame is due. `deadline` counts from the time when the frame would have
    /// arrived with the delay of the fastest frame that is known.
    pub(super) fn due(&self, heard: Heard, deadline: Duration) -> Instant {
        let least = self.least.min(self.least_before);
        let delay_ns = heard.difference.saturating_sub(least).max(0);
        heard.at + deadline - Duration::from_nanos(delay_ns.unsigned_abs())
    }
}

/// The arrival of a frame's first packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    at: Instant,
    /// The time from the frame's timestamp to its arrival, in nanoseconds.
    difference: i64,
}

const fn difference(now: Instant, timestamp_ns: u64) -> i64 {
    now.as_nanos().wrapping_sub(timestamp_ns).cast_signed()
}

/// How long a span lasts at least; [`ClockFloor`] keeps the least difference of each span. A
/// judgement: in this time, clocks whose rates differ by 100 parts in a million drift only 1 ms
/// apart.
const SPAN: Duration = Duration::from_secs(10);
/// 60 s: when the difference between arrival and timestamp changes by more, a clock was set. A
/// judgement: no network delays a packet this long, and no clock drifts this far in a span.
const STEP_NS: u64 = 60_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    /// Takes a frame and returns when it is due, 50 ms after the fastest.
    fn due(floor: &mut ClockFloor, now: Instant, timestamp_ns: u64) -> Instant {
        let heard = floor.take(now, timestamp_ns, false);
        floor.due(heard, Duration::from_millis(50))
    }

    #[test]
    fn deadlines_count_from_the_fastest_frame() {
        let stamp = |n: u64| 77_000_000_000 + n * 1_000_000;
        let mut floor = ClockFloor::new(ms(1003), stamp(0));
        let heard = floor.take(ms(1003), stamp(0), false);
        assert_eq!(floor.due(heard, Duration::from_millis(50)), ms(1053));
        assert_eq!(due(&mut floor, ms(1101), stamp(100)), ms(1151));
        assert_eq!(due(&mut floor, ms(1240), stamp(200)), ms(1251));
        // What is learned later counts for frames that were heard before.
        assert_eq!(floor.due(heard, Duration::from_millis(50)), ms(1051));
    }

    #[test]
    fn what_was_fast_long_ago_is_forgotten() {
        let mut floor = ClockFloor::new(ms(1000), 0);
        let mut last = Instant::ZERO;
        for second in 1..=25 {
            let at = ms(1000 * second + 1005);
            last = due(&mut floor, at, second * 1_000_000_000);
        }
        assert_eq!(last, ms(26_055));
    }

    #[test]
    fn a_clock_that_was_set_begins_anew() {
        let mut floor = ClockFloor::new(ms(1000), 0);
        assert_eq!(due(&mut floor, ms(2000), 900_000_000_000), ms(2050));
        assert_eq!(due(&mut floor, ms(3000), 2_000_000_000), ms(3050));
    }
}
