//! Round trips beside sockperf: one message at a time, and at fixed rates.
//!
//! Both count whole round trips between two applications by one clock, with blocking waits in the
//! one-at-a-time rows and the sender's own spinning in the rows with a rate. sockperf prints half a
//! round trip unless told otherwise; it is told.

use std::{fs, path::PathBuf, process::Command};

use lab::Lab;

use crate::program::{self, Running};

/// The table of `pairs` pairs at each load.
pub(crate) fn run(pairs: usize, seconds: u32) -> Result<String, String> {
    let lab = Lab::new(&lab::LabSpec::new(2).direct()).map_err(|error| error.to_string())?;
    let is_there = Command::new("sockperf").arg("--version").output().is_ok();
    if !is_there {
        eprintln!("skipped: sockperf is not installed (Debian: sockperf)");
    }
    let mut text = format!(
        "{:<12} {:<18} {:>10} {:>10} {:>24}\n",
        "load", "peer", "p50 us", "p99.9 us", "ours / peer, p50, p99.9"
    );
    for load in [None, Some(10_000), Some(20_000), Some(40_000)] {
        let mut runs: Vec<(&str, Measure)> = vec![("towline", ours)];
        if is_there {
            runs.push(("sockperf", sockperf));
        }
        runs.push(("towline (again)", ours));
        let mut figures = vec![Vec::new(); runs.len()];
        for pair in 1..=pairs {
            for ((name, measure), all) in runs.iter().zip(&mut figures) {
                let one = measure(&lab, load, seconds)?;
                let [p50, p999] = one;
                eprintln!("pair {pair} {name}: p50 {p50:.1} us, p99.9 {p999:.1} us");
                all.push(one);
            }
        }
        let label = load.map_or_else(|| "ping-pong".to_owned(), |rate| format!("{rate}/s"));
        for ((name, _), all) in runs.iter().zip(&figures) {
            let [p50, p999] = [0, 1].map(|which| median(all.iter().map(|one| one[which])));
            let ratio = |which: usize| {
                let pairs = figures[0].iter().zip(all);
                median(pairs.map(|(ours, theirs)| ours[which] / theirs[which]))
            };
            let ratios = format!("{:.2}, {:.2}", ratio(0), ratio(1));
            text += &format!("{label:<12} {name:<18} {p50:>10.1} {p999:>10.1} {ratios:>24}\n");
        }
    }
    Ok(text)
}

/// Median and 99.9th percentile of one run, in microseconds.
type Measure = fn(&Lab, Option<u32>, u32) -> Result<[f64; 2], String>;

fn ours(lab: &Lab, rate: Option<u32>, seconds: u32) -> Result<[f64; 2], String> {
    let program = program::ours()?;
    let mut there = lab.host(1).command(&program);
    let wait = if rate.is_some() { "spin" } else { "block" };
    there.args(["rtt", "reflect", "--quiet", "--wait", wait]);
    let _reflector = Ended(Running::start(&mut there)?);
    let result = Removed::new();
    let mut here = lab.host(0).command(&program);
    let target = lab.host(1).ipv4().to_string();
    here.args([
        "rtt",
        "run",
        &target,
        "--json",
        "--quiet",
        "--stamp-every",
        "0",
    ]);
    here.args(["--wait", wait, "--time", &format!("{seconds}s"), "--out"]);
    here.arg(&result.0);
    match rate {
        Some(rate) => here.args(["--rate", &rate.to_string()]),
        None => here.arg("--ping-pong"),
    };
    // The reflector needs a moment; the first greetings may go unheard, and are repeated.
    let output = here.output().map_err(|error| format!("towline: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("towline: {error}: {said}"))?;
    let at = |name: &str| {
        let ns = report["runs"][0]["rtt_actual"][name].as_f64();
        ns.map(|ns| ns / 1e3)
            .ok_or_else(|| format!("towline: no {name}: {said}"))
    };
    Ok([at("p50_ns")?, at("p999_ns")?])
}

fn sockperf(lab: &Lab, rate: Option<u32>, seconds: u32) -> Result<[f64; 2], String> {
    let address = lab.host(1).ipv4().to_string();
    let mut there = lab.host(1).command("sockperf");
    there.args(["server", "-i", &address, "-p", "7701"]);
    if rate.is_some() {
        // Never asleep, as ours in these rows.
        there.arg("--nonblocked");
    }
    let _server = Ended(
        Running::start(&mut there)
            .map_err(|error| format!("{error}: install sockperf (Debian: sockperf)"))?,
    );
    std::thread::sleep(std::time::Duration::from_millis(300));
    let mut here = lab.host(0).command("sockperf");
    here.arg(if rate.is_some() {
        "under-load"
    } else {
        "ping-pong"
    });
    here.args(["-i", &address, "-p", "7701", "-m", "64", "--full-rtt", "-t"]);
    here.arg(seconds.to_string());
    if let Some(rate) = rate {
        here.args([
            "--mps",
            &rate.to_string(),
            "--reply-every",
            "1",
            "--nonblocked",
        ]);
    }
    let output = here
        .output()
        .map_err(|error| format!("sockperf: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let at = |share: &str| {
        let line = text
            .lines()
            .find(|line| line.contains(&format!("percentile {share} ")));
        let value = line.and_then(|line| line.rsplit('=').next()?.trim().parse().ok());
        value.ok_or_else(|| format!("sockperf: no percentile {share} in {text}"))
    };
    Ok([at("50.000")?, at("99.900")?])
}

/// A server that is ended when dropped.
struct Ended(Running);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A result file that is removed when dropped.
struct Removed(PathBuf);

impl Removed {
    fn new() -> Self {
        let name = format!("towline-bench-{}.rtt", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        // It is not there when the run failed.
        drop(fs::remove_file(&self.0));
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
