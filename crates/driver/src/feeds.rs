//! Joins two feeds of the same frames at a receiver. There is a subscriber for each feed; the
//! frames of both become one stream for each sender.
//!
//! The owner drives each subscriber with the sink that [`Feeds::sink`] makes. The frames and events
//! of both arrive at the application's one sink, each frame once.

use std::{collections::BTreeMap, net::IpAddr};

use base::Instant;
use delivery::frames::{Apart, Arbiter, Feed, FoundStream, FrameEvent, FrameReceiver};
use wire::object::Refusal;

use crate::{FrameSink, SessionEvent};

/// The state that joins two feeds into one stream for each sender.
#[derive(Debug)]
pub struct Feeds {
    arbiter: Arbiter,
    /// How the sender left, for each stream whose sender has left a feed.
    ends: BTreeMap<u32, SenderEnd>,
}

/// How a sender has left.
#[derive(Clone, Copy, Debug)]
struct SenderEnd {
    event: SessionEvent,
    is_told: bool,
}

impl Feeds {
    /// Joins two feeds. Frames that wait for the other feed take at most `held_bytes_max` bytes.
    #[must_use]
    pub fn new(held_bytes_max: usize) -> Self {
        Self {
            arbiter: Arbiter::new(held_bytes_max),
            ends: BTreeMap::new(),
        }
    }

    /// Makes the sink for one feed's subscriber. It passes joined frames and events on to `sink`.
    pub const fn sink<'a, S: FrameSink + ?Sized>(
        &'a mut self,
        now: Instant,
        feed: Feed,
        sink: &'a mut S,
    ) -> FeedSink<'a, S> {
        FeedSink {
            feeds: self,
            now,
            feed,
            sink,
        }
    }

    /// Gives `sink` the frames whose wait is over.
    pub fn settle<S: FrameSink + ?Sized>(&mut self, now: Instant, sink: &mut S) {
        self.arbiter.settle(now);
        self.hand_over(sink);
    }

    /// Goes on without a feed that cannot be used any more. A second call changes nothing.
    pub fn give_up<S: FrameSink + ?Sized>(&mut self, now: Instant, feed: Feed, sink: &mut S) {
        while let Some(session) = self.arbiter.session_of(feed) {
            self.sink(now, feed, sink)
                .event(SessionEvent::Expired { session });
        }
    }

    /// Begins to leave. The caller then closes both subscribers and calls [`Feeds::finish`].
    pub fn leave(&mut self) {
        self.arbiter.leave();
    }

    /// Gives `sink` everything that has come, and forgets all senders.
    pub fn finish<S: FrameSink + ?Sized>(&mut self, now: Instant, sink: &mut S) {
        self.arbiter.finish(now);
        self.hand_over(sink);
    }

    /// Says when [`Feeds::settle`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.arbiter.next_timeout()
    }

    /// Returns two sessions, one of each feed, whose identifiers name one sender, while the
    /// addresses in their marks do not; see [`Arbiter::pop_apart`].
    pub const fn pop_apart(&mut self) -> Option<Apart> {
        self.arbiter.pop_apart()
    }

    /// Returns the arbiter, which merges both feeds into one stream.
    #[must_use]
    pub const fn arbiter(&self) -> &Arbiter {
        &self.arbiter
    }

    fn hand_over<S: FrameSink + ?Sized>(&mut self, sink: &mut S) {
        while let Some(FoundStream {
            stream,
            tsi,
            source,
        }) = self.arbiter.pop_found()
        {
            // The arbiter reuses the number of a forgotten stream. The application must first hear
            // how that stream ended.
            if let Some(end) = self.ends.remove(&stream).filter(|end| !end.is_told) {
                sink.event(end.event);
            }
            sink.event(SessionEvent::Found {
                session: stream,
                tsi,
                source,
            });
        }
        while let Some(event) = self.arbiter.pop() {
            sink.frame(&event);
        }
        for (stream, end) in &mut self.ends {
            if !end.is_told && self.arbiter.is_over(*stream) {
                end.is_told = true;
                sink.event(end.event);
            }
        }
        let arbiter = &self.arbiter;
        self.ends.retain(|stream, _| arbiter.is_known(*stream));
    }

    /// Notes how a sender has left one of its feeds. An orderly end on one feed is kept, whatever
    /// the other feed reports later.
    fn note_end(&mut self, stream: u32, event: SessionEvent) {
        let end = self.ends.entry(stream).or_insert(SenderEnd {
            event,
            is_told: false,
        });
        if !matches!(end.event, SessionEvent::Ended { .. }) {
            end.event = event;
        }
    }
}

