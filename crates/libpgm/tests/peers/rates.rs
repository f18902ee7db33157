//! What unchanged ZeroMQ delivers over epgm, by rate, loss and library, and what that costs the
//! machine: `make rates`.
//!
//! A cell is a sender's and a receiver's library, a `ZMQ_RATE` and a loss. It holds when the median
//! of its runs delivers at least [`SHARE_MIN`] of that rate, and each run is complete: no message
//! is missing, and none comes out of its order. Each line shows how many processors were busy
//! meanwhile, and just before.
//!
//! The time runs from the first message that arrives to the last. The last repairs of libpgm's
//! receiver take a quarter of a second, so the cells with libpgm send for longer.
//!
//! In the environment: `TOWLINE_REPEATS`, how many runs a cell has, 7 by default; `TOWLINE_RATES`
//! and `TOWLINE_LOSSES`, the rates in Mbit/s and the losses in percent to run, as `1000,2000`.

use std::{
    env, fs,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, PYTHON};

use super::{
    Library, OpenPgm, Ours, alone, lab, next_line, on, said,
    zmq::{figure, has_zmq, script},
};

/// Messages are of this many bytes: six packets.
const MESSAGE_BYTES: u32 = 8_000;
/// How long a run sends, if the machine allows the rate: with our library alone, beside the
/// control, and with libpgm at one end.
const OURS_SECONDS: u32 = 2;
const CONTROL_SECONDS: u32 = 4;
const MIXED_SECONDS: u32 = 8;
const RATES_MBIT: [u32; 5] = [10, 100, 300, 1_000, 2_000];
const LOSSES_PERCENT: [u32; 2] = [0, 2];
const SHARE_MIN: f64 = 0.9;
/// The most that our library may cost, as a part of what libpgm costs.
const COST_MAX: f64 = 1.0 / 3.0;

#[derive(Clone, Copy)]
struct Cell {
    pair: (Library, Library),
    rate_mbit: u32,
    loss_percent: u32,
    seconds: u32,
    /// False for ZeroMQ over TCP, which no library of these takes part in.
    has_pgm: bool,
}

/// What a run has measured.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// The payload delivered in a second, as a part of `ZMQ_RATE`.
    share: f64,
    /// Messages that came.
    received: f64,
    /// Messages that did not come.
    missing: f64,
    /// Messages that did not come right behind the one before them.
    gaps: f64,
    /// Seconds of processor for each GB delivered, of the whole machine less what it takes idle.
    cost: f64,
    /// Seconds of processor for each GB that both programs took, with their threads and what the
    /// kernel did for them. What else the machine does is not in it.
    own: f64,
    /// How many processors were busy on average.
    busy: f64,
    /// The same just before, with nothing to do.
    idle: f64,
}

impl Cell {
    fn run(self) -> Run {
        let mut run = Run::default();
        alone(|| run = self.run_in(&lab(self.loss_percent)));
        run
    }

    fn run_in(self, lab: &Lab) -> Run {
        let rate = self.rate_mbit * 1_000;
        let count = rate / 8 * 1_000 * self.seconds / MESSAGE_BYTES;
        let script = script().display();
        let [from, to] = [0, 1].map(|host| lab.host(host).ipv4());
        let idle = Busy::look();
        thread::sleep(IDLE_TIME);
        let idle = idle.processors();
        let start = |host: usize, library, words: &str, word| {
            let mut command = on(
                lab.host(host),
                library,
                PYTHON,
                &format!("{script} {words}"),
            );
            if !self.has_pgm {
                command.env("ZMQ_TRANSPORT", "tcp");
                command.env("ZMQ_GROUP", from.to_string());
            }
            said(command, word)
        };
        let words = format!("sub {to} {count} {rate}");
        let mut receiver = start(1, self.pair.1, &words, "ready");
        let words = format!("pub {from} {count} {MESSAGE_BYTES} {rate}");
        let sender = start(0, self.pair.0, &words, "sending");
        let (begun, before) = (Busy::look(), spent([&receiver, &sender]));
        let text = next_line(&mut receiver);
        let (busy, took) = (begun.processors(), begun.at.elapsed());
        let own = spent([&receiver, &sender]) - before;
        // The lab ends what these two have started.
        for mut program in [receiver, sender] {
            program.kill().unwrap();
            program.wait().unwrap();
        }
        let [received, gaps, mbit] = ["received", "gaps", "rate"].map(|word| {
            // libpgm may have ended the program.
            if text.contains(word) {
                figure(&text, word)
            } else {
                0.0
            }
        });
        let gigabytes = received * f64::from(MESSAGE_BYTES) / 1e9;
        Run {
            share: mbit * 1e3 / f64::from(rate),
            received,
            missing: f64::from(count) - received,
            gaps,
            cost: (busy - idle) * took.as_secs_f64() / gigabytes,
            own: own / gigabytes,
            busy,
            idle,
        }
    }
}

