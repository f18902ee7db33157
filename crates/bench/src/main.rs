//! `make bench`: message rates, file transfers, round trips and captures, compared with rivals and
//! with the kernel's own ceiling.
//!
//! The hosts are on virtual cables. In every pair Towline and the peers run one after the other, so
//! that a slow moment of a shared machine meets all. The table gives medians over the pairs, and
//! beside each the processor time of the whole machine (`/proc/stat`). A run counts only when its
//! receivers got everything, except that bare UDP may lose datagrams. When the hypervisor took more
//! than 1 % of the time, the run is repeated, after a wait of at most some 20 s for a calm machine.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "talking to the person who benchmarks is this program's job"
)]

use std::{path::PathBuf, process::ExitCode};

mod before;
mod capture;
mod fec;
mod files;
mod machine;
mod matrix;
mod page;
mod parity;
mod peer;
mod program;
mod rate;
mod record;
mod round_trips;
mod sample;
#[cfg(test)]
mod smoke;
mod soak;
mod table;
mod tail;
mod tcp;
mod turns;
mod udp;

use peer::{Aeron, Libpgm, Norm, Peer, RawUdp, Towline, ZeroMq};
use sample::{Sample, Series};
use turns::TRIES;

fn main() -> ExitCode {
    let request = match Request::parse(std::env::args().skip(1)) {
        Ok(request) => request,
        Err(text) => {
            eprintln!("bench: {text}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if request.is_page {
        return finish(page::draw().map(|line| println!("{line}")));
    }
    let halt_poll = request.is_halt_poll.then(machine::HaltPoll::set);
    if let Some(Err(refusal)) = &halt_poll {
        eprintln!("bench: {refusal}");
        return ExitCode::from(2);
    }
    if let Err(refusal) = lab::enter_user_namespace_or_explain() {
        eprintln!("bench: {refusal}");
        return ExitCode::from(2);
    }
    let outcome = match request.soak_seconds {
        Some(seconds) => soak(seconds).map(|line| println!("{line}")),
        None => run(&request),
    };
    finish(outcome)
}

fn finish(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("bench: {text}");
            ExitCode::FAILURE
        }
    }
}

/// The parsed command line.
#[derive(Debug)]
struct Request {
    groups: Vec<String>,
    pairs: usize,
    sizes: Vec<usize>,
    soak_seconds: Option<u64>,
    is_halt_poll: bool,
    /// Measure nothing, but draw the book's page of figures from the results in the repository.
    is_page: bool,
    /// An older build of Towline to compare with.
    before: Option<PathBuf>,
}

impl Request {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut request = Self {
            groups: Vec::new(),
            pairs: PAIRS,
            sizes: vec![1400, 64],
            soak_seconds: None,
            is_halt_poll: false,
            is_page: false,
            before: None,
        };
        while let Some(arg) = args.next() {
            if GROUPS.contains(&arg.as_str()) || is_part(&arg) {
                request.groups.push(arg);
                continue;
            }
            if arg == "--halt-poll" {
                request.is_halt_poll = true;
                continue;
            }
            if arg == "page" {
                request.is_page = true;
                continue;
            }
            let text = args.next();
            if arg == "--out" {
                let path = text.ok_or("--out wants a directory")?;
                record::into(program::root().join(path));
                continue;
            }
            if arg == "--before" {
                let path = text.ok_or("--before wants the path of a program")?;
                request.before = Some(path.into());
                continue;
            }
            let value = text.and_then(|text| text.parse::<usize>().ok());
            match (arg.as_str(), value) {
                ("--pairs", Some(count)) => request.pairs = count,
                ("--size", Some(size)) => request.sizes = vec![size],
                ("--soak", Some(seconds)) if seconds >= SOAK_SECONDS_LEAST => {
                    request.soak_seconds = Some(seconds as u64);
                }
                ("--soak", _) => {
                    return Err(format!(
                        "--soak wants a number of seconds, {SOAK_SECONDS_LEAST} or more"
                    ));
                }
                ("--pairs" | "--size", None) => return Err(format!("{arg} wants a number")),
                _ => return Err(format!("'{arg}' is not an option")),
            }
        }
        Ok(request)
    }

    fn wants(&self, group: &str) -> bool {
        self.groups.is_empty() || self.groups.iter().any(|wanted| wanted == group)
    }

    /// Returns the wanted parts of a group. An empty list stands for all parts, `None` for a group
    /// that is not wanted.
    fn parts(&self, group: &str, parts: &[&str]) -> Option<Vec<String>> {
        let is_asked = |part: &&String| parts.contains(&part.as_str());
        let asked: Vec<String> = self.groups.iter().filter(is_asked).cloned().collect();
        (self.wants(group) || !asked.is_empty()).then_some(asked)
    }
}

