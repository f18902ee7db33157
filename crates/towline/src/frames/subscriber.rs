//! The type by which an application receives frames.

use base::{Instant, Io as _};
use delivery::frames::{Apart, Feed, FeedCounts, FrameCounts, FrameReceiverConfig};
use driver::{Feeds, FrameSink, Left, Turn};

use super::ends::Ends;
use crate::{
    Allowed, Error, Snapshot,
    session::{Count, End, LEAVE_POLL, OwnName, SessionBuilder, face},
};

/// A receiver of frames. Each frame comes whole and before its deadline, in order, or is reported
/// as lost, with the cause.
///
/// **Cost**: one copy of each packet, into the memory of its frame.
pub struct FrameSubscriber {
    end: Ends<driver::FrameSubscriber>,
    /// The part that merges two feeds into one stream; `None` with one feed.
    feeds: Option<Feeds>,
    /// The time by which this end must have left; `None` before it begins to leave.
    leave_by: Option<Instant>,
    /// The receiver names made for sessions that were given none; held, so that no other end of
    /// this process takes them.
    #[expect(dead_code, reason = "they are there to be dropped")]
    own_names: Vec<OwnName>,
}

impl FrameSubscriber {
    /// Opens a receiving session; `config` bounds what the receiver keeps.
    ///
    /// # Errors
    /// When parameters contradict each other, when the interface cannot be used, or when the system
    /// refuses.
    pub fn open(session: &SessionBuilder, config: FrameReceiverConfig) -> Result<Self, Error> {
        let mut own_names = Vec::new();
        let end = open(session, config, &mut own_names)?;
        Ok(Self {
            end: Ends::new(end, None)?,
            feeds: None,
            leave_by: None,
            own_names,
        })
    }

    /// Opens two receiving sessions for the two feeds of [`crate::FramePublisherBuilder::also`].
    /// Each session keeps the bounds of `config`. If a sender has two feeds, each of its frames
    /// comes once, and comes whole if one feed brought it in time. A sender with one feed may come
    /// by either session. The session number in a frame or event stands for a sender, whichever
    /// feed brought it.
    ///
    /// The mark of each feed names the address of the other. If a feed comes from another address,
    /// such as that of a relay, the feeds count as two senders with one feed each, and
    /// [`FrameSubscriber::take_warnings`] says so.
    ///
    /// # Errors
    /// Those of [`FrameSubscriber::open`].
    pub fn open_feeds(
        sessions: [&SessionBuilder; 2],
        config: FrameReceiverConfig,
    ) -> Result<Self, Error> {
        let mut own_names = Vec::new();
        let [first, second] = sessions;
        let first = open(first, config, &mut own_names)?;
        let second = open(second, config, &mut own_names)?;
        Ok(Self {
            end: Ends::new(first, Some(second))?,
            feeds: Some(Feeds::new(config.memory_bytes_max / HELD_PART)),
            leave_by: None,
            own_names,
        })
    }

    /// Takes frames only from these senders, as [`crate::Subscriber::take_only`] does.
    pub fn take_only(&mut self, allowed: impl IntoIterator<Item = Allowed>) {
        if let Some(admission) = Allowed::admission(allowed) {
            for (_, end) in self.end.usable_mut() {
                end.driver.endpoint.admit_only(admission.clone());
            }
        }
    }

    /// Does what is due, and passes frames and events to `sink`, without waiting.
    ///
    /// # Errors
    /// When the sockets cannot be used any more; with two feeds, when this is so for both feeds.
    pub fn turn<S: FrameSink + ?Sized>(&mut self, sink: &mut S) -> Result<Turn, Error> {
        let Some(feeds) = &mut self.feeds else {
            return self.end.turn(|_, end| turn(end, sink));
        };
        let now = self.end.now();
        let done = self
            .end
            .turn(|feed, end| turn(end, &mut feeds.sink(now, feed, sink)));
        let now = self.end.now();
        for feed in Feed::ALL {
            if self.end.fault(feed).is_some() {
                feeds.give_up(now, feed, sink);
            }
        }
        feeds.settle(now, sink);
        if let Some(apart) = feeds.pop_apart() {
            self.end.warn(told(&apart));
        }
        self.end.arbiter = Some(*feeds.arbiter().counters());
        done
    }

