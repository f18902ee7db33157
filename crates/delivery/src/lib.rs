//! Objects (files) and reports over any transport, as pure state machines.
//!
//! Two pairs of machines speak the control protocol of [`wire::object`] over control connections:
//! [`Audience`] with [`Reporter`], and [`TransferSender`] with [`TransferReceiver`]. Frames use
//! [`Audience`] and [`Reporter`], and two machines of their own. None of the machines knows
//! sockets, threads or disks. Their owner handles the PGM packets. From these, the machines see
//! only marks (what a sender says of itself in its SPMs), identifiers, positions and payloads.
//!
//! ```text
//!              sender                                     receiver
//!   messages   Audience       <--- HELLO, POS, BYE ---    Reporter
//!   objects    TransferSender <--- HAVE, NEED, DONE ---   TransferReceiver
//!   frames     FrameSender and Audience                   FrameReceiver and Reporter
//!                 |                                          |
//!              Content (bytes to send)                    Store (bytes to keep)
//! ```
//!
//! [`Transfers`] has a transfer receiver for each transfer, and for each sender that it asks for a
//! manifest. It decides which senders to ask, which offers to take, and which sender continues a
//! transfer.
//!
//! [`base`] describes how to drive a machine. Its steps from `handle_link` on apply here.
//!
//! Invariants: fixed or configured limits bound everything that is kept for a peer, whatever the
//! peer claims. A peer that breaks the protocol loses its connection, and other peers are not
//! affected.
#![forbid(unsafe_code)]

#[cfg(test)]
mod fabric;

mod admission;
pub use admission::Admission;

mod control;
pub use control::LinkCommand;
pub use protection::Key;

mod content;
pub use content::{Content, ContentError};

mod events;

pub mod frames;

mod forwarder;
pub use forwarder::{Forwarder, ForwarderCounters};

mod feedback;
pub use feedback::{StreamCounts, StreamState};

mod host_counts;
use host_counts::HostCounts;

mod intake;
pub use intake::{
    Decline, Heard, Intake, ObjectReceiverConfig, ObjectReceiverCounters, ObjectReceiverEvent,
    Sender, StreamVerdict, TakeFirst, Transfers,
};

#[cfg(any(test, feature = "memory"))]
pub mod memory;

mod manifest;
pub use manifest::{
    Attribute, Entry, File, HASH_LEN, HardLink, Hash, Manifest, ManifestError, ManifestId,
    ManifestLimits, Owner, OwnerNames, PathFault, Slab, SlabGroups, SlabHash, SlabHasher,
    SlabHashes, WITHDRAWN, check_link, hash_bytes, path_order, write_sum_line,
};

pub mod parameters;

mod proof;

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
    Audience, AudienceConfig, AudienceCounters, AudienceEvent, Confirmation, LeaveReason, Policy,
    ReceiverStatus,
};

mod reporter;
pub use reporter::{Reporter, ReporterConfig, ReporterCounters, ReporterEvent};

mod sender;
pub use sender::{
    BlockPlan, Carriage, Demotion, Limit, ReceiverReport, ReceiverState, SlowPolicy,
    TransferOutcome, TransferSender, TransferSenderConfig, TransferSenderCounters,
    TransferSenderEvent, Unsent,
};

mod steering;
pub use steering::{SourceState, Steering};

mod store;
pub use store::{Store, StoreEvent, Surplus, Unset};

#[cfg(test)]
mod scenarios;
