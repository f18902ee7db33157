//! `towline relay`: carries sessions between networks.

use std::time::{Duration, Instant};

use towline::{Relay, Snapshot};

use super::station::{Patience, Station, TICK, counters};
use crate::{
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    plan::RelayPlan,
    report::{Output, RelayNetwork, RelayReport, bits, count},
};

pub(super) fn run(plan: &RelayPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    let output = &output.serving(true);
    let interrupt = Interrupt::install()?;
    let kept_bytes_max = usize::try_from(plan.kept_bytes_max).unwrap_or(usize::MAX);
    let mut relay = Relay::builder(plan.sessions())
        .keep(kept_bytes_max)
        .open()?;
    for way in relay.ways() {
        output.note(&format!(
            "relaying {} on {} ({}), reports at TCP port {}",
            way.place, way.interface, way.local, way.control_port
        ));
    }
    let mut station = Station::at("relay", &plan.told(), plan.metrics, output)?;
    let mut watch = Watch::new(plan, output);
    let begun = Instant::now();
    while !interrupt.is_requested() {
        let turn = relay.turn()?;
        station.show(|snapshot| relay.snapshot(snapshot));
        watch.look(&mut relay);
        if turn.is_idle() {
            let until = relay.now() + TICK;
            relay.wait(Some(until));
        }
    }
    watch.clear();
    let counters = counters(|snapshot| relay.snapshot(snapshot));
    output.finish(&RelayReport {
        networks: relay.ways().iter().map(RelayNetwork::from).collect(),
        seconds: begun.elapsed().as_secs_f64(),
        sessions: counters.get("element.sessions_found"),
        receivers: counters.get("forward.joined"),
        data_packets: counters.get("element.odata_forwarded"),
        repairs_kept: counters.get("element.rdata_kept"),
        repairs_fetched: counters.get("element.rdata_forwarded"),
        naks: counters.get("element.naks"),
        naks_forwarded: counters.get("element.naks_forwarded"),
        report_bytes_up: counters.get("forward.bytes_up"),
        report_bytes_down: counters.get("forward.bytes_down"),
        drops: counters.drops(),
        counters,
    })?;
    // Only a signal ends a relay, so this is no failure.
    Ok(Verdict::Done)
}

/// The display of a relay at work: a progress line on a terminal, and warnings.
struct Watch<'a> {
    plan: &'a RelayPlan,
    output: &'a Output,
    line: indicatif::ProgressBar,
    patience: Patience,
    shown: Instant,
    sent_bytes: u64,
    snapshot: Snapshot,
    is_incompatible_told: bool,
}

impl<'a> Watch<'a> {
    fn new(plan: &'a RelayPlan, output: &'a Output) -> Self {
        Self {
            plan,
            output,
            line: output.progress().lines(),
            patience: Patience::new(),
            shown: Instant::now(),
            sent_bytes: 0,
            snapshot: Snapshot::default(),
            is_incompatible_told: false,
        }
    }

    /// Updates the display from the relay's counters, at most once in [`SHOW_EVERY`].
    fn look(&mut self, relay: &mut Relay) {
        let since = self.shown.elapsed();
        if since < SHOW_EVERY {
            return;
        }
        self.shown = Instant::now();
        for warning in relay.take_warnings() {
            self.output.warn(&warning);
        }
        self.snapshot.clear();
        relay.snapshot(&mut self.snapshot);
        let value = |set, name| self.snapshot.value_of(set, name).unwrap_or(0);
        if !self.is_incompatible_told && value("drop", "incompatible") > 0 {
            self.is_incompatible_told = true;
            self.output.warn(
                "a session has a key, or comes from a newer version of Towline: the relay does not \
                 carry it. Send without --key-file, or update this relay",
            );
        }
        if relay.session_count() == 0 {
            self.patience
                .look(self.output, || format!("a sender on {}", self.plan.told()));
        }
        let sent_bytes = value("udp", "sent_bytes");
        let per_second = (sent_bytes - self.sent_bytes) as f64 / since.as_secs_f64();
        self.sent_bytes = sent_bytes;
        self.line.set_message(format!(
            "{}, {}, {} out, {} from here and {} from senders",
            count(relay.session_count() as u64, "session"),
            count(relay.receiver_count() as u64, "receiver"),
            bits(per_second * 8.0),
            count(value("element", "rdata_kept"), "repair"),
            value("element", "rdata_forwarded"),
        ));
    }

    fn clear(&self) {
        self.line.finish_and_clear();
    }
}

/// The shortest time between two updates of the relay's display.
const SHOW_EVERY: Duration = Duration::from_millis(500);