    /// Waits until something is due, at most until `until`.
    pub fn wait(&mut self, until: Option<Instant>) {
        let due = self.feeds.as_ref().and_then(Feeds::next_timeout);
        self.end.wait(base::earliest(due, until));
    }

    /// Says when the next turn is due even if nothing arrives.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let due = self.feeds.as_ref().and_then(Feeds::next_timeout);
        base::earliest(due, self.end.next_timeout())
    }

    /// Prepares the descriptor for polling: it then also becomes readable when a timer is due.
    pub fn arm(&mut self) {
        let due = self.feeds.as_ref().and_then(Feeds::next_timeout);
        self.end.arm(due);
    }

    /// Returns what became of a session's frames so far; `None` for an unknown session.
    #[must_use]
    pub fn counts(&self, session: u32) -> Option<&FrameCounts> {
        match &self.feeds {
            Some(feeds) => feeds.arbiter().counts(session),
            None => self.end.first.driver.endpoint.frames().counts(session),
        }
    }

    /// Returns, for each of two feeds, what became of the frames of all senders together; `None`
    /// where there is one feed.
    #[must_use]
    pub fn feeds(&self) -> Option<[FeedCounts; 2]> {
        self.feeds.as_ref().map(|feeds| feeds.arbiter().feeds())
    }

    /// Returns when each of two feeds last completed a frame, by the clock of
    /// [`FrameSubscriber::now`]; `None` for a feed that never completed one. Both are `None` if
    /// there is only one feed. A feed whose time stays behind the time of the other feed is
    /// probably dead.
    #[must_use]
    pub fn feeds_heard(&self) -> [Option<Instant>; 2] {
        let of = |feeds: &Feeds| Feed::ALL.map(|feed| feeds.arbiter().heard(feed));
        self.feeds.as_ref().map_or([None; 2], of)
    }

    /// Returns the name of a feed's interface, and this end's address on that interface; `None`
    /// where there is no such feed.
    #[must_use]
    pub fn feed_interface(&self, feed: Feed) -> Option<(&str, std::net::IpAddr)> {
        self.end.get(feed).map(End::interface)
    }

    /// Gives `sink` all whole frames, leaves all sessions and tells their senders. A frame that
    /// could still come in time counts neither as whole nor as lost.
    ///
    /// **Blocks** until the senders have taken the last reports, for at most 1 s.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn close<S: FrameSink + ?Sized>(&mut self, sink: &mut S) -> Result<(), Error> {
        let now = self.now();
        let until = now + driver::Subscriber::LEAVE_TIME_MAX;
        let until = *self.leave_by.get_or_insert(until);
        match &mut self.feeds {
            None => self.end.first.driver.endpoint.close(now, until, sink),
            Some(feeds) => {
                feeds.leave();
                for feed in Feed::ALL {
                    if let Some(end) = self.end.get_mut(feed) {
                        let mut sink = feeds.sink(now, feed, sink);
                        end.driver.endpoint.close(now, until, &mut sink);
                    }
                }
                feeds.finish(now, sink);
            }
        }
        loop {
            self.end.turn(|_, end| end.turn(&mut Deaf))?;
            let now = self.end.now();
            if self.is_closed() || now >= until {
                return Ok(());
            }
            self.end.wait(Some((now + LEAVE_POLL).min(until)));
        }
    }

    /// Returns true when this end has left, and every sender was told or did not listen in time.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let mut ends = self.end.usable();
        ends.all(|(_, end)| match end.driver.endpoint.left() {
            Some(Left::Told) => end.is_told(),
            Some(Left::TimedOut) => true,
            None => false,
        })
    }
}

/// Says why two feeds count as two senders.
fn told(apart: &Apart) -> String {
    let Apart {
        tsi,
        sources: [first, second],
    } = apart;
    format!(
        "the feeds of sender {tsi} come from {first} and {second}, and the marks of its packets \
         name other addresses: they count as two senders, and neither brings what the other \
         loses; let both feeds go through a relay or neither, and neither through address \
         translation; if one is a stranger, take frames only from the addresses that you trust"
    )
}

/// Opens one session.
fn open(
    session: &SessionBuilder,
    config: FrameReceiverConfig,
    own_names: &mut Vec<OwnName>,
) -> Result<End<driver::FrameSubscriber>, Error> {
    let (mut opened, receiving) = session.open_receiving()?;
    let (reporter, own_name) = session.reporter()?;
    own_names.extend(own_name);
    let now = opened.io.now();
    let endpoint = driver::FrameSubscriber::open(&receiving, config, reporter, now);
    Ok(opened.end(endpoint, receiving.protection(session.key.clone())))
}

