//! `towline sub`.

use std::{
    thread,
    time::{Duration, Instant},
};

use towline::{MessageSink, SessionEvent, Subscriber};

use super::{
    senders::Senders,
    station::{Patience, Station, TICK, a_sender, counters},
    writer::Writer,
};
use crate::{
    args::FailOn,
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    plan::{SessionPlan, SubscribePlan},
    report::{MessageStream, Output, SubscribeReport},
};

pub(super) fn run(plan: &SubscribePlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only("sub", plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let mut subscriber = open(&plan.session, output)?;
    let mut station = Station::open("subscriber", &plan.session, output)?;
    let mut sink = Printer::new(plan, output)?;
    let started = Instant::now();
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
    let counters = counters(|snapshot| subscriber.snapshot(snapshot));
    let report = SubscribeReport {
        group: plan.session.group.to_string(),
        messages: sink.messages,
        bytes: sink.bytes,
        lost_packets: sink.senders.lost_packets,
        discarded: sink.discarded,
        senders: sink.senders.ends,
        is_interrupted: end == End::Interrupted,
        seconds: started.elapsed().as_secs_f64(),
        drops: counters.drops(),
        counters,
    };
    let is_short = match plan.count {
        Some(count) => report.messages < count,
        None => plan.is_once && report.senders.broken() > 0,
    };
    let has_loss = plan.fail_on != FailOn::None && report.lost_packets + report.discarded > 0;
    sink.finish(&report)?;
    if !output.is_json() {
        output.finish(&report)?;
    }
    Ok(Verdict::of_session(
        end == End::Interrupted,
        !(end == End::Silence || is_short || has_loss),
    ))
}

/// Opens a subscriber; used by `load recv` too.
pub(super) fn open(session: &SessionPlan, output: &Output) -> Result<Subscriber, Failure> {
    let mut subscriber = Subscriber::open(&session.session())?;
    subscriber
        .take_warnings()
        .iter()
        .for_each(|warning| output.warn(warning));
    let (interface, address) = subscriber.interface();
    output.detail(&format!(
        "listening to {} on {interface} ({address})",
        session.group
    ));
    Ok(subscriber)
}

/// Why the reception is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The plan is fulfilled.
    Fulfilled,
    /// It gave up because nothing came.
    Silence,
    /// A signal came.
    Interrupted,
}

/// Receives until the plan is fulfilled, nothing comes, or a signal does.
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
        let turn = subscriber.turn(sink)?;
        sink.pass_on()?;
        for remark in sink.senders.remarks(Instant::now()) {
            output.note(&remark);
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
            output.note("gave up: no message came in time");
            return Ok(End::Silence);
        }
        if sink.is_full() {
            // The sockets stay readable while nothing is taken from them: waiting for them would
            // not wait at all.
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

/// Gives up after a time without progress.
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

    /// True when `count` has not grown for longer than the limit.
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

/// Puts messages into the form of the output.
struct Printer<'a> {
    plan: &'a SubscribePlan,
    writer: Writer,
    buffer: Vec<u8>,
    document: Option<MessageStream>,
    senders: Senders,
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
            document: output.is_json().then(MessageStream::default),
            senders: Senders::default(),
            messages: 0,
            bytes: 0,
            discarded: 0,
        })
    }

    /// Passes on what has come together.
    fn pass_on(&mut self) -> Result<(), Failure> {
        if self.writer.pass(&mut self.buffer) {
            Ok(())
        } else {
            Err(Failure::PipeClosed)
        }
    }

    fn finish(mut self, report: &SubscribeReport) -> Result<(), Failure> {
        if let Some(document) = self.document.take() {
            document.end(&mut self.buffer, report);
        }
        self.writer.finish(self.buffer)
    }
}

impl MessageSink for Printer<'_> {
    fn message(&mut self, session: u32, sqn: u64, data: &[u8]) {
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
        if let Some(document) = &mut self.document {
            document.message(&mut self.buffer, name, sqn, data);
            return;
        }
        if self.plan.is_tagged {
            self.buffer.extend_from_slice(name.as_bytes());
            self.buffer.push(b'\t');
        }
        let written = self.plan.framing.write(&mut self.buffer, data);
        written.expect("a message is shorter than 4 GiB, and memory takes every write");
    }

    fn event(&mut self, event: SessionEvent) {
        self.senders.take(&event);
    }

    fn is_full(&self) -> bool {
        self.plan.is_blocking && self.buffer.len() >= BUFFER_BYTES_MAX
    }
}

/// Bytes that wait for a slow reader, besides those in the writer's queue.
const BUFFER_BYTES_MAX: usize = 1 << 20;
const FULL_PAUSE: Duration = Duration::from_millis(2);
