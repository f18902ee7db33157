//! The settings of a transfer sender, and its events.

use std::{fmt, net::SocketAddr, time::Duration};

use wire::object::{DoneNumbers, ErrorCode, Phase, Pos, Progressed, Refusal};

use crate::parameters::{
    ANSWER_TIMEOUT, COMMIT_FACTOR, GREETING_TIMEOUT, JOIN_TIMEOUT, NEEDS_MAX, PROGRESS_INTERVAL,
    PROGRESS_TIMEOUT, RECEIVERS_MAX, RECONNECT_TIMEOUT, SLOW_AFTER, TRANSFER_LINGER,
};
use crate::{Hash, Key, ManifestId, RateConfig};

base::counters! {
    /// What a transfer sender has counted.
    pub struct TransferSenderCounters: "transfer_sender" {
        passes: Events, "passes over what receivers lack, the manifest's included";
        block_bytes: Bytes, "object bytes handed to the packet stream";
        fill_bytes: Bytes, "object bytes sent to single receivers over their connections";
        content_block_bytes: Bytes, "bytes of content handed to the packet stream";
        content_fill_bytes: Bytes, "bytes of content sent over connections of single receivers";
        answers_late: Events, "answers to a pass that were not waited for";
        pauses: Events, "times that sending stopped as no expected receiver was connected";
        successors: Events, "receivers that were restarted, and took over their former place";
        demoted: Events, "receivers that get everything over their connection from then on";
        challenged: Events, "receivers asked to show that they have the key";
        refused: Events, "connections refused";
        greetings_late: Events, "connections closed because no greeting came";
        violations: Events, "connections closed because the peer broke the protocol";
        messages_ignored: Events, "control messages without a meaning here";
        events_lost: Events, "events overwritten because the owner had not taken them";
    }
}

/// All settings of a transfer sender, with their defaults.
#[derive(Clone, Debug)]
pub struct TransferSenderConfig {
    /// The session's number, as in the mark of its SPMs.
    pub session_id: u64,
    /// With a key, only receivers that have it are admitted and believed. Default: none.
    pub key: Option<Key>,
    /// How many receivers are expected. With 0, all that have joined at the join deadline; see also
    /// [`TransferSenderConfig::settle`].
    pub expected: u32,
    /// With 0 receivers expected: content starts when a receiver has joined and no other has for
    /// this time, or at the join deadline. Receivers that join before the outcome is final are
    /// expected as well. `None`: only the join deadline counts. Default: none.
    pub settle: Option<Duration>,
    /// Names of expected receivers: then only these are expected, and their number counts. Others
    /// are guests. Default: none, so the first receivers to come are expected.
    ///
    /// A guest's failure does not fail the transfer. When all expected receivers are done, guests
    /// that make progress are served for as long again as the transfer has taken by then: 1 s at
    /// least, the progress timeout at most.
    pub expected_names: Vec<String>,
    /// A file that cannot be read, or is not what was planned any more, is withdrawn: the rest is
    /// sent and proven without it. Otherwise it ends the transfer. Default: false.
    pub withdraws: bool,
    /// What is done about an expected receiver that holds all others back. Default: wait.
    pub slow: SlowPolicy,
    /// How long a receiver holds the others back before something is done about it.
    pub slow_after: Duration,
    /// Steers the rate by what receivers report of the packet stream; `None` sets no limit.
    /// Default: none.
    pub rate: Option<RateConfig>,
    /// How long to wait for expected receivers before content starts.
    pub join_timeout: Duration,
    /// A receiver without progress for this time is given up. While its store prepares or commits
    /// it may take [`TransferSenderConfig::commit_timeout`].
    pub progress_timeout: Duration,
    /// How long a receiver whose connection broke may take to come back; never longer than the
    /// progress timeout.
    pub reconnect_timeout: Duration,
    /// How long a pass waits for the last answers of receivers.
    pub answer_timeout: Duration,
    /// The longest time from connection to greeting.
    pub greeting_timeout: Duration,
    /// How long connections are kept to say good-bye when all is over.
    pub linger: Duration,
    /// The shortest progress interval that receivers are asked for.
    pub report_interval: Duration,
    /// A receiver reports its place in the packet stream at the latest after this many positions: a
    /// share of the transmit window. Default 0: with the progress interval only.
    pub report_sqns: u32,
    /// The most receivers admitted.
    pub receivers_max: u32,
    /// The most ranges kept of one receiver's needs; 16 bytes each.
    pub ranges_max: usize,
}

