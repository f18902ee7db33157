//! `towline frames recv`.

use std::time::{Duration, Instant};

use gauge::{
    frames::{Delays, FramePattern, LossCount, Stability, is_pattern},
    load::wall_ns,
};
use towline::{
    Feed, Frame, FrameCounts, FrameEvent, FrameLoss, FrameSink, FrameSubscriber, SessionEvent,
};

use super::{
    frames_send::check_networks,
    frames_sinks::Sinks,
    intervals::Intervals,
    senders::Senders,
    station::{Patience, Station, Stretch, TICK, a_sender, counters, opened},
    subscribe::Quiet,
};
use crate::{
    args::FailOn,
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    plan::FramesRecvPlan,
    report::{
        Counted, Document as _, Done, FeedReport, FrameLossReport, FrameLosses, FramesRecvReport,
        Output, UsageReport, per_second,
    },
};

pub(super) fn run(plan: &FramesRecvPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    if plan.sinks.takes_stdout() && output.is_json() {
        let text = "--json prints to standard output, and so does --output -: leave one out";
        return Err(Failure::usage(text));
    }
    let interrupt = Interrupt::install()?;
    let mut subscriber = open(plan, output)?;
    let mut station = Station::open("frame-subscriber", &plan.session, output)?;
    let mut sink = Checker::new(plan.seed, Sinks::open(&plan.sinks, output)?);
    let (mut quiet, mut patience) = (Quiet::new(plan.timeout), Patience::new());
    let group = plan.session.place.to_string();
    let of = group.clone();
    let mut intervals = Intervals::new(output, plan.every, of, Counted::FramesReceived);
    let bar = output.progress().lines();
    while !interrupt.is_requested() && !sink.is_over(plan) {
        let turn = subscriber.turn(&mut sink)?;
        for remark in sink.senders.remarks(Instant::now()) {
            output.note(&remark);
        }
        station.show(|snapshot| subscriber.snapshot(snapshot));
        if sink.stretch.has_begun() {
            let times = sink.times();
            if let Some(line) = sink.fresh_line(&group, || feeds(plan, &subscriber, times)) {
                sink.sinks.tell(&line);
                if !plan.sinks.is_displayed {
                    bar.set_message(line);
                }
            }
            intervals.look(|| sink.done())?;
        }
        for warning in subscriber.take_warnings() {
            output.warn(&warning);
        }
        if sink.senders.ends.found == 0 {
            patience.look(output, || a_sender(&plan.session, subscriber.interface()));
        }
        if quiet.is_over(sink.counts.whole) {
            output.note("gave up: no whole frame came within --timeout");
            break;
        }
        if turn.is_idle() {
            let until = subscriber.now() + TICK;
            subscriber.wait(Some(until));
        }
    }
    let (usage, since_first) = (sink.stretch.usage(), sink.stretch.since_first());
    subscriber.close(&mut sink)?;
    bar.finish_and_clear();
    intervals.finish(sink.done())?;
    for remark in sink.senders.last_remarks() {
        output.note(&remark);
    }
    let film = sink.sinks.finish();
    let lasted = sink.lasted(since_first);
    let mut report = report(plan, &subscriber, &sink, (usage, lasted));
    report.is_interrupted = interrupt.is_requested();
    // The report comes even when a file could not be written; the failure follows it.
    let (film, failure) = match film {
        Ok(film) => (film, None),
        Err(failure) => (None, Some(failure)),
    };
    report.film = film.map(Into::into);
    let verdict = tell(plan, output, &report)?;
    failure.map_or(Ok(verdict), Err)
}

/// Prints the report: to standard error when frames go to standard output.
fn tell(
    plan: &FramesRecvPlan,
    output: &Output,
    report: &FramesRecvReport,
) -> Result<Verdict, Failure> {
    if plan.sinks.takes_stdout() {
        output.note(report.text().trim_end());
    } else {
        output.finish_after(plan.every, report)?;
    }
    Ok(Verdict::of_session(
        report.is_interrupted,
        is_fine(plan, report),
    ))
}

fn open(plan: &FramesRecvPlan, output: &Output) -> Result<FrameSubscriber, Failure> {
    let session = plan.session.session();
    let also = plan.also.clone();
    let also = also.map(|also| plan.session.session_at(also.into()));
    let mut subscriber = match &also {
        Some(also) => FrameSubscriber::open_feeds([&session, also], plan.bounds())?,
        None => FrameSubscriber::open(&session, plan.bounds())?,
    };
    subscriber.take_only(plan.allowed.iter().copied());
    let (warnings, doing) = (
        subscriber.take_warnings(),
        format!("listening to {} on", plan.session.place),
    );
    opened(output, &warnings, &doing, subscriber.interface());
    if let (Some(also), Some(by)) = (&plan.also, subscriber.feed_interface(Feed::Second)) {
        opened(output, &[], &format!("listening to {also}, too, on"), by);
        let by = [subscriber.interface().0, by.0];
        check_networks(output, (&plan.session, also), by)?;
    }
    Ok(subscriber)
}

