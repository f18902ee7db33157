//! Compares round trips with sockperf, libpgm and bare sockets, one at a time and at fixed rates,
//! and measures how well the schedule is kept.
//!
//! All programs count whole round trips between two applications, by one clock.

use std::{ffi::OsStr, process::Command, time::Duration};

use lab::{Lab, LabSpec};

use crate::{
    program,
    turns::{Figures, Run, Turns},
};

mod bare;

mod maps;

mod ours;
use ours::{Load, Over, ours};

mod pacing;

mod pgm;

mod sockperf;

/// Prints the tables over `pairs` pairs at each load.
pub(crate) fn run(pairs: usize, parts: &[String]) -> Result<(), String> {
    let lab = Lab::new(&LabSpec::new(2).direct()).map_err(|error| error.to_string())?;
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    if wants("rtt-sockperf") {
        println!("{}", beside_sockperf(&lab, pairs)?);
    }
    if wants("rtt-pgm") {
        println!("{}", over_pgm(&lab, pairs)?);
    }
    if wants("rtt-pacing") {
        println!("{}", pacing::run(&lab)?);
    }
    // This part writes into the repository, so it runs only when it is named.
    if parts.iter().any(|part| part == "rtt-maps") {
        println!("{}", maps::measure(&lab)?);
    }
    Ok(())
}

/// The parts that can be asked for by name.
pub(crate) const PARTS: [&str; 4] = ["rtt-sockperf", "rtt-pgm", "rtt-pacing", "rtt-maps"];

/// Compares with sockperf, which is told to print whole round trips instead of halves.
///
/// At a fixed rate sockperf's sending thread always spins, which keeps its processor awake, and a
/// second thread receives. The nearest setting of Towline is a client that spins and a server that
/// blocks. Towline's one thread also spins for answers, while sockperf's second thread is woken for
/// each. When all spin, three threads of sockperf share two processors, and the figures show the
/// scheduler's time slices.
fn beside_sockperf(lab: &Lab, pairs: usize) -> Result<String, String> {
    let is_there = Command::new("sockperf").arg("--version").output().is_ok();
    if !is_there {
        eprintln!("skipped: sockperf is not installed (Debian: sockperf)");
    }
    let at_a_rate = [["spin", "block"], ["spin"; 2]].map(|waits| {
        [10_000, 20_000, 40_000].map(|rate| Load {
            rate: Some(rate),
            waits,
            processors: None,
        })
    });
    let mut text = HEADINGS.to_owned();
    let [one_cpu, two] = one_at_a_time("block");
    let at_a_rate = at_a_rate.into_iter().flatten();
    for load in [one_cpu].into_iter().chain(at_a_rate).chain([two]) {
        let mut peers: Vec<(&str, Run<'_>)> = vec![("towline", one(lab, Over::Udp, load))];
        if is_there {
            peers.push((
                "sockperf",
                Box::new(move || sockperf::run(lab, load, SECONDS)),
            ));
        }
        peers.push(("towline (again)", one(lab, Over::Udp, load)));
        text += &table("round trips beside sockperf", load, pairs, &peers)?;
    }
    Ok(text)
}

/// Compares one message at a time through PGM sessions with plain datagrams, libpgm and bare
/// sockets. Both ends wait in the same way.
///
/// With blocking waits on two processors the comparison is unfair, because an idle processor wakes
/// up slowly. A program that computes longer after sending is still awake when the answer comes,
/// and a bare socket, which computes least, looks slowest. The row of bare sockets shows this.
fn over_pgm(lab: &Lab, pairs: usize) -> Result<String, String> {
    let (rival, bare) = (pgm::Rival::new(), bare::Bare::new()?);
    let bare = &bare;
    let mut text = format!("{PGM_BARS}{HEADINGS}");
    let [one_cpu, two] = one_at_a_time("block");
    let [_, spinning] = one_at_a_time("spin");
    for load in [one_cpu, spinning, two] {
        let mut peers: Vec<(&str, Run<'_>)> = vec![
            ("towline PGM", one(lab, Over::Pgm, load)),
            ("towline UDP", one(lab, Over::Udp, load)),
        ];
        match &rival {
            Ok(rival) => peers.push((
                "libpgm 5.3",
                Box::new(move || rival.run(lab, load, SECONDS)),
            )),
            Err(text) => eprintln!("skipped: {text}"),
        }
        peers.push(("bare UDP", Box::new(move || bare.run(lab, load, SECONDS))));
        peers.push(("towline PGM (again)", one(lab, Over::Pgm, load)));
        text += &table("round trips over PGM", load, pairs, &peers)?;
    }
    Ok(text)
}

/// Returns two loads: both ends on one processor, and each end on a processor of its own. Without
/// fixed processors the scheduler moves the ends between these two states, and a run mixes them. On
/// one processor, waking the other end is a switch of threads. On another processor it ends that
/// processor's idle state, which takes several times as long.
fn one_at_a_time(wait: &'static str) -> [Load; 2] {
    [[0, 0], [0, 1]].map(|processors| Load {
        rate: None,
        waits: [wait; 2],
        processors: Some(processors),
    })
}

/// Runs `program` on a host of the lab, with all its threads on the processor that `load` gives
/// that end. That includes Towline's thread that writes the results, which rivals do not have.
fn command(lab: &Lab, host: usize, program: impl AsRef<OsStr>, load: Load) -> Command {
    match load.processors {
        None => lab.host(host).command(program),
        Some(processors) => {
            program::on_processor(usize::from(processors[host]), lab.host(host), program)
        }
    }
}

fn one(lab: &Lab, over: Over, load: Load) -> Run<'_> {
    Box::new(move || {
        let report = ours(lab, over, load, SECONDS)?;
        ours::percentiles(&report)
    })
}

/// Returns two measurements of one message at a time over PGM, each with the name of its load.
pub(crate) fn over_pgm_alone(lab: &Lab) -> [(String, Run<'_>); 2] {
    let [one_cpu, _] = one_at_a_time("block");
    let [_, spinning] = one_at_a_time("spin");
    [one_cpu, spinning].map(|load| (load.name(), one(lab, Over::Pgm, load)))
}

/// Measures all peers with one load, and returns the rows.
fn table(
    group: &str,
    load: Load,
    pairs: usize,
    peers: &[(&str, Run<'_>)],
) -> Result<String, String> {
    let what = load.name();
    let turns = Turns::take(&what, pairs, peers)?;
    turns.keep(&format!("{group}: {what}"), ["p50 us", "p99.9 us"])?;
    let line = |row: crate::turns::Row<'_>| {
        let [p50, p999]: Figures = row.figures;
        let ratios = format!("{:.2}, {:.2}", row.ratios[0], row.ratios[1]);
        let name = row.name;
        format!("{what:<24} {name:<20} {p50:>10.1} {p999:>10.1} {ratios:>24}\n")
    };
    Ok(turns.rows().map(line).collect())
}

const HEADINGS: &str = "\
load                     peer                     p50 us   p99.9 us  ours / peer, p50, p99.9
";
/// Seconds of one run: with round trips of 85 us, 35 of them are above p99.9.
const SECONDS: u32 = if cfg!(test) { 1 } else { 3 };
const PGM_BARS: &str = "\
over PGM; bars: p50 at most 1.30 of UDP's, below libpgm's (what blocks on 2 cpus: see bare UDP)
";
/// A server needs a moment before it listens.
const START: Duration = Duration::from_millis(300);
