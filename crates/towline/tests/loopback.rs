//! Every face of the library over the loopback interface: real sockets, one process.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fs,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use sys::poll::{Epoll, Interest};
use towline::{
    AudienceEvent, Error, Expectation, FileReceiver, FileSender, FileSet, Group, Key,
    ObjectReceiverEvent, Publisher, PublisherThread, Received, Relay, SessionBuilder, SessionEvent,
    Snapshot, Status, Subscriber, SubscriberThread, TransferReceiverEvent, TransferSenderEvent,
    TransferThread,
};

/// Groups differ between tests, so that they can run side by side.
fn session(last: u8, port: u16) -> SessionBuilder {
    let group: Group = format!("239.192.77.{last}@lo:{port}").parse().unwrap();
    SessionBuilder::new(group)
}

fn messages(subscriber: &mut Subscriber, count: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    let end = Instant::now() + Duration::from_secs(10);
    while got.len() < count && Instant::now() < end {
        match subscriber.recv(Some(Duration::from_millis(100))).unwrap() {
            Some(Received::Message { data, .. }) => got.push(data.to_vec()),
            Some(Received::Event(SessionEvent::Lost { count, .. })) => panic!("{count} lost"),
            _ => {}
        }
    }
    got
}

/// Receives until the sender has ended its session.
fn await_end(subscriber: &mut Subscriber) {
    loop {
        match subscriber.recv(Some(Duration::from_secs(5))).unwrap() {
            Some(Received::Event(SessionEvent::Ended { .. })) => return,
            Some(_) => {}
            None => panic!("the end was not told"),
        }
    }
}

#[test]
fn with_a_key_only_those_take_part_who_have_it() {
    let key = |secret: &[u8]| Some(Key::derive(secret));
    for (ours, theirs, told_to_receiver) in [
        (key(b"secret"), key(b"secret"), ""),
        (key(b"secret"), key(b"another"), "sends with another key"),
        (key(b"secret"), None, "KeyRequired"),
        (None, key(b"secret"), "sends without a key"),
    ] {
        let mut subscriber = Subscriber::open(&session(12, 17512).key(theirs)).unwrap();
        let publisher = Publisher::builder(session(12, 17512).key(ours));
        let mut publisher = publisher.expect_receivers(1).open().unwrap();
        let (mut told, mut has_joined) = (String::new(), false);
        let end = Instant::now() + Duration::from_secs(10);
        while !has_joined && told.is_empty() && Instant::now() < end {
            publisher.turn().unwrap();
            while let Some(event) = publisher.pop_event() {
                has_joined |= matches!(event, AudienceEvent::Joined { .. });
            }
            let received = subscriber.recv(Some(Duration::from_millis(1))).unwrap();
            if let Some(Received::Event(SessionEvent::Refused { reason, .. })) = received {
                told = format!("{reason:?}");
            }
            told += &subscriber.take_warnings().concat();
        }
        assert!(told.contains(told_to_receiver), "{told}");
        assert_eq!(has_joined, told_to_receiver.is_empty(), "{told}");
    }
}

#[test]
fn a_key_needs_reports() {
    let session = session(13, 17513)
        .key(Key::derive(b"secret"))
        .reports(false);
    let error = Subscriber::open(&session).unwrap_err().to_string();
    assert!(error.contains("without reports"), "{error}");
}

#[test]
fn messages_arrive_in_order_and_the_end_is_told() {
    let mut subscriber = Subscriber::open(&session(1, 17501)).unwrap();
    assert_eq!(subscriber.try_recv().unwrap(), Err(Status::NoSender));
    let publisher = Publisher::builder(session(1, 17501))
        .expect_receivers(1)
        .open()
        .unwrap();
    let sender = std::thread::spawn(move || {
        let mut publisher = publisher;
        publisher
            .wait_for_receivers(Some(Duration::from_secs(10)))
            .unwrap();
        for number in 0..1000_u32 {
            publisher.send(&number.to_be_bytes()).unwrap();
        }
        publisher.send(&[7; 50_000]).unwrap();
        publisher.close(Duration::from_secs(10)).unwrap()
    });
    let got = messages(&mut subscriber, 1001);
    assert_eq!(got.len(), 1001);
    assert!(
        got[..1000]
            .iter()
            .zip(0_u32..)
            .all(|(data, n)| *data == n.to_be_bytes())
    );
    assert_eq!(got[1000], [7; 50_000]);
    await_end(&mut subscriber);
    let closed = sender.join().unwrap();
    assert!(closed.is_complete(), "{closed:?}");
    assert_eq!((closed.confirmed, closed.missing), (1, 0), "{closed:?}");
}

