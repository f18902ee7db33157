//! libpgm, one message at a time.

use std::path::PathBuf;

use lab::Lab;

use super::{
    Load, START,
    bare::{SIZE, figures},
    command,
};
use crate::{
    program::{self, Running},
    turns::Figures,
};

/// OpenPGM 5.3, the C library, in its own bench program, with a session in each direction.
#[derive(Debug)]
pub(super) struct Rival {
    program: PathBuf,
}

impl Rival {
    pub(super) fn new() -> Result<Self, String> {
        program::compile_with_libpgm().map(|program| Self { program })
    }

    /// Makes one run, and returns its median and 99.9th percentile in microseconds.
    pub(super) fn run(&self, lab: &Lab, load: Load, seconds: u32) -> Result<Figures, String> {
        let command = |host: usize, mode: &str| {
            let mut command = command(lab, host, &self.program, load);
            // An address and no name: libpgm looks names up in the DNS, and fails where there is
            // none.
            command.args([mode, &lab.host(host).ipv4().to_string(), GROUP]);
            command
        };
        let limit = seconds + LEAD_SECONDS;
        let mut there = command(1, "echo");
        let _echo =
            Running::start(there.args([&(limit + LEAD_SECONDS).to_string(), load.waits[1]]))?;
        std::thread::sleep(START);
        let mut here = command(0, "pong");
        here.args([SIZE, &limit.to_string(), load.waits[0]]);
        figures(&program::printed(&mut here)?)
    }
}

const GROUP: &str = "239.192.7.9";
/// The program waits this long before it begins to count.
const LEAD_SECONDS: u32 = 1;
