use wire::object::Hello;

use super::*;
use crate::fabric::{Fabric, over_ipv4_and_ipv6};

const SESSION: u64 = 42;

fn sender() -> SocketAddr {
    ([10, 0, 0, 1], 9000).into()
}

fn peer(host: usize) -> SocketAddr {
    Fabric::address(host)
}

fn at(milliseconds: u64) -> Instant {
    Instant::from_nanos(milliseconds * 1_000_000)
}

fn hello(session_id: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let hello = Hello {
        version_min: 1,
        version_max: 1,
        instance: 7,
        session_id,
        name: "r1",
        nonce: None,
    };
    Message::Hello(hello).emit(&mut out);
    out
}

/// What the back end was told to do.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Open(SocketAddr),
    Send(u32, Vec<u8>),
    Pause(u32, bool),
    Close(u32),
}

/// A forwarder, and a back end that numbers the connections that it dials from 100 on.
struct Bench {
    forwarder: Forwarder,
    now: Instant,
    next: u32,
    /// How many more bytes the back end takes, over all `Send`s.
    room: usize,
}

impl Bench {
    fn new() -> Self {
        Self {
            forwarder: Forwarder::default(),
            now: at(1000),
            next: 100,
            room: usize::MAX,
        }
    }

    fn event(&mut self, link: u32, event: LinkEvent, data: &[u8]) -> Vec<Told> {
        let sender_of = |session| (session == SESSION).then(sender);
        self.forwarder
            .handle_link(self.now, LinkId(link), event, data, sender_of);
        self.pump()
    }

    fn data(&mut self, link: u32, data: &[u8]) -> Vec<Told> {
        self.event(link, LinkEvent::Data, data)
    }

    fn pump(&mut self) -> Vec<Told> {
        let mut told = Vec::new();
        loop {
            let room = self.room;
            match self.forwarder.poll_link() {
                None => return told,
                Some(LinkCommand::Open { peer, key }) => {
                    told.push(Told::Open(peer));
                    self.next += 1;
                    self.forwarder.link_opened(key, LinkId(self.next - 1));
                }
                Some(LinkCommand::Send { link, bytes }) => {
                    let taken = bytes.len().min(room);
                    let bytes = bytes[..taken].to_vec();
                    self.room -= taken.min(self.room);
                    told.push(Told::Send(link.0, bytes));
                    self.forwarder.link_sent(link, taken);
                }
                Some(LinkCommand::Pause { link, is_paused }) => {
                    told.push(Told::Pause(link.0, is_paused));
                }
                Some(LinkCommand::Close { link }) => told.push(Told::Close(link.0)),
            }
        }
    }

    /// Makes a bench with a receiver on connection 1 that is joined to its sender on connection
    /// 100.
    fn joined() -> Self {
        let mut bench = Self::new();
        bench.event(1, LinkEvent::Accepted { peer: peer(1) }, &[]);
        let told = bench.data(1, &hello(SESSION));
        assert_eq!(
            told,
            [Told::Open(sender()), Told::Send(100, hello(SESSION))]
        );
        bench
    }
}

#[test]
fn a_greeting_in_pieces_is_passed_on_whole_to_the_sender_that_was_heard() {
    let mut bench = Bench::new();
    assert!(
        bench
            .event(1, LinkEvent::Accepted { peer: peer(1) }, &[])
            .is_empty()
    );
    let greeting = hello(SESSION);
    for byte in &greeting[..greeting.len() - 1] {
        assert!(bench.data(1, &[*byte]).is_empty());
    }
    let mut last = greeting[greeting.len() - 1..].to_vec();
    last.extend(b"more");
    let told = bench.data(1, &last);
    let mut all = greeting;
    all.extend(b"more");
    assert_eq!(told, [Told::Open(sender()), Told::Send(100, all)]);
    assert_eq!(
        bench.data(100, b"welcome"),
        [Told::Send(1, b"welcome".to_vec())]
    );
    assert_eq!(bench.data(1, b"have"), [Told::Send(100, b"have".to_vec())]);
    assert_eq!(bench.forwarder.counters().joined, 0, "it is being dialled");
    bench.event(100, LinkEvent::Opened, &[]);
    let counters = bench.forwarder.counters();
    assert_eq!((counters.joined, counters.bytes_down), (1, 7));
    assert_eq!(bench.forwarder.joined_count(), 1);
}

#[test]
fn an_end_that_closes_leaves_the_other_what_it_said() {
    let mut bench = Bench::joined();
    bench.room = 3;
    assert_eq!(
        bench.data(100, b"goodbye"),
        [Told::Send(1, b"goo".to_vec())]
    );
    assert!(
        bench.event(100, LinkEvent::Closed, &[]).is_empty(),
        "the rest waits"
    );
    bench.room = usize::MAX;
    let told = bench.event(1, LinkEvent::Writable, &[]);
    assert_eq!(told, [Told::Send(1, b"dbye".to_vec()), Told::Close(1)]);
    assert_eq!(bench.forwarder.joined_count(), 0);
    // The other direction.
    let mut bench = Bench::joined();
    assert_eq!(bench.event(1, LinkEvent::Closed, &[]), [Told::Close(100)]);
    assert_eq!(bench.forwarder.counters().unreached, 0);
}