/// Returns true for the name of a part of some group.
fn is_part(name: &str) -> bool {
    capture::PARTS.contains(&name)
        || round_trips::PARTS.contains(&name)
        || tcp::PARTS.contains(&name)
        || udp::PARTS.contains(&name)
}

fn soak(seconds: u64) -> Result<String, String> {
    soak::run(&lossy_lab(1)?, &program::ours()?, seconds)
}

fn run(request: &Request) -> Result<(), String> {
    println!("{}", machine::describe());
    if let Some(program) = &request.before {
        println!(
            "{}",
            before::run(request.pairs, program, |group| request.wants(group))?
        );
        return Ok(());
    }
    if request.wants("fec") {
        println!("{}", fec::run(request.pairs)?);
    }
    if request.wants("messages") {
        messages(request)?;
    }
    if request.wants("matrix") {
        println!("{}", matrix::run(request.pairs)?);
    }
    if request.wants("parity") {
        println!("{}", parity::run(request.pairs)?);
    }
    if request.wants("tail") {
        println!("{}", tail::run(request.pairs)?);
    }
    if request.wants("files") {
        one_file(&lossy_lab(3)?, request.pairs)?;
    }
    if request.wants("trees") {
        small_files(&lossy_lab(3)?, request.pairs)?;
    }
    if let Some(parts) = request.parts("tcp", &tcp::PARTS) {
        tcp::run(request.pairs, &parts, compare)?;
    }
    if let Some(parts) = request.parts("rtt", &round_trips::PARTS) {
        round_trips::run(request.pairs, &parts)?;
    }
    if let Some(parts) = request.parts("udp", &udp::PARTS) {
        udp::run(request.pairs, &parts)?;
    }
    if request.wants("rate") {
        println!("{}", rate::run(request.pairs)?);
    }
    if let Some(parts) = request.parts("capture", &capture::PARTS) {
        capture::run(request.pairs, &parts)?;
    }
    Ok(())
}

fn messages(request: &Request) -> Result<(), String> {
    let lab = lab::Lab::new(&lab::LabSpec::new(2).direct()).map_err(|e| e.to_string())?;
    println!("two hosts, one virtual cable, MTU 1500, super-packets whole\n");
    for &size in &request.sizes {
        let mut peers: Vec<Box<dyn Peer>> = vec![Box::new(Towline::new(size)?)];
        add(&mut peers, Libpgm::new(size));
        add(&mut peers, ZeroMq::new(size));
        add(&mut peers, Aeron::new(size));
        add(&mut peers, Norm::new(size));
        add(&mut peers, RawUdp::new(size, 1));
        if size <= PACKED_SIZE_MAX {
            peers.push(Box::new(Towline::packed(size)?));
        }
        peers.push(Box::new(Towline::keyed(size)?));
        peers.push(Box::new(Towline::new(size)?));
        let title = format!("messages of {size} B, {} pairs", request.pairs);
        let series = compare(&lab, &peers, request.pairs, "msg/s")?;
        record::keep(&format!("messages-{size}"), &title, "msg/s", &series)?;
    }
    Ok(())
}

/// A longer message does not share its packet with another one.
const PACKED_SIZE_MAX: usize = 700;

/// Makes a lab of a sender, a switch, and `receivers` hosts that each lose 1 % of the packets.
fn lossy_lab(receivers: u8) -> Result<lab::Lab, String> {
    let spec = lab::LabSpec::new(1 + receivers).segments_at_switch();
    let lab = lab::Lab::new(&spec).map_err(|e| e.to_string())?;
    for host in &lab.hosts()[1..] {
        host.set_loss(1, 100).map_err(|e| e.to_string())?;
    }
    println!("one sender, {receivers} receivers, 1 % of packets lost at each, one switch\n");
    Ok(lab)
}

fn one_file(lab: &lab::Lab, pairs: usize) -> Result<(), String> {
    let load = files::Load::make("one", 1, 300_000_000)?;
    let keyed = files::Ours::keyed("towline send --key-file", &load)?;
    let peers: [Box<dyn Peer + '_>; 6] = [
        Box::new(files::Ours::files("towline send", &load)),
        Box::new(keyed),
        Box::new(files::Uftp { load: &load }),
        Box::new(files::Udpcast { load: &load }),
        Box::new(files::Ceiling::new()?),
        Box::new(files::Ours::files("towline send (again)", &load)),
    ];
    let title = format!("one file of 300 MB, {pairs} pairs");
    let series = compare(lab, &peers, pairs, "MB/s")?;
    record::keep("files", &title, "MB/s", &series)
}

