//! Compares with nuttcp and iperf3 how many datagrams a second the receiver counts, by size.
//!
//! Every tool sends from one thread, and one thread of another host receives, through one cable,
//! with socket buffers of 8 MiB where the system permits. Only datagrams that arrive count.
//!
//! nuttcp works like Towline here: both ends make one system call for each datagram. iperf3 (3.12)
//! calls `pselect` before each `read` and before every ten `write`s, so its receiver makes two
//! calls for each datagram; at full speed its rate cannot be compared. At an equal offered rate,
//! and on a link that limits all of them, the three count the same.

use std::process::Command;

use lab::{Lab, LabSpec};

use crate::turns::{Row, Run, Turns};

mod tool;
use tool::Offered;

/// Prints the tables over `pairs` pairs at each size.
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
        println!("at {RATE} datagrams/s; required: within 10 % of each peer\n{HEADINGS}");
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

/// A function that runs a program against its server, with datagrams of one size.
type Measure = fn(&Lab, usize, Offered) -> Result<[f64; 2], String>;

/// Makes one run of Towline alone, at the rate of the tables.
#[cfg(test)]
pub(crate) fn alone(lab: &Lab) -> Result<[f64; 2], String> {
    tool::ours(lab, SIZES[2], Offered::Rate(RATE))
}

/// Returns the rivals that are installed.
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

/// Returns the rows: Towline, then the rivals, then Towline again to show the noise. `offered`
/// holds what Towline sends and what the rivals send.
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

/// The names of a run's two figures.
const COLUMNS: [&str; 2] = ["received/s", "sent/s"];

fn line(what: &str, row: &Row<'_>, more: &str) -> String {
    let [received, sent] = row.figures;
    format!(
        "{what:<10} {:<16} {received:>14.0} {sent:>14.0} {:>14.3}{more}",
        row.name, row.ratios[0]
    )
}

/// Compares on a slow link. Towline finds the link's rate by itself. The rivals offer a fifth more
/// than the link carries, so what they receive is the link's rate.
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
    // The bytes of a datagram that the token bucket counts.
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
        "{mbit_per_s} Mbit/s; required: within 3 % of this rate\n{}",
        text.join("\n")
    ))
}

/// Program, option that prints its version, title of its row, and function that runs it.
const TOOLS: [(&str, &str, &str, Measure); 2] = [
    ("nuttcp", "-V", "nuttcp -u", tool::nuttcp),
    ("iperf3", "--version", "iperf3 -u", tool::iperf3),
];
const HEADINGS: &str = "\
payload B  peer                 received/s         sent/s    ours / peer";
const SIZES: [usize; 5] = [64, 512, 1_024, 1_472, 8_192];
/// Datagrams a second that every tool can send and receive at every size, on this class of machine.
const RATE: u32 = 20_000;
/// Link rate in Mbit/s, and payload bytes.
const LIMITS: [(u32, usize); 3] = [(50, 1_000), (200, 1_472), (200, 512)];
const QUEUE_MS: u32 = 8;
/// Ethernet, IPv4 and UDP headers, as the kernel counts them.
const HEADER_BYTES: usize = 14 + 20 + 8;
