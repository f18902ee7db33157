//! The counters of a running process, for another one to read: `towline top` and `towline stat`.
//!
//! A session publishes a snapshot of its counters into a slot now and then (about ten times a
//! second, from its own loop); a thread answers each connection to a local socket with one JSON
//! document and hangs up. It knows nothing of what the counters mean.
//!
//! ```text
//!   session --publish--> CounterSlot --.
//!   session --publish--> CounterSlot ---+-- CounterServer - DIR/PID.sock -- processes(), read(pid)
//!                                                `- MetricsServer - GET /metrics
//! ```
//!
//! **Where**: `$XDG_RUNTIME_DIR/towline`, else `/tmp/towline-UID`; a directory that another user
//! owns or may enter is refused. A snapshot never waits: while a reader copies, publishing is left
//! out.

mod client;
pub use client::{processes, read};

mod declared;
pub use declared::declared;

mod directory;

mod document;
pub use document::{CounterReading, ProcessCounters, SessionCounters};

mod metrics;
pub use metrics::MetricsServer;

mod prometheus;

mod server;
pub use server::{CounterServer, CounterSlot};

pub use crate::Snapshot;

#[cfg(test)]
mod tests;
