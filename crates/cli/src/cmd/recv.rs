//! `towline recv`.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use towline::{FileReceiver, PlanReceiverEvent};

use super::station::{Station, TICK, counters};
use crate::{
    failure::{Failure, Verdict},
    plan::RecvPlan,
    report::{Output, Progress, RecvReport, hex},
};

pub(super) fn run(plan: &RecvPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only("recv", plan)? {
        return Ok(Verdict::Done);
    }
    loop {
        let verdict = receive(plan, output)?;
        if !plan.is_kept || verdict != Verdict::Done {
            return Ok(verdict);
        }
    }
}

/// One transfer.
fn receive(plan: &RecvPlan, output: &Output) -> Result<Verdict, Failure> {
    let session = plan.session.session();
    let mut receiver = FileReceiver::open(&session, &plan.directory, plan.is_overwriting)?;
    for warning in receiver.take_warnings() {
        output.note(&format!("warning: {warning}"));
    }
    let mut station = Station::open("receiver", &plan.session, output);
    let mut transfer = Transfer::new(plan.timeout, output.progress());
    let mut due = Instant::now();
    loop {
        let is_on = receiver.turn()?;
        while let Some(event) = receiver.pop_event() {
            transfer.take(event, output);
        }
        if Instant::now() >= due || !is_on {
            due = Instant::now() + TICK;
            transfer.show(&receiver);
            station.show(|snapshot| receiver.snapshot(snapshot));
        }
        if !is_on || !transfer.may_go_on(&mut receiver) {
            break;
        }
        let until = receiver.now() + TICK;
        receiver.wait(Some(until));
    }
    transfer.clear();
    let progress = receiver.progress();
    let time = transfer
        .began
        .map_or(Duration::ZERO, |began| began.elapsed());
    let mut report = RecvReport::new(plan.session.group.to_string(), &progress, time);
    report.is_complete = transfer.root.is_some() && transfer.error.is_none();
    report.root = transfer.root;
    report.error = transfer.error;
    report.counters = counters(|snapshot| receiver.snapshot(snapshot));
    output.finish(&report)?;
    Ok(Verdict::of(report.is_complete))
}

/// What is known of the transfer in hand.
struct Transfer {
    timeout: Option<Duration>,
    progress: Progress,
    bar: Option<ProgressBar>,
    began: Option<Instant>,
    is_plan_known: bool,
    held: u64,
    moved_at: Instant,
    gave_up_at: Option<Instant>,
    root: Option<String>,
    error: Option<String>,
}

impl Transfer {
    fn new(timeout: Option<Duration>, progress: Progress) -> Self {
        Self {
            timeout,
            progress,
            bar: None,
            began: None,
            is_plan_known: false,
            held: 0,
            moved_at: Instant::now(),
            gave_up_at: None,
            root: None,
            error: None,
        }
    }

    fn take(&mut self, event: PlanReceiverEvent, output: &Output) {
        self.moved_at = Instant::now();
        match event {
            PlanReceiverEvent::Joined { .. } => self.began = Some(Instant::now()),
            PlanReceiverEvent::PlanKnown { entries, bytes } => {
                output.detail(&format!("{entries} entries, {bytes} bytes"));
                self.is_plan_known = true;
                self.bar = Some(self.progress.bytes("receiving", bytes));
            }
            PlanReceiverEvent::SlabBad { path, .. } => {
                output.note(&format!(
                    "a part of {path} came out wrong and is fetched again"
                ));
            }
            PlanReceiverEvent::Delivered { root, .. } => self.root = Some(hex(&root)),
            PlanReceiverEvent::Acknowledged => {}
            PlanReceiverEvent::Failed { text, .. } => self.error = Some(text),
        }
    }

    fn show(&mut self, receiver: &FileReceiver) {
        let numbers = receiver.progress().numbers;
        let moved = numbers.held + numbers.verified;
        if moved != self.held {
            self.held = moved;
            self.moved_at = Instant::now();
        }
        if let Some(bar) = &self.bar {
            bar.set_position(numbers.held);
            bar.set_message(format!("lost {}", numbers.lost));
        }
    }

    /// Cancels the transfer when nothing moved for the time allowed; false when even the farewell
    /// has had its time.
    fn may_go_on(&mut self, receiver: &mut FileReceiver) -> bool {
        if let Some(at) = self.gave_up_at {
            return at.elapsed() < FAREWELL;
        }
        // Names are being given: only the disk's answer says what is there in the end.
        if self.is_committing(receiver) {
            self.moved_at = Instant::now();
            return true;
        }
        if self
            .timeout
            .is_some_and(|timeout| self.moved_at.elapsed() >= timeout)
        {
            receiver.cancel("the receiver gave up: nothing moved");
            self.error = Some("nothing moved for the time allowed".to_owned());
            self.gave_up_at = Some(Instant::now());
        }
        true
    }

    /// All is verified, and the outcome of putting it in place is not known yet.
    fn is_committing(&self, receiver: &FileReceiver) -> bool {
        let progress = receiver.progress();
        let is_verified = progress.numbers.verified >= progress.content_bytes;
        self.is_plan_known && is_verified && self.root.is_none() && self.error.is_none()
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// How long the sender may take to hear that this end gives up.
const FAREWELL: Duration = Duration::from_secs(1);
