//! Which program captures the most packets without loss, and at what cost.

use std::{fs, thread, time::Duration};

use lab::Lab;

use super::{
    Scratch, keep,
    listener::Listener,
    load::Load,
    tool::{Counted, Keep, Tool},
};
use crate::{
    machine::{Ticks, arrived_and_sent},
    turns::undisturbed,
};

/// Measures the highest rates without loss, for counting and for writing a file.
pub(super) fn no_loss(lab: &Lab, scratch: &Scratch, pairs: usize) -> Result<String, String> {
    let top = Load {
        rate: None,
        seconds: 2.0,
        sizes: FRAME,
        is_even: false,
    };
    let top = top.send(lab.host(0))?.rate;
    let mut text = format!("the source alone: {top:.0} frames/s at most\n\n");
    for (is_written, what) in [(false, "counting"), (true, "writing a file")] {
        let mut tools = Tool::all();
        tools.retain(|tool| !is_written || tool.writes());
        if !is_written {
            tools.extend(Tool::taking(lab.host(1))?);
        }
        tools.push(Tool::Towline("ring"));
        let mut rows = rows(&tools);
        for pair in 1..=pairs {
            for (tool, (name, rates)) in tools.iter().zip(&mut rows) {
                let trial = Trial {
                    lab,
                    scratch,
                    tool: *tool,
                    ring_bytes: RING_BYTES,
                    is_written,
                };
                let rate = trial.highest(top)?;
                eprintln!("pair {pair} {what} {name}: {rate:.0} frames/s");
                rates.push(rate);
            }
        }
        let title = format!(
            "highest rate without loss, {what}, 64 B frames, rings of {} KiB, {pairs} pairs",
            RING_BYTES >> 10
        );
        text += &keep(&title, "frames/s", 0, &rows)?;
        text.push('\n');
    }
    Ok(text)
}

/// Measures what capturing costs the machine for each packet, without the cost of sending the
/// packet.
pub(super) fn costs(lab: &Lab, scratch: &Scratch, pairs: usize) -> Result<String, String> {
    let mut text = String::new();
    for (is_written, what) in [(false, "counting"), (true, "writing a file")] {
        let mut tools = Tool::all();
        if is_written {
            tools.retain(|tool| tool.writes());
        } else {
            tools.extend([Tool::Towline("ring2"), Tool::Towline("int")]);
            tools.extend(Tool::taking(lab.host(1))?);
        }
        tools.push(Tool::Towline("ring"));
        let mut rows = rows(&tools);
        for pair in 1..=pairs {
            let idle = undisturbed(what, "the source alone", || cost(lab, None))?;
            for (tool, (name, costs)) in tools.iter().zip(&mut rows) {
                let trial = Trial {
                    lab,
                    scratch,
                    tool: *tool,
                    ring_bytes: COST_RING_BYTES,
                    is_written,
                };
                let ns = undisturbed(what, name, || trial.cost())? - idle;
                eprintln!("pair {pair} {what} {name}: {ns:.0} ns (source alone {idle:.0})");
                costs.push(ns);
            }
        }
        let title = format!(
            "cost of {what}, 64 B frames at {COST_RATE:.0}/s, rings of {} KiB, {pairs} pairs",
            COST_RING_BYTES >> 10
        );
        text += &keep(&title, "CPU ns/packet", 0, &rows)?;
        text.push('\n');
    }
    Ok(text)
}

/// Measures what counting through Towline's ring costs the machine for each packet, in nanoseconds.
/// The cost of sending is included, because the difference of two noisy figures would be noisier.
pub(super) fn counting_cost(lab: &Lab, scratch: &Scratch) -> Result<f64, String> {
    let trial = Trial {
        lab,
        scratch,
        tool: Tool::Towline("ring"),
        ring_bytes: COST_RING_BYTES,
        is_written: false,
    };
    trial.cost()
}

/// Measures the loss at 154,000 packets a second of random sizes, with a ring of 16 KiB. Programs
/// whose smallest ring is larger are left out.
pub(super) fn small_ring(lab: &Lab, scratch: &Scratch, pairs: usize) -> Result<String, String> {
    let load = Load {
        rate: Some(SMALL_RATE),
        seconds: 2.0,
        sizes: "60-1514",
        is_even: true,
    };
    let mut tools = Tool::all();
    tools.retain(|tool| tool.ring_bytes_least() <= SMALL_RING_BYTES);
    tools.extend([Tool::Towline("ring2"), Tool::Towline("ring")]);
    let mut rows = rows(&tools);
    for pair in 1..=pairs {
        for (tool, (name, shares)) in tools.iter().zip(&mut rows) {
            let trial = Trial {
                lab,
                scratch,
                tool: *tool,
                ring_bytes: SMALL_RING_BYTES,
                is_written: false,
            };
            let (sent, counted) = match undisturbed("loss", name, || trial.run(&load)) {
                Ok(figures) => figures,
                Err(text) => {
                    eprintln!(
                        "left out: {name}: {}",
                        text.lines().last().unwrap_or_default()
                    );
                    shares.push(f64::NAN);
                    continue;
                }
            };
            let kept = counted.received.min(sent) as f64;
            let share = 100.0 * (sent as f64 - kept) / sent as f64;
            eprintln!("pair {pair} {name}: {share:.2} % of {sent} lost, {counted:?}");
            shares.push(share);
        }
    }
    let title = format!(
        "loss with a ring of 16 KiB (libpcap makes it 256 KiB and more), {SMALL_RATE:.0} frames/s \
         of 64 to 1518 B, {pairs} pairs"
    );
    keep(&title, "% lost", 2, &rows)
}

