//! Objects (files) and reports over any transport, as pure state machines.
//!
//! Two pairs of machines, both speaking the control protocol of [`wire::object`] over control
//! connections, and both ignorant of sockets, threads, disks and of PGM:
//!
//! ```text
//!              sender                                   receiver
//!   messages   Registry   <--- HELLO, POS, BYE ---      Reporter
//!   objects    PlanSender <--- HAVE, NEED, DONE ---     PlanReceiver
//!                 |                                        |
//!              Content (bytes to send)                  Store (bytes to keep)
//! ```
//!
//! [`Transfers`] has a plan receiver for each sender whose plan its owner wants, and decides who is
//! asked, what is taken and who goes on with it.
//!
//! The contract is that of `base`: `handle_link(now, link, event, data)` for what a connection
//! does, then drain: `poll_link()` gives a [`LinkCommand`], answered by `link_sent` or
//! `link_opened`; `next_timeout()` says when `handle_timeout(now)` is due; `pop_event()` gives what
//! the owner is told. Nothing here reads a clock, sleeps, spawns or depends on hash order.
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

mod plan;
pub use plan::{
    Entry, File, HASH_LEN, Hash, PathFault, Plan, PlanError, PlanId, PlanLimits, Slab, SlabGroups,
    SlabHasher, check_link, file_root, hash_bytes, write_sum_line,
};

mod range;
pub use range::{RangeSet, TooManyRanges};

mod rate;
pub use rate::{RateCause, RateConfig, RateControl, RateLimit, RateReport};

mod receiver;
pub use receiver::{
    BlockVerdict, Offer, PlanReceiver, PlanReceiverConfig, PlanReceiverCounters, PlanReceiverEvent,
    ReceiverProgress,
};

mod registry;
pub use registry::{
    LeaveReason, Policy, ReceiverStatus, Registry, RegistryConfig, RegistryCounters, RegistryEvent,
};

mod reporter;
pub use reporter::{Reporter, ReporterConfig, ReporterCounters, ReporterEvent};

mod sender;
pub use sender::{
    BlockPlan, Demotion, Limit, PlanOutcome, PlanSender, PlanSenderConfig, PlanSenderCounters,
    PlanSenderEvent, ReceiverReport, ReceiverState, SlowPolicy,
};

mod store;
pub use store::{Store, StoreEvent};

#[cfg(test)]
mod transfer;
