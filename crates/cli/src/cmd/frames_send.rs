//! `towline frames send`.

use std::time::{Duration, Instant};

use towline::{AudienceEvent, Closed, Feed, FramePublisher, Group, Offered, UsageMeter};

use super::{
    frames_source::{Ready, Source},
    intervals::Intervals,
    publish::Watch,
    station::{Patience, TICK, counters, opened},
};
use crate::{
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    plan::{FramesSendPlan, SessionPlan, check_groups},
    report::{
        Counted, Done, FeedSentReport, FramesSendReport, Output, UsageReport, count, per_second,
    },
};

pub(super) fn run(plan: &FramesSendPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let source = Source::open(plan)?;
    let publisher = open(plan, &source, output)?;
    let mut job = Job {
        plan,
        output,
        interrupt: &interrupt,
        watch: Watch::new(&plan.session, plan.receivers, output, &interrupt)?,
        publisher,
        source,
        tally: Tally::default(),
        close_by: None,
        joined: [0; 2],
    };
    let is_ready = job.await_receivers()?;
    let meter = UsageMeter::start();
    let started = Instant::now();
    if is_ready {
        job.send(started)?;
    }
    let seconds = started.elapsed().as_secs_f64();
    let usage = meter.read();
    let closed = job.close(is_ready)?;
    let mut report = job.report(seconds, usage.into(), &closed);
    if !is_ready && !report.is_interrupted {
        let missing = count(closed.missing.into(), "expected receiver");
        report.failure = Some(format!("{missing} did not come"));
    }
    output.finish_after(plan.every, &report)?;
    Ok(Verdict::of_session(
        report.is_interrupted,
        is_ready && report.failure.is_none(),
    ))
}

fn open(
    plan: &FramesSendPlan,
    source: &Source,
    output: &Output,
) -> Result<FramePublisher, Failure> {
    let (session, also) = plan.sessions();
    let interval = source.rate().interval();
    let mut publisher = FramePublisher::builder(session, source.frame_bytes(), interval)
        .deadline(plan.deadline)
        .pacing(plan.pacing())
        .always(plan.is_always_sent)
        .format(source.label())
        .also(also)
        .expect_receivers(plan.receivers)
        .open()?;
    let (warnings, doing) = (
        publisher.take_warnings(),
        format!("sending to {} by", plan.session.place),
    );
    opened(output, &warnings, &doing, publisher.interface());
    if let (Some(also), Some(feed)) = (&plan.also, publisher.feed(Feed::Second)) {
        let by = (feed.interface.as_str(), feed.address);
        opened(output, &[], &format!("sending to {also}, too, by"), by);
        let by = [publisher.interface().0, feed.interface.as_str()];
        check_networks(output, (&plan.session, also), by)?;
    }
    Ok(publisher)
}

/// Warns when both feeds use one interface. Fails when they also have the same group and port.
pub(super) fn check_networks(
    output: &Output,
    (session, also): (&SessionPlan, &Group),
    [first, second]: [&str; 2],
) -> Result<(), Failure> {
    if first == second {
        check_groups(session, also)?;
        output.warn(&format!(
            "both feeds use interface {first}: what cuts one of them cuts the other; name another \
             one, as in --also GROUP@IFACE"
        ));
    }
    Ok(())
}

struct Job<'a> {
    plan: &'a FramesSendPlan,
    output: &'a Output,
    interrupt: &'a Interrupt,
    watch: Watch<'a>,
    publisher: FramePublisher,
    source: Source,
    tally: Tally,
    close_by: Option<towline::Instant>,
    /// How many receivers have joined each feed.
    joined: [u64; 2],
}

/// Counts of frames, by what became of them.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    sent: u64,
    overrun: u64,
    unheard: u64,
    bytes: u64,
}

impl Tally {
    /// Returns the number of the next frame. Frames that nobody listened to take no numbers.
    const fn next_id(&self) -> u64 {
        self.sent + self.overrun
    }

    const fn offered(&self) -> u64 {
        self.sent + self.overrun + self.unheard
    }

    fn done(&self) -> Done {
        Done {
            count: self.sent,
            bytes: self.bytes,
            lost: Some(self.overrun),
        }
    }
}

