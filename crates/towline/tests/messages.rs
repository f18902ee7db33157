//! What a program that sends messages expects at first reading: when they leave, and how it ends.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    net::UdpSocket,
    thread,
    time::{Duration, Instant},
};

use towline::{
    Publisher, Received, SendStatus, SessionBuilder, SessionEvent, Snapshot, Subscriber,
};
use wire::{
    Sqn,
    pgm::{Addressing, Body, Data, PgmOption, Rst, Spm, emit},
};

/// Groups differ between tests, so that they can run side by side.
fn session(last: u8) -> SessionBuilder {
    let port = 17_600 + u16::from(last);
    let group = format!("239.192.78.{last}@lo:{port}");
    SessionBuilder::new(group.parse().unwrap())
}

fn publisher(last: u8, receivers: u32) -> Publisher {
    let publisher = Publisher::builder(session(last)).expect_receivers(receivers);
    publisher.open().unwrap()
}

/// The next message, or `None` when none comes within `timeout`.
fn message(subscriber: &mut Subscriber, timeout: Duration) -> Option<Vec<u8>> {
    let end = Instant::now() + timeout;
    while Instant::now() < end {
        match subscriber.recv(Some(Duration::from_millis(10))).unwrap() {
            Some(Received::Message { data, .. }) => return Some(data.to_vec()),
            Some(Received::Event(SessionEvent::Lost { count, .. })) => panic!("{count} lost"),
            _ => {}
        }
    }
    None
}

/// Receives until `is_last` says that an event is the one that was waited for.
fn await_event(subscriber: &mut Subscriber, is_last: impl Fn(SessionEvent) -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        match subscriber.recv(Some(Duration::from_millis(100))).unwrap() {
            Some(Received::Event(event)) if is_last(event) => return,
            _ => {}
        }
    }
    panic!("it was not told");
}

const SECONDS: Duration = Duration::from_secs(10);

#[test]
fn a_message_leaves_in_the_call_that_takes_it_when_the_line_is_quiet() {
    let mut subscriber = Subscriber::open(&session(1)).unwrap();
    let mut publisher = publisher(1, 0);
    for number in 0..6_u8 {
        match number % 2 {
            0 => publisher.send(&[number]).unwrap(),
            _ => {
                // Longer than any message waits for company.
                thread::sleep(Duration::from_millis(1));
                assert_eq!(publisher.try_send(&[number]).unwrap(), SendStatus::Taken);
            }
        }
        // No other call of the publisher's: nothing but the message itself can bring it here.
        assert_eq!(message(&mut subscriber, SECONDS), Some(vec![number]));
    }
}

#[test]
fn a_short_row_of_messages_leaves_without_another_call() {
    let mut subscriber = Subscriber::open(&session(10)).unwrap();
    let mut publisher = publisher(10, 0);
    for number in 0..10_u8 {
        publisher.send(&[number]).unwrap();
    }
    for number in 0..10_u8 {
        assert_eq!(message(&mut subscriber, SECONDS), Some(vec![number]));
    }
}

#[test]
fn messages_in_a_row_share_system_calls() {
    let mut publisher = publisher(2, 0);
    publisher.turn().unwrap();
    let runs = |publisher: &Publisher| {
        let mut snapshot = Snapshot::default();
        publisher.snapshot(&mut snapshot);
        let mut all = snapshot.iter();
        let (_, _, runs) = all
            .find(|(set, info, _)| (*set, info.name) == ("driver", "runs"))
            .unwrap();
        runs
    };
    let (before, count) = (runs(&publisher), 20_000_u32);
    let started = Instant::now();
    for number in 0..count {
        publisher.send(&number.to_be_bytes()).unwrap();
    }
    let took = started.elapsed();
    publisher.flush().unwrap();
    let runs = runs(&publisher) - before;
    // One call for each 50 us at most, or for each 32 packets; and SPMs.
    let allowed = took.as_micros() / 25 + u128::from(count) / 16 + 100;
    assert!(u128::from(runs) < allowed, "{runs} runs in {took:?}");
}

