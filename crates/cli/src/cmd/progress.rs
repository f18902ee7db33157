//! What a person sees of a transfer while the sender works: whom it waits for, and a bar for each
//! receiver with what limits it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use indicatif::ProgressBar;
use towline::{FileSender, PlanOutcome, PlanSenderEvent, ReceiverReport, ReceiverState};

use super::{event::Refusals, station::Patience};
use crate::{
    plan::SendPlan,
    report::{self, Output, Progress},
};

/// The sender's side of a transfer, for a person.
pub(super) struct SendProgress<'a> {
    plan: &'a SendPlan,
    output: &'a Output,
    progress: Progress,
    bars: BTreeMap<u32, ProgressBar>,
    patience: Patience,
    /// Receivers that had joined when it was last said who is waited for.
    told: Option<usize>,
    opened: Instant,
    has_begun: bool,
    refusals: Refusals,
}

impl<'a> SendProgress<'a> {
    pub(super) fn new(plan: &'a SendPlan, output: &'a Output) -> Self {
        Self {
            plan,
            output,
            progress: output.progress(),
            bars: BTreeMap::new(),
            patience: Patience::new(),
            told: None,
            opened: Instant::now(),
            has_begun: false,
            refusals: Refusals::default(),
        }
    }

    pub(super) fn tell(&mut self, event: &PlanSenderEvent, sender: &FileSender) {
        let name = |slot: u32| {
            let outcome = sender.outcome();
            let mut receivers = outcome.receivers.into_iter();
            let found = receivers.find(|receiver| receiver.slot == slot);
            found.map_or_else(|| slot.to_string(), |receiver| receiver.name)
        };
        let output = self.output;
        match event {
            PlanSenderEvent::Joined { name, peer, .. } => {
                output.detail(&format!("{name} joined from {}", peer.ip()));
            }
            PlanSenderEvent::Failed { slot, text, .. } => {
                output.note(&format!("receiver {} failed: {text}", name(*slot)));
            }
            PlanSenderEvent::Refused { peer, reason } => {
                if let Some(text) = self.refusals.note(*peer, *reason) {
                    output.note(&text);
                }
            }
            PlanSenderEvent::PassStarted {
                pass,
                bytes,
                fill_bytes,
            } => {
                self.has_begun |= *pass > 0;
                output.detail(&format!(
                    "pass {pass}: {bytes} bytes for all, {fill_bytes} for single"
                ));
            }
            PlanSenderEvent::Disconnected { slot } => {
                let name = name(*slot);
                output.note(&format!("receiver {name} has lost its connection"));
            }
            PlanSenderEvent::Reconnected { slot } => {
                output.note(&format!("receiver {} is back", name(*slot)));
            }
            PlanSenderEvent::Demoted { slot, reason } => {
                let name = name(*slot);
                output.note(&format!(
                    "receiver {name} gets the rest by unicast, as {reason}"
                ));
            }
            PlanSenderEvent::Done { slot } => {
                output.detail(&format!("receiver {} has proved delivery", name(*slot)));
            }
            PlanSenderEvent::Finished => self.has_begun = true,
        }
    }

    pub(super) fn show(&mut self, sender: &FileSender) {
        let is_shown = self.progress.is_shown();
        if self.has_begun && !is_shown {
            return;
        }
        let outcome = sender.outcome();
        if !self.has_begun {
            self.await_receivers(&outcome);
        }
        if is_shown {
            for receiver in &outcome.receivers {
                let progress = &self.progress;
                let bar = self
                    .bars
                    .entry(receiver.slot)
                    .or_insert_with(|| progress.bytes(&receiver.name, outcome.content_bytes));
                bar.set_position(receiver.progress.held);
                bar.set_message(state_of(receiver, self.plan));
            }
        }
    }

    /// Says whom the sender waits for: after a moment, and whenever one more has joined.
    fn await_receivers(&mut self, outcome: &PlanOutcome) {
        let joined = outcome.receivers.len();
        let text = || waiting(self.plan, outcome, self.opened.elapsed());
        match self.told {
            None => {
                let mut is_said = false;
                self.patience.look(self.output, || {
                    is_said = true;
                    text()
                });
                if is_said {
                    self.told = Some(joined);
                }
            }
            Some(told) if told != joined => {
                self.output.note(&format!("waiting for {}", text()));
                self.told = Some(joined);
            }
            Some(_) => {}
        }
    }

    /// Leaves the bars as they stand, and says what was only counted.
    pub(super) fn clear(&mut self, sender: &FileSender) {
        self.refusals
            .lines()
            .for_each(|line| self.output.note(&line));
        for receiver in &sender.outcome().receivers {
            let Some(bar) = self.bars.get(&receiver.slot) else {
                continue;
            };
            bar.set_message(state_of(receiver, self.plan));
            match receiver.state {
                ReceiverState::Done { .. } => bar.finish(),
                ReceiverState::Active { .. } | ReceiverState::Failed { .. } => bar.abandon(),
            }
        }
    }
}

/// `2 receivers, 1 has joined; another 9 s`.
fn waiting(plan: &SendPlan, outcome: &PlanOutcome, waited: Duration) -> String {
    let joined = outcome.receivers.len();
    let joined = match joined {
        0 => "none has joined".to_owned(),
        1 => "1 has joined".to_owned(),
        joined => format!("{joined} have joined"),
    };
    let left = plan.join_timeout.saturating_sub(waited).as_secs_f64();
    let left = format!("another {left:.0} s");
    if plan.receivers == 0 {
        return format!("receivers to join, {joined}; {left}");
    }
    let expected = report::count(plan.receivers.into(), "receiver");
    if outcome.missing_names.is_empty() {
        format!("{expected}, {joined}; {left}")
    } else {
        let missing: Vec<&str> = outcome.missing_names.iter().map(String::as_str).collect();
        let named = &missing[..missing.len().min(NAMED_MAX)];
        let more = if missing.len() > NAMED_MAX {
            ", ..."
        } else {
            ""
        };
        format!(
            "{expected}, {joined}; missing {}{more}; {left}",
            named.join(", ")
        )
    }
}

fn state_of(receiver: &ReceiverReport, plan: &SendPlan) -> String {
    let numbers = &receiver.progress;
    let losses = format!("lost {}, repaired {}", numbers.lost, numbers.repairs_got);
    match &receiver.state {
        ReceiverState::Active {
            is_connected: false,
            ..
        } => format!("{losses}; not connected"),
        ReceiverState::Active { phase, .. } => {
            let limit = report::limit(receiver.limited_by, plan);
            format!("{losses}; {phase}, limited by {limit}")
        }
        ReceiverState::Done { .. } => format!("{losses}; proven"),
        ReceiverState::Failed { text, .. } => format!("{losses}; failed: {text}"),
    }
}

/// Receivers that a line names.
const NAMED_MAX: usize = 8;
