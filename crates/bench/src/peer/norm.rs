//! NORM (RFC 5740), in its authors' library.

use std::path::PathBuf;

use lab::Lab;

use super::{GROUP, Peer, counted, run_pair};
use crate::{program, sample::Sample};

/// NORM with one stream whose window the receiver acknowledges, at the rate at which NORM is
/// fastest.
#[derive(Debug)]
pub(crate) struct Norm {
    program: PathBuf,
    size: usize,
}

impl Norm {
    pub(crate) fn new(size: usize) -> Result<Self, String> {
        let program = program::compile_with("normbench.cpp", "norm", "libnorm-dev")?;
        Ok(Self { program, size })
    }
}

impl Peer for Norm {
    fn name(&self) -> &'static str {
        "NORM 1.5 (packs)"
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let count = match self.size {
            ..=256 => 2_000_000,
            _ => 200_000,
        };
        let [count_text, size] = [count.to_string(), self.size.to_string()];
        let session = ["e0", GROUP, PORT, &size, &count_text];
        let mut recv = lab.host(1).command(&self.program);
        recv.arg("recv").args(session);
        let mut send = lab.host(0).command(&self.program);
        send.arg("send").args(session).arg(RATE_BITS);
        let (_, received, sample) = run_pair(&mut recv, &mut send)?;
        counted(&received, count, self.size, sample)
    }
}

const PORT: &str = "7601";
/// The best of the rates from 0.7 to 3 Gbit/s, by the medians of three rounds at 64 B and at 1400
/// B. At higher rates the receiver's buffers overflow, and the repairs cost more than the rate
/// gains.
const RATE_BITS: &str = "1e9";
