//! The results of a sweep, and the causes of its losses.

use std::net::SocketAddr;

use measure::{Link, sweep::Load};
use serde::{Deserialize, Serialize};

use super::{
    KernelCounters, Mode, Profile,
    protocol::{Dispatch, Receipt},
    sender::SPAN_NS,
};

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The client sends to the server.
    There,
    /// The server sends to the client.
    Back,
    /// Both send at the same time.
    Both,
}

/// The report of a whole sweep.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweepReport {
    /// The servers' names for themselves.
    pub servers: Vec<String>,
    /// The group that the client sent to.
    pub group: Option<SocketAddr>,
    /// The interface here.
    pub interface: String,
    /// The interface's largest IP packet.
    #[serde(alias = "mtu")]
    pub mtu_bytes: u32,
    /// The interface's link, when its speed is known.
    pub link: Option<Link>,
    /// True when IPv6 carries the datagrams.
    pub is_ipv6: bool,
    /// The highest acceptable share of lost datagrams.
    #[serde(alias = "loss_max")]
    pub loss_max_share: f64,
    /// Each row is one trial at a load that was asked for, and not a search for the highest rate.
    #[serde(default)]
    pub is_load_given: bool,
    /// A row for each size, mode, profile and direction.
    pub rows: Vec<Row>,
    /// What the rows together show.
    pub remarks: Vec<String>,
    /// Why the sweep ended early; the rows were measured before that.
    pub cut: Option<String>,
}

/// One size, in one mode, profile and direction.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// Payload bytes of a datagram.
    #[serde(alias = "size")]
    pub size_bytes: usize,
    /// How an end passes datagrams to the kernel.
    pub mode: Mode,
    /// How the sockets are set up.
    pub profile: Profile,
    /// Who sends.
    pub direction: Direction,
    /// How many trials were made.
    pub trials: u32,
    /// The flows of the best trial, at the highest rate that the path carried; none when it carried
    /// no rate. With a given load, the flows of the only trial. Of the flows to several servers,
    /// this has only the one that lost most.
    pub flows: Vec<Flow>,
    /// Datagrams each second that arrived, for each flow, when the sender sent as fast as possible.
    pub flood_received_per_s: Vec<f64>,
    /// What kept the rate from being higher.
    pub limit: Limit,
    /// What a reader should know about this row.
    pub remarks: Vec<String>,
}

/// One direction of one trial.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Flow {
    /// True when the server sends to the client.
    pub is_back: bool,
    /// What the sender did.
    pub dispatch: Dispatch,
    /// What the receiver counted.
    pub receipt: Receipt,
    /// Datagrams received each second, by the receiver's clock, or by the sender's if the receiver
    /// counted for less time.
    pub received_per_s: f64,
    /// Datagrams that did not arrive, by cause.
    pub losses: Losses,
    /// The counters of the sender's kernel for the trial.
    pub sender: KernelCounters,
    /// The counters of the receiver's kernel for the trial.
    pub receiver: KernelCounters,
}

/// Datagrams that did not arrive, by cause. Each is counted under one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Losses {
    /// Dropped by the sender's own interface or its queue.
    pub at_sender: u64,
    /// Dropped because the receiver's socket was full.
    pub at_socket: u64,
    /// Some of their fragments arrived, but not all.
    pub in_reassembly: u64,
    /// Lost before the receiver's socket: by the network, or by the receiver's kernel.
    pub in_network: u64,
}

/// What keeps a rate from being higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The sender cannot send more.
    Sender,
    /// The sender's interface takes no more: its queue is full, and makes the sender wait, or drops
    /// datagrams.
    SenderInterface,
    /// The receiver's socket overflows.
    ReceiverSocket,
    /// The receiver's kernel cannot put datagrams together from their fragments.
    Reassembly,
    /// Datagrams are lost on the way.
    Network,
    /// The user gave the rate, and it was reached.
    Asked,
    /// The server's operator lets it send no faster.
    Server,
    /// Nothing arrives.
    NothingArrives,
    /// No trial was made; a remark says why.
    NotMeasured,
}

impl Direction {
    /// Returns the direction's name in lower case, for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::There => "there",
            Self::Back => "back",
            Self::Both => "both",
        }
    }
}

impl Losses {
    /// Divides the missing datagrams by cause. One drop at the socket may stand for up to
    /// `datagrams_a_drop` datagrams.
    #[must_use]
    pub fn of(
        dispatch: &Dispatch,
        receipt: &Receipt,
        receiver: &KernelCounters,
        datagrams_a_drop: u64,
    ) -> Self {
        let lost = dispatch.sent.saturating_sub(receipt.received);
        let at_socket = lost.min(receipt.socket_drops.saturating_mul(datagrams_a_drop));
        let in_reassembly = (lost - at_socket).min(receiver.reassembly_failures);
        Self {
            at_sender: dispatch.refused,
            at_socket,
            in_reassembly,
            in_network: lost - at_socket - in_reassembly,
        }
    }

