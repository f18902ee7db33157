//! Measurements without clock or socket: when to send, what a probe looks like, how a result is
//! kept, its percentiles, and its pictures.
//!
//! ```text
//!   Schedule --> (engine sends Probe, hears its echo) --> Sample --> raw::Writer --> FILE
//!                                                            |                        |
//!                                                            v                        v
//!                                                        Latencies <----------- raw::read
//!                                                            |                        |
//!                                                         figures     plot: PNG, SVG, HTML, text
//! ```
//!
//! The times of a round-trip measurement are nanoseconds of one monotonic clock since the start of
//! their run. A round trip is counted twice: from the *intended* time of sending, so that it
//! includes every stall of the sender, and from the *actual* time. Half a round trip is never
//! shown, because it is no one-way delay.
//!
//! This crate reads no clocks, moves no packets and opens no files.
#![forbid(unsafe_code)]

mod attainment;
pub use attainment::ATTAINED_MIN;

mod beacon;
pub use beacon::Beacon;

mod clock_word;
pub use clock_word::{ANSWER_NS_MAX, CLOCK_BYTES, ClockWord};

mod export;
pub use export::{Format, export, write_picture};

pub mod frames;

mod knee;
pub use knee::{Strain, strains};

mod latencies;
pub use latencies::{Delays, Latencies, Percentiles, Which, write_log};

mod link;
pub use link::{Link, Transport};

pub mod load;

mod one_way;
pub use one_way::{ClockExchange, ClockState, OneWay, OneWayTimes};

pub mod plot;

mod probe;
pub use probe::{PROBE_BYTES_MIN, Probe, ProbeError, ProbeKind};

pub mod raw;

mod sample;
pub use sample::{Counts, Disturbance, DisturbanceKind, Repairs, Sample, Split, StampCounts};

mod schedule;
pub use schedule::{Schedule, ScheduleError};

mod series;
pub use series::{Series, StampingCost};

pub mod sweep;
