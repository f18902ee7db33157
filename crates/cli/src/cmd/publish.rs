//! The command `towline pub`.

use std::{
    io::{self, IsTerminal as _},
    time::{Duration, Instant},
};

use towline::{AudienceEvent, Closed, Publisher, SendStatus, Snapshot};

use super::{
    event::{self, Departed, Lines, Refusals},
    input::{Input, Next},
    station::{Patience, Station, TICK, counters, opened},
};
use crate::{
    args::PolicyArg,
    failure::{Failure, Verdict},
    framing::{Framer, Framing, Limit},
    interrupt::Interrupt,
    plan::{PublishPlan, SessionPlan},
    report::{CensusReport, LimitedBy, Output, PublishReport, count, lacking},
};

pub(super) fn run(plan: &PublishPlan, output: &Output) -> Result<Verdict, Failure> {
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
    let mut watch = Watch::new(&plan.session, plan.receivers, output, &interrupt)?;
    let is_ready = watch.await_receivers(&mut publisher, plan.receivers, plan.timeout)?;
    let started = Instant::now();
    let mut job = Job {
        plan,
        publisher,
        watch,
        interrupt: &interrupt,
        framer: None,
        messages: 0,
        bytes: 0,
        discarded: 0,
    };
    // When the input fails, the messages that the session had already taken are still delivered.
    let sent = if is_ready {
        job.send_input()
    } else {
        Ok(SendingEnd::Unbegun)
    };
    let end = *sent.as_ref().unwrap_or(&SendingEnd::Cut);
    let closed = end.close(&mut job.publisher, plan.timeout, &mut job.watch)?;
    let is_proven = match end {
        // After a cut, only what was sent can be proven. Perhaps more was to be sent.
        SendingEnd::Cut => closed.missing == 0 && closed.unconfirmed.is_empty(),
        SendingEnd::Whole | SendingEnd::Unbegun => closed.is_complete(),
    };
    let mut report = job.report(started.elapsed(), is_proven && is_confirmed(&closed));
    report.unconfirmed.clone_from(&closed.unconfirmed);
    let given_up = report.given_up;
    let refused = refused(&job.publisher);
    report.failure = match &sent {
        Err(error) => Some(error.to_string()),
        Ok(_) if refused.is_some() => refused.clone(),
        Ok(SendingEnd::Unbegun) => Some(unbegun(plan.receivers, report.receivers)),
        Ok(_) => {
            let is_told = (report.receivers, given_up);
            failure(plan.receivers, is_told, is_proven, &closed)
        }
    };
    output.finish(&report)?;
    sent?;
    if let Some(text) = refused {
        output.note(&text);
    }
    Ok(Verdict::of_session(
        report.is_interrupted,
        report.failure.is_none(),
    ))
}

/// Returns true when at least one receiver has everything that was sent, and no receiver that is
/// expected or has joined lacks anything.
pub(super) fn is_confirmed(closed: &Closed) -> bool {
    closed.confirmed > 0 && closed.missing == 0 && closed.unconfirmed.is_empty()
}

/// Says why no packet could be sent; `None` when packets could be sent. `load send` uses this too.
pub(super) fn refused(publisher: &Publisher) -> Option<String> {
    let error = publisher.send_error()?;
    Some(format!("nothing was sent: {}", Failure::from(error)))
}

/// Says that nothing was sent, because too few receivers joined.
fn unbegun(expected: u32, joined: u64) -> String {
    let expected = count(expected.into(), "receiver");
    format!("nothing was sent: {joined} of {expected} joined in time")
}

/// Says that packets were lost for good, that too few expected receivers confirmed everything, or
/// that a receiver did not confirm everything in time. `None` when none of this happened.
/// `load send` uses this too.
pub(super) fn failure(
    expected: u32,
    (joined, given_up): (u64, u64),
    is_proven: bool,
    closed: &Closed,
) -> Option<String> {
    if closed.lost > 0 {
        let (lost, names) = (count(closed.lost, "packet"), closed.unconfirmed.join(", "));
        return Some(format!(
            "{lost} lost for good; not everything came to {names}"
        ));
    }
    let confirmed = joined.saturating_sub(given_up);
    if confirmed < u64::from(expected) {
        let expected = count(expected.into(), "expected receiver");
        let lacking = lacking(&closed.unconfirmed);
        return Some(format!(
            "{confirmed} of {expected} confirmed everything{lacking}"
        ));
    }
    let is_proven = is_proven || joined == 0;
    (!is_proven).then(|| "not every receiver confirmed everything in time".to_owned())
}

