//! What every sans-IO type of Towline shares: a clock value, a seeded generator, counters, the
//! grammar of numbers with units ([`quantity`]), texts from elsewhere ([`text`]), rows of the table
//! of parameters ([`parameter`]), and the shapes in which packets enter ([`Arrival`]) and leave
//! ([`Run`]) a state machine.
//!
//! The crate does no input or output. What follows is the contract of all sans-IO types. The
//! example of the `pgm` crate is a complete loop that keeps it; `driver::Driver::turn` is the
//! shipped loop.
//!
//! 1. `handle(now, &Arrival, tpdu) -> Verdict` for each packet of a receive batch. All packets of
//!    a batch have the same `now`, and `now` never decreases.
//! 2. Directly after each `handle`, `pop_ready()` until it gives `None`: the owner uses what it
//!    gives before it handles the next packet.
//! 3. `handle_link(now, link, event, bytes)` for each event of a control connection. Before a
//!    machine handles reports on a packet stream, the owner tells it how far the stream has been
//!    sent (`delivery::Audience::set_lead`): the machine cuts a report that claims more.
//! 4. `handle_timeout(now)` when `next_timeout()` is not later than `now`.
//! 5. Once a turn, `observe(now, state)` on each machine that follows another machine; `state` says
//!    how far the other machine has come. What `observe` returns, the owner applies to the other.
//! 6. Once a turn, `poll_run(now, budget)` and `run_done(now, outcome)` in pairs; then
//!    `poll_link()`, each `Open` answered by `link_opened` and each `Send` by `link_sent`. Both go
//!    on until `None`, or until the owner has spent what it allows itself for a turn: the rest
//!    comes first in the next turn.
//! 7. Whenever the owner likes, `pop_event()` until it gives `None`. Events wait in a bounded
//!    queue, and no later call depends on them. `delivery::Transfers::pop_verdict` is different:
//!    it decides on packet streams. The owner asks it within the turn, until it gives `None`, and
//!    does what it says.
//! 8. Sleep until `next_timeout()`, a packet or an event of a connection.
//!
//! A debug build panics when the contract is broken: see [`Contract`].
//!
//! No sans-IO type reads a clock, sleeps, spawns, locks, allocates per packet or depends on hash
//! order. Configuration bounds everything; reaching a bound is an event and a counter.
#![forbid(unsafe_code)]

mod arrival;
pub use arrival::{Arrival, Datagram, PathId, RecvBatch, Segments, Socket};

mod contract;
pub use contract::Contract;

mod counter;
pub use counter::{CounterInfo, CounterSet, Unit};

mod io;
pub use io::{Io, IoFault, LinkEvent, LinkId, RunLimit};

mod pace;
pub use pace::Pace;
pub mod parameter;

#[cfg(feature = "planted-bugs")]
pub mod planted;

pub mod quantity;

mod rng;
pub use rng::Rng;

mod run;
pub use run::{Budget, Outcome, Run};

pub mod text;

mod time;
pub use time::{Instant, earliest};

mod verdict;
pub use verdict::{DropCounters, DropReason, Verdict};
