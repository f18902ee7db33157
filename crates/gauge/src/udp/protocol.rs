//! The messages between the two ends, one JSON document on each line.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::KernelCounters;

/// How an end passes datagrams to the kernel and takes them from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One datagram in a call: `send` and `recv`.
    One,
    /// Up to 64 datagrams in a call: `sendmmsg` and `recvmmsg`.
    Batch,
    /// Up to 64 datagrams as one super-packet: UDP GSO and GRO.
    Gso,
}

/// How sockets are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// With the system's settings.
    Standard,
    /// With buffers of 8 MiB, where the system permits it.
    Tuned,
}

/// One trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TrialSpec {
    /// The token of datagrams to the server; datagrams from the server carry the next number.
    pub(super) token: u64,
    #[serde(rename = "size")]
    pub(super) size_bytes: usize,
    pub(super) mode: Mode,
    pub(super) profile: Profile,
    /// Datagrams each second; `None` for as many as possible.
    pub(super) rate_per_s: Option<u64>,
    pub(super) duration_ms: u64,
    /// True when the client sends.
    pub(super) is_there: bool,
    /// True when the server sends.
    pub(super) is_back: bool,
    pub(super) group: Option<SocketAddr>,
    /// Time to live of multicast.
    pub(super) hops: u8,
}

/// A message from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    Hello {
        version: u32,
    },
    Trial(TrialSpec),
    /// Both ends are ready: the sender may begin.
    Go,
    /// The client has sent this many datagrams.
    Sent(u64),
}

/// A message from the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Response {
    Welcome {
        version: u32,
        name: String,
        interface: String,
        #[serde(rename = "mtu")]
        mtu_bytes: u32,
    },
    Ready,
    Refused {
        reason: String,
    },
    Outcome(Outcome),
}

/// The results of one end in a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) dispatch: Option<Dispatch>,
    pub(super) receipt: Option<Receipt>,
    pub(super) counters: KernelCounters,
    /// The server's own limit in datagrams each second, when the trial asked for more.
    #[serde(default)]
    pub(super) rate_per_s_max: Option<u64>,
}

/// What a sender did, in datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Dispatch {
    /// Datagrams that the kernel took.
    pub sent: u64,
    /// Datagrams that this host's interface or its queue dropped and reported.
    pub refused: u64,
    /// How often the socket was full and the sender waited.
    pub waits: u64,
    /// Nanoseconds from the start to the end of sending.
    pub lasted_ns: u64,
    /// Processor time of the sending thread, kernel included.
    pub cpu_ns: u64,
}

/// What a receiver counted, in datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Receipt {
    /// Different datagrams that came.
    pub received: u64,
    /// How many of them the first call brought. They do not count towards the rate, because the
    /// time starts after them.
    pub received_first: u64,
    /// Datagrams that came again.
    pub duplicates: u64,
    /// Datagrams that came after one with a greater number.
    pub out_of_order: u64,
    /// Datagrams of another trial or program.
    pub foreign: u64,
    /// Datagrams that the kernel dropped because the socket was full; with GSO, runs of datagrams.
    pub socket_drops: u64,
    /// Nanoseconds from the first call that brought datagrams to the last.
    pub lasted_ns: u64,
    /// Processor time of the receiving thread, kernel included.
    pub cpu_ns: u64,
}

impl Mode {
    /// Returns the mode's name in lower case, for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Batch => "batch",
            Self::Gso => "gso",
        }
    }
}

impl Dispatch {
    /// Returns the datagrams each second that the sender offered to the interface.
    #[must_use]
    pub fn offered_per_s(&self) -> f64 {
        per_second(self.sent + self.refused, self.lasted_ns)
    }
}

impl Receipt {
    /// Returns the datagrams received each second, by the receiver's clock. A receiver whose thread
    /// ran late finds a queue, and counts for less time than the sender took (`sent_ns`). Then the
    /// sender's time counts, because no path carries more than was sent.
    #[must_use]
    pub fn received_per_s(&self, sent_ns: u64) -> f64 {
        let counted = self.received - self.received_first.min(self.received);
        let rate = per_second(counted, self.lasted_ns);
        match sent_ns {
            0 => rate,
            _ => rate.min(per_second(self.received, sent_ns)),
        }
    }
}

fn per_second(count: u64, lasted_ns: u64) -> f64 {
    if lasted_ns == 0 {
        return 0.0;
    }
    count as f64 * 1e9 / lasted_ns as f64
}

pub(super) const VERSION: u32 = 1;
