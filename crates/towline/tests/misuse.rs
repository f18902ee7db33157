//! What a program may get wrong: each is an error that says so, or does what it says; none panics,
//! hangs or is taken silently for something else.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fmt::Debug,
    net::TcpListener,
    path::Path,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use towline::{
    Allowed, AudienceEvent, Config, Error, Expectation, FileReceiver, FileSender, FileSet, Group,
    Publisher, Selector, SessionBuilder, SocketOptions, Subscriber, Target, TransferThread,
};

/// Groups differ between tests, so that they can run side by side.
fn session(last: u8) -> SessionBuilder {
    let port = 18_000 + u16::from(last);
    let group = format!("239.192.82.{last}@lo:{port}");
    SessionBuilder::new(group.parse().unwrap())
}

/// What `body` gives, which must not hang.
fn timely<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, outcome) = mpsc::channel();
    let thread = thread::spawn(move || done.send(body()));
    let outcome = outcome.recv_timeout(LIMIT);
    let outcome = outcome.unwrap_or_else(|_| panic!("it hangs, or panicked"));
    thread.join().unwrap().unwrap();
    outcome
}

/// The text of an error; panics when there is none.
fn refusal<T: Debug>(result: Result<T, impl std::fmt::Display>) -> String {
    match result {
        Ok(taken) => panic!("{taken:?} was taken"),
        Err(error) => error.to_string(),
    }
}

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn socket_options_out_of_range_are_refused() {
    let open = |options| Publisher::builder(session(1).sockets(options)).open();
    let hops = refusal(open(SocketOptions::default().hops(0)));
    assert!(hops.contains("1 to 255"), "{hops}");
    let dscp = refusal(open(SocketOptions::default().dscp(200)));
    assert!(
        dscp.contains("DSCP 200") && dscp.contains("0 to 63"),
        "{dscp}"
    );
}

#[test]
fn extreme_sizes_and_times_of_sockets_work() {
    let sizes = SocketOptions::default()
        .receive_buffer_bytes(usize::MAX)
        .send_buffer_bytes(usize::MAX)
        .gso_bytes_max(usize::MAX)
        .link_silence(Duration::MAX);
    let none = SocketOptions::default()
        .receive_buffer_bytes(0)
        .send_buffer_bytes(0)
        .gso_bytes_max(0)
        .links_max(0)
        .link_queue_bytes(0)
        .link_silence(Duration::ZERO);
    for (last, options) in [(2, sizes), (3, none)] {
        timely(move || {
            let builder = Publisher::builder(session(last).sockets(options));
            let mut publisher = builder.open().unwrap();
            for _ in 0..1_000 {
                publisher.send(&[0; 1400]).unwrap();
            }
            publisher.flush().unwrap();
        });
    }
}

#[test]
fn extreme_expectations_of_receivers_work() {
    timely(|| {
        let builder = Publisher::builder(session(4)).expect_receivers(u32::MAX);
        let mut publisher = builder.open().unwrap();
        publisher.send(b"kept for all of them").unwrap();
        let missing = publisher.wait_for_receivers(Some(Duration::ZERO));
        assert!(matches!(missing, Err(Error::Missing { joined: 0, .. })));
        let closed = publisher.close(Duration::ZERO).unwrap();
        assert!(!closed.is_complete(), "{closed:?}");
    });
    for (last, timeout) in [(5, Duration::ZERO), (6, Duration::MAX)] {
        timely(move || {
            let builder = Publisher::builder(session(last)).stall_timeout(timeout);
            let mut publisher = builder.open().unwrap();
            publisher.send(b"to nobody").unwrap();
            publisher.turn().unwrap();
            publisher.wait_for_receivers(Some(Duration::MAX)).unwrap();
        });
    }
}

#[test]
fn parameters_that_cannot_be_are_refused_by_name() {
    let unknown = refusal(session(7).set("nonsense", "1"));
    assert!(unknown.contains("nonsense"), "{unknown}");
    let zero = session(7).config(Config::builder().mtu(0));
    let zero = refusal(Publisher::builder(zero).open());
    assert!(zero.contains("mtu"), "{zero}");
    let small = session(7).config(Config::builder().tx_window_bytes(1));
    let small = refusal(Publisher::builder(small).open());
    assert!(small.contains("tx_window_bytes"), "{small}");
}

#[test]
fn places_that_are_not_there_are_refused_by_name() {
    let absent = session(8).interface("nope0".parse::<Selector>().ok());
    let absent = refusal(Subscriber::open(&absent));
    assert!(absent.contains("nope0"), "{absent}");
    refusal("".parse::<Selector>());
    for text in [
        "",
        ":",
        "239.1.1.1:0",
        "239.1.1.1:99999",
        "239.1.1.1@lo@lo",
        "0.0.0.0:1",
        "255.255.255.255:1",
    ] {
        let refused = text.parse::<Group>().map_err(Error::from);
        let opened = refused.and_then(|group| Subscriber::open(&SessionBuilder::new(group)));
        refusal(opened);
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let opened = Publisher::builder(session(9).control_port(port)).open();
    let said = refusal(opened);
    assert!(said.contains(&port.to_string()), "{said}");
    refusal(towline::read_key(Path::new("/")));
    refusal("10.0.0.0/33".parse::<Allowed>());
}

#[test]
fn a_name_with_control_characters_reaches_nobodys_terminal() {
    timely(|| {
        let name = "a\n\x1b[31mred";
        let mut subscriber = Subscriber::open(&session(10).name(name)).unwrap();
        let builder = Publisher::builder(session(10)).expect_receivers(1);
        let mut publisher = builder.open().unwrap();
        let end = Instant::now() + LIMIT;
        loop {
            publisher.turn().unwrap();
            subscriber.recv(Some(Duration::from_millis(1))).unwrap();
            match publisher.pop_event() {
                Some(AudienceEvent::Joined { name, .. }) => {
                    assert!(!name.contains(char::is_control), "{name:?}");
                    return;
                }
                Some(AudienceEvent::Refused { .. }) => return,
                _ => assert!(Instant::now() < end, "it neither joined nor was refused"),
            }
        }
    });
}

#[test]
fn files_with_nobody_and_with_nothing_end() {
    let files = || FileSet::builder().path("Cargo.toml").read().unwrap();
    let nobody = Expectation::default()
        .receivers(2)
        .join_timeout(Duration::ZERO)
        .progress_timeout(Duration::ZERO);
    timely(move || {
        let sender = FileSender::open(&session(11), files(), &nobody).unwrap();
        let sender = TransferThread::spawn(sender).unwrap().join().unwrap();
        assert!(!sender.outcome().is_proven(), "{:?}", sender.outcome());
    });
    let for_ever = Expectation::default()
        .join_timeout(Duration::MAX)
        .progress_timeout(Duration::MAX);
    timely(move || {
        let mut sender = FileSender::open(&session(12), files(), &for_ever).unwrap();
        for _ in 0..100 {
            sender.turn().unwrap();
        }
    });
    let builder = FileReceiver::builder(session(13), Target::Stream(Box::new(std::io::sink())));
    drop(builder.patience(Duration::MAX).open().unwrap());
}
