//! The round trip from this sender's SPM to the report that answers it, without the time between
//! the SPM's arrival and the report.
//!
//! A report repeats the time in the last SPM that came, and tells how long ago that SPM came.
//! Queues and busy hosts make a sample longer, never shorter, so the least of the last samples
//! counts. A receiver may lie: a time older than a second, or in the future, does not count.

use std::time::Duration;

use crate::parameters::ECHO_AGE_MAX;
use base::Instant;
use wire::object::Pos;

/// The round trip to one receiver.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    /// The least sample of the last complete group of [`SAMPLES`] samples.
    before: Option<Duration>,
    /// The least sample of the present group so far.
    current: Option<Duration>,
    samples: u8,
    /// The time of an SPM, in microseconds, as repeated by the report that gave the last sample.
    /// Another report with this time gives no new sample.
    echo_us: u64,
}

impl RoundTrip {
    /// Takes a report, and returns the round trip that it shows. `None` when the report repeats no
    /// SPM's time, or repeats a time that has counted already, is too old, or lies in the future.
    pub(crate) fn report(&mut self, now: Instant, pos: &Pos) -> Option<Duration> {
        if pos.echo_us == 0 || pos.echo_us == self.echo_us {
            return None;
        }
        let since_us = (now.as_nanos() / 1000).checked_sub(pos.echo_us);
        let since_us =
            since_us.filter(|&since_us| u128::from(since_us) <= ECHO_AGE_MAX.as_micros());
        let sample = since_us.and_then(|us| us.checked_sub(pos.echo_age_us.into()));
        let sample = sample.map(Duration::from_micros)?;
        self.echo_us = pos.echo_us;
        self.current = Some(self.current.map_or(sample, |least| least.min(sample)));
        self.samples += 1;
        if self.samples == SAMPLES {
            (self.before, self.current, self.samples) = (self.current, None, 0);
        }
        Some(sample)
    }

    /// Returns the least sample of the last complete group and the present group.
    pub(crate) fn least(&self) -> Option<Duration> {
        match (self.before, self.current) {
            (Some(before), Some(current)) => Some(before.min(current)),
            (before, current) => before.or(current),
        }
    }
}

/// Number of samples in a group.
const SAMPLES: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a report at `at_us` that repeats the time `echo_us`, heard `age_us` before the report
    /// left.
    fn report(round_trip: &mut RoundTrip, at_us: u64, echo_us: u64, age_us: u32) {
        let pos = Pos {
            echo_us,
            echo_age_us: age_us,
            ..Pos::default()
        };
        round_trip.report(Instant::from_nanos(at_us * 1000), &pos);
    }

    #[test]
    fn the_receivers_own_time_does_not_count_and_the_least_does() {
        let mut round_trip = RoundTrip::default();
        report(&mut round_trip, 5_000, 0, 0);
        report(&mut round_trip, 5_000, 9_000, 0);
        report(&mut round_trip, 5_000, u64::MAX, 7);
        assert_eq!(
            round_trip.least(),
            None,
            "no time, one to come, and nonsense"
        );
        report(&mut round_trip, 30_000, 10_000, 19_000);
        assert_eq!(round_trip.least(), Some(Duration::from_millis(1)));
        report(&mut round_trip, 90_000, 10_000, 19_000);
        report(&mut round_trip, 90_000, 40_000, 48_000);
        assert_eq!(round_trip.least(), Some(Duration::from_millis(1)));
        report(&mut round_trip, 1_095_002, 95_001, 999_999);
        report(&mut round_trip, u64::MAX / 1000, 5, 0);
        assert_eq!(
            round_trip.least(),
            Some(Duration::from_millis(1)),
            "too old to be believed"
        );
        for n in 0..u64::from(2 * SAMPLES) {
            report(&mut round_trip, 200_000 + n, 100_000 + n, 0);
        }
        assert_eq!(
            round_trip.least(),
            Some(Duration::from_millis(100)),
            "a longer way"
        );
    }
}
