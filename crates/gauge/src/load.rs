//! Load: messages whose content proves itself. They can also say when they were sent.

mod sender;
pub use sender::{LoadSender, LoadSpec};

pub use measure::{Delays, Percentiles, Schedule, ScheduleError, load::*};

/// Returns how far the wall clock may be wrong, in nanoseconds, as its daemon has told the kernel;
/// `None` when no daemon keeps it right.
#[must_use]
pub fn wall_error_ns_max() -> Option<u64> {
    let clock = sys::discipline::read().ok()?;
    clock.is_synchronised.then_some(clock.error_ns_max)
}

/// Returns the wall clock's time in nanoseconds since 1970; stamps hold this time.
#[must_use]
pub fn wall_ns() -> u64 {
    sys::clock::wall_nanos()
}
