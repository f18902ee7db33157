//! Processor time of this process, and of the whole machine. The machine's time includes the
//! kernel's work for the traffic (softirq), which the kernel bills to whatever process happens to
//! run.
//!
//! The meter reads `/proc`. On a system without `/proc`, the processor times are `None`.

use std::{
    fs,
    time::{Duration, Instant},
};

/// A meter of processor time, from its start on.
#[derive(Clone, Debug)]
pub struct UsageMeter {
    started: Instant,
    process: Option<u64>,
    machine: Option<Machine>,
}

/// The processor time that was used in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// The length of the stretch of time that was measured.
    pub wall: Duration,
    /// Processor seconds of this process: all threads, user and kernel.
    pub process_cpu_s: Option<f64>,
    /// Processor seconds that the machine was busy with anything.
    pub machine_busy_s: Option<f64>,
    /// Processor seconds that a hypervisor took from this machine. Above 1 % of all processor time,
    /// a measurement is void.
    pub machine_steal_s: Option<f64>,
    /// Number of processors of the machine; 1 when `/proc` does not say.
    pub cpu_count: u32,
}

impl UsageMeter {
    /// Starts measuring.
    #[must_use]
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
            process: process_ticks(),
            machine: machine_ticks(),
        }
    }

    /// Returns the processor time since [`UsageMeter::start`].
    #[must_use]
    pub fn read(&self) -> Usage {
        let process = self.process.zip(process_ticks());
        let machine = self.machine.zip(machine_ticks());
        let since = |(from, to): (u64, u64)| seconds(to.saturating_sub(from));
        Usage {
            wall: self.started.elapsed(),
            process_cpu_s: process.map(since),
            machine_busy_s: machine.map(|(from, to)| since((from.busy, to.busy))),
            machine_steal_s: machine.map(|(from, to)| since((from.steal, to.steal))),
            cpu_count: machine.map_or(1, |(_, to)| to.cpu_count),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Machine {
    busy: u64,
    steal: u64,
    cpu_count: u32,
}

fn process_ticks() -> Option<u64> {
    parse_process(&fs::read_to_string("/proc/self/stat").ok()?)
}

fn machine_ticks() -> Option<Machine> {
    parse_machine(&fs::read_to_string("/proc/stat").ok()?)
}

/// Adds utime and stime, fields 14 and 15 of `/proc/self/stat`, in ticks. The program's name in
/// field 2 may hold spaces and parentheses.
fn parse_process(text: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Reads `/proc/stat`. Its first line has the ticks of user, nice, system, idle, iowait, irq,
/// softirq, steal. The time of guests is part of user.
fn parse_machine(text: &str) -> Option<Machine> {
    let mut lines = text.lines();
    let fields = lines.next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let ticks: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
    let &[user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks.as_slice() else {
        return None;
    };
    let cpu_count = lines.take_while(|line| line.starts_with("cpu")).count();
    Some(Machine {
        busy: user + nice + system + irq + softirq,
        steal,
        cpu_count: u32::try_from(cpu_count).unwrap_or(u32::MAX).max(1),
    })
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / TICKS_PER_SECOND
}

/// The kernel's `USER_HZ`: Linux has fixed it at 100 for everything in `/proc` on the processors
/// that Towline is built for.
const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_texts_are_understood() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 5 6 7";
        assert_eq!(parse_process(stat), Some(300));
        let stat = "cpu  10 1 20 700 5 2 3 4 0 0\ncpu0 5 0 10 350 2 1 1 2 0 0\ncpu1 5 1\nintr 5\n";
        assert_eq!(
            parse_machine(stat),
            Some(Machine {
                busy: 36,
                steal: 4,
                cpu_count: 2
            })
        );
        assert_eq!(parse_process(""), None);
        assert_eq!(parse_machine("cpu 1 2"), None);
    }
}
