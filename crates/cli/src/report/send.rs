//! The reports of `send`.

use std::{net::SocketAddr, path::Path, time::Duration};

use gauge::tcp::Shares;
use schemars::JsonSchema;
use serde::Serialize;
use towline::{
    EntryKind, ErrorCode, FileSet, FileSums, HeldBack, Limit, NetworkLimit, ReceiverReport,
    ReceiverState, TcpLimit, TransferOutcome, Unsent,
};

use super::{
    Counters, Document, count,
    name::shown,
    quantity,
    text::{dropped, hex, named, wrap},
};
use crate::plan::SendPlan;

/// The report of `send --dry-run`: what `send` would send.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct FileListing {
    /// Every setting of the command.
    plan: SendPlan,
    files: u64,
    bytes: u64,
    entries: Vec<ListedEntry>,
    /// With `--skip-changed`: paths that cannot be read.
    unsent: Vec<UnsentRow>,
    /// With `--hash`: the checksums of the files.
    sums: Option<Vec<SumRow>>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct ListedEntry {
    /// `file`, `directory`, `symlink` or `hard_link`.
    kind: &'static str,
    bytes: u64,
    path: String,
}

/// A path that was left out by `--skip-changed`, or that could not be deleted. An empty path stands
/// for the whole tree: nothing was deleted.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct UnsentRow {
    pub(super) path: String,
    /// The reason; for an operation that failed, also its file and the cause.
    pub(super) why: String,
}

impl UnsentRow {
    fn new(unsent: &Unsent) -> Self {
        Self {
            path: String::from_utf8_lossy(&unsent.path).into_owned(),
            why: unsent.text.clone(),
        }
    }
}

/// The checksum of one file.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct SumRow {
    path: String,
    blake3: String,
}

impl SumRow {
    pub(crate) fn all(sums: &FileSums) -> Vec<Self> {
        let rows = sums.iter().map(|(path, root)| Self {
            path: path.display().to_string(),
            blake3: hex(root),
        });
        rows.collect()
    }
}

impl FileListing {
    pub(crate) fn new(plan: &SendPlan, files: &FileSet, sums: Option<&FileSums>) -> Self {
        let entries = files.entries().map(|entry| ListedEntry {
            kind: match entry.kind {
                EntryKind::File => "file",
                EntryKind::Directory => "directory",
                EntryKind::Symlink => "symlink",
                EntryKind::HardLink => "hard_link",
            },
            bytes: entry.bytes,
            path: entry.path.display().to_string(),
        });
        Self {
            plan: plan.clone(),
            files: files.file_count() as u64,
            bytes: files.bytes(),
            entries: entries.collect(),
            unsent: files.unsent().iter().map(UnsentRow::new).collect(),
            sums: sums.map(SumRow::all),
        }
    }
}

impl Document for FileListing {
    const SCHEMA: &'static str = "towline.plan.send";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut text = String::new();
        for ListedEntry { kind, bytes, path } in &self.entries {
            let path = shown(Path::new(path));
            text += &match *kind {
                "directory" => format!("{:>15} {path}/\n", ""),
                "symlink" => format!("{:>15} {path}@\n", ""),
                "hard_link" => format!("{:>15} {path} (hard link)\n", ""),
                _ => format!("{bytes:>15} {path}\n"),
            };
        }
        text += &named("left out", self.unsent.iter().map(|row| row.why.clone()));
        let entries = match self.entries.len() {
            1 => "1 entry".to_owned(),
            count => format!("{count} entries"),
        };
        let size = quantity::bytes(self.bytes);
        text + &format!(
            "{:>15} bytes in {entries} ({size}); nothing was sent\n",
            self.bytes
        )
    }
}

