//! Load: messages whose content proves itself, and when each was sent.

mod sender;
pub use sender::{LoadSender, LoadSpec};

pub use measure::{Delays, Percentiles, Schedule, ScheduleError, load::*};

/// Nanoseconds of the wall clock since 1970, which stamps are of.
#[must_use]
pub fn wall_ns() -> u64 {
    sys::clock::wall_nanos()
}