/// Seconds of processor that running programs have taken, as the scheduler counts them, without
/// those of programs that have ended. `timeout` runs them.
fn spent(programs: [&Child; 2]) -> f64 {
    let threads = programs.into_iter().flat_map(|program| {
        let id = program.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let child = children.unwrap_or_default();
        let threads = fs::read_dir(format!("/proc/{}/task", child.trim_end()));
        threads.into_iter().flatten()
    });
    let times = threads.map(|thread| {
        let stat = fs::read_to_string(thread.unwrap().path().join("schedstat"));
        let stat = stat.unwrap_or_default();
        let running = stat.split_whitespace().next();
        running.map_or(0.0, |it| it.parse::<f64>().unwrap() / 1e9)
    });
    times.sum()
}

/// The processors' time at a moment.
struct Busy {
    at: Instant,
    seconds: f64,
}

impl Busy {
    fn look() -> Self {
        let at = Instant::now();
        Self {
            at,
            seconds: Self::seconds(),
        }
    }

    /// How many processors were busy since then, on average.
    fn processors(&self) -> f64 {
        (Self::seconds() - self.seconds) / self.at.elapsed().as_secs_f64()
    }

    /// Seconds that this machine's processors were busy since it started.
    fn seconds() -> f64 {
        let stat = fs::read_to_string("/proc/stat").unwrap();
        let ticks = stat.lines().next().unwrap().split_whitespace().skip(1);
        let ticks: Vec<f64> = ticks.map(|it| it.parse().unwrap()).collect();
        // User, nice and system; the kernel's interrupts.
        let busy: f64 = [0, 1, 2, 5, 6].iter().map(|&at| ticks[at]).sum();
        busy / 100.0
    }
}

const IDLE_TIME: Duration = Duration::from_millis(500);
/// A machine on which less than this many processors are busy has no other work.
const IDLE_MAX: f64 = 0.1;
const HOLDS: &str = "holds";
const FAILS: &str = "FAILS";
/// The most runs of a cell with libpgm in it.
const MIXED_REPEATS: usize = 2;

/// All runs of a cell.
struct Runs {
    cell: Cell,
    all: Vec<Run>,
}

impl Runs {
    fn new(cell: Cell) -> Self {
        let all = Vec::new();
        Self { cell, all }
    }

    fn add(&mut self) {
        self.all.push(self.cell.run());
    }

    fn median(&self, of: impl Fn(&Run) -> f64) -> f64 {
        let mut values: Vec<f64> = self.all.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[(values.len() - 1) / 2]
    }

    /// Messages of all runs that came.
    fn received(&self) -> f64 {
        self.all.iter().map(|run| run.received).sum()
    }

    fn is_complete(&self) -> bool {
        let mut all = self.all.iter();
        all.all(|run| run.missing == 0.0 && run.gaps == 0.0)
    }

    /// Returns true when every run is complete and at least [`SHARE_MIN`] of `share` arrives, which
    /// is a part of `ZMQ_RATE`.
    fn delivers(&self, share: f64) -> bool {
        self.is_complete() && self.median(|run| run.share) >= SHARE_MIN * share
    }

    /// Returns true when every run has measured what it costs.
    fn has_costs(&self) -> bool {
        let mut all = self.all.iter();
        all.all(|run| run.cost.is_finite() && run.own.is_finite() && run.own > 0.0)
    }

    fn is_idle(&self) -> bool {
        self.median(|run| run.idle) < IDLE_MAX
    }

    /// Prints and returns the cell's line of the table, with the verdict at its end.
    fn print(&self, verdict: &str) -> String {
        let Cell {
            pair: (from, to),
            rate_mbit,
            loss_percent,
            has_pgm,
            ..
        } = self.cell;
        let ends = if has_pgm {
            format!("{from:?} -> {to:?}")
        } else {
            "over TCP".to_owned()
        };
        let least = self
            .all
            .iter()
            .map(|run| run.share)
            .fold(f64::INFINITY, f64::min);
        let sum = |of: fn(&Run) -> f64| self.all.iter().map(of).sum::<f64>();
        let (missing, gaps) = (sum(|run| run.missing), sum(|run| run.gaps));
        let median = |of: fn(&Run) -> f64| self.median(of);
        let (share, cost, own) = (
            median(|it| it.share),
            median(|it| it.cost),
            median(|it| it.own),
        );
        let (busy, idle) = (median(|it| it.busy), median(|it| it.idle));
        let line = format!(
            "{ends:<18} {rate_mbit:>4} Mbit/s {loss_percent} % lost {:>2} runs: delivered {:5.1} % \
             (least {:5.1}), {missing:5} missing, {gaps:3} gaps, {cost:6.2} s of processor a GB \
             (programs {own:5.2}), {busy:.2} processors busy ({idle:.2} before): {verdict}",
            self.all.len(),
            100.0 * share,
            100.0 * least,
        );
        println!("{line}");
        line
    }
}

/// Every rate with every loss.
fn cells(pair: (Library, Library), seconds: u32) -> Vec<Cell> {
    let rates = numbers("TOWLINE_RATES", &RATES_MBIT);
    let losses = numbers("TOWLINE_LOSSES", &LOSSES_PERCENT);
    let all = losses.into_iter().flat_map(|loss_percent| {
        rates.iter().map(move |&rate_mbit| Cell {
            pair,
            rate_mbit,
            loss_percent,
            seconds,
            has_pgm: true,
        })
    });
    all.collect()
}

