//! `towline rtt` between two hosts.

use std::{
    fs,
    path::{Path, PathBuf},
};

use lab::Lab;
use serde_json::Value;

use super::command;
use crate::{
    program::{self, Running},
    turns::Figures,
};

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Udp,
    Pgm,
}

/// How often messages leave, and how the ends wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Messages each second. With `None`, each message leaves when the answer to the message before
    /// it has come.
    pub(super) rate: Option<u32>,
    /// How the client waits for its slots and answers, and the server for messages.
    pub(super) waits: [&'static str; 2],
    /// The processors of the client and of the server; with `None` the scheduler chooses.
    pub(super) processors: Option<[u8; 2]>,
}

impl Load {
    pub(super) fn name(self) -> String {
        let rate = match self.rate {
            Some(rate) => format!("{rate}/s"),
            None => "ping-pong".to_owned(),
        };
        let place = match self.processors {
            Some([here, there]) if here == there => ", 1 cpu",
            Some(_) => ", 2 cpus",
            None => "",
        };
        let [here, there] = self.waits;
        if here == there {
            format!("{rate}, {here}{place}")
        } else {
            format!("{rate}, {here}, {there}{place}")
        }
    }
}

/// Measures once, and returns the report of `rtt run --json`.
pub(super) fn ours(lab: &Lab, over: Over, load: Load, seconds: u32) -> Result<Value, String> {
    ours_into(lab, over, load, seconds, &Removed::new())
}

/// Measures as [`ours`] does, and keeps every message in `result`.
pub(super) fn ours_into(
    lab: &Lab,
    over: Over,
    load: Load,
    seconds: u32,
    result: &Removed,
) -> Result<Value, String> {
    let program = program::ours()?;
    let (over, target) = match over {
        Over::Udp => ("udp", lab.host(1).ipv4().to_string()),
        Over::Pgm => ("pgm", GROUP.to_owned()),
    };
    let mut there = command(lab, 1, &program, load);
    there.args(["rtt", "reflect", "--quiet", "--over", over]);
    there.args(["--wait", load.waits[1]]);
    if over == "pgm" {
        there.args(["--listen", GROUP]);
    }
    // The reflector needs a moment to start; the client repeats greetings that nobody heard.
    let _reflector = Running::start(&mut there)?;
    let mut here = command(lab, 0, &program, load);
    here.args(["rtt", "run", &target, "--json", "--quiet", "--over", over]);
    here.args(["--stamp-every", "0", "--wait", load.waits[0]]);
    here.args(["--time", &format!("{seconds}s"), "--out"]);
    here.arg(&result.0);
    match load.rate {
        Some(rate) => here.args(["--rate", &rate.to_string()]),
        None => here.arg("--ping-pong"),
    };
    program::answer(&mut here)
}

/// Returns median and 99.9th percentile of a report's first run, from actual times, in
/// microseconds.
pub(super) fn percentiles(report: &Value) -> Result<Figures, String> {
    let times = &report["runs"][0]["rtt_actual"];
    let at = |name: &str| {
        let ns = times[name].as_f64();
        ns.map(|ns| ns / 1e3)
            .ok_or_else(|| format!("towline: no {name} in {report}"))
    };
    Ok([at("p50_ns")?, at("p999_ns")?])
}

/// A result file that is removed when dropped.
pub(super) struct Removed(PathBuf);

impl Removed {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn new() -> Self {
        let name = format!("towline-bench-{}.rtt", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        // There is no file when the run failed.
        drop(fs::remove_file(&self.0));
    }
}

const GROUP: &str = "239.192.7.2:7720";
