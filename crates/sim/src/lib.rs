//! Virtual clock and links, faults, checkers, scenarios; runs the shipped loop.
#![forbid(unsafe_code)]

pub mod check;

mod fault;
pub use fault::IoFaults;

mod frame;
pub use frame::Frame;

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
pub use quantity::{QuantityError, Ratio, Span};

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
