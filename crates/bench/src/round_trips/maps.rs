//! The README's pictures, drawn from results of real runs that the repository keeps. `make
//! readme-maps` measures and draws; use a machine that does nothing else. A test draws again and
//! compares.

use std::{fs, path::Path, process::Command};

use lab::Lab;

use super::START;
use crate::program::{self, Running};

/// Measures round trips at four rates, and what the cable carries by size of datagram. Writes the
/// results into `docs/bench/raw` and the pictures into `docs/src/img`.
pub(super) fn measure(lab: &Lab) -> Result<String, String> {
    let root = program::root();
    for directory in [RAW, IMAGES] {
        let path = root.join(directory);
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    round_trips(lab, &Path::new(RAW).join(PICTURES[0].result))?;
    datagrams(lab, &root.join(RAW).join(PICTURES[1].result))?;
    for picture in &PICTURES {
        picture.draw(&root.join(IMAGES).join(picture.image))?;
    }
    Ok(format!("measured into {RAW}, drew into {IMAGES}"))
}

/// A picture and the result that it is drawn from.
struct Picture {
    /// The instrument that draws it: `towline INSTRUMENT plot`.
    instrument: &'static str,
    /// File in [`RAW`].
    result: &'static str,
    /// File in [`IMAGES`].
    image: &'static str,
}

const PICTURES: [Picture; 2] = [
    Picture {
        instrument: "rtt",
        result: "rtt-rates.rtt",
        image: "rtt-rates.png",
    },
    Picture {
        instrument: "udp",
        result: "udp-sizes.json",
        image: "udp-sizes.png",
    },
];

impl Picture {
    /// Draws the picture into the file `image`.
    fn draw(&self, image: &Path) -> Result<(), String> {
        let result = program::root().join(RAW).join(self.result);
        let mut draw = Command::new(program::ours()?);
        draw.args([self.instrument, "plot", "--quiet"]).arg(result);
        said(draw.arg("--to").arg(image)).map(|_| ())
    }
}

/// Measures round trips into `result`. Paths are relative to the repository, so that the command
/// kept in the result holds on every machine.
fn round_trips(lab: &Lab, result: &Path) -> Result<(), String> {
    let (program, root) = (program::ours()?, program::root());
    let program = program.strip_prefix(&root).unwrap_or(&program);
    let mut there = lab.host(1).command(program);
    there.args(["rtt", "reflect", "--quiet", "--wait", "spin", "--cpu", "1"]);
    there.current_dir(&root);
    let _reflector = Running::start(&mut there)?;
    std::thread::sleep(START);
    let before = root.join(result);
    if before.exists() {
        fs::remove_file(&before).map_err(|error| format!("{}: {error}", before.display()))?;
    }
    let mut here = lab.host(0).command(program);
    here.current_dir(&root);
    here.args(["rtt", "run", &lab.host(1).ipv4().to_string(), "--quiet"]);
    here.args([
        "--rate", RATES, "--time", TIME, "--wait", "spin", "--cpu", "0",
    ]);
    said(here.args(["--stamp-every", "0", "--out"]).arg(result)).map(|_| ())
}

fn datagrams(lab: &Lab, result: &Path) -> Result<(), String> {
    let program = program::ours()?;
    let mut there = lab.host(1).command(&program);
    let _server = Running::start(there.args(["udp", "serve", "--quiet"]))?;
    std::thread::sleep(START);
    let mut here = lab.host(0).command(&program);
    here.args(["udp", "run", &lab.host(1).ipv4().to_string(), "--quiet"]);
    let document = said(here.args(["--mode", "one,gso", "--direction", "there,back", "--json"]))?;
    fs::write(result, document).map_err(|error| format!("{}: {error}", result.display()))
}

/// Runs a command to its end and returns what it printed.
fn said(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

const RAW: &str = "docs/bench/raw";
const IMAGES: &str = "docs/src/img";
const RATES: &str = "10k,20k,30k,40k";
/// Short, because the result holds every round trip, and a file of the repository has at most 256
/// KiB.
const TIME: &str = "500ms";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_pictures_are_what_the_results_show() {
        let Some(ours) = program::beside_this_test() else {
            return;
        };
        for picture in &PICTURES {
            let committed = program::root().join(IMAGES).join(picture.image);
            let name = format!("towline-{}-{}", std::process::id(), picture.image);
            let again = std::env::temp_dir().join(name);
            program::standing_in(&ours, || picture.draw(&again)).unwrap();
            let (drawn, expected) = (fs::read(&again), fs::read(&committed));
            // When this fails, the file is left in the temporary directory.
            drop(fs::remove_file(&again));
            assert!(
                drawn.unwrap() == expected.unwrap(),
                "{} is stale: run `make readme-maps`",
                committed.display()
            );
        }
    }
}
