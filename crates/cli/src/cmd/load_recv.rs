//! `towline load recv`.

use std::{collections::BTreeMap, time::Instant};

use gauge::load::{Delays, LoadCheck, LoadPattern, LoadTally, wall_error_ns_max, wall_ns};
use towline::{MessageSink, SessionEvent, Subscriber};

use super::{
    intervals::Intervals,
    senders::Senders,
    station::{Patience, Station, Stretch, TICK, a_sender, counters},
    subscribe::{Quiet, open},
};
use crate::{
    args::FailOn,
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    plan::LoadRecvPlan,
    report::{Counted, DelayReport, Done, LoadRecvReport, Output, UsageReport},
};

pub(super) fn run(plan: &LoadRecvPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let mut subscriber = open(&plan.session, output)?;
    subscriber.take_only(plan.allowed.iter().copied());
    let mut station = Station::open("subscriber", &plan.session, output)?;
    let mut sink = Checker::new(plan.seed, plan.stamp);
    let progress = output.progress();
    let mut bar = None;
    let mut quiet = Quiet::new(plan.timeout);
    let mut stretch = Stretch::default();
    let mut patience = Patience::new();
    let group = plan.session.place.to_string();
    let of = group.clone();
    let mut intervals = Intervals::new(output, plan.every, of, Counted::MessagesReceived);
    while !interrupt.is_requested() && !is_over(plan, &sink, &stretch) {
        let turn = subscriber.turn(&mut sink)?;
        stretch.take(sink.received);
        for remark in sink.senders.remarks(Instant::now()) {
            output.note(&remark);
        }
        if let Some(doubt) = sink.doubt(CORRUPT_ENOUGH) {
            output.note(&doubt);
        }
        station.show(|snapshot| subscriber.snapshot(snapshot));
        if sink.received > 0 {
            // The bar begins with the first message, so that its rates leave out the wait for a
            // sender.
            let bar = bar.get_or_insert_with(|| progress.messages(&group, plan.count));
            bar.set_position(sink.received);
            intervals.look(|| sink.done())?;
        }
        if sink.senders.ends.found == 0 {
            patience.look(output, || a_sender(&plan.session, subscriber.interface()));
        }
        if quiet.is_over(sink.received) {
            output.note("gave up: no intact message came within --timeout");
            break;
        }
        if turn.is_idle() {
            let until = subscriber.now() + TICK;
            subscriber.wait(Some(until));
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    intervals.finish(sink.done())?;
    let usage = stretch.usage();
    subscriber.close()?;
    let doubt = sink.doubt(1);
    for remark in sink.senders.last_remarks().chain(doubt) {
        output.note(&remark);
    }
    let mut report = report(plan, &subscriber, &sink, &stretch, usage);
    report.is_interrupted = interrupt.is_requested();
    output.finish_after(plan.every, &report)?;
    Ok(Verdict::of_session(
        report.is_interrupted,
        is_fine(plan, &report),
    ))
}

fn is_over(plan: &LoadRecvPlan, sink: &Checker, stretch: &Stretch) -> bool {
    plan.count.is_some_and(|count| sink.received >= count)
        || plan
            .seconds
            .is_some_and(|seconds| stretch.since_first() >= seconds)
        || sink.senders.ends.is_over()
}

fn is_fine(plan: &LoadRecvPlan, report: &LoadRecvReport) -> bool {
    let has_finding = match plan.fail_on {
        FailOn::None => false,
        FailOn::Loss => report.has_loss(),
        FailOn::Any => report.has_damage(),
    };
    let is_short = match plan.count {
        Some(count) => report.messages < count,
        None => report.messages == 0 || report.senders.broken() > 0,
    };
    !(has_finding || is_short)
}

fn report(
    plan: &LoadRecvPlan,
    subscriber: &Subscriber,
    sink: &Checker,
    stretch: &Stretch,
    usage: UsageReport,
) -> LoadRecvReport {
    let counters = counters(|snapshot| subscriber.snapshot(snapshot));
    let mut report = LoadRecvReport {
        group: plan.session.place.to_string(),
        interface: subscriber.interface().0.to_owned(),
        seed: plan.seed,
        messages: 0,
        bytes: 0,
        missing: 0,
        corrupt: 0,
        duplicates: 0,
        out_of_order: 0,
        lost_packets: sink.senders.lost_packets,
        senders: sink.senders.ends,
        is_interrupted: false,
        seconds: stretch.time().as_secs_f64(),
        messages_per_s: 0.0,
        bits_per_s: 0.0,
        delay: sink.delay(plan),
        usage,
        drops: counters.drops(),
        counters,
    };
    for tally in sink.tallies() {
        report.count(tally);
    }
    report
}

/// A checker of the messages of every sender.
struct Checker {
    pattern: LoadPattern,
    checks: BTreeMap<u32, LoadCheck>,
    /// The sum of the tallies of senders whose session number has gone to another sender.
    past: LoadTally,
    senders: Senders,
    received: u64,
    seed: u64,
    is_doubted: bool,
    is_stamped: bool,
    delays: Delays,
    /// How many messages arrived before the time at which they say that they were due.
    negative: u64,
    /// The greatest error of any sender's clock, in ns. `Some(None)` when a sender does not know
    /// its clock's error; `None` before the first stamped message.
    clock_error: Option<Option<u64>>,
}

impl Checker {
    fn new(seed: u64, is_stamped: bool) -> Self {
        Self {
            seed,
            is_doubted: false,
            is_stamped,
            delays: Delays::default(),
            negative: 0,
            clock_error: None,
            pattern: LoadPattern::new(seed),
            checks: BTreeMap::new(),
            past: LoadTally::default(),
            senders: Senders::default(),
            received: 0,
        }
    }

    fn delay(&self, plan: &LoadRecvPlan) -> Option<DelayReport> {
        let late_ns = u64::try_from(plan.late.as_nanos()).unwrap_or(u64::MAX);
        plan.stamp.then(|| DelayReport {
            percentiles: self.delays.percentiles(),
            late_ns,
            messages_late: self.delays.count_above(late_ns),
            negative: self.negative,
            clock_error_ns_max: self
                .clock_error
                .and_then(|error_ns| Some(error_ns?.saturating_add(wall_error_ns_max()?))),
        })
    }

    /// When no message is intact and at least `least` came corrupt, says what may be wrong, but
    /// only once.
    fn doubt(&mut self, least: u64) -> Option<String> {
        if self.received > 0 || self.is_doubted {
            return None;
        }
        let corrupt: u64 = self.tallies().map(|tally| tally.corrupt).sum();
        self.is_doubted = corrupt >= least;
        let Self { seed, .. } = self;
        self.is_doubted.then(|| {
            format!(
                "none of {corrupt} messages is intact; check that the sender runs `load send` \
                 with the same --seed ({seed} here), and --stamp at both ends or at none"
            )
        })
    }

    /// Returns what has come so far from all senders.
    fn done(&self) -> Done {
        let mut sum = LoadTally::default();
        self.tallies().for_each(|tally| sum.add(tally));
        Done {
            count: sum.received,
            bytes: sum.bytes,
            lost: Some(sum.missing.saturating_add(sum.corrupt)),
        }
    }

    fn tallies(&self) -> impl Iterator<Item = &LoadTally> {
        self.checks
            .values()
            .map(LoadCheck::tally)
            .chain([&self.past])
    }
}

impl MessageSink for Checker {
    fn message(&mut self, session: u32, _position: u64, data: &[u8]) {
        let pattern = &self.pattern;
        let check = self
            .checks
            .entry(session)
            .or_insert_with(|| LoadCheck::against(pattern).stamped(self.is_stamped));
        let before = check.tally().received;
        if let Some(stamp) = check.take(data) {
            let error_ns = stamp.clock_error_ns_max;
            let before = self.clock_error.unwrap_or(error_ns);
            self.clock_error = Some(before.zip(error_ns).map(|(one, other)| one.max(other)));
            match wall_ns().checked_sub(stamp.sent_ns) {
                Some(delay_ns) => self.delays.take(delay_ns),
                None => self.negative += 1,
            }
        }
        self.received += check.tally().received - before;
    }

    fn event(&mut self, event: SessionEvent) {
        // A new session may get the number of a forgotten one, whose tally is then complete.
        if let SessionEvent::Found { session, .. } = event
            && let Some(check) = self.checks.remove(&session)
        {
            self.past.add(check.tally());
        }
        self.senders.take(&event);
    }

    fn sender_name(&mut self, session: u32, name: &str) {
        self.senders.named(session, name);
    }
}

/// After this many corrupt messages and no intact one, the network cannot be the cause.
const CORRUPT_ENOUGH: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_another_seed_is_doubted_once() {
        let mut sink = Checker::new(1, false);
        let mut message = [0; 64];
        for sequence in 0..9 {
            LoadPattern::new(2).fill(sequence, &mut message);
            sink.message(0, sequence, &message);
            assert_eq!(sink.doubt(9).is_some(), sequence == 8);
        }
        assert_eq!(sink.doubt(1), None);

        let mut sink = Checker::new(1, false);
        sink.message(0, 0, &[7; 64]);
        LoadPattern::new(1).fill(1, &mut message);
        sink.message(0, 1, &message);
        assert_eq!(sink.doubt(1), None, "one was intact");
    }
}
