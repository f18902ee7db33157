//! Runs the programs, and reads how many datagrams a second they received and sent.

use std::time::Duration;

use lab::Lab;

use crate::{
    program::{self, Running, number_after},
    turns::Figures,
};

/// How many datagrams a program sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offered {
    /// As many as the program can.
    Flood,
    /// Datagrams each second.
    Rate(u32),
    /// The highest rate with less than 0.1 % loss; only Towline searches for it.
    Highest,
}

pub(super) fn ours(lab: &Lab, size: usize, offered: Offered) -> Result<Figures, String> {
    let program = program::ours()?;
    let mut there = lab.host(1).command(&program);
    let _server = Running::start(there.args(["udp", "serve", "--quiet"]))?;
    std::thread::sleep(START);
    let mut here = lab.host(0).command(&program);
    here.args(["udp", "run", &lab.host(1).ipv4().to_string(), "--json"]);
    here.args(["--quiet", "--direction", "there"]);
    here.args(["--size", &size.to_string()]);
    match offered {
        Offered::Flood => here.arg("--flood"),
        Offered::Rate(rate) => here.args(["--rate", &rate.to_string()]),
        // A search makes many trials, each with a length of its own.
        Offered::Highest => &mut here,
    };
    if offered != Offered::Highest {
        here.args(["--time", &format!("{SECONDS}s")]);
    }
    let report = program::answer(&mut here)?;
    let flow = &report["rows"][0]["flows"][0];
    let sent = flow["dispatch"]["sent"].as_f64();
    let lasted_ns = flow["dispatch"]["lasted_ns"].as_f64();
    let received = flow["received_per_s"].as_f64();
    let found = received.zip(sent.zip(lasted_ns));
    let (received, (sent, lasted_ns)) = found.ok_or("towline: the report lacks a figure")?;
    Ok([received, sent * 1e9 / lasted_ns])
}

pub(super) fn iperf3(lab: &Lab, size: usize, offered: Offered) -> Result<Figures, String> {
    let mut there = lab.host(1).command("iperf3");
    let _server = Running::start(there.args(["-s", "-1"]))?;
    std::thread::sleep(START);
    let mut here = lab.host(0).command("iperf3");
    let bits_per_s = match offered {
        Offered::Rate(rate) => u64::from(rate) * size as u64 * 8,
        Offered::Flood | Offered::Highest => 0,
    };
    here.args(["-c", &lab.host(1).ipv4().to_string(), "-u", "-J"]);
    here.args(["-b", &bits_per_s.to_string()]);
    // The socket buffer is as large as Towline's.
    here.args(["-w", "8M", "-l", &size.to_string()]);
    let report = program::answer(here.args(["-t", &SECONDS.to_string()]))?;
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

pub(super) fn nuttcp(lab: &Lab, size: usize, offered: Offered) -> Result<Figures, String> {
    let mut there = lab.host(1).command("nuttcp");
    let _server = Running::start(there.args(["-S", "-1", "--nofork"]))?;
    std::thread::sleep(START);
    let mut here = lab.host(0).command("nuttcp");
    let rate = match offered {
        Offered::Rate(rate) => format!("-R{rate}p"),
        Offered::Flood | Offered::Highest => "-Ru".to_owned(),
    };
    here.args(["-u", &rate, "-w8m", "-fparse"]);
    here.args([format!("-l{size}"), format!("-T{SECONDS}")]);
    let output = here.arg(lab.host(1).ipv4().to_string()).output();
    let output = output.map_err(|error| format!("nuttcp: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // `drop` counts the datagrams that were sent and did not arrive.
    let found = [" pkt=", " drop=", " real_seconds="].map(|key| number_after(&text, key));
    let [Some(sent), Some(lost), Some(lasted_s)] = found else {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("nuttcp: no figures in {text} {said}"));
    };
    Ok([(sent - lost) / lasted_s, sent / lasted_s])
}

const SECONDS: u32 = if cfg!(test) { 1 } else { 2 };
/// A server needs a moment before it listens.
const START: Duration = Duration::from_millis(300);
