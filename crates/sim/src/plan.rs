//! What happens in one run, as data: topology, faults, workload, checks. A TOML file holds one; the
//! swarm draws one from a seed.
//!
//! Strict on purpose: an unknown key is an error, so that a misspelt check cannot pass.

use std::{collections::BTreeMap, fmt};

use base::Rng;
use delivery::Key;
use driver::Ended;
use serde::Deserialize;

use crate::{
    fault::IoFaults,
    pipe::Fault,
    quantity::{Ratio, Span},
    stream::StreamConditions,
};

/// One run, except for its seed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// A short name.
    pub name: String,
    /// What the run shows, for the reader.
    #[serde(default)]
    pub about: String,
    /// How many seeds the test suite runs.
    #[serde(default = "one")]
    pub seeds: u64,
    /// Properties of all sessions.
    #[serde(default)]
    pub session: SessionPlan,
    /// Parameters of sources and receivers, by their names in the parameter table.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
    /// What is sent.
    #[serde(default)]
    pub workload: Workload,
    /// A tree of files to send instead of messages.
    #[serde(default)]
    pub objects: Option<ObjectsPlan>,
    /// How control connections behave.
    #[serde(default)]
    pub control: StreamConditions,
    /// The sending hosts.
    #[serde(default = "one_end", rename = "sender")]
    pub senders: Vec<EndPlan>,
    /// The receiving hosts.
    #[serde(rename = "receiver")]
    pub receivers: Vec<EndPlan>,
    /// A hostile host.
    #[serde(default)]
    pub intruder: Option<IntruderPlan>,
    /// Events at planned times.
    #[serde(default, rename = "event")]
    pub events: Vec<EventPlan>,
    /// When the faults stop, except delays, rates and joined datagrams. When absent, they never
    /// stop.
    #[serde(default)]
    pub calm_at: Option<Span>,
    /// What must hold at the end.
    #[serde(default)]
    pub check: CheckPlan,
}

impl Plan {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// When the text is not TOML, a key is unknown or a value does not fit; the text says where.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let mut plan: Self = toml::from_str(text).map_err(|error| PlanError(error.to_string()))?;
        plan.senders = expand(&plan.senders);
        plan.receivers = expand(&plan.receivers);
        Ok(plan)
    }
}

/// Replaces each entry by `count` copies of it.
fn expand(ends: &[EndPlan]) -> Vec<EndPlan> {
    let copies = |end: &EndPlan| {
        vec![
            EndPlan {
                count: 1,
                ..end.clone()
            };
            end.count
        ]
    };
    ends.iter().flat_map(copies).collect()
}

/// Properties of all sessions.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionPlan {
    /// Where sequence numbers begin.
    pub first_sqn: FirstSqn,
    /// What the sender does about a slow receiver.
    pub policy: PolicyPlan,
    /// Receivers report to the sender, which starts when all have joined.
    pub reports: bool,
    /// IPv6 addresses.
    pub ipv6: bool,
    /// Sends to the one receiver's own address instead of a group.
    pub unicast: bool,
    /// Receivers take packets in arrival mode: each at once, in any order.
    pub arrival: bool,
}

/// Where a session's sequence numbers begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum FirstSqn {
    /// Anywhere.
    #[default]
    Random,
    /// Up to 2,000 before 2^31.
    NearHalf,
    /// Up to 2,000 before 2^32.
    NearWrap,
    /// At this number.
    At(u32),
}

impl FirstSqn {
    /// Draws a first sequence number.
    pub fn draw(self, rng: &mut Rng) -> u32 {
        let before = |edge: u64, rng: &mut Rng| (edge - rng.between(1, 2_000)) as u32;
        match self {
            Self::Random => rng.next_u32(),
            Self::NearHalf => before(1 << 31, rng),
            Self::NearWrap => before(1 << 32, rng),
            Self::At(sqn) => sqn,
        }
    }
}

impl TryFrom<String> for FirstSqn {
    type Error = PlanError;

