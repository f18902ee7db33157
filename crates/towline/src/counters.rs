//! The counters of a running process, which other processes such as `towline top` and `towline
//! stat` can read.
//!
//! About ten times a second a session's loop publishes a snapshot of its counters into a slot. A
//! thread answers each connection to a local socket with one JSON document, then closes the
//! connection. This module does not know what the counters mean.
//!
//! ```text
//!   session --publish--> CounterSlot --.
//!   session --publish--> CounterSlot ---+-- CounterServer - DIR/PID.sock -- processes(), read(pid)
//!                                                `- MetricsServer - GET /metrics
//! ```
//!
//! **Where**: the sockets are in `$XDG_RUNTIME_DIR/towline`, or without that variable in
//! `/tmp/towline-UID`. A directory that another user owns is refused; a directory that others may
//! enter is made private first. Publishing never waits: while a reader copies the slot, the session
//! does not publish.

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
