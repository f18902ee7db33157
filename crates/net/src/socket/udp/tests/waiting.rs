//! Waiting: deadlines, wake-ups, packets; by every strategy and through the descriptor.

use sys::{Epoll, Interest};

use super::*;
use crate::{
    WaitStrategy,
    socket::udp::rhythm::{IDLE_RECEIVES_SPINNING, RECEIVES_PER_POLL},
};

const STRATEGIES: [WaitStrategy; 3] = [
    WaitStrategy::Block,
    WaitStrategy::Busy { polls: 10 },
    WaitStrategy::Spin,
];

fn waiting(strategy: WaitStrategy) -> SocketOptions {
    SocketOptions {
        wait: strategy,
        ..SocketOptions::default()
    }
}

/// Takes what is there, so that only what comes later ends a wait.
fn settle(io: &mut UdpIo) {
    let mut batch = io.batch();
    assert_eq!(io.recv(&mut batch).unwrap(), 0);
    assert_eq!(io.link_event(&mut Vec::new()), None);
}

#[test]
fn a_wait_ends_at_its_deadline_and_not_before() {
    for (test, strategy) in (50..).zip(STRATEGIES) {
        let mut io = open(Role::Receiver, group(test), waiting(strategy));
        settle(&mut io);
        let start = io.now();
        io.wait(Some(start + Duration::from_millis(5)));
        let waited = io.now().since(start);
        assert!(waited >= Duration::from_millis(5), "{strategy}: {waited:?}");
        assert!(
            waited < Duration::from_millis(500),
            "{strategy}: {waited:?}"
        );
        io.wait(Some(start));
    }
}

#[test]
fn a_wait_ends_for_a_packet() {
    for (test, strategy) in (54..).zip(STRATEGIES) {
        let mut io = open(Role::Receiver, group(test), waiting(strategy));
        let mut source = open(Role::Source, group(test), SocketOptions::default());
        settle(&mut io);
        send_one(&mut source, b"data", group(test));
        let start = io.now();
        io.wait(Some(start + Duration::from_secs(10)));
        assert!(io.now().since(start) < Duration::from_secs(5), "{strategy}");
        let mut batch = io.batch();
        assert_eq!(io.recv(&mut batch).unwrap(), 1);
    }
}

#[test]
fn another_thread_ends_a_wait() {
    for (test, strategy) in (58..).zip(STRATEGIES) {
        let mut io = open(Role::Receiver, group(test), waiting(strategy));
        settle(&mut io);
        let waker = io.waker().unwrap();
        let start = io.now();
        let thread = thread::spawn(move || waker.wake());
        io.wait(Some(start + Duration::from_secs(10)));
        thread.join().unwrap();
        assert!(io.now().since(start) < Duration::from_secs(5), "{strategy}");
        assert_eq!(io.counters().wakes, 1);
    }
}

#[test]
fn the_descriptor_is_readable_when_there_is_something_to_do() {
    let (mut source, mut receiver) = pair(62);
    settle(&mut receiver);
    let mut outer = Epoll::new(1).unwrap();
    outer
        .add(receiver.readiness.as_fd(), 1, Interest::READ)
        .unwrap();
    let mut is_readable = |wait_ms| {
        let timeout = Duration::from_millis(wait_ms);
        outer.wait(Some(timeout)).unwrap().len() == 1
    };
    assert!(!is_readable(0));

    let deadline = receiver.now() + Duration::from_millis(2);
    receiver.arm(Some(deadline));
    assert!(is_readable(1000));
    settle(&mut receiver);
    assert!(!is_readable(0), "the turn took the deadline");

    send_one(&mut source, b"data", group(62));
    assert!(is_readable(1000));
    let mut batch = receiver.batch();
    assert_eq!(receiver.recv(&mut batch).unwrap(), 1);
    assert!(!is_readable(0), "the turn took the packet");
}

#[test]
fn a_full_socket_is_waited_for() {
    // Loopback has no slow link that would fill a small buffer, so the full socket is forced.
    let options = SocketOptions {
        faults: "eagain=100%".parse().unwrap(),
        ..SocketOptions::default()
    };
    let mut source = open(Role::Source, group(64), options);
    assert_eq!(send_one(&mut source, b"data", group(64)), Outcome::Blocked);
    let start = source.now();
    source.wait(Some(start + Duration::from_secs(10)));
    assert!(
        source.now().since(start) < Duration::from_secs(5),
        "there was room at once"
    );
}

#[test]
fn who_spins_tries_the_socket_and_still_hears_of_the_rest() {
    let (_source, mut receiver) = pair(65);
    let waker = receiver.waker().unwrap();
    let mut batch = receiver.batch();
    let mut calls_of_a_turn = |receiver: &mut UdpIo| {
        let before = receiver.counters().receive_calls;
        assert_eq!(receiver.recv(&mut batch).unwrap(), 0);
        assert_eq!(receiver.link_event(&mut Vec::new()), None);
        receiver.counters().receive_calls - before
    };
    for _ in 0..IDLE_RECEIVES_SPINNING {
        calls_of_a_turn(&mut receiver);
    }
    assert_eq!(calls_of_a_turn(&mut receiver), 1, "nobody was asked first");
    waker.wake();
    for _ in 0..=RECEIVES_PER_POLL {
        calls_of_a_turn(&mut receiver);
    }
    assert_eq!(receiver.counters().wakes, 1);
    receiver.wait(Some(Instant::ZERO));
    assert_eq!(calls_of_a_turn(&mut receiver), 0, "the wait has asked");
}

#[test]
fn a_receiver_that_waits_for_its_group_alone_sleeps_in_its_socket() {
    let (mut source, mut receiver) = pair(66);
    let mut batch = receiver.batch();
    let mut take = |source: &mut UdpIo, receiver: &mut UdpIo| {
        send_one(source, b"data", group(66));
        let until = receiver.now() + Duration::from_secs(10);
        receiver.wait(Some(until));
        assert_eq!(receiver.recv(&mut batch).unwrap(), 1);
        assert_eq!(receiver.link_event(&mut Vec::new()), None);
        batch.clear();
        receiver.may_sleep_in_group(Some(until))
    };
    settle(&mut receiver);
    assert!(!receiver.may_sleep_in_group(None), "nothing has come yet");
    assert!(take(&mut source, &mut receiver));
    assert!(take(&mut source, &mut receiver), "and again");

    let soon = receiver.now() + Duration::from_millis(1);
    assert!(!receiver.may_sleep_in_group(Some(soon)));
    // Nothing comes: the wait returns to its owner, and the next wait uses the poll set.
    receiver.wait(None);
    assert!(!receiver.may_sleep_in_group(None));

    assert!(take(&mut source, &mut receiver));
    let _waker = receiver.waker().unwrap();
    assert!(!receiver.may_sleep_in_group(None), "somebody may wake it");
}
