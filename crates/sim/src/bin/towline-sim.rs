//! Runs many seeds of the swarm or of a scenario, or repeats one seed and records it.
//!
//! ```text
//! towline-sim --seeds 0..10000                    the swarm
//! towline-sim --trees --seeds 0..10000            the swarm of trees
//! towline-sim --frames --seeds 0..10000           frames
//! towline-sim --feeds --seeds 0..10000            frames by two networks
//! towline-sim --scenario F.toml --seeds 0..100    one scenario
//! towline-sim --seed 17 --out DIR                 one run again, with trace and pcap
//! towline-sim --seed 17 --pcap F.pcap             and the pcap copied to F.pcap
//! ```
//!
//! The exit code is 0 when every run held, and 1 when one did not. It is 2 when the command line
//! was wrong or a record could not be written.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program that reports to a person, and plays a seed on each processor"
)]

use std::{
    env, fs,
    ops::Range,
    path::PathBuf,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use towline_sim::{Plan, frames, replay, swarm};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let order = match Order::read(&args) {
        Ok(order) => order,
        Err(text) => {
            eprintln!("{text}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // A run of frames is played again, and leaves no files.
    if order.records && !order.sends_frames && !order.sends_feeds {
        return record(&order);
    }
    // A run that fails may panic. The panic hook is silent, because each failing run is reported.
    std::panic::set_hook(Box::new(|_| {}));
    run_all(&order)
}

/// The parsed command line.
#[derive(Debug)]
struct Order {
    /// The file of the scenario, and what it says.
    scenario: Option<(String, Plan)>,
    seeds: Range<u64>,
    records: bool,
    out: PathBuf,
    pcap: Option<PathBuf>,
    threads: u64,
    shows_each: bool,
    sends_trees: bool,
    sends_frames: bool,
    sends_feeds: bool,
}

impl Order {
    fn read(args: &[String]) -> Result<Self, String> {
        let mut order = Self {
            scenario: None,
            seeds: 0..1000,
            records: false,
            out: PathBuf::from("target/sim"),
            pcap: None,
            threads: 2,
            shows_each: false,
            sends_trees: false,
            sends_frames: false,
            sends_feeds: false,
        };
        let mut rest = args.iter();
        while let Some(flag) = rest.next() {
            let mut value = || rest.next().ok_or_else(|| format!("{flag} needs a value"));
            match flag.as_str() {
                "--seeds" => order.seeds = range(value()?)?,
                "--seed" => {
                    let seed = number(value()?)?;
                    order.seeds = seed..seed + 1;
                    order.records = true;
                }
                "--scenario" => order.scenario = Some(scenario(value()?)?),
                "--out" => order.out = PathBuf::from(value()?),
                "--pcap" => order.pcap = Some(PathBuf::from(value()?)),
                "--threads" => order.threads = number(value()?)?.clamp(1, 64),
                "--each" => order.shows_each = true,
                "--trees" => order.sends_trees = true,
                "--frames" => order.sends_frames = true,
                "--feeds" => order.sends_feeds = true,
                other => return Err(format!("{other} is not known")),
            }
        }
        Ok(order)
    }

    fn plan(&self, seed: u64) -> Plan {
        match &self.scenario {
            Some((_, plan)) => plan.clone(),
            None if self.sends_trees => swarm::tree_plan(seed),
            None => swarm::plan(seed),
        }
    }

    /// Plays one seed. Returns what it came to, or what did not hold.
    fn play(&self, seed: u64) -> Result<String, String> {
        if self.sends_frames {
            return play_frames("--frames", seed, frames::run);
        }
        if self.sends_feeds {
            return play_frames("--feeds", seed, frames::run_feeds);
        }
        replay::must_hold(&self.plan(seed), seed, &self.again(), &self.out)
            .map(|report| report.to_string())
    }

    /// Returns the arguments that run this plan again; the seed comes after them.
    fn again(&self) -> String {
        match &self.scenario {
            Some((path, _)) => format!("--scenario {path} --seed"),
            None if self.sends_trees => "--trees --seed".to_owned(),
            None => "--seed".to_owned(),
        }
    }
}

/// Plays the frames of one seed. Returns what it came to, or what did not hold.
fn play_frames<R: std::fmt::Display>(
    flag: &str,
    seed: u64,
    run: fn(u64) -> Result<R, String>,
) -> Result<String, String> {
    let played = std::panic::catch_unwind(|| run(seed));
    let played = played.unwrap_or_else(|_| Err("it panicked".to_owned()));
    match played {
        Ok(report) => Ok(format!("seed {seed}: {report}")),
        Err(text) => Err(format!(
            "seed {seed}: {text}\nagain: towline-sim {flag} --seeds {seed}..{}",
            seed + 1
        )),
    }
}

fn run_all(order: &Order) -> ExitCode {
    let next = AtomicU64::new(order.seeds.start);
    let failed = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..order.threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= order.seeds.end {
                        break;
                    }
                    match order.play(seed) {
                        Ok(report) if order.shows_each => println!("{report}"),
                        Ok(_) => {}
                        Err(text) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            println!("{text}\n");
                        }
                    }
                }
            });
        }
    });
    let (failed, all) = (failed.into_inner(), order.seeds.end - order.seeds.start);
    println!("{} of {all} seeds held", all - failed);
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn record(order: &Order) -> ExitCode {
    let seed = order.seeds.start;
    let plan = order.plan(seed);
    let recorded = replay::record(&plan, seed, &order.out).and_then(|records| {
        if let Some(pcap) = &order.pcap {
            fs::copy(&records.pcap, pcap)?;
        }
        Ok(records)
    });
    match recorded {
        Ok(records) => {
            let report = replay::must_hold(&plan, seed, &order.again(), &order.out);
            let is_good = report.is_ok();
            println!(
                "{}",
                report.map_or_else(|text| text, |report| report.to_string())
            );
            println!("{}\n{}", records.trace.display(), records.pcap.display());
            if is_good {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn scenario(path: &str) -> Result<(String, Plan), String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let plan = Plan::parse(&text).map_err(|error| format!("{path}: {error}"))?;
    Ok((path.to_owned(), plan))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not a number"))
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("{text:?} is not a range such as 0..10000");
    let (start, end) = text.split_once("..").ok_or_else(wrong)?;
    Ok(number(start)?..number(end)?)
}

const USAGE: &str = "towline-sim [--seeds A..B] [--scenario FILE] [--seed N] [--out DIR] \
                     [--pcap FILE] \
                     [--threads N] [--each] [--trees] [--frames] [--feeds]";
