//! The library's `tracing` events: who subscribes is told of sessions, and none is for a message.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use towline::{AudienceEvent, Publisher, Received, SessionBuilder, SessionEvent, Subscriber};
use tracing::{
    Event, Level, Metadata, Subscriber as Tracer,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
    subscriber::with_default,
};

/// Writes down the level and the message of each event.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<(Level, String)>>>);

struct Message<'a>(&'a mut String);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            *self.0 = format!("{value:?}");
        }
    }
}

impl Tracer for Told {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("towline")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = String::new();
        event.record(&mut Message(&mut text));
        self.0
            .lock()
            .unwrap()
            .push((*event.metadata().level(), text));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Sends `count` messages from one session to another on this thread, and closes both.
fn exchange(port: u16, count: u32) {
    let group = format!("239.192.77.20@lo:{port}").parse().unwrap();
    let session = SessionBuilder::new(group);
    let mut subscriber = Subscriber::open(&session).unwrap();
    let mut publisher = Publisher::builder(session)
        .expect_receivers(1)
        .open()
        .unwrap();
    let (mut sent, mut received, mut has_joined) = (0, 0, false);
    while received < count || !has_joined {
        while sent < count && publisher.try_send(&[7; 100]).unwrap() == towline::SendStatus::Taken {
            sent += 1;
        }
        publisher.turn().unwrap();
        while let Some(event) = publisher.pop_event() {
            has_joined |= matches!(event, AudienceEvent::Joined { .. });
        }
        match subscriber.recv(Some(Duration::from_millis(1))).unwrap() {
            Some(Received::Message { .. }) => received += 1,
            Some(Received::Event(SessionEvent::Lost { count, .. })) => panic!("{count} lost"),
            _ => {}
        }
    }
    subscriber.close().unwrap();
    let closed = publisher.close(Duration::from_secs(5)).unwrap();
    assert!(closed.is_complete(), "{closed:?}");
    while publisher.pop_event().is_some() {}
}

#[test]
fn sessions_are_told_of_and_messages_are_not() {
    // What nobody asks for is decided by one load at each place.
    assert_eq!(LevelFilter::current(), LevelFilter::OFF);
    let told = |port, count| {
        let told = Told::default();
        with_default(told.clone(), || exchange(port, count));
        let mut told = told.0.lock().unwrap().clone();
        // A dial that took long is made twice.
        told.retain(|(_, text)| text != "link dialled again");
        told.sort();
        told
    };
    let few = told(17520, 10);
    for (level, text) in [
        (Level::INFO, "session opened"),
        (Level::INFO, "sender found"),
        (Level::INFO, "receiver joined"),
        (Level::INFO, "receiver left"),
        (Level::INFO, "session closed"),
        (Level::DEBUG, "link dialled"),
        (Level::DEBUG, "link accepted"),
        (Level::DEBUG, "link opened"),
    ] {
        assert!(few.contains(&(level, text.to_owned())), "{text}: {few:?}");
    }
    assert_eq!(told(17521, 20_000), few, "a thousand times the messages");
}
