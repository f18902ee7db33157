//! `towline top`.

use std::{
    io::{self, IsTerminal as _},
    time::Instant,
};

use towline::counters::{self, ProcessCounters};

use super::{
    screen::{Screen, Wish},
    stat::read,
};
use crate::{
    args::TopArgs,
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    report::{Output, TopReport},
};

mod view;
use view::View;

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
    let mut view = View::new(args.interval, args.all);
    // The first reading comes before the terminal is taken over, so that an error stays visible.
    view.look(look(args)?, Instant::now());
    let mut screen = Screen::open()?;
    loop {
        let due = Instant::now() + args.interval;
        if screen.show_until(due, &interrupt, &mut view)? == Wish::Leave {
            // A key or a signal is the usual way to end `top`, so this is no failure.
            return Ok(Verdict::Done);
        }
        view.look(look(args)?, Instant::now());
    }
}

fn look(args: &TopArgs) -> Result<Vec<ProcessCounters>, Failure> {
    let failed =
        |error: io::Error| Failure::system("listing the processes that serve counters", &error);
    if !args.pids.is_empty() {
        return args.pids.iter().map(|pid| read(*pid)).collect();
    }
    let pids = counters::processes().map_err(failed)?;
    // A process that ended after it was listed is left out.
    Ok(pids
        .into_iter()
        .filter_map(|pid| counters::read(pid).ok())
        .collect())
}
