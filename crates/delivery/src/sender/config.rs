//! The settings of a transfer sender, and its events.

use std::{fmt, net::SocketAddr, time::Duration};

use wire::object::{DoneNumbers, ErrorCode, Phase, Pos, Progressed, Refusal};

use crate::parameters::{
    COMMIT_FACTOR, JOIN_TIMEOUT, LINE_TIMEOUT, NEEDS_MAX, PROGRESS_INTERVAL, PROGRESS_TIMEOUT,
    RECEIVERS_MAX, RECONNECT_TIMEOUT, SLOW_AFTER,
};
use crate::{Admission, Hash, Key, ManifestId, RateConfig};

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
        ranges_omitted: Events, "ranges left out of full lists; receivers ask for them later";
        successors: Events, "receivers that were restarted, and took over their former place";
        demoted: Events, "receivers that get everything over their connection from then on";
        challenged: Events, "receivers asked to show that they have the key";
        refused: Events, "connections refused";
        greetings_late: Events, "connections closed because no greeting came";
        greetings_cut: Events, "connections closed for newer ones, as too many had not greeted";
        violations: Events, "connections closed because the peer broke the protocol";
        messages_ignored: Events, "control messages without a meaning here";
        events_lost: Events, "events overwritten because the owner had not taken them";
    }
}

/// How content goes to the receivers of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Carriage {
    /// In a packet stream to all; what only few receivers lack goes over their connections.
    /// Receivers hear of the sender in the stream, and dial it.
    #[default]
    Packets,
    /// Over connections alone, to each receiver at its own pace. The sender dials these addresses,
    /// and again when a connection is lost.
    Links(Vec<SocketAddr>),
}

/// All settings of a transfer sender, with their defaults.
#[derive(Clone, Debug)]
pub struct TransferSenderConfig {
    /// The session's number, as in the mark of its SPMs.
    pub session_id: u64,
    /// The seed of the nonces that go to receivers: the proof of a receiver depends on its nonce.
    /// The seed must be random and secret. A receiver that knows the seed can make proofs in
    /// advance, for content that it no longer holds.
    pub seed: u64,
    /// The key. With one, only receivers that have it are admitted and believed. Default: none.
    pub key: Option<Key>,
    /// The hosts whose receivers are admitted. Hosts that this end dials are always admitted.
    /// Default: all.
    pub admission: Option<Admission>,
    /// How content goes to the receivers. Default: in a packet stream.
    pub carriage: Carriage,
    /// How many receivers are expected. 0: all that have joined by the join deadline; see also
    /// [`TransferSenderConfig::settle`].
    pub expected: u32,
    /// With 0 receivers expected: the transfer starts when this time has passed since the last new
    /// receiver joined, or at the join deadline. Receivers that join later, before the outcome is
    /// final, are expected as well. `None`: only the join deadline counts. Default: none.
    pub settle: Option<Duration>,
    /// Names of expected receivers. When there are any, only these receivers are expected, whatever
    /// [`TransferSenderConfig::expected`] says, and all others are guests. Default: none.
    ///
    /// A guest's failure does not fail the transfer. When all expected receivers are done or have
    /// failed, guests that make progress are served for some time more. This is as long as the
    /// transfer has taken so far, but at least 1 s, and at most the progress timeout.
    pub expected_names: Vec<String>,
    /// Whether a file that cannot be read or has changed is withdrawn: the rest is sent and proven
    /// without it. When false, such a file ends the transfer. Default: false.
    pub withdraws: bool,
    /// What to do about an expected receiver that holds all others back. Default: wait.
    pub slow: SlowPolicy,
    /// How long a receiver may hold the others back before [`TransferSenderConfig::slow`] applies.
    pub slow_after: Duration,
    /// The settings of the rate control, which adapts the rate to the receivers' reports about the
    /// packet stream. With `None`, the default, the reports do not set the rate.
    pub rate: Option<RateConfig>,
    /// How long to wait for expected receivers before content starts. The time starts anew when a
    /// host that was dialled no longer makes this sender wait its turn.
    pub join_timeout: Duration,
    /// How long a host that was dialled may make this sender wait its turn. The time starts anew
    /// when the host makes this sender wait again after it has got more bytes of this transfer.
    pub line_timeout: Duration,
    /// How long a receiver may be without progress before it is given up. While its store prepares
    /// or commits, [`TransferSenderConfig::commit_timeout`] counts instead.
    pub progress_timeout: Duration,
    /// How long a receiver may take to come back after its connection broke; never longer than the
    /// progress timeout.
    pub reconnect_timeout: Duration,
    /// The shortest PROGRESS interval that the sender asks receivers for.
    pub report_interval: Duration,
    /// A receiver that has moved by this many positions since its last PROGRESS may send the next
    /// one before the report interval is over. Default 0: no receiver may.
    pub report_sqns: u32,
    /// The most receivers that are admitted. Receivers expected by name do not count.
    pub receivers_max: u32,
    /// The most ranges of one object that are kept in a list, such as the list of what one receiver
    /// lacks. Each range takes 16 bytes.
    pub ranges_max: usize,
}

