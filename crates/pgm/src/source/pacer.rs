//! The schedule of bursts: deadlines, with a bounded catch-up.
//!
//! The pacer does not know packets. Each burst moves the deadline by the time that its bytes take
//! at the rate. A late burst moves the deadline no further than a punctual one, so later bursts can
//! make up for the delay, but only for a delay of up to `catch_up`.
//!
//! ```text
//!   deadline   |----burst A----|----burst B----|--C--|
//!   sent       A               .   B           C
//!                               <-> late: B's time still counts from its deadline
//! ```
//!
//! Invariant: over any interval t the bytes sent are at most `bytes_per_s * (t + catch_up)` plus
//! the last burst. This bound is that of the token bucket in RFC 3208 section 5.1.2.
//!
//! **Spec**: RFC 3208 sections 5.1.1, 5.1.2.

use std::time::Duration;

use base::{Instant, Pace};

/// A schedule that says, for a given pace, when the next burst may leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    pace: Pace,
    due: Instant,
    catch_up: Duration,
    /// How much more the last burst could have sent in its time, which is rounded up to
    /// nanoseconds; in billionths of a byte. Always less than the pace allows in one nanosecond.
    rounded: u64,
}

impl Pacer {
    /// Makes a pacer that lets the first burst leave at `now`.
    pub(super) const fn new(pace: Pace, catch_up: Duration, now: Instant) -> Self {
        Self {
            pace,
            due: now,
            catch_up,
            rounded: 0,
        }
    }

    /// Changes the pace. The deadline that earlier bytes set at the old pace stays.
    pub(super) const fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
        self.rounded = 0;
    }

    /// Counts `bytes` that have just left. Rounds the time that they take up to a nanosecond, and
    /// makes the next burst's time shorter by the excess, so that the rate is reached.
    pub(super) fn spend(&mut self, now: Instant, bytes: usize) {
        let Some(bytes_per_s) = self.pace.bytes_per_s() else {
            return;
        };
        let bytes_per_s = u128::from(bytes_per_s);
        let owed = (bytes as u128 * NS_PER_S).saturating_sub(u128::from(self.rounded));
        let ns = owed.div_ceil(bytes_per_s);
        self.rounded = u64::try_from(ns * bytes_per_s - owed).unwrap_or(0);
        self.spend_time(
            now,
            Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)),
        );
    }

    /// Sets the deadline `time` after the later of the old deadline and `now - catch_up`.
    pub(super) fn spend_time(&mut self, now: Instant, time: Duration) {
        self.due = self.due.max(now - self.catch_up) + time;
    }

    /// Returns true when a burst may leave.
    #[inline]
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        self.due <= now
    }

    /// Returns the time when the next burst may leave.
    #[inline]
    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    /// Returns the pace that the schedule keeps.
    pub(super) const fn pace(&self) -> Pace {
        self.pace
    }

    /// Returns how many packets of `packet_bytes` bytes leave in one burst that lasts `quantum`.
    /// The number is at least 2, so that a low rate still sends batches.
    #[inline]
    pub(super) fn burst_packets(&self, quantum: Duration, packet_bytes: usize) -> usize {
        let Some(bytes_per_s) = self.pace.bytes_per_s() else {
            return usize::MAX;
        };
        let bytes = u128::from(bytes_per_s) * quantum.as_nanos() / NS_PER_S;
        usize::try_from(bytes / packet_bytes.max(1) as u128)
            .unwrap_or(usize::MAX)
            .max(2)
    }
}

/// Returns how long `bytes` take at `bytes_per_s`, rounded up so that the rate is never exceeded.
pub(super) fn time_of(bytes: usize, bytes_per_s: u64) -> Duration {
    let ns = (bytes as u128 * NS_PER_S).div_ceil(u128::from(bytes_per_s.max(1)));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

const NS_PER_S: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_made_up_for_within_its_bound() {
        let ms = |n: u64| Instant::from_nanos(n * 1_000_000);
        let mut pacer = Pacer::new(Pace::of(1_000_000), Duration::from_millis(2), ms(10));
        assert!(pacer.is_ready(ms(10)) && !pacer.is_ready(ms(9)));
        pacer.spend(ms(10), 1000);
        assert_eq!(pacer.due(), ms(11));
        pacer.spend(ms(12), 1000);
        assert_eq!(pacer.due(), ms(12), "a millisecond late, and made up for");
        pacer.spend(ms(50), 1000);
        assert_eq!(
            pacer.due(),
            ms(49),
            "38 ms late: two of them are made up for"
        );
    }

    #[test]
    fn bursts_have_two_packets_at_least() {
        let quantum = Duration::from_micros(250);
        let bursts = |bytes_per_s| {
            let pacer = Pacer::new(Pace::of(bytes_per_s), quantum, Instant::ZERO);
            pacer.burst_packets(quantum, 1000)
        };
        assert_eq!(bursts(1), 2);
        assert_eq!(bursts(100_000_000), 25);
        assert_eq!(bursts(0), usize::MAX);
        assert_eq!(time_of(1, 3), Duration::from_nanos(333_333_334));
    }
}
