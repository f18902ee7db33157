//! Round trips beside sockperf and libpgm, one at a time and at fixed rates, and how well the
//! schedule is kept.
//!
//! All count whole round trips between two applications by one clock.

use std::{process::Command, time::Duration};

use lab::{Lab, LabSpec};

use crate::turns::{Figures, Run, Turns};

mod maps;

mod ours;
use ours::{Load, Over, ours};

mod pacing;

mod pgm;

mod sockperf;

/// Prints the tables of `pairs` pairs at each load.
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
    // It writes into the repository: by name only.
    if parts.iter().any(|part| part == "rtt-maps") {
        println!("{}", maps::draw(&lab)?);
    }
    Ok(())
}

/// The parts that can be asked for by name.
pub(crate) const PARTS: [&str; 4] = ["rtt-sockperf", "rtt-pgm", "rtt-pacing", "rtt-maps"];

/// Waits block in the one-at-a-time rows, and both ends spin in the rows with a rate. sockperf
/// prints half a round trip unless told otherwise; it is told.
fn beside_sockperf(lab: &Lab, pairs: usize) -> Result<String, String> {
    let is_there = Command::new("sockperf").arg("--version").output().is_ok();
    if !is_there {
        eprintln!("skipped: sockperf is not installed (Debian: sockperf)");
    }
    let mut text = HEADINGS.to_owned();
    for rate in [None, Some(10_000), Some(20_000), Some(40_000)] {
        let wait = if rate.is_some() { "spin" } else { "block" };
        let load = Load { rate, wait };
        let mut peers: Vec<(&str, Run<'_>)> = vec![("towline", one(lab, Over::Udp, load))];
        if is_there {
            peers.push((
                "sockperf",
                Box::new(move || sockperf::run(lab, load, SECONDS)),
            ));
        }
        peers.push(("towline (again)", one(lab, Over::Udp, load)));
        text += &table(&load.name(), pairs, &peers)?;
    }
    Ok(text)
}

/// One message at a time through PGM sessions, beside the same through plain datagrams, and beside
/// libpgm; both ends wait alike.
fn over_pgm(lab: &Lab, pairs: usize) -> Result<String, String> {
    let rival = pgm::Rival::new();
    let mut text = format!("over PGM; bars: p50 at most 1.30 of UDP's, below libpgm's\n{HEADINGS}");
    for wait in ["block", "spin"] {
        let load = Load { rate: None, wait };
        let mut peers: Vec<(&str, Run<'_>)> = vec![
            ("towline PGM", one(lab, Over::Pgm, load)),
            ("towline UDP", one(lab, Over::Udp, load)),
        ];
        match &rival {
            Ok(rival) => peers.push((
                "libpgm 5.3",
                Box::new(move || rival.run(lab, wait, SECONDS)),
            )),
            Err(text) => eprintln!("skipped: {text}"),
        }
        peers.push(("towline PGM (again)", one(lab, Over::Pgm, load)));
        text += &table(&format!("{}, {wait}", load.name()), pairs, &peers)?;
    }
    Ok(text)
}

fn one(lab: &Lab, over: Over, load: Load) -> Run<'_> {
    Box::new(move || {
        let report = ours(lab, over, load, SECONDS)?;
        ours::percentiles(&report)
    })
}

/// The rows of one load.
fn table(what: &str, pairs: usize, peers: &[(&str, Run<'_>)]) -> Result<String, String> {
    let turns = Turns::take(what, pairs, peers)?;
    let line = |row: crate::turns::Row<'_>| {
        let [p50, p999]: Figures = row.figures;
        let ratios = format!("{:.2}, {:.2}", row.ratios[0], row.ratios[1]);
        let name = row.name;
        format!("{what:<17} {name:<20} {p50:>10.1} {p999:>10.1} {ratios:>24}\n")
    };
    Ok(turns.rows().map(line).collect())
}

const HEADINGS: &str = "\
load              peer                     p50 us   p99.9 us  ours / peer, p50, p99.9
";
const SECONDS: u32 = 5;
/// A server needs a moment before it listens.
const START: Duration = Duration::from_millis(300);
