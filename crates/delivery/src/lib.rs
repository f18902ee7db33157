//! Objects (files) and reports over any transport, as pure state machines.
//!
//! Two pairs of machines, both speaking the control protocol of [`wire::object`] over control
//! connections, and both ignorant of sockets, threads, disks and of PGM:
//!
//! ```text
//!              sender                                     receiver
//!   messages   Audience       <--- HELLO, POS, BYE ---    Reporter
//!   objects    TransferSender <--- HAVE, NEED, DONE ---   TransferReceiver
//!                 |                                          |
//!              Content (bytes to send)                    Store (bytes to keep)
//! ```
//!
//! [`Transfers`] has a transfer receiver for each sender whose manifest its owner wants, and
//! decides which senders are asked, what is taken, and which sender continues it.
//!
//! The contract is that of [`base`], from `handle_link` on.
//!
//! Invariants: everything kept for a peer is bounded by configuration and by what the peer has
//! really sent, never by what it claims; a peer that breaks the protocol loses its connection and
//! nobody else notices.
#![forbid(unsafe_code)]

#[cfg(test)]
mod fabric;

mod control;
pub use control::{Key, LinkCommand};

mod content;
pub use content::{Content, ContentError};

mod events;

mod feedback;
pub use feedback::{StreamCounts, StreamState};

mod intake;
pub use intake::{
    Decline, Heard, Intake, ObjectReceiverConfig, ObjectReceiverCounters, ObjectReceiverEvent,
    Sender, StreamVerdict, TakeFirst, Transfers,
};

#[cfg(any(test, feature = "memory"))]
pub mod memory;

mod manifest;
pub use manifest::{
    Entry, File, HASH_LEN, Hash, Manifest, ManifestError, ManifestId, ManifestLimits, PathFault,
    Slab, SlabGroups, SlabHasher, WITHDRAWN, check_link, file_root, hash_bytes, write_sum_line,
};

pub mod parameters;

mod range;
pub use range::{RangeSet, TooManyRanges};

mod rate;
pub use rate::{RateCause, RateConfig, RateControl, RateLimit, RateReport};

mod receiver;
pub use receiver::{
    BlockVerdict, Offer, ReceiverProgress, TransferReceiver, TransferReceiverConfig,
    TransferReceiverCounters, TransferReceiverEvent,
};

mod audience;
pub use audience::{
    Audience, AudienceConfig, AudienceCounters, AudienceEvent, LeaveReason, Policy, ReceiverStatus,
};

mod reporter;
pub use reporter::{Reporter, ReporterConfig, ReporterCounters, ReporterEvent};

mod sender;
pub use sender::{
    BlockPlan, Demotion, Limit, ReceiverReport, ReceiverState, SlowPolicy, TransferOutcome,
    TransferSender, TransferSenderConfig, TransferSenderCounters, TransferSenderEvent, Unsent,
};

mod steering;
pub use steering::{SourceState, Steering};

mod store;
pub use store::{Store, StoreEvent, Surplus};

#[cfg(test)]
mod scenarios;