/// The numbers in an environment variable, or those by default.
fn numbers(name: &str, default: &[u32]) -> Vec<u32> {
    env::var(name).map_or(default.to_vec(), |text| {
        text.split(',').map(|it| it.parse().unwrap()).collect()
    })
}

fn repeats() -> usize {
    env::var("TOWLINE_REPEATS").map_or(7, |it| it.parse().unwrap())
}

#[test]
#[ignore = "takes minutes: make rates"]
fn ours_delivers_every_rate() {
    if !has_zmq() {
        return;
    }
    let mut failed = Vec::new();
    for cell in cells((Ours, Ours), OURS_SECONDS) {
        let mut runs = Runs::new(cell);
        for _ in 0..repeats() {
            runs.add();
        }
        let verdict = if runs.delivers(1.0) { HOLDS } else { FAILS };
        let line = runs.print(verdict);
        failed.extend((verdict == FAILS).then_some(line));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// With our library at one end, the rate is delivered, or at least what libpgm delivers with itself
/// less a tenth: of the rate, or of the messages where libpgm is not complete with itself.
#[test]
#[ignore = "takes minutes: make rates"]
fn mixed_pairs_deliver_what_libpgm_does() {
    if !has_zmq() {
        return;
    }
    let mut failed = Vec::new();
    for cell in cells((OpenPgm, OpenPgm), MIXED_SECONDS) {
        let pairs = [(OpenPgm, OpenPgm), (Ours, OpenPgm), (OpenPgm, Ours)];
        let mut all = pairs.map(|pair| Runs::new(Cell { pair, ..cell }));
        for _ in 0..repeats().min(MIXED_REPEATS) {
            all.iter_mut().for_each(Runs::add);
        }
        let [control, mixed @ ..] = all;
        let is_complete = control.is_complete();
        control.print(if is_complete {
            "control, complete"
        } else {
            "control, not complete"
        });
        let least = control.median(|run| run.share).min(1.0);
        for runs in mixed {
            let verdict = if runs.delivers(1.0) {
                HOLDS
            } else if is_complete && runs.delivers(least) {
                "as libpgm with itself"
            } else if !is_complete && runs.received() >= SHARE_MIN * control.received() {
                "as libpgm with itself, which is not complete"
            } else {
                FAILS
            };
            let line = runs.print(verdict);
            failed.extend((verdict == FAILS).then_some(line));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Runs a cell of libpgm and the same with our library, which take turns. `None` as soon as libpgm
/// is not complete.
fn beside_control(cell: Cell) -> Option<[Runs; 2]> {
    let pair = (Ours, Ours);
    let [mut control, mut ours] = [cell, Cell { pair, ..cell }].map(Runs::new);
    for _ in 0..repeats() {
        control.add();
        if !control.is_complete() {
            control.print("not complete");
            return None;
        }
        ours.add();
    }
    Some([control, ours])
}

/// At the highest rate at which every run of libpgm is complete, our library takes at most a third
/// of the machine's processor time that libpgm takes. What the programs took is printed beside it.
#[test]
#[ignore = "takes minutes: make rates"]
fn ours_costs_a_third() {
    if !has_zmq() {
        return;
    }
    let mut failed = Vec::new();
    for loss_percent in numbers("TOWLINE_LOSSES", &LOSSES_PERCENT) {
        let mut cells = cells((OpenPgm, OpenPgm), CONTROL_SECONDS);
        cells.retain(|cell| cell.loss_percent == loss_percent);
        let Some([control, ours]) = cells.into_iter().rev().find_map(beside_control) else {
            let line = format!(
                "{loss_percent} % lost: not judged: libpgm is complete at none of these rates"
            );
            println!("{line}");
            failed.push(line);
            continue;
        };
        let ratio = |of: fn(&Run) -> f64| ours.median(of) / control.median(of);
        let (machine, own) = (ratio(|run| run.cost), ratio(|run| run.own));
        let is_measured = control.has_costs() && ours.has_costs();
        let is_idle = control.is_idle() && ours.is_idle();
        let verdict = if !is_idle {
            "not judged: the machine has other work"
        } else if ours.is_complete() && is_measured && machine <= COST_MAX {
            HOLDS
        } else {
            FAILS
        };
        control.print("control");
        let line = ours.print(verdict);
        println!("  in parts of the control: machine {machine:.2}, programs {own:.2}");
        failed.extend((verdict != HOLDS).then_some(line));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// What the two programs do without PGM, as fast as they can: a rate beyond this is beyond them.
#[test]
#[ignore = "takes minutes: make rates"]
fn the_programs_alone_can_do_this() {
    if !has_zmq() {
        return;
    }
    let mut runs = Runs::new(Cell {
        pair: (OpenPgm, OpenPgm),
        rate_mbit: RATES_MBIT[RATES_MBIT.len() - 1],
        loss_percent: 0,
        seconds: OURS_SECONDS,
        has_pgm: false,
    });
    (0..repeats()).for_each(|_| runs.add());
    runs.print("no limit");
    assert!(runs.is_complete());
}