fn rows(tools: &[Tool]) -> Vec<(String, Vec<f64>)> {
    let last = tools.len() - 1;
    let name = |(at, tool): (usize, &Tool)| {
        let again = if at == last && at > 0 { " (again)" } else { "" };
        (format!("{}{again}", tool.name()), Vec::new())
    };
    tools.iter().enumerate().map(name).collect()
}

/// One tool with its settings.
struct Trial<'a> {
    lab: &'a Lab,
    scratch: &'a Scratch,
    tool: Tool,
    ring_bytes: usize,
    is_written: bool,
}

impl Trial<'_> {
    /// Returns the highest rate without loss, at most `top`, with a precision of 4 %. Rates of
    /// `top / RANGE` and less are not tried.
    fn highest(&self, top: f64) -> Result<f64, String> {
        let (mut good, mut bad) = (top / RANGE, top);
        if self.is_lossless(top)? {
            return Ok(top);
        }
        while bad / good > 1.04 {
            let rate = (good * bad).sqrt();
            if self.is_lossless(rate)? {
                good = rate;
            } else {
                bad = rate;
            }
        }
        Ok(good)
    }

    fn is_lossless(&self, rate: f64) -> Result<bool, String> {
        let load = Load {
            rate: Some(rate),
            seconds: TRIAL_SECONDS,
            sizes: FRAME,
            is_even: false,
        };
        let (sent, counted) = self.run(&load)?;
        Ok(counted.dropped == 0 && counted.received >= sent)
    }

    /// Captures while a load is sent; returns how many frames were sent, and what the capture
    /// counted.
    fn run(&self, load: &Load) -> Result<(u64, Counted), String> {
        let capture = self.start()?;
        let sent = load.send(self.lab.host(0))?;
        thread::sleep(SETTLE);
        Ok((sent.frames, self.stop(capture)?))
    }

    /// Returns the nanoseconds of the machine's processor time for each packet.
    fn cost(&self) -> Result<f64, String> {
        let capture = self.start()?;
        let ns = cost(self.lab, Some(()))?;
        let counted = self.stop(capture)?;
        if counted.dropped > 0 {
            eprintln!(
                "{}: {} dropped meanwhile",
                self.tool.name(),
                counted.dropped
            );
        }
        Ok(ns)
    }

    fn start(&self) -> Result<Listener, String> {
        let file = self.scratch.file("captured");
        let keep = if self.is_written {
            Keep::File(&file)
        } else {
            Keep::Nothing
        };
        let mut command = self.tool.command(self.lab.host(1), self.ring_bytes, keep)?;
        let capture = Listener::start(&mut command)?;
        thread::sleep(READY);
        Ok(capture)
    }

    fn stop(&self, capture: Listener) -> Result<Counted, String> {
        let counted = self.tool.counted(&capture.interrupt()?)?;
        // There is no file when the trial only counts.
        drop(fs::remove_file(self.scratch.file("captured")));
        Ok(counted)
    }
}

/// Returns the nanoseconds of the machine's processor time for each packet, in the steady middle of
/// a load. Without a capture the function waits as long as a capture would take to start.
fn cost(lab: &Lab, capturing: Option<()>) -> Result<f64, String> {
    if capturing.is_none() {
        thread::sleep(READY);
    }
    let load = Load {
        rate: Some(COST_RATE),
        seconds: COST_SECONDS + 1.0,
        sizes: FRAME,
        is_even: false,
    };
    let source = load.start(lab.host(0))?;
    thread::sleep(SETTLE);
    let (first, _) = arrived_and_sent(lab.host(1))?;
    let before = Ticks::read();
    thread::sleep(Duration::from_secs_f64(COST_SECONDS));
    let after = Ticks::read();
    let (last, _) = arrived_and_sent(lab.host(1))?;
    source.finish(Duration::from_secs(20))?;
    thread::sleep(SETTLE);
    Ok(after.busy_seconds_since(before) * 1e9 / (last - first).max(1) as f64)
}

/// Bytes of a 64-byte frame without its check sequence.
const FRAME: &str = "60";
const RING_BYTES: usize = 1 << 20;
const COST_RING_BYTES: usize = 8 << 20;
const SMALL_RING_BYTES: usize = 16 << 10;
const SMALL_RATE: f64 = 154_000.0;
const COST_RATE: f64 = 300_000.0;
const COST_SECONDS: f64 = if cfg!(test) { 1.0 } else { 4.0 };
const TRIAL_SECONDS: f64 = 1.0;
/// The search looks at rates down to an eighth of the highest rate of the source.
const RANGE: f64 = 8.0;
const READY: Duration = Duration::from_millis(600);
const SETTLE: Duration = Duration::from_millis(400);
