//! Towline's own message rate.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use lab::Lab;
use serde_json::Value;

use super::{GROUP_AND_PORT, Peer, run_group};
use crate::{program, sample::Sample};

/// `towline load` until every receiver has everything, with its defaults except for `more` at the
/// sender. The rate is that of the slowest receiver.
#[derive(Debug)]
pub(crate) struct Towline {
    name: &'static str,
    program: PathBuf,
    size: usize,
    receivers: usize,
    /// Further options of the sender.
    more: &'static [&'static str],
    /// Both ends share the key in this file.
    key: Option<PathBuf>,
    /// Each end stays on one processor.
    is_pinned: bool,
}

impl Towline {
    /// Makes a peer that sends messages of `size` bytes to host 1.
    pub(crate) fn new(size: usize) -> Result<Self, String> {
        Self::told("towline load", size, 1, &[])
    }

    /// Makes a peer whose messages share packets.
    pub(crate) fn packed(size: usize) -> Result<Self, String> {
        Self::told("towline load --pack", size, 1, &["--pack"])
    }

    /// Makes a peer whose messages are encrypted and authenticated.
    pub(crate) fn keyed(size: usize) -> Result<Self, String> {
        let plain = Self::told("towline load --key-file", size, 1, &[])?;
        let key = Some(program::key_file()?);
        Ok(Self { key, ..plain })
    }

    /// Makes a peer that sends messages to the hosts from 1 to `receivers`, with `more` on the
    /// sender's command line.
    pub(crate) fn told(
        name: &'static str,
        size: usize,
        receivers: usize,
        more: &'static [&'static str],
    ) -> Result<Self, String> {
        let program = program::ours()?;
        Ok(Self {
            name,
            program,
            size,
            receivers,
            more,
            key: None,
            is_pinned: false,
        })
    }

    /// Keeps each end on one processor, the one with the number of its host. Without this the
    /// scheduler puts both ends on one processor in some runs, which halves their rate and hides a
    /// difference of 3 %.
    pub(crate) const fn pinned(mut self) -> Self {
        self.is_pinned = true;
        self
    }

    fn command(&self, lab: &Lab, host: usize, verb: &str) -> Command {
        let mut command = match self.is_pinned {
            false => lab.host(host).command(&self.program),
            true => program::on_processor(host, lab.host(host), &self.program),
        };
        command.args(["load", verb, "--group", GROUP_AND_PORT]);
        command.args(["--iface", "e0", "--json"]);
        command.args(
            self.key
                .iter()
                .flat_map(|key| [Path::new("--key-file"), key]),
        );
        command
    }
}

impl Peer for Towline {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let receivers = 1..=self.receivers;
        let receivers = receivers.map(|host| self.command(lab, host, "recv"));
        let mut send = self.command(lab, 0, "send");
        send.args(["--receivers", &self.receivers.to_string()]);
        send.args(["--seconds", SECONDS, "--size", &self.size.to_string()]);
        send.args(self.more);
        let (sent, received, mut sample) = run_group(receivers, &mut send)?;
        let sent = program::document(&sent)?;
        sample.repairs_permille = repairs_permille(&sent["counters"]);
        sample.rate_per_s = f64::INFINITY;
        for text in received {
            let received = program::document(&text)?;
            sample.missing += missing(&sent, &received);
            sample.rate_per_s = sample.rate_per_s.min(number(&received, "messages_per_s"));
            sample.bytes = number(&received, "bytes");
        }
        Ok(sample)
    }
}

/// Returns how many messages a receiver lacks, or got damaged, twice or out of order; 1 for a
/// report without these figures.
fn missing(sent: &Value, received: &Value) -> u64 {
    let wrong = ["missing", "corrupt", "duplicates", "out_of_order"];
    let wrong: f64 = wrong.iter().map(|key| number(received, key)).sum();
    let lacking = number(sent, "messages") - number(received, "messages");
    match lacking.abs() + wrong {
        0.0 => 0,
        count => count.max(1.0) as u64,
    }
}

/// Returns the repairs and parity packets for each 1,000 packets of new data.
fn repairs_permille(counters: &Value) -> f64 {
    let repairs = ["rdata_packets", "parity_packets", "parity_unasked"];
    let count = |name: &str| number(counters, &format!("source.{name}"));
    let repairs: f64 = repairs.iter().map(|name| count(name)).sum();
    1000.0 * repairs / count("odata_packets")
}

fn number(document: &Value, key: &str) -> f64 {
    document[key].as_f64().unwrap_or(f64::NAN)
}

const SECONDS: &str = if cfg!(test) { "1" } else { "3" };

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_receiver_has_twice_does_not_hide_what_it_lacks() {
        let sent = json!({"messages": 5});
        let received = |messages: u64, duplicates: u64| {
            json!({
                "messages": messages, "missing": 0, "corrupt": 0,
                "duplicates": duplicates, "out_of_order": 0,
            })
        };
        assert_eq!(missing(&sent, &received(5, 0)), 0);
        assert_eq!(missing(&sent, &received(3, 0)), 2);
        assert_eq!(missing(&sent, &received(6, 1)), 2);
        assert_eq!(missing(&sent, &json!({})), 1);
    }
}
