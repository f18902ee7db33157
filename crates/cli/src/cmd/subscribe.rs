//! `towline sub`.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use towline::{MessageSink, SessionEvent, Subscriber};

use super::{
    senders::Senders,
    station::{Patience, Station, TICK, a_sender, counters, opened},
    writer::Writer,
};
use crate::{
    args::FailOn,
    failure::{Failure, Verdict},
    framing::{Framing, Unframer},
    interrupt::Interrupt,
    plan::{SessionPlan, SubscribePlan},
    report::{MessageLine, Output, SubscribeReport, count},
};

pub(super) fn run(plan: &SubscribePlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let mut subscriber = open(&plan.session, output)?;
    subscriber.take_only(plan.allowed.iter().copied());
    let mut station = Station::open("subscriber", &plan.session, output)?;
    let mut sink = Printer::new(plan, output)?;
    let end = receive(
        plan,
        &mut subscriber,
        &mut station,
        &mut sink,
        (output, &interrupt),
    )?;
    subscriber.close()?;
    for remark in sink.senders.last_remarks() {
        output.note(&remark);
    }
    let mut counters = counters(|snapshot| subscriber.snapshot(snapshot));
    if sink.misframed > 0 {
        let reason = "drop.misframed".to_owned();
        counters.0.insert(reason, sink.misframed);
    }
    let mut report = SubscribeReport {
        group: plan.session.place.to_string(),
        messages: sink.messages,
        bytes: sink.bytes,
        lost_packets: sink.senders.lost_packets,
        discarded: sink.discarded,
        senders: sink.senders.ends,
        is_interrupted: end == End::Interrupted,
        seconds: sink.span().as_secs_f64(),
        failure: None,
        drops: counters.drops(),
        counters,
    };
    report.failure = failure(plan, end, &report);
    sink.finish()?;
    output.one_of_many(&report)?;
    Ok(Verdict::of_session(
        end == End::Interrupted,
        report.failure.is_none(),
    ))
}

/// Says why the command did not do what its flags asked for; `None` when it did.
fn failure(plan: &SubscribePlan, end: End, report: &SubscribeReport) -> Option<String> {
    if end == End::Silence {
        return Some("no message came within --timeout".to_owned());
    }
    if let Some(count) = plan.count.filter(|count| report.messages < *count) {
        return Some(format!("{} of {count} messages came", report.messages));
    }
    let broken = report.senders.broken();
    if plan.is_once && plan.count.is_none() && broken > 0 {
        let senders = count(broken, "sender");
        return Some(format!(
            "{senders} did not end the session: whether anything is missing is not known"
        ));
    }
    let lost_packets = report.lost_packets + report.drops.get("misframed");
    let lost = lost_packets + report.discarded;
    (plan.fail_on != FailOn::None && lost > 0).then(|| {
        let packets = count(lost_packets, "packet");
        let messages = count(report.discarded, "message");
        format!("{packets} lost, {messages} discarded")
    })
}

/// Opens a subscriber; `load recv` uses this too.
pub(super) fn open(session: &SessionPlan, output: &Output) -> Result<Subscriber, Failure> {
    let mut subscriber = Subscriber::open(&session.session())?;
    let (warnings, doing) = (
        subscriber.take_warnings(),
        format!("listening to {} on", session.place),
    );
    opened(output, &warnings, &doing, subscriber.interface());
    Ok(subscriber)
}

/// Why receiving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Enough messages came or, with `--once`, all senders are gone.
    Fulfilled,
    /// No message came for `--timeout`, so the command gave up.
    Silence,
    /// A signal came.
    Interrupted,
}

/// Receives until one of the reasons in [`End`] applies.
fn receive(
    plan: &SubscribePlan,
    subscriber: &mut Subscriber,
    station: &mut Station,
    sink: &mut Printer<'_>,
    (output, interrupt): (&Output, &Interrupt),
) -> Result<End, Failure> {
    let mut quiet = Quiet::new(plan.timeout);
    let mut patience = Patience::new();
    loop {
        let seen = sink.messages;
        let turn = subscriber.turn(sink)?;
        sink.look(seen);
        sink.pass_on()?;
        for remark in sink.senders.remarks(Instant::now()) {
            output.note(&remark);
        }
        for warning in subscriber.take_warnings() {
            output.warn(&warning);
        }
        station.show(|snapshot| subscriber.snapshot(snapshot));
        if plan.count.is_some_and(|count| sink.messages >= count) {
            return Ok(End::Fulfilled);
        }
        if plan.is_once && sink.senders.ends.is_over() {
            return Ok(End::Fulfilled);
        }
        if interrupt.is_requested() {
            return Ok(End::Interrupted);
        }
        if sink.senders.ends.found == 0 {
            patience.look(output, || a_sender(&plan.session, subscriber.interface()));
        }
        if quiet.is_over(sink.messages) {
            output.note("gave up: no message came within --timeout");
            return Ok(End::Silence);
        }
        if sink.is_full() {
            // The sockets stay readable while nothing is taken from them, so a wait for them would
            // return at once.
            thread::sleep(FULL_PAUSE);
        } else if turn.is_idle() {
            let pause = if sink.buffer.is_empty() {
                TICK
            } else {
                FULL_PAUSE
            };
            let until = subscriber.now() + pause;
            subscriber.wait(Some(until));
        }
    }
}

