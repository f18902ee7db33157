//! The sending end: makes messages and hands them to a publisher, on a schedule if wanted.

use std::time::Duration;

use base::Instant;
use measure::{
    Schedule,
    load::{LoadPattern, LoadSizes, LoadStamp},
};
use towline::{Error, Publisher, SendStatus};

use super::{wall_error_ns_max, wall_ns};

/// What a [`LoadSender`] sends, and when.
#[derive(Clone, Copy, Debug)]
pub struct LoadSpec {
    /// The length of each message, and the seed that also determines the content.
    pub sizes: LoadSizes,
    /// The number of messages after which the sender ends; `None` for no limit.
    pub count: Option<u64>,
    /// The time after which the sender ends, counted from when the first message was due; `None`
    /// for no limit.
    pub duration: Option<Duration>,
    /// When each message is due; with `None` messages leave as fast as the publisher takes them.
    pub schedule: Option<Schedule>,
    /// Whether each message says when it was due or, without a schedule, when it was handed over.
    pub is_stamped: bool,
}

/// A sender that makes load messages and hands them to a publisher. It never waits longer than its
/// caller says.
///
/// A message for which there is no room when it is due leaves later, but its stamp says when it was
/// due. So the delays that a receiver finds include the sender's own waits.
///
/// While the publisher still holds more than it sends within 20 ms at its rate limit, the sender
/// hands over no message. So messages that were handed over have left, or leave soon.
///
/// ```no_run
/// # use towline_gauge::load::{LoadSender, LoadSpec};
/// # fn main() -> Result<(), towline::Error> {
/// # let (mut publisher, spec): (towline::Publisher, LoadSpec) = todo!();
/// let mut sender = LoadSender::new(spec);
/// while !sender.is_over(&mut publisher) {
///     sender.turn(&mut publisher, std::time::Duration::from_millis(100))?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LoadSender {
    spec: LoadSpec,
    pattern: LoadPattern,
    scratch: Vec<u8>,
    messages: u64,
    bytes: u64,
    start: Option<Start>,
    clock_error: ClockError,
}

/// What the kernel last said of the wall clock's error, and the wall clock's time of that reading.
#[derive(Clone, Copy, Debug, Default)]
struct ClockError {
    ns_max: Option<u64>,
    read_ns: u64,
}

/// The time when message 0 was due, by the publisher's clock and by the wall clock.
#[derive(Clone, Copy, Debug)]
struct Start {
    at: Instant,
    wall_ns: u64,
}

impl LoadSender {
    /// Makes a sender of the messages that `spec` describes. **Cost**: that of making a pattern.
    #[must_use]
    pub fn new(spec: LoadSpec) -> Self {
        Self {
            spec,
            pattern: LoadPattern::new(spec.sizes.seed),
            scratch: vec![0; spec.sizes.bytes_max],
            messages: 0,
            bytes: 0,
            start: None,
            clock_error: ClockError::default(),
        }
    }

    /// Hands over messages that are due, at most 1,000. When none is due or there is no room, gives
    /// the publisher a turn. When the publisher has nothing to do either, waits at most `wait_max`.
    /// Message 0 is due at the first call.
    ///
    /// # Errors
    /// When the publisher cannot send, or a message is longer than it takes.
    pub fn turn(&mut self, publisher: &mut Publisher, wait_max: Duration) -> Result<(), Error> {
        let start = *self.start.get_or_insert_with(|| Start::now(publisher));
        if self.spec.is_stamped {
            self.renew_clock_error();
        }
        let left = self.spec.count.map(|count| count - self.messages);
        for _ in 0..left.map_or(BATCH_MESSAGES, |left| left.min(BATCH_MESSAGES)) {
            let due = self.due_after().map(|after| start.at + after);
            let due = due.filter(|&due| due > publisher.now());
            if due.is_none() && has_room(publisher) && self.send(publisher, start)? {
                continue;
            }
            if publisher.turn()?.is_idle() {
                let limit = publisher.now() + wait_max;
                publisher.wait(Some(due.map_or(limit, |due| due.min(limit))));
            }
            break;
        }
        Ok(())
    }