/// Returns what became of the frames of each feed; nothing when there is only one feed. For `times`
/// see [`Checker::times`].
fn feeds(
    plan: &FramesRecvPlan,
    subscriber: &FrameSubscriber,
    times: (Duration, Duration),
) -> Vec<FeedReport> {
    let (Some(also), Some(counts)) = (&plan.also, subscriber.feeds()) else {
        return Vec::new();
    };
    let heard = subscriber.feeds_heard();
    let last = heard.into_iter().flatten().max();
    let groups = [plan.session.place.to_string(), also.to_string()];
    let feeds = Feed::ALL.into_iter().zip(groups);
    let feeds = feeds.filter_map(|(feed, group)| {
        let (interface, _) = subscriber.feed_interface(feed)?;
        let counts = [feed, feed.other()].map(|feed| counts[feed.index()]);
        let silent = heard[feed.index()].and_then(|at| Some(last?.since(at)));
        Some(FeedReport::new((group, interface), counts, silent, times))
    });
    feeds.collect()
}

fn is_fine(plan: &FramesRecvPlan, report: &FramesRecvReport) -> bool {
    let has_loss = report.lost.all() > 0;
    let has_finding = match plan.fail_on {
        FailOn::None => false,
        FailOn::Loss => has_loss,
        FailOn::Any => has_loss || report.damaged > 0,
    };
    let is_short = match plan.count {
        Some(count) => report.frames < count,
        None => report.frames == 0 || report.senders.broken() > 0,
    };
    !(has_finding || is_short)
}

fn report(
    plan: &FramesRecvPlan,
    subscriber: &FrameSubscriber,
    sink: &Checker,
    (usage, lasted): (UsageReport, Duration),
) -> FramesRecvReport {
    let counters = counters(|snapshot| subscriber.snapshot(snapshot));
    let counts = &sink.counts;
    let seconds = sink.seconds();
    let lost = |cause| counts.lost_by(cause);
    FramesRecvReport {
        group: plan.session.place.to_string(),
        interface: subscriber.interface().0.to_owned(),
        seed: plan.seed,
        frames_sent: counts.frames,
        frames: counts.whole,
        repaired: counts.repaired,
        lost: FrameLosses {
            network: lost(FrameLoss::Network),
            socket_buffer: lost(FrameLoss::SocketBuffer),
            late: lost(FrameLoss::Late),
            overrun: lost(FrameLoss::Overrun),
            refused: lost(FrameLoss::Refused),
        },
        loss: FrameLossReport::new(sink.loss(), lasted),
        checked: sink.checked,
        damaged: sink.damaged,
        film: None,
        bytes: counts.bytes,
        format: sink.format.clone(),
        seconds,
        frames_per_s: per_second(counts.whole, seconds),
        bits_per_s: per_second(counts.bytes, seconds) * 8.0,
        latency: sink.latency.percentiles(),
        interval_ns: u64::try_from(sink.interval.as_nanos()).unwrap_or(u64::MAX),
        ahead_of_clock: sink.negative,
        feeds: feeds(plan, subscriber, sink.times()),
        senders: sink.senders.ends,
        is_end_known: counts.is_end_known,
        is_interrupted: false,
        usage,
        drops: counters.drops(),
        counters,
    }
}

/// A checker of the frames of every sender.
struct Checker {
    pattern: FramePattern,
    senders: Senders,
    counts: FrameCounts,
    checked: u64,
    damaged: u64,
    format: Option<String>,
    latency: Delays,
    interval: Duration,
    /// Number of frames that came before the time in their timestamp.
    negative: u64,
    stretch: Stretch,
    sinks: Sinks,
    /// The time when the last line about the state was made.
    line_at: Option<Instant>,
}

impl Checker {
    fn new(seed: u64, sinks: Sinks) -> Self {
        Self {
            pattern: FramePattern::new(seed),
            senders: Senders::default(),
            counts: FrameCounts::default(),
            checked: 0,
            damaged: 0,
            format: None,
            latency: Delays::default(),
            interval: Duration::ZERO,
            negative: 0,
            stretch: Stretch::default(),
            sinks,
            line_at: None,
        }
    }