    fn try_from(text: String) -> Result<Self, PlanError> {
        match text.as_str() {
            "random" => Ok(Self::Random),
            "near 2^31" => Ok(Self::NearHalf),
            "near 2^32" => Ok(Self::NearWrap),
            number => number.parse().map(Self::At).map_err(|_| {
                PlanError(format!(
                    "{number:?} is not one of: random, near 2^31, near 2^32, a number"
                ))
            }),
        }
    }
}

/// What a sender does about a slow receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyPlan {
    /// The sender waits for the slowest.
    Wait,
    /// The slow receiver loses messages, and is told how many.
    #[default]
    Lose,
    /// The sender drops the slow receiver from the session.
    Drop,
}

/// What is sent in each session.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workload {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of the shortest message; one in `small_one_in` may be shorter.
    pub size_min: usize,
    /// Bytes of the longest message.
    pub size_max: usize,
    /// On average one message in this many has at most 100 bytes, because small messages fill runs;
    /// 0 for none.
    pub small_one_in: u64,
    /// Time between bursts.
    pub gap: Span,
    /// Messages in a burst.
    pub burst: u64,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            messages: 200,
            size_min: 1,
            size_max: 3_000,
            small_one_in: 2,
            gap: Span::micros(500),
            burst: 4,
        }
    }
}

impl Workload {
    /// Draws the length of the next message.
    pub fn draw_len(&self, rng: &mut Rng) -> usize {
        let high = if self.small_one_in > 0 && rng.chance(1, self.small_one_in) {
            self.size_max.min(100)
        } else {
            self.size_max
        };
        let (low, high) = (self.size_min.min(high) as u64, high as u64);
        crate::frame::index(rng.between(low, high))
    }
}

/// A tree, and how receivers store it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ObjectsPlan {
    /// Number of files.
    pub files: u64,
    /// Bytes of the longest file; half of the files have at most 100 bytes.
    pub file_bytes_max: u64,
    /// How many receivers the sender waits for.
    pub expected: usize,
    /// How long the sender waits for them.
    pub join_timeout: Span,
    /// The sender gives a receiver up after this time without progress.
    pub progress_timeout: Span,
    /// At each receiver the store is full after every N writes; 0 for never.
    pub store_full_every: u64,
    /// At each receiver this many slabs do not match their hashes, as if the disk had turned a bit.
    pub hashes_wrong: u64,
    /// A file that changes while the sender reads, and is withdrawn.
    pub change: Option<FileChange>,
    /// The sender dials the receivers, and everything goes over these connections.
    pub by_links: bool,
}

/// A file that changes during the transfer.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileChange {
    /// A position in the content: the file that has it changes. A position beyond the end wraps
    /// around.
    pub position: u64,
    /// The file is whole until the sender has read this many bytes of content.
    pub after_bytes: u64,
}

impl Default for ObjectsPlan {
    fn default() -> Self {
        Self {
            files: 20,
            file_bytes_max: 40_000,
            expected: 0,
            join_timeout: Span::millis(20_000),
            progress_timeout: Span::millis(30_000),
            store_full_every: 0,
            hashes_wrong: 0,
            change: None,
            by_links: false,
        }
    }
}

/// A host with one sender or receiver.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EndPlan {
    /// How many such hosts there are.
    pub count: usize,
    /// Faults on the host's way to the switch.
    pub egress: Vec<Fault>,
    /// Faults on the way from the switch to the host.
    pub ingress: Vec<Fault>,
    /// Faults of the socket calls.
    pub io: IoFaults,
    /// Bytes that the socket buffer holds.
    pub receive_buffer_bytes: usize,
    /// Bytes in the largest run.
    pub run_bytes: usize,
    /// Datagrams in the largest run.
    pub run_datagrams: usize,
    /// The sender's own packets come back to its host.
    pub loops_back: bool,
    /// Time that the host needs for each received datagram.
    pub datagram_cost: Span,
    /// When the host's process starts, counted from the start of the run.
    pub starts_at: Span,
    /// When the owner ends the process, counted from the start of the run. A sender of messages
    /// then closes with what it has offered, a receiver of messages leaves, and a transfer is
    /// cancelled.
    pub ends_at: Option<Span>,
    /// How long a sender of messages may take to end before it breaks off.
    pub patience: Span,
    /// The secret that the key is derived from; none without a key. A sender waits only for
    /// receivers with the same secret, or for those without one when it has none itself.
    pub secret: Option<String>,
}

