//! What every sans-IO type of Towline shares: a clock value, a seeded generator, counters, the
//! grammar of numbers with units ([`quantity`]), and the shapes in which packets enter
//! ([`Arrival`]) and leave ([`Run`]) a state machine.
//!
//! It does no input or output. The one contract of all sans-IO types, stated once here:
//!
//! 1. `handle(now, &Arrival, tpdu) -> Verdict` for each packet of a receive batch, one `now` for
//!    the whole batch, never backwards.
//! 2. After the batch, drain: `pop_ready()`, then `poll_run(now, budget)` followed by
//!    `run_done(now, outcome)` until it gives `None`, then rare events.
//! 3. `next_timeout()` says when `handle_timeout(now)` is due.
//!
//! A debug build names misuse of it: see [`Contract`].
//!
//! Nothing inside reads a clock, sleeps, spawns, locks, allocates per packet or depends on hash
//! order; everything is bounded by configuration, and reaching a bound is an event and a counter.
#![forbid(unsafe_code)]

mod arrival;
pub use arrival::{Arrival, Datagram, PathId, RecvBatch, Segments, Socket};

mod contract;
pub use contract::Contract;

mod counter;
pub use counter::{CounterInfo, CounterSet, Unit};

mod io;
pub use io::{Io, IoFault, LinkEvent, LinkId, RunLimit};

#[cfg(feature = "planted-bugs")]
pub mod planted;

pub mod quantity;

mod rng;
pub use rng::Rng;

mod run;
pub use run::{Budget, Outcome, Run};

mod time;
pub use time::{Instant, earliest};

mod verdict;
pub use verdict::{DropCounters, DropReason, Verdict};