/// How far a sending command came; `load send` uses it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendingEnd {
    /// The expected receivers did not come, so nothing was sent.
    Unbegun,
    /// The input failed or a signal came, so perhaps more was to be sent.
    Cut,
    /// The session took the whole input. `load send` has no input that could be cut, so it always
    /// ends like this once it has begun, even after a signal.
    Whole,
}

impl SendingEnd {
    /// Ends the session. If the sending never began or was cut, breaks the session off, so that
    /// no receiver takes it for complete.
    pub(super) fn close(
        self,
        publisher: &mut Publisher,
        timeout: Option<Duration>,
        watch: &mut Watch<'_>,
    ) -> Result<Closed, towline::Error> {
        let interrupt = watch.interrupt;
        let may_wait = || !interrupt.is_farewell_over();
        let timeout = timeout.unwrap_or(CLOSE_TIME_MAX);
        match self {
            // The session has waited for receivers already, and does not wait for them again.
            Self::Unbegun => publisher.break_off_while(Duration::ZERO, may_wait),
            Self::Cut => publisher.break_off_while(timeout, may_wait),
            Self::Whole => watch.close(publisher, timeout),
        }
    }
}

/// Opens a publisher; `load send` uses it too.
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
        .expect_receivers(receivers)
        .stall_timeout(timeout)
        .open()?;
    let (warnings, doing) = (
        publisher.take_warnings(),
        format!("sending to {} by", session.place),
    );
    opened(output, &warnings, &doing, publisher.interface());
    Ok(publisher)
}