impl TransferSenderConfig {
    /// The defaults, for session `session` and `expected` receivers.
    #[must_use]
    pub const fn new(session_id: u64, expected: u32) -> Self {
        Self {
            session_id,
            key: None,
            expected,
            settle: None,
            expected_names: Vec::new(),
            withdraws: false,
            slow: SlowPolicy::Wait,
            slow_after: SLOW_AFTER,
            rate: None,
            join_timeout: JOIN_TIMEOUT,
            progress_timeout: PROGRESS_TIMEOUT,
            reconnect_timeout: RECONNECT_TIMEOUT,
            answer_timeout: ANSWER_TIMEOUT,
            greeting_timeout: GREETING_TIMEOUT,
            linger: TRANSFER_LINGER,
            report_interval: PROGRESS_INTERVAL,
            report_sqns: 0,
            receivers_max: RECEIVERS_MAX,
            ranges_max: NEEDS_MAX as usize,
        }
    }

    /// How many receivers are expected, by number or by name; 0 for all that join in time.
    #[must_use]
    pub fn expected_count(&self) -> u32 {
        match self.expected_names.len() {
            0 => self.expected,
            named => u32::try_from(named).unwrap_or(u32::MAX),
        }
    }

    /// How long a receiver's store may prepare or commit: [`COMMIT_FACTOR`] times the progress
    /// timeout. Its
    /// reports say in the meantime that the receiver lives, and cannot say that its disk does.
    #[must_use]
    pub const fn commit_timeout(&self) -> Duration {
        self.progress_timeout.saturating_mul(COMMIT_FACTOR)
    }
}

/// What is done about a receiver that holds all others back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SlowPolicy {
    /// The packet stream goes at its pace.
    #[default]
    Wait,
    /// It gets the rest over its connection, at its own pace.
    Demote,
    /// It is given up.
    Drop,
}

/// Why a receiver gets everything over its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Demotion {
    /// A pass brought it less than a quarter of what it lacked.
    Unreached,
    /// It held the others back.
    Slow,
}

impl fmt::Display for Demotion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreached => "the last pass brought it less than a quarter of what it lacked",
            Self::Slow => "it held the others back",
        })
    }
}

/// What limits a receiver, as far as its reports show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Packets are lost on the way to it.
    Network,
    /// Its store is behind.
    Disk,
    /// Its kernel drops packets that nobody takes: its CPU is busy, or its buffer small.
    Host,
    /// Nothing at its end: the rate set, or what the sender manages.
    Rate,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network => "the network",
            Self::Disk => "its disk",
            Self::Host => "its CPU",
            Self::Rate => "the sender's rate",
        })
    }
}

/// The next block to send, and how many of the same length come behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlan {
    /// Which object.
    pub object: wire::object::ObjectId,
    /// Position of the first block's first byte.
    pub offset: u64,
    /// Bytes of each block, header included.
    pub len: usize,
    /// How many blocks of exactly this length follow each other, this one included; at least 1.
    pub count: usize,
}

/// Something that happened in a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransferSenderEvent {
    /// A receiver was admitted.
    Joined {
        /// Its number.
        slot: u32,
        /// Its name.
        name: String,
        /// Its address.
        peer: SocketAddr,
    },
    /// A receiver's connection broke; it may come back.
    Disconnected {
        /// Its number.
        slot: u32,
    },
    /// A receiver came back.
    Reconnected {
        /// Its number.
        slot: u32,
    },
    /// A connection was refused.
    Refused {
        /// Whose.
        peer: SocketAddr,
        /// Why.
        reason: Refusal,
    },
    /// A pass begins.
    PassStarted {
        /// Its number; 0 is the manifest's, 1 the first over the content.
        pass: u32,
        /// Bytes for the packet stream.
        bytes: u64,
        /// Bytes for single receivers.
        fill_bytes: u64,
    },
    /// A receiver gets everything over its connection from here on.
    Demoted {
        /// Its number.
        slot: u32,
        /// Why.
        reason: Demotion,
    },
    /// A file is not sent any more: it cannot be read, or is not what was planned.
    Withdrawn(Unsent),
    /// A receiver has proved delivery.
    Done {
        /// Its number.
        slot: u32,
    },
    /// A receiver was given up, or gave up.
    Failed {
        /// Its number.
        slot: u32,
        /// For the program.
        code: ErrorCode,
        /// For a person.
        text: String,
    },
    /// The outcome is final.
    Finished,
}