#[test]
fn the_end_waits_for_a_receiver_that_is_expected_and_late() {
    for (last, linger) in [(3, "5s"), (4, "0s")] {
        let session = session(last);
        let receiver = session.clone();
        let late = thread::spawn(move || {
            thread::sleep(Duration::from_millis(700));
            let mut subscriber = Subscriber::open(&receiver).unwrap();
            let got = message(&mut subscriber, SECONDS);
            await_event(&mut subscriber, |event| {
                matches!(event, SessionEvent::Ended { .. })
            });
            got
        });
        let publisher = Publisher::builder(session.set("linger", linger).unwrap());
        let mut publisher = publisher.expect_receivers(1).open().unwrap();
        publisher.send(b"hello, all").unwrap();
        let started = Instant::now();
        let closed = publisher.close(Duration::from_secs(20)).unwrap();
        assert!(closed.is_complete(), "linger {linger}: {closed:?}");
        assert_eq!((closed.confirmed, closed.missing), (1, 0), "{closed:?}");
        assert!(started.elapsed() < Duration::from_secs(15));
        assert_eq!(late.join().unwrap(), Some(b"hello, all".to_vec()));
    }
}

#[test]
fn the_end_names_who_did_not_confirm() {
    let mut subscriber = Subscriber::open(&session(5).name("early")).unwrap();
    let mut publisher = publisher(5, 2);
    let (is_in, leave) = std::sync::mpsc::channel::<()>();
    let early = thread::spawn(move || {
        while leave.try_recv().is_err() {
            subscriber.recv(Some(Duration::from_millis(10))).unwrap();
        }
        subscriber.close().unwrap();
    });
    // Kept for two, of whom one comes and leaves again.
    publisher.send(b"for two").unwrap();
    let end = Instant::now() + SECONDS;
    let await_count = |publisher: &mut Publisher, count| {
        while publisher.receiver_count() != count && Instant::now() < end {
            publisher.turn().unwrap();
        }
    };
    await_count(&mut publisher, 1);
    is_in.send(()).unwrap();
    await_count(&mut publisher, 0);
    early.join().unwrap();
    let started = Instant::now();
    let closed = publisher.close(Duration::from_millis(400)).unwrap();
    assert!(
        started.elapsed() >= Duration::from_millis(400),
        "{closed:?}"
    );
    assert_eq!((closed.confirmed, closed.missing), (0, 1), "{closed:?}");
    assert_eq!(closed.unconfirmed, ["early"]);
    assert!(!closed.is_complete());
}

#[test]
fn the_end_does_not_linger_for_nobody() {
    let mut publisher = publisher(6, 0);
    publisher.send(b"to nobody").unwrap();
    let started = Instant::now();
    let closed = publisher.close(Duration::from_secs(30)).unwrap();
    // The parameter `linger` is 5 s.
    assert!(started.elapsed() < Duration::from_secs(3), "{closed:?}");
    assert!(closed.is_complete());
    assert_eq!(closed.confirmed, 0);
}

#[test]
fn the_end_is_short_after_the_only_receiver_has_left() {
    let mut subscriber = Subscriber::open(&session(7)).unwrap();
    let mut publisher = publisher(7, 1);
    let gone = thread::spawn(move || {
        message(&mut subscriber, SECONDS).unwrap();
        subscriber.close().unwrap();
    });
    publisher.send(b"one").unwrap();
    let end = Instant::now() + SECONDS;
    let mut has_come = false;
    while !(has_come && publisher.receiver_count() == 0) && Instant::now() < end {
        publisher.turn().unwrap();
        has_come |= publisher.receiver_count() == 1;
    }
    gone.join().unwrap();
    let started = Instant::now();
    let closed = publisher.close(Duration::from_secs(30)).unwrap();
    assert!(started.elapsed() < Duration::from_secs(3), "{closed:?}");
    assert!(closed.is_complete(), "{closed:?}");
}

