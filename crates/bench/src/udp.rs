//! Datagrams as fast as can be, beside nuttcp and iperf3: what the receiver counts each second.
//!
//! All send from one thread and receive on another host's, through one cable, with sockets of 8 MiB
//! as far as the system permits. What a tool sends and nobody receives is no result.
//!
//! nuttcp is the peer of the same mode: one call for each datagram at both ends. iperf3 (3.12) asks
//! `pselect` before each `read` and before each ten `write`s, so its receiver makes two calls for
//! each datagram, and its rate is that of another mode.

use std::{process::Command, time::Duration};

use lab::{Host, Lab};

use crate::program::{self, Running, number_after};

/// The table of `pairs` pairs at each size.
pub(crate) fn run(pairs: usize, seconds: u32) -> Result<String, String> {
    let lab = Lab::new(&lab::LabSpec::new(2).direct()).map_err(|error| error.to_string())?;
    let mut peers: Vec<(&str, Measure)> = Vec::new();
    for (program, version, name, measure) in PEERS {
        if Command::new(program).arg(version).output().is_ok() {
            peers.push((name, measure));
        } else {
            eprintln!("skipped: {program} is not installed (Debian: {program})");
        }
    }
    let mut text = format!(
        "{:<10} {:<16} {:>14} {:>14} {:>14}\n",
        "payload B", "peer", "received/s", "sent/s", "ours / peer"
    );
    for size in SIZES {
        let mut runs: Vec<(&str, Measure)> = vec![("towline udp", ours)];
        runs.extend(&peers);
        runs.push(("towline (again)", ours));
        let mut figures = vec![Vec::new(); runs.len()];
        for pair in 1..=pairs {
            for ((name, measure), all) in runs.iter().zip(&mut figures) {
                let one = measure(&lab, size, seconds)?;
                let [received, sent] = one;
                eprintln!("pair {pair} {size} B {name}: {received:.0}/s of {sent:.0}/s");
                all.push(one);
            }
        }
        for ((name, _), all) in runs.iter().zip(&figures) {
            let [received, sent] = [0, 1].map(|which| median(all.iter().map(|one| one[which])));
            let pairs = figures[0].iter().zip(all);
            let ratio = median(pairs.map(|(ours, theirs)| ours[0] / theirs[0]));
            text += &format!("{size:<10} {name:<16} {received:>14.0} {sent:>14.0} {ratio:>14.2}\n");
        }
    }
    Ok(text)
}

/// Datagrams a second that were received, and sent.
type Measure = fn(&Lab, usize, u32) -> Result<[f64; 2], String>;

fn ours(lab: &Lab, size: usize, seconds: u32) -> Result<[f64; 2], String> {
    let program = program::ours()?;
    let mut there = lab.host(1).command(&program);
    there.args(["udp", "serve", "--quiet"]);
    let server = Running::start(&mut there)?;
    std::thread::sleep(START);
    let mut here = lab.host(0).command(&program);
    here.args(["udp", "run", &lab.host(1).ipv4().to_string(), "--json"]);
    here.args(["--quiet", "--flood", "--direction", "there"]);
    here.args(["--size", &size.to_string()]);
    here.args(["--time", &format!("{seconds}s")]);
    let report = answer(&mut here, server)?;
    let flow = &report["rows"][0]["flows"][0];
    let sent = flow["dispatch"]["sent"].as_f64();
    let lasted_ns = flow["dispatch"]["lasted_ns"].as_f64();
    let received = flow["received_per_s"].as_f64();
    let found = received.zip(sent.zip(lasted_ns));
    let (received, (sent, lasted_ns)) = found.ok_or("towline: the report lacks a figure")?;
    Ok([received, sent * 1e9 / lasted_ns])
}

fn iperf3(lab: &Lab, size: usize, seconds: u32) -> Result<[f64; 2], String> {
    let there: &Host = lab.host(1);
    let mut server = there.command("iperf3");
    server.args(["-s", "-1"]);
    let server = Running::start(&mut server)?;
    std::thread::sleep(START);
    let mut here = lab.host(0).command("iperf3");
    here.args(["-c", &there.ipv4().to_string(), "-u", "-b", "0", "-J"]);
    // As large as ours.
    here.args([
        "-w",
        "8M",
        "-l",
        &size.to_string(),
        "-t",
        &seconds.to_string(),
    ]);
    let report = answer(&mut here, server)?;
    let of = |name: &str| {
        let sum = &report["end"][name];
        let packets = sum["packets"].as_f64()? - sum["lost_packets"].as_f64()?;
        Some(packets / sum["seconds"].as_f64()?)
    };
    of("sum_received")
        .zip(of("sum_sent"))
        .map(|(received, sent)| [received, sent])
        .ok_or_else(|| format!("iperf3: {}", report["error"]))
}

fn nuttcp(lab: &Lab, size: usize, seconds: u32) -> Result<[f64; 2], String> {
    let there: &Host = lab.host(1);
    let mut server = there.command("nuttcp");
    server.args(["-S", "-1", "--nofork"]);
    let mut server = Running::start(&mut server)?;
    std::thread::sleep(START);
    let mut here = lab.host(0).command("nuttcp");
    here.args(["-u", "-Ru", "-w8m", "-fparse"]);
    here.args([format!("-l{size}"), format!("-T{seconds}")]);
    let output = here.arg(there.ipv4().to_string()).output();
    server.stop();
    let output = output.map_err(|error| format!("nuttcp: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // Of the datagrams that were sent, those that did not come.
    let found = [" pkt=", " drop=", " real_seconds="].map(|key| number_after(&text, key));
    let [Some(sent), Some(lost), Some(lasted_s)] = found else {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("nuttcp: no figures in {text} {said}"));
    };
    Ok([(sent - lost) / lasted_s, sent / lasted_s])
}

/// Runs a client and reads its report; the server ends with it.
fn answer(command: &mut Command, mut server: Running) -> Result<serde_json::Value, String> {
    let output = command.output().map_err(|error| error.to_string());
    server.stop();
    let output = output?;
    serde_json::from_slice(&output.stdout).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("{:?}: {error}: {said}", command.get_program())
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Program, how it is asked for its version, the row's title, and how it is run.
const PEERS: [(&str, &str, &str, Measure); 2] = [
    ("nuttcp", "-V", "nuttcp -u", nuttcp),
    ("iperf3", "--version", "iperf3 -u", iperf3),
];
const SIZES: [usize; 5] = [64, 512, 1_024, 1_472, 8_192];
/// A server needs a moment before it listens.
const START: Duration = Duration::from_millis(300);
