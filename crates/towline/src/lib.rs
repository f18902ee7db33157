//! Move data over IP networks completely, one-to-one and one-to-many.
//!
//! ```no_run
//! # fn main() -> Result<(), towline::Error> {
//! use towline::{Publisher, SessionBuilder};
//! let session = SessionBuilder::new("239.192.0.1:7500".parse()?);
//! let mut publisher = Publisher::builder(session).expect_receivers(1).open()?;
//! publisher.send(b"hello, all")?;
//! let closed = publisher.close(std::time::Duration::from_secs(5))?;
//! println!("{} of 1 receiver confirmed", closed.confirmed);
//! # Ok(())
//! # }
//! ```
//!
//! # Which face
//!
//! One loop does the work of a session, a turn at a time. A face is a set of types through which an
//! application uses sessions. The faces differ in who runs the loop.
//!
//! | face | types | who turns | what blocks |
//! |---|---|---|---|
//! | blocking | [`Publisher`], [`Subscriber`] | every call | `send`, `recv`, `flush`, `close` |
//! | pollable | the same | the owner's loop | nothing |
//! | thread | [`PublisherThread`], [`SubscriberThread`] | a thread | as blocking |
//! | asynchronous | [`AsyncPublisher`], [`AsyncSubscriber`] | a thread | nothing |
//! | frames | [`FramePublisher`], [`FrameSubscriber`] | the owner's loop | `wait`, `close` |
//! | files | `FileSender`, `FileReceiver` | the owner's loop | `wait` |
//! | files, thread | `TransferThread` | a thread | `recv`, `ask`, `join`; `ready` is awaited |
//! | between networks | [`Relay`] | the owner's loop | `wait` |
//! | TCP, proven | [`DeliveredStream`] | every call | `write`, `read`, `flush`, `finish` |
//! | TCP, proven, asynchronous | [`AsyncDeliveredStream`] | every call | nothing |
//! | TCP to any program | [`PlainSender`] | the owner's loop | `wait` |
//!
//! | face | it ends by | dropped without that |
//! |---|---|---|
//! | blocking | `close`, which waits | a publisher's receivers are told that it broke off |
//! | pollable | `begin_close`, turns, `is_closed` | the same |
//! | thread | `close`, which waits | the same |
//! | asynchronous | `close`, which is awaited | the same, on its thread: nothing blocks |
//! | frames | `close`, which waits | a publisher's receivers are told that it broke off |
//! | files | itself, when all is proven or given up | peers see it by their connections |
//! | files, thread | itself | is cancelled, and the peers are told |
//! | between networks | never | peers see it by their connections |
//! | TCP, proven | `finish`, which waits | the peer learns that the stream broke off |
//! | TCP, proven, asynchronous | `finish`, which is awaited | the same |
//! | TCP to any program | itself | the peer sees it by its connection |
//!
//! A blocking or pollable session does nothing between its calls: repairs, reports and joining wait
//! for the next call. A program that makes no call for long should use a face with a thread.
//!
//! # Tracing
//!
//! The library also emits `tracing` events, for programs that install a subscriber. The level warn
//! tells of losses, of sessions that broke off, and of peers that stalled, were dropped or were
//! refused. The level info tells of sessions, receivers and transfers that come and go. The level
//! debug tells of control connections and the steps of a transfer. Single packets and messages emit
//! no event.
//!
//! # Features
//!
//! All except `schema` are on by default; messages need none of them. `files` adds transfers of
//! files, `keys` protects sessions, `counters` shows counters to other processes and to Prometheus,
//! `tracing` emits events, `futures` makes [`AsyncSubscriber`] a `Stream`, `schema` describes the
//! counters' JSON.
//!
//! Programs of one page in `examples/` show the faces on one machine: `publish` and `subscribe`,
//! `send` and `receive`, `poll_loop` (a loop of your own), `tokio`, and `delivered` (a proven TCP
//! connection in tokio).
#![forbid(unsafe_code)]

mod aio;
pub use aio::{AsyncPublisher, AsyncSubscriber, Incoming, Message};

mod backend;

mod batch;
pub use batch::{Batch, Received};

mod error;
pub use error::{Error, ErrorKind};

