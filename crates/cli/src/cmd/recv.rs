//! `towline recv`.

use std::{
    io,
    time::{Duration, Instant},
};

use towline::{Delete, FileReceiver, Owners, Place, RoomLimits, StallWatch, Target};

use super::{
    hook,
    incoming::Incoming,
    station::{Patience, Station, TICK, a_sender, counters},
};
use crate::{
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    plan::RecvPlan,
    report::{Document as _, Output, ServeReport},
};

pub(super) fn run(plan: &RecvPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    if plan.directory.is_none() && output.is_json() {
        let text = "--json prints to standard output, and so does --to-stdout: leave one out";
        return Err(Failure::usage(text));
    }
    hook::check(&plan.exec)?;
    let output = &output.serving(plan.is_serving);
    let interrupt = Interrupt::install()?;
    let mut receiver = open(plan)?;
    let plan = &at(plan, &receiver, output);
    for warning in receiver.take_warnings() {
        output.warn(&warning);
    }
    let mut service = Service {
        plan,
        output,
        interrupt: &interrupt,
        station: Station::open("receiver", &plan.session, output)?,
        incoming: Incoming::new(plan, output),
        patience: Patience::new(),
        stall: StallWatch::new(Instant::now()),
        leaving: None,
        has_timed_out: false,
    };
    let started = Instant::now();
    service.drive(&mut receiver)?;
    service.report(&receiver, started.elapsed())
}

/// Returns the plan with the port that the system gave, and prints the address when the user left
/// the port to the system.
fn at(plan: &RecvPlan, receiver: &FileReceiver, output: &Output) -> RecvPlan {
    let mut plan = plan.clone();
    let asked = std::mem::replace(&mut plan.session.place, receiver.place().clone());
    if let (Place::Listen(asked), Place::Listen(given)) = (asked, &plan.session.place)
        && asked.port() == 0
    {
        output.note(&format!("listening at {given}"));
    }
    plan
}

fn open(plan: &RecvPlan) -> Result<FileReceiver, Failure> {
    let target = match &plan.directory {
        Some(path) => Target::Directory {
            path: path.clone(),
            existing: plan.existing.into(),
        },
        None => Target::Stream(Box::new(io::stdout())),
    };
    let builder = FileReceiver::builder(plan.session.session(), target)
        .allow(plan.allowed.iter().copied())
        .serve(plan.is_serving)
        .transfers_max(plan.transfers_max)
        .delete(plan.delete.map_or(Delete::Nothing, Into::into))
        .sparse(plan.is_sparse)
        .owner(plan.owner.map_or(Owners::Receiver, Into::into))
        .attributes(plan.sets_xattrs)
        .modes(plan.permissions.into())
        .take_dot_names(plan.takes_dot_names)
        .room(RoomLimits {
            quota_bytes: plan.quota_bytes,
            keep_free: plan.keep_free,
        })
        .entries_max(plan.files_max)
        .spool(plan.spool.clone())
        .patience(plan.patience);
    Ok(builder.open()?)
}

/// One run of the command: for one transfer, or for all that come.
struct Service<'a> {
    plan: &'a RecvPlan,
    output: &'a Output,
    interrupt: &'a Interrupt,
    station: Station,
    incoming: Incoming<'a>,
    patience: Patience,
    /// Without `--serve`: notices when nothing moves in the only transfer, or when none begins.
    stall: StallWatch,
    /// The time at which the command gave everything up; `None` before that.
    leaving: Option<Instant>,
    has_timed_out: bool,
}

