//! `towline top`.

use std::{
    io::{self, IsTerminal as _},
    time::Instant,
};

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyEventKind},
};
use towline::counters::{self, ProcessCounters};

use super::{TICK, stat::read};
use crate::{
    args::TopArgs,
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    report::{Output, TopReport},
};

mod view;
use view::{View, Wish};

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
        if watch(&mut view, args, &interrupt, &mut screen)? == Wish::Leave {
            // A signal is the usual way to end `top`, so this is no failure.
            return Ok(Verdict::Done);
        }
        view.look(look(args)?, Instant::now());
    }
}

/// Shows one reading until the next is due.
fn watch(
    view: &mut View,
    args: &TopArgs,
    interrupt: &Interrupt,
    screen: &mut Screen,
) -> Result<Wish, Failure> {
    let failed = |error: io::Error| Failure::environment("using the terminal", &error);
    let due = Instant::now() + args.interval;
    loop {
        // This writes only what has changed, and notices another size of the terminal.
        screen.0.draw(|frame| view.draw(frame)).map_err(failed)?;
        let left = due.saturating_duration_since(Instant::now());
        if interrupt.is_requested() {
            return Ok(Wish::Leave);
        }
        if left.is_zero() {
            return Ok(Wish::Stay);
        }
        if !event::poll(left.min(TICK)).map_err(failed)? {
            continue;
        }
        if let Event::Key(key) = event::read().map_err(failed)?
            && key.kind == KeyEventKind::Press
            && view.press(key) == Wish::Leave
        {
            return Ok(Wish::Leave);
        }
    }
}

/// The terminal while `top` has it. It is given back as it was at any end, even by a panic.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> Result<Self, Failure> {
        let terminal = ratatui::try_init();
        terminal
            .map(Self)
            .map_err(|error| Failure::environment("taking the terminal over", &error))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn look(args: &TopArgs) -> Result<Vec<ProcessCounters>, Failure> {
    let failed = |error: io::Error| Failure::environment("reading counters", &error);
    if !args.pids.is_empty() {
        return args.pids.iter().map(|pid| read(*pid)).collect();
    }
    let pids = counters::processes().map_err(failed)?;
    // A process may end after it was listed and before it is asked.
    Ok(pids
        .into_iter()
        .filter_map(|pid| counters::read(pid).ok())
        .collect())
}
