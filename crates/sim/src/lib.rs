//! The simulated world in which the shipped run loop is tested: virtual time, a LAN with faults,
//! control connections that break, hosts that pause and die, and a judge.
//!
//! This crate is for development only; nothing shipped depends on it. It tests `driver`, `pgm` and
//! `delivery` unchanged: [`SimIo`] takes the place of the sockets. It does not test sockets,
//! threads or disks. In: a [`Plan`] (a scenario file, or one that [`swarm`] draws) and a seed. Out:
//! a [`Report`]; of a failed run also a trace and a pcap.
//!
//! ```text
//!   scenario.toml --+                      +--> node: Driver<SimIo, Publisher>    + workload
//!                   +--> Plan --> World ---+--> node: Driver<SimIo, Subscriber>   + witness
//!   swarm(seed) ----+   (run)   clock,     +--> node: ObjectSender, ObjectReceiver + tree
//!                               faults     +--> node: intruder
//!                                 |                       |
//!                              trace, pcap             ledger --> failures, fingerprint
//! ```
//!
//! Where to look: the world is in `world` (clock, hosts, events), `pipe` and `fault` (what goes
//! wrong), `stream` (control connections) and `io` (an endpoint's view). The processes are in
//! [`node`]. The checks are in [`check`] and at the end of `run`. [`plan`] says what a run consists
//! of.
//!
//! Invariants: one plan and one seed are one run, to the last byte. Nothing reads a clock. Draws in
//! one part do not change the draws in another. A turn always takes time, so a loop that spins is
//! found out and does not hang the simulation.
//!
//! A failed seed: `cargo run -p towline-sim -- --seed N` runs it again and says where its trace and
//! its pcap are.
#![forbid(unsafe_code)]

pub mod check;

mod control_count;
pub use control_count::ControlCounts;

mod fault;
pub use fault::IoFaults;

mod frame;
pub use frame::Frame;

pub mod frames;

mod io;
pub use io::SimIo;

pub mod node;

pub mod payload;

mod pcap;
pub use pcap::Pcap;

mod pipe;
pub use pipe::{Fault, Flight, Pipe};

pub mod plan;
pub use plan::{Plan, PlanError};

mod quantity;
pub use quantity::{Ratio, Span};

pub mod replay;

mod run;
pub use run::{Report, run, run_recorded};

mod simulation;
pub use simulation::{Node, Simulation};

mod stream;
pub use stream::StreamConditions;

pub mod swarm;

mod trace;
pub use trace::Trace;

mod wire_count;
pub use wire_count::WireCounts;

mod world;
pub use world::{
    Action, CrashKind, CutDirection, EndpointCounts, EndpointId, EndpointSetup, HostId,
    SharedWorld, Step, World,
};
