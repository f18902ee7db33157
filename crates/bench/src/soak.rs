//! `make soak`: one transfer at full rate for long, whose memory must not grow.
//!
//! It holds the resident memory of both ends, looked at once a second, against itself: the second
//! half may not exceed the most of the first half by more than 2 %. Nothing may be missing. It
//! does not measure rates; [`crate::peer`] does.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use lab::{Host, Lab, LabSpec};
use serde_json::Value;

use crate::program::{self, Running};

/// Runs for `seconds` and prints what came of it, as one line.
pub(crate) fn run(seconds: u64) -> Result<String, String> {
    let lab = Lab::new(&LabSpec::new(2).direct()).map_err(|error| error.to_string())?;
    let receiver = start(lab.host(1), &["recv", "--timeout", "20s"])?;
    let length = seconds.to_string();
    let words = ["send", "--receivers", "1", "--seconds", &length];
    let sender = start(lab.host(0), &words)?;
    let mut ends = [
        Memory::of("sender", &sender),
        Memory::of("receiver", &receiver),
    ];
    let began = Instant::now();
    for second in 1..seconds {
        // From the beginning on, so that the samples do not drift to the end of the run.
        let due = Duration::from_secs(second);
        thread::sleep(due.saturating_sub(began.elapsed()));
        for end in &mut ends {
            end.sample()?;
        }
    }
    let sent = report(sender)?;
    let received = report(receiver)?;
    let count = |document: &Value, key: &str| document[key].as_u64().unwrap_or(0);
    let messages = count(&sent, "messages");
    let faults = ["missing", "corrupt", "duplicates", "out_of_order"];
    let bad: u64 = faults.iter().map(|key| count(&received, key)).sum();
    if messages == 0 || bad > 0 || count(&received, "messages") != messages {
        return Err(format!("not complete: sent {sent}, received {received}"));
    }
    let grown = [ends[0].verdict()?, ends[1].verdict()?];
    Ok(format!(
        "soak: {seconds} s, {messages} messages, none missing; {}; {}",
        grown[0], grown[1]
    ))
}

/// The resident memory of one end over time.
#[derive(Debug)]
struct Memory {
    name: &'static str,
    process: u32,
    samples_kib: Vec<u64>,
}

impl Memory {
    fn of(name: &'static str, running: &Running) -> Self {
        Self {
            name,
            process: running.process(),
            samples_kib: Vec::new(),
        }
    }

    fn sample(&mut self) -> Result<(), String> {
        let path = format!("/proc/{}/status", self.process);
        let status = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let resident = program::number_after(&status, "VmRSS:")
            .ok_or_else(|| format!("the {} ended early", self.name))?;
        self.samples_kib.push(resident as u64);
        Ok(())
    }

    /// Both halves' maxima, or that the second one is too high.
    fn verdict(&self) -> Result<String, String> {
        let (first, last) = self.samples_kib.split_at(self.samples_kib.len() / 2);
        let most = |half: &[u64]| half.iter().copied().max().unwrap_or(0);
        let (first, last) = (most(first), most(last));
        let text = format!("{} RSS at most {first} then {last} KiB", self.name);
        if last * 100 > first * (100 + GROWTH_PERCENT_MAX) {
            return Err(format!("memory grows: {text}"));
        }
        Ok(text)
    }
}

fn start(host: &Host, words: &[&str]) -> Result<Running, String> {
    let mut command = host.command(program::root().join("target/release/towline"));
    command.arg("load").args(words);
    command.args(["--group", GROUP_AND_PORT, "--iface", "e0", "--json"]);
    Running::start(&mut command)
}

fn report(running: Running) -> Result<Value, String> {
    let text = running.finish(END_TIME_MAX)?;
    program::document(&text)
}

const GROUP_AND_PORT: &str = "239.192.0.3:7503";
const GROWTH_PERCENT_MAX: u64 = 2;
/// How long an end may take to finish after the last sample.
const END_TIME_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(samples_kib: &[u64]) -> Memory {
        Memory {
            name: "sender",
            process: 0,
            samples_kib: samples_kib.to_vec(),
        }
    }

    #[test]
    fn growth_beyond_two_percent_is_refused() {
        assert!(memory(&[10, 1000, 1000, 1020]).verdict().is_ok());
        assert!(memory(&[10, 1000, 1000, 1021]).verdict().is_err());
        assert!(memory(&[]).verdict().is_ok());
    }
}
