//! ZeroMQ over epgm, which is libpgm inside.

use std::path::PathBuf;

use lab::Lab;

use super::{GROUP, Peer, run_pair};
use crate::{
    program::{self, number_after},
    sample::Sample,
};

/// PUB and SUB with a rate far above what it reaches, and queues without bound.
#[derive(Debug)]
pub(crate) struct ZeroMq {
    program: PathBuf,
    size: usize,
}

impl ZeroMq {
    pub(crate) fn new(size: usize) -> Result<Self, String> {
        let flags = program::pkg_config("libzmq", "libzmq3-dev")?;
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Ok(Self {
            program: program::compile("zmqbench.c", &flags)?,
            size,
        })
    }
}

impl Peer for ZeroMq {
    fn name(&self) -> &'static str {
        "ZeroMQ 4.3 epgm (packs)"
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let count = match self.size {
            ..=256 => 1_000_000,
            _ => 100_000,
        };
        let [count_text, size] = [count, self.size].map(|number| number.to_string());
        let [to, from] = [1, 0].map(|host| lab.host(host).ipv4().to_string());
        let group = format!("{GROUP}:5555");
        let mut recv = lab.host(1).command(&self.program);
        recv.args(["recv", &to, &group, &count_text, RATE_KBIT]);
        let mut send = lab.host(0).command(&self.program);
        send.args(["send", &from, &group, &size, &count_text, RATE_KBIT]);
        let (_, received, mut sample) = run_pair(&mut recv, &mut send)?;
        let number = |key: &str| {
            number_after(&received, key).ok_or_else(|| format!("no '{key}' in ZeroMQ's output"))
        };
        let got = number("received")?;
        sample.rate = number("rate")?;
        sample.bytes = got * self.size as f64;
        sample.missing = (count as f64 - got + number("breaks")?) as u64;
        Ok(sample)
    }
}

const RATE_KBIT: &str = "3000000";
