//! sockperf, with whole round trips.
//!
//! At a fixed rate sockperf's client has a thread that sends and one that receives. The sending
//! thread makes no system call other than `sendto` (as strace shows): between slots it spins,
//! whatever the options say. With `--nonblocked` the receiving thread and the server spin, too.

use lab::Lab;

use super::{Load, START, command};
use crate::{program::Running, turns::Figures};

/// Makes one run, and returns its median and 99.9th percentile in microseconds.
pub(super) fn run(lab: &Lab, load: Load, seconds: u32) -> Result<Figures, String> {
    let address = lab.host(1).ipv4().to_string();
    let mut there = command(lab, 1, "sockperf", load);
    there.args(["server", "-i", &address, "-p", "7701"]);
    let is_spinning = load.waits[1] == "spin";
    if is_spinning {
        there.arg("--nonblocked");
    }
    let _server = Running::start(&mut there)?;
    std::thread::sleep(START);
    let mut here = command(lab, 0, "sockperf", load);
    here.arg(if load.rate.is_some() {
        "under-load"
    } else {
        "ping-pong"
    });
    here.args(["-i", &address, "-p", "7701", "-m", "64", "--full-rtt", "-t"]);
    here.arg(seconds.to_string());
    if let Some(rate) = load.rate {
        here.args(["--mps", &rate.to_string()]);
        here.args(["--reply-every", "1"]);
    }
    if is_spinning {
        here.arg("--nonblocked");
    }
    let output = here
        .output()
        .map_err(|error| format!("sockperf: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let at = |share: &str| {
        let line = text
            .lines()
            .find(|line| line.contains(&format!("percentile {share} ")));
        let value = line.and_then(|line| line.rsplit('=').next()?.trim().parse().ok());
        value.ok_or_else(|| format!("sockperf: no percentile {share} in {text}"))
    };
    Ok([at("50.000")?, at("99.900")?])
}