impl Default for EndPlan {
    fn default() -> Self {
        Self {
            count: 1,
            egress: Vec::new(),
            ingress: Vec::new(),
            io: IoFaults::default(),
            receive_buffer_bytes: 4 << 20,
            run_bytes: 64_000,
            run_datagrams: 64,
            loops_back: false,
            datagram_cost: Span::micros(1),
            starts_at: Span::default(),
            ends_at: None,
            patience: Span::millis(300_000),
            secret: None,
        }
    }
}

impl EndPlan {
    /// Returns the key derived from the secret.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        let secret = self.secret.as_ref()?;
        Some(Key::derive(secret.as_bytes(), protection::portable))
    }
}

/// A host that sends what no correct program sends: from its own address, and with
/// [`Forgery::Senders`] from the real sender's, too.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IntruderPlan {
    /// Average time between two packets.
    pub gap: Span,
    /// For how long the intruder sends.
    pub stops_after: Span,
    /// What it forges besides.
    pub forges: Forgery,
}

/// What an intruder forges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forgery {
    /// Nothing: its packets belong to no session, or ask for repairs.
    #[default]
    Nothing,
    /// Packets of existing sessions, from its own address. Use it only where every receiver hears
    /// the real sender first: to a receiver, a session belongs to the address that it first came
    /// from.
    Sessions,
    /// Packets of existing sessions, from the real sender's address and port, with new ends, resets
    /// and windows too. Use it only where a key protects the packets, or with trees, whose content
    /// is verified: a receiver of messages without a key would take such a packet in place of a
    /// genuine one.
    Senders,
}

impl Default for IntruderPlan {
    fn default() -> Self {
        Self {
            gap: Span::micros(200),
            stops_after: Span::millis(3_000),
            forges: Forgery::Nothing,
        }
    }
}

/// A planned event. `who` is `sender` or `receiver` with its index, as `"receiver 0"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventPlan {
    /// When it happens, counted from the start of the run.
    pub at: Span,
    /// The end that it happens to.
    pub who: Who,
    /// What happens.
    pub does: EventKind,
}

/// What happens to a host.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum EventKind {
    /// The host runs nothing for a time.
    Pause(Span),
    /// For a time the host neither hears others nor is heard.
    CutOff(Span),
    /// For a time the host hears nothing.
    Deaf(Span),
    /// For a time nobody hears the host.
    Mute(Span),
    /// The process is killed.
    Kill {
        /// After this time it is started anew; never, when absent.
        back_after: Option<Span>,
    },
    /// The host loses power.
    PowerOff {
        /// After this time the process is started anew; never, when absent.
        back_after: Option<Span>,
    },
    /// The faults on the way to the host are replaced by these.
    Ingress(Vec<Fault>),
    /// The faults on the way from the host are replaced by these.
    Egress(Vec<Fault>),
    /// The longest datagram that leaves the host gets this length.
    Mtu(usize),
}

/// One end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Who {
    /// The sender with this index.
    Sender(usize),
    /// The receiver with this index.
    Receiver(usize),
}

impl TryFrom<String> for Who {
    type Error = PlanError;

    fn try_from(text: String) -> Result<Self, PlanError> {
        let wrong = || {
            PlanError(format!(
                "{text:?} is not like \"sender 0\" or \"receiver 2\""
            ))
        };
        let (role, index) = text.split_once(' ').ok_or_else(wrong)?;
        let index = index.parse().map_err(|_| wrong())?;
        match role {
            "sender" => Ok(Self::Sender(index)),
            "receiver" => Ok(Self::Receiver(index)),
            _ => Err(wrong()),
        }
    }
}

