//! Compares datagrams by size with nuttcp and iperf3: what the receiver counts each second.
//!
//! All send from one thread and receive on another host's, through one cable, with sockets of 8 MiB
//! as far as the system permits. What a tool sends and nobody receives is no result.
//!
//! nuttcp is the peer of the same mode: one call for each datagram at both ends. iperf3 (3.12) asks
//! `pselect` before each `read` and before each ten `write`s, so its receiver makes two calls for
//! each datagram, and as fast as can be its rate is that of another mode. At an equal offered rate,
//! and on a link that limits all, the three count the same.

use std::process::Command;

use lab::{Lab, LabSpec};

use crate::turns::{Row, Run, Turns};

mod tool;
use tool::Offered;

/// Prints the tables of `pairs` pairs at each size.
pub(crate) fn run(pairs: usize, parts: &[String]) -> Result<(), String> {
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    let lab = Lab::new(&LabSpec::new(2).direct()).map_err(|error| error.to_string())?;
    let tools = tools();
    if wants("udp-flood") {
        println!("as fast as can be\n{HEADINGS}");
        for size in SIZES {
            let peers = peers(&lab, &tools, size, [Offered::Flood; 2]);
            println!("{}", table("as fast as can be", size, pairs, &peers)?);
        }
    }
    if wants("udp-rate") {
        println!("at {RATE} datagrams/s; bar: within 10 % of each peer\n{HEADINGS}");
        for size in SIZES {
            let peers = peers(&lab, &tools, size, [Offered::Rate(RATE); 2]);
            println!("{}", table(&format!("at {RATE}/s"), size, pairs, &peers)?);
        }
    }
    if wants("udp-limit") {
        println!("through a link of less\n{HEADINGS}");
        for (mbit_per_s, size) in LIMITS {
            println!("{}", limited(&tools, mbit_per_s, size, pairs)?);
        }
    }
    Ok(())
}

/// The parts that can be asked for by name.
pub(crate) const PARTS: [&str; 3] = ["udp-flood", "udp-rate", "udp-limit"];

/// Runs a program against its server at a size.
type Measure = fn(&Lab, usize, Offered) -> Result<[f64; 2], String>;

/// Ours, at the rate of the tables.
#[cfg(test)]
pub(crate) fn alone(lab: &Lab) -> Result<[f64; 2], String> {
    tool::ours(lab, SIZES[2], Offered::Rate(RATE))
}

/// What is installed of the peers.
fn tools() -> Vec<(&'static str, Measure)> {
    let is_there = |(program, version, ..): &(&str, &str, &str, Measure)| {
        let is_there = Command::new(program).arg(version).output().is_ok();
        if !is_there {
            eprintln!("skipped: {program} is not installed (Debian: {program})");
        }
        is_there
    };
    let all = TOOLS.into_iter().filter(is_there);
    all.map(|(_, _, name, measure)| (name, measure)).collect()
}

/// Ours first and last, as the noise; `offered` is ours, and the others'.
fn peers<'a>(
    lab: &'a Lab,
    tools: &[(&'static str, Measure)],
    size: usize,
    offered: [Offered; 2],
) -> Vec<(&'static str, Run<'a>)> {
    let [ours, theirs] = offered;
    let one =
        |measure: Measure, offered| -> Run<'a> { Box::new(move || measure(lab, size, offered)) };
    let mut peers = vec![("towline udp", one(tool::ours, ours))];
    peers.extend(
        tools
            .iter()
            .map(|&(name, measure)| (name, one(measure, theirs))),
    );
    peers.push(("towline (again)", one(tool::ours, ours)));
    peers
}

fn table(
    group: &str,
    size: usize,
    pairs: usize,
    peers: &[(&str, Run<'_>)],
) -> Result<String, String> {
    let what = size.to_string();
    let turns = Turns::take(&what, pairs, peers)?;
    turns.keep(&format!("datagrams of {size} B, {group}"), COLUMNS)?;
    let lines = turns.rows().map(|row| line(&what, &row, ""));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// What the two figures of a run are.
const COLUMNS: [&str; 2] = ["received/s", "sent/s"];

fn line(what: &str, row: &Row<'_>, more: &str) -> String {
    let [received, sent] = row.figures;
    format!(
        "{what:<10} {:<16} {received:>14.0} {sent:>14.0} {:>14.3}{more}",
        row.name, row.ratios[0]
    )
}

/// Ours finds the rate of the link by itself; the others offer a fifth more than it takes, and what
/// they receive is the link's rate.
fn limited(
    tools: &[(&'static str, Measure)],
    mbit_per_s: u32,
    size: usize,
    pairs: usize,
) -> Result<String, String> {
    let lab = Lab::new(&LabSpec::new(2).segments_at_switch()).map_err(|it| it.to_string())?;
    let bytes_per_s = mbit_per_s * 125_000;
    lab.set_bottleneck(1, bytes_per_s, bytes_per_s / 1_000 * QUEUE_MS)
        .map_err(|error| error.to_string())?;
    // What the token bucket counts of each datagram.
    let frame = (size + HEADER_BYTES) as f64;
    let most = f64::from(bytes_per_s) / frame;
    let offered = [Offered::Highest, Offered::Rate((most * 1.2) as u32)];
    let what = format!("{size} B");
    let turns = Turns::take(&what, pairs, &peers(&lab, tools, size, offered))?;
    let title = format!("datagrams of {size} B through a line of {mbit_per_s} Mbit/s");
    turns.keep(&title, COLUMNS)?;
    let lines = turns.rows().map(|row| {
        let share = row.figures[0] / most * 100.0;
        line(
            &what,
            &row,
            &format!("{share:>9.2} % of {mbit_per_s} Mbit/s"),
        )
    });
    let text: Vec<String> = lines.collect();
    Ok(format!(
        "{mbit_per_s} Mbit/s; bar: within 3 % of it\n{}",
        text.join("\n")
    ))
}

/// Program, how it is asked for its version, the row's title, and how it is run.
const TOOLS: [(&str, &str, &str, Measure); 2] = [
    ("nuttcp", "-V", "nuttcp -u", tool::nuttcp),
    ("iperf3", "--version", "iperf3 -u", tool::iperf3),
];
const HEADINGS: &str = "\
payload B  peer                 received/s         sent/s    ours / peer";
const SIZES: [usize; 5] = [64, 512, 1_024, 1_472, 8_192];
/// What each tool can send and receive at every size, on this class of machine.
const RATE: u32 = 20_000;
/// Link rate in Mbit/s, and payload bytes.
const LIMITS: [(u32, usize); 3] = [(50, 1_000), (200, 1_472), (200, 512)];
const QUEUE_MS: u32 = 8;
/// Ethernet, IPv4 and UDP, as the kernel counts them.
const HEADER_BYTES: usize = 14 + 20 + 8;
