//! `towline tcp`: the watch, the measurement of calls, and the responder that answers them.

use std::{
    io::{self, IsTerminal as _},
    time::Instant,
};

use gauge::tcp::{Connection, Responder, Watch, draw};

use super::{
    rtt::{check_drawable, draw_each},
    screen::{Screen, Wish},
};
use crate::{
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    plan::{TcpServePlan, TcpWatchPlan, TcpWritesPlan},
    report::{Output, TcpConnectionLine, TcpServeReport, TcpWatchReport, TcpWritesReport},
};

mod view;
use view::View;

pub(super) fn watch(plan: &TcpWatchPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let mut watch = Watch::new(plan.of());
    // The first look comes before the terminal is taken over, so that an error stays visible.
    watch.look()?;
    let began = Instant::now();
    let is_live = !output.is_json() && io::stdout().is_terminal();
    let mut live = match is_live {
        true => Some((Screen::open()?, View::new(plan.every))),
        false => None,
    };
    if live.is_none() {
        output.note("watching; Ctrl-C ends it");
    }
    let ends_at = plan.time.map(|time| began + time);
    let is_shown = |row: &Connection| plan.shows_idle || row.has_moved();
    let mut due = began;
    loop {
        due += plan.every;
        let until = ends_at.map_or(due, |end| end.min(due));
        let wish = match &mut live {
            Some((screen, view)) => screen.show_until(until, &interrupt, view)?,
            None if interrupt.sleep(until.saturating_duration_since(Instant::now())) => Wish::Stay,
            None => Wish::Leave,
        };
        let rows: Vec<_> = watch.look()?.into_iter().filter(is_shown).collect();
        match &mut live {
            Some((_, view)) => view.look(rows),
            None if output.is_json() => {
                for row in rows {
                    output.one_of_many(&TcpConnectionLine(row))?;
                }
            }
            None => {}
        }
        if watch.has_ended() {
            output.note("the process has ended");
            break;
        }
        if wish == Wish::Leave || ends_at.is_some_and(|end| Instant::now() >= end) {
            break;
        }
    }
    drop(live);
    let connections = watch.whole().into_iter().filter(is_shown);
    output.one_of_many(&TcpWatchReport {
        seconds: began.elapsed().as_secs_f64(),
        connections: connections.collect(),
    })?;
    // A signal is the usual way to end the watch, so this is no failure.
    Ok(Verdict::Done)
}

pub(super) fn writes(plan: &TcpWritesPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    check_drawable(&plan.to)?;
    let interrupt = Interrupt::install()?;
    let mut tell = |row: &gauge::tcp::Cell| {
        output.detail(&format!("{} B: {:.3} ms", row.write_bytes, row.p50_ms));
    };
    match plan.task()?.run(&|| interrupt.is_requested(), &mut tell) {
        Err(gauge::Error::Interrupted) => Ok(Verdict::Interrupted),
        Err(error) => Err(error.into()),
        Ok(report) => {
            let document = TcpWritesReport(report);
            output.finish(&document)?;
            draw_each(&plan.to, output, |file, format| {
                draw(file, format, &document.0)
            })?;
            Ok(Verdict::Done)
        }
    }
}

pub(super) fn serve(plan: &TcpServePlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let responder = Responder::open(plan.listen)?;
    output.note(&format!(
        "answering at {}; Ctrl-C ends it",
        responder.local()
    ));
    let calls = responder.run(&|| interrupt.is_requested(), &mut |text| output.note(text))?;
    output.finish(&TcpServeReport { calls })?;
    // A signal is the usual way to end the responder, so this is no failure.
    Ok(Verdict::Done)
}
