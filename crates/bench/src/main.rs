//! `make bench`: message rates beside libpgm and beside the kernel's own ceiling.
//!
//! Two hosts on one virtual cable; in every pair the peer and ours run one after the other, so that
//! a slow moment of a shared machine meets both. The table gives medians over the pairs, and the
//! machine's whole CPU time (`/proc/stat`, less the idle baseline) beside each. A run counts only
//! when its receiver got everything; a pair whose steal time exceeds 1 % is repeated.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "talking to the person who benchmarks is this program's job"
)]

use std::process::ExitCode;

mod machine;
mod peer;
mod program;
mod sample;
mod soak;
mod table;

use peer::{Libpgm, Peer, RawUdp, Towline};
use sample::{Sample, Series};

fn main() -> ExitCode {
    let mut pairs = PAIRS;
    let mut soak_seconds = None;
    let mut sizes = vec![1400, 64];
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().and_then(|text| text.parse().ok());
        match (arg.as_str(), value) {
            ("--pairs", Some(count)) => pairs = count,
            ("--size", Some(size)) => sizes = vec![size],
            ("--soak", Some(seconds)) if seconds >= SOAK_SECONDS_LEAST => {
                soak_seconds = Some(seconds as u64);
            }
            _ => {
                eprintln!("usage: make bench ARGS=\"[--pairs N] [--size BYTES]\"");
                eprintln!("       make soak ARGS=[SECONDS], at least {SOAK_SECONDS_LEAST}");
                return ExitCode::from(2);
            }
        }
    }
    if let Err(refusal) = lab::enter_user_namespace_or_explain() {
        eprintln!("bench: {refusal}");
        return ExitCode::from(2);
    }
    let outcome = match soak_seconds {
        Some(seconds) => soak::run(seconds).map(|line| println!("{line}")),
        None => run(pairs, &sizes),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("bench: {text}");
            ExitCode::FAILURE
        }
    }
}

fn run(pairs: usize, sizes: &[usize]) -> Result<(), String> {
    let lab = lab::Lab::new(&lab::LabSpec::new(2).direct()).map_err(|e| e.to_string())?;
    println!("{}", machine::describe());
    println!("two hosts, one virtual cable, MTU 1500, super-packets whole; {pairs} pairs\n");
    for &size in sizes {
        let peers: Vec<Box<dyn Peer>> = vec![
            Box::new(Towline::new(size)?),
            Box::new(Libpgm::new(size)?),
            Box::new(RawUdp::new(size)?),
            Box::new(Towline::new(size)?),
        ];
        let mut series: Vec<Series> = peers.iter().map(|peer| Series::new(peer.name())).collect();
        for pair in 0..pairs {
            for (peer, series) in peers.iter().zip(&mut series) {
                let sample = measure(peer.as_ref(), &lab)?;
                eprintln!("{size} B pair {} {}: {sample}", pair + 1, peer.name());
                series.push(sample);
            }
        }
        println!("payload {size} B");
        println!("{}", table::render(&series));
    }
    Ok(())
}

/// One run that counts: complete, and on a machine that was ours meanwhile.
fn measure(peer: &dyn Peer, lab: &lab::Lab) -> Result<Sample, String> {
    let mut last = String::new();
    for _ in 0..TRIES {
        match peer.run(lab) {
            Ok(sample) if sample.steal_permille > 10 => {
                last = format!("steal {} permille", sample.steal_permille);
            }
            Ok(sample) if sample.missing > 0 => last = format!("{} missing", sample.missing),
            Ok(sample) => return Ok(sample),
            Err(text) => last = text,
        }
        eprintln!("{}: void, repeated: {last}", peer.name());
    }
    Err(format!(
        "{}: no valid run in {TRIES} tries: {last}",
        peer.name()
    ))
}

const PAIRS: usize = 7;
const TRIES: usize = 5;
/// Shorter, there are not enough samples to tell growth from the beginning.
const SOAK_SECONDS_LEAST: usize = 8;
