//! Reports of receivers' positions: when a receiver sends them, and what they tell the sender about
//! the network and its rate.
//!
//! Messages and files use the same reports. Each report takes the sender some time, so all
//! receivers of a session together send at most about one report every 0.2 ms. The receiver that
//! holds the others back, or sets the rate, may send more.

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