    /// Returns the sum of all causes.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.at_sender + self.at_socket + self.in_reassembly + self.in_network
    }

    /// Returns the losses for each million datagrams that were offered; those of trials of
    /// different length can be added.
    pub(super) fn per_million(&self, dispatch: &Dispatch) -> Self {
        let offered = (dispatch.sent + dispatch.refused).max(1);
        let share = |count: u64| count.saturating_mul(1_000_000) / offered;
        Self {
            at_sender: share(self.at_sender),
            at_socket: share(self.at_socket),
            in_reassembly: share(self.in_reassembly),
            in_network: share(self.in_network),
        }
    }

    pub(super) const fn add(&mut self, other: &Self) {
        self.at_sender += other.at_sender;
        self.at_socket += other.at_socket;
        self.in_reassembly += other.in_reassembly;
        self.in_network += other.in_network;
    }

    /// Returns the cause of most losses.
    pub(super) fn limit(&self) -> Limit {
        let causes = [
            (self.at_sender, Limit::SenderInterface),
            (self.at_socket, Limit::ReceiverSocket),
            (self.in_reassembly, Limit::Reassembly),
            (self.in_network, Limit::Network),
        ];
        let most = causes.into_iter().max_by_key(|(count, _)| *count);
        most.map_or(Limit::Network, |(_, limit)| limit)
    }
}

impl Flow {
    /// Returns the share of the offered datagrams that did not arrive, 0 to 1.
    #[must_use]
    pub fn loss(&self) -> f64 {
        let offered = self.dispatch.sent + self.dispatch.refused;
        if offered == 0 {
            return 1.0;
        }
        self.losses.total() as f64 / offered as f64
    }

    /// Returns the processor time for each datagram in nanoseconds: of the sending thread, and of
    /// the receiving thread.
    #[must_use]
    pub fn cpu_ns_per_datagram(&self) -> [f64; 2] {
        let each = |ns: u64, count: u64| ns as f64 / count.max(1) as f64;
        [
            each(self.dispatch.cpu_ns, self.dispatch.sent),
            each(self.receipt.cpu_ns, self.receipt.received),
        ]
    }
}

impl Row {
    /// Takes the only trial of a row with a given load.
    pub(super) fn take_asked(&mut self, load: Load, flows: Vec<Flow>, loss_max: f64) {
        let mut losses = Losses::default();
        for flow in &flows {
            losses.add(&flow.losses.per_million(&flow.dispatch));
        }
        self.limit = match load {
            Load::Flood => limit_of(&flows, &losses),
            Load::Rate(rate) => {
                let slow = flows.iter().find(|flow| is_short(&flow.dispatch, rate));
                let is_lossy = flows.iter().any(|flow| flow.loss() > loss_max);
                if let Some(slow) = slow {
                    let sent_per_s = slow.dispatch.offered_per_s();
                    self.remarks.push(format!(
                        "{rate}/s were asked for, {sent_per_s:.0}/s were sent"
                    ));
                }
                match (slow, is_lossy) {
                    (_, true) => limit_of(&flows, &losses),
                    (Some(_), false) => limit_of(&flows, &Losses::default()),
                    (None, false) => Limit::Asked,
                }
            }
        };
        self.flows = flows;
    }

    /// Notes that the server sends no faster than `rate_per_s_max`, by its own limit.
    pub(super) fn take_server_limit(&mut self, rate_per_s_max: u64) {
        if self.limit == Limit::Sender && self.direction != Direction::There {
            self.limit = Limit::Server;
        }
        self.remarks.push(format!(
            "the server sends at most {rate_per_s_max}/s of this size: its --rate-max limits it, \
             which for a group is 100Mbit/s unless given"
        ));
    }

    /// Adds remarks on what this size means for the path.
    pub(super) fn remark(&mut self, mtu: u32, is_ipv6: bool, reassembly_timeout_s: u64) {
        let packet = self.size_bytes as u64 + if is_ipv6 { 48 } else { 28 };
        if packet > u64::from(mtu) {
            let count = fragments(self.size_bytes as u64, u64::from(mtu), is_ipv6);
            self.remarks.push(format!(
                "each datagram has {count} fragments: one lost fragment loses the datagram"
            ));
            // This concerns IPv4 only: in IPv6 the identification of fragments has 32 bits.
            let fastest = self.flows.iter().map(|flow| flow.received_per_s);
            let fastest = fastest.fold(0.0, f64::max);
            let wrap_s = IP_IDS / fastest.max(1e-9);
            if !is_ipv6 && wrap_s < reassembly_timeout_s as f64 {
                self.remarks.push(format!(
                    "the 16-bit IP ID repeats within the {reassembly_timeout_s} s that hosts keep \
                     fragments: after a loss, fragments of two datagrams may be joined, and only \
                     the UDP checksum can detect it; stay below {:.0}/s, or within the MTU",
                    IP_IDS / reassembly_timeout_s as f64
                ));
            }
        }
        for flow in &self.flows {
            let failures = flow.receiver.reassembly_failures;
            if failures > 0 {
                self.remarks
                    .push(format!("{failures} datagrams could not be reassembled"));
            }
        }
    }
}

