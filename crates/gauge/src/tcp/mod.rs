//! TCP as the kernel sees it, and as applications use it: what holds connections back, and what
//! ways of writing cost.
//!
//! [`Watch`] looks at the connections of all programs on this host. It tells how long each cause
//! held a connection back, the rates, the round trips, and every field that the kernel has.
//! [`Writes`] makes calls to a [`Responder`] in many ways and says what each costs.

mod picture;
pub use picture::draw;

mod process;

mod responder;
pub use responder::Responder;

mod watch;
pub use watch::{Connection, LimitedBy, Process, Queues, Shares, Watch, WatchOf};

mod writes;
pub use writes::{Cell, Coalescing, Writes, WritesReport};

/// The default port of a responder.
pub const PORT: u16 = 7702;
