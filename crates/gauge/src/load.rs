//! Load: messages whose content proves itself, and when each was sent.

mod sender;
pub use sender::{LoadSender, LoadSpec};

pub use measure::{Delays, Percentiles, Schedule, ScheduleError, load::*};

/// Reads the wall clock, in nanoseconds since 1970; stamps hold this time.
#[must_use]
pub fn wall_ns() -> u64 {
    sys::clock::wall_nanos()
}
