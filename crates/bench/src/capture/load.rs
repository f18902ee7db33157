//! The source of frames for a capture: `towline replay`. Where processor time is measured, it sends
//! in bursts and sleeps between them.

use std::{process::Command, time::Duration};

use lab::Host;

use super::listener::Listener;
use crate::program;

/// The frames that a source sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Frames a second; `None` sends as many as the source can.
    pub(super) rate: Option<f64>,
    /// How long the source sends.
    pub(super) seconds: f64,
    /// Bytes of a frame, without its check sequence.
    pub(super) sizes: &'static str,
    /// Each frame is sent by itself, evenly spaced. For this the source needs a whole processor.
    pub(super) is_even: bool,
}

impl Load {
    /// Starts the source.
    pub(super) fn start(&self, host: &Host) -> Result<Listener, String> {
        let mut command: Command = host.command(program::ours()?);
        command.args(["replay", "-o", "ring:e0", "--json", "--quiet"]);
        match self.rate {
            Some(rate) => {
                let count = (rate * self.seconds) as u64;
                // A burst holds the frames of 1.7 ms, which is no multiple of the kernel's clock
                // tick.
                let burst = if self.is_even {
                    1
                } else {
                    (rate * BURST_SECONDS).max(1.0) as u64
                };
                command.arg(format!("gen:size={},count={count}", self.sizes));
                command.args(["--pps", &(rate as u64).to_string()]);
                command.args(["--burst", &burst.to_string()]);
            }
            None => {
                command.arg(format!("gen:size={}", self.sizes));
                command.args(["--top-speed", "--for", &format!("{}s", self.seconds)]);
            }
        }
        Listener::start(&mut command)
    }

    /// Sends all frames and waits for the end.
    pub(super) fn send(&self, host: &Host) -> Result<Sent, String> {
        Sent::of(&self.start(host)?.finish(LIMIT)?)
    }
}

/// What was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// Frames.
    pub(super) frames: u64,
    /// Frames a second.
    pub(super) rate: f64,
}

impl Sent {
    /// Reads the report of `towline replay`.
    pub(super) fn of(text: &str) -> Result<Self, String> {
        let report: serde_json::Value =
            serde_json::from_str(text).map_err(|error| format!("replay: {error}: {text}"))?;
        let frames = report["sent"].as_u64();
        let rate = report["packets_per_s"].as_f64();
        frames
            .zip(rate)
            .map(|(frames, rate)| Self { frames, rate })
            .ok_or_else(|| format!("replay: no figures in {text}"))
    }
}

const BURST_SECONDS: f64 = 0.001_7;
const LIMIT: Duration = Duration::from_secs(60);