/// Says what keeps the best rate from being higher: the losses of the failed trials, or the sender
/// itself.
pub(super) fn limit_of(best: &[Flow], losses: &Losses) -> Limit {
    if best.iter().all(|flow| flow.receipt.received == 0) {
        Limit::NothingArrives
    } else if losses.total() > 0 {
        losses.limit()
    } else if best.iter().any(|flow| flow.dispatch.waits > WAITS_MANY) {
        Limit::SenderInterface
    } else {
        Limit::Sender
    }
}

/// Returns true when the sender offered less than `rate`, by more than the last batch and 1 %.
fn is_short(dispatch: &Dispatch, rate: u64) -> bool {
    let asked = rate as f64 * dispatch.lasted_ns as f64 / 1e9;
    let batch = 1.0 + rate as f64 * SPAN_NS as f64 / 1e9;
    ((dispatch.sent + dispatch.refused) as f64) < asked * measure::ATTAINED_MIN - batch
}

/// Returns how many packets a datagram takes.
fn fragments(size_bytes: u64, mtu_bytes: u64, is_ipv6: bool) -> u64 {
    let header = if is_ipv6 { 48 } else { 20 };
    let each = mtu_bytes.saturating_sub(header).max(8) / 8 * 8;
    (size_bytes + 8).div_ceil(each)
}

/// Returns a remark for each pair of rows, there and back, whose rates differ, if the path limits
/// at least one of them.
pub(super) fn asymmetries(rows: &[Row]) -> Vec<String> {
    let rate = |row: &Row| row.flows.first().map(|flow| flow.received_per_s);
    // The speed of processors changes from moment to moment, and is no property of the path.
    let is_of_path = |row: &Row| {
        use Limit::{Network, Reassembly, SenderInterface};
        matches!(row.limit, Network | Reassembly | SenderInterface)
    };
    let mut texts = Vec::new();
    for there in rows.iter().filter(|row| row.direction == Direction::There) {
        let same = |row: &&Row| {
            row.direction == Direction::Back
                && (row.size_bytes, row.mode, row.profile)
                    == (there.size_bytes, there.mode, there.profile)
        };
        let Some(back) = rows.iter().find(same) else {
            continue;
        };
        let Some((ours, theirs)) = rate(there).zip(rate(back)) else {
            continue;
        };
        if !is_of_path(there) && !is_of_path(back) {
            continue;
        }
        let ratio = ours / theirs.max(1e-9);
        if !(1.0 / ASYMMETRY..=ASYMMETRY).contains(&ratio) {
            texts.push(format!(
                "{} B: {ours:.0}/s there and {theirs:.0}/s back: the directions differ",
                there.size_bytes
            ));
        }
    }
    texts
}

