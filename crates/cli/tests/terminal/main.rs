//! What the command shows on a terminal: a pseudo-terminal that script(1) makes, read by a terminal
//! emulator, so that a test compares what a person sees.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::process::Child;

mod picture;
mod pictures;
mod progress;
mod screen;
mod top;

const PROGRAM: &str = env!("CARGO_BIN_EXE_towline");

/// A process that ends with the test, however that ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}
