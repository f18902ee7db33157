//! Files and trees: the sender that waits for every receiver's proof, and the receiver that gives
//! it.

use std::time::Duration;

use delivery::SlowPolicy;

mod intake;
pub use intake::{FileIntake, ReceiverStore, Target};

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

/// Whom a sender of files waits for, and how long.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// Receivers that must prove delivery; 0 for whoever has joined at the deadline.
    pub receivers: u32,
    /// Their names; when there are any, only these are waited for and their number counts.
    pub names: Vec<String>,
    /// How long to wait for them to join.
    pub join_timeout: Duration,
    /// A receiver without progress for so long is given up.
    pub progress_timeout: Duration,
    /// What is done about one that holds all others back.
    pub slow: SlowPolicy,
}

impl Default for Expectation {
    /// One receiver, 30 s for it to come and 30 s for it to move, and all at its pace.
    fn default() -> Self {
        Self {
            receivers: 1,
            names: Vec::new(),
            join_timeout: Duration::from_secs(30),
            progress_timeout: Duration::from_secs(30),
            slow: SlowPolicy::Wait,
        }
    }
}
