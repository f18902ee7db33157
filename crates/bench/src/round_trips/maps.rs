//! The pictures of the README, from real runs: `make readme-maps`, on a machine that does nothing
//! else.

use std::{fs, path::Path, process::Command};

use lab::Lab;

use super::{START, ours::Removed};
use crate::program::{self, Running};

/// Draws the heat maps of four rates, and what the cable carries by size, into `docs/src/img`.
pub(super) fn draw(lab: &Lab) -> Result<String, String> {
    let directory = program::root().join("docs/src/img");
    fs::create_dir_all(&directory).map_err(|it| format!("{}: {it}", directory.display()))?;
    let (rates, sizes) = (
        directory.join("rtt-rates.png"),
        directory.join("udp-sizes.png"),
    );
    round_trips(lab, &rates)?;
    datagrams(lab, &sizes)?;
    Ok("drew docs/src/img/rtt-rates.png and docs/src/img/udp-sizes.png".to_owned())
}

fn round_trips(lab: &Lab, picture: &Path) -> Result<(), String> {
    let program = program::ours()?;
    let mut there = lab.host(1).command(&program);
    there.args(["rtt", "reflect", "--quiet", "--wait", "spin", "--cpu", "1"]);
    let _reflector = Running::start(&mut there)?;
    std::thread::sleep(START);
    let result = Removed::new();
    let mut here = lab.host(0).command(&program);
    here.args(["rtt", "run", &lab.host(1).ipv4().to_string(), "--quiet"]);
    here.args([
        "--rate", RATES, "--time", TIME, "--wait", "spin", "--cpu", "0",
    ]);
    here.args(["--stamp-every", "0", "--out"])
        .arg(result.path());
    said(here.arg("--to").arg(picture))
}

fn datagrams(lab: &Lab, picture: &Path) -> Result<(), String> {
    let program = program::ours()?;
    let mut there = lab.host(1).command(&program);
    let _server = Running::start(there.args(["udp", "serve", "--quiet"]))?;
    std::thread::sleep(START);
    let mut here = lab.host(0).command(&program);
    here.args(["udp", "run", &lab.host(1).ipv4().to_string(), "--quiet"]);
    said(
        here.args(["--mode", "one,gso", "--direction", "there,back", "--to"])
            .arg(picture),
    )
}

/// Runs a command to its end and says what it found.
fn said(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    eprintln!("{}", String::from_utf8_lossy(&output.stdout));
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

const RATES: &str = "10k,20k,30k,40k";
const TIME: &str = "30s";