#[test]
fn both_ends_in_one_loop_close_without_blocking() {
    let mut subscriber = Subscriber::open(&session(8)).unwrap();
    let mut publisher = publisher(8, 1);
    let mut batch = towline::Batch::default();
    publisher.send(b"in one loop").unwrap();
    publisher.begin_close(SECONDS);
    let (mut messages, mut has_ended) = (0, false);
    let end = Instant::now() + SECONDS;
    while !(publisher.is_closed() && subscriber.is_closed()) && Instant::now() < end {
        publisher.turn().unwrap();
        subscriber.turn(&mut batch).unwrap();
        while let Some(next) = batch.pop() {
            messages += usize::from(matches!(next, Received::Message { .. }));
            has_ended |= matches!(next, Received::Event(SessionEvent::Ended { .. }));
        }
        batch.clear();
        if has_ended {
            subscriber.begin_close();
        }
    }
    let closed = publisher.closed().expect("it is closed");
    assert!(closed.is_complete() && closed.confirmed == 1, "{closed:?}");
    assert_eq!(messages, 1);
}

#[test]
fn a_publisher_that_is_dropped_tells_its_receivers_at_once() {
    // In the midst of a row, and when all that was sent is confirmed.
    for (last, is_confirmed) in [(9, false), (16, true)] {
        let mut subscriber = Subscriber::open(&session(last)).unwrap();
        let mut publisher = publisher(last, 1);
        let dropping = thread::spawn(move || {
            publisher.wait_for_receivers(Some(SECONDS)).unwrap();
            for number in 0..20_000_u32 {
                publisher.send(&number.to_be_bytes()).unwrap();
            }
            let end = Instant::now() + SECONDS;
            let is_behind = |publisher: &Publisher| publisher.receivers().any(|it| it.behind > 0);
            while is_confirmed && is_behind(&publisher) && Instant::now() < end {
                publisher.flush().unwrap();
            }
            drop(publisher);
        });
        await_event(&mut subscriber, |event| match event {
            SessionEvent::Ended { .. } => panic!("it is told as a good end"),
            event => matches!(event, SessionEvent::Reset { .. }),
        });
        dropping.join().unwrap();
    }
}

#[test]
fn a_message_that_finds_no_room_in_time_stays_with_its_owner() {
    let moment = Duration::from_millis(1);
    // The receiver that is expected holds the window until it comes.
    let mut publisher = publisher(61, 1);
    let mut count = 0_u32;
    while publisher.send_timeout(&[7; 1_000], moment).unwrap() == SendStatus::Taken {
        count += 1;
    }
    assert!(count > 0);
    let mut subscriber = Subscriber::open(&session(61)).unwrap();
    let reading = thread::spawn(move || {
        let mut taken = 0;
        while message(&mut subscriber, SECONDS).is_some() {
            taken += 1;
            if taken > count {
                break;
            }
        }
        taken
    });
    assert_eq!(
        publisher.send_timeout(&[7; 1_000], SECONDS).unwrap(),
        SendStatus::Taken
    );
    publisher.flush().unwrap();
    while !reading.is_finished() {
        publisher.turn().unwrap();
        let soon = publisher.now() + moment;
        publisher.wait(Some(soon));
    }
    assert_eq!(reading.join().unwrap(), count + 1);
}

#[test]
fn a_thread_ends_though_nobody_takes_what_it_was_given() {
    let long = Duration::from_millis(300);
    for last in [17, 18] {
        let publisher = publisher(last, 1);
        let mut publisher = towline::PublisherThread::spawn(publisher, long).unwrap();
        // More than the window and the queue hold.
        let message = vec![7; 60_000];
        let end = Instant::now() + Duration::from_millis(500);
        while Instant::now() < end {
            if publisher.try_send(&message).unwrap() != SendStatus::Taken {
                thread::sleep(Duration::from_millis(1));
            }
        }
        assert_ne!(publisher.try_send(&message).unwrap(), SendStatus::Taken);
        let started = Instant::now();
        if last == 17 {
            let closed = publisher.close().unwrap();
            assert!(!closed.is_complete(), "{closed:?}");
            assert_eq!((closed.confirmed, closed.missing), (0, 1), "{closed:?}");
            assert!(started.elapsed() >= long);
        } else {
            drop(publisher);
        }
        assert!(started.elapsed() < SECONDS);
    }
}