#[test]
fn an_end_is_not_read_while_the_other_does_not_read() {
    let mut bench = Bench::joined();
    bench.room = 0;
    let piece = vec![7; FORWARD_BYTES_MAX / 2];
    let told = bench.data(1, &piece);
    assert_eq!(told, [Told::Send(100, Vec::new())]);
    assert_eq!(bench.data(1, &piece), [Told::Pause(1, true)]);
    bench.room = usize::MAX;
    let told = bench.event(100, LinkEvent::Writable, &[]);
    assert_eq!(
        told,
        [
            Told::Send(100, vec![7; piece.len() * 2]),
            Told::Pause(1, false)
        ]
    );
}

#[test]
fn who_names_no_session_that_was_heard_is_refused_and_nobody_is_dialled() {
    let mut bench = Bench::new();
    for (link, said, reason) in [
        (1, hello(SESSION + 1), Refusal::WrongSession),
        (2, b"GET / HTTP/1.1\r\n\r\n".to_vec(), Refusal::Protocol),
    ] {
        bench.event(link, LinkEvent::Accepted { peer: peer(1) }, &[]);
        let told = bench.data(link, &said);
        let mut refused = Vec::new();
        let text = reason.to_string();
        let text = text.as_str();
        Message::Refused { reason, text }.emit(&mut refused);
        assert_eq!(told, [Told::Send(link, refused), Told::Close(link)]);
    }
    let counters = bench.forwarder.counters();
    assert_eq!(
        (counters.refused_sessions, counters.refused_greetings),
        (1, 1)
    );
    assert_eq!(bench.forwarder.next_timeout(), None);
}

#[test]
fn a_sender_that_cannot_be_reached_and_a_receiver_that_leaves_end_both_ends() {
    for (is_reached, unreached) in [(false, 1), (true, 0)] {
        let mut bench = Bench::joined();
        if is_reached {
            assert!(bench.event(100, LinkEvent::Opened, &[]).is_empty());
        }
        assert_eq!(bench.event(100, LinkEvent::Closed, &[]), [Told::Close(1)]);
        let counters = bench.forwarder.counters();
        let joined = u64::from(is_reached);
        assert_eq!((counters.joined, counters.unreached), (joined, unreached));
    }
    // The receiver leaves before the dial was even carried out.
    let mut bench = Bench::new();
    let sender_of = |_| Some(sender());
    let accepted = LinkEvent::Accepted { peer: peer(1) };
    for (event, data) in [
        (accepted, Vec::new()),
        (LinkEvent::Data, hello(SESSION)),
        (LinkEvent::Closed, Vec::new()),
    ] {
        bench
            .forwarder
            .handle_link(bench.now, LinkId(1), event, &data, sender_of);
    }
    assert!(bench.pump().is_empty());
}

#[test]
fn silent_connections_are_closed_in_time_and_one_host_keeps_nobody_out() {
    let mut bench = Bench::new();
    bench.event(9999, LinkEvent::Accepted { peer: peer(1) }, &[]);
    for link in 0..2 * GREETINGS_MAX {
        bench.now = at(1001 + u64::from(link));
        bench.event(link, LinkEvent::Accepted { peer: peer(66) }, &[]);
    }
    assert_eq!(bench.forwarder.greeting_count, GREETINGS_MAX);
    let told = bench.data(9999, &hello(SESSION));
    assert_eq!(
        told[0],
        Told::Open(sender()),
        "it was there first, and is there still"
    );
    bench.now = at(1_000_000);
    assert!(
        bench
            .forwarder
            .next_timeout()
            .is_some_and(|due| due < bench.now)
    );
    bench.forwarder.handle_timeout(bench.now);
    assert_eq!(bench.pump().len(), GREETINGS_MAX as usize - 1);
    assert_eq!(bench.forwarder.next_timeout(), None);
}

#[test]
fn a_host_has_one_place_in_line_however_its_address_is_written() {
    let mut bench = Bench::new();
    let host = |last| std::net::Ipv4Addr::new(10, 0, 0, last);
    let mut accept = |link, ip: IpAddr| {
        let peer = SocketAddr::new(ip, 9);
        bench.now = at(1000 + u64::from(link));
        bench.event(link, LinkEvent::Accepted { peer }, &[])
    };
    accept(0, host(1).into());
    for link in 1..GREETINGS_MAX {
        accept(link, host(66).into());
    }
    let told = accept(9999, host(66).to_ipv6_mapped().into());
    assert_eq!(told, [Told::Close(1)], "the oldest of its own host");
}

#[test]
fn a_host_that_takes_all_places_of_a_relay_leaves_half_to_others() {
    // Behind a relay there is TCP alone: no group, so no group of one source either.
    over_ipv4_and_ipv6(|| {
        let mut bench = Bench::new();
        let join = |bench: &mut Bench, link, host| {
            bench.event(link, LinkEvent::Accepted { peer: peer(host) }, &[]);
            let told = bench.data(link, &hello(SESSION));
            told.contains(&Told::Open(sender()))
        };
        bench.next = 1_000_000;
        let joined = (0..FORWARDS_MAX).filter(|&link| join(&mut bench, link, 66));
        assert_eq!(joined.count(), FORWARDS_MAX as usize / 2);
        assert!(join(&mut bench, 10_000, 1), "a host has taken all places");
        let refused = bench.forwarder.counters().refused_full;
        assert_eq!(refused, u64::from(FORWARDS_MAX) / 2);
        // A place is free again when its connection has ended.
        assert!(!join(&mut bench, 10_001, 66));
        bench.event(0, LinkEvent::Closed, &[]);
        assert!(join(&mut bench, 10_002, 66));
    });
}
