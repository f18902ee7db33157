//! `towline load send`.

use std::time::Instant;

use gauge::load::{LoadSender, LoadSizes, LoadSpec};
use towline::{Closed, Publisher, UsageMeter};

use super::{
    intervals::Intervals,
    publish::{SendingEnd, Watch, failure, is_confirmed, open, refused},
    station::{TICK, counters},
};
use crate::{
    args::flag,
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    plan::LoadSendPlan,
    report::{Counted, Done, LoadSendReport, Output, per_second},
};

pub(super) fn run(plan: &LoadSendPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
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
    check_size(plan, &publisher)?;
    let mut watch = Watch::new(&plan.session, plan.receivers, output, &interrupt)?;
    let is_ready = watch.await_receivers(&mut publisher, plan.receivers, plan.timeout)?;
    let meter = UsageMeter::start();
    let progress = output.progress();
    let bar = progress.messages(&plan.session.place.to_string(), plan.count);
    let mut sender = LoadSender::new(spec(plan));
    let group = plan.session.place.to_string();
    let mut intervals = Intervals::new(output, plan.every, group, Counted::MessagesSent);
    let started = Instant::now();
    while is_ready && !interrupt.is_requested() && !sender.is_over(&mut publisher) {
        sender.turn(&mut publisher, TICK)?;
        watch.look(&mut publisher);
        bar.set_position(sender.messages());
        intervals.look(|| done(&sender))?;
    }
    intervals.finish(done(&sender))?;
    flush(&mut publisher, &interrupt)?;
    let seconds = started.elapsed().as_secs_f64();
    let usage = meter.read();
    bar.finish_and_clear();
    let end = match is_ready {
        true => SendingEnd::Whole,
        false => SendingEnd::Unbegun,
    };
    let closed = end.close(&mut publisher, plan.timeout, &mut watch)?;
    watch.finish(&mut publisher);
    let counters = counters(|snapshot| publisher.snapshot(snapshot));
    let report = LoadSendReport {
        group: plan.session.place.to_string(),
        interface: publisher.interface().0.to_owned(),
        size_bytes: plan.size_bytes,
        seed: plan.seed,
        messages: sender.messages(),
        bytes: sender.bytes(),
        seconds,
        messages_per_s: per_second(sender.messages(), seconds),
        bits_per_s: per_second(sender.bytes(), seconds) * 8.0,
        failure: shortfall(plan.receivers, &publisher, &watch, &closed),
        is_confirmed: closed.is_complete() && is_confirmed(&closed),
        is_interrupted: interrupt.is_requested(),
        receivers: watch.joined(),
        given_up: watch.given_up(&publisher),
        limited_by: watch.limited_by(),
        census: publisher.census().map(Into::into),
        usage: usage.into(),
        drops: counters.drops(),
        counters,
    };
    output.finish_after(plan.every, &report)?;
    Ok(Verdict::of_session(
        report.is_interrupted,
        is_ready && report.failure.is_none(),
    ))
}

/// Refuses messages that are longer than the session can send.
fn check_size(plan: &LoadSendPlan, publisher: &Publisher) -> Result<(), Failure> {
    let (max, parameter) = publisher.message_limit();
    if plan.size_bytes.max <= max {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--size: a message has at most {max} bytes; raise --{}, or give a smaller size",
        flag(parameter)
    )))
}

/// Says why nothing was sent, or which receivers lack something; `None` when neither applies.
fn shortfall(
    expected: u32,
    publisher: &Publisher,
    watch: &Watch<'_>,
    closed: &Closed,
) -> Option<String> {
    let given_up = watch.given_up(publisher);
    let failure = || {
        let is_told = (watch.joined(), given_up);
        failure(expected, is_told, closed.is_complete(), closed)
    };
    refused(publisher).or_else(failure)
}

fn done(sender: &LoadSender) -> Done {
    Done {
        count: sender.messages(),
        bytes: sender.bytes(),
        lost: None,
    }
}

fn spec(plan: &LoadSendPlan) -> LoadSpec {
    LoadSpec {
        sizes: LoadSizes {
            bytes_min: plan.size_bytes.min,
            bytes_max: plan.size_bytes.max,
            seed: plan.seed,
        },
        count: plan.count,
        duration: plan.seconds,
        schedule: plan.schedule,
        is_stamped: plan.stamp,
    }
}

/// Waits until the last packet has left; after a signal, at most until the time for the farewell to
/// receivers is over.
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