#[test]
fn sessions_work_on_threads_of_their_own() {
    let subscriber = Subscriber::open(&session(2, 17502)).unwrap();
    let mut subscriber = SubscriberThread::spawn(subscriber).unwrap();
    let mut publisher = Publisher::builder(session(2, 17502))
        .expect_receivers(1)
        .open()
        .unwrap();
    publisher
        .wait_for_receivers(Some(Duration::from_secs(10)))
        .unwrap();
    let mut publisher = PublisherThread::spawn(publisher, Duration::from_secs(10)).unwrap();
    let sender = std::thread::spawn(move || {
        for number in 0..20_000_u32 {
            publisher.send(&number.to_be_bytes()).unwrap();
        }
        publisher.close().unwrap()
    });
    let mut next = 0_u32;
    while next < 20_000 {
        match subscriber.recv(Some(Duration::from_secs(10))).unwrap() {
            Some(Received::Message { data, .. }) => {
                assert_eq!(data, next.to_be_bytes());
                next += 1;
            }
            Some(Received::Event(SessionEvent::Lost { count, .. })) => panic!("{count} lost"),
            Some(Received::Event(_)) => {}
            None => panic!("stuck at {next}"),
        }
    }
    assert!(sender.join().unwrap().is_complete());
}

#[test]
fn a_message_that_is_too_long_is_refused_and_costs_no_other() {
    let session = |last, port| session(last, port).set("fragments_max", "4").unwrap();
    let mut subscriber = Subscriber::open(&session(9, 17509)).unwrap();
    let publisher = Publisher::builder(session(9, 17509))
        .expect_receivers(1)
        .open();
    let mut publisher = publisher.unwrap();
    let (max, parameter) = publisher.message_limit();
    assert_eq!(parameter, "fragments_max");
    let sender = std::thread::spawn(move || {
        publisher
            .wait_for_receivers(Some(Duration::from_secs(10)))
            .unwrap();
        let refused = publisher.try_send(&vec![0; max + 1]).unwrap_err();
        assert!(
            refused.to_string().contains("raise `fragments_max`"),
            "{refused}"
        );
        let mut publisher = PublisherThread::spawn(publisher, Duration::from_secs(10)).unwrap();
        publisher.send(b"before").unwrap();
        let refused = publisher.send(&vec![0; max + 1]);
        assert!(matches!(refused, Err(Error::TooLong { .. })), "{refused:?}");
        publisher.send(&vec![7; max]).unwrap();
        publisher.close().unwrap()
    });
    let got = messages(&mut subscriber, 2);
    assert_eq!(got, [b"before".to_vec(), vec![7; max]]);
    // The sender closes when the receiver has said that it has them.
    await_end(&mut subscriber);
    assert!(sender.join().unwrap().is_complete());
}

#[test]
fn a_publisher_that_closes_too_late_tells_who_waits() {
    let mut subscriber = Subscriber::open(&session(10, 17510)).unwrap();
    // Five seconds for the message.
    let session = session(10, 17510).set("rate", "20kB/s").unwrap();
    let mut publisher = Publisher::builder(session).open().unwrap();
    let sender = std::thread::spawn(move || {
        publisher.send(&[1; 100_000]).unwrap();
        publisher.close(Duration::from_millis(300)).unwrap()
    });
    loop {
        match subscriber.recv(Some(Duration::from_secs(20))).unwrap() {
            Some(Received::Event(SessionEvent::Reset { .. })) => break,
            Some(_) => {}
            None => panic!("nothing is said of the end"),
        }
    }
    let closed = sender.join().unwrap();
    assert!(!closed.is_complete());
    assert_eq!(closed.unconfirmed.len(), 1, "{closed:?}");
}

/// The smallest executor: parks the thread until the task is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park_timeout(Duration::from_secs(10)),
        }
    }
}

#[test]
fn a_subscriber_can_be_awaited() {
    let subscriber = Subscriber::open(&session(3, 17503)).unwrap();
    let mut subscriber = SubscriberThread::spawn(subscriber).unwrap();
    let mut publisher = Publisher::builder(session(3, 17503))
        .expect_receivers(1)
        .open()
        .unwrap();
    publisher
        .wait_for_receivers(Some(Duration::from_secs(10)))
        .unwrap();
    let sender = std::thread::spawn(move || {
        publisher.send(b"awaited").unwrap();
        publisher.close(Duration::from_secs(10)).unwrap()
    });
    let text = block_on(async {
        loop {
            subscriber.ready().await.unwrap();
            while let Some(received) = subscriber.pop() {
                if let Received::Message { data, .. } = received {
                    return data.to_vec();
                }
            }
        }
    });
    assert_eq!(text, b"awaited");
    assert!(sender.join().unwrap().is_complete());
}

fn place(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("towline-{name}-{}", std::process::id()));
    drop(fs::remove_dir_all(&path));
    fs::create_dir_all(&path).unwrap();
    path
}

fn file_sender(session: &SessionBuilder, path: &Path) -> FileSender {
    let expectation = Expectation::default()
        .receivers(1)
        .join_timeout(Duration::from_secs(20))
        .progress_timeout(Duration::from_secs(20));
    let files = FileSet::builder().path(path).read().unwrap();
    FileSender::open(session, files, &expectation).unwrap()
}