/// The report of `send`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct SendReport {
    pub(crate) group: String,
    /// All expected receivers, and at least one receiver, hold everything: verified, synced and in
    /// place. With `--to`, a receiver has also joined at every host.
    pub(crate) is_proven: bool,
    pub(crate) manifest: String,
    /// BLAKE3 of what `b3sum` prints for all files, in the order of their paths' bytes.
    pub(crate) root: Option<String>,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// Bytes of content delivered per second of the transfer. Each byte counts once, however many
    /// receivers got it. Content that they held before does not count.
    pub(crate) bytes_per_s: f64,
    pub(crate) receivers: Vec<ReceiverRow>,
    /// Expected receivers that never came.
    pub(crate) missing: u32,
    /// With expected names: the names of the expected receivers that never came.
    pub(crate) missing_names: Vec<String>,
    /// With `--to`: the hosts at which no receiver joined.
    pub(crate) unreached: Vec<UnreachedRow>,
    /// The name of the expected receiver that finished last, or is furthest behind. Null with fewer
    /// than two expected receivers that have not failed.
    pub(crate) slowest: Option<String>,
    /// Bytes of content sent to all receivers, without repairs.
    pub(crate) multicast_bytes: u64,
    /// Bytes of content sent to single receivers, without repairs.
    pub(crate) unicast_bytes: u64,
    /// With `--skip-changed`: paths that could not be read or had changed. `is_proven` is about
    /// everything else. A receiver that proved delivery before a file was left out may hold it.
    pub(crate) unsent: Vec<UnsentRow>,
    /// With `--hash`: the checksums, once every byte was read.
    pub(crate) sums: Option<Vec<SumRow>>,
    /// A signal ended the command.
    pub(crate) is_interrupted: bool,
    /// Why the sender itself gave up.
    pub(crate) failure: Option<String>,
    /// Why the sender refused the receiver that it refused last.
    #[serde(skip)]
    pub(crate) refusal: Option<String>,
    /// Packets that the session dropped, by reason; reasons that did not occur are left out.
    pub(crate) drops: Counters,
    pub(crate) counters: Counters,
}

/// One receiver of a transfer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ReceiverRow {
    name: String,
    address: String,
    is_expected: bool,
    /// `proven`, `active`, `failed`, or `unproven`: the receiver holds everything and has not
    /// proved it.
    state: &'static str,
    bytes: u64,
    packets_lost: u64,
    repairs_asked: u64,
    repairs_got: u64,
    /// Bytes that the receiver held already when it joined.
    bytes_resumed: u64,
    /// Bytes of content sent since the receiver joined, to all receivers and to this one alone.
    bytes_sent_since_join: u64,
    /// What limits the receiver: `the network`, `its disk`, `its CPU`, `the rate set` or, without
    /// `--rate`, `the sender`. With `--to`, once the kernel has counts, the cause with the largest
    /// share in `held_back`: `the sender: reading and hashing`, `the receiver's window` (or `its
    /// disk`, when the receiver reports that as its limit), `the send buffer`, `the network: loss`,
    /// `the network: a queue on the way` or `the network`.
    limited_by: String,
    /// With `--to`: what held the connection back, by the kernel's counts, each cause in per cent
    /// of the time in which content moved.
    held_back: Option<Shares>,
    #[serde(skip)]
    peer: SocketAddr,
    /// Why the sender moved the receiver to unicast.
    demoted: Option<String>,
    /// Time from the start of the transfer, or from the receiver's joining if that was later, until
    /// the receiver's proof of delivery.
    seconds: Option<f64>,
    /// Bytes of content that the receiver got, divided by `seconds`; until the receiver has proved
    /// delivery, divided by the time of the whole transfer. Content that it held before does not
    /// count.
    bytes_per_s: f64,
    root: Option<String>,
    error: Option<String>,
}

impl SendReport {
    pub(crate) fn new(
        plan: &SendPlan,
        outcome: &TransferOutcome,
        files: u64,
        time: Duration,
    ) -> Self {
        let seconds = time.as_secs_f64();
        let total = outcome.content_bytes;
        let rows = outcome.receivers.iter();
        let rows = rows.map(|receiver| ReceiverRow::new(receiver, plan, total, seconds));
        let mut rows: Vec<ReceiverRow> = rows.collect();
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        let mut receivers = outcome.receivers.iter();
        let slowest = receivers.find(|receiver| Some(receiver.slot) == outcome.slowest);
        let unreached = outcome.unreached.iter().map(|(address, why)| UnreachedRow {
            address: address.to_string(),
            why: why.clone(),
        });
        Self {
            group: plan.session().place.to_string(),
            is_proven: outcome.is_proven(),
            manifest: hex(&outcome.manifest.0),
            root: outcome.root.map(|root| hex(&root)),
            files,
            bytes: outcome.content_bytes,
            seconds,
            bytes_per_s: quantity::per_second(moved_bytes(outcome), seconds),
            receivers: rows,
            missing: outcome.missing,
            missing_names: outcome.missing_names.clone(),
            unreached: unreached.collect(),
            slowest: slowest.map(|receiver| receiver.name.clone()),
            multicast_bytes: outcome.multicast_bytes,
            unicast_bytes: outcome.unicast_bytes,
            unsent: outcome.unsent.iter().map(UnsentRow::new).collect(),
            sums: None,
            is_interrupted: false,
            failure: outcome.failure.as_ref().map(|(_, text)| text.clone()),
            refusal: None,
            drops: Counters::default(),
            counters: Counters::default(),
        }
    }

