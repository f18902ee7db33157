//! `towline load send`.

use std::time::{Duration, Instant};

use gauge::load::{LoadPattern, LoadSizes, wall_ns};
use towline::{Publisher, SendStatus, UsageMeter};

use super::{
    publish::{CLOSE_TIME_MAX, Watch, open},
    station::{TICK, counters},
};
use crate::{
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    plan::LoadSendPlan,
    report::{LoadSendReport, Output, UsageReport, per_second},
};

pub(super) fn run(plan: &LoadSendPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only("load-send", plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let mut publisher = open(
        &plan.session,
        plan.policy,
        plan.receivers,
        plan.timeout,
        output,
    )?;
    let (max, parameter) = publisher.message_limit();
    if plan.size.max > max {
        let error = towline::Error::TooLong { max, parameter };
        return Err(Failure::usage(format!("--size: {error}")));
    }
    let mut watch = Watch::new(&plan.session, output, &interrupt)?;
    let is_ready = watch.await_receivers(&mut publisher, plan.receivers, plan.timeout)?;
    let meter = UsageMeter::start();
    let progress = output.progress();
    let bar = progress.messages(&plan.session.group.to_string(), plan.count);
    let mut generator = Generator::new(plan);
    generator.started = clocks(&mut publisher);
    let started = Instant::now();
    while is_ready && !interrupt.is_requested() && !generator.is_over(started.elapsed()) {
        generator.send_some(&mut publisher)?;
        watch.look(&mut publisher);
        bar.set_position(generator.sequence);
    }
    flush(&mut publisher, &interrupt)?;
    let time = started.elapsed();
    let usage = meter.read();
    bar.finish_and_clear();
    let is_confirmed = publisher.close_while(plan.timeout.unwrap_or(CLOSE_TIME_MAX), || {
        !interrupt.is_farewell_over()
    })?;
    watch.finish(&mut publisher);
    let mut report = generator.report(&publisher, time, usage.into());
    report.is_confirmed = is_confirmed;
    report.is_interrupted = interrupt.is_requested();
    report.receivers = watch.joined();
    report.given_up = watch.given_up(&publisher);
    report.limited_by = watch.limited_by();
    output.finish(&report)?;
    let is_proven = is_confirmed || report.receivers == 0;
    let confirmed = report.receivers.saturating_sub(report.given_up);
    let is_enough = confirmed >= u64::from(plan.receivers);
    Ok(Verdict::of_session(
        report.is_interrupted,
        is_ready && is_proven && is_enough,
    ))
}

/// One moment by the publisher's clock and by the wall clock. A thread that was interrupted between
/// the two readings reads again.
fn clocks(publisher: &mut Publisher) -> (towline::Instant, u64) {
    let mut both = (publisher.now(), wall_ns());
    for _ in 0..CLOCK_READINGS_MAX {
        if publisher.now().since(both.0) <= CLOCK_READING_MAX {
            break;
        }
        both = (publisher.now(), wall_ns());
    }
    both
}

/// Waits until the last packet has left; after a signal no longer than its farewell.
fn flush(publisher: &mut Publisher, interrupt: &Interrupt) -> Result<(), Failure> {
    loop {
        let is_idle = publisher.turn()?.is_idle();
        if publisher.is_drained() || interrupt.is_farewell_over() {
            return Ok(());
        }
        if is_idle {
            let tick = publisher.now() + TICK;
            publisher.wait(Some(tick));
        }
    }
}

/// Makes messages and hands them over.
struct Generator<'a> {
    plan: &'a LoadSendPlan,
    pattern: LoadPattern,
    sizes: LoadSizes,
    scratch: Vec<u8>,
    sequence: u64,
    bytes: u64,
    /// When message 0 was due, by the publisher's clock and by the wall clock.
    started: (towline::Instant, u64),
}

