//! Sockets: packets over UDP, control connections over TCP, the wait of one loop for both, and the
//! interface and group that they use. This module knows nothing of files.

mod counters;
pub use counters::UdpCounters;

mod group;
pub use group::Group;

pub mod intercept;
pub use intercept::{Faults, Intercept};

pub mod interface;
pub use interface::{Interface, InterfaceError, Interfaces};

mod link;
pub use link::HeldBack;

mod links;
pub use links::LinkIo;

mod options;
pub use options::{Encapsulation, SocketOptions, WaitStrategy};

mod readiness;
pub use readiness::Waker;

mod resolve;
pub use resolve::resolve;

mod shares;
pub use shares::{NetworkLimit, NetworkSigns, TcpLimit, TcpShares};

mod tally;

mod udp;
pub use udp::{Role, UdpIo, UdpSetup};

mod ways;
pub use ways::WaysIo;
