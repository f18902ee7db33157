//! Seeds that are made up: well-formed, so that they lead a fuzzer deep at once.

mod capture;
mod delivered;
mod delivery;
mod element;
mod frames;
mod link;
mod measure;
mod protection;
mod video;

use std::fs;

use crate::fuzz;

#[test]
#[ignore = "writes the seeds into the repository"]
fn write_the_seeds() {
    capture::write_all();
    delivered::write_all();
    delivery::write_all();
    element::write_all();
    frames::write_all();
    link::write_all();
    measure::write_all();
    protection::write_all();
    video::write_all();
}

fn write(target: &str, name: &str, bytes: &[u8]) {
    let folder = fuzz("corpus").join(target);
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(name), bytes).expect("a seed");
}
