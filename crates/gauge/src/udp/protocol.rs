//! What the two ends say to each other, one JSON document a line.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::KernelCounters;

/// How datagrams are handed to the kernel and taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One a call: `send` and `recv`.
    One,
    /// Up to 64 a call: `sendmmsg` and `recvmmsg`.
    Batch,
    /// Up to 64 as one super-packet: UDP GSO and GRO.
    Gso,
}

/// How sockets are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// As the system gives them.
    Standard,
    /// With room for 8 MiB, as far as the system permits.
    Tuned,
}

/// One trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TrialSpec {
    /// Of the datagrams that go there; those that come back have the next one.
    pub(super) token: u64,
    pub(super) size: usize,
    pub(super) mode: Mode,
    pub(super) profile: Profile,
    /// None: as fast as it can.
    pub(super) rate_per_s: Option<u64>,
    pub(super) duration_ms: u64,
    /// Whether the client sends.
    pub(super) is_there: bool,
    /// Whether the server sends.
    pub(super) is_back: bool,
    pub(super) group: Option<SocketAddr>,
    /// Time to live of multicast.
    pub(super) hops: u8,
}

/// From the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    Hello {
        version: u32,
    },
    Trial(TrialSpec),
    /// Both are ready: the sending end begins.
    Go,
    /// The client has sent this many.
    Sent(u64),
}

/// From the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Response {
    Welcome {
        version: u32,
        name: String,
        interface: String,
        mtu: u32,
    },
    Ready,
    Refused {
        reason: String,
    },
    Outcome(Outcome),
}

/// What one end did in a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) dispatch: Option<Dispatch>,
    pub(super) receipt: Option<Receipt>,
    pub(super) counters: KernelCounters,
}

/// What a sender did. Counts of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Dispatch {
    /// Handed to the kernel, which took them.
    pub sent: u64,
    /// Thrown away by this host's own interface or its queue, which says so.
    pub refused: u64,
    /// Times that there was no room in the socket, and the sender waited.
    pub waits: u64,
    /// From the first to the last.
    pub lasted_ns: u64,
    /// Processor time of the sending thread, kernel included.
    pub cpu_ns: u64,
}

/// What a receiver counted. Counts of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Receipt {
    /// Different ones that came.
    pub received: u64,
    /// Those of them that the first call brought: the time begins after them.
    pub received_first: u64,
    /// Those that came again.
    pub duplicates: u64,
    /// Those that came after one with a greater number.
    pub out_of_order: u64,
    /// Those of somebody else.
    pub foreign: u64,
    /// What the kernel dropped because the socket was full. With GSO, runs of datagrams.
    pub socket_drops: u64,
    /// From the first call that brought any to the last.
    pub lasted_ns: u64,
    /// Processor time of the receiving thread, kernel included.
    pub cpu_ns: u64,
}

impl Mode {
    /// The mode's name in lower case, for reports.
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
    /// Datagrams each second that were offered to the interface.
    #[must_use]
    pub fn offered_per_s(&self) -> f64 {
        per_second(self.sent + self.refused, self.lasted_ns)
    }
}

impl Receipt {
    /// Datagrams each second, by the receiver's clock.
    #[must_use]
    pub fn received_per_s(&self) -> f64 {
        per_second(
            self.received - self.received_first.min(self.received),
            self.lasted_ns,
        )
    }
}

fn per_second(count: u64, lasted_ns: u64) -> f64 {
    if lasted_ns == 0 {
        return 0.0;
    }
    count as f64 * 1e9 / lasted_ns as f64
}

pub(super) const VERSION: u32 = 1;