    /// Returns true when all messages were handed over, or the time is over.
    #[must_use]
    pub fn is_over(&self, publisher: &mut Publisher) -> bool {
        let now = publisher.now();
        let is_time_up = |duration| {
            let start = self.start.as_ref();
            start.is_some_and(|start| now.since(start.at) >= duration)
        };
        self.spec.count.is_some_and(|count| self.messages >= count)
            || self.spec.duration.is_some_and(is_time_up)
    }

    /// Returns the number of messages handed over so far.
    #[must_use]
    pub const fn messages(&self) -> u64 {
        self.messages
    }

    /// Returns the number of bytes of these messages.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Says when the next message is due, counted from the first; `None` without a schedule.
    fn due_after(&self) -> Option<Duration> {
        let schedule = self.spec.schedule?;
        Some(Duration::from_nanos(schedule.due_ns(self.messages)))
    }

    /// Reads the clock's error again when the last reading is a second old.
    fn renew_clock_error(&mut self) {
        let now_ns = wall_ns();
        if now_ns.saturating_sub(self.clock_error.read_ns) >= CLOCK_ERROR_AGE_NS_MAX {
            self.clock_error = ClockError {
                ns_max: wall_error_ns_max(),
                read_ns: now_ns,
            };
        }
    }

    /// Makes the stamp of the next message. With a schedule, it reads no clock.
    fn stamp(&self, start: Start) -> LoadStamp {
        let due_ns = |schedule: Schedule| start.wall_ns + schedule.due_ns(self.messages);
        LoadStamp {
            sent_ns: self.spec.schedule.map_or_else(wall_ns, due_ns),
            clock_error_ns_max: self.clock_error.ns_max,
        }
    }

    /// Hands over the next message; returns false when there is no room for it.
    fn send(&mut self, publisher: &mut Publisher, start: Start) -> Result<bool, Error> {
        let size = self.spec.sizes.of(self.messages);
        let stamp = self.spec.is_stamped.then(|| self.stamp(start));
        let (pattern, sequence) = (&self.pattern, self.messages);
        let fill = |message: &mut [u8]| {
            pattern.fill(sequence, message);
            if let Some(stamp) = stamp {
                LoadPattern::stamp(message, stamp);
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
            self.messages += 1;
            self.bytes += size as u64;
        }
        Ok(is_taken)
    }
}

/// Returns true when messages that wait in the publisher leave soon.
fn has_room(publisher: &Publisher) -> bool {
    let waiting = publisher.backlog_bytes() as u64;
    let leaves_soon =
        |bytes_per_s: u64| waiting < bytes_per_s / 1_000 * QUEUE_MAX.as_millis() as u64;
    waiting == 0 || publisher.bytes_per_s_max().is_none_or(leaves_soon)
}

impl Start {
    /// Reads both clocks. When the thread was interrupted between the two readings, it reads them
    /// again.
    fn now(publisher: &mut Publisher) -> Self {
        let mut read = || Self {
            at: publisher.now(),
            wall_ns: wall_ns(),
        };
        let mut start = read();
        for _ in 0..CLOCK_READINGS_MAX {
            let again = read();
            if again.at.since(start.at) <= CLOCK_READING_MAX {
                break;
            }
            start = again;
        }
        start
    }
}

/// Readings of two clocks that are at most this far apart count as made at once.
const CLOCK_READING_MAX: Duration = Duration::from_micros(2);
const CLOCK_READINGS_MAX: usize = 100;
/// How long messages that were handed over may wait to leave.
const QUEUE_MAX: Duration = Duration::from_millis(20);
/// The most messages that leave before the caller looks at the clock and at events again.
const BATCH_MESSAGES: u64 = 1_000;

/// How old a reading of the clock's error may be, in nanoseconds: the error grows by 500 ppm while
/// its daemon is silent.
const CLOCK_ERROR_AGE_NS_MAX: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use towline::{Config, Group, Received, SessionBuilder, Subscriber};

