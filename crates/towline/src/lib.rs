//! Move data over IP networks completely, one-to-one and one-to-many.
//!
//! ```no_run
//! # fn main() -> Result<(), towline::Error> {
//! use towline::{Publisher, SessionBuilder};
//! let session = SessionBuilder::new("239.192.0.1:7500".parse()?);
//! let mut publisher = Publisher::builder(session).receivers(1).open()?;
//! publisher.send(b"hello, all")?;
//! publisher.close(std::time::Duration::from_secs(5))?;
//! # Ok(())
//! # }
//! ```
//!
//! Four faces on one loop: blocking ([`Publisher::send`], [`Subscriber::recv`]); pollable (one
//! descriptor, `arm` and `turn`); own thread ([`PublisherThread`], [`SubscriberThread`]); and
//! asynchronous ([`SubscriberThread::ready`]), for any runtime. Transfers of files have the same:
//! [`FileSender`], [`FileReceiver`], [`TransferThread`].
//!
//! What happens to a session is told by [`tracing`] events too, for programs that install a
//! subscriber: sessions, receivers, losses and transfers at the level info, control connections at
//! debug. Packets and messages have none.
//!
//! Each stands in `examples/` as a program of one page that runs on one machine: `publish` and
//! `subscribe`, `send` and `receive`, `poll_loop` (a loop of your own) and `tokio`.
#![forbid(unsafe_code)]

mod batch;
pub use batch::{Batch, Received};

mod error;
pub use error::Error;

mod files;
pub use files::{
    Expectation, FileIntake, FileReceiver, FileReceiverBuilder, FileReceiverState, FileSender,
    FileSet, FileSetBuilder, FileSetEntry, FileSums, ReceiverStore, Selection, Spool, StreamStore,
    Target,
};

mod hook;
pub use hook::{Completed, Hook, HookError, HookFailure};

mod key;
pub use key::read_key;

mod publisher;
pub use publisher::{Publisher, PublisherBuilder, RateSetter, SendStatus};

pub mod registry;
pub use registry::Snapshot;

mod session;
pub use session::SessionBuilder;

mod sources;
pub use sources::Allowed;

mod stall;
pub use stall::StallWatch;

mod subscriber;
pub use subscriber::Subscriber;

mod thread;
pub use thread::{PublisherThread, SubscriberThread};

mod trace;

mod transfer;
pub use transfer::{Transfer, TransferThread};

mod usage;
pub use usage::{Usage, UsageMeter};

pub use base::{CounterInfo, CounterSet, Instant, Unit, quantity};
pub use delivery::{
    Demotion, Key, LeaveReason, Limit, ObjectReceiverEvent, Offer, PlanOutcome, PlanReceiverEvent,
    PlanSenderEvent, Policy, RateCause, ReceiverProgress, ReceiverReport, ReceiverState,
    RegistryEvent, Sender, SlowPolicy,
};
pub use driver::{MessageSink, SessionEvent};
pub use net::{
    Existing, Faults, Group, Interface, InterfaceError, Interfaces, Missing, Remedy, SocketOptions,
    SystemError, WaitStrategy, Waker, interface::Selector, resolve,
};
pub use pgm::{
    Config, ConfigBuilder, ConfigError, Full, Intervals, LateJoin, PARAMETERS, Parameter, Rate,
    Role, Status, Timer,
};
pub use wire::{
    object::{EntryKind, ErrorCode, Phase, Refusal},
    pgm::{Gsi, Tsi},
};

/// The example of the README, compiled with the others.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
