//! `towline send`.

use std::{collections::BTreeMap, time::Instant};

use indicatif::ProgressBar;
use towline::{Expectation, FileSender, PlanSenderEvent};

use super::station::{Station, TICK, counters};
use crate::{
    failure::{Failure, Verdict},
    plan::SendPlan,
    report::{Output, Progress, SendReport},
};

pub(super) fn run(plan: &SendPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only("send", plan)? {
        return Ok(Verdict::Done);
    }
    let expectation = Expectation {
        receivers: plan.receivers,
        join_timeout: plan.join_timeout,
        progress_timeout: plan.timeout,
    };
    let mut sender = FileSender::open(&plan.session.session(), &plan.paths, &expectation)?;
    for warning in sender.take_warnings() {
        output.note(&format!("warning: {warning}"));
    }
    let mut station = Station::open("sender", &plan.session, output);
    let mut bars = Bars::new(output.progress());
    let mut started = Instant::now();
    let mut due = started;
    let mut finished = None;
    loop {
        let is_on = sender.turn()?;
        while let Some(event) = sender.pop_event() {
            if matches!(event, PlanSenderEvent::PassStarted { pass: 0, .. }) {
                started = Instant::now();
            }
            if event == PlanSenderEvent::Finished {
                finished = Some(Instant::now());
            }
            tell(&event, output);
        }
        if Instant::now() >= due || !is_on {
            due = Instant::now() + TICK;
            bars.show(&sender);
            station.show(|snapshot| sender.snapshot(snapshot));
        }
        if !is_on {
            break;
        }
        let until = sender.now() + TICK;
        sender.wait(Some(until));
    }
    bars.clear();
    let time = finished
        .unwrap_or_else(Instant::now)
        .duration_since(started);
    let files = sender.endpoint().plan().plan().files().len() as u64;
    let outcome = sender.outcome();
    let mut report = SendReport::new(plan.session.group.to_string(), &outcome, files, time);
    report.counters = counters(|snapshot| sender.snapshot(snapshot));
    output.finish(&report)?;
    Ok(Verdict::of(report.is_proven))
}

fn tell(event: &PlanSenderEvent, output: &Output) {
    match event {
        PlanSenderEvent::Joined { name, peer, .. } => {
            output.detail(&format!("{name} joined from {}", peer.ip()));
        }
        PlanSenderEvent::Failed { slot, text, .. } => {
            output.note(&format!("receiver {slot} failed: {text}"));
        }
        PlanSenderEvent::Refused { peer, reason } => {
            output.note(&format!("{peer} was refused: {reason}"));
        }
        PlanSenderEvent::PassStarted {
            pass,
            bytes,
            fill_bytes,
        } => {
            output.detail(&format!(
                "pass {pass}: {bytes} bytes for all, {fill_bytes} for single"
            ));
        }
        PlanSenderEvent::Disconnected { slot } => {
            output.note(&format!("receiver {slot} has lost its connection"));
        }
        PlanSenderEvent::Reconnected { .. }
        | PlanSenderEvent::Done { .. }
        | PlanSenderEvent::Finished => {}
    }
}

/// A bar for each receiver.
struct Bars {
    progress: Progress,
    bars: BTreeMap<u32, ProgressBar>,
}

impl Bars {
    const fn new(progress: Progress) -> Self {
        Self {
            progress,
            bars: BTreeMap::new(),
        }
    }

    fn show(&mut self, sender: &FileSender) {
        if !self.progress.is_shown() {
            return;
        }
        let outcome = sender.outcome();
        for receiver in &outcome.receivers {
            let progress = &self.progress;
            let bar = self
                .bars
                .entry(receiver.slot)
                .or_insert_with(|| progress.bytes(&receiver.name, outcome.content_bytes));
            bar.set_position(receiver.progress.held);
            bar.set_message(format!("lost {}", receiver.progress.lost));
        }
    }

    fn clear(self) {
        for bar in self.bars.values() {
            bar.finish();
        }
    }
}