    use super::{super::LoadCheck, *};

    fn spec() -> LoadSpec {
        LoadSpec {
            sizes: LoadSizes {
                bytes_min: 100,
                bytes_max: 5_000,
                seed: 7,
            },
            count: Some(50),
            duration: None,
            schedule: Some(Schedule::new(1_000).unwrap()),
            is_stamped: true,
        }
    }

    fn session() -> SessionBuilder {
        let group: Group = "239.192.0.9@lo:17599".parse().unwrap();
        SessionBuilder::new(group).reports(false)
    }

    #[test]
    fn a_schedule_is_kept_and_each_message_says_when_it_was_due() {
        lab::isolated(|| {
            let mut subscriber = Subscriber::open(&session()).unwrap();
            let mut publisher = Publisher::builder(session()).open().unwrap();
            let mut sender = LoadSender::new(spec());
            let (mut check, mut stamps) = (LoadCheck::new(7).stamped(true), Vec::new());
            let started = std::time::Instant::now();
            while stamps.len() < 50 && started.elapsed() < Duration::from_secs(10) {
                if sender.is_over(&mut publisher) {
                    publisher.turn().unwrap();
                } else {
                    sender
                        .turn(&mut publisher, Duration::from_millis(1))
                        .unwrap();
                }
                while let Ok(Received::Message { data, .. }) = subscriber.try_recv().unwrap() {
                    stamps.extend(check.take(data));
                }
            }
            // The last message was due 49 ms after the first, and did not leave earlier.
            assert!(started.elapsed() >= Duration::from_millis(49));
            let first = stamps[0].sent_ns;
            let expected = (0..50).map(|slot| first + slot * 1_000_000);
            assert!(stamps.iter().map(|stamp| stamp.sent_ns).eq(expected));
            let tally = check.tally();
            assert_eq!((tally.corrupt, tally.missing), (0, 0));
            assert_eq!((sender.messages(), sender.bytes()), (50, tally.bytes));
        });
    }

    #[test]
    fn what_waits_when_the_time_is_up_leaves_in_a_moment() {
        lab::isolated(|| {
            let mut config = Config::builder();
            config.set("rate", "1MB/s").unwrap();
            let session = session().config(config);
            let mut publisher = Publisher::builder(session).open().unwrap();
            let (count, schedule) = (None, None);
            let duration = Some(Duration::from_millis(200));
            let mut sender = LoadSender::new(LoadSpec {
                count,
                duration,
                schedule,
                ..spec()
            });
            let wait = Duration::from_millis(100);
            let mut most = 0;
            while !sender.is_over(&mut publisher) {
                sender.turn(&mut publisher, wait).unwrap();
                most = publisher.backlog_bytes().max(most);
            }
            // 20 ms of the rate, and the message that went over it.
            assert!((1..=20_000 + 6_000).contains(&most), "{most} bytes waited");
            // The bound does not make it slower than its rate.
            assert!(sender.bytes() > 100_000, "{} bytes", sender.bytes());
        });
    }

    #[test]
    fn it_is_over_when_the_time_is_up() {
        lab::isolated(|| {
            let mut publisher = Publisher::builder(session()).open().unwrap();
            let (count, schedule) = (None, None);
            let duration = Some(Duration::from_millis(20));
            let mut sender = LoadSender::new(LoadSpec {
                count,
                duration,
                schedule,
                ..spec()
            });
            // Nothing was due yet, so the time has not begun.
            assert!(!sender.is_over(&mut publisher));
            let started = std::time::Instant::now();
            while !sender.is_over(&mut publisher) {
                let wait = Duration::from_millis(1);
                sender.turn(&mut publisher, wait).unwrap();
            }
            assert!(started.elapsed() >= Duration::from_millis(20));
            assert!(sender.messages() > 0);
        });
    }
}
