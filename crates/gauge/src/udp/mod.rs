//! Measures what a path carries, by size of datagram: a sweep commands a server, which receives and
//! sends.
//!
//! ```text
//!   Sweep --- control: one JSON document a line, over TCP ---> Server
//!     |  trial: size, mode, rate, who sends                      |
//!     |  <------------- ready, and at the end: accounts          |
//!     +==================== datagrams, over UDP =================+
//! ```
//! A rate is what the *receiver* counted. Each trial opens new sockets, so that the kernel's count
//! of datagrams dropped at a full buffer belongs to that trial. Other missing datagrams were lost
//! before the socket. Before and after each trial, both ends read the counters of their interfaces
//! and of IP reassembly.
//!
//! A server sends only to its client, or to a group that its operator allowed, and only as long as
//! the client's control connection lasts. The client's address is that of the control connection,
//! and a datagram with the trial's token must have come from there. A server serves one client at a
//! time, because two measurements would disturb each other; `place.rs` says for how long.

mod counters;
pub use counters::KernelCounters;

mod limits;
pub use limits::{GROUP_BITS_PER_S_MAX, ServeSpec};

mod path;

mod place;

mod picture;
pub use picture::draw;

mod protocol;
pub use protocol::{Dispatch, Mode, Profile, Receipt};

mod receiver;

mod report;
pub use report::{Direction, Flow, Limit, Losses, Row, SweepReport};

mod sender;

mod server;
pub use server::Server;

mod sweep;
pub use sweep::Sweep;

mod watch;
pub use watch::{TrialPassage, TrialWatch};

pub use measure::sweep::Load;

/// The default port of a server.
pub const PORT: u16 = 7701;
/// The shortest and the longest datagram, in bytes: only its header, and the most that IPv4
/// carries.
pub const SIZES: std::ops::RangeInclusive<usize> = measure::sweep::HEADER_BYTES..=65_507;
/// The rates that a user can ask for, in datagrams each second.
pub const RATES: std::ops::RangeInclusive<u64> = 1..=measure::Schedule::RATE_MAX;
