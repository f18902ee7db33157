//! Checks and chores of this repository, which continuous integration and the Makefile run.
//!
//! This program holds no product code. In: a command name. Out: what the tools print, a closing
//! line, and exit code 0 only when everything that could run passed. It prints which steps could
//! not run here.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "talking to the developer is this program's job"
)]

use std::process::ExitCode;

mod ci;
mod command;
mod docs;

mod fuzz;
mod header;
mod ledger;
mod suite;
mod tidy;
mod wasm;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let passed = match name.as_str() {
        "ci" => suite::run(&[], ci::CHECKS),
        "lint" => ci::run(&[&[ci::TIDY, ci::LEDGER], ci::CHECKS].concat()),
        "tidy" => ci::run(&[ci::TIDY]),
        "targets" => ci::run(ci::TARGETS),
        "test" => suite::run(&rest, &[]),
        "fuzz" => fuzz::run(&rest),
        "sim" => ci::sim(&rest),
        "bench" => ci::bench(&rest),
        "soak" => ci::soak(&rest),
        "docs" => docs::run() && ledger::run(),
        "ledger" => ledger::run(),
        "header" => header::run(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

const USAGE: &str = "\
usage: cargo xtask COMMAND
  ci             lint and all tests: what continuous integration runs; the last line counts
  lint           the house rules, the ledger, format, spelling, dependencies, clippy and doc with
                 warnings fatal, fuzz targets, other platforms
  tidy           the house rules alone (also an ordinary test)
  targets        pure crates linked for wasm32, portable ones type-checked for Windows and aarch64,
                 where those targets are installed
  test [ARGS]    all tests, or those of `cargo test ARGS`; the last line counts
  fuzz [SECONDS] corpora through `cargo test`; with cargo-fuzz and nightly each target for SECONDS
  sim [SEEDS]    the simulated swarm from as many seeds, 10000 unless given, on every processor
  bench [GROUPS] fec, messages, files, rtt, or all, beside libpgm, ZeroMQ, Aeron, NORM, bare UDP,
                 uftp, udpcast and sockperf, where installed; --pairs N, --size BYTES
  soak [SECONDS] one transfer at full rate, 1 % lost, 60 s unless given; fails when a message is
                 missing, when memory grows or the rate falls
  docs           docs/src/reference: parameters, counters, exit codes, from the declarations, and
                 what `ledger` writes
  ledger         checks specs/rfc3208 against the RFC and the tests, and writes its reference page
  header         crates/capi/include/towline.h, from the functions and types of crates/capi";
