//! `towline top`.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Instant,
};

use towline::registry::{self, ProcessCounters};

use super::{TICK, stat::read};
use crate::{
    args::TopArgs,
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    report::{Document as _, Output, TopReport},
};

mod screen;
use screen::fit;

mod terminal;
use terminal::Terminal;

pub(super) fn run(args: &TopArgs, output: &Output) -> Result<Verdict, Failure> {
    let is_once = args.once || output.is_json() || !io::stdout().is_terminal();
    if is_once {
        output.finish(&TopReport {
            processes: look(args)?,
            before: None,
            is_complete: args.all,
        })?;
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let mut terminal = Terminal::open()?;
    let mut before: Option<(Vec<ProcessCounters>, Instant)> = None;
    loop {
        let now = Instant::now();
        let processes = look(args)?;
        let before_s = before.map(|(processes, then)| (processes, (now - then).as_secs_f64()));
        let report = TopReport {
            processes,
            before: before_s,
            is_complete: args.all,
        };
        if draw(&report, args, &interrupt, &mut terminal)? {
            // Whoever watches without end has no other way to end it: that is no failure.
            io::stdout().write_all(b"\n")?;
            return Ok(Verdict::Done);
        }
        before = Some((report.processes, now));
    }
}

/// Shows one look until the next is due; true when the user leaves.
fn draw(
    report: &TopReport,
    args: &TopArgs,
    interrupt: &Interrupt,
    terminal: &mut Terminal,
) -> Result<bool, Failure> {
    let text = report.text();
    let due = Instant::now() + args.interval;
    loop {
        let screen = fit(&text, terminal.size(), args.interval);
        io::stdout().write_all(screen.as_bytes())?;
        io::stdout().flush()?;
        while !terminal.is_resized() {
            let left = due.saturating_duration_since(Instant::now());
            if interrupt.is_requested() || terminal.wants_to_leave() {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
            interrupt.sleep(left.min(TICK));
        }
    }
}

fn look(args: &TopArgs) -> Result<Vec<ProcessCounters>, Failure> {
    let failed = |error: io::Error| Failure::environment("reading counters", &error);
    if !args.pids.is_empty() {
        return args.pids.iter().map(|pid| read(*pid)).collect();
    }
    let pids = registry::processes().map_err(failed)?;
    // A process may end between being listed and being asked.
    Ok(pids
        .into_iter()
        .filter_map(|pid| registry::read(pid).ok())
        .collect())
}
