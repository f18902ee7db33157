//! Small programs, written from the documentation alone: each does what one expects at first
//! reading.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    net::IpAddr,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use towline::{
    AudienceEvent, Error, ErrorKind, Policy, Publisher, Received, Selector, SessionBuilder,
    SessionEvent, Subscriber,
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
    let mut publisher = Publisher::builder(session(1))
        .expect_receivers(3)
        .open()
        .unwrap();
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
    let mut publisher = Publisher::builder(session(2))
        .expect_receivers(1)
        .open()
        .unwrap();
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
    let builder = Publisher::builder(small)
        .policy(Policy::Lose)
        .expect_receivers(2);
    let mut publisher = builder.open().unwrap();
    publisher.wait_for_receivers(Some(LIMIT)).unwrap();
    let count = 20_000_u32;
    for number in 0..count {
        publisher
            .send(&[number.to_be_bytes(); 250].concat())
            .unwrap();
    }
    let closed = publisher.close(LIMIT).unwrap();
    let mut told = 0;
    for reading in [slow, fast] {
        let (numbers, lost) = reading.join().unwrap();
        told += lost;
        // A message is a packet here.
        assert_eq!(numbers.len() as u64 + lost, u64::from(count));
        assert!(numbers.is_sorted());
    }
    // What is confirmed was delivered: who lost something has not confirmed it.
    assert_eq!(closed.lost, told);
    assert_eq!(closed.is_complete(), told == 0, "{closed:?}");
    assert_eq!(closed.unconfirmed.is_empty(), told == 0, "{closed:?}");
}

#[test]
fn who_holds_the_group_back_is_dropped_by_policy_and_told() {
    // Never as far behind as the limit: in half of it, it takes what the flow window holds.
    let small = || session(10).set("flow_window_bytes", "256KiB").unwrap();
    let mut slow = Subscriber::open(&small().name("slow")).unwrap();
    let fast = Subscriber::open(&small().name("fast")).unwrap();
    let fast = collect(fast, Duration::ZERO);
    let slow = thread::spawn(move || {
        loop {
            match slow.recv(Some(LIMIT)).unwrap() {
                Some(Received::Message { .. }) => thread::sleep(Duration::from_millis(1)),
                Some(Received::Event(SessionEvent::Dropped { code, .. })) => return code,
                Some(Received::Event(SessionEvent::Found { .. })) => {}
                other => panic!("{other:?}"),
            }
        }
    });
    let builder = Publisher::builder(small()).policy(Policy::Drop);
    let mut publisher = builder.expect_receivers(2).open().unwrap();
    publisher.wait_for_receivers(Some(LIMIT)).unwrap();
    let end = Instant::now() + LIMIT;
    let mut number = 0_u32;
    let dropped = loop {
        publisher
            .send(&[number.to_be_bytes(); 250].concat())
            .unwrap();
        number += 1;
        match publisher.pop_event() {
            Some(AudienceEvent::Dropped { name, .. }) => break name,
            _ => assert!(Instant::now() < end, "nobody is dropped"),
        }
    };
    assert_eq!(dropped, "slow");
    let closed = publisher.close(LIMIT).unwrap();
    assert_eq!(closed.unconfirmed, ["slow"], "{closed:?}");
    assert_eq!(slow.join().unwrap(), towline::ErrorCode::TooSlow);
    let (numbers, lost) = fast.join().unwrap();
    assert!(
        numbers.into_iter().eq(0..number) && lost == 0,
        "{lost} lost"
    );
}

#[test]
fn a_publisher_that_says_nothing_any_more_is_told_as_lost() {
    let hasty = [("peer_expiry", "3s"), ("spm_ambient", "500ms")];
    let hasty = hasty.iter().fold(session(11), |session, (name, value)| {
        session.set(name, value).unwrap()
    });
    let mut subscriber = Subscriber::open(&hasty.clone().reports(false)).unwrap();
    let mut publisher = Publisher::builder(hasty).open().unwrap();
    publisher.send(b"and then nobody turns it").unwrap();
    let mut events = Vec::new();
    while !matches!(events.last(), Some(SessionEvent::Expired { .. })) {
        match subscriber.recv(Some(LIMIT)).unwrap() {
            Some(Received::Event(event)) => events.push(event),
            Some(Received::Message { .. }) => {}
            None => panic!("{events:?}"),
        }
    }
    drop(publisher);
}

#[test]
fn counters_are_served_to_this_process_and_others() {
    use towline::counters::{CounterServer, read};
    let subscriber = Subscriber::open(&session(12)).unwrap();
    let mut publisher = Publisher::builder(session(12)).open().unwrap();
    publisher.send(b"counted").unwrap();
    publisher.flush().unwrap();
    let mut snapshot = towline::Snapshot::default();
    publisher.snapshot(&mut snapshot);
    subscriber.snapshot(&mut snapshot);
    for (set, info, _) in snapshot.iter() {
        assert!(!set.is_empty() && !info.help.is_empty());
        assert_eq!(info.unit.to_string(), info.unit.name());
    }
    let sent = snapshot.value_of("source", "odata_packets").unwrap();
    assert_eq!(sent, 1);
    let server = CounterServer::start("a program").unwrap();
    let slot = server.slot("publisher", "239.192.81.12:17912");
    assert!(slot.publish(|snapshot| publisher.snapshot(snapshot)));
    let document = read(std::process::id()).unwrap();
    let [session] = &document.sessions[..] else {
        panic!("{document:?}");
    };
    assert_eq!(session.value_of("source.odata_packets"), Some(sent));
    assert!(
        document
            .prometheus()
            .contains("towline_source_odata_packets_total")
    );
}

