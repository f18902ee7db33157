//! Small programs, written from the documentation alone: each does what one expects at first
//! reading.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use towline::{
    Error, ErrorKind, Policy, Publisher, Received, SessionBuilder, SessionEvent, Subscriber,
};

/// Groups differ between programs, so that they can run side by side.
fn session(last: u8) -> SessionBuilder {
    let port = 17_900 + u16::from(last);
    let group = format!("239.192.81.{last}@lo:{port}");
    SessionBuilder::new(group.parse().unwrap())
}

/// What a subscriber was given until its sender ended: the messages' numbers, and packets lost.
fn collect(mut subscriber: Subscriber, nap: Duration) -> JoinHandle<(Vec<u32>, u64)> {
    thread::spawn(move || {
        let (mut numbers, mut lost) = (Vec::new(), 0);
        loop {
            match subscriber.recv(Some(LIMIT)).unwrap() {
                Some(Received::Message { data, .. }) => {
                    numbers.push(u32::from_be_bytes(data[..4].try_into().unwrap()));
                    if !nap.is_zero() {
                        thread::sleep(nap);
                    }
                }
                Some(Received::Event(SessionEvent::Lost { count, .. })) => lost += count,
                Some(Received::Event(SessionEvent::Ended { .. })) => return (numbers, lost),
                Some(Received::Event(SessionEvent::Found { .. })) => {}
                other => panic!("{other:?} after {} messages", numbers.len()),
            }
        }
    })
}

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn three_subscribers_of_one_process_get_everything_in_order() {
    let subscribers = [(); 3].map(|()| Subscriber::open(&session(1)).unwrap());
    let reading = subscribers.map(|subscriber| collect(subscriber, Duration::ZERO));
    let mut publisher = Publisher::builder(session(1)).receivers(3).open().unwrap();
    publisher.wait_for_receivers(Some(LIMIT)).unwrap();
    for number in 0..10_000_u32 {
        publisher.send(&number.to_be_bytes()).unwrap();
    }
    let closed = publisher.close(LIMIT).unwrap();
    assert!(closed.is_complete() && closed.confirmed == 3, "{closed:?}");
    for reading in reading {
        let (numbers, lost) = reading.join().unwrap();
        assert!(
            numbers.into_iter().eq(0..10_000) && lost == 0,
            "{lost} lost"
        );
    }
}

#[test]
fn a_fifth_of_the_packets_lost_is_repaired() {
    let lossy = session(2).faults("loss=20%,seed=3".parse().unwrap());
    let reading = collect(Subscriber::open(&lossy).unwrap(), Duration::ZERO);
    let mut publisher = Publisher::builder(session(2)).receivers(1).open().unwrap();
    publisher.wait_for_receivers(Some(LIMIT)).unwrap();
    for number in 0..5_000_u32 {
        publisher
            .send(&[number.to_be_bytes(); 125].concat())
            .unwrap();
    }
    let closed = publisher.close(LIMIT).unwrap();
    assert!(closed.is_complete(), "{closed:?}");
    let (numbers, lost) = reading.join().unwrap();
    assert!(numbers.into_iter().eq(0..5_000) && lost == 0, "{lost} lost");
}

#[test]
fn what_a_slow_receiver_loses_is_accounted_for_to_the_packet() {
    let small = session(3).set("tx_window_bytes", "1MiB").unwrap();
    let slow = Subscriber::open(&small.clone().name("slow")).unwrap();
    let fast = Subscriber::open(&small.clone().name("fast")).unwrap();
    let (slow, fast) = (
        collect(slow, Duration::from_micros(100)),
        collect(fast, Duration::ZERO),
    );
    let builder = Publisher::builder(small).policy(Policy::Lose).receivers(2);
    let mut publisher = builder.open().unwrap();
    publisher.wait_for_receivers(Some(LIMIT)).unwrap();
    let count = 20_000_u32;
    for number in 0..count {
        publisher
            .send(&[number.to_be_bytes(); 250].concat())
            .unwrap();
    }
    let closed = publisher.close(LIMIT).unwrap();
    assert!(closed.is_complete(), "{closed:?}");
    for reading in [slow, fast] {
        let (numbers, lost) = reading.join().unwrap();
        // A message is a packet here.
        assert_eq!(numbers.len() as u64 + lost, u64::from(count));
        assert!(numbers.is_sorted());
    }
}

#[test]
fn one_receiver_is_reached_by_its_own_address() {
    let session = || SessionBuilder::new("127.0.0.2:17904".parse().unwrap());
    let reading = collect(Subscriber::open(&session()).unwrap(), Duration::ZERO);
    let builder = Publisher::builder(session().interface("127.0.0.3".parse().ok()));
    let mut publisher = builder.receivers(1).open().unwrap();
    publisher.send(&7_u32.to_be_bytes()).unwrap();
    let closed = publisher.close(LIMIT).unwrap();
    assert!(closed.is_complete(), "{closed:?}");
    assert_eq!(reading.join().unwrap(), (vec![7], 0));
}

#[test]
fn a_second_publisher_of_one_address_and_port_is_told_so() {
    let first = Publisher::builder(session(5)).open().unwrap();
    let error = Publisher::builder(session(5)).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddressInUse);
    assert!(error.remedy().is_some(), "{error}");
    drop(first);
    drop(Publisher::builder(session(5)).open().unwrap());
}

#[test]
fn no_time_and_all_time_are_times_too() {
    let mut subscriber = Subscriber::open(&session(6)).unwrap();
    assert_eq!(subscriber.recv(Some(Duration::ZERO)).unwrap(), None);
    let waker = subscriber.waker().unwrap();
    let waiting = thread::spawn(move || {
        let received = subscriber.recv(Some(Duration::MAX)).unwrap();
        matches!(received, Some(Received::Event(SessionEvent::Found { .. })))
    });
    let mut publisher = Publisher::builder(session(6)).open().unwrap();
    publisher.send(b"the wait ends").unwrap();
    assert!(waiting.join().unwrap());
    waker.wake();
    let started = Instant::now();
    let closed = publisher.close(Duration::MAX).unwrap();
    assert!(closed.is_complete(), "{closed:?}");
    assert!(started.elapsed() < LIMIT);
    // What has ended stays so.
    assert!(matches!(publisher.send(b"late"), Err(Error::Closed)));
    assert!(publisher.close(Duration::ZERO).unwrap().is_complete());
}

#[test]
fn the_types_have_the_traits_that_programs_need() {
    fn sends<T: Send + 'static>() {}
    fn is_shared<T: Send + Sync>() {}
    fn is_error<T: std::error::Error + Send + Sync + 'static>() {}
    fn is_pollable<T: std::os::fd::AsFd + std::os::fd::AsRawFd>() {}
    fn is_shown<T: std::fmt::Debug>() {}
    sends::<Publisher>();
    sends::<Subscriber>();
    sends::<towline::PublisherThread>();
    sends::<towline::SubscriberThread>();
    sends::<towline::AsyncPublisher>();
    sends::<towline::AsyncSubscriber>();
    sends::<towline::Incoming>();
    is_shared::<towline::Waker>();
    is_error::<Error>();
    is_error::<towline::ConfigError>();
    is_error::<towline::SystemError>();
    is_error::<towline::InterfaceError>();
    is_pollable::<Publisher>();
    is_pollable::<Subscriber>();
    is_pollable::<towline::FileSender>();
    is_pollable::<towline::FileReceiver>();
    is_shown::<towline::TransferThread<towline::FileSender>>();
    is_shown::<towline::Closed>();
}
