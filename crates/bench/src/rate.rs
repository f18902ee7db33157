//! The automatic rate, on slow cables and on a cable shared with TCP.
//!
//! The cable is a token bucket at the switch's port, with a queue of 16 ms. "Used" is the share of
//! the cable's rate that Towline's packets take, headers included. "Repaired" is the number of
//! packets sent again for each new one. Both are measured from four seconds after the start, as the
//! search for the rate has its own cost. The TCP rival is one CUBIC flow of iperf3, which runs all
//! the time.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabSpec};

use crate::{
    program::{self, Running, number_after},
    record,
    sample::spread,
};

/// Measures, and returns the table over `runs` runs of each case.
pub(crate) fn run(runs: usize) -> Result<String, String> {
    let mut text = format!(
        "{:<16} {:>8} {:>24} {:>24}\n",
        "cable", "beside", "ours, of the cable", "repaired for each sent"
    );
    let mut rows = Vec::new();
    for (mbit_per_s, has_rival) in CASES {
        let beside = if has_rival { "CUBIC" } else { "nobody" };
        let mut found = [Vec::new(), Vec::new()];
        for run in 1..=runs {
            let shares = steady(mbit_per_s, has_rival)?;
            let [used, repaired] = shares.map(|share| share * 100.0);
            eprintln!(
                "run {run} {mbit_per_s} Mbit/s beside {beside}: {used:.1} %, {repaired:.2} %"
            );
            found[0].push(used);
            found[1].push(repaired);
        }
        let runs = found[0].iter().zip(&found[1]);
        let runs = runs.map(|(&used, &repaired)| vec![used, repaired]);
        let name = format!("{mbit_per_s} Mbit/s beside {beside}");
        rows.push((name, runs.collect()));
        let [used, repaired] = found.map(shown);
        text += &format!("{mbit_per_s:>9} Mbit/s {beside:>8} {used:>24} {repaired:>24}\n");
    }
    let title = "the rate that sets itself: share of the line";
    record::raw("rate", title, &["% of the line", "% repaired"], &rows, 1)?;
    Ok(text)
}

/// Makes one run of the first case, and returns the share of the cable that it uses.
#[cfg(test)]
pub(crate) fn alone() -> Result<f64, String> {
    let (mbit_per_s, has_rival) = CASES[0];
    steady(mbit_per_s, has_rival).map(|[used, _]| used)
}

/// Makes one run. Returns the share of the cable that Towline uses, and the repaired packets for
/// each new one.
fn steady(mbit_per_s: u32, has_rival: bool) -> Result<[f64; 2], String> {
    let lab = Lab::new(&LabSpec::new(2).segments_at_switch()).map_err(|e| e.to_string())?;
    let bytes_per_s = mbit_per_s * 125_000;
    lab.set_bottleneck(1, bytes_per_s, bytes_per_s / 1000 * QUEUE_MS)
        .map_err(|e| e.to_string())?;
    let _rivals = has_rival.then(|| rivals(&lab)).transpose()?;
    let receiver = start(&lab, 1, "recv --timeout 30s")?;
    let words = format!(
        "send --receivers 1 --policy wait --rate auto --size 1400 --seconds {SEND_SECONDS}"
    );
    let sender = start(&lab, 0, &words)?;
    thread::sleep(START);
    let first = Sample::take(&sender)?;
    thread::sleep(WATCH);
    let last = Sample::take(&sender)?;
    let sent = sender.finish(END_TIME_MAX)?;
    let received = receiver.finish(END_TIME_MAX)?;
    if number_after(&sent, "\"messages\":") != number_after(&received, "\"messages\":") {
        return Err(format!("not complete: sent {sent}, received {received}"));
    }
    let seconds = (last.taken - first.taken).as_secs_f64();
    let packets = last.packets - first.packets;
    let repairs = last.repairs - first.repairs;
    let bytes = last.bytes - first.bytes + LINK_BYTES * (packets + repairs);
    let used = bytes / seconds / f64::from(bytes_per_s);
    Ok([used, repairs / packets.max(1.0)])
}

/// Starts a TCP flow through the same cable: its server and its client.
fn rivals(lab: &Lab) -> Result<[Running; 2], String> {
    let server = Running::start(lab.host(1).command("iperf3").args(["-s", "-1"]))?;
    thread::sleep(SERVER_START);
    let mut client = lab.host(0).command("iperf3");
    client.args(["-c", &lab.host(1).ipv4().to_string(), "-C", "cubic"]);
    let client = Running::start(client.args(["-t", "60"]))?;
    Ok([server, client])
}

fn start(lab: &Lab, host: usize, words: &str) -> Result<Running, String> {
    let mut command = lab.host(host).command(program::ours()?);
    command.arg("load").args(words.split_whitespace());
    Running::start(command.args(["--group", GROUP_AND_PORT, "--iface", "e0", "--json"]))
}

/// What the sender has sent so far.
struct Sample {
    taken: Instant,
    packets: f64,
    repairs: f64,
    bytes: f64,
}

impl Sample {
    fn take(sender: &Running) -> Result<Self, String> {
        let mut stat = Command::new(program::ours()?);
        let output = stat.args(["stat", &sender.process().to_string()]).output();
        let output = output.map_err(|error| format!("towline stat: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let count = |key| number_after(&text, key).ok_or_else(|| format!("no {key} in {text}"));
        Ok(Self {
            taken: Instant::now(),
            packets: count("source.odata_packets")?,
            repairs: count("source.rdata_packets")?,
            bytes: count("source.wire_bytes")?,
        })
    }
}

/// Returns the median of percentages, with the least and the greatest of them.
fn shown(values: Vec<f64>) -> String {
    let [low, middle, high] = spread(values);
    format!("{middle:.2} % ({low:.2} .. {high:.2})")
}

/// The cable's rate in Mbit/s, and whether a TCP flow uses the cable too.
const CASES: [(u32, bool); 4] = [(50, false), (200, false), (1000, false), (200, true)];
const QUEUE_MS: u32 = 16;
/// How long the search for the rate may take.
const START: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 4 });
/// How long the rate is watched after the search.
const WATCH: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 6 });
const SEND_SECONDS: u32 = if cfg!(test) { 4 } else { 12 };
const SERVER_START: Duration = Duration::from_millis(300);
const END_TIME_MAX: Duration = Duration::from_secs(60);
/// Bytes of the Ethernet header: the kernel counts them at the port, and the source does not.
const LINK_BYTES: f64 = 14.0;
const GROUP_AND_PORT: &str = "239.192.0.4:7504";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_the_runs_is_given_with_their_ends() {
        let text = shown(vec![97.0, 91.5, 95.0]);
        assert_eq!(text, "95.00 % (91.50 .. 97.00)");
    }
}