    /// Adds what the session has counted.
    pub(crate) fn count(&mut self, counters: Counters) {
        self.drops = counters.drops();
        self.counters = counters;
    }

    /// Adds to each receiver's row what held its connection back.
    pub(crate) fn hold_back(&mut self, all: &[(SocketAddr, HeldBack)]) {
        for row in &mut self.receivers {
            let own = all.iter().find(|(peer, _)| *peer == row.peer);
            let Some((_, held)) = own else { continue };
            let Some(most) = held.shares.limit(&held.signs) else {
                continue;
            };
            row.held_back = Some(held.shares.into());
            row.limited_by = limit_by_links(most, &row.limited_by).to_owned();
        }
    }
}

/// Names the cause that held the connection back most. `told` is the limit according to the
/// receiver's reports.
const fn limit_by_links(most: TcpLimit, told: &str) -> &str {
    match most {
        TcpLimit::Application => "the sender: reading and hashing",
        // When the receiver reports its disk as the limit, its window is full because of the disk.
        TcpLimit::Receiver if matches!(told.as_bytes(), b"its disk") => told,
        TcpLimit::Receiver => "the receiver's window",
        TcpLimit::SendBuffer => "the send buffer",
        TcpLimit::Network(NetworkLimit::Loss) => "the network: loss",
        TcpLimit::Network(NetworkLimit::Queue) => "the network: a queue on the way",
        TcpLimit::Network(NetworkLimit::Path) => "the network",
    }
}

/// Returns true when the user has set a rate limit.
fn is_rate_set(plan: &SendPlan) -> bool {
    plan.session().config.rate().pace().bytes_per_s().is_some()
}

/// Names what limits a receiver of this sender. Over TCP, this is what held the connection back
/// most, once the kernel has counts.
pub(crate) fn limit_of(
    receiver: &ReceiverReport,
    held: Option<&HeldBack>,
    plan: &SendPlan,
) -> &'static str {
    let told = limit(receiver.limited_by, plan);
    let most = held.and_then(|held| held.shares.limit(&held.signs));
    most.map_or(told, |most| limit_by_links(most, told))
}

/// Returns the words for the limit that a receiver has reported.
fn limit(limit: Limit, plan: &SendPlan) -> &'static str {
    match limit {
        Limit::Network => "the network",
        Limit::Disk => "its disk",
        Limit::Host => "its CPU",
        Limit::Rate if is_rate_set(plan) => "the rate set",
        Limit::Rate => "the sender",
    }
}

impl ReceiverRow {
    fn new(report: &ReceiverReport, plan: &SendPlan, total: u64, transfer_seconds: f64) -> Self {
        let mut row = Self {
            name: report.name.clone(),
            address: report.peer.ip().to_string(),
            is_expected: report.is_expected,
            state: "active",
            bytes: report.progress.held,
            packets_lost: report.progress.lost,
            repairs_asked: report.progress.repairs_asked,
            repairs_got: report.progress.repairs_got,
            bytes_resumed: report.held_at_join,
            bytes_sent_since_join: report.sent_since_join,
            limited_by: limit(report.limited_by, plan).to_owned(),
            held_back: None,
            peer: report.peer,
            demoted: report.demoted.map(|reason| reason.to_string()),
            seconds: None,
            bytes_per_s: 0.0,
            root: None,
            error: None,
        };
        match &report.state {
            ReceiverState::Active { .. } => {}
            ReceiverState::Done { root, numbers } => {
                row.state = "proven";
                row.bytes = numbers.bytes;
                row.packets_lost = numbers.lost;
                row.repairs_asked = numbers.repairs_asked;
                row.repairs_got = numbers.repairs_got;
                row.seconds = report.took.map(|took| took.as_secs_f64());
                row.root = Some(hex(root));
            }
            ReceiverState::Failed { code, text } => {
                // A receiver that holds everything has not failed: the sender only stopped waiting
                // for its proof.
                let is_whole = row.bytes >= total && total > 0;
                let is_left = matches!(code, ErrorCode::Cancelled | ErrorCode::TimedOut);
                let is_unproven = is_whole && is_left;
                row.state = if is_unproven { "unproven" } else { "failed" };
                row.error = Some(text.clone());
            }
        }
        let got = row.bytes.saturating_sub(row.bytes_resumed);
        row.bytes_per_s = quantity::per_second(got, row.seconds.unwrap_or(transfer_seconds));
        row
    }