/// A file that was to be sent and is not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsent {
    /// Its path as it would have been delivered.
    pub path: Vec<u8>,
    /// For a person: operation, file, cause.
    pub text: String,
}

impl Unsent {
    /// A file at `path` that is not sent, and why.
    #[must_use]
    pub fn new(path: impl Into<Vec<u8>>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
        }
    }
}

/// What became of one receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverState {
    /// It is on its way.
    Active {
        /// What it does.
        phase: Phase,
        /// Its connection is up.
        is_connected: bool,
    },
    /// It has proved delivery.
    Done {
        /// Its hash over everything, equal to the sender's.
        root: Hash,
        /// Its numbers.
        numbers: DoneNumbers,
    },
    /// It has failed or was given up.
    Failed {
        /// For the program.
        code: ErrorCode,
        /// For a person.
        text: String,
    },
}

/// One line of the sender's ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverReport {
    /// Its number.
    pub slot: u32,
    /// Its name.
    pub name: String,
    /// Its address.
    pub peer: SocketAddr,
    /// The transfer's success depends on it.
    pub is_expected: bool,
    /// Why it gets everything over its own connection, if it does.
    pub demoted: Option<Demotion>,
    /// What limits it.
    pub limited_by: Limit,
    /// Bytes of content it held when it joined, or came back after a restart.
    pub held_at_join: u64,
    /// Bytes of content sent since then, to all and to it alone: at most what it lacked, and what
    /// had to be repaired.
    pub sent_since_join: u64,
    /// From the transfer's begin, or its joining if that was later, to its proof; `None` without
    /// one.
    pub took: Option<Duration>,
    /// What became of it.
    pub state: ReceiverState,
    /// How far it said it was.
    pub progress: Progressed,
    /// Where it said it stood in the packet stream.
    pub pos: Pos,
}

/// The outcome of a transfer, final once [`TransferSenderEvent::Finished`] was given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferOutcome {
    /// What was sent.
    pub manifest: ManifestId,
    /// One hash over everything, once all content was read.
    pub root: Option<Hash>,
    /// Bytes of content, without files that were withdrawn.
    pub content_bytes: u64,
    /// Files that were withdrawn. A receiver that had proved delivery before may hold them.
    pub unsent: Vec<Unsent>,
    /// Every receiver that joined.
    pub receivers: Vec<ReceiverReport>,
    /// Expected receivers that never joined.
    pub missing: u32,
    /// Their names, when receivers are expected by name.
    pub missing_names: Vec<String>,
    /// Bytes of content handed to the packet stream.
    pub multicast_bytes: u64,
    /// Bytes of content sent to single receivers over their connections.
    pub unicast_bytes: u64,
    /// The number of the expected receiver that is furthest behind, or was the last to be done;
    /// [`ReceiverReport::limited_by`] says why. None with fewer than two.
    pub slowest: Option<u32>,
    /// Why the sender itself gave up.
    pub failure: Option<(ErrorCode, String)>,
    /// Nothing is going to change any more.
    pub is_final: bool,
}

impl TransferOutcome {
    /// True when every expected receiver, and at least one, has proved delivery. Anything else is
    /// "not proven": exit status 1.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        let mut expected = self
            .receivers
            .iter()
            .filter(|report| report.is_expected)
            .peekable();
        let is_done = |report: &ReceiverReport| matches!(report.state, ReceiverState::Done { .. });
        let someone = expected.peek().is_some();
        self.is_final
            && someone
            && self.missing == 0
            && self.failure.is_none()
            && expected.all(is_done)
    }
}
