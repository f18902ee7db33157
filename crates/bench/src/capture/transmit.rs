//! Which program sends fastest, and which keeps its schedule best.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use lab::Lab;

use super::{Scratch, keep, listener::Listener, tool::is_installed};
use crate::{machine::arrived_and_sent, program, turns::undisturbed};

/// A function that makes a sender's command.
type Make<'a> = dyn Fn() -> Result<Command, String> + 'a;

/// Measures how many packets a second reach the other end when no schedule limits the sender.
pub(super) fn top_speed(lab: &Lab, scratch: &Scratch, pairs: usize) -> Result<String, String> {
    let trace = scratch.file("frames.pcap");
    make_trace(lab, "gen:size=60,count=200000", &trace)?;
    let packets = scratch.file("frames.cfg");
    // The bytes of the trace's first packet.
    let first = fs::read(&trace).map_err(|error| format!("{}: {error}", trace.display()))?;
    let bytes = first.get(40..100).ok_or("the trace is empty")?;
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:#04x}")).collect();
    fs::write(&packets, format!("{{ {} }}\n", bytes.join(", "))).map_err(|e| e.to_string())?;

    let source = format!("pcap:{}", trace.display());
    let ours = |source: &str, sink: &str, more: &[&str]| {
        let mut command = lab.host(0).command(program::ours()?);
        command
            .args(["replay", source, "-o", sink, "--top-speed", "--quiet"])
            .args(more);
        Ok::<Command, String>(command)
    };
    let trafgen = |arguments: &[&str]| {
        let mut command = lab.host(0).command("trafgen");
        command
            .arg("--in")
            .arg(&packets)
            .args(["--out", "e0", "-P", "1", "-n", "0"]);
        command.args(arguments);
        Ok(command)
    };
    let tcpreplay = |arguments: &[&str]| {
        let mut command = lab.host(0).command("tcpreplay");
        command
            .args(["-i", "e0", "--topspeed", "--loop", "0", "-q"])
            .args(arguments);
        command.arg(&trace);
        Ok(command)
    };
    let endless = ["--loop", "0"];
    let rows: [(&str, &Make<'_>); 7] = [
        ("towline ring: (file)", &|| {
            ours(&source, "ring:e0", &endless)
        }),
        ("trafgen", &|| trafgen(&[])),
        ("tcpreplay", &|| tcpreplay(&[])),
        ("tcpreplay --preload-pcap", &|| {
            tcpreplay(&["--preload-pcap"])
        }),
        ("towline ring: (generated)", &|| {
            ours("gen:size=60", "ring:e0", &[])
        }),
        ("towline int: (file)", &|| ours(&source, "int:e0", &endless)),
        ("towline ring: (file, again)", &|| {
            ours(&source, "ring:e0", &endless)
        }),
    ];
    let mut results = Vec::new();
    for (name, _) in &rows {
        results.push(((*name).to_owned(), Vec::new()));
    }
    for pair in 1..=pairs {
        for ((name, command), (_, rates)) in rows.iter().zip(&mut results) {
            let rate = undisturbed("sending", name, || sending_rate(lab, &mut command()?))?;
            eprintln!("pair {pair} {name}: {rate:.0} packets/s");
            rates.push(rate);
        }
    }
    let title = format!("sending 64 B frames at top speed, {pairs} pairs");
    keep(&title, "packets/s", 0, &results)
}

/// Measures how evenly scheduled packets leave, by the time stamps that the other end takes.
pub(super) fn gaps(lab: &Lab, scratch: &Scratch, pairs: usize) -> Result<String, String> {
    let mut text = String::new();
    for rate in [10_000_u64, 20_000, 40_000] {
        let trace = scratch.file("paced.pcap");
        let count = rate * GAP_SECONDS;
        make_trace(lab, &format!("gen:size=60,count={count}"), &trace)?;
        let source = format!("pcap:{}", trace.display());
        let ours = || {
            let mut command = lab.host(0).command(program::ours()?);
            command.args(["replay", &source, "-o", "ring:e0", "--quiet"]);
            command.args(["--pps", &rate.to_string()]);
            Ok::<Command, String>(command)
        };
        let tcpreplay = |timer: &str| {
            let mut command = lab.host(0).command("tcpreplay");
            command.args(["-i", "e0", "-q", "--preload-pcap", timer]);
            command.args(["--pps", &rate.to_string()]).arg(&trace);
            Ok(command)
        };
        let rows: [(&str, &Make<'_>); 4] = [
            ("towline replay", &ours),
            ("tcpreplay --timer=nano", &|| tcpreplay("--timer=nano")),
            ("tcpreplay --timer=gtod", &|| tcpreplay("--timer=gtod")),
            ("towline replay (again)", &ours),
        ];
        let mut results = Vec::new();
        for (name, _) in &rows {
            results.push(((*name).to_owned(), Vec::new()));
        }
        for pair in 1..=pairs {
            for ((name, command), (_, errors)) in rows.iter().zip(&mut results) {
                let error = undisturbed("gaps", name, || {
                    gap_error(lab, scratch, &mut command()?, rate)
                })?;
                eprintln!("pair {pair} {rate}/s {name}: p99 {error:.1} us");
                errors.push(error);
            }
        }
        let title = format!("error of gaps at {rate} packets/s, {pairs} pairs");
        text += &keep(&title, "us (p99)", 1, &results)?;
        text.push('\n');
    }
    Ok(text)
}

/// Writes a trace of generated frames, each stamped with the time at which it is to leave.
fn make_trace(lab: &Lab, source: &str, path: &Path) -> Result<(), String> {
    let mut command = lab.host(0).command(program::ours()?);
    let sink = format!("pcap:{}", path.display());
    program::complete(command.args(["capture", source, "-o", &sink, "--quiet"]))
}

/// Returns the packets a second that arrive while `command` runs; NaN when the program is not
/// installed.
fn sending_rate(lab: &Lab, command: &mut Command) -> Result<f64, String> {
    if !is_there(command) {
        return Ok(f64::NAN);
    }
    let sender = Listener::start(command)?;
    thread::sleep(START);
    let begun = Instant::now();
    let (first, _) = arrived_and_sent(lab.host(1))?;
    thread::sleep(STEADY);
    let (last, _) = arrived_and_sent(lab.host(1))?;
    let seconds = begun.elapsed().as_secs_f64();
    let said = sender.interrupt()?;
    if last == first {
        return Err(format!("{:?} sends nothing: {said}", command.get_program()));
    }
    Ok((last - first) as f64 / seconds)
}

/// Returns by how many microseconds gaps between packets are too long or too short, as the 99th
/// percentile. The receiver's kernel stamps the packets. NaN when the program is not installed.
fn gap_error(
    lab: &Lab,
    scratch: &Scratch,
    command: &mut Command,
    rate: u64,
) -> Result<f64, String> {
    if !is_there(command) {
        return Ok(f64::NAN);
    }
    let file = scratch.file("arrived.pcap");
    let mut capture = lab.host(1).command(program::ours()?);
    let sink = format!("pcap:{}", file.display());
    capture.args(["capture", "ring:e0", "-o", &sink, "--quiet", "--json"]);
    capture.args(["--filter", "udp dst port 9"]);
    let capture = Listener::start(&mut capture)?;
    thread::sleep(START);
    Listener::start(command)?.finish(Duration::from_secs(30))?;
    thread::sleep(START);
    capture.interrupt()?;
    let bytes = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let stamps = stamps(&bytes);
    let wanted = 1e6 / rate as f64;
    let mut errors: Vec<f64> = stamps
        .windows(2)
        .map(|pair| ((pair[1] - pair[0]) as f64 / 1e3 - wanted).abs())
        .collect();
    errors.sort_by(f64::total_cmp);
    if (errors.len() as u64) < rate * GAP_SECONDS / 2 {
        return Err(format!("only {} of the packets arrived", errors.len()));
    }
    Ok(errors[errors.len() * 99 / 100])
}

/// Returns the time stamps, in nanoseconds, of a classic pcap file that Towline wrote.
fn stamps(file: &[u8]) -> Vec<i64> {
    let mut rest = file.get(24..).unwrap_or_default();
    let mut stamps = Vec::new();
    while let Some((head, tail)) = rest.split_first_chunk::<16>() {
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        stamps.push(i64::from(word(0)) * 1_000_000_000 + i64::from(word(4)));
        rest = tail.get(word(8) as usize..).unwrap_or_default();
    }
    stamps
}

fn is_there(command: &Command) -> bool {
    let program = command.get_program().to_string_lossy();
    program.contains('/') || is_installed(&program)
}

const START: Duration = Duration::from_millis(500);
const STEADY: Duration = Duration::from_secs(2);
const GAP_SECONDS: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_read_from_a_classic_file() {
        let mut file = vec![0; 24];
        for (seconds, nanos) in [(1_u32, 5_u32), (2, 7)] {
            for word in [seconds, nanos, 3, 3] {
                file.extend(word.to_le_bytes());
            }
            file.extend([1, 2, 3]);
        }
        assert_eq!(stamps(&file), [1_000_000_005, 2_000_000_007]);
    }
}