    /// Returns the row as text: a main line, and the details on lines below it.
    fn lines(&self, total: u64) -> String {
        let share = (self.bytes * 100).checked_div(total).unwrap_or(100);
        let mut line = format!(
            "{:<16} {:<8} {:>8} ({share} %)",
            self.name,
            self.state,
            quantity::bytes(self.bytes),
        );
        if let Some(seconds) = self.seconds {
            line += &format!(" in {}", quantity::seconds(seconds));
        }
        if self.bytes_per_s > 0.0 {
            line += &format!(", {}", quantity::bits(self.bytes_per_s * 8.0));
        }
        line += &format!(", lost {}\n", self.packets_lost);
        let mut more = vec![format!("at {}", self.address)];
        if self.bytes_resumed > 0 {
            more[0] += &format!("; {} held before", quantity::bytes(self.bytes_resumed));
        }
        if self.packets_lost > 0 || self.repairs_asked > 0 {
            let (asked, got) = (self.repairs_asked, self.repairs_got);
            more.push(format!("repairs asked {asked}, got {got}"));
        }
        if let Some(reason) = &self.demoted {
            more.push(format!("the rest over its own connection: {reason}"));
        }
        if self.state == "active" || self.held_back.is_some() {
            more.push(format!("limited by {}", self.limited_by));
        }
        if let Some(it) = &self.held_back {
            more.push(format!(
                "sender {:.0} %, receiver {:.0} %, send buffer {:.0} %, network {:.0} %",
                it.application_percent,
                it.receiver_percent,
                it.send_buffer_percent,
                it.network_percent
            ));
        }
        more.extend(self.error.clone());
        let more = more.iter().map(|text| format!("{:17}{text}\n", ""));
        line + &more.collect::<String>()
    }
}

impl Document for SendReport {
    const SCHEMA: &'static str = "towline.send";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.receivers {
            text += &row.lines(self.bytes);
        }
        if self.missing > 0 {
            let missing = count(self.missing.into(), "expected receiver");
            let names = self.missing_names.join(", ");
            let names = if names.is_empty() {
                names
            } else {
                format!(": {names}")
            };
            text += &format!("{missing} never joined{names}\n");
        }
        let is_failure = self.failure.is_some() && !self.is_interrupted;
        for row in &self.unreached {
            text += &format!("no receiver at {}: {}\n", row.address, row.why);
        }
        let is_nobody = self.missing > 0
            && self.receivers.is_empty()
            && self.unreached.is_empty()
            && !is_failure;
        if let (true, Some(refusal)) = (is_nobody, &self.refusal) {
            text += &format!("no receiver was admitted; the last was refused: {refusal}\n");
        } else if is_nobody {
            let told = "no receiver joined: `towline recv` must use the same group and port, on an \
                        interface that the group reaches, and with the same key; `towline reach` \
                        says what is in the way, and `recv` whether it takes this sender";
            wrap(&mut text, "", told);
        }
        text += &named("left out", self.unsent.iter().map(|row| row.why.clone()));
        if let Some(slowest) = &self.slowest {
            text += &format!("slowest: {slowest}\n");
        }
        if self.is_interrupted {
            text += "interrupted: receivers keep what they have; start both ends again to go on\n";
        }
        if let Some(failure) = &self.failure {
            text += &format!("the sender gave up: {failure}\n");
        }
        let verdict = if self.is_proven {
            "proven"
        } else {
            "NOT PROVEN"
        };
        let root = self.root.as_deref().unwrap_or("unknown");
        text += &format!(
            "{verdict}: {}, {} in {}",
            count(self.files, "file"),
            quantity::bytes(self.bytes),
            quantity::seconds(self.seconds),
        );
        // No rate is shown when nothing arrived, or when the receivers held everything already.
        if self.is_proven && self.bytes_per_s > 0.0 {
            text += &format!(", {}", quantity::bits(self.bytes_per_s * 8.0));
        }
        text + &format!("\nroot {root}\n") + &dropped(Some(&self.drops))
    }
}

