//! The clocks, and how exactly the kernel wakes the calling thread.

use std::{io, num::NonZeroU64, time::Duration};

use base::Instant;
use rustix::{
    thread::set_current_timer_slack,
    time::{ClockId, Timespec, clock_getres, clock_gettime},
};

/// Returns the time of the monotonic clock, by which every deadline is measured.
#[must_use]
pub fn monotonic() -> Instant {
    Instant::from_nanos(nanos(ClockId::Monotonic))
}

/// Returns the kernel's tick: 1 to 10 ms. The limit of [`crate::datagram::set_blocking`] counts in
/// ticks, so the end of a blocking receive is no more exact than one tick.
///
/// **Source**: clock_getres(2), `CLOCK_MONOTONIC_COARSE`.
#[must_use]
pub fn tick() -> Duration {
    let tick = clock_getres(ClockId::MonotonicCoarse);
    Duration::from_nanos(u64::try_from(tick.tv_nsec).unwrap_or(0))
}

/// Returns the wall clock's nanoseconds since 1970: for people and for files, never for deadlines.
#[must_use]
pub fn wall_nanos() -> u64 {
    nanos(ClockId::Realtime)
}

/// Returns the processor time that the whole process has used, user and system together.
#[must_use]
pub fn process_cpu() -> Duration {
    Duration::from_nanos(nanos(ClockId::ProcessCPUTime))
}

/// Returns the processor time that the calling thread has used.
#[must_use]
pub fn thread_cpu() -> Duration {
    Duration::from_nanos(nanos(ClockId::ThreadCPUTime))
}

/// Sets how late the kernel may wake the calling thread from a timed wait. With the default of 50
/// us, short waits take 75 to 90 us too long; with 1 ns, 22 to 26 us.
///
/// # Errors
/// When the kernel refuses (it never has a reason to).
pub fn set_timer_slack(slack: Duration) -> io::Result<()> {
    let ns = u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX);
    Ok(set_current_timer_slack(NonZeroU64::new(ns))?)
}

#[inline]
fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanos
}

/// Converts a duration to the kernel's form; a duration that is too long becomes the longest.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_advances_and_slack_is_accepted() {
        let before = monotonic();
        assert!(monotonic() >= before && before > Instant::ZERO);
        assert!(wall_nanos() > 1_700_000_000_000_000_000);
        assert!(process_cpu() >= thread_cpu() || thread_cpu() > Duration::ZERO);
        set_timer_slack(Duration::from_nanos(1)).unwrap();
    }
}
