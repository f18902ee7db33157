//! Our own message rate, at its defaults.

use std::path::PathBuf;

use lab::Lab;
use serde_json::Value;

use super::{GROUP_AND_PORT, Peer, run_pair};
use crate::{program, sample::Sample};

/// `towline load` at its defaults, or with messages that share packets.
#[derive(Debug)]
pub(crate) struct Towline {
    program: PathBuf,
    size: usize,
    is_packed: bool,
}

impl Towline {
    pub(crate) fn new(size: usize) -> Result<Self, String> {
        let program = program::ours()?;
        Ok(Self {
            program,
            size,
            is_packed: false,
        })
    }

    pub(crate) fn packed(size: usize) -> Result<Self, String> {
        Ok(Self {
            is_packed: true,
            ..Self::new(size)?
        })
    }
}

impl Peer for Towline {
    fn name(&self) -> &'static str {
        if self.is_packed {
            "towline load --pack"
        } else {
            "towline load"
        }
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let mut recv = lab.host(1).command(&self.program);
        recv.args([
            "load",
            "recv",
            "--group",
            GROUP_AND_PORT,
            "--iface",
            "e0",
            "--json",
        ]);
        let mut send = lab.host(0).command(&self.program);
        send.args([
            "load",
            "send",
            "--group",
            GROUP_AND_PORT,
            "--iface",
            "e0",
            "--json",
        ]);
        send.args(["--receivers", "1", "--seconds", "3", "--size"])
            .arg(self.size.to_string());
        if self.is_packed {
            send.arg("--pack");
        }
        let (sent, received, mut sample) = run_pair(&mut recv, &mut send)?;
        let [sent, received] = [sent, received].map(|text| {
            serde_json::from_str::<Value>(&text).map_err(|error| format!("{error} in {text}"))
        });
        let (sent, received) = (sent?, received?);
        let count = |document: &Value, key: &str| document[key].as_f64().unwrap_or(f64::NAN);
        sample.rate = count(&received, "messages_per_s");
        sample.bytes = count(&received, "bytes");
        let bad = ["missing", "corrupt", "duplicates", "out_of_order"];
        let bad: f64 = bad.iter().map(|key| count(&received, key)).sum();
        let missing = count(&sent, "messages") - count(&received, "messages") + bad;
        sample.missing = if missing == 0.0 {
            0
        } else {
            missing.abs().max(1.0) as u64
        };
        Ok(sample)
    }
}