impl TransferSenderConfig {
    /// Makes the default settings for session `session_id` and `expected` receivers. The owner
    /// draws `seed` at random; see [`TransferSenderConfig::seed`].
    #[must_use]
    pub const fn new(session_id: u64, expected: u32, seed: u64) -> Self {
        Self {
            session_id,
            seed,
            key: None,
            admission: None,
            carriage: Carriage::Packets,
            expected,
            settle: None,
            expected_names: Vec::new(),
            withdraws: false,
            slow: SlowPolicy::Wait,
            slow_after: SLOW_AFTER,
            rate: None,
            join_timeout: JOIN_TIMEOUT,
            line_timeout: LINE_TIMEOUT,
            progress_timeout: PROGRESS_TIMEOUT,
            reconnect_timeout: RECONNECT_TIMEOUT,
            report_interval: PROGRESS_INTERVAL,
            report_sqns: 0,
            receivers_max: RECEIVERS_MAX,
            ranges_max: NEEDS_MAX as usize,
        }
    }

    /// Returns how many receivers are expected, by number or by name; 0 for all that join in time.
    #[must_use]
    pub fn expected_count(&self) -> u32 {
        match self.expected_names.len() {
            0 => self.expected,
            named => u32::try_from(named).unwrap_or(u32::MAX),
        }
    }

    /// Returns how long a receiver's store may prepare or commit: [`COMMIT_FACTOR`] times the
    /// progress timeout. In this time its reports show that the receiver is alive, but not that its
    /// disk works.
    #[must_use]
    pub const fn commit_timeout(&self) -> Duration {
        self.progress_timeout.saturating_mul(COMMIT_FACTOR)
    }
}

/// What happens to a receiver that holds all others back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SlowPolicy {
    /// The packet stream goes at that receiver's pace.
    #[default]
    Wait,
    /// The receiver gets the rest over its connection, at its own pace.
    Demote,
    /// The receiver is given up.
    Drop,
}

/// Why a receiver was demoted: since then it gets what it lacks over its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Demotion {
    /// A pass brought the receiver less than a quarter of what it lacked.
    Unreached,
    /// The receiver held the others back.
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
    /// Packets to the receiver are lost.
    Network,
    /// The receiver's store is behind.
    Disk,
    /// The receiver's host drops packets that its program does not take in time: the processor is
    /// busy, or the buffer is small.
    Host,
    /// Nothing at this receiver: the rate limit, or the sender's own speed.
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

/// The next blocks to send, all of the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlan {
    /// The object that the blocks belong to.
    pub object: wire::object::ObjectId,
    /// Position in the object of the first block's first byte.
    pub offset: u64,
    /// Bytes of each block, with its header.
    pub len: usize,
    /// How many blocks of this length follow each other; at least 1.
    pub count: usize,
}

/// Something that happened in a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransferSenderEvent {
    /// A receiver was admitted.
    Joined {
        /// The receiver's number.
        slot: u32,
        /// The receiver's name.
        name: String,
        /// The receiver's address.
        peer: SocketAddr,
    },
    /// A receiver's connection broke; it may come back.
    Disconnected {
        /// The receiver's number.
        slot: u32,
    },
    /// A receiver came back.
    Reconnected {
        /// The receiver's number.
        slot: u32,
    },
    /// A connection was refused.
    Refused {
        /// The peer's address.
        peer: SocketAddr,
        /// Why the sender refused it.
        reason: Refusal,
    },
    /// At a host that the sender dials, no receiver takes the transfer. The event comes again when
    /// the reason changes. The host is dialled again, except after a final refusal.
    NotReached {
        /// The address that was dialled.
        peer: SocketAddr,
        /// Why no receiver takes the transfer, in words.
        text: String,
    },
    /// A pass starts.
    PassStarted {
        /// The pass's number: 0 for the manifest, 1 for the first pass over the content.
        pass: u32,
        /// Bytes for the packet stream, to all receivers.
        bytes: u64,
        /// Bytes for single receivers, over their connections.
        fill_bytes: u64,
    },
    /// A receiver gets everything over its connection from now on.
    Demoted {
        /// The receiver's number.
        slot: u32,
        /// Why the receiver was demoted.
        reason: Demotion,
    },
    /// A file is not sent any more, because it cannot be read or has changed.
    Withdrawn(Unsent),
    /// A receiver has proved delivery.
    Done {
        /// The receiver's number.
        slot: u32,
    },
    /// A receiver was given up, or gave up.
    Failed {
        /// The receiver's number.
        slot: u32,
        /// The kind of error, for the program.
        code: ErrorCode,
        /// The error in words, for a person.
        text: String,
    },
    /// The outcome is final.
    Finished,
}