/// What a sending command prints and shows while it works; `load send` uses it too.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    station: Station,
    output: &'a Output,
    interrupt: &'a Interrupt,
    joined: u64,
    departed: Departed,
    refusals: Refusals,
    lines: Lines,
    limited_by: Option<LimitedBy>,
    /// The count by polls that was printed last.
    counted: Option<CensusReport>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        session: &SessionPlan,
        receivers: u32,
        output: &'a Output,
        interrupt: &'a Interrupt,
    ) -> Result<Self, Failure> {
        let guests_from = match session.key {
            Some(_) => u32::MAX,
            None => receivers,
        };
        Ok(Self {
            station: Station::open("publisher", session, output)?,
            output,
            interrupt,
            joined: 0,
            departed: Departed::default(),
            refusals: Refusals::default(),
            lines: Lines::new(Instant::now(), guests_from),
            limited_by: None,
            counted: None,
        })
    }

    /// Waits for the expected receivers. Returns false when a signal ends the wait. When they do
    /// not come in time, prints that, and returns false, too.
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
                Err(towline::Error::Missing { .. }) if self.interrupt.is_requested() => {
                    return Ok(false);
                }
                Err(error @ towline::Error::Missing { .. })
                    if left.is_some_and(|left| left <= TICK) =>
                {
                    self.output.note(&format!("nothing sent: {error}"));
                    return Ok(false);
                }
                Err(towline::Error::Missing { .. }) => patience.look(self.output, || {
                    let receivers = count(expected.into(), "receiver");
                    format!("{receivers}, {} joined", self.joined)
                }),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Prints events, warnings and rate limits, and shows the counters to other processes.
    pub(super) fn look(&mut self, publisher: &mut Publisher) {
        self.hear(|| publisher.pop_event());
        publisher
            .take_warnings()
            .iter()
            .for_each(|warning| self.output.warn(warning));
        self.note_limit(publisher);
        self.note_census(publisher);
        self.show(|snapshot| publisher.snapshot(snapshot));
    }

    /// Prints the events of receivers; `frames send` uses it too.
    pub(super) fn hear(&mut self, mut pop: impl FnMut() -> Option<AudienceEvent>) {
        while let Some(event) = pop() {
            self.take(&event);
        }
    }

    /// Ends a session that has taken the whole input. Most of a short input may still be unsent, so
    /// this goes on calling [`Watch::look`], for events and counters, until the session has ended.
    fn close(
        &mut self,
        publisher: &mut Publisher,
        timeout: Duration,
    ) -> Result<Closed, towline::Error> {
        publisher.begin_close(timeout);
        loop {
            let is_idle = publisher.turn()?.is_idle();
            self.look(publisher);
            if let Some(closed) = publisher.closed() {
                return Ok(closed);
            }
            if self.interrupt.is_farewell_over() {
                publisher.begin_close(Duration::ZERO);
            } else if is_idle {
                let tick = publisher.now() + TICK;
                publisher.wait(Some(tick));
            }
        }
    }

    fn take(&mut self, event: &AudienceEvent) {
        self.joined += u64::from(matches!(event, AudienceEvent::Joined { .. }));
        self.departed.note(event);
        let text = event::receiver(event, &mut self.refusals);
        let text = text.and_then(|text| self.lines.shown(Instant::now(), event, text));
        text.iter().for_each(|text| self.output.note(text));
    }

    /// Shows the counters to other processes.
    pub(super) fn show(&mut self, fill: impl FnOnce(&mut Snapshot)) {
        self.station.show(fill);
    }

    /// Prints which receiver limits the rate: the first such receiver, and then each new one.
    fn note_limit(&mut self, publisher: &Publisher) {
        let Some(setter) = publisher.rate_setter() else {
            return;
        };
        let bytes_per_s = publisher.bytes_per_s_max().unwrap_or(0);
        let bits_per_s = bytes_per_s.saturating_mul(8);
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

    /// Prints what a count by polls found: the first time, and whenever receivers came or left.
    fn note_census(&mut self, publisher: &Publisher) {
        let Some(census) = publisher.census() else {
            return;
        };
        let census = CensusReport::from(census);
        let before = self.counted.as_ref();
        if before.is_none_or(|before| census.is_other_than(before)) {
            self.output.note(&census.to_string());
            self.counted = Some(census);
        }
    }

    /// Returns the receiver that limited the rate last, if any did.
    pub(super) fn limited_by(&self) -> Option<LimitedBy> {
        self.limited_by.clone()
    }

    /// Prints what has happened up to the end, and the totals of events that were only counted.
    pub(super) fn finish(&mut self, publisher: &mut Publisher) {
        self.look(publisher);
        self.refusals
            .lines()
            .for_each(|line| self.output.note(&line));
    }

    /// Returns how many receivers have joined so far.
    pub(super) const fn joined(&self) -> u64 {
        self.joined
    }

    /// Returns how many receivers left before they had everything that the session has taken so
    /// far.
    pub(super) fn given_up(&self, publisher: &Publisher) -> u64 {
        self.departed.short_of(publisher.lead())
    }
}

struct Job<'a> {
    plan: &'a PublishPlan,
    publisher: Publisher,
    watch: Watch<'a>,
    interrupt: &'a Interrupt,
    /// With `--framing zmq`: what makes packets of messages.
    framer: Option<Framer>,
    messages: u64,
    bytes: u64,
    discarded: u64,
}