/// How a session of messages ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedPlan {
    /// Every receiver that reports has everything.
    Confirmed,
    /// All have confirmed, and the deadline cut the announcement of the end short.
    Hurried,
    /// Some expected receivers did not join, or did not come back for what they lacked.
    Unconfirmed,
    /// The deadline came before the receivers had everything.
    BrokenOff,
}

impl EndedPlan {
    /// Returns true when a session has ended in this way.
    #[must_use]
    pub fn is(self, ended: Ended) -> bool {
        let expected = match self {
            Self::Confirmed => Ended::Confirmed,
            Self::Hurried => Ended::Hurried,
            Self::Unconfirmed => Ended::Unconfirmed,
            Self::BrokenOff => Ended::BrokenOff,
        };
        expected == ended
    }
}

/// What must hold at the end of this run, besides what must hold at the end of every run.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckPlan {
    /// By this time, counted from the start of the run, everything has ended.
    pub deadline: Span,
    /// Every receiver gets every message of the sessions.
    pub all_delivered: bool,
    /// The sender of a tree has proof of delivery from every receiver that it expects.
    pub proven: bool,
    /// Every receiver is told the end of every session.
    pub all_ended: bool,
    /// How every session of messages ends.
    pub ended: Option<EndedPlan>,
    /// How many times in total receivers are told that a session was broken off.
    pub broken_off: Option<u64>,
    /// At least one packet is lost; otherwise the scenario tests nothing.
    pub some_lost: bool,
    /// How many times in total receivers are told that a sender dropped them.
    pub dropped: Option<u64>,
    /// The most NAKs on the wire for 100 lost packets.
    pub naks_per_lost_percent_max: Option<u64>,
    /// The most repairs on the wire for 100 lost packets.
    pub repairs_per_lost_percent_max: Option<u64>,
}

impl Default for CheckPlan {
    fn default() -> Self {
        Self {
            deadline: Span::millis(120_000),
            all_delivered: false,
            proven: false,
            all_ended: false,
            ended: None,
            broken_off: None,
            some_lost: false,
            dropped: None,
            naks_per_lost_percent_max: None,
            repairs_per_lost_percent_max: None,
        }
    }
}

/// Why a scenario cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError(pub String);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlanError {}

const fn one() -> u64 {
    1
}

fn one_end() -> Vec<EndPlan> {
    vec![EndPlan::default()]
}

/// Returns the faults of a LAN with a delay of 50 to 100 us, from which most scenarios start.
#[must_use]
pub fn lan(loss: Ratio) -> Vec<Fault> {
    vec![
        Fault::Loss(loss),
        Fault::Delay(Span::micros(50)),
        Fault::Jitter(Span::micros(50)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_reads_strictly() {
        let plan = Plan::parse(
            r#"
            name = "x"
            session = { first_sqn = "near 2^32", policy = "wait", reports = true }
            config = { tx_window_bytes = "64KiB" }
            [[sender]]
            egress = [{ delay = "100us" }]
            [[receiver]]
            count = 3
            ingress = [{ loss = "5%" }, { burst = { enter = "1%", leave = "20%", loss = "90%" } }]
            [[event]]
            at = "100ms"
            who = "receiver 1"
            does = { pause = "2s" }
            [[event]]
            at = "1s"
            who = "sender 0"
            does = { kill = { back_after = "3s" } }
            "#,
        )
        .unwrap();
        assert_eq!(plan.receivers.len(), 3);
        assert_eq!(plan.session.first_sqn, FirstSqn::NearWrap);
        assert_eq!(plan.events[0].who, Who::Receiver(1));
        let wrong = Plan::parse("name = \"x\"\nreceiver = []\nchekc = {}").unwrap_err();
        assert!(wrong.0.contains("chekc"), "{wrong}");
    }
}