/// The sink for one feed's subscriber.
#[derive(Debug)]
pub struct FeedSink<'a, S: ?Sized> {
    feeds: &'a mut Feeds,
    now: Instant,
    feed: Feed,
    sink: &'a mut S,
}

impl<S: FrameSink + ?Sized> FeedSink<'_, S> {
    fn find(&mut self, session: u32, found: SessionEvent) {
        let SessionEvent::Found { tsi, source, .. } = found else {
            return;
        };
        // A receiver reuses the number of a forgotten session. The forgotten session must end
        // first.
        self.end(session, SessionEvent::Expired { session });
        let arbiter = &mut self.feeds.arbiter;
        arbiter.join(self.now, self.feed, session, tsi, source);
        self.feeds.hand_over(self.sink);
        if let Some(stream) = self.feeds.arbiter.stream_of(self.feed, session) {
            self.sink.feed_event(self.feed, found.at(stream));
        }
    }

    fn end(&mut self, session: u32, event: SessionEvent) {
        let Some(stream) = self.feeds.arbiter.stream_of(self.feed, session) else {
            return;
        };
        let event = event.at(stream);
        self.feeds.note_end(stream, event);
        self.feeds.arbiter.part(self.now, self.feed, session);
        self.sink.feed_event(self.feed, event);
        self.feeds.hand_over(self.sink);
    }

    /// Notes that this end cannot take a session. The session gives up its place in the feed, which
    /// another session may need.
    fn refuse(&mut self, session: u32, event: SessionEvent) {
        let Some(stream) = self.feeds.arbiter.stream_of(self.feed, session) else {
            return;
        };
        self.sink.event(event.at(stream));
        self.feeds.arbiter.refuse(self.now, self.feed, session);
        self.feeds.hand_over(self.sink);
    }
}

impl<S: FrameSink + ?Sized> FrameSink for FeedSink<'_, S> {
    fn frame(&mut self, event: &FrameEvent<'_>) {
        // Nothing calls this: `settled` gives all frames to the arbiter.
        self.sink.frame(event);
    }

    fn settled(&mut self, now: Instant, frames: &mut FrameReceiver) {
        self.now = now;
        self.feeds.arbiter.take(now, self.feed, frames);
        self.feeds.hand_over(self.sink);
    }

    fn event(&mut self, event: SessionEvent) {
        let session = event.session();
        match event {
            SessionEvent::Found { .. } => self.find(session, event),
            SessionEvent::Ended { .. }
            | SessionEvent::Expired { .. }
            | SessionEvent::Reset { .. }
            | SessionEvent::Dropped { .. } => self.end(session, event),
            SessionEvent::Refused {
                reason: Refusal::KeyRequired,
                ..
            } => self.refuse(session, event),
            _ => {
                if let Some(stream) = self.feeds.arbiter.stream_of(self.feed, session) {
                    self.sink.event(event.at(stream));
                }
            }
        }
    }

    fn sender_name(&mut self, session: u32, name: &str) {
        if let Some(stream) = self.feeds.arbiter.stream_of(self.feed, session) {
            self.sink.sender_name(stream, name);
        }
    }

    fn partner(&mut self, session: u32, source: IpAddr) {
        let arbiter = &mut self.feeds.arbiter;
        if let Some(stream) = arbiter.bind(self.now, self.feed, session, source) {
            // Two streams become one: `stream` is over, and its frames go to the other stream.
            let event = SessionEvent::Ended { session: stream };
            self.feeds.note_end(stream, event);
        }
        self.feeds.hand_over(self.sink);
    }

    fn is_full(&self) -> bool {
        self.sink.is_full()
    }
}

