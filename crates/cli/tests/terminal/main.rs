//! What the command shows on a terminal: a pseudo-terminal that script(1) makes, read by a terminal
//! emulator, so that a test compares what a person sees.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "../kit/mod.rs"]
mod kit;
mod picture;
mod pictures;
mod progress;
mod screen;
mod top;

const PROGRAM: &str = env!("CARGO_BIN_EXE_towline");