impl Job<'_> {
    /// Waits for the expected receivers. Returns false when they do not come in time, or a signal
    /// ends the wait.
    fn await_receivers(&mut self) -> Result<bool, Failure> {
        let (mut patience, started) = (Patience::new(), Instant::now());
        while !self.publisher.has_expected() {
            let is_late = self
                .plan
                .timeout
                .is_some_and(|timeout| started.elapsed() >= timeout);
            if is_late || self.interrupt.is_requested() {
                return Ok(false);
            }
            let until = self.publisher.now() + TICK;
            self.turn(Some(until))?;
            patience.look(self.output, || {
                count(self.plan.receivers.into(), "receiver")
            });
        }
        Ok(true)
    }

    /// Sends each frame at its time, until the planned end, the end of the source, or a signal.
    /// Then waits until all packets have left, at most until [`Job::close_by`] or, after a signal,
    /// until the time for telling the receivers is over.
    fn send(&mut self, started: Instant) -> Result<(), Failure> {
        let interval = self.source.rate().interval();
        let group = self.plan.session.place.to_string();
        let mut intervals = Intervals::new(
            self.output,
            self.plan.every,
            group.clone(),
            Counted::FramesSent,
        );
        let bar = self.output.progress().messages(&group, self.plan.count);
        let mut schedule = Schedule::new(self.publisher.now(), interval, self.source.is_live());
        while !self.interrupt.is_requested() && !self.is_over(started) {
            let now = self.publisher.now();
            if now < schedule.due {
                let tick = (now + TICK).min(self.ends_at(started, now));
                self.turn(Some(schedule.due.min(tick)))?;
                continue;
            }
            match self.source.look()? {
                Ready::Yes => {
                    self.offer()?;
                    schedule.offered(now);
                }
                Ready::Over => break,
                Ready::NotYet => {
                    let soon = self.publisher.now() + SOURCE_POLL;
                    self.turn(Some(soon))?;
                    continue;
                }
            }
            self.turn(None)?;
            bar.set_position(self.tally.sent);
            intervals.look(|| self.tally.done())?;
        }
        let by = self.close_by();
        while !self.publisher.is_drained() && !self.interrupt.is_farewell_over() {
            let now = self.publisher.now();
            if now >= by {
                break;
            }
            self.turn(Some(by.min(now + TICK)))?;
        }
        intervals.finish(self.tally.done())?;
        bar.finish_and_clear();
        Ok(())
    }

    /// Returns when the time of `--for` is over; without `--for`, a time that never comes.
    fn ends_at(&self, started: Instant, now: towline::Instant) -> towline::Instant {
        let left = self
            .plan
            .seconds
            .map(|it| it.saturating_sub(started.elapsed()));
        now + left.unwrap_or(Duration::MAX)
    }

    /// Returns the latest time at which the session ends. The first call sets this time.
    fn close_by(&mut self) -> towline::Instant {
        let by = self.publisher.now() + self.plan.timeout.unwrap_or(CLOSE_TIME_MAX);
        *self.close_by.get_or_insert(by)
    }

    fn is_over(&self, started: Instant) -> bool {
        let is_time_over = self
            .plan
            .seconds
            .is_some_and(|seconds| started.elapsed() >= seconds);
        is_time_over || self.plan.count.is_some_and(|it| self.tally.offered() >= it)
    }

    fn offer(&mut self) -> Result<(), Failure> {
        let (len, id) = (self.source.frame_bytes(), self.tally.next_id());
        let source = &self.source;
        let offered = self
            .publisher
            .offer(FramePublisher::wall_ns(), len, |offset, room| {
                source.fill(id, offset, room);
            })?;
        let tally = &mut self.tally;
        match offered {
            Offered::Taken(_) => {
                tally.sent += 1;
                tally.bytes += len as u64;
            }
            Offered::Overrun(_) => tally.overrun += 1,
            Offered::Unheard => tally.unheard += 1,
        }
        self.source.advance();
        Ok(())
    }

    /// Makes one turn of the publisher. When the turn found nothing to do, waits for something, at
    /// most until `until`; with `None`, it never waits.
    fn turn(&mut self, until: Option<towline::Instant>) -> Result<(), Failure> {
        let is_idle = self.publisher.turn()?.is_idle();
        if is_idle && until.is_some() {
            self.publisher.wait(until);
        }
        self.hear();
        for warning in self.publisher.take_warnings() {
            self.output.warn(&warning);
        }
        self.watch
            .show(|snapshot| self.publisher.snapshot(snapshot));
        Ok(())
    }

    /// Prints the events of receivers, and counts those that join.
    fn hear(&mut self) {
        let (publisher, joined) = (&mut self.publisher, &mut self.joined);
        self.watch.hear(|| {
            let (feed, event) = publisher.pop_feed_event()?;
            let has_joined = matches!(event, AudienceEvent::Joined { .. });
            joined[feed.index()] += u64::from(has_joined);
            Some(event)
        });
    }

    /// Returns what was sent by each feed; an empty list when there is only one feed.
    fn feeds(&self) -> Vec<FeedSentReport> {
        let (plan, joined) = (self.plan, self.joined);
        let Some(also) = &plan.also else {
            return Vec::new();
        };
        let feeds = Feed::ALL
            .into_iter()
            .zip([plan.session.place.to_string(), also.to_string()]);
        let feeds = feeds.filter_map(|(feed, group)| {
            let sent = self.publisher.feed(feed)?;
            Some(FeedSentReport::new(group, joined[feed.index()], sent))
        });
        feeds.collect()
    }

    fn close(&mut self, is_ready: bool) -> Result<Closed, Failure> {
        let timeout = if is_ready {
            let by = self.close_by();
            by.since(self.publisher.now())
        } else {
            Duration::ZERO
        };
        let interrupt = self.interrupt;
        let closed = self
            .publisher
            .close_while(timeout, || !interrupt.is_farewell_over())?;
        self.hear();
        Ok(closed)
    }

    fn report(&self, seconds: f64, usage: UsageReport, closed: &Closed) -> FramesSendReport {
        let counters = counters(|snapshot| self.publisher.snapshot(snapshot));
        let tally = &self.tally;
        let refused = self.publisher.send_error();
        FramesSendReport {
            group: self.plan.session.place.to_string(),
            interface: self.publisher.interface().0.to_owned(),
            source: self.plan.source.clone(),
            format: self.source.label(),
            frame_bytes: self.source.frame_bytes(),
            per_second: self.source.rate(),
            frames: tally.sent,
            bytes: tally.bytes,
            overrun: tally.overrun,
            unheard: tally.unheard,
            seconds,
            frames_per_s: per_second(tally.sent, seconds),
            bits_per_s: per_second(tally.bytes, seconds) * 8.0,
            deadline_s: self.publisher.frames().deadline.as_secs_f64(),
            receivers: self.joined.into_iter().max().unwrap_or(0),
            feeds: self.feeds(),
            lost_packets: closed.lost,
            failure: refused.map(|error| format!("nothing was sent: {}", Failure::from(error))),
            is_interrupted: self.interrupt.is_requested(),
            usage,
            drops: counters.drops(),
            counters,
        }
    }
}

