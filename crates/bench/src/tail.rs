//! How late messages arrive when few packets are lost: messages of 224 bytes, 50,000 a second, to
//! three receivers that each lose one packet in 10,000.
//!
//! A delay counts from the time when its message was due, so a sender that stalls shows in the
//! figures. Rivals wait a short time before they ask for missing packets. The worst receiver of
//! each run counts. Two baselines show how late the machine itself is: bare datagrams without a
//! protocol, and processes that only sleep and wake up, without a network. Towline also runs with
//! ten times the loss, where most delays come from loss and not from the machine.

use std::{fmt::Write as _, path::PathBuf, process::Command, thread, time::Duration};

use lab::{Host, Lab, LabSpec};
use serde_json::Value;

use crate::{
    peer,
    program::{self, Running, number_after},
    record,
    sample::spread,
    turns::undisturbed,
};

/// The figures of one run, from its worst receiver.
#[derive(Clone, Copy, Debug, Default)]
struct Tail {
    p50_us: f64,
    p999_us: f64,
    /// How many messages were more than 500 us late, for each lost packet.
    late_for_each_loss: f64,
    missing: f64,
}

/// A program that sends on a schedule, with receivers that report how late messages arrived.
trait Rival {
    fn name(&self) -> &'static str;
    fn receiver(&self, host: &Host) -> Command;
    fn sender(&self, host: &Host) -> Command;
    /// Returns the N of "each receiver loses one packet in N".
    fn lost_of(&self) -> u32 {
        LOST_OF
    }
    /// Returns false for a program that sends nothing and so loses nothing. Its late messages are
    /// divided by the losses that the others have on average.
    fn has_network(&self) -> bool {
        true
    }
    /// Returns p50, p99.9, late messages and missing messages; both delays are in microseconds.
    fn figures(&self, received: &str) -> Option<[f64; 4]>;
}

/// Runs all programs in turn, and returns their table.
pub(crate) fn run(pairs: usize) -> Result<String, String> {
    let lab = Lab::new(&LabSpec::new(4).segments_at_switch()).map_err(|e| e.to_string())?;
    let ours = |lost_of| -> Result<Box<dyn Rival>, String> { Ok(Box::new(Ours::new(lost_of)?)) };
    let mut rivals = vec![ours(LOST_OF)?];
    let others: [Result<Box<dyn Rival>, String>; 4] = [
        program::compile_with_libpgm()
            .map(|program| Box::new(Yardstick("libpgm 5.3 (OpenPGM)", program)) as _),
        peer::Aeron::class_path().map(|class_path| Box::new(Aeron(class_path)) as _),
        program::compile("udptail.c", &[])
            .map(|program| Box::new(Yardstick("bare UDP, nothing repaired", program)) as _),
        program::compile("naptail.c", &[]).map(|program| Box::new(Naps(program)) as _),
    ];
    for rival in others {
        match rival {
            Ok(rival) => rivals.push(rival),
            Err(text) => eprintln!("skipped: {text}"),
        }
    }
    rivals.push(ours(LOST_OF / 10)?);
    let mut runs: Vec<Vec<Tail>> = vec![Vec::new(); rivals.len()];
    for pair in 1..=pairs {
        for (rival, runs) in rivals.iter().zip(&mut runs) {
            let tail = undisturbed("tail", rival.name(), || once(rival.as_ref(), &lab))?;
            eprintln!("pair {pair} {}: {tail:?}", rival.name());
            runs.push(tail);
        }
    }
    keep(&rivals, &runs)?;
    Ok(table(&rivals, &runs, pairs))
}

fn keep(rivals: &[Box<dyn Rival>], runs: &[Vec<Tail>]) -> Result<(), String> {
    let figures = |tail: &Tail| vec![tail.p50_us, tail.p999_us, tail.late_for_each_loss];
    let rows = rivals.iter().zip(runs);
    let rows: Vec<record::Row> = rows
        .map(|(rival, runs)| (rival.name().to_owned(), runs.iter().map(figures).collect()))
        .collect();
    let title = format!(
        "delay of {BYTES} B at {PER_SECOND}/s to {RECEIVERS} receivers, 0.01 % lost by default"
    );
    let columns = ["p50 us", "p99.9 us", "late for each packet lost"];
    record::raw("tail", &title, &columns, &rows, rows.len())
}

