//! `towline send --plain`.

use std::{
    fs::File,
    io,
    os::{fd::AsFd as _, unix::fs::FileTypeExt as _},
};

use towline::{PlainEnd, PlainSender, PlainSource};

use super::TICK;
use crate::{
    failure::{Failure, Verdict, unreadable},
    interrupt::Interrupt,
    plan::PlainPlan,
    report::{self, Output, PlainReport},
};

pub(super) fn run(plan: &PlainPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let mut sender = PlainSender::open(plan.address()?, source(plan)?, plan.timeout)?;
    let progress = output.progress();
    let line = progress.lines();
    while sender.turn() {
        if interrupt.is_requested() {
            sender.cancel("the sender was interrupted");
        }
        line.set_message(format!(
            "{}: {} acknowledged by its kernel",
            plan.to,
            report::bytes(sender.acknowledged_bytes())
        ));
        sender.wait(TICK);
    }
    line.finish_and_clear();
    let is_interrupted = interrupt.is_requested();
    let is_acknowledged = sender.end() == Some(&PlainEnd::Acknowledged);
    output.finish(&PlainReport::new(plan, &sender, is_interrupted))?;
    Ok(Verdict::of_session(
        is_interrupted && !is_acknowledged,
        is_acknowledged && plan.accepts_unconfirmed,
    ))
}

/// Opens the file to send, or standard input.
fn source(plan: &PlainPlan) -> Result<PlainSource, Failure> {
    let opened = match plan.is_stdin() {
        true => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        false => File::open(&plan.path),
    };
    let failed = |error: io::Error| Failure::Environment(unreadable(&plan.path, &error));
    let file = opened.map_err(failed)?;
    let kind = file.metadata().map_err(failed)?.file_type();
    if kind.is_dir() {
        let text = "it is a directory; leave out --plain to send a directory";
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, text)));
    }
    Ok(if kind.is_fifo() {
        PlainSource::Pipe(file.into())
    } else if kind.is_file() {
        PlainSource::File(file)
    } else {
        PlainSource::Stream(file)
    })
}
