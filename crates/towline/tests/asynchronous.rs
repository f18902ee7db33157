//! The asynchronous face over the loopback interface, in tokio.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    future::poll_fn,
    io::{ErrorKind, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    task::Poll,
    time::{Duration, Instant},
};

use towline::{
    AsyncDeliveredStream, AsyncPublisher, AsyncSubscriber, AudienceEvent, DeliveredStream,
    Publisher, Received, SendStatus, SessionBuilder, SessionEvent, Snapshot, Subscriber,
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
            poll_fn(|cx| publisher.poll_ready(cx)),
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
            let next = poll_fn(|cx| std::pin::Pin::new(&mut subscriber).poll_next(cx));
            if let Incoming::Message(message) = next.await.unwrap().unwrap() {
                kept.push(message);
            }
        }
        let numbers = kept.iter().map(|message| message.data[0]);
        assert!(numbers.eq(0..100));
    });
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n * 7 + n / 251) as u8).collect()
}

/// A stream, and the other end of its connection.
async fn stream() -> (AsyncDeliveredStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let stream = AsyncDeliveredStream::connect(to, SECONDS).await.unwrap();
    (stream, listener.accept().unwrap().0)
}

async fn streams() -> (AsyncDeliveredStream, AsyncDeliveredStream) {
    let (one, other) = stream().await;
    (one, AsyncDeliveredStream::new(other, SECONDS).unwrap())
}

async fn read_to_end(stream: &mut AsyncDeliveredStream) -> std::io::Result<Vec<u8>> {
    let (mut got, mut room) = (Vec::new(), vec![0; 70_000]);
    loop {
        match stream.read(&mut room).await? {
            0 => return Ok(got),
            count => got.extend_from_slice(&room[..count]),
        }
    }
}

#[test]
fn what_both_ends_of_a_stream_write_is_proven_to_both() {
    run(async {
        let (mut one, mut other) = streams().await;
        let (there, back) = (content(20_000_000), content(300_001));
        let (sent, answer) = (there.clone(), back.clone());
        let peer = tokio::spawn(async move {
            let got = read_to_end(&mut other).await.unwrap();
            other.write_all(&answer).await.unwrap();
            let proof = other.finish(SECONDS).await.unwrap();
            (got, proof)
        });
        one.write_all(&sent).await.unwrap();
        let proof = one.finish(SECONDS).await.unwrap();
        assert_eq!(proof.bytes, 20_000_000);
        let progress = one.progress();
        assert_eq!(progress.acknowledged_bytes, 20_000_000);
        assert_eq!(progress.confirmed_bytes, 20_000_000);
        assert!(read_to_end(&mut one).await.unwrap() == back);
        let (got, proof) = peer.await.unwrap();
        assert!(got == there);
        assert_eq!(proof.bytes, 300_001);
    });
}

#[test]
fn an_awaited_stream_and_a_blocking_one_understand_each_other() {
    run(async {
        let (mut one, other) = stream().await;
        let peer = std::thread::spawn(move || {
            let mut other = DeliveredStream::new(other, SECONDS).unwrap();
            let mut got = Vec::new();
            other.read_to_end(&mut got).unwrap();
            other.write_all(b"thanks").unwrap();
            (got, other.finish(SECONDS).unwrap().bytes)
        });
        let all = content(3_000_000);
        one.write_all(&all).await.unwrap();
        assert_eq!(one.finish(SECONDS).await.unwrap().bytes, 3_000_000);
        assert_eq!(read_to_end(&mut one).await.unwrap(), b"thanks");
        let (got, bytes) = peer.join().unwrap();
        assert!(got == all && bytes == 6);
    });
}

