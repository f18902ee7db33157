//! `make soak`: one long transfer at full rate, with 1 % of its packets lost on the way.
//!
//! Nothing may be missing at the end. Once a second the bench looks at the resident memory of both
//! ends and at the packets that have arrived. In the second half, memory may exceed the most of the
//! first half by at most 2 %, and at the receiver by 2 MiB more. The rate of the second half must
//! be at least half of the rate of the first half. At most a quarter of the packets that arrive may
//! be repairs. [`crate::peer`] measures how high the rate is.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use lab::{Host, Lab};
use serde_json::Value;

use crate::{
    machine::arrived_and_sent,
    program::{self, Running},
};

/// Runs `program` for `seconds` and returns the result as one line.
pub(crate) fn run(lab: &Lab, program: &Path, seconds: u64) -> Result<String, String> {
    let receiver = start(program, lab.host(1), &["recv", "--timeout", "20s"])?;
    let length = seconds.to_string();
    let words = ["send", "--receivers", "1", "--seconds", &length];
    let sender = start(program, lab.host(0), &words)?;
    let mut ends = [
        // The sender's window is full after one second, so its memory may not grow later.
        Memory::of("sender", &sender, 0),
        Memory::of("receiver", &receiver, RECEIVER_GROWTH_KIB_MAX),
    ];
    let arrived = watch(lab.host(1), &mut ends, seconds)?;
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
        return Err("no packet was lost, so no repair was tested".to_owned());
    }
    let packets = arrived[arrived.len() - 1].1 - arrived[0].1;
    if packets * 3 > messages * 4 {
        return Err(format!(
            "{packets} packets for {messages} messages: too many repairs"
        ));
    }
    let grown = [ends[0].verdict()?, ends[1].verdict()?];
    Ok(format!(
        "soak: {seconds} s, {messages} messages, none missing of {lost} lost packets; {}; {}; {}",
        flatness(&arrived)?,
        grown[0],
        grown[1]
    ))
}

/// Looks once a second at the memory of both ends and at the packets that have arrived. Returns the
/// seconds since the start and the packets of each look. An end may finish in the last tenth of the
/// run, which stops the looking.
fn watch(receiver: &Host, ends: &mut [Memory], seconds: u64) -> Result<Vec<(f64, u64)>, String> {
    let began = Instant::now();
    let mut arrived = vec![(0.0, arrived_and_sent(receiver)?.0)];
    for second in 1..seconds {
        // Each look is timed from the start, so that the looks do not drift.
        let due = Duration::from_secs(second);
        thread::sleep(due.saturating_sub(began.elapsed()));
        match ends.iter_mut().try_for_each(Memory::sample) {
            Err(_) if second * 10 >= seconds * 9 => break,
            outcome => outcome?,
        }
        arrived.push((began.elapsed().as_secs_f64(), arrived_and_sent(receiver)?.0));
    }
    Ok(arrived)
}

/// Returns the packets a second in each tenth of the run; an error when the rate of the second half
/// was below half of that of the first. `arrived` comes from [`watch`].
fn flatness(arrived: &[(f64, u64)]) -> Result<String, String> {
    let last = arrived.len().saturating_sub(1);
    let rate = |from: usize, to: usize| {
        let ((began, first), (ended, end)) = (arrived[from], arrived[to]);
        (end - first) as f64 / (ended - began)
    };
    let parts = TENTHS.min(last);
    let tenths =
        (0..parts).map(|n| format!("{:.0}", rate(last * n / parts, last * (n + 1) / parts)));
    let tenths = tenths.collect::<Vec<_>>().join(" ");
    let text = format!("packets/s by tenths {tenths}");
    if rate(last / 2, last) * 2.0 < rate(0, last / 2) {
        return Err(format!("the rate falls: {text}"));
    }
    Ok(text)
}

/// The resident memory of one end over time.
#[derive(Debug)]
struct Memory {
    name: &'static str,
    process: u32,
    /// How much it may grow in addition to [`GROWTH_PERCENT_MAX`].
    growth_kib_max: u64,
    samples_kib: Vec<u64>,
}

impl Memory {
    fn of(name: &'static str, running: &Running, growth_kib_max: u64) -> Self {
        Self {
            name,
            process: running.process(),
            growth_kib_max,
            samples_kib: Vec::new(),
        }
    }

    fn sample(&mut self) -> Result<(), String> {
        let resident = program::memory_kib(self.process, "VmRSS:");
        self.samples_kib
            .push(resident.ok_or_else(|| format!("the {} ended early", self.name))?);
        Ok(())
    }

    /// Returns the most memory of each half of the run, as text; an error when the most of the
    /// second half is too high.
    fn verdict(&self) -> Result<String, String> {
        let (first, last) = self.samples_kib.split_at(self.samples_kib.len() / 2);
        let most = |half: &[u64]| half.iter().copied().max().unwrap_or(0);
        let (first, last) = (most(first), most(last));
        let text = format!("{} RSS at most {first} then {last} KiB", self.name);
        let most = first + first * GROWTH_PERCENT_MAX / 100 + self.growth_kib_max;
        if last > most {
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
/// A receive window needs more memory when its longest gap yet occurs, perhaps late in the run.
const RECEIVER_GROWTH_KIB_MAX: u64 = 2048;
const TENTHS: usize = 10;
/// How long an end may take to finish after the last sample.
const END_TIME_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(samples_kib: &[u64], growth_kib_max: u64) -> Memory {
        Memory {
            name: "sender",
            process: 0,
            growth_kib_max,
            samples_kib: samples_kib.to_vec(),
        }
    }

    #[test]
    fn growth_beyond_two_percent_and_what_is_allowed_is_refused() {
        assert!(memory(&[10, 1000, 1000, 1020], 0).verdict().is_ok());
        assert!(memory(&[10, 1000, 1000, 1021], 0).verdict().is_err());
        assert!(memory(&[10, 1000, 1000, 3068], 2048).verdict().is_ok());
        assert!(memory(&[10, 1000, 1000, 3069], 2048).verdict().is_err());
        assert!(memory(&[], 0).verdict().is_ok());
    }

    #[test]
    fn a_rate_that_falls_by_half_is_refused() {
        let after = |counts: [u64; 5]| {
            let seconds = [0.0, 1.0, 2.0, 3.0, 4.0];
            seconds.into_iter().zip(counts).collect::<Vec<_>>()
        };
        let flat = flatness(&after([0, 100, 200, 250, 300])).unwrap();
        assert_eq!(flat, "packets/s by tenths 100 100 50 50");
        assert!(flatness(&after([0, 100, 200, 249, 298])).is_err());
    }

    /// Tests the command that `cargo test --workspace` builds beside this test.
    #[test]
    fn a_minute_at_full_rate_loses_nothing_and_grows_nowhere() {
        lab::isolated(|| {
            let Some(program) = program::beside_this_test() else {
                return;
            };
            let lab = Lab::new(&lab::LabSpec::new(2).segments_at_switch()).unwrap();
            if let Err(error) = lab.host(1).set_loss(1, 100) {
                println!("skipped: {error}");
                return;
            }
            println!("{}", run(&lab, &program, 60).unwrap());
        });
    }
}
