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
    /// What it shows, for the reader.
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
    /// Sends a tree of files instead of messages.
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
    /// A host that disturbs.
    #[serde(default)]
    pub intruder: Option<IntruderPlan>,
    /// What happens when.
    #[serde(default, rename = "event")]
    pub events: Vec<EventPlan>,
    /// When all faults stop; never, when absent.
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

/// Replaces each entry with a `count` by that many.
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
    /// What a slow receiver may do to the sender.
    pub policy: PolicyPlan,
    /// Receivers report to the sender, and the sender starts when all have joined.
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
    /// There.
    At(u32),
}

impl FirstSqn {
    /// A number of this kind.
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
                    "{number:?} is not random, near 2^31, near 2^32 or a number"
                ))
            }),
        }
    }
}

/// The flow-control policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyPlan {
    /// The sender waits for the slowest.
    Wait,
    /// The slow one loses messages, and learns how many.
    #[default]
    Lose,
    /// The slow one is dropped.
    Drop,
}

/// What is sent in each session.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workload {
    /// Messages.
    pub messages: u64,
    /// Shortest.
    pub size_min: usize,
    /// Longest.
    pub size_max: usize,
    /// One message in N has a size of at most 100 bytes; 0 for none. Small messages fill runs.
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
    /// The length of the next message.
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

/// A tree, and how its receivers keep it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ObjectsPlan {
    /// Number of files.
    pub files: u64,
    /// The longest; half of them have at most 100 bytes.
    pub file_bytes_max: u64,
    /// Receivers that the sender waits for.
    pub expected: usize,
    /// How long it waits for them.
    pub join_timeout: Span,
    /// After which time without progress a receiver is given up.
    pub progress_timeout: Span,
    /// A receiver's store is full after every N writes; 0 for never.
    pub store_full_every: u64,
    /// This many slabs come out wrong at each receiver, as if its disk had turned a bit.
    pub seals_wrong: u64,
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
            seals_wrong: 0,
        }
    }
}

/// A host with one sender or receiver.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EndPlan {
    /// This many alike.
    pub count: usize,
    /// On the way out.
    pub egress: Vec<Fault>,
    /// On the way in.
    pub ingress: Vec<Fault>,
    /// At the socket calls.
    pub io: IoFaults,
    /// Bound of the socket buffer.
    pub receive_buffer_bytes: usize,
    /// Largest run: bytes and datagrams.
    pub run_bytes: usize,
    /// Datagrams in one run.
    pub run_datagrams: usize,
    /// The sender's own packets come back to its host.
    pub loops_back: bool,
    /// What each received datagram costs the host.
    pub datagram_cost: Span,
    /// Starts that much later than the others.
    pub starts_at: Span,
    /// Its owner ends it then, counted from the start of the run: a sender of messages closes with
    /// what it has offered, a receiver of messages leaves, a transfer is cancelled.
    pub ends_at: Option<Span>,
    /// How long a sender of messages may take to end before it breaks off.
    pub patience: Span,
    /// The secret that its key follows from. A sender waits for those receivers alone that have the
    /// same, or like itself none.
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
    /// The key that follows from its secret.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        let secret = self.secret.as_ref()?;
        Some(Key::derive(secret.as_bytes()))
    }
}

/// A host that sends what ought not to be sent, from its own address.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IntruderPlan {
    /// Between two packets, on average.
    pub gap: Span,
    /// For how long.
    pub stops_after: Span,
    /// Also sends packets of sessions that exist. Only where every receiver hears the real sender
    /// first: a session belongs to the address that it first came from.
    pub forges_sessions: bool,
}

impl Default for IntruderPlan {
    fn default() -> Self {
        Self {
            gap: Span::micros(200),
            stops_after: Span::millis(3_000),
            forges_sessions: false,
        }
    }
}

/// Something planned. `who` is `sender` or `receiver` with its index, as `"receiver 0"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventPlan {
    /// When, from the start of the run.
    pub at: Span,
    /// To whom.
    pub who: Who,
    /// What.
    pub does: EventKind,
}

/// What happens to a host.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum EventKind {
    /// Runs nothing for a time.
    Pause(Span),
    /// Neither hears nor is heard for a time.
    CutOff(Span),
    /// Hears nothing for a time.
    Deaf(Span),
    /// Is not heard for a time.
    Mute(Span),
    /// Its process is killed; started anew after a time, when one is given.
    Kill {
        /// How long it stays away; for ever, when absent.
        back_after: Option<Span>,
    },
    /// Its host loses power.
    PowerOff {
        /// How long it stays away; for ever, when absent.
        back_after: Option<Span>,
    },
    /// New faults on its way in.
    Ingress(Vec<Fault>),
    /// New faults on its way out.
    Egress(Vec<Fault>),
    /// The longest datagram that leaves changes.
    Mtu(usize),
}

/// One end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Who {
    /// The sender of that index.
    Sender(usize),
    /// The receiver of that index.
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

/// How the end of a session of messages comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedPlan {
    /// Every receiver that reports has everything.
    Confirmed,
    /// All are confirmed, and the deadline cut the announcement short.
    Hurried,
    /// Receivers that were expected never came.
    Unconfirmed,
    /// The deadline came first.
    BrokenOff,
}

impl EndedPlan {
    /// True when this is how a session has ended.
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

/// What must hold at the end of a run, beyond what always must.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckPlan {
    /// Everything is over by then, counted from the start of the run.
    pub deadline: Span,
    /// Every receiver gets every message of the sessions.
    pub all_delivered: bool,
    /// The sender of a tree has a proof from every receiver that it expects.
    pub proven: bool,
    /// Every receiver hears of the end of every session.
    pub all_ended: bool,
    /// How the end of every session of messages comes out.
    pub ended: Option<EndedPlan>,
    /// How often a receiver was told that a session was broken off, over all receivers.
    pub broken_off: Option<u64>,
    /// Packets lost somewhere, so that the scenario shows what it is meant to show.
    pub some_lost: bool,
    /// How often a receiver was told that a session had dropped it, over all receivers.
    pub dropped: Option<u64>,
    /// NAKs on the wire per lost packet, in hundredths.
    pub naks_per_lost_percent_max: Option<u64>,
    /// Repairs on the wire per lost packet, in hundredths.
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

/// A scenario that cannot be read, in words.
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

/// A LAN whose datagrams take a little while: what most scenarios start from.
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
