//! OpenPGM.

use std::path::PathBuf;

use lab::Lab;

use super::{GROUP, Peer, run_pair};
use crate::{
    program::{self, number_after},
    sample::Sample,
};

/// OpenPGM 5.3, the C library, in its own bench program, at the highest rate that loses nothing.
#[derive(Debug)]
pub(crate) struct Libpgm {
    program: PathBuf,
    size: usize,
}

impl Libpgm {
    pub(crate) fn new(size: usize) -> Result<Self, String> {
        let program = program::compile_with_libpgm()?;
        Ok(Self { program, size })
    }
}

impl Peer for Libpgm {
    fn name(&self) -> &'static str {
        "libpgm 5.3 (OpenPGM)"
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let count = LIBPGM_MESSAGES.to_string();
        let size = self.size.to_string();
        let mut recv = lab.host(1).command(&self.program);
        // An address and no name: libpgm looks names up in the DNS, and fails where there is none.
        recv.args(["recv", &lab.host(1).ipv4().to_string(), GROUP, "9"]);
        let mut send = lab.host(0).command(&self.program);
        send.args([
            "send",
            &lab.host(0).ipv4().to_string(),
            GROUP,
            &size,
            &count,
            "400000000",
        ]);
        let (_, received, mut sample) = run_pair(&mut recv, &mut send)?;
        let got = number_after(&received, "received").ok_or("no count in libpgm's output")?;
        sample.rate_per_s = number_after(&received, "s:").ok_or("no rate in libpgm's output")?;
        sample.bytes = got * self.size as f64;
        sample.missing = (LIBPGM_MESSAGES as f64 - got) as u64;
        Ok(sample)
    }
}

const LIBPGM_MESSAGES: u64 = 300_000;