/// The time when the next frame is due.
#[derive(Debug)]
struct Schedule {
    due: towline::Instant,
    interval: Duration,
    /// True when the frames come from a file or a program, which may be late. The schedule then
    /// makes up for at most one interval, because more frames at once would only be overruns.
    is_live: bool,
}

impl Schedule {
    const fn new(due: towline::Instant, interval: Duration, is_live: bool) -> Self {
        Self {
            due,
            interval,
            is_live,
        }
    }

    /// Notes that a frame was offered at `now`.
    fn offered(&mut self, now: towline::Instant) {
        self.due += self.interval;
        if self.is_live {
            self.due = self.due.max(now - self.interval);
        }
    }
}

/// Time between two checks whether the program that makes frames has made one.
const SOURCE_POLL: Duration = Duration::from_millis(1);
/// The longest time that ending a session may take without `--timeout`.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> towline::Instant {
        towline::Instant::from_nanos(n * 1_000_000)
    }

    #[test]
    fn a_source_that_stalled_is_not_rushed() {
        let mut live = Schedule::new(ms(1000), Duration::from_millis(50), true);
        live.offered(ms(1000));
        live.offered(ms(1090));
        assert_eq!(live.due, ms(1100), "a short delay is made up for");
        // Nothing comes for 5 s; then one frame follows at once.
        live.offered(ms(6100));
        assert_eq!(live.due, ms(6050));
        live.offered(ms(6101));
        assert_eq!(live.due, ms(6100));
        live.offered(ms(6101));
        assert_eq!(live.due, ms(6150));
        // The frames of a pattern fall due even when this host is held up. Those that it could not
        // send are overruns.
        let mut made = Schedule::new(ms(1000), Duration::from_millis(50), false);
        made.offered(ms(6100));
        assert_eq!(made.due, ms(1050));
    }
}