fn table(rivals: &[Box<dyn Rival>], runs: &[Vec<Tail>], pairs: usize) -> String {
    let mut text = format!(
        "delay of {BYTES} B at {PER_SECOND}/s to {RECEIVERS} receivers, 0.01 % lost by \
         default, {pairs} pairs, medians (min .. max)\n{:<26} {:>10} {:>28} {:>28} {:>9}\n",
        "peer", "p50 us", "p99.9 us", "late for each packet lost", "missing"
    );
    for (rival, runs) in rivals.iter().zip(runs) {
        let of = |pick: fn(&Tail) -> f64| spread(runs.iter().map(pick));
        let shown = |[low, mid, high]: [f64; 3]| format!("{mid:.1} ({low:.1} .. {high:.1})");
        // Writing to a string does not fail.
        let _ok = writeln!(
            text,
            "{:<26} {:>10.1} {:>28} {:>28} {:>9.0}",
            rival.name(),
            of(|tail| tail.p50_us)[1],
            shown(of(|tail| tail.p999_us)),
            shown(of(|tail| tail.late_for_each_loss)),
            of(|tail| tail.missing)[2],
        );
    }
    text
}

fn once(rival: &dyn Rival, lab: &Lab) -> Result<Tail, String> {
    for host in &lab.hosts()[1..] {
        let set = host.set_loss(1, rival.lost_of());
        set.map_err(|error| error.to_string())?;
    }
    let lost_before: Vec<u64> = (1..=RECEIVERS).map(|n| lost(lab, n)).collect();
    let mut receivers = Vec::new();
    for receiver in 1..=RECEIVERS {
        receivers.push(Running::start(&mut rival.receiver(lab.host(receiver)))?);
    }
    thread::sleep(Duration::from_millis(500));
    Running::start(&mut rival.sender(lab.host(0)))?.finish(RUN_LIMIT)?;
    let mut worst = Tail::default();
    for (nth, receiver) in receivers.into_iter().enumerate() {
        let text = receiver.finish(RUN_LIMIT)?;
        let [p50_us, p999_us, late, missing] = rival
            .figures(&text)
            .ok_or_else(|| format!("{}: no figures in {text}", rival.name()))?;
        let losses = if rival.has_network() {
            (lost(lab, nth + 1) - lost_before[nth]).max(1)
        } else {
            MESSAGES / u64::from(rival.lost_of())
        };
        worst.p50_us = worst.p50_us.max(p50_us);
        worst.p999_us = worst.p999_us.max(p999_us);
        worst.late_for_each_loss = worst.late_for_each_loss.max(late / losses as f64);
        worst.missing += missing;
    }
    Ok(worst)
}

fn lost(lab: &Lab, host: usize) -> u64 {
    lab.host(host).lost_packets().unwrap_or(0)
}

struct Ours {
    program: PathBuf,
    lost_of: u32,
    seconds: &'static str,
}

impl Ours {
    fn new(lost_of: u32) -> Result<Self, String> {
        Ok(Self {
            program: program::ours()?,
            lost_of,
            seconds: SECONDS,
        })
    }
}

/// Measures Towline alone, for a second and with ten times the loss; returns the delays p50 and
/// p99.9 in microseconds.
#[cfg(test)]
pub(crate) fn alone(lab: &Lab) -> Result<[f64; 2], String> {
    let ours = Ours {
        seconds: "1",
        ..Ours::new(LOST_OF / 10)?
    };
    let tail = once(&ours, lab)?;
    match tail.missing {
        0.0 => Ok([tail.p50_us, tail.p999_us]),
        missing => Err(format!("tail: {missing} missing")),
    }
}

impl Rival for Ours {
    fn name(&self) -> &'static str {
        if self.lost_of == LOST_OF {
            "towline load"
        } else {
            "towline load, 0.1 % lost"
        }
    }

    fn lost_of(&self) -> u32 {
        self.lost_of
    }

    fn receiver(&self, host: &Host) -> Command {
        let mut command = host.command(&self.program);
        command.args(["load", "recv", "--group", GROUP_AND_PORT, "--iface", "e0"]);
        command.args(["--stamp", "--json"]);
        command
    }

    fn sender(&self, host: &Host) -> Command {
        let mut command = host.command(&self.program);
        command.args(["load", "send", "--group", GROUP_AND_PORT, "--iface", "e0"]);
        let receivers = RECEIVERS.to_string();
        command.args(["--stamp", "--size", BYTES, "--per-second", PER_SECOND]);
        command.args(["--for", self.seconds, "--receivers", &receivers, "--json"]);
        command
    }

    fn figures(&self, received: &str) -> Option<[f64; 4]> {
        let report: Value = serde_json::from_str(received).ok()?;
        let delay = &report["delay"];
        let us = |name: &str| Some(delay[name].as_f64()? / 1e3);
        Some([
            us("p50_ns")?,
            us("p999_ns")?,
            delay["messages_late"].as_f64()?,
            report["missing"].as_f64()?,
        ])
    }
}

