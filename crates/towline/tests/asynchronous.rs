//! The asynchronous face over the loopback interface, in tokio.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::time::{Duration, Instant};

use towline::{
    AsyncPublisher, AsyncSubscriber, AudienceEvent, Publisher, Received, SendStatus,
    SessionBuilder, SessionEvent, Snapshot, Subscriber,
};

/// Groups differ between tests, so that they can run side by side.
fn session(last: u8) -> SessionBuilder {
    let port = 17_700 + u16::from(last);
    let group = format!("239.192.79.{last}@lo:{port}");
    SessionBuilder::new(group.parse().unwrap())
}

fn publisher(last: u8) -> AsyncPublisher {
    let publisher = Publisher::builder(session(last)).expect_receivers(1).open();
    AsyncPublisher::spawn(publisher.unwrap(), SECONDS).unwrap()
}

fn subscriber(last: u8) -> AsyncSubscriber {
    let subscriber = Subscriber::open(&session(last).name("reader")).unwrap();
    AsyncSubscriber::spawn(subscriber).unwrap()
}

/// Runs a test, for a minute at most.
fn run<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let limit = Duration::from_secs(60);
        tokio::time::timeout(limit, test).await.unwrap()
    })
}

const SECONDS: Duration = Duration::from_secs(10);

#[test]
fn a_subscriber_on_a_thread_takes_the_senders_that_were_named_before() {
    run(async {
        let taking = |from: &str| {
            let mut subscriber = Subscriber::open(&session(20).name(from)).unwrap();
            subscriber.take_only([from.parse().unwrap()]);
            AsyncSubscriber::spawn(subscriber).unwrap()
        };
        let mut far = taking("10.9.9.9");
        let mut near = taking("127.0.0.0/8");
        let mut publisher = publisher(20);
        for _ in 0..50 {
            publisher.send(b"for the near one").await.unwrap();
            publisher.flush().await.unwrap();
            while !matches!(near.next().await.unwrap(), Received::Message { .. }) {}
            assert!(far.pop().is_none(), "from another sender");
        }
        let mut ignored = 0;
        while ignored == 0 {
            let mut snapshot = Snapshot::default();
            far.snapshot(&mut snapshot);
            ignored = snapshot
                .value_of("receiver", "sessions_ignored")
                .unwrap_or(0);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn a_publisher_has_sending_events_receivers_counters_and_an_end_that_tells() {
    run(async {
        let (mut publisher, mut subscriber) = (publisher(1), subscriber(1));
        let reading = tokio::spawn(async move {
            let mut numbers = Vec::new();
            while numbers.len() < 5_000 {
                let next = subscriber.next().await.unwrap();
                if let Received::Message { session, data, .. } = next {
                    numbers.push(u32::from_be_bytes(data.try_into().unwrap()));
                    assert!(subscriber.session(session).is_some());
                }
            }
            (numbers, subscriber)
        });
        for number in 0..5_000_u32 {
            publisher.send(&number.to_be_bytes()).await.unwrap();
        }
        publisher.flush().await.unwrap();
        match publisher.next_event().await {
            Some(AudienceEvent::Joined { name, .. }) => assert_eq!(name, "reader"),
            other => panic!("{other:?}"),
        }
        let (numbers, subscriber) = reading.await.unwrap();
        assert!(numbers.into_iter().eq(0..5_000));
        // What is shown is a moment old.
        let mut snapshot = Snapshot::default();
        loop {
            snapshot.clear();
            publisher.snapshot(&mut snapshot);
            let has_sent = snapshot.value_of("source", "odata_packets").unwrap_or(0) >= 5_000;
            let receivers = publisher.receivers();
            if has_sent
                && receivers
                    .iter()
                    .any(|it| it.name == "reader" && it.behind == 0)
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        subscriber.close().await.unwrap();
        let closed = publisher.close().await.unwrap();
        assert!(closed.is_complete() && closed.confirmed == 1, "{closed:?}");
    });
}

#[test]
fn what_is_cancelled_has_neither_taken_nor_lost_a_message() {
    run(async {
        let (mut publisher, mut subscriber) = (publisher(2), subscriber(2));
        let sending = tokio::spawn(async move {
            for number in 0..20_000_u32 {
                let message = [number.to_be_bytes(); 200].concat();
                while tokio::time::timeout(Duration::ZERO, publisher.send(&message))
                    .await
                    .map(Result::unwrap)
                    .is_err()
                {
                    tokio::task::yield_now().await;
                }
            }
            publisher.close().await.unwrap()
        });
        let mut next = 0_u32;
        loop {
            let Ok(ready) =
                tokio::time::timeout(Duration::from_micros(50), subscriber.ready()).await
            else {
                continue;
            };
            ready.unwrap();
            let mut has_ended = false;
            while let Some(received) = subscriber.pop() {
                match received {
                    Received::Message { data, .. } => {
                        assert_eq!(data[..4], next.to_be_bytes());
                        next += 1;
                    }
                    Received::Event(event) => {
                        has_ended |= matches!(event, SessionEvent::Ended { .. });
                    }
                }
            }
            if has_ended {
                break;
            }
        }
        assert_eq!(next, 20_000);
        let closed = sending.await.unwrap();
        assert!(closed.is_complete(), "{closed:?}");
    });
}

#[test]
fn a_full_queue_is_told_and_waits_for_room() {
    run(async {
        // Nobody is there: messages are kept until somebody joins.
        let mut publisher = publisher(3);
        let message = [7; 60_000];
        let mut taken = 0_usize;
        let end = Instant::now() + SECONDS;
        let mut refused_at = None;
        while refused_at.is_none_or(|at: Instant| at.elapsed() < Duration::from_millis(300)) {
            assert!(Instant::now() < end, "{taken} were taken");
            match publisher.try_send(&message).unwrap() {
                SendStatus::Taken => {
                    taken += 1;
                    refused_at = None;
                }
                _ => {
                    refused_at.get_or_insert(Instant::now());
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
        let waiting = tokio::time::timeout(
            Duration::from_millis(20),
            std::future::poll_fn(|cx| publisher.poll_ready(cx)),
        );
        assert!(waiting.await.is_err(), "there is room");
        let mut subscriber = subscriber(3);
        let reading = tokio::spawn(async move {
            let mut got = 0;
            while got <= taken {
                if let Received::Message { .. } = subscriber.next().await.unwrap() {
                    got += 1;
                }
            }
            subscriber
        });
        publisher.send(&message).await.unwrap();
        let subscriber = reading.await.unwrap();
        subscriber.close().await.unwrap();
        assert!(publisher.close().await.unwrap().is_complete());
    });
}

#[test]
fn dropping_does_not_block_the_executor() {
    run(async {
        let mut publisher = publisher(4);
        publisher.send(b"for one that never comes").await.unwrap();
        let subscriber = subscriber(5);
        let started = Instant::now();
        drop(publisher);
        drop(subscriber);
        assert!(started.elapsed() < Duration::from_secs(1));
    });
}

#[cfg(feature = "futures")]
#[test]
fn a_subscriber_is_a_stream_of_owned_messages() {
    use futures_core::Stream;
    use towline::Incoming;
    run(async {
        let (mut publisher, mut subscriber) = (publisher(6), subscriber(6));
        for number in 0..100_u8 {
            publisher.send(&[number]).await.unwrap();
        }
        let mut kept = Vec::new();
        while kept.len() < 100 {
            let next = std::future::poll_fn(|cx| std::pin::Pin::new(&mut subscriber).poll_next(cx));
            if let Incoming::Message(message) = next.await.unwrap().unwrap() {
                kept.push(message);
            }
        }
        let numbers = kept.iter().map(|message| message.data[0]);
        assert!(numbers.eq(0..100));
    });
}
