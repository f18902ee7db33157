//! Virtual clock and links, faults, checkers, scenarios; runs the shipped loop.
#![forbid(unsafe_code)]

mod fault;
pub use fault::IoFaults;

mod frame;
pub use frame::Frame;

mod io;
pub use io::SimIo;

mod pcap;
pub use pcap::Pcap;

mod pipe;
pub use pipe::{Fault, Flight, Pipe};

mod quantity;
pub use quantity::{QuantityError, Ratio, Span};

mod simulation;
pub use simulation::{Node, Simulation};

mod stream;
pub use stream::StreamConditions;

mod trace;
pub use trace::Trace;

mod world;
pub use world::{
    Action, CrashKind, CutDirection, EndpointCounts, EndpointId, EndpointSetup, HostId,
    SharedWorld, Step, World,
};