impl Job<'_> {
    /// Sends all of the input, or what came before a signal.
    fn send_input(&mut self) -> Result<SendingEnd, Failure> {
        let (mut bytes_max, mut parameter) = self.publisher.message_limit();
        if self.plan.framing == Framing::Zmq {
            // A message may be longer than a packet.
            self.framer = Some(Framer::new(bytes_max));
            bytes_max = self.plan.session.config.apdu_bytes_max();
            parameter = "apdu_bytes_max";
        }
        if let Some(message) = &self.plan.message {
            return Ok(match self.send(message.as_bytes())? {
                SendingEnd::Whole => self.flush(true)?,
                end => end,
            });
        }
        let limit = Limit {
            bytes: bytes_max,
            parameter,
        };
        if io::stdin().is_terminal() && self.plan.framing.is_lines() {
            self.watch.output.note(FROM_A_TERMINAL);
        }
        let input = Input::start(self.plan.framing, limit, self.publisher.waker()?)?;
        while !self.interrupt.is_requested() {
            match input.next()? {
                Next::Chunk(chunk) => {
                    for message in chunk.messages() {
                        if self.send(message)? == SendingEnd::Cut {
                            return Ok(SendingEnd::Cut);
                        }
                    }
                    if self.flush(self.plan.is_blocking)? == SendingEnd::Cut {
                        return Ok(SendingEnd::Cut);
                    }
                    self.publisher.turn()?;
                    self.watch.look(&mut self.publisher);
                }
                Next::Nothing => {
                    self.pass(false)?;
                    self.rest(None)?;
                }
                Next::End => return self.flush(true),
            }
        }
        Ok(SendingEnd::Cut)
    }

    /// Sends a message. If the session cannot take it yet, waits, or with `--block=no` drops the
    /// message. Gives up ([`SendingEnd::Cut`]) when a signal has come.
    fn send(&mut self, message: &[u8]) -> Result<SendingEnd, Failure> {
        let is_blocking = self.plan.is_blocking;
        let handed = match &self.framer {
            None => self.hand_over(message, is_blocking)?,
            // A message that has begun must go whole: what is dropped is one that has not.
            Some(_) => self.pass(is_blocking)?,
        };
        match handed {
            Handed::Over => {
                self.messages += 1;
                self.bytes += message.len() as u64;
            }
            Handed::Back => self.discarded += 1,
            Handed::Cut => return Ok(SendingEnd::Cut),
        }
        if let (Handed::Over, Some(framer)) = (handed, &mut self.framer) {
            framer.push(message);
        }
        Ok(SendingEnd::Whole)
    }

    /// With `--framing zmq`, sends the packet that is not full, too, because nothing may follow
    /// soon. Without `is_waiting`, packets for which there is no room go later.
    fn flush(&mut self, is_waiting: bool) -> Result<SendingEnd, Failure> {
        self.framer.iter_mut().for_each(Framer::flush);
        Ok(match self.pass(is_waiting)? {
            Handed::Cut => SendingEnd::Cut,
            Handed::Over | Handed::Back => SendingEnd::Whole,
        })
    }

    /// Hands over the framer's packets, in order.
    fn pass(&mut self, is_waiting: bool) -> Result<Handed, Failure> {
        while let Some(packet) = self.next_packet() {
            let handed = self.hand_over(&packet, is_waiting)?;
            if handed != Handed::Over {
                if let Some(framer) = &mut self.framer {
                    framer.packets.push_front(packet);
                }
                return Ok(handed);
            }
        }
        Ok(Handed::Over)
    }

    fn next_packet(&mut self) -> Option<Vec<u8>> {
        self.framer.as_mut()?.packets.pop_front()
    }

    /// Hands bytes over to the session as one of its messages. With `is_waiting`, waits until it
    /// can take them.
    fn hand_over(&mut self, bytes: &[u8], is_waiting: bool) -> Result<Handed, Failure> {
        while !self.interrupt.is_requested() {
            let until = match self.publisher.try_send(bytes)? {
                SendStatus::Taken => return Ok(Handed::Over),
                _ if !is_waiting => return Ok(Handed::Back),
                SendStatus::RateLimited { until } => Some(until),
                _ => None,
            };
            self.rest(until)?;
        }
        Ok(Handed::Cut)
    }

    /// Does the session's work. If there is none, waits for some, at most until `until` and at most
    /// one [`TICK`].
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
            group: self.plan.session.place.to_string(),
            messages: self.messages,
            bytes: self.bytes,
            discarded: self.discarded,
            seconds: time.as_secs_f64(),
            is_confirmed,
            is_interrupted: self.interrupt.is_requested(),
            receivers: self.watch.joined(),
            given_up: self.watch.given_up(&self.publisher),
            unconfirmed: Vec::new(),
            limited_by: self.watch.limited_by(),
            census: self.publisher.census().map(Into::into),
            failure: None,
            drops: counters.drops(),
            counters,
        }
    }
}

/// What became of bytes that were handed over to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handed {
    Over,
    /// The session cannot take them yet.
    Back,
    /// A signal has come.
    Cut,
}

/// A hint for a person who types the messages.
const FROM_A_TERMINAL: &str = "each line is a message; Ctrl-D at the beginning of a line ends";
/// The longest time that ending a session may take without `--timeout`.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(60);
