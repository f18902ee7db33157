//! Round trips as an application sees them: a reflector sends every message back, and a measurement
//! asks it on a fixed schedule, by one clock.
//!
//! ```text
//!   run(): due? -- send --> network --> Reflector --> network --> receive -- Sample --> recorder
//!          ^                                                        |                  (thread)
//!          +------------- one thread, which never waits for a disk -+                     |
//!                                                                                    result file
//! ```
//! A message leaves at its slot of the schedule, even if the message before it was not answered
//! yet. Only a window can bound how many messages are under way. The round trip of a message that
//! leaves late counts from the time when it should have left, so that no stall can hide. The
//! measuring thread may run in a real-time class, on its own processor, with its memory locked; the
//! report names what the machine refused.

mod campaign;
pub use campaign::{Campaign, Variant};

mod carrier;

mod client;
pub use client::{Client, Cut, RunOutcome};

mod clock_exchange;
pub use clock_exchange::{ClockExchanges, exchange_clocks};

mod datagrams;
pub(crate) use datagrams::no_way;

mod flight;

mod host;
pub use host::{host, link_of};

mod passage;
pub use passage::{Passage, Watch};

mod pgm;

mod ready;
pub use ready::{Engine, Readiness, Scheduling, Wait, prepare};

mod recorder;
pub use recorder::Recorder;

mod reflector;
pub use reflector::{ReflectCounts, ReflectSpec, Reflector, reflect_over};

mod stamping;

mod tcp;

pub use measure::{
    ATTAINED_MIN, ClockState, Counts, Disturbance, DisturbanceKind, Latencies, Link, OneWay,
    OneWayTimes, PROBE_BYTES_MIN, Percentiles, Repairs, Sample, Schedule, ScheduleError, Series,
    Split, StampCounts, StampingCost, Strain, Transport, Which, plot, raw, strains, write_log,
};

/// The default port of a reflector.
pub const PORT: u16 = 7700;
/// Bytes of the longest message: the most that a datagram over IPv4 holds.
pub const MESSAGE_BYTES_MAX: usize = 65_507;
