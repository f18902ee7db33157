//! ZeroMQ over epgm, which uses libpgm.

use std::path::PathBuf;

use lab::Lab;

use super::{GROUP, Peer, counted, run_pair};
use crate::{program, sample::Sample};

/// PUB and SUB, with a rate limit far above what ZeroMQ reaches, and unbounded queues.
#[derive(Debug)]
pub(crate) struct ZeroMq {
    program: PathBuf,
    size: usize,
}

impl ZeroMq {
    pub(crate) fn new(size: usize) -> Result<Self, String> {
        let program = program::compile_with("zmqbench.c", "libzmq", "libzmq3-dev")?;
        Ok(Self { program, size })
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
        let [count_text, size] = [count.to_string(), self.size.to_string()];
        let [to, from] = [1, 0].map(|host| lab.host(host).ipv4().to_string());
        let group = format!("{GROUP}:5555");
        let mut recv = lab.host(1).command(&self.program);
        recv.args(["recv", &to, &group, &count_text, RATE_KBIT]);
        let mut send = lab.host(0).command(&self.program);
        send.args(["send", &from, &group, &size, &count_text, RATE_KBIT]);
        let (_, received, sample) = run_pair(&mut recv, &mut send)?;
        counted(&received, count, self.size, sample)
    }
}

const RATE_KBIT: &str = "3000000";