/// Reads and writes, each as far as it goes, in one task.
async fn both_ways(stream: &mut AsyncDeliveredStream, all: &[u8]) -> Vec<u8> {
    let (mut written, mut got, mut room) = (0, Vec::new(), vec![0; 70_000]);
    poll_fn(|cx| {
        let mut has_moved = true;
        while has_moved {
            has_moved = false;
            if written < all.len()
                && let Poll::Ready(count) = stream.poll_write(cx, &all[written..])
            {
                (written, has_moved) = (written + count.unwrap(), true);
            }
            if got.len() < all.len()
                && let Poll::Ready(count) = stream.poll_read(cx, &mut room)
            {
                got.extend_from_slice(&room[..count.unwrap()]);
                has_moved = true;
            }
        }
        match written == all.len() && got.len() == all.len() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    got
}

#[test]
fn one_task_reads_and_writes_at_the_same_time() {
    run(async {
        let (mut one, mut other) = streams().await;
        let all = content(20_000_000);
        let theirs = all.clone();
        let peer = tokio::spawn(async move {
            let got = both_ways(&mut other, &theirs).await;
            assert!(got == theirs);
            // The read of the end counts everything as taken.
            assert_eq!(other.read(&mut [0; 9]).await.unwrap(), 0);
            other.finish(SECONDS).await.unwrap()
        });
        assert!(both_ways(&mut one, &all).await == all);
        one.finish(SECONDS).await.unwrap();
        assert_eq!(one.read(&mut [0; 9]).await.unwrap(), 0);
        assert_eq!(peer.await.unwrap().bytes, 20_000_000);
    });
}

#[test]
fn calls_of_a_stream_that_are_cancelled_take_and_lose_nothing() {
    run(async {
        let (mut one, mut other) = streams().await;
        let all = content(5_000_000);
        let theirs = all.clone();
        let peer = tokio::spawn(async move {
            let (mut got, mut room) = (Vec::new(), vec![0; 7_000]);
            loop {
                let read = other.read(&mut room);
                match tokio::time::timeout(Duration::from_micros(50), read).await {
                    Ok(Ok(0)) => break,
                    Ok(count) => got.extend_from_slice(&room[..count.unwrap()]),
                    Err(_late) => {}
                }
            }
            assert!(got == theirs);
        });
        let mut written = 0;
        while written < all.len() {
            let piece = &all[written..all.len().min(written + 60_000)];
            match tokio::time::timeout(Duration::ZERO, one.write(piece)).await {
                Ok(count) => written += count.unwrap(),
                Err(_late) => tokio::task::yield_now().await,
            }
        }
        // Ended at the first call, whatever becomes of it.
        while tokio::time::timeout(Duration::from_millis(1), one.finish(SECONDS))
            .await
            .map(Result::unwrap)
            .is_err()
        {}
        peer.await.unwrap();
    });
}

#[test]
fn a_stream_that_is_not_taken_says_in_time_how_far_it_got() {
    run(async {
        let (mut one, mut other) = streams().await;
        other.confirm_by_hand();
        one.write_all(b"to be synced").await.unwrap();
        let began = Instant::now();
        let error = one.finish(Duration::from_millis(50)).await.unwrap_err();
        assert!(began.elapsed() >= Duration::from_millis(50));
        assert!(error.cause.contains("in time"), "{error}");
        assert_eq!(error.progress.written_bytes, 12, "{error}");
        assert_eq!(error.progress.confirmed_bytes, 0, "{error}");
        assert_eq!(read_to_end(&mut other).await.unwrap(), b"to be synced");
        let again = one.finish(Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(again.progress.confirmed_bytes, 0, "{again}");
        other.confirm().await.unwrap();
        assert_eq!(one.finish(SECONDS).await.unwrap().bytes, 12);
        // One that breaks off is an error at its reader.
        let (mut one, mut other) = streams().await;
        one.write_all(b"half of it").await.unwrap();
        drop(one);
        let error = read_to_end(&mut other).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let nobody = listener.local_addr().unwrap();
        drop(listener);
        let refused = AsyncDeliveredStream::connect(nobody, SECONDS).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
}

/// The peer floods and reads nothing: a write waits without being woken again and again.
#[test]
fn a_peer_that_floods_and_does_not_read_costs_a_waiting_stream_nothing() {
    run(async {
        let (mut one, mut peer) = stream().await;
        let flood = std::thread::spawn(move || {
            let piece = [&[1, 0, 0, 4, 0][..], &[7; 1_024]].concat();
            let mut words = b"towline1".to_vec();
            while peer.write_all(&words).is_ok() {
                words.clone_from(&piece);
            }
        });
        let piece = vec![7; 200_000];
        let mut calls = 0_u32;
        let endless = async {
            loop {
                let written = poll_fn(|cx| {
                    calls += 1;
                    one.poll_write(cx, &piece)
                });
                written.await.unwrap();
            }
        };
        let stuck = tokio::time::timeout(Duration::from_millis(700), endless);
        assert!(stuck.await.is_err());
        // Each piece took a call or two until the buffers were full, and a few MB were heard.
        assert!(calls < 2_000, "{calls}");
        let error = one.finish(SECONDS).await.unwrap_err();
        assert!(error.cause.contains("must be read first"), "{error}");
        drop(one);
        flood.join().unwrap();
    });
}

/// The peer writes a little and reads nothing: a confirmation waits without being woken again and
/// again.
#[test]
fn a_confirmation_that_waits_for_room_hears_what_comes() {
    run(async {
        let (mut one, mut peer) = stream().await;
        let piece = [&[1, 0, 0, 4, 0][..], &[7; 1_024]].concat();
        peer.write_all(&[b"towline1", &piece[..]].concat()).unwrap();
        let mut room = [0; 2_000];
        assert_eq!(one.read(&mut room).await.unwrap(), 1_024);
        let filling = vec![7; 200_000];
        let endless = async {
            loop {
                one.write(&filling).await.unwrap();
            }
        };
        let full = tokio::time::timeout(Duration::from_millis(300), endless);
        assert!(full.await.is_err());
        peer.write_all(&piece).unwrap();
        let mut calls = 0_u32;
        let mut confirm = std::pin::pin!(one.confirm());
        let counted = poll_fn(|cx| {
            calls += 1;
            confirm.as_mut().poll(cx)
        });
        let stuck = tokio::time::timeout(Duration::from_millis(300), counted);
        assert!(stuck.await.is_err());
        assert!(calls < 20, "{calls}");
    });
}

#[test]
fn a_confirmation_that_finds_no_room_leaves_when_there_is_some() {
    run(async {
        let (mut one, mut other) = streams().await;
        one.write_all(&[7; 1_000]).await.unwrap();
        let mut room = vec![0; 1_000_000];
        assert_eq!(other.read(&mut room).await.unwrap(), 1_000);
        // Nobody reads, until nothing more is taken.
        let piece = vec![7; 200_000];
        let endless = async {
            loop {
                other.write(&piece).await.unwrap();
            }
        };
        let full = tokio::time::timeout(Duration::from_millis(300), endless);
        assert!(full.await.is_err());
        let waiting = tokio::spawn(async move {
            let _until_it_breaks_off = other.read(&mut [0; 9]).await;
        });
        // The wait counts what was given before as taken.
        while one.progress().confirmed_bytes < 1_000 {
            let read = one.read(&mut room);
            drop(tokio::time::timeout(Duration::from_millis(10), read).await);
        }
        drop(one);
        waiting.await.unwrap();
    });
}
