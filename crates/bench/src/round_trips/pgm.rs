//! libpgm, one message at a time.

use std::{path::PathBuf, time::Duration};

use lab::Lab;

use super::START;
use crate::{
    program::{self, Ended, Running, number_after},
    turns::Figures,
};

/// The C library of OpenPGM 5.3 in its own bench program, a session in each direction.
#[derive(Debug)]
pub(super) struct Rival {
    program: PathBuf,
}

impl Rival {
    pub(super) fn new() -> Result<Self, String> {
        program::compile_with_libpgm().map(|program| Self { program })
    }

    /// Median and 99.9th percentile of one run, in microseconds. `wait`: `block` or `spin`.
    pub(super) fn run(&self, lab: &Lab, wait: &str, seconds: u32) -> Result<Figures, String> {
        let command = |host: usize, mode: &str| {
            let mut command = lab.host(host).command(&self.program);
            // By address: libpgm looks a name up in the DNS first, and fails where there is none.
            command.args([mode, &lab.host(host).ipv4().to_string(), GROUP]);
            command
        };
        let limit = seconds + LEAD_SECONDS;
        let mut there = command(1, "echo");
        let _echo = Ended::start(there.args([&(limit + LEAD_SECONDS).to_string(), wait]))?;
        std::thread::sleep(START);
        let mut here = command(0, "pong");
        here.args([SIZE, &limit.to_string(), wait]);
        let limit = Duration::from_secs(u64::from(limit)) + END_TIME_MAX;
        let text = Running::start(&mut here)?.finish(limit)?;
        let at = |key: &str| {
            number_after(&text, key).ok_or_else(|| format!("libpgm: no {key} in {text}"))
        };
        Ok([at("p50")?, at("p99.9")?])
    }
}

const GROUP: &str = "239.192.7.9";
/// As ours.
const SIZE: &str = "64";
/// It waits a second before it begins to count.
const LEAD_SECONDS: u32 = 1;
const END_TIME_MAX: Duration = Duration::from_secs(10);
