//! Files and trees: the sender that waits for every receiver's proof, and the receiver that gives
//! it.

use std::time::Duration;

use delivery::{
    SlowPolicy,
    parameters::{JOIN_TIMEOUT, PROGRESS_TIMEOUT, SETTLE_TIME},
};

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

/// The receivers that a sender of files waits for, and how long:
/// `Expectation::default().receivers(3)`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Expectation {
    /// Receivers that must prove delivery, the first to join; 0 for all that join.
    pub receivers: u32,
    /// Their names; when there are any, only these are waited for and their number counts.
    pub names: Vec<String>,
    /// How long to wait for them to join.
    pub join_timeout: Duration,
    /// For all that join: begin when nobody new has joined for this long, and count whoever joins
    /// later as well. `None`: begin after [`Expectation::join_timeout`], with those who are there.
    pub settle: Option<Duration>,
    /// A receiver without progress for so long is given up.
    pub progress_timeout: Duration,
    /// What is done about one that holds all others back.
    pub slow: SlowPolicy,
}

impl Expectation {
    /// The first so many receivers to join must prove delivery; 0 for all that join.
    #[must_use]
    pub const fn receivers(mut self, receivers: u32) -> Self {
        self.receivers = receivers;
        self
    }

    /// Only the receivers of these names are waited for, and their number counts.
    #[must_use]
    pub fn names(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.names = names.into_iter().map(Into::into).collect();
        self
    }

    /// How long to wait for them to join.
    #[must_use]
    pub const fn join_timeout(mut self, timeout: Duration) -> Self {
        self.join_timeout = timeout;
        self
    }

    /// For all that join: begins when nobody new has joined for this long; `None`: after
    /// [`Expectation::join_timeout`].
    #[must_use]
    pub fn settle(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.settle = time.into();
        self
    }

    /// A receiver without progress for so long is given up.
    #[must_use]
    pub const fn progress_timeout(mut self, timeout: Duration) -> Self {
        self.progress_timeout = timeout;
        self
    }

    /// What is done about one that holds all others back.
    #[must_use]
    pub const fn slow(mut self, policy: SlowPolicy) -> Self {
        self.slow = policy;
        self
    }
}

impl Default for Expectation {
    /// All that are there, at least one: 10 s for the first to come, 300 ms for the next, 30 s for
    /// each to move, and all at the pace of the slowest.
    fn default() -> Self {
        Self {
            receivers: 0,
            names: Vec::new(),
            join_timeout: JOIN_TIMEOUT,
            settle: Some(SETTLE_TIME),
            progress_timeout: PROGRESS_TIMEOUT,
            slow: SlowPolicy::Wait,
        }
    }
}
