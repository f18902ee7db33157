//! The towline command: `args` (flags, checked one by one) -> `plan` (checked together, defaults
//! filled in) -> `cmd` (what each command does) -> `report` (what it prints, as text and JSON).
//!
//! Protocols and measurements are in the libraries `towline`, `gauge` and `capture`. This crate has
//! input and output, waiting, signals and exit codes. Data goes to standard output, everything else
//! to standard error. Exit code 0: done and proven; 1: not delivered, not proven, or a failed
//! check; 2: wrong usage, or an environment that cannot do it; 130: ended by Ctrl-C or SIGTERM
//! before it was done. For commands that run until they are stopped, such as `capture`, `top` and
//! `relay`, such a signal is the usual end, so their code is 0 or 1. When the reader of standard
//! output closes the pipe early, that is no error.
#![forbid(unsafe_code)]

use std::{env, process::ExitCode};

mod args;

mod cmd;

mod failure;

mod framing;

mod interrupt;

mod log;

mod plan;

mod report;

fn main() -> ExitCode {
    let args = args::parse_from(env::args_os().collect()).unwrap_or_else(|error| error.exit());
    let output = report::Output::new(&args.output);
    log::start(args.output.verbose, &output.progress());
    match cmd::run(&args.command, &output) {
        Ok(verdict) => verdict.into(),
        Err(failure) => failure.tell(),
    }
}