impl Service<'_> {
    fn drive(&mut self, receiver: &mut FileReceiver) -> Result<(), Failure> {
        let mut due = Instant::now();
        loop {
            let is_on = receiver.turn()?;
            while let Some(event) = receiver.pop_event() {
                self.stall.stir(Instant::now());
                self.incoming.take(event, receiver)?;
            }
            if Instant::now() >= due || !is_on {
                due = Instant::now() + TICK;
                self.look(receiver);
            }
            if !is_on || self.leaving.is_some_and(|at| at.elapsed() >= FAREWELL) {
                break;
            }
            let until = receiver.now() + TICK;
            receiver.wait(Some(until));
        }
        self.incoming.look(receiver);
        // What the programs of `--exec` do is part of the command's work. So the command waits for
        // these programs, until a signal comes.
        while !self.incoming.look_after_hook() && self.interrupt.sleep(TICK) {}
        Ok(())
    }

    /// Does what has to be done ten times a second.
    fn look(&mut self, receiver: &mut FileReceiver) {
        self.incoming.look(receiver);
        self.incoming.look_after_hook();
        for warning in receiver.take_warnings() {
            self.output.warn(&warning);
        }
        self.station.show(|snapshot| receiver.snapshot(snapshot));
        if self.incoming.count == 0 {
            let plan = &self.plan.session;
            self.patience
                .look(self.output, || a_sender(plan, receiver.interface()));
        }
        if self.leaving.is_some() {
            return;
        }
        if self.interrupt.is_requested() {
            self.leave(
                receiver,
                "the receiver was interrupted; what it has is kept",
            );
        } else if let Some(timeout) = self.plan.timeout {
            self.check_stall(receiver, timeout);
        }
    }

    fn leave(&mut self, receiver: &mut FileReceiver, text: &str) {
        receiver.cancel(text);
        self.incoming.is_leaving = true;
        self.leaving = Some(Instant::now());
    }

    /// Gives up when nothing has moved for the time allowed. A service gives up only the transfers
    /// in which nothing has moved, and goes on.
    fn check_stall(&mut self, receiver: &mut FileReceiver, timeout: Duration) {
        if self.plan.is_serving {
            for number in self.incoming.stuck(timeout) {
                receiver.cancel_transfer(number, TIMED_OUT);
            }
            return;
        }
        let now = Instant::now();
        for (_, progress) in receiver.progress() {
            self.stall.note(now, &progress);
        }
        if self.stall.is_stalled(now, timeout) {
            self.has_timed_out = true;
            self.leave(receiver, TIMED_OUT);
        }
    }

    fn report(&mut self, receiver: &FileReceiver, time: Duration) -> Result<Verdict, Failure> {
        let is_interrupted = self.interrupt.is_requested();
        if self.plan.is_serving {
            let mut report = ServeReport::new(self.plan.session.place.to_string(), time);
            self.incoming.finish_all(receiver)?;
            self.incoming.sum(&mut report);
            report.is_interrupted = is_interrupted;
            report.counters = counters(|snapshot| receiver.snapshot(snapshot));
            report.drops = report.counters.drops();
            self.output.one_of_many(&report)?;
            let is_fine = report.failed == 0 && report.exec_failures == 0;
            // A service runs until it is told to stop: that is its proper end.
            return Ok(Verdict::of(is_fine));
        }
        let mut report = self.incoming.single(receiver);
        report.is_interrupted = is_interrupted;
        if self.has_timed_out && report.error.is_none() {
            report.error = Some(TIMED_OUT.to_owned());
        }
        report.count(counters(|snapshot| receiver.snapshot(snapshot)));
        if self.plan.directory.is_some() {
            self.output.finish(&report)?;
        } else {
            self.output.note(report.text().trim_end());
        }
        let is_whole = report.is_complete
            && report.absent.is_empty()
            && !report.is_incomplete
            && report.kept.is_empty()
            && report.unset.is_empty();
        let is_fine = is_whole && report.exec_failures == 0;
        Ok(Verdict::of_session(
            is_interrupted && !report.is_complete,
            is_fine,
        ))
    }
}

const TIMED_OUT: &str = "no progress within the time allowed (--timeout)";
/// How long the senders may take to hear that this end gives up.
const FAREWELL: Duration = Duration::from_secs(2);