#[test]
fn files_travel_between_threads_and_their_events_are_awaited() {
    let place = place("awaited");
    fs::write(place.join("file"), [7; 300_000]).unwrap();
    let to = place.join("to");
    let receiver = FileReceiver::open(&session(4, 17504), &to).unwrap();
    let mut receiver = TransferThread::spawn(receiver).unwrap();
    // A thread answers while it runs, and its transfer after its end.
    assert_eq!(receiver.ask(|it| it.progress().len()), Some(0));
    let sender = file_sender(&session(4, 17504), &place.join("file"));
    let mut sender = TransferThread::spawn(sender).unwrap();

    let delivered = block_on(async {
        let mut delivered = None;
        while !receiver.is_over() {
            receiver.ready().await;
            while let Some(event) = receiver.pop() {
                if let ObjectReceiverEvent::Transfer {
                    event: TransferReceiverEvent::Delivered { root, .. },
                    ..
                } = event
                {
                    delivered = Some(root);
                }
            }
        }
        delivered
    });
    let mut is_finished = false;
    while let Some(event) = sender.recv(None) {
        is_finished |= event == TransferSenderEvent::Finished;
    }

    assert!(is_finished && sender.state().is_proven());
    assert_eq!(sender.ask(|it| it.outcome().root), Some(delivered));
    assert_eq!(sender.join().unwrap().outcome().root, delivered);
    receiver.join().unwrap();
    assert_eq!(fs::read(to.join("file")).unwrap(), [7; 300_000]);
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn a_transfer_is_cancelled_from_outside_its_thread() {
    let place = place("cancelled");
    fs::write(place.join("file"), b"never sent").unwrap();
    let sender = file_sender(&session(5, 17505), &place.join("file"));
    let sender = TransferThread::spawn(sender).unwrap();
    sender.cancel("the test has seen enough");
    let outcome = sender.join().unwrap().outcome();
    let (_, text) = outcome.failure.unwrap();
    assert!(text.contains("seen enough"), "{text}");
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn a_transfer_s_descriptor_wakes_its_owner() {
    let place = place("polled");
    fs::write(place.join("file"), [9; 100_000]).unwrap();
    let to = place.join("to");
    let mut receiver = FileReceiver::open(&session(6, 17506), &to).unwrap();
    let mut sender = file_sender(&session(6, 17506), &place.join("file"));
    let end = Instant::now() + Duration::from_secs(20);
    let mut epoll = Epoll::new(2).unwrap();
    epoll.add(sender.as_fd(), 0, Interest::READ).unwrap();
    epoll.add(receiver.as_fd(), 1, Interest::READ).unwrap();
    let (mut is_sending, mut is_receiving) = (true, true);
    while is_sending || is_receiving {
        assert!(Instant::now() < end, "{:?}", sender.outcome());
        is_sending = is_sending && sender.turn().unwrap();
        is_receiving = is_receiving && receiver.turn().unwrap();
        sender.arm();
        receiver.arm();
        if is_sending || is_receiving {
            // Timers make the descriptors readable too: nothing else ends this wait.
            assert!(epoll.wait(None).unwrap().len() > 0);
        }
    }
    assert!(sender.outcome().is_proven());
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn an_unusable_interface_is_refused_with_the_reason() {
    let group: Group = "239.192.77.9@nosuch0:17509".parse().unwrap();
    let error = Subscriber::open(&SessionBuilder::new(group))
        .unwrap_err()
        .to_string();
    assert!(error.contains("nosuch0"), "{error}");
}

#[test]
fn networks_of_a_relay_that_cannot_be_joined_are_refused() {
    let group = "239.192.77.33@lo:17533";
    for (other, problem, remedy) in [
        (group, "the same network as 239.192.77.33@lo:17533", "once"),
        ("127.0.0.33:17533", "the same UDP port as", "`pgm_port`"),
        ("127.0.0.1:17534", "own address", "the other end"),
    ] {
        let way = |place: &str| SessionBuilder::new(place.parse().unwrap()).pgm_port(17590);
        let refused = Relay::builder([way(group), way(other)]).open().unwrap_err();
        let text = refused.to_string();
        let begin = format!("cannot relay to {other}: ");
        assert!(text.starts_with(&begin), "{text}");
        assert!(text.contains(problem) && text.contains(remedy), "{text}");
    }
}

#[test]
fn each_network_of_a_relay_has_the_faults_of_its_own_session() {
    let way = |last: u8, faults: &str| {
        let place: Group = format!("127.0.0.{last}:175{last}").parse().unwrap();
        let session = SessionBuilder::new(place).pgm_port(17590);
        session.faults(faults.parse().unwrap())
    };
    let mut relay = Relay::builder([way(31, "seed=1"), way(32, "loss=100%")])
        .open()
        .unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut snapshot = Snapshot::default();
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        for (port, count) in [(17531, 1), (17532, 2)] {
            for _ in 0..count {
                socket.send_to(b"noise", ("127.0.0.1", port)).unwrap();
            }
        }
        relay.turn().unwrap();
        snapshot.clear();
        relay.snapshot(&mut snapshot);
        let count = |name| snapshot.value_of("intercept", name).unwrap();
        let [passed, lost] = ["passed", "lost"].map(count);
        let seen = snapshot.value_of("element", "seen_packets");
        assert_eq!(seen, Some(passed));
        if passed >= 3 && lost >= 6 {
            break;
        }
        assert!(Instant::now() < end, "{passed} passed, {lost} lost");
    }
}