impl SessionEvent {
    /// Returns the number of the session that this event is about.
    const fn session(&self) -> u32 {
        let mut event = *self;
        *event.session_mut()
    }

    /// Returns the same event with `other` as the number of its session.
    const fn at(mut self, other: u32) -> Self {
        *self.session_mut() = other;
        self
    }

    const fn session_mut(&mut self) -> &mut u32 {
        match self {
            Self::Found { session, .. }
            | Self::Lost { session, .. }
            | Self::NameTaken { session }
            | Self::Refused { session, .. }
            | Self::Ended { session }
            | Self::Expired { session }
            | Self::Reset { session }
            | Self::Dropped { session, .. } => session,
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::pgm::{Gsi, Tsi};

    use super::*;

    #[derive(Default)]
    struct Heard {
        events: Vec<SessionEvent>,
        of_feeds: Vec<(Feed, SessionEvent)>,
    }

    impl FrameSink for Heard {
        fn frame(&mut self, _event: &FrameEvent<'_>) {}

        fn event(&mut self, event: SessionEvent) {
            self.events.push(event);
        }

        fn feed_event(&mut self, feed: Feed, event: SessionEvent) {
            self.of_feeds.push((feed, event));
        }
    }

    const NOW: Instant = Instant::ZERO;
    const TSI: Tsi = Tsi {
        gsi: Gsi([1, 2, 3, 4, 5, 6]),
        port: 40_001,
    };

    /// Lets a feed find a session that comes from the host 10.0.0.`source`.
    fn found(feeds: &mut Feeds, heard: &mut Heard, feed: Feed, (session, source): (u32, u8)) {
        let event = SessionEvent::Found {
            session,
            tsi: if feed == Feed::First {
                TSI
            } else {
                TSI.partner()
            },
            source: [10, 0, 0, source].into(),
        };
        feeds.sink(NOW, feed, heard).event(event);
    }

    #[test]
    fn who_goes_on_by_one_feed_has_not_vanished_before_both_are_given_up() {
        let (mut feeds, mut heard) = (Feeds::new(1 << 20), Heard::default());
        found(&mut feeds, &mut heard, Feed::First, (7, 1));
        found(&mut feeds, &mut heard, Feed::Second, (8, 2));
        let gone = SessionEvent::Expired { session: 0 };
        feeds.give_up(NOW, Feed::First, &mut heard);
        assert!(matches!(heard.events[..], [SessionEvent::Found { .. }]));
        assert_eq!(heard.of_feeds.pop(), Some((Feed::First, gone)));
        feeds.give_up(NOW, Feed::First, &mut heard);
        feeds.give_up(NOW, Feed::Second, &mut heard);
        assert_eq!(heard.events[1..], [gone]);
        assert_eq!(heard.of_feeds.pop(), Some((Feed::Second, gone)));
    }

    #[test]
    fn a_feed_that_comes_in_ends_the_sender_that_it_was() {
        let (mut feeds, mut heard) = (Feeds::new(1 << 20), Heard::default());
        found(&mut feeds, &mut heard, Feed::First, (7, 1));
        // A session of another sender has the place of the second feed until a mark is heard.
        found(&mut feeds, &mut heard, Feed::Second, (66, 66));
        found(&mut feeds, &mut heard, Feed::Second, (8, 2));
        let mut first = feeds.sink(NOW, Feed::First, &mut heard);
        first.partner(7, [10, 0, 0, 2].into());
        let told: Vec<_> = heard.events.iter().map(SessionEvent::session).collect();
        assert_eq!(told, [0, 1, 2, 1]);
        assert_eq!(heard.events[3], SessionEvent::Ended { session: 1 });
        assert_eq!(feeds.arbiter().stream_of(Feed::Second, 8), Some(0));
    }
}