/// A file that should have been sent and is not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsent {
    /// The path under which the file would have been delivered.
    pub path: Vec<u8>,
    /// Operation, file and cause, for a person.
    pub text: String,
}

impl Unsent {
    /// Makes the entry for a file at `path` that is not sent; `text` says why.
    #[must_use]
    pub fn new(path: impl Into<Vec<u8>>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
        }
    }
}

/// The state of one receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverState {
    /// The transfer to the receiver is under way.
    Active {
        /// What the receiver is doing.
        phase: Phase,
        /// The receiver is connected.
        is_connected: bool,
    },
    /// The receiver has proved delivery.
    Done {
        /// The receiver's hash over all files that were not withdrawn, equal to the sender's.
        root: Hash,
        /// The numbers in the receiver's proof.
        numbers: DoneNumbers,
    },
    /// The receiver has failed, or was given up.
    Failed {
        /// The kind of error, for the program.
        code: ErrorCode,
        /// The error in words, for a person.
        text: String,
    },
}

/// What the sender reports about one receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverReport {
    /// The receiver's number.
    pub slot: u32,
    /// The receiver's name.
    pub name: String,
    /// The receiver's address.
    pub peer: SocketAddr,
    /// The transfer succeeds only if this receiver is done.
    pub is_expected: bool,
    /// Why the receiver gets everything over its own connection, if it does.
    pub demoted: Option<Demotion>,
    /// What limits the receiver.
    pub limited_by: Limit,
    /// Bytes of content that the receiver held when it joined, or last came back.
    pub held_at_join: u64,
    /// Bytes of content sent since the receiver joined or last came back, to all receivers and to
    /// this one alone. Those sent to all may include bytes that this receiver held already.
    pub sent_since_join: u64,
    /// The time from the start of the transfer, or from the receiver's joining if that was later,
    /// to the receiver's proof; `None` without a proof.
    pub took: Option<Duration>,
    /// The receiver's state.
    pub state: ReceiverState,
    /// The progress that the receiver reported last.
    pub progress: Progressed,
    /// The position that the receiver reported last.
    pub pos: Pos,
}

/// The outcome of a transfer, final once [`TransferSenderEvent::Finished`] was given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferOutcome {
    /// The manifest that was sent.
    pub manifest: ManifestId,
    /// One hash over all files, once all content was read.
    pub root: Option<Hash>,
    /// Bytes of content, without withdrawn files.
    pub content_bytes: u64,
    /// Withdrawn files. A receiver that had already proved delivery may hold them.
    pub unsent: Vec<Unsent>,
    /// Every receiver that joined.
    pub receivers: Vec<ReceiverReport>,
    /// Expected receivers that never joined.
    pub missing: u32,
    /// The names of the missing receivers, when receivers are expected by name.
    pub missing_names: Vec<String>,
    /// The addresses that were dialled and at which no receiver joined, each with the last reason
    /// for that, in words.
    pub unreached: Vec<(SocketAddr, String)>,
    /// Bytes of content sent in the packet stream.
    pub multicast_bytes: u64,
    /// Bytes of content sent to single receivers over their connections.
    pub unicast_bytes: u64,
    /// The number of the expected receiver that is furthest behind or, when all are done, took
    /// longest. Failed receivers do not count; `None` when fewer than two are left. The receiver's
    /// [`ReceiverReport::limited_by`] says what limited it.
    pub slowest: Option<u32>,
    /// Why the sender itself gave up; `None` when it did not.
    pub failure: Option<(ErrorCode, String)>,
    /// True when the outcome will not change any more.
    pub is_final: bool,
}

impl TransferOutcome {
    /// Returns true when the transfer is proven. All of this must be true: the outcome is final;
    /// the sender itself has not given up; at least one receiver is expected, and every expected
    /// one has joined and proved delivery; a receiver joined at every host that was dialled.
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
            && self.unreached.is_empty()
            && self.failure.is_none()
            && expected.all(is_done)
    }
}
