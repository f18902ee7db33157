//! `towline pub`.

use std::time::{Duration, Instant};

use towline::{Publisher, RegistryEvent, SendStatus};

use super::{
    event::{self, Departed, Refusals},
    input::{Input, Next},
    station::{Patience, Station, TICK, counters},
};
use crate::{
    args::PolicyArg,
    failure::{Failure, Verdict},
    framing::Limit,
    interrupt::Interrupt,
    plan::{PublishPlan, SessionPlan},
    report::{LimitedBy, Output, PublishReport, count},
};

pub(super) fn run(plan: &PublishPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only("pub", plan)? {
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
    let mut watch = Watch::new(&plan.session, output, &interrupt)?;
    let is_ready = watch.await_receivers(&mut publisher, plan.receivers, plan.timeout)?;
    let started = Instant::now();
    let mut job = Job {
        plan,
        publisher,
        watch,
        interrupt: &interrupt,
        messages: 0,
        bytes: 0,
        discarded: 0,
    };
    // What was taken before the input failed is delivered all the same.
    let sent = if is_ready { job.send_input() } else { Ok(()) };
    let linger = job.publisher.linger();
    if job.watch.joined() == 0 && !linger.is_zero() {
        let text = format!(
            "no receiver reports: answering requests for repairs for {linger:?} (--linger)"
        );
        output.note(&text);
    }
    let is_confirmed = job
        .publisher
        .close_while(plan.timeout.unwrap_or(CLOSE_TIME_MAX), || {
            !interrupt.is_farewell_over()
        })?;
    let report = job.report(started.elapsed(), is_confirmed);
    output.finish(&report)?;
    sent?;
    let is_proven = is_confirmed || report.receivers == 0;
    let confirmed = report.receivers.saturating_sub(report.given_up);
    let is_enough = confirmed >= u64::from(plan.receivers);
    Ok(Verdict::of_session(
        report.is_interrupted,
        is_proven && is_enough,
    ))
}

/// Opens a publisher; used by `load send` too.
pub(super) fn open(
    session: &SessionPlan,
    policy: PolicyArg,
    receivers: u32,
    timeout: Option<Duration>,
    output: &Output,
) -> Result<Publisher, Failure> {
    let builder = Publisher::builder(session.session());
    let mut publisher = builder
        .policy(policy.into())
        .receivers(receivers)
        .stall_timeout(timeout)
        .open()?;
    publisher
        .take_warnings()
        .iter()
        .for_each(|warning| output.warn(warning));
    let (interface, address) = publisher.interface();
    output.detail(&format!(
        "sending to {} by {interface} ({address})",
        session.group
    ));
    Ok(publisher)
}

/// What a sending command says and shows while it works; used by `load send` too.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    station: Station,
    output: &'a Output,
    interrupt: &'a Interrupt,
    joined: u64,
    departed: Departed,
    refusals: Refusals,
    limited_by: Option<LimitedBy>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        session: &SessionPlan,
        output: &'a Output,
        interrupt: &'a Interrupt,
    ) -> Result<Self, Failure> {
        Ok(Self {
            station: Station::open("publisher", session, output)?,
            output,
            interrupt,
            joined: 0,
            departed: Departed::default(),
            refusals: Refusals::default(),
            limited_by: None,
        })
    }

    /// Waits for the receivers that are expected; false, with a word, when they do not come or
    /// nobody wants to wait for them any more.
    pub(super) fn await_receivers(
        &mut self,
        publisher: &mut Publisher,
        expected: u32,
        timeout: Option<Duration>,
    ) -> Result<bool, Failure> {
        let mut patience = Patience::new();
        let started = Instant::now();
        loop {
            let left = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
            let waited = publisher.wait_for_receivers(Some(left.unwrap_or(TICK).min(TICK)));
            self.look(publisher);
            match waited {
                Ok(()) => return Ok(true),
                Err(towline::Error::TimedOut(_)) if self.interrupt.is_requested() => {
                    return Ok(false);
                }
                Err(towline::Error::TimedOut(text)) if left.is_some_and(|left| left <= TICK) => {
                    self.output
                        .note(&format!("nothing sent: {text}, {expected} are expected"));
                    return Ok(false);
                }
                Err(towline::Error::TimedOut(_)) => patience.look(self.output, || {
                    let receivers = count(expected.into(), "receiver");
                    format!("{receivers}, {} joined", self.joined)
                }),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Says what has happened, and shows the counters.
    pub(super) fn look(&mut self, publisher: &mut Publisher) {
        while let Some(event) = publisher.pop_event() {
            self.joined += u64::from(matches!(event, RegistryEvent::Joined { .. }));
            self.departed.note(&event);
            if let Some(text) = event::receiver(&event, &mut self.refusals) {
                self.output.note(&text);
            }
        }
        publisher
            .take_warnings()
            .iter()
            .for_each(|warning| self.output.warn(warning));
        self.note_limit(publisher);
        self.station.show(|snapshot| publisher.snapshot(snapshot));
    }

    /// Names the receiver that limits the rate, when it was not the one before.
    fn note_limit(&mut self, publisher: &Publisher) {
        let Some(setter) = publisher.rate_setter() else {
            return;
        };
        let bits_per_s = publisher.rate().saturating_mul(8);
        let before = self.limited_by.as_mut();
        let same = before.filter(|before| before.receiver == setter.receiver);
        if let Some(before) = same {
            before.bits_per_s = bits_per_s;
            return;
        }
        let limited_by = LimitedBy {
            receiver: setter.receiver.to_owned(),
            cause: setter.cause.to_string(),
            bits_per_s,
        };
        self.output.note(&format!("the rate is {limited_by}"));
        self.limited_by = Some(limited_by);
    }

    /// Who limited the rate last, if anybody did.
    pub(super) fn limited_by(&self) -> Option<LimitedBy> {
        self.limited_by.clone()
    }

    /// Says what has happened until the end, and what was only counted.
    pub(super) fn finish(&mut self, publisher: &mut Publisher) {
        self.look(publisher);
        self.refusals
            .lines()
            .for_each(|line| self.output.note(&line));
    }

    /// How many receivers have joined so far.
    pub(super) const fn joined(&self) -> u64 {
        self.joined
    }

    /// How many of them are gone without having been given everything up to now.
    pub(super) fn given_up(&self, publisher: &Publisher) -> u64 {
        self.departed.short_of(publisher.lead())
    }
}

struct Job<'a> {
    plan: &'a PublishPlan,
    publisher: Publisher,
    watch: Watch<'a>,
    interrupt: &'a Interrupt,
    messages: u64,
    bytes: u64,
    discarded: u64,
}

impl Job<'_> {
    fn send_input(&mut self) -> Result<(), Failure> {
        let (bytes_max, parameter) = self.publisher.message_limit();
        let limit = Limit {
            bytes: bytes_max,
            parameter,
        };
        let input = Input::start(self.plan.framing, limit, self.publisher.waker()?)?;
        while !self.interrupt.is_requested() {
            match input.next()? {
                Next::Chunk(chunk) => {
                    for message in chunk.messages() {
                        self.send(message)?;
                    }
                    self.publisher.turn()?;
                    self.watch.look(&mut self.publisher);
                }
                Next::Nothing => self.rest(None)?,
                Next::End => break,
            }
        }
        Ok(())
    }

    /// Hands a message over, or leaves it when a signal comes while there is no room for it.
    fn send(&mut self, message: &[u8]) -> Result<(), Failure> {
        while !self.interrupt.is_requested() {
            let until = match self.publisher.try_send(message)? {
                SendStatus::Taken => {
                    self.messages += 1;
                    self.bytes += message.len() as u64;
                    return Ok(());
                }
                _ if !self.plan.is_blocking => {
                    self.discarded += 1;
                    return Ok(());
                }
                SendStatus::RateLimited { until } => Some(until),
                SendStatus::WouldBlock => None,
            };
            self.rest(until)?;
        }
        Ok(())
    }

    /// Does the session's work and waits for more, at most a moment.
    fn rest(&mut self, until: Option<towline::Instant>) -> Result<(), Failure> {
        if self.publisher.turn()?.is_idle() {
            let tick = self.publisher.now() + TICK;
            self.publisher
                .wait(Some(until.map_or(tick, |until| until.min(tick))));
        }
        self.watch.look(&mut self.publisher);
        Ok(())
    }

    fn report(&mut self, time: Duration, is_confirmed: bool) -> PublishReport {
        self.watch.finish(&mut self.publisher);
        let counters = counters(|snapshot| self.publisher.snapshot(snapshot));
        PublishReport {
            group: self.plan.session.group.to_string(),
            messages: self.messages,
            bytes: self.bytes,
            discarded: self.discarded,
            seconds: time.as_secs_f64(),
            is_confirmed,
            is_interrupted: self.interrupt.is_requested(),
            receivers: self.watch.joined(),
            given_up: self.watch.given_up(&self.publisher),
            limited_by: self.watch.limited_by(),
            counters,
        }
    }
}

/// How long the end of a session may take when nothing else was asked for.
pub(super) const CLOSE_TIME_MAX: Duration = Duration::from_secs(60);
