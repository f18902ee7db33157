//! `towline udp`: the server, the sweep, and its picture.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use gauge::udp::{Server, TrialPassage, TrialWatch, draw};

use super::rtt::{check_drawable, draw_each};
use crate::{
    failure::{Failure, Verdict, unreadable},
    interrupt::Interrupt,
    plan::{UdpPlotPlan, UdpRunPlan, UdpServePlan},
    report::{Interval, Output, UdpReport, UdpServeReport},
};

pub(super) fn serve(plan: &UdpServePlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let server = Server::open(plan.spec())?;
    output.note(&format!("serving at {}; Ctrl-C ends it", server.local()));
    let trials = server.run(&|| interrupt.is_requested(), &mut |text| output.note(text))?;
    output.finish(&UdpServeReport { trials })?;
    // The server runs until a signal stops it: that is its proper end.
    Ok(Verdict::Done)
}

pub(super) fn run(plan: &UdpRunPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    check_drawable(&plan.to)?;
    let interrupt = Interrupt::install()?;
    let sweep = plan.sweep()?;
    let mut show = |passage: &TrialPassage| {
        for interval in Interval::of_trial(passage) {
            // An error is ignored here: when nobody reads the output, printing the report fails as
            // well and returns the error.
            output.one_of_many(&interval).unwrap_or_default();
        }
    };
    let watch = plan.every.map(|every| TrialWatch::new(every, &mut show));
    let is_stopped = || interrupt.is_requested();
    let report = sweep.run(&is_stopped, &mut |text| output.note(text), watch)?;
    let has_found = report.rows.iter().any(|row| !row.flows.is_empty());
    let is_whole = has_found && report.cut.is_none();
    let document = UdpReport(report);
    output.finish_after(plan.every, &document)?;
    // The figures were printed before, so a picture that cannot be drawn does not lose them.
    draw_into(&plan.to, &document, output)?;
    Ok(Verdict::of_session(interrupt.is_requested(), is_whole))
}

pub(super) fn plot(plan: &UdpPlotPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    check_drawable(&plan.to)?;
    let text = read(&plan.file)?;
    let what = format!("reading {}", plan.file.display());
    let document = UdpReport::parse(&text).map_err(|error| {
        let text = format!(
            "it is not a result of `towline udp run --json` ({error}); name a file that holds one"
        );
        Failure::environment(&what, &text)
    })?;
    output.finish(&document)?;
    draw_into(&plan.to, &document, output)?;
    Ok(Verdict::Done)
}

/// Reads a whole file; `-` is standard input.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let read = if path == Path::new("-") {
        let mut text = Vec::new();
        io::stdin().lock().read_to_end(&mut text).map(|_| text)
    } else {
        fs::read(path)
    };
    read.map_err(|error| Failure::Environment(unreadable(path, &error)))
}

fn draw_into(pictures: &[PathBuf], document: &UdpReport, output: &Output) -> Result<(), Failure> {
    draw_each(pictures, output, |file, format| {
        draw(file, format, &document.0)
    })
}