fn small_files(lab: &lab::Lab, pairs: usize) -> Result<(), String> {
    let small = files::Load::make("small", 20_000, 4096)?;
    let whole = files::Load::make("whole", 1, 20_000 * 4096)?;
    let peers: [Box<dyn Peer + '_>; 3] = [
        Box::new(files::Ours::directory(
            "directory of 20,000 files of 4 KiB",
            &small,
        )),
        Box::new(files::Ours::directory(
            "directory of one file of their size",
            &whole,
        )),
        Box::new(files::Ours::files(
            "the 20,000 files named one by one",
            &small,
        )),
    ];
    let title = format!("many files beside one, {pairs} pairs");
    let series = compare(lab, &peers, pairs, "MB/s")?;
    record::keep("trees", &title, "MB/s", &series)
}

/// Adds a peer. When it is not available on this machine, the table has no row for it.
fn add<P: Peer + 'static>(peers: &mut Vec<Box<dyn Peer>>, peer: Result<P, String>) {
    match peer {
        Ok(peer) => peers.push(Box::new(peer)),
        Err(text) => eprintln!("skipped: {text}"),
    }
}

/// Runs all peers in turn, `pairs` times. The table leaves out a peer that had no valid run in some
/// pair. When that is the first peer, which is Towline, the bench fails.
fn compare(
    lab: &lab::Lab,
    peers: &[Box<dyn Peer + '_>],
    pairs: usize,
    unit: &str,
) -> Result<Vec<Series>, String> {
    let mut series: Vec<Option<Series>> = peers
        .iter()
        .map(|peer| Some(Series::new(peer.name())))
        .collect();
    for pair in 1..=pairs {
        for (nth, (peer, slot)) in peers.iter().zip(&mut series).enumerate() {
            let Some(series) = slot else { continue };
            match measure_valid(peer.as_ref(), lab) {
                Ok(sample) => {
                    eprintln!("pair {pair} {}: {sample} {unit}", peer.name());
                    series.push(sample);
                }
                Err(text) if nth == 0 => return Err(text),
                Err(text) => {
                    println!("left out: {text}");
                    *slot = None;
                }
            }
        }
    }
    Ok(series.into_iter().flatten().collect())
}

/// Makes one run that counts: complete, and on a machine that no other work disturbed.
fn measure_valid(peer: &dyn Peer, lab: &lab::Lab) -> Result<Sample, String> {
    let mut last = String::new();
    let (mut failures, mut incomplete) = (0, 0);
    for nth in 0..TRIES {
        if nth > 0 {
            machine::await_calm();
        }
        match peer.run(lab) {
            Ok(sample) if sample.steal_permille > machine::STEAL_PERMILLE_MAX => {
                last = format!("steal {} permille", sample.steal_permille);
            }
            Ok(sample) if sample.missing > 0 => {
                incomplete += 1;
                last = format!("{} missing", sample.missing);
            }
            Ok(sample) => return Ok(sample),
            // A program that hangs would take its whole time limit at each try.
            Err(text) if failures == FAILURES_MAX => {
                return Err(format!("{}: {text}", peer.name()));
            }
            Err(text) => {
                failures += 1;
                last = text;
            }
        }
        eprintln!("{}: void: {last}", peer.name());
        if incomplete > INCOMPLETE_MAX {
            break;
        }
    }
    Err(format!("{}: no valid run: {last}", peer.name()))
}

const USAGE: &str = "\
usage: make bench ARGS=\"[fec] [messages] [matrix] [tail] [parity] [files] [trees] [tcp] [rtt] \
             [udp] [rate] [capture] [--pairs N] [--size B] [--halt-poll]\"
       make bench ARGS=\"--before PROGRAM [--pairs N]\": nothing but ours beside an older program
       of ours, by messages, files, files over TCP, round trips and captures, or by those groups
       that are named
       of some also a part: capture-rate -cost -small -send -gaps -read, rtt-sockperf -pgm -pacing,
       tcp-file -loss -far -tree, udp-flood -rate -limit; --halt-poll: on a guest whose idle
       processors wake up slowly, with the kernel's own guest_halt_poll_ns, put back at the end
       --out DIR keeps the runs as JSON there instead of in target/bench; `page` draws
       docs/src/bench.md from docs/bench, and measures nothing
       make soak ARGS=[SECONDS], at least 8";
/// The groups that a command line can name; without any name, all groups run.
const GROUPS: [&str; 12] = [
    "fec", "messages", "matrix", "tail", "parity", "files", "trees", "tcp", "rtt", "udp", "rate",
    "capture",
];
const PAIRS: usize = 7;
/// How many runs of a peer may fail before one that counts.
const FAILURES_MAX: usize = 1;
/// How many runs of a peer may be incomplete before one that counts.
const INCOMPLETE_MAX: usize = 4;
/// The shortest soak. A shorter one has too few samples to tell growth from what happens at the
/// start.
const SOAK_SECONDS_LEAST: usize = 8;
