//! `towline send`.

use std::{
    io::{self, Write as _},
    time::Instant,
};

use towline::{Expectation, FileSender, FileSet, TransferSenderEvent};

use super::{
    progress::SendProgress,
    spool,
    station::{Station, TICK, counters},
};
use crate::{
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    plan::SendPlan,
    report::{Document as _, FileListing, Output, SendReport, SumRow},
};

pub(super) fn run(plan: &SendPlan, output: &Output) -> Result<Verdict, Failure> {
    let interrupt = Interrupt::install()?;
    if plan.selection.is_idle() {
        output.note(
            "--include alone leaves nothing out, as in rsync: add --exclude '*' behind it to send \
             only what matches",
        );
    }
    let Some(mut files) = files(plan, &interrupt, output)? else {
        return Ok(Verdict::Interrupted);
    };
    if output.is_dry_run() {
        return list(plan, &mut files, output);
    }
    let expectation = Expectation::default()
        .receivers(plan.receivers)
        .names(plan.names.clone())
        .join_timeout(plan.join_timeout)
        .line_timeout(plan.line_timeout)
        .settle(plan.settle)
        .progress_timeout(plan.timeout)
        .slow(plan.slow.into());
    let mut sender = FileSender::open(&plan.session().session(), files, &expectation)?;
    for warning in sender.take_warnings() {
        output.warn(&warning);
    }
    let mut job = Job {
        station: Station::open("sender", plan.session(), output)?,
        progress: SendProgress::new(plan, output),
        started: Instant::now(),
        finished: None,
    };
    job.drive(&mut sender, &interrupt)?;
    let report = job.report(plan, &sender, interrupt.is_requested());
    if plan.is_hashing && !output.is_json() {
        let sums = sender.sums().map(|sums| sums.lines());
        io::stdout().lock().write_all(&sums.unwrap_or_default())?;
        output.note(report.text().trim_end());
    } else {
        output.finish(&report)?;
    }
    Ok(Verdict::of_session(
        report.is_interrupted && !report.is_proven,
        report.is_proven && report.unsent.is_empty(),
    ))
}

/// Finds everything that is to be sent; `None` when a signal came while standard input was read.
fn files(
    plan: &SendPlan,
    interrupt: &Interrupt,
    output: &Output,
) -> Result<Option<FileSet>, Failure> {
    let mut set = FileSet::builder()
        .select(plan.selection.clone())
        .skip_changed(plan.is_skipping)
        .hard_links(plan.has_hard_links)
        .sparse(plan.is_sparse)
        .owner(plan.has_owners)
        .attributes(plan.has_xattrs);
    for path in plan.paths() {
        set = set.path(path);
    }
    if plan.has_stdin() {
        let Some(spool) = spool::standard_input(plan.spool.as_deref(), interrupt, output)? else {
            return Ok(None);
        };
        set = set.spooled(&plan.stdin_name, spool);
    }
    Ok(Some(set.read()?))
}

/// Lists what would be sent, or its checksums, for `--dry-run`.
fn list(plan: &SendPlan, files: &mut FileSet, output: &Output) -> Result<Verdict, Failure> {
    let sums = if plan.is_hashing {
        Some(files.sums()?)
    } else {
        None
    };
    match sums {
        Some(sums) if !output.is_json() => io::stdout().lock().write_all(&sums.lines())?,
        sums => output.finish(&FileListing::new(plan, files, sums.as_ref()))?,
    }
    Ok(Verdict::of(files.unsent().is_empty()))
}

/// A transfer, and what is shown about it.
struct Job<'a> {
    station: Station,
    progress: SendProgress<'a>,
    started: Instant,
    finished: Option<Instant>,
}

impl Job<'_> {
    fn drive(&mut self, sender: &mut FileSender, interrupt: &Interrupt) -> Result<(), Failure> {
        let mut due = self.started;
        let mut is_cancelled = false;
        loop {
            let is_on = sender.turn()?;
            while let Some(event) = sender.pop_event() {
                self.take(&event, sender);
            }
            if Instant::now() >= due || !is_on {
                due = Instant::now() + TICK;
                self.progress.show(sender);
                self.station.show(|snapshot| sender.snapshot(snapshot));
            }
            if interrupt.is_requested() && !is_cancelled {
                is_cancelled = true;
                sender.cancel("the sender was interrupted");
            }
            if !is_on || interrupt.is_farewell_over() {
                break;
            }
            let until = sender.now() + TICK;
            sender.wait(Some(until));
        }
        self.progress.clear(sender);
        Ok(())
    }

    fn take(&mut self, event: &TransferSenderEvent, sender: &FileSender) {
        if matches!(event, TransferSenderEvent::PassStarted { pass: 0, .. }) {
            self.started = Instant::now();
        }
        if *event == TransferSenderEvent::Finished {
            self.finished = Some(Instant::now());
        }
        self.progress.tell(event, sender);
    }

    fn report(&self, plan: &SendPlan, sender: &FileSender, is_interrupted: bool) -> SendReport {
        let finished = self.finished.unwrap_or_else(Instant::now);
        let time = finished.duration_since(self.started);
        let files = sender.file_count() as u64;
        let mut report = SendReport::new(plan, &sender.outcome(), files, time);
        report.is_interrupted = is_interrupted;
        report.hold_back(&sender.held_back());
        report.refusal = self.progress.last_refusal();
        if plan.is_hashing {
            report.sums = sender.sums().as_ref().map(SumRow::all);
        }
        report.count(counters(|snapshot| sender.snapshot(snapshot)));
        report
    }
}
