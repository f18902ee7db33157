//! Datagrams of a bare socket: the shortest round trips that host and network allow any protocol.

use std::path::PathBuf;

use lab::Lab;

use super::{Load, START, command};
use crate::{
    program::{self, Running, number_after},
    turns::Figures,
};

/// A program that does nothing but send and receive.
#[derive(Debug)]
pub(super) struct Bare {
    program: PathBuf,
}

impl Bare {
    pub(super) fn new() -> Result<Self, String> {
        program::compile("udppong.c", &[]).map(|program| Self { program })
    }

    /// Makes one run, and returns its median and 99.9th percentile in microseconds.
    pub(super) fn run(&self, lab: &Lab, load: Load, seconds: u32) -> Result<Figures, String> {
        let address = lab.host(1).ipv4().to_string();
        let mut there = command(lab, 1, &self.program, load);
        // The echo program gets twice the time of the run; it is killed when the run is over.
        there.args(["echo", &address, &(2 * seconds).to_string(), load.waits[1]]);
        let _echo = Running::start(&mut there)?;
        std::thread::sleep(START);
        let mut here = command(lab, 0, &self.program, load);
        here.args(["pong", &address, SIZE, &seconds.to_string(), load.waits[0]]);
        figures(&program::printed(&mut here)?)
    }
}

/// Reads the percentiles that a yardstick printed.
pub(super) fn figures(printed: &str) -> Result<Figures, String> {
    let at = |key: &str| number_after(printed, key).ok_or_else(|| format!("no {key} in {printed}"));
    // The first message may leave before the other end listens.
    if at("sent")? > at("got")? + 1.0 {
        return Err(format!("not every answer came: {printed}"));
    }
    Ok([at("p50")?, at("p99.9")?])
}

/// Payload bytes of a message, for the yardsticks in C as for `towline rtt`.
pub(super) const SIZE: &str = "64";
