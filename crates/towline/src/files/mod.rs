//! Files and trees: the sender waits until every expected receiver has proved delivery.

use std::time::Duration;

use delivery::{
    SlowPolicy,
    parameters::{JOIN_TIMEOUT, LINE_TIMEOUT, PROGRESS_TIMEOUT, SETTLE_TIME},
};

mod capacity;

mod intake;
pub use intake::{FileIntake, OwnStores, ReceiverStore, Target};

mod memory;
pub use memory::{MemoryFile, MemoryFiles};

mod receiver;
pub use receiver::{FileReceiver, FileReceiverBuilder, FileReceiverState};

mod select;
pub use select::Selection;

mod sender;
pub use sender::FileSender;

mod set;
pub use set::{FileSet, FileSetBuilder, FileSetEntry, FileSums, Spool};

mod stream;
pub use stream::StreamStore;

/// The receivers that a sender of files waits for, and how long it waits:
/// `Expectation::default().receivers(3)`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Expectation {
    /// How many receivers must prove delivery: the first ones that join. With 0, all that join are
    /// expected; over TCP, one at each host that the sender dials.
    pub receivers: u32,
    /// The names of expected receivers. When there are any, the sender waits only for these, and
    /// their number replaces [`Expectation::receivers`].
    pub names: Vec<String>,
    /// How long to wait for the expected receivers to join. Over TCP, this time starts anew when
    /// the sender no longer waits in line at any receiver.
    pub join_timeout: Duration,
    /// How long a receiver that the sender has dialled may make the sender wait in line.
    pub line_timeout: Duration,
    /// The transfer begins when no new receiver has joined for this long, and at the latest after
    /// [`Expectation::join_timeout`]. With `None`, it begins after the join timeout. This setting
    /// matters only when all receivers that join are expected; those that join after the beginning
    /// are expected, too.
    pub settle: Option<Duration>,
    /// How long a receiver may be without progress before it is given up.
    pub progress_timeout: Duration,
    /// What happens to a receiver that holds all others back.
    pub slow: SlowPolicy,
}

impl Expectation {
    /// Expects the first `receivers` that join; 0 for all that join.
    #[must_use]
    pub const fn receivers(mut self, receivers: u32) -> Self {
        self.receivers = receivers;
        self
    }

    /// Expects only receivers with these names. Their number replaces [`Expectation::receivers`].
    #[must_use]
    pub fn names(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how long to wait for the expected receivers to join.
    #[must_use]
    pub const fn join_timeout(mut self, timeout: Duration) -> Self {
        self.join_timeout = timeout;
        self
    }

    /// Sets how long a receiver that the sender has dialled may make the sender wait in line.
    #[must_use]
    pub const fn line_timeout(mut self, timeout: Duration) -> Self {
        self.line_timeout = timeout;
        self
    }

    /// Sets [`Expectation::settle`]: the transfer begins when no new receiver has joined for this
    /// long, and at the latest after [`Expectation::join_timeout`]. With `None`, it begins after
    /// that timeout.
    #[must_use]
    pub fn settle(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.settle = time.into();
        self
    }

    /// Sets how long a receiver may be without progress before it is given up.
    #[must_use]
    pub const fn progress_timeout(mut self, timeout: Duration) -> Self {
        self.progress_timeout = timeout;
        self
    }

    /// Sets what happens to a receiver that holds all others back.
    #[must_use]
    pub const fn slow(mut self, policy: SlowPolicy) -> Self {
        self.slow = policy;
        self
    }
}

impl Default for Expectation {
    /// Expects all receivers that join, at least one. Waits at most 10 s for the first, and begins
    /// when no other has joined for 300 ms. Sends at the pace of the slowest. Gives a receiver up
    /// after 30 s without progress, or when it has made the sender wait in line for an hour.
    fn default() -> Self {
        Self {
            receivers: 0,
            names: Vec::new(),
            join_timeout: JOIN_TIMEOUT,
            line_timeout: LINE_TIMEOUT,
            settle: Some(SETTLE_TIME),
            progress_timeout: PROGRESS_TIMEOUT,
            slow: SlowPolicy::Wait,
        }
    }
}