#[test]
fn dropping_a_thread_breaks_the_session_off() {
    let mut subscriber = Subscriber::open(&session(19)).unwrap();
    let publisher = publisher(19, 1);
    let mut publisher = towline::PublisherThread::spawn(publisher, SECONDS).unwrap();
    publisher.send(b"and more was to come").unwrap();
    assert!(message(&mut subscriber, SECONDS).is_some());
    drop(publisher);
    await_event(&mut subscriber, |event| match event {
        SessionEvent::Ended { .. } => panic!("it is told as a good end"),
        event => matches!(event, SessionEvent::Reset { .. }),
    });
}

#[test]
fn an_end_whose_announcement_is_cut_short_is_complete() {
    // Nobody reports: the end would be announced for 5 s.
    let builder = Publisher::builder(session(20).reports(false));
    let mut publisher = builder.open().unwrap();
    publisher.send(b"to whom it may concern").unwrap();
    let closed = publisher.close(Duration::from_millis(100)).unwrap();
    assert!(closed.is_complete(), "{closed:?}");
}

#[test]
fn receivers_of_one_process_have_names_of_their_own() {
    let mut subscribers = [(); 3].map(|()| Subscriber::open(&session(11)).unwrap());
    let mut publisher = publisher(11, 3);
    let end = Instant::now() + SECONDS;
    let mut names = Vec::new();
    while names.len() < 3 && Instant::now() < end {
        publisher.turn().unwrap();
        for subscriber in &mut subscribers {
            subscriber.recv(Some(Duration::from_millis(1))).unwrap();
        }
        while let Some(event) = publisher.pop_event() {
            match event {
                towline::AudienceEvent::Joined { name, .. } => names.push(name),
                other => panic!("{other:?}"),
            }
        }
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 3, "{names:?}");
    // Who leaves makes its name free for the next.
    let [first, ..] = subscribers;
    drop(first);
    let mut again = Subscriber::open(&session(11)).unwrap();
    let mut has_joined = false;
    while !has_joined && Instant::now() < end {
        publisher.turn().unwrap();
        again.recv(Some(Duration::from_millis(1))).unwrap();
        while let Some(event) = publisher.pop_event() {
            if let towline::AudienceEvent::Joined { name, .. } = event {
                assert!(names.contains(&name), "{name} is none of {names:?}");
                has_joined = true;
            }
        }
    }
    assert!(has_joined);
}

#[test]
fn a_publisher_says_what_it_is_called() {
    let mut subscriber = Subscriber::open(&session(62)).unwrap();
    let named = session(62).name("ticks");
    let mut publisher = Publisher::builder(named).open().unwrap();
    let end = Instant::now() + SECONDS;
    while subscriber.sender_name(0).is_none() && Instant::now() < end {
        publisher.turn().unwrap();
        subscriber.recv(Some(Duration::from_millis(1))).unwrap();
    }
    assert_eq!(subscriber.sender_name(0), Some("ticks"));
    assert_eq!(subscriber.sender_name(1), None);
}

#[test]
fn who_waits_for_receivers_is_told_how_many_came() {
    let mut publisher = publisher(12, 2);
    let error = publisher
        .wait_for_receivers(Some(Duration::from_millis(20)))
        .unwrap_err();
    assert_eq!(error.kind(), towline::ErrorKind::TimedOut);
    assert_eq!(
        error.to_string(),
        "0 of 2 receivers joined in time; start the missing ones, or allow more time"
    );
    let error = std::io::Error::from(error);
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}