impl<'a> Generator<'a> {
    fn new(plan: &'a LoadSendPlan) -> Self {
        let sizes = LoadSizes {
            min: plan.size.min,
            max: plan.size.max,
            seed: plan.seed,
        };
        Self {
            plan,
            pattern: LoadPattern::new(plan.seed),
            sizes,
            scratch: vec![0; plan.size.max],
            sequence: 0,
            bytes: 0,
            started: (towline::Instant::ZERO, 0),
        }
    }

    /// How long after the first one the next message is due, where there is a schedule.
    fn due_after(&self) -> Option<Duration> {
        let per_second = self.plan.per_second?;
        let ns = u128::from(self.sequence) * 1_000_000_000 / u128::from(per_second);
        Some(Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
    }

    /// What the next message says of its time.
    fn stamp_ns(&self) -> u64 {
        match self.due_after() {
            Some(after) => self.started.1 + u64::try_from(after.as_nanos()).unwrap_or(u64::MAX),
            None => wall_ns(),
        }
    }

    fn is_over(&self, elapsed: Duration) -> bool {
        self.plan.count.is_some_and(|count| self.sequence >= count)
            || self.plan.seconds.is_some_and(|seconds| elapsed >= seconds)
    }

    /// Hands over messages for a moment, or waits for room.
    fn send_some(&mut self, publisher: &mut Publisher) -> Result<(), Failure> {
        let count = self
            .plan
            .count
            .map_or(BATCH_MESSAGES, |count| count - self.sequence);
        for _ in 0..count.min(BATCH_MESSAGES) {
            let due = self.due_after().map(|after| self.started.0 + after);
            if let Some(due) = due.filter(|&due| due > publisher.now()) {
                if publisher.turn()?.is_idle() {
                    let tick = publisher.now() + TICK;
                    publisher.wait(Some(due.min(tick)));
                }
                return Ok(());
            }
            if !self.send(publisher)? {
                let tick = publisher.now() + TICK;
                if publisher.turn()?.is_idle() {
                    publisher.wait(Some(tick));
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// Hands over the next message; false when there is no room for it.
    fn send(&mut self, publisher: &mut Publisher) -> Result<bool, Failure> {
        let size = self.sizes.of(self.sequence);
        let stamp_ns = self.plan.stamp.then(|| self.stamp_ns());
        let (pattern, sequence) = (&self.pattern, self.sequence);
        let fill = |message: &mut [u8]| {
            pattern.fill(sequence, message);
            if let Some(stamp_ns) = stamp_ns {
                LoadPattern::stamp(message, stamp_ns);
            }
        };
        let status = if size <= publisher.packet_limit() {
            publisher.try_send_with(size, fill)?
        } else {
            let message = &mut self.scratch[..size];
            fill(message);
            publisher.try_send(message)?
        };
        let is_taken = status == SendStatus::Taken;
        if is_taken {
            self.sequence += 1;
            self.bytes += size as u64;
        }
        Ok(is_taken)
    }

    fn report(&self, publisher: &Publisher, time: Duration, usage: UsageReport) -> LoadSendReport {
        let counters = counters(|snapshot| publisher.snapshot(snapshot));
        let seconds = time.as_secs_f64();
        LoadSendReport {
            group: self.plan.session.group.to_string(),
            interface: publisher.interface().0.to_owned(),
            size: self.plan.size,
            seed: self.plan.seed,
            messages: self.sequence,
            bytes: self.bytes,
            seconds,
            messages_per_s: per_second(self.sequence, seconds),
            bits_per_s: per_second(self.bytes, seconds) * 8.0,
            is_confirmed: false,
            is_interrupted: false,
            receivers: 0,
            given_up: 0,
            limited_by: None,
            usage,
            counters,
        }
    }
}

/// Two clocks read within this count as read at once.
const CLOCK_READING_MAX: Duration = Duration::from_micros(2);
const CLOCK_READINGS_MAX: usize = 100;
/// Between two looks at the clock and at events.
const BATCH_MESSAGES: u64 = 1_000;