/// Runs one turn of one end.
fn turn<S: FrameSink + ?Sized>(
    end: &mut End<driver::FrameSubscriber>,
    sink: &mut S,
) -> Result<Turn, Error> {
    let drops = end.driver.io.counters().kernel_drops;
    end.driver.endpoint.set_host_drops(drops);
    end.turn(sink)
}

/// Frames that wait for the other feed may take at most `memory_bytes_max` of one session, divided
/// by this number (a judgement).
const HELD_PART: usize = 2;

face!(FrameSubscriber);

impl Count for driver::FrameSubscriber {
    fn drops(&self) -> Option<&base::DropCounters> {
        Some(self.drops())
    }

    fn count(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.frames().counters());
        snapshot.add(self.receiver().counters());
        if let Some(reporter) = self.reporter() {
            snapshot.add(reporter.counters());
        }
    }
}

/// A sink that ignores the frames and events that come after this end has left.
struct Deaf;

impl FrameSink for Deaf {
    fn frame(&mut self, _event: &delivery::frames::FrameEvent<'_>) {}

    fn event(&mut self, _event: driver::SessionEvent) {}
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Groups differ between tests, so that they can run side by side.
    fn two_feeds(last: u8) -> FrameSubscriber {
        let [first, second] = [0, 1].map(|feed| {
            let group = format!("239.192.78.{}@lo:{}", last + feed, 17_600 + u16::from(last));
            SessionBuilder::new(group.parse().unwrap())
        });
        let config = FrameReceiverConfig::default();
        FrameSubscriber::open_feeds([&first, &second], config).unwrap()
    }

    fn fail(subscriber: &mut FrameSubscriber, failing: Feed) -> Result<Turn, Error> {
        subscriber.end.turn(|feed, _| {
            if feed == failing {
                Err(Error::Closed)
            } else {
                Ok(Turn::default())
            }
        })
    }

    #[test]
    fn a_feed_that_fails_is_left_out_and_the_last_one_that_fails_is_an_error() {
        for (last, failing) in [(1, Feed::First), (3, Feed::Second)] {
            let mut subscriber = two_feeds(last);
            let _of_opening = subscriber.take_warnings();
            assert!(fail(&mut subscriber, failing).is_ok());
            assert!(subscriber.end.fault(failing).is_some());
            let [warning] = &subscriber.take_warnings()[..] else {
                panic!("one warning")
            };
            assert!(warning.starts_with("the feed by lo "), "{warning}");
            let mut turned = Vec::new();
            let done = subscriber.end.turn(|feed, _| {
                turned.push(feed);
                Ok(Turn::default())
            });
            assert!(done.is_ok());
            assert_eq!(turned, [failing.other()]);
            assert!(subscriber.turn(&mut Deaf).is_ok());
            assert!(fail(&mut subscriber, failing.other()).is_err());
        }
    }

    #[test]
    fn a_wake_up_ends_the_wait_though_the_feed_that_hears_it_is_out_of_use() {
        for (last, is_deaf) in [(5, false), (7, true)] {
            let mut subscriber = two_feeds(last);
            while !subscriber.turn(&mut Deaf).unwrap().is_idle() {}
            if is_deaf {
                fail(&mut subscriber, Feed::First).unwrap();
            }
            subscriber.waker().unwrap().wake();
            let begun = subscriber.now();
            subscriber.wait(Some(begun + Duration::from_secs(20)));
            let took = subscriber.now().since(begun);
            assert!(took < Duration::from_secs(10), "{is_deaf}: {took:?}");
        }
    }

    #[test]
    fn work_that_a_turn_left_is_not_waited_for() {
        let mut subscriber = two_feeds(9);
        while !subscriber.turn(&mut Deaf).unwrap().is_idle() {}
        let left = Turn {
            link_events: 1,
            ..Turn::default()
        };
        subscriber.end.turn(|_, _| Ok(left)).unwrap();
        let begun = subscriber.now();
        subscriber.wait(Some(begun + Duration::from_secs(20)));
        assert!(subscriber.now().since(begun) < Duration::from_secs(10));
    }
}
