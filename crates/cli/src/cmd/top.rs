//! `towline top`.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Instant,
};

use towline::registry::{self, ProcessCounters};

use super::stat::read;
use crate::{
    args::TopArgs,
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    report::{Output, TopReport},
};

pub(super) fn run(args: &TopArgs, output: &Output) -> Result<Verdict, Failure> {
    let is_once = args.once || output.is_json() || !io::stdout().is_terminal();
    let interrupt = Interrupt::install()?;
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
        if !is_once {
            io::stdout().write_all(CLEAR_SCREEN)?;
        }
        output.finish(&report)?;
        if is_once {
            return Ok(Verdict::Done);
        }
        before = Some((report.processes, now));
        if !interrupt.sleep(args.interval) {
            // Whoever watches without end has no other way to end it.
            return Ok(Verdict::Interrupted);
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

/// Cursor home, then everything below it away.
const CLEAR_SCREEN: &[u8] = b"\x1b[H\x1b[2J";