/// Reads the figures in a yardstick's output.
fn printed(text: &str) -> Option<[f64; 4]> {
    let names = ["p50", "p99.9", "late", "missing"];
    let mut figures = [0.0; 4];
    for (figure, name) in figures.iter_mut().zip(names) {
        *figure = number_after(text, name)?;
    }
    Some(figures)
}

/// One of our C programs, with its name in the table: over OpenPGM's library, or bare datagrams.
struct Yardstick(&'static str, PathBuf);

impl Yardstick {
    fn command(&self, host: &Host, verb: &str) -> Command {
        let mut command = host.command(&self.1);
        command.args([verb, &host.ipv4().to_string(), GROUP]);
        command
    }
}

impl Rival for Yardstick {
    fn name(&self) -> &'static str {
        self.0
    }

    fn receiver(&self, host: &Host) -> Command {
        let mut command = self.command(host, "tailr");
        command.arg(RECEIVE_SECONDS);
        command
    }

    fn sender(&self, host: &Host) -> Command {
        let mut command = self.command(host, "tails");
        command.args([BYTES, PER_SECOND, SECONDS]);
        command
    }

    fn figures(&self, received: &str) -> Option<[f64; 4]> {
        printed(received)
    }
}

/// Processes that take messages from the clock instead of the network.
struct Naps(PathBuf);

impl Naps {
    fn command(&self, host: &Host) -> Command {
        let mut command = host.command(&self.0);
        command.args([PER_SECOND, SECONDS]);
        command
    }
}

impl Rival for Naps {
    fn name(&self) -> &'static str {
        "naps of 50 us, no network"
    }

    fn receiver(&self, host: &Host) -> Command {
        self.command(host)
    }

    fn sender(&self, host: &Host) -> Command {
        self.command(host)
    }

    fn has_network(&self) -> bool {
        false
    }

    fn figures(&self, received: &str) -> Option<[f64; 4]> {
        printed(received)
    }
}

struct Aeron(String);

impl Aeron {
    fn command(&self, host: &Host, verb: &str, seconds: &str) -> Command {
        let mut command = host.command("java");
        command.args(["--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED", "-cp"]);
        let control = if verb == "tails" { "|fc=min" } else { "" };
        let channel = format!(
            "aeron:udp?endpoint={AERON_ENDPOINT}|interface={}{control}",
            host.ipv4()
        );
        command.args([&self.0, "AeronBench", verb, &channel, BYTES, seconds]);
        command
    }
}

impl Rival for Aeron {
    fn name(&self) -> &'static str {
        "Aeron 1.44 (Java, shared)"
    }

    fn receiver(&self, host: &Host) -> Command {
        self.command(host, "tailr", RECEIVE_SECONDS)
    }

    fn sender(&self, host: &Host) -> Command {
        let mut command = self.command(host, "tails", SECONDS);
        command.arg(PER_SECOND);
        command
    }

    fn figures(&self, received: &str) -> Option<[f64; 4]> {
        printed(received)
    }
}

const RECEIVERS: usize = 3;
const BYTES: &str = "224";
const PER_SECOND: &str = "50000";
const SECONDS: &str = "5";
/// Messages of a run: `PER_SECOND` times `SECONDS`.
const MESSAGES: u64 = 250_000;
/// Each receiver loses one packet in this many, unless a row says otherwise.
const LOST_OF: u32 = 10_000;
/// Seconds for which the yardsticks receive: start, sending, and the last repairs.
const RECEIVE_SECONDS: &str = "11";
const GROUP: &str = "239.192.7.5";
const GROUP_AND_PORT: &str = "239.192.7.5:7500";
/// Aeron demands that the last octet of a group address is odd.
const AERON_ENDPOINT: &str = "239.192.7.5:40457";
const RUN_LIMIT: Duration = Duration::from_secs(60);
