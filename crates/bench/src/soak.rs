//! `make soak`: one transfer at full rate for long, 1 % of its packets lost on the way.
//!
//! Nothing may be missing at the end. The resident memory of both ends and the packets that arrive,
//! looked at once a second, are held against themselves: in the second half memory may not exceed
//! the most of the first half by more than 2 %, and the rate may not fall below half of what it
//! was. How high it is says [`crate::peer`].

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use lab::{Host, Lab, LabSpec};
use serde_json::Value;

use crate::{
    machine::arrived_and_sent,
    program::{self, Running},
};

/// Runs `program` for `seconds` and gives what came of it, as one line.
pub(crate) fn run(lab: &Lab, program: &Path, seconds: u64) -> Result<String, String> {
    let receiver = start(program, lab.host(1), &["recv", "--timeout", "20s"])?;
    let length = seconds.to_string();
    let words = ["send", "--receivers", "1", "--seconds", &length];
    let sender = start(program, lab.host(0), &words)?;
    let mut ends = [
        Memory::of("sender", &sender),
        Memory::of("receiver", &receiver),
    ];
    let mut arrived = vec![arrived_and_sent(lab.host(1))?.0];
    let began = Instant::now();
    for second in 1..seconds {
        // From the beginning on, so that the samples do not drift to the end of the run.
        let due = Duration::from_secs(second);
        thread::sleep(due.saturating_sub(began.elapsed()));
        for end in &mut ends {
            end.sample()?;
        }
        arrived.push(arrived_and_sent(lab.host(1))?.0);
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
    let lost = lab.host(1).lost_packets().map_err(|e| e.to_string())?;
    if lost == 0 {
        return Err("no packet was lost: nothing was tried".to_owned());
    }
    let grown = [ends[0].verdict()?, ends[1].verdict()?];
    Ok(format!(
        "soak: {seconds} s, {messages} messages, none missing of {lost} lost packets; {}; {}; {}",
        flatness(&arrived)?,
        grown[0],
        grown[1]
    ))
}

/// A sender, a receiver that loses 1 % of the packets, and a switch between them.
pub(crate) fn lossy_lab() -> Result<Lab, String> {
    let spec = LabSpec::new(2).segments_at_switch();
    let lab = Lab::new(&spec).map_err(|error| error.to_string())?;
    lab.host(1).set_loss(1, 100).map_err(|e| e.to_string())?;
    Ok(lab)
}

/// Packets a second of each tenth of the run, or that the second half fell off. `arrived` are
/// counts, one a second.
fn flatness(arrived: &[u64]) -> Result<String, String> {
    let rate = |from: usize, to: usize| {
        let seconds = to.saturating_sub(from).max(1) as u64;
        (arrived[to] - arrived[from]) / seconds
    };
    let last = arrived.len().saturating_sub(1);
    let tenths = (0..TENTHS).map(|n| rate(last * n / TENTHS, last * (n + 1) / TENTHS).to_string());
    let tenths = tenths.collect::<Vec<_>>().join(" ");
    let text = format!("packets/s by tenths {tenths}");
    if rate(last / 2, last) * 100 < rate(0, last / 2) * RATE_PERCENT_MIN {
        return Err(format!("the rate falls: {text}"));
    }
    Ok(text)
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

fn start(program: &Path, host: &Host, words: &[&str]) -> Result<Running, String> {
    let mut command = host.command(program);
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
/// Of the first half's rate, what the second half must reach: machines are shared.
const RATE_PERCENT_MIN: u64 = 50;
const TENTHS: usize = 10;
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
    #[test]
    fn a_rate_that_falls_by_half_is_refused() {
        assert!(flatness(&[0, 100, 200, 250, 300]).is_ok());
        assert!(flatness(&[0, 100, 200, 249, 298]).is_err());
    }

    #[test]
    fn a_minute_at_full_rate_loses_nothing_and_grows_nowhere() {
        let tested = std::env::current_exe().unwrap();
        let program = tested.ancestors().nth(2).unwrap().join("towline");
        if !program.exists() {
            println!("skipped: the command is not built; test the whole workspace");
            return;
        }
        let lab = match lossy_lab() {
            Ok(lab) => lab,
            Err(error) => {
                println!("skipped: {error}");
                return;
            }
        };
        println!("{}", run(&lab, &program, 60).unwrap());
    }
}
