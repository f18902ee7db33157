//! NORM (RFC 5740), in the library of its authors.

use std::path::PathBuf;

use lab::Lab;

use super::{GROUP, Peer, run_pair};
use crate::{
    program::{self, number_after},
    sample::Sample,
};

/// One stream whose window the receiver acknowledges, at the rate at which it was fastest.
#[derive(Debug)]
pub(crate) struct Norm {
    program: PathBuf,
    size: usize,
}

impl Norm {
    pub(crate) fn new(size: usize) -> Result<Self, String> {
        let flags = program::pkg_config("norm", "libnorm-dev")?;
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Ok(Self {
            program: program::compile("normbench.cpp", &flags)?,
            size,
        })
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
        let [count_text, size] = [count, self.size].map(|number| number.to_string());
        let session = ["e0", GROUP, PORT, &size, &count_text];
        let mut recv = lab.host(1).command(&self.program);
        recv.arg("recv").args(session);
        let mut send = lab.host(0).command(&self.program);
        send.arg("send").args(session).arg(RATE_BITS);
        let (_, received, mut sample) = run_pair(&mut recv, &mut send)?;
        let number = |key: &str| {
            number_after(&received, key).ok_or_else(|| format!("no '{key}' in NORM's output"))
        };
        let got = number("received")?;
        sample.rate = number("rate")?;
        sample.bytes = got * self.size as f64;
        sample.missing = (count as f64 - got + number("breaks")?) as u64;
        Ok(sample)
    }
}

const PORT: &str = "7601";
/// Above it, packets that the receiver has no room for cost more than the rate brings.
const RATE_BITS: &str = "1e9";
