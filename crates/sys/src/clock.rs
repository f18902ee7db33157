//! The clocks, and how exactly the calling thread is woken.

use std::{io, time::Duration};

use base::Instant;

use crate::call::check;

/// The monotonic clock, which every deadline is measured by.
#[must_use]
pub fn monotonic() -> Instant {
    Instant::from_nanos(nanos(libc::CLOCK_MONOTONIC))
}

/// The kernel's tick, which bounds how exactly a call waits for long: 1 to 10 ms.
///
/// **Source**: clock_getres(2), `CLOCK_MONOTONIC_COARSE`.
#[must_use]
pub fn tick() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is live and exclusively borrowed; the kernel writes one `timespec`.
    let result = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    if result == 0 {
        Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
    } else {
        TICK_MAX
    }
}

/// Nanoseconds of the wall clock since 1970: for people and for files, never for deadlines.
#[must_use]
pub fn wall_nanos() -> u64 {
    nanos(libc::CLOCK_REALTIME)
}

/// Processor time the whole process has used, user and system together.
#[must_use]
pub fn process_cpu() -> Duration {
    Duration::from_nanos(nanos(libc::CLOCK_PROCESS_CPUTIME_ID))
}

/// Processor time the calling thread has used.
#[must_use]
pub fn thread_cpu() -> Duration {
    Duration::from_nanos(nanos(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// How late the kernel may wake the calling thread from a timed wait. The default of 50 us makes
/// short waits overshoot by 75-90 us; 1 ns brings that to 22-26 us.
///
/// # Errors
/// When the kernel refuses (it never has a reason to).
pub fn set_timer_slack(slack: Duration) -> io::Result<()> {
    let ns = libc::c_ulong::try_from(slack.as_nanos()).unwrap_or(libc::c_ulong::MAX);
    // SAFETY: PR_SET_TIMERSLACK takes one integer argument by value and touches no memory of ours.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns) })?;
    Ok(())
}

fn nanos(clock: libc::clockid_t) -> u64 {
    let time = read(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanos
}

fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is live and exclusively borrowed; the call writes one timespec into it.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    debug_assert_eq!(result, 0, "every clock named in this file exists on Linux");
    time
}

/// A duration in the kernel's form, saturating.
pub(crate) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// The longest that a kernel is built with.
const TICK_MAX: Duration = Duration::from_millis(10);

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