/// A host of `--to` at which no receiver joined.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct UnreachedRow {
    pub(crate) address: String,
    pub(crate) why: String,
}

/// Returns the most bytes of content that a receiver with proven delivery lacked when it joined; 0
/// when none has proved delivery.
fn moved_bytes(outcome: &TransferOutcome) -> u64 {
    let done = outcome.receivers.iter().filter_map(|receiver| {
        let held = receiver.held_at_join.min(outcome.content_bytes);
        let is_done = matches!(receiver.state, ReceiverState::Done { .. });
        is_done.then_some(outcome.content_bytes - held)
    });
    done.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send() {
        let row = ReceiverRow {
            name: "host-b:incoming".into(),
            address: "10.0.0.2".into(),
            is_expected: true,
            state: "proven",
            bytes: 104_512_345,
            packets_lost: 1_505,
            repairs_asked: 1_610,
            repairs_got: 1_505,
            bytes_resumed: 50_000_000,
            bytes_sent_since_join: 54_512_345,
            limited_by: "the network".into(),
            held_back: None,
            peer: ([10, 0, 0, 1], 7_500).into(),
            demoted: None,
            seconds: Some(1.25),
            bytes_per_s: 43_609_876.0,
            root: Some("6e".repeat(32)),
            error: None,
        };
        let active = ReceiverRow {
            name: "host-c:incoming".into(),
            state: "active",
            bytes: 52_256_172,
            seconds: None,
            demoted: Some("it fell behind".into()),
            ..row.clone()
        };
        let mut report = SendReport {
            group: "239.192.0.1:7500".into(),
            is_proven: true,
            manifest: "ab".repeat(16),
            root: Some("6e".repeat(32)),
            files: 1_200,
            bytes: 104_512_345,
            seconds: 1.5,
            bytes_per_s: 69_674_896.0,
            receivers: vec![row],
            missing: 0,
            missing_names: Vec::new(),
            unreached: Vec::new(),
            slowest: None,
            multicast_bytes: 104_512_345,
            unicast_bytes: 0,
            unsent: Vec::new(),
            sums: None,
            is_interrupted: false,
            failure: None,
            refusal: None,
            drops: Counters::default(),
            counters: Counters::default(),
        };
        let mut text = report.text() + "\n";
        report.is_proven = false;
        report.receivers.push(active);
        (report.missing, report.missing_names) = (1, vec!["host-d".into()]);
        report.slowest = Some("host-c:incoming".into());
        report.unicast_bytes = 3_000_000;
        report.unsent = vec![UnsentRow {
            path: "site/locked".into(),
            why: "opening site/locked: permission denied".into(),
        }];
        report.failure = Some("interrupted".into());
        report.refusal = Some("the name host-b:incoming is taken".into());
        report.drops = Counters::of_losses().drops();
        text += &report.text();
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_row_of_a_receiver_and_its_remarks_fit_into_80_columns() {
        let mut row = ReceiverRow {
            name: "host-b:incoming1".into(),
            address: "2001:db8:1234:5678:9abc:def0:1234:5678".into(),
            is_expected: true,
            state: "unproven",
            bytes: 104_512_345,
            packets_lost: 1505,
            repairs_asked: 123_456,
            repairs_got: 123_456,
            bytes_resumed: 0,
            bytes_sent_since_join: 0,
            limited_by: "the network".into(),
            held_back: None,
            peer: ([10, 0, 0, 1], 7_500).into(),
            demoted: None,
            seconds: Some(0.0547),
            bytes_per_s: 394e6,
            root: None,
            error: None,
        };
        let line =
            "host-b:incoming1 unproven   105 MB (100 %) in 54.7 ms, 3.15 Gbit/s, lost 1505\n";
        let lines = row.lines(104_512_345);
        assert!(lines.starts_with(line), "{lines}");
        assert!(lines.lines().all(|line| line.len() <= 80), "{lines}");
        (row.packets_lost, row.repairs_asked) = (0, 0);
        row.error = Some("why".into());
        let more =
            "\n                 at 2001:db8:1234:5678:9abc:def0:1234:5678\n                 why\n";
        assert!(row.lines(1).ends_with(more), "{}", row.lines(1));
    }
}
