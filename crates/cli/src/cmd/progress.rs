//! What a person sees of a transfer while the sender works: the receivers that the sender waits
//! for, a bar for each receiver, and what limits that receiver.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal as _},
    net::SocketAddr,
    time::{Duration, Instant},
};

use indicatif::ProgressBar;
use towline::{
    FileSender, HeldBack, Phase, ReceiverReport, ReceiverState, TransferOutcome,
    TransferSenderEvent,
};

use super::{event::Refusals, station::Patience};
use crate::{
    plan::SendPlan,
    report::{self, Output, Progress},
};

/// The view of a sender's transfer for a person.
pub(super) struct SendProgress<'a> {
    plan: &'a SendPlan,
    output: &'a Output,
    progress: Progress,
    bars: BTreeMap<u32, ProgressBar>,
    patience: Patience,
    /// How many receivers had joined when the last line about waiting was printed.
    told: Option<usize>,
    opened: Instant,
    has_begun: bool,
    refusals: Refusals,
    lately: Lately,
}

/// What held each connection back in the last second, for transfers over TCP.
#[derive(Default)]
struct Lately {
    /// When `all` and `last` were last measured, which happens at most once a second.
    at: Option<Instant>,
    /// What held each connection back from its beginning until `at`.
    all: Vec<(SocketAddr, HeldBack)>,
    /// What held each connection back in the second or so before `at`.
    last: Vec<(SocketAddr, HeldBack)>,
}

impl Lately {
    fn look(&mut self, sender: &FileSender) {
        let now = Instant::now();
        if self.at.is_some_and(|at| now - at < SECOND) {
            return;
        }
        let all = sender.held_back();
        let added = |(peer, held): &(SocketAddr, HeldBack)| {
            let before = found(&self.all, *peer).copied().unwrap_or_default();
            (*peer, held.since(&before))
        };
        self.last = all.iter().map(added).collect();
        (self.at, self.all) = (Some(now), all);
    }
}

fn found(all: &[(SocketAddr, HeldBack)], peer: SocketAddr) -> Option<&HeldBack> {
    let own = all.iter().find(|(its, _)| *its == peer);
    own.map(|(_, held)| held)
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
            lately: Lately::default(),
        }
    }

    pub(super) fn tell(&mut self, event: &TransferSenderEvent, sender: &FileSender) {
        let name = |slot: u32| {
            let outcome = sender.outcome();
            let mut receivers = outcome.receivers.into_iter();
            let found = receivers.find(|receiver| receiver.slot == slot);
            found.map_or_else(|| slot.to_string(), |receiver| receiver.name)
        };
        let output = self.output;
        match event {
            TransferSenderEvent::Joined { name, peer, .. } => {
                output.detail(&format!("{name} joined from {}", peer.ip()));
            }
            TransferSenderEvent::Failed { slot, text, .. } => {
                output.note(&format!("receiver {} failed: {text}", name(*slot)));
            }
            TransferSenderEvent::Refused { peer, reason } => {
                if let Some(text) = self.refusals.note(*peer, *reason) {
                    output.note(&text);
                }
            }
            TransferSenderEvent::NotReached { peer, text } => {
                output.note(&format!("{peer}: {text}"));
            }
            TransferSenderEvent::PassStarted {
                pass,
                bytes,
                fill_bytes,
            } => {
                self.has_begun |= *pass > 0;
                output.detail(&format!(
                    "pass {pass}: {bytes} bytes for all receivers, {fill_bytes} for single ones"
                ));
            }
            TransferSenderEvent::Disconnected { slot } => {
                let name = name(*slot);
                output.note(&format!("receiver {name} has lost its connection"));
            }
            TransferSenderEvent::Reconnected { slot } => {
                output.note(&format!("receiver {} is back", name(*slot)));
            }
            TransferSenderEvent::Demoted { slot, reason } => {
                let name = name(*slot);
                output.note(&format!(
                    "receiver {name} gets the rest over its own connection: {reason}"
                ));
            }
            TransferSenderEvent::Done { slot } => {
                output.detail(&format!("receiver {} has proved delivery", name(*slot)));
            }
            TransferSenderEvent::Withdrawn(unsent) => {
                output.note(&format!("left out: {}", unsent.text));
            }
            TransferSenderEvent::Finished => self.has_begun = true,
            other => output.detail(&format!("{other:?}")),
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
            self.lately.look(sender);
            for receiver in &outcome.receivers {
                let progress = &self.progress;
                let bar = self
                    .bars
                    .entry(receiver.slot)
                    .or_insert_with(|| progress.bytes(&receiver.name, outcome.content_bytes));
                bar.set_position(receiver.progress.held);
                let held = found(&self.lately.last, receiver.peer);
                bar.set_message(state_of(receiver, held, self.plan));
            }
        }
    }

    /// Says which receivers the sender waits for: after a moment, and then whenever the number of
    /// those that have joined changes.
    fn await_receivers(&mut self, outcome: &TransferOutcome) {
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

    /// Returns the text of the last refusal that was printed.
    pub(super) fn last_refusal(&self) -> Option<String> {
        self.refusals.last()
    }

    /// Prints the refusals that were only counted, and makes room for the report, whose lines take
    /// the place of the bars. The bars stay when the report does not go to the terminal.
    pub(super) fn clear(&mut self, sender: &FileSender) {
        self.refusals
            .lines()
            .for_each(|line| self.output.note(&line));
        let is_replaced = !self.output.is_json() && io::stdout().is_terminal();
        for receiver in &sender.outcome().receivers {
            let Some(bar) = self.bars.get(&receiver.slot) else {
                continue;
            };
            bar.set_message(state_of(receiver, None, self.plan));
            match receiver.state {
                _ if is_replaced => bar.finish_and_clear(),
                ReceiverState::Done { .. } => bar.finish(),
                ReceiverState::Active { .. } | ReceiverState::Failed { .. } => bar.abandon(),
            }
        }
    }
}

/// Returns the line about the wait: `2 receivers, 1 has joined; another 9 s`.
fn waiting(plan: &SendPlan, outcome: &TransferOutcome, waited: Duration) -> String {
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

/// Describes what a bar cannot show. A narrow terminal cuts off the end, so the least important
/// part comes last.
fn state_of(receiver: &ReceiverReport, held: Option<&HeldBack>, plan: &SendPlan) -> String {
    let numbers = &receiver.progress;
    let losses = match numbers.lost {
        0 => String::new(),
        lost => format!("; lost {lost}, repaired {}", numbers.repairs_got),
    };
    let state = match &receiver.state {
        ReceiverState::Active {
            is_connected: false,
            ..
        } => "not connected".to_owned(),
        // The bar itself shows that the receiver receives.
        ReceiverState::Active {
            phase: Phase::Receiving,
            ..
        } => format!("limit: {}", report::limit_of(receiver, held, plan)),
        ReceiverState::Active { phase, .. } => phase.to_string(),
        ReceiverState::Done { .. } => "proven".to_owned(),
        ReceiverState::Failed { text, .. } => format!("failed: {text}"),
    };
    state + &losses
}

const SECOND: Duration = Duration::from_secs(1);
/// The most receivers that a line names.
const NAMED_MAX: usize = 8;
