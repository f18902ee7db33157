//! Reports of where receivers stand: what makes them due at the receiver, what they say of the
//! network and of the rate at the sender.
//!
//! It is the same for messages and for files, and does not know who sends a report on. A report is
//! also the sender's time: all receivers of a session together send one in 0.2 ms at most, except
//! for the one that holds the rest back.

mod heard;
#[cfg(test)]
pub(crate) use heard::ArrivalMeter;
use heard::Heard;

mod pacing;
pub(crate) use pacing::{Feedback, Habit, Timing, interval, interval_us, share};

mod rate_report;
pub(crate) use rate_report::rate_report;

mod round_trip;
pub(crate) use round_trip::RoundTrip;

mod stream;
pub use stream::{StreamCounts, StreamState};