#[cfg(feature = "files")]
mod files;
#[cfg(feature = "files")]
pub use files::{
    Expectation, FileIntake, FileReceiver, FileReceiverBuilder, FileReceiverState, FileSender,
    FileSet, FileSetBuilder, FileSetEntry, FileSums, MemoryFile, MemoryFiles, OwnStores,
    ReceiverStore, Selection, Spool, StreamStore, Target,
};

mod frames;
pub use frames::{FeedSent, FramePublisher, FramePublisherBuilder, FrameSubscriber};

#[cfg(feature = "files")]
mod hook;
#[cfg(feature = "files")]
pub use hook::{Completed, Hook, HookError, HookFailure};

#[cfg(feature = "keys")]
mod key;
#[cfg(feature = "keys")]
pub use key::{Key, read_key};

mod place;
pub use place::Place;

mod publisher;
pub use publisher::{Closed, Publisher, PublisherBuilder, RateSetter, ReceiverStatus, SendStatus};

#[cfg(feature = "counters")]
pub mod counters;

mod relay;
pub use relay::{Relay, RelayBuilder, RelayWay};

mod snapshot;
pub use snapshot::Snapshot;

mod session;
pub use session::{
    SessionBuilder,
    options::{self, SESSION_OPTIONS, SessionOption},
    profile::{PROFILES, Profile},
};

mod allowed;
pub use allowed::Allowed;

#[cfg(feature = "files")]
mod sources;

#[cfg(feature = "files")]
mod stall;
#[cfg(feature = "files")]
pub use stall::StallWatch;

mod subscriber;
pub use subscriber::{SessionInfo, Subscriber};

mod tcp;
pub use tcp::{
    AsyncDeliveredStream, DeliveredProgress, DeliveredProof, DeliveredStream, PlainEnd,
    PlainSender, PlainSource, TransmitError, Undelivered, transmit_file,
};

mod thread;
pub use thread::{PublisherThread, SubscriberThread};

mod trace;

#[cfg(feature = "files")]
mod transfer;
#[cfg(feature = "files")]
pub use transfer::{Transfer, TransferThread};

mod usage;
pub use usage::{Usage, UsageMeter};

pub use base::{
    CounterInfo, CounterSet, Instant, IoFault, Pace, Unit,
    parameter::{Parameter, Role, Setting},
    quantity, text,
};
pub use delivery::{
    AudienceEvent, Decline, Demotion, Hash, Intake, LeaveReason, Limit, Manifest, ManifestId,
    ObjectReceiverEvent, Offer, Policy, RangeSet, RateCause, ReceiverProgress, ReceiverReport,
    ReceiverState, Sender, Slab, SlowPolicy, Store, StoreEvent, Surplus, TransferOutcome,
    TransferReceiverEvent, TransferSenderEvent, Unsent, Unset,
    frames::{
        Feed, FeedCounts, Frame, FrameCounts, FrameEvent, FrameLoss, FrameReceiver,
        FrameReceiverConfig, FrameSenderConfig,
    },
    parameters::{SETTLE_TIME, TRANSFERS_MAX},
};
pub use driver::{FramePacing, FrameSink, MessageSink, Offered, SessionEvent, Turn};
pub use net::{
    Delete, Encapsulation, Existing, Faults, FileStore, Group, HeldBack, Interface, InterfaceError,
    Interfaces, KeepFree, Leftover, Missing, Modes, NetworkLimit, NetworkSigns, Owners, Remedy,
    RoomLimits, SocketOptions, SystemError, TcpLimit, TcpShares, WaitStrategy, Waker,
    discard_leftover, interface::Selector, leftovers, resolve, usual_remedy,
};
pub use pgm::{
    Census, Config, ConfigBuilder, ConfigError, FecForm, Full, Intervals, LateJoin, PARAMETERS,
    Rate, Status, Timer,
};
pub use wire::{
    object::{DoneNumbers, EntryKind, ErrorCode, Phase, Pos, Progressed, Refusal},
    pgm::{Gsi, Tsi},
};

/// Timers and limits that are not settings of a session: some are set when a sender or receiver is
/// opened, the others are fixed.
pub const LIMITS: [&[Parameter]; 4] = [
    base::parameters::PARAMETERS,
    delivery::parameters::PARAMETERS,
    driver::parameters::PARAMETERS,
    protection::parameters::PARAMETERS,
];

/// The example of the README, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