/// A limit on the time without progress.
#[derive(Debug)]
pub(super) struct Quiet {
    limit: Option<Duration>,
    since: Instant,
    seen: u64,
}

impl Quiet {
    pub(super) fn new(limit: Option<Duration>) -> Self {
        Self {
            limit,
            since: Instant::now(),
            seen: 0,
        }
    }

    /// Returns true when `count` has stayed the same for as long as the limit, or longer; without a
    /// limit, never.
    pub(super) fn is_over(&mut self, count: u64) -> bool {
        let Some(limit) = self.limit else {
            return false;
        };
        if count != self.seen {
            self.seen = count;
            self.since = Instant::now();
        }
        self.since.elapsed() >= limit
    }
}

/// A sink that writes messages in the form of the output, and passes them on to the writing thread.
struct Printer<'a> {
    plan: &'a SubscribePlan,
    writer: Writer,
    buffer: Vec<u8>,
    is_json: bool,
    /// The times of the first and the last message; `None` before the first.
    span: Option<(Instant, Instant)>,
    senders: Senders,
    /// With `--framing zmq`: what reads the messages of each sender.
    unframers: BTreeMap<u32, Unframer>,
    /// How many packets did not hold ZeroMQ's frames, and were left out from there on.
    misframed: u64,
    messages: u64,
    bytes: u64,
    discarded: u64,
}

impl<'a> Printer<'a> {
    fn new(plan: &'a SubscribePlan, output: &Output) -> Result<Self, Failure> {
        Ok(Self {
            plan,
            writer: Writer::start()?,
            buffer: Vec::new(),
            is_json: output.is_json(),
            span: None,
            senders: Senders::default(),
            unframers: BTreeMap::new(),
            misframed: 0,
            messages: 0,
            bytes: 0,
            discarded: 0,
        })
    }

    /// Returns the time from the first message to the last.
    fn span(&self) -> Duration {
        self.span
            .map_or(Duration::ZERO, |(first, last)| last - first)
    }

    /// If more messages have come than `seen`, notes the present time as the time of the last
    /// message.
    fn look(&mut self, seen: u64) {
        if self.messages > seen {
            let now = Instant::now();
            self.span = Some((self.span.map_or(now, |(first, _)| first), now));
        }
    }

    /// Passes on the messages that have gathered.
    fn pass_on(&mut self) -> Result<(), Failure> {
        self.writer.pass(&mut self.buffer)
    }

    /// Writes a message in the form of the output.
    fn print(&mut self, session: u32, position: u64, data: &[u8]) {
        if self.plan.count.is_some_and(|count| self.messages >= count) {
            return;
        }
        if self.buffer.len() >= BUFFER_BYTES_MAX && !self.plan.is_blocking {
            self.discarded += 1;
            return;
        }
        self.messages += 1;
        self.bytes += data.len() as u64;
        let name = self.senders.name(session);
        if self.is_json {
            let address = self.senders.address(session);
            let called = self.senders.called(session);
            MessageLine::new((name, called), address, position, data).write(&mut self.buffer);
            return;
        }
        if self.plan.is_tagged {
            self.buffer.extend_from_slice(name.as_bytes());
            self.buffer.push(b'\t');
        }
        let written = self.plan.framing.write(&mut self.buffer, data);
        written.expect("a message is shorter than 4 GiB, and memory takes every write");
    }

    /// Takes a sender's packet with ZeroMQ's frames, and writes each message that it completes.
    fn unframe(&mut self, session: u32, position: u64, packet: &[u8]) {
        let bytes_max = self.plan.session.config.apdu_bytes_max();
        let unframer = self.unframers.remove(&session);
        let mut unframer = unframer.unwrap_or_else(|| Unframer::new(bytes_max));
        let taken = unframer.take(packet, |message| self.print(session, position, message));
        self.unframers.insert(session, unframer);
        if taken.is_err() {
            self.misframed += 1;
            self.senders.misframed(session);
        }
    }

    fn finish(self) -> Result<(), Failure> {
        self.writer.finish(self.buffer)
    }
}

impl MessageSink for Printer<'_> {
    fn message(&mut self, session: u32, position: u64, data: &[u8]) {
        match self.plan.framing {
            Framing::Zmq => self.unframe(session, position, data),
            _ => self.print(session, position, data),
        }
    }

    fn event(&mut self, event: SessionEvent) {
        // What follows a loss or an end, or comes from a new sender, continues no message.
        if let SessionEvent::Found { session, .. }
        | SessionEvent::Lost { session, .. }
        | SessionEvent::Ended { session }
        | SessionEvent::Expired { session }
        | SessionEvent::Reset { session }
        | SessionEvent::Dropped { session, .. } = event
        {
            self.unframers.remove(&session);
        }
        self.senders.take(&event);
    }

    fn sender_name(&mut self, session: u32, name: &str) {
        self.senders.named(session, name);
    }

    fn is_full(&self) -> bool {
        self.plan.is_blocking && self.buffer.len() >= BUFFER_BYTES_MAX
    }
}

/// When this many bytes wait for a slow reader, besides those in the writer's queue, no further
/// message joins them.
const BUFFER_BYTES_MAX: usize = 1 << 20;
const FULL_PAUSE: Duration = Duration::from_millis(2);