#[test]
fn one_receiver_is_reached_by_its_own_address() {
    let session = || SessionBuilder::new("127.0.0.2:17904".parse().unwrap());
    let reading = collect(Subscriber::open(&session()).unwrap(), Duration::ZERO);
    let builder = Publisher::builder(session().interface("127.0.0.3".parse().ok()));
    let mut publisher = builder.expect_receivers(1).open().unwrap();
    publisher.send(&7_u32.to_be_bytes()).unwrap();
    let closed = publisher.close(LIMIT).unwrap();
    assert!(closed.is_complete(), "{closed:?}");
    assert_eq!(reading.join().unwrap(), (vec![7], 0));
}

#[test]
fn publishers_of_one_host_share_a_group_and_a_port() {
    let lossy = session(5).faults("loss=20%,seed=5".parse().unwrap());
    let subscribers = [(); 2].map(|()| Subscriber::open(&lossy).unwrap());
    let reading = subscribers.map(|mut subscriber| {
        thread::spawn(move || {
            let (mut came, mut ended) = ([0, 0], 0);
            while ended < 2 {
                match subscriber.recv(Some(LIMIT)).unwrap() {
                    Some(Received::Message { data, .. }) => {
                        let publisher = usize::from(data[0]);
                        let number = u32::from_be_bytes(data[1..5].try_into().unwrap());
                        assert_eq!(number, came[publisher], "in order, without a gap");
                        came[publisher] += 1;
                    }
                    Some(Received::Event(SessionEvent::Ended { .. })) => ended += 1,
                    Some(Received::Event(SessionEvent::Found { .. })) => {}
                    other => panic!("{other:?} after {came:?}"),
                }
            }
            came
        })
    });
    let [mut first, mut second] = [(); 2].map(|()| {
        let builder = Publisher::builder(session(5)).expect_receivers(2);
        builder.open().unwrap()
    });
    assert!(first.take_warnings().is_empty());
    let warnings = second.take_warnings();
    assert!(
        matches!(&warnings[..], [warning] if warning.contains("other PGM implementations")),
        "{warnings:?}"
    );
    let sending = [(0_u8, first), (1, second)].map(|(index, mut publisher)| {
        thread::spawn(move || {
            for number in 0..2_000_u32 {
                let message = [&[index][..], &number.to_be_bytes(), &[0; 500]].concat();
                publisher.send(&message).unwrap();
            }
            publisher.close(LIMIT).unwrap()
        })
    });
    for sending in sending {
        let closed = sending.join().unwrap();
        assert!(closed.is_complete() && closed.confirmed == 2, "{closed:?}");
    }
    for reading in reading {
        assert_eq!(reading.join().unwrap(), [2_000, 2_000]);
    }
}

#[test]
fn a_second_publisher_that_may_not_tell_its_port_is_told_so() {
    let strict = || session(7).set("strict_pgm", "true").unwrap();
    let first = Publisher::builder(strict()).open().unwrap();
    let error = Publisher::builder(strict()).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddressInUse);
    assert!(error.remedy().is_some(), "{error}");
    drop(first);
    drop(Publisher::builder(strict()).open().unwrap());
}

#[test]
fn a_receiver_is_reached_from_its_own_address() {
    let session = || SessionBuilder::new("127.0.0.8:17908".parse().unwrap());
    let reading = collect(Subscriber::open(&session()).unwrap(), Duration::ZERO);
    let builder = Publisher::builder(session().interface("127.0.0.8".parse().ok()));
    let mut publisher = builder.expect_receivers(1).open().unwrap();
    publisher.send(&7_u32.to_be_bytes()).unwrap();
    let closed = publisher.close(LIMIT).unwrap();
    assert!(closed.is_complete(), "{closed:?}");
    assert_eq!(reading.join().unwrap(), (vec![7], 0));
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
    fn is_cloned<T: Clone>() {}
    fn is_displayed<T: std::fmt::Display>() {}
    sends::<Publisher>();
    sends::<Subscriber>();
    sends::<towline::PublisherThread>();
    sends::<towline::SubscriberThread>();
    sends::<towline::AsyncPublisher>();
    sends::<towline::AsyncSubscriber>();
    sends::<towline::Incoming>();
    sends::<towline::DeliveredStream>();
    sends::<towline::AsyncDeliveredStream>();
    is_shared::<towline::Waker>();
    is_cloned::<towline::Waker>();
    is_cloned::<SessionBuilder>();
    is_displayed::<towline::Unit>();
    let group = towline::Group::try_from((IpAddr::from([239, 1, 1, 1]), 7500));
    assert_eq!(group.unwrap().to_string(), "239.1.1.1:7500");
    is_error::<Error>();
    is_error::<towline::ConfigError>();
    is_error::<towline::SystemError>();
    is_error::<towline::InterfaceError>();
    is_pollable::<Publisher>();
    is_pollable::<Subscriber>();
    is_pollable::<towline::FileSender>();
    is_pollable::<towline::FileReceiver>();
    is_pollable::<towline::DeliveredStream>();
    is_shown::<towline::TransferThread<towline::FileSender>>();
    is_shown::<towline::Closed>();
}

#[test]
fn an_error_that_main_returns_is_printed_in_words() {
    let nowhere = session(95).interface("nope0".parse::<Selector>().unwrap());
    let error = Publisher::builder(nowhere).open().unwrap_err();
    let (shown, text) = (format!("{error:?}"), error.to_string());
    assert_eq!(shown, text);
    assert!(text.contains("nope0"), "{text}");
    assert!(
        format!("{error:#?}").contains("kind: NoInterface"),
        "{error:#?}"
    );
}
