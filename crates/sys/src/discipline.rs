//! The discipline of the kernel's wall clock: the settings that a daemon (such as an NTP client)
//! gives the kernel to keep the clock right.

use std::io;

use crate::call::check;

/// The kernel's knowledge of its wall clock.
/// <https://man7.org/linux/man-pages/man2/adjtimex.2.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discipline {
    /// True when a daemon says that the clock is synchronised, and the kernel sees no fault of the
    /// clock.
    pub is_synchronised: bool,
    /// The most by which the clock may be wrong, in nanoseconds. The daemon states this bound, and
    /// the kernel raises it while the daemon is silent.
    pub error_ns_max: u64,
    /// The daemon's estimate of the error, in nanoseconds.
    pub error_ns_estimated: u64,
    /// The correction that is still to be made, in nanoseconds.
    pub offset_ns: i64,
    /// The correction of the clock's speed, in parts per billion; positive when it makes the clock
    /// faster.
    pub frequency_ppb: i64,
    /// International atomic time less UTC, in seconds; 0 when no program has set it.
    pub tai_offset_s: i32,
    /// True when a leap second is to come.
    pub has_leap: bool,
}

/// Reads how the kernel's clock is kept right; changes nothing.
///
/// # Errors
/// Never in practice.
pub fn read() -> io::Result<Discipline> {
    // SAFETY: `timex` is a C structure of integers; all zero is a valid value, and zero in `modes`
    // means that the call changes nothing.
    let mut found: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is live and exclusively borrowed; the kernel writes one timex into it.
    let state = check(unsafe { libc::adjtimex(&raw mut found) })?;
    let is_nano = found.status & libc::STA_NANO != 0;
    let offset = found.offset;
    let micros = |us: libc::c_long| u64::try_from(us).unwrap_or(0).saturating_mul(1_000);
    Ok(Discipline {
        is_synchronised: found.status & libc::STA_UNSYNC == 0 && state != libc::TIME_ERROR,
        error_ns_max: micros(found.maxerror),
        error_ns_estimated: micros(found.esterror),
        offset_ns: if is_nano {
            offset
        } else {
            offset.saturating_mul(1_000)
        },
        // The kernel gives parts per million in fixed point, with 16 bits after the point.
        frequency_ppb: found.freq.saturating_mul(1_000) >> 16,
        tai_offset_s: found.tai,
        has_leap: found.status & (libc::STA_INS | libc::STA_DEL) != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_and_bounds_are_above_estimates() {
        let found = read().unwrap();
        assert!(found.error_ns_max >= found.error_ns_estimated || !found.is_synchronised);
        // The kernel corrects by 500 parts in a million at most.
        assert!(found.frequency_ppb.abs() <= 500_000, "{found:?}");
    }
}
