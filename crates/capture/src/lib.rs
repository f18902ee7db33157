//! Capture and replay of packets through kernel rings, with an account of every packet lost.
//!
//! A [`Source`] gives borrowed packets, a [`Sink`] takes them, and a [`Session`] moves them from
//! one to the other. On the way it filters, cuts and segments the packets, and keeps the
//! [`Account`].
//!
//! ```text
//! Source --Packet<'_>--> Session: filter, cut, segment, count --> Sink
//!    \__ Losses (ring, interface) ___________/ \__ Account: per cause, per second
//! ```
//! The crate does not parse protocols above the transport (`wire` does), diagnose, or draw screens.
//!
//! Invariants:
//! - every packet that the socket saw is delivered, filtered, dropped because the ring was full,
//!   unwritten or left unread: [`Account::residual`] is 0;
//! - every packet that passed the filter, a super-packet as its pieces, is delivered or unwritten:
//!   [`Account::sink_residual`] is 0;
//! - counters have 64 bits, and the session reads the kernel's 32-bit counters at least once a
//!   second;
//! - a packet borrows its source's memory; between source and sink, it is copied only when it is
//!   changed: cut up, edited, or given its checksum.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod account;
pub use account::{Account, InterfaceAccount, Losses, Second, Unit, Unwritten};

mod address;
pub use address::{SinkAddress, SourceAddress};

mod edit;
pub use edit::{Editor, Edits, TagEdit};

mod error;
pub use error::CaptureError;

mod filter;
pub use filter::Filter;

pub mod generated;

mod link;
pub use link::LinkSpeed;

mod pace;
pub use pace::{GapErrors, Pacer, ReplayTiming};

mod packet;
pub use packet::{Interface, Packet};

mod pull;
pub use pull::{OwnedPacket, Packets};

mod segment;

mod session;
pub use session::{Ended, Limits, Session};

pub mod sink;
pub use sink::{SendOptions, Sink};

pub mod source;
pub use source::{LiveOptions, RETIRE_MAX, Source};

pub mod stats;

mod workers;
pub use workers::Workers;

pub use sys::privilege::{become_user, drop_capabilities, keep_file_capabilities};

pub use sys::packet::{Checksum, Direction, GsoKind, Offload};