/// The smallest ratio of two directions that counts as a difference.
const ASYMMETRY: f64 = 1.25;
/// How often a sender waits for room before its interface counts as what slowed it down.
const WAITS_MANY: u64 = 3;
const IP_IDS: f64 = 65_536.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(sent: u64, refused: u64, received: u64, drops: u64, failures: u64, each: u64) -> Flow {
        let dispatch = Dispatch {
            sent,
            refused,
            lasted_ns: 1_000_000_000,
            ..Dispatch::default()
        };
        let receipt = Receipt {
            received,
            socket_drops: drops,
            lasted_ns: 1_000_000_000,
            ..Receipt::default()
        };
        let receiver = KernelCounters {
            reassembly_failures: failures,
            ..KernelCounters::default()
        };
        Flow {
            is_back: false,
            dispatch,
            receipt,
            received_per_s: receipt.received_per_s(dispatch.lasted_ns),
            losses: Losses::of(&dispatch, &receipt, &receiver, each),
            sender: KernelCounters::default(),
            receiver,
        }
    }

    #[test]
    fn a_receiver_that_ran_late_finds_no_rate_that_no_path_had() {
        let mut flow = flow(1_000, 0, 1_000, 0, 0, 1);
        let per_s = |flow: &Flow| flow.receipt.received_per_s(flow.dispatch.lasted_ns).round();
        assert_eq!(per_s(&flow).to_string(), "1000");
        // Its first call came after a fifth of the time and took one datagram of the queue.
        (flow.receipt.received_first, flow.receipt.lasted_ns) = (1, 800_000_000);
        assert_eq!(per_s(&flow).to_string(), "1000");
        // What is late by a queue of the path is the receiver's to time.
        flow.receipt.lasted_ns = 1_250_000_000;
        assert_eq!(per_s(&flow).to_string(), "799");
    }

    #[test]
    fn what_is_missing_is_split_by_cause_and_adds_up() {
        let all = flow(1_000, 50, 900, 30, 20, 1);
        let losses = all.losses;
        assert_eq!((losses.at_sender, losses.at_socket), (50, 30));
        assert_eq!((losses.in_reassembly, losses.in_network), (20, 50));
        assert!((all.loss() - 150.0 / 1_050.0).abs() < 1e-12);
        // A dropped run of 45 datagrams counts for at most as many as are missing.
        let run = flow(1_000, 0, 980, 1, 0, 45).losses;
        assert_eq!((run.at_socket, run.in_network), (20, 0));
        assert_eq!(run.limit(), Limit::ReceiverSocket);
        // Drops of strangers' datagrams are no losses of ours.
        assert_eq!(flow(10, 0, 10, 5, 5, 1).losses.total(), 0);
    }

    fn row(size: usize, direction: Direction, received: u64) -> Row {
        Row {
            size_bytes: size,
            mode: Mode::One,
            profile: Profile::Standard,
            direction,
            trials: 1,
            flows: vec![flow(received, 0, received, 0, 0, 1)],
            flood_received_per_s: Vec::new(),
            limit: Limit::Network,
            remarks: Vec::new(),
        }
    }

    #[test]
    fn an_asked_rate_that_was_not_reached_says_why() {
        let taken = |load, flow: Flow| {
            let mut row = row(64, Direction::There, 0);
            row.take_asked(load, vec![flow], 0.001);
            (row.limit, row.remarks)
        };
        let reached = taken(Load::Rate(100_000), flow(100_000, 0, 100_000, 0, 0, 1));
        assert_eq!(reached, (Limit::Asked, Vec::new()));
        // The last batch, of half a millisecond, may not have left.
        let (limit, _) = taken(Load::Rate(100_000), flow(98_950, 0, 98_950, 0, 0, 1));
        assert_eq!(limit, Limit::Asked);
        let (limit, remarks) = taken(Load::Rate(1_000_000), flow(105_000, 0, 105_000, 0, 0, 1));
        assert_eq!(limit, Limit::Sender);
        assert_eq!(remarks, ["1000000/s were asked for, 105000/s were sent"]);
        let mut waiting = flow(105_000, 0, 105_000, 0, 0, 1);
        waiting.dispatch.waits = 900;
        let (limit, _) = taken(Load::Rate(1_000_000), waiting);
        assert_eq!(limit, Limit::SenderInterface);
        let lossy = taken(Load::Rate(100_000), flow(100_000, 0, 90_000, 10_000, 0, 1));
        assert_eq!(lossy, (Limit::ReceiverSocket, Vec::new()));
        let (limit, _) = taken(Load::Flood, flow(900_000, 0, 900_000, 0, 0, 1));
        assert_eq!(limit, Limit::Sender);
    }

    #[test]
    fn fragments_and_the_ip_id_are_warned_of_where_they_matter() {
        let remarks = |size, received, is_ipv6| {
            let mut row = row(size, Direction::There, received);
            row.remark(1_500, is_ipv6, 30);
            row.remarks
        };
        assert!(remarks(1_472, 900_000, false).is_empty());
        assert_eq!(remarks(1_473, 2_000, false).len(), 1);
        let both = remarks(8_192, 65_536, false);
        assert!(both[0].contains("6 fragments"), "{both:?}");
        assert!(
            both[1].contains("within the 30 s") && both[1].contains("2185/s"),
            "{both:?}"
        );
        assert_eq!(remarks(8_192, 65_536, true).len(), 1);
    }

    #[test]
    fn an_asymmetry_is_a_finding() {
        let rows = |back| {
            [
                row(64, Direction::There, 100),
                row(64, Direction::Back, back),
            ]
        };
        assert!(asymmetries(&rows(90)).is_empty());
        let mut slow = rows(50);
        let texts = asymmetries(&slow);
        for row in &mut slow {
            row.limit = Limit::Sender;
        }
        assert!(asymmetries(&slow).is_empty());
        assert!(texts[0].contains("100/s there and 50/s back"), "{texts:?}");
    }
}
