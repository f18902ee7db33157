//! Frames by two feeds: what a program that sends or takes them sees.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};
use towline::{
    Feed, FrameEvent, FramePublisher, FrameReceiverConfig, FrameSink, FrameSubscriber, Offered,
    SessionBuilder, SessionEvent,
};

/// Groups differ between tests, so that they can run side by side.
fn sessions(last: u8) -> [SessionBuilder; 2] {
    [0, 1].map(|feed| {
        let group = format!("239.192.79.{}@lo:{}", last + feed, 17_700 + u16::from(last));
        SessionBuilder::new(group.parse().unwrap())
    })
}

const INTERVAL: Duration = Duration::from_millis(5);
const BYTES: usize = 20_000;

fn publisher([first, second]: [SessionBuilder; 2], receivers: u32) -> FramePublisher {
    let builder = FramePublisher::builder(first, BYTES, INTERVAL).also(second);
    builder.expect_receivers(receivers).open().unwrap()
}

#[derive(Default)]
struct Tally {
    whole: u64,
    lost: u64,
    is_over: bool,
}

impl FrameSink for Tally {
    fn frame(&mut self, event: &FrameEvent<'_>) {
        match event {
            FrameEvent::Whole(frame) => {
                assert!(frame.data.iter().all(|&byte| byte == frame.id as u8));
                self.whole += 1;
            }
            FrameEvent::Lost { count, .. } => self.lost += count,
            FrameEvent::Ended { .. } => {}
        }
    }

    fn event(&mut self, event: SessionEvent) {
        self.is_over |= matches!(event, SessionEvent::Ended { .. });
    }
}

/// Takes frames until the sender ends, or `stop` is set.
fn take(mut subscriber: FrameSubscriber, stop: &AtomicBool) -> (Tally, FrameSubscriber) {
    let mut tally = Tally::default();
    while !tally.is_over && !stop.load(Ordering::Relaxed) {
        subscriber.turn(&mut tally).unwrap();
        let until = subscriber.now() + Duration::from_millis(10);
        subscriber.wait(Some(until));
    }
    subscriber.close(&mut tally).unwrap();
    (tally, subscriber)
}

fn turn_for(publisher: &mut FramePublisher, time: Duration) {
    let until = publisher.now() + time;
    while publisher.now() < until {
        publisher.turn().unwrap();
        publisher.wait(Some(until));
    }
}

fn send(publisher: &mut FramePublisher, frames: u8) {
    for number in 0..frames {
        let stamp = FramePublisher::wall_ns();
        let offered = publisher.offer(stamp, BYTES, |_, room| room.fill(number));
        assert!(matches!(offered.unwrap(), Offered::Taken(_)), "{number}");
        turn_for(publisher, INTERVAL);
    }
}

#[test]
fn a_feed_that_takes_nothing_more_does_not_hold_up_the_end() {
    let [first, second] = sessions(1);
    // It reports by the second feed, and then stands still.
    let mut stuck = FrameSubscriber::open(&second, FrameReceiverConfig::default()).unwrap();
    let subscriber = FrameSubscriber::open(&first, FrameReceiverConfig::default()).unwrap();
    let mut publisher = publisher([first, second], 1);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let taken = scope.spawn(|| take(subscriber, &stop));
        let mut ignored = Tally::default();
        let reports = |publisher: &FramePublisher, feed| publisher.feed(feed).unwrap().receivers;
        while Feed::ALL.iter().any(|&feed| reports(&publisher, feed) == 0) {
            turn_for(&mut publisher, INTERVAL);
            stuck.turn(&mut ignored).unwrap();
        }
        send(&mut publisher, 20);
        let (timeout, begun) = (Duration::from_secs(20), Instant::now());
        let closed = publisher.close(timeout).unwrap();
        assert!(
            begun.elapsed() < timeout,
            "the stuck receiver was waited for"
        );
        assert!(closed.is_complete(), "{closed:?}");
        assert_eq!((closed.confirmed, closed.lost), (1, 0), "{closed:?}");
        assert!(closed.unconfirmed.is_empty(), "{closed:?}");
        let (tally, _) = taken.join().unwrap();
        assert_eq!((tally.whole, tally.lost), (20, 0));
    });
}

#[test]
fn an_owner_that_polls_the_descriptor_gets_every_frame_of_two_feeds() {
    let both = sessions(3);
    let [first, second] = &both;
    let config = FrameReceiverConfig::default();
    let mut subscriber = FrameSubscriber::open_feeds([first, second], config).unwrap();
    let mut publisher = publisher(both, 1);
    thread::scope(|scope| {
        let sent = scope.spawn(move || {
            while !publisher.has_expected() {
                turn_for(&mut publisher, INTERVAL);
            }
            send(&mut publisher, 20);
            publisher.close(Duration::from_secs(20)).unwrap()
        });
        let mut tally = Tally::default();
        while !tally.is_over {
            while !subscriber.turn(&mut tally).unwrap().is_idle() {}
            subscriber.arm();
            let mut ready = [PollFd::new(&subscriber, PollFlags::IN)];
            poll(&mut ready, None).unwrap();
        }
        assert_eq!((tally.whole, tally.lost), (20, 0));
        let [first, second] = subscriber.feeds().unwrap();
        assert_eq!(first.first + second.first, 20);
        assert!(subscriber.feeds_heard().iter().all(Option::is_some));
        assert!(sent.join().unwrap().is_complete());
    });
}

#[test]
fn a_feed_that_brings_nothing_shows_as_such() {
    let [first, second] = sessions(5);
    let config = FrameReceiverConfig::default();
    let subscriber = FrameSubscriber::open_feeds([&first, &second], config).unwrap();
    // Nobody sends by the second feed.
    let builder = FramePublisher::builder(first, BYTES, INTERVAL);
    let mut publisher = builder.expect_receivers(1).open().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let taken = scope.spawn(|| take(subscriber, &stop));
        while !publisher.has_expected() {
            turn_for(&mut publisher, INTERVAL);
        }
        send(&mut publisher, 10);
        assert!(
            publisher
                .close(Duration::from_secs(20))
                .unwrap()
                .is_complete()
        );
        let (tally, subscriber) = taken.join().unwrap();
        assert_eq!((tally.whole, tally.lost), (10, 0));
        let [first, second] = subscriber.feeds().unwrap();
        assert_eq!((first.first, first.only(&second)), (10, 10));
        assert_eq!(second.whole(), 0);
        assert!(matches!(subscriber.feeds_heard(), [Some(_), None]));
    });
}