#[test]
fn a_process_has_one_counter_server() {
    use towline::counters::{CounterServer, read};
    let first = CounterServer::start("first").unwrap();
    let second = CounterServer::start("second").unwrap_err();
    assert_eq!(second.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(read(std::process::id()).unwrap().command, "first");
    drop(first);
    let third = CounterServer::start("third").unwrap();
    assert_eq!(read(std::process::id()).unwrap().command, "third");
    drop(third);
}

/// What is shown of a face in a log line, whatever it holds.
#[test]
fn debug_of_every_face_is_short() {
    let mut subscriber = Subscriber::open(&session(13)).unwrap();
    let mut publisher = publisher(13, 0);
    for _ in 0..100 {
        publisher.send(&[7; 1000]).unwrap();
    }
    let got = loop {
        let received = subscriber.recv(Some(SECONDS)).unwrap();
        if let got @ Received::Message { .. } = received.expect("messages arrive") {
            break format!("{got:?}");
        }
    };
    assert!(got.contains("bytes: 1000"), "{got}");
    let mut snapshot = Snapshot::default();
    publisher.snapshot(&mut snapshot);
    let mut batch = towline::Batch::default();
    subscriber.turn(&mut batch).unwrap();
    let mut shown = vec![
        got,
        format!("{publisher:?}"),
        format!("{subscriber:?}"),
        format!("{snapshot:?}"),
        format!("{batch:?}"),
        format!("{:?}", session(13)),
        format!("{:?}", Publisher::builder(session(13))),
    ];
    let directory = std::env::temp_dir().join(format!("towline-debug-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("from")).unwrap();
    for number in 0..100 {
        std::fs::write(directory.join(format!("from/{number}")), b"content").unwrap();
    }
    let builder = towline::FileSet::builder().path(directory.join("from"));
    shown.push(format!("{builder:?}"));
    let mut files = builder.read().unwrap();
    let sums = files.sums().unwrap();
    shown.extend([format!("{files:?}"), format!("{sums:?}")]);
    let expectation = towline::Expectation::default();
    let sender = towline::FileSender::open(&session(14), files, &expectation).unwrap();
    let receiver = towline::FileReceiver::open(&session(14), directory.join("to")).unwrap();
    shown.extend([format!("{sender:?}"), format!("{receiver:?}")]);
    let sender = towline::TransferThread::spawn(sender).unwrap();
    let publisher = towline::PublisherThread::spawn(publisher, Duration::ZERO).unwrap();
    let subscriber = towline::SubscriberThread::spawn(subscriber).unwrap();
    shown.extend([
        format!("{sender:?}"),
        format!("{publisher:?}"),
        format!("{subscriber:?}"),
    ]);
    for text in shown {
        assert!(text.len() < 1000, "{} bytes: {text}", text.len());
    }
    drop(sender);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_receiver_is_expected_by_name_once() {
    let files = towline::FileSet::builder()
        .path("Cargo.toml")
        .read()
        .unwrap();
    let expectation = towline::Expectation::default().names(["a", "b", "a"]);
    let error = towline::FileSender::open(&session(15), files, &expectation).unwrap_err();
    assert_eq!(error.kind(), towline::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("cannot expect a"), "{error}");
}

#[test]
fn messages_are_taken_from_the_senders_that_are_named_and_from_no_others() {
    let open = |from: &[&str]| {
        let mut subscriber = Subscriber::open(&session(30).name(from.join("+"))).unwrap();
        subscriber.take_only(from.iter().map(|from| from.parse().unwrap()));
        subscriber
    };
    let mut all = [
        open(&["10.9.9.9", "127.0.0.0/8"]),
        open(&["any"]),
        open(&["10.9.9.9"]),
    ];
    let mut publisher = publisher(30, 0);
    let end = Instant::now() + SECONDS;
    let mut came = [0; 3];
    while came[0] < 5 || came[1] < 5 {
        assert!(Instant::now() < end, "{came:?}");
        publisher.send(b"for all").unwrap();
        for (subscriber, came) in all.iter_mut().zip(&mut came) {
            let message = message(subscriber, Duration::from_millis(5));
            *came += u32::from(message.is_some());
        }
    }
    assert_eq!(came[2], 0);
    assert_eq!(publisher.receiver_count(), 2, "the third did not dial");
}

#[test]
fn a_sender_admits_receivers_of_the_hosts_that_it_names_and_of_no_others() {
    for (port, from, admitted) in [(39, "10.9.9.9,fd00::/8", 0), (40, "127.0.0.0/8", 1)] {
        let mut subscriber = Subscriber::open(&session(port)).unwrap();
        let sending = session(port).set("receivers-from", from).unwrap();
        let mut publisher = Publisher::builder(sending).open().unwrap();
        let end = Instant::now() + SECONDS;
        let (mut came, mut answered) = (0, 0);
        while came < 5 || answered == 0 {
            assert!(Instant::now() < end, "{came} messages from {from}");
            publisher.send(b"for all").unwrap();
            came += u32::from(message(&mut subscriber, Duration::from_millis(5)).is_some());
            let mut snapshot = Snapshot::default();
            publisher.snapshot(&mut snapshot);
            answered = snapshot.value_of("audience", "refused").unwrap();
            answered += u64::from(publisher.receiver_count());
        }
        // The packets reach the group whoever is admitted.
        assert_eq!(publisher.receiver_count(), admitted, "{from}");
    }
}

#[test]
fn forged_ends_trails_and_leads_cost_a_subscriber_nothing_that_reports() {
    let mut subscriber = Subscriber::open(&session(31)).unwrap();
    let mut publisher = publisher(31, 1);
    publisher.send(b"first").unwrap();
    let (mut sender, mut newest) = (None, None);
    while newest.is_none() {
        publisher.turn().unwrap();
        match subscriber.recv(Some(Duration::from_millis(5))).unwrap() {
            Some(Received::Event(SessionEvent::Found { tsi, .. })) => sender = Some(tsi),
            Some(Received::Message { position, .. }) => newest = Some(Sqn::of(position)),
            _ => {}
        }
    }
    let (tsi, newest) = (sender.unwrap(), newest.unwrap());
    let addressing = Addressing {
        source_port: tsi.port,
        destination_port: 17_631,
        gsi: tsi.gsi,
    };
    let far = Sqn(newest.0.wrapping_add(100_000));
    let odata = |trail| {
        let data = Data { sqn: newest, trail };
        (Body::Odata(data), None)
    };
    let spm = |number, trail, lead, option: Option<PgmOption<'static>>| {
        let path_nla = [127, 0, 0, 1].into();
        let spm = Spm {
            sqn: Sqn(number),
            trail,
            lead,
            path_nla,
        };
        (Body::Spm(spm), option)
    };
    let reset = PgmOption::Rst(Rst {
        is_deaf: true,
        reason: 0,
    });
    let mut packets = vec![odata(far), odata(far)];
    // So many that they are believed, though out of sequence with the sender's own.
    for number in 1 << 31..(1 << 31) + 10 {
        packets.push(spm(number, newest, newest, Some(PgmOption::Fin)));
        packets.push(spm(number, newest, newest, Some(reset)));
        packets.push(spm(number, newest, far, None));
        packets.push(spm(number, far, far, None));
    }
    let forger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (number, (body, option)) in packets.iter().cycle().take(400).enumerate() {
        let mut packet = Vec::new();
        emit(&mut packet, &addressing, body, option.as_slice(), b"");
        forger.send_to(&packet, "239.192.78.31:17631").unwrap();
        publisher.send(&number.to_be_bytes()).unwrap();
        let came = message_with(&mut publisher, &mut subscriber);
        assert_eq!(came, number.to_be_bytes(), "{body:?} {option:?}");
    }
    let closing = thread::spawn(move || publisher.close(SECONDS).unwrap());
    await_event(&mut subscriber, |event| {
        matches!(event, SessionEvent::Ended { .. })
    });
    let closed = closing.join().unwrap();
    assert!(closed.is_complete() && closed.lost == 0, "{closed:?}");
}

/// The next message, while both ends run; no other event may come before it.
fn message_with(publisher: &mut Publisher, subscriber: &mut Subscriber) -> Vec<u8> {
    let end = Instant::now() + SECONDS;
    while Instant::now() < end {
        publisher.turn().unwrap();
        match subscriber.recv(Some(Duration::from_millis(1))).unwrap() {
            Some(Received::Message { data, .. }) => return data.to_vec(),
            Some(Received::Event(event)) => panic!("{event:?}"),
            None => {}
        }
    }
    panic!("nothing came");
}