    fn take(&mut self, frame: &Frame<'_>) {
        match wall_ns().checked_sub(frame.timestamp_ns) {
            Some(latency_ns) => self.latency.take(latency_ns),
            None => self.negative += 1,
        }
        self.stretch.mark();
        self.interval = frame.interval;
        self.counts.frames += 1;
        self.counts.whole += 1;
        self.counts.repaired += u64::from(frame.is_repaired);
        self.counts.bytes += frame.data.len() as u64;
        if self.format.is_none() && !frame.format.is_empty() {
            let text = String::from_utf8_lossy(frame.format);
            self.format = Some(towline::text::printable(&text, FORMAT_SHOWN_MAX).into_owned());
        }
        if is_pattern(frame.format) {
            self.checked += 1;
            self.damaged += u64::from(!self.pattern.is_intact(frame.id, frame.data));
        }
        let number = (frame.stream, frame.id);
        self.sinks.take(number, frame.format, frame.data);
    }

    fn is_over(&self, plan: &FramesRecvPlan) -> bool {
        plan.count.is_some_and(|count| self.counts.whole >= count)
            || plan
                .seconds
                .is_some_and(|it| self.stretch.has_begun() && self.stretch.since_first() >= it)
            || self.senders.ends.is_over()
            || self.sinks.is_over()
    }

    fn loss(&self) -> LossCount {
        LossCount {
            expected: self.counts.frames,
            lost: self.counts.lost_all(),
        }
    }

    fn done(&self) -> Done {
        Done {
            count: self.counts.whole,
            bytes: self.counts.bytes,
            lost: Some(self.counts.lost_all()),
        }
    }

    /// Returns for how long frames were expected, if reception stopped `since_first` after the
    /// first frame.
    fn lasted(&self, since_first: Duration) -> Duration {
        Stability::lasted(self.counts.frames, self.stretch.time(), since_first)
    }

    /// Returns the time from the first frame to the last, and the time between two frames.
    fn times(&self) -> (Duration, Duration) {
        (self.stretch.time(), self.interval)
    }

    /// Returns the time from the first frame to the last, in seconds.
    fn seconds(&self) -> f64 {
        self.stretch.time().as_secs_f64()
    }

    /// Returns a line about the state for a person who watches; `None` when the last line is
    /// younger than [`LINE_TIME`].
    fn fresh_line(
        &mut self,
        group: &str,
        feeds: impl FnOnce() -> Vec<FeedReport>,
    ) -> Option<String> {
        let now = Instant::now();
        if self.line_at.is_some_and(|at| now - at < LINE_TIME) {
            return None;
        }
        self.line_at = Some(now);
        let mut line = self.line(group);
        for (number, feed) in (1..).zip(feeds()) {
            line += &format!("; feed {number}: {}", feed.briefly());
        }
        Some(line)
    }

    /// Returns a line about the state of reception, without the part about feeds.
    fn line(&self, group: &str) -> String {
        let seconds = self.seconds();
        let latency = self.latency.percentiles();
        let loss = self.loss();
        let stability = Stability::of(loss, self.lasted(self.stretch.since_first()));
        let ms = |ns: u64| ns as f64 / 1e6;
        format!(
            "{group}: {} whole, {} repaired, {} lost (at most {:.3} % at 95 %{}); {:.1} /s, \
             {:.1} MB/s; latency p50 {:.1} ms, p99 {:.1} ms",
            self.counts.whole,
            self.counts.repaired,
            loss.lost,
            loss.upper_95() * 100.0,
            if stability.is_very_stable() {
                ", very stable"
            } else {
                ""
            },
            per_second(self.counts.whole, seconds),
            per_second(self.counts.bytes, seconds) / 1e6,
            ms(latency.p50_ns),
            ms(latency.p99_ns),
        )
    }
}

impl FrameSink for Checker {
    fn frame(&mut self, event: &FrameEvent<'_>) {
        match event {
            FrameEvent::Whole(frame) => self.take(frame),
            FrameEvent::Lost { count, cause, .. } => {
                self.counts.frames += count;
                self.counts.lost[*cause as usize] += count;
            }
            FrameEvent::Ended { counts, .. } => self.counts.is_end_known = counts.is_end_known,
        }
    }

    fn event(&mut self, event: SessionEvent) {
        self.senders.take(&event);
    }

    fn feed_event(&mut self, feed: Feed, event: SessionEvent) {
        self.senders.take_feed(feed, &event);
    }

    fn sender_name(&mut self, session: u32, name: &str) {
        self.senders.named(session, name);
    }
}

/// The shortest time between two lines that show a person the state.
const LINE_TIME: Duration = Duration::from_millis(200);
const FORMAT_SHOWN_MAX: usize = 255;
