//! Control connections over loopback.

use std::{
    io::Read as _,
    net::{TcpListener, TcpStream},
};

use sys::Epoll;

use super::*;

/// Lets all ends work until `done` returns true; panics after two seconds.
fn until(ends: &mut [&mut End], mut done: impl FnMut(&mut [&mut End]) -> bool) {
    let deadline = ends[0].io.now() + Duration::from_secs(2);
    while !done(ends) {
        assert!(ends[0].io.now() < deadline, "the other end does not answer");
        for end in ends.iter_mut() {
            end.turn();
        }
    }
}

/// One end and what it was told.
struct End {
    io: UdpIo,
    events: Vec<(LinkId, LinkEvent)>,
    data: Vec<u8>,
}

impl End {
    fn new(role: Role, test: u8, options: SocketOptions) -> Self {
        Self {
            io: open(role, group(test), options),
            events: Vec::new(),
            data: Vec::new(),
        }
    }

    fn turn(&mut self) {
        let mut batch = self.io.batch();
        self.io.recv(&mut batch).unwrap();
        let mut data = Vec::new();
        while let Some((link, event)) = self.io.link_event(&mut data) {
            if event == LinkEvent::Data {
                self.data.extend_from_slice(&data);
            } else {
                self.events.push((link, event));
            }
        }
    }

    fn accepted(&self) -> Option<LinkId> {
        let mut accepted = self.events.iter().filter_map(|&(link, event)| match event {
            LinkEvent::Accepted { .. } => Some(link),
            _ => None,
        });
        accepted.next()
    }

    fn was_told(&self, event: LinkEvent) -> bool {
        self.events.iter().any(|&(_, told)| told == event)
    }
}

fn listening(test: u8, options: SocketOptions) -> (End, SocketAddr) {
    let mut source = End::new(Role::Source, test, options);
    let address = source.io.listen(SocketAddr::new(LOCAL, 0)).unwrap();
    (source, address)
}

#[test]
fn bytes_go_both_ways_and_the_end_is_told() {
    let (mut source, address) = listening(70, SocketOptions::default());
    let mut receiver = End::new(Role::Receiver, 70, SocketOptions::default());
    let dialled = receiver.io.link_open(address);
    assert_eq!(
        receiver.io.link_send(dialled, b"hello"),
        5,
        "queued until it is open"
    );
    until(&mut [&mut source, &mut receiver], |ends| {
        ends[0].data == b"hello"
    });
    assert!(receiver.was_told(LinkEvent::Opened));
    let accepted = source.accepted().unwrap();
    assert_eq!(source.io.link_send(accepted, b"welcome"), 7);
    until(&mut [&mut source, &mut receiver], |ends| {
        ends[1].data == b"welcome"
    });

    assert_eq!(receiver.io.link_send(dialled, b"bye"), 3);
    receiver.io.link_close(dialled);
    assert_eq!(receiver.io.link_send(dialled, b"too late"), 0);
    until(&mut [&mut source, &mut receiver], |ends| {
        ends[0].was_told(LinkEvent::Closed)
    });
    assert_eq!(source.data, b"hellobye");
    until(&mut [&mut source, &mut receiver], |ends| {
        ends[1].io.links_unfinished() == 0
    });
    assert!(
        !receiver.was_told(LinkEvent::Closed),
        "it closed the link itself"
    );
}

#[test]
fn a_full_queue_takes_no_more_until_there_is_room() {
    let options = SocketOptions {
        link_queue_bytes: 100_000,
        ..SocketOptions::default()
    };
    let (mut source, address) = listening(71, SocketOptions::default());
    let mut receiver = End::new(Role::Receiver, 71, options);
    let link = receiver.io.link_open(address);
    let memory = pattern(300_000);
    let mut taken = receiver.io.link_send(link, &memory);
    assert_eq!(taken, 100_000);
    until(&mut [&mut receiver, &mut source], |ends| {
        let end = &mut ends[0];
        if end.was_told(LinkEvent::Writable) {
            end.events.clear();
            taken += end.io.link_send(link, &memory[taken..]);
        }
        taken == memory.len()
    });
    receiver.io.link_close(link);
    until(&mut [&mut receiver, &mut source], |ends| {
        ends[1].was_told(LinkEvent::Closed)
    });
    assert!(source.data == memory, "{} bytes", source.data.len());
}

#[test]
fn a_refused_or_vanished_peer_closes_the_link() {
    let (source, address) = listening(72, SocketOptions::default());
    drop(source);
    let mut receiver = End::new(Role::Receiver, 72, SocketOptions::default());
    let link = receiver.io.link_open(address);
    until(&mut [&mut receiver], |ends| {
        ends[0].was_told(LinkEvent::Closed)
    });
    assert_eq!(receiver.io.link_send(link, b"x"), 0);

    let (source, address) = listening(73, SocketOptions::default());
    let mut source = source;
    receiver.events.clear();
    receiver.io.link_open(address);
    until(&mut [&mut source, &mut receiver], |ends| {
        ends[0].accepted().is_some()
    });
    drop(source);
    until(&mut [&mut receiver], |ends| {
        ends[0].was_told(LinkEvent::Closed)
    });
}

/// Makes a listener at which the kernel drops new connections, as a lossy network would, until the
/// connections that fill its queue are accepted.
fn deaf() -> (TcpListener, Vec<TcpStream>) {
    let listener = sys::tcp::listen(SocketAddr::new(LOCAL, 0), 1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut fillers = Vec::new();
    let mut dropped = 0;
    while fillers.len() < 64 {
        let stream = sys::tcp::connect(address, |_| Ok(())).unwrap();
        if stream.peer_addr().is_err() {
            // The connection may still open: only after a second would the kernel repeat a lost
            // packet.
            thread::sleep(Duration::from_millis(100));
        }
        dropped = if stream.peer_addr().is_err() {
            dropped + 1
        } else {
            0
        };
        fillers.push(stream);
        if dropped == 2 {
            return (listener, fillers);
        }
    }
    panic!("a full queue of connections takes more and more");
}

/// Accepts a connection that waits, if any. Returns true when an accepted connection has sent a
/// byte.
fn has_byte(listener: &TcpListener, accepted: &mut Vec<TcpStream>) -> bool {
    accepted.extend(listener.accept().map(|(stream, _)| stream));
    accepted.iter().any(|mut stream| {
        let mut byte = [0];
        stream.set_nonblocking(true).is_ok() && stream.read(&mut byte).is_ok_and(|read| read == 1)
    })
}

#[test]
fn a_link_whose_first_packet_is_lost_is_dialled_again_and_opens_once() {
    let (listener, _fillers) = deaf();
    let mut receiver = End::new(Role::Receiver, 83, SocketOptions::default());
    let link = receiver.io.link_open(listener.local_addr().unwrap());
    receiver.io.link_send(link, b"x");
    until(&mut [&mut receiver], |ends| {
        // The wait ends for the second dial, although no descriptor is ready.
        let limit = ends[0].io.now() + Duration::from_secs(5);
        ends[0].io.wait(Some(limit));
        assert!(ends[0].io.now() < limit);
        ends[0].io.counters().links_redialled == 1
    });
    assert!(receiver.events.is_empty(), "{:?}", receiver.events);
    // Now there is room, and whichever attempt comes first is the connection.
    let mut accepted = Vec::new();
    until(&mut [&mut receiver], |_| has_byte(&listener, &mut accepted));
    assert_eq!(receiver.events, [(link, LinkEvent::Opened)]);
}

#[test]
fn a_second_attempt_opens_before_the_kernel_repeats_the_first() {
    // If the machine stands still for long, the kernel's repeat comes first. One success in three
    // is enough.
    let is_won = (0..3).any(|_| {
        let (listener, _fillers) = deaf();
        let mut receiver = End::new(Role::Receiver, 86, SocketOptions::default());
        let dialled_at = receiver.io.now();
        let link = receiver.io.link_open(listener.local_addr().unwrap());
        receiver.io.link_send(link, b"x");
        // The first packet is lost by now, and the next one finds room.
        let mut accepted = Vec::new();
        until(&mut [&mut receiver], |_| has_byte(&listener, &mut accepted));
        assert_eq!(receiver.events, [(link, LinkEvent::Opened)]);
        let took = receiver.io.now().since(dialled_at);
        took < Duration::from_millis(900) && receiver.io.counters().links_redialled == 1
    });
    assert!(is_won);
}

#[test]
fn a_link_that_is_refused_when_it_is_dialled_again_is_closed_once() {
    let (listener, fillers) = deaf();
    let mut receiver = End::new(Role::Receiver, 84, SocketOptions::default());
    let link = receiver.io.link_open(listener.local_addr().unwrap());
    drop((listener, fillers));
    until(&mut [&mut receiver], |ends| {
        ends[0].was_told(LinkEvent::Closed)
    });
    assert_eq!(receiver.io.counters().links_redialled, 1);
    assert_eq!(receiver.events, [(link, LinkEvent::Closed)]);
}

#[test]
fn an_owner_that_waits_by_itself_is_woken_to_dial_again() {
    let (listener, _fillers) = deaf();
    let mut receiver = End::new(Role::Receiver, 85, SocketOptions::default());
    receiver.turn();
    let mut outer = Epoll::new(1).unwrap();
    let (fd, timeout) = (receiver.io.readiness.as_fd(), Duration::from_millis(900));
    outer.add(fd, 1, Interest::READ).unwrap();
    receiver.io.link_open(listener.local_addr().unwrap());
    receiver.io.arm(None);
    // The kernel repeats a lost packet only after a second, so only the timer can end this wait.
    assert_eq!(outer.wait(Some(timeout)).unwrap().len(), 1);
    receiver.turn();
    assert_eq!(receiver.io.counters().links_redialled, 1);
}

#[test]
fn two_hundred_receivers_at_once_and_no_more_than_allowed() {
    let options = SocketOptions {
        links_max: 200,
        ..SocketOptions::default()
    };
    let (mut source, address) = listening(74, options);
    let mut receiver = End::new(Role::Receiver, 74, SocketOptions::default());
    for _ in 0..210 {
        let link = receiver.io.link_open(address);
        receiver.io.link_send(link, b"x");
    }
    until(&mut [&mut source, &mut receiver], |ends| {
        ends[0].data.len() == 200 && ends[0].io.counters().links_refused == 10
    });
    until(&mut [&mut source, &mut receiver], |ends| {
        let closed = ends[1]
            .events
            .iter()
            .filter(|event| event.1 == LinkEvent::Closed);
        closed.count() == 10
    });
    assert_eq!(source.io.counters().links_accepted, 200);
}

#[test]
fn closed_links_that_their_peers_keep_leave_room_for_new_ones() {
    let options = SocketOptions {
        links_max: 4,
        ..SocketOptions::default()
    };
    let (mut source, address) = listening(87, options);
    // The attack: peers that never close what was closed at the other end.
    let mut kept = Vec::new();
    for count in 1..=20 {
        kept.push(TcpStream::connect(address).unwrap());
        until(&mut [&mut source], |ends| {
            ends[0].io.counters().links_accepted == count
        });
        let link = source.accepted().unwrap();
        source.events.clear();
        source.io.link_close(link);
        source.turn();
    }
    assert_eq!(source.io.counters().links_refused, 0);
}

#[test]
fn a_taken_control_port_is_explained() {
    let (_source, address) = listening(75, SocketOptions::default());
    let mut other = open(Role::Source, group(76), SocketOptions::default());
    let error = other.listen(address).unwrap_err().to_string();
    assert!(error.contains("choose another port"), "{error}");
}

#[test]
fn a_link_ends_a_wait() {
    let (mut source, address) = listening(77, SocketOptions::default());
    source.turn();
    let _stream = TcpStream::connect(address).unwrap();
    let start = source.io.now();
    source.io.wait(Some(start + Duration::from_secs(10)));
    assert!(source.io.now().since(start) < Duration::from_secs(5));
    source.turn();
    assert!(source.accepted().is_some());
}

#[test]
fn a_paused_link_keeps_its_data_stops_its_peer_and_does_not_end_a_wait() {
    let options = SocketOptions {
        link_queue_bytes: 100_000,
        ..SocketOptions::default()
    };
    let (mut source, address) = listening(78, options);
    let mut receiver = End::new(Role::Receiver, 78, SocketOptions::default());
    let dialled = receiver.io.link_open(address);
    until(&mut [&mut source, &mut receiver], |ends| {
        ends[0].accepted().is_some()
    });
    let accepted = source.accepted().unwrap();
    receiver.io.link_pause(dialled, true);
    // More than the kernel's buffers hold.
    let memory = pattern(64 << 20);
    let mut taken = 0;
    let mut quiet = 0;
    while quiet < 100 {
        let more = source.io.link_send(accepted, &memory[taken..]);
        taken += more;
        quiet = if more == 0 { quiet + 1 } else { 0 };
        source.turn();
        receiver.turn();
    }
    assert!(receiver.data.is_empty() && taken < memory.len());
    let start = receiver.io.now();
    receiver.io.wait(Some(start + Duration::from_millis(20)));
    assert!(receiver.io.now().since(start) >= Duration::from_millis(20));

    receiver.io.link_pause(dialled, false);
    until(&mut [&mut source, &mut receiver], |ends| {
        ends[1].data.len() == taken
    });
    assert!(receiver.data == memory[..taken]);
}

#[test]
fn a_paused_link_that_is_closed_is_read_to_its_end() {
    let (mut source, address) = listening(80, SocketOptions::default());
    let mut receiver = End::new(Role::Receiver, 80, SocketOptions::default());
    let dialled = receiver.io.link_open(address);
    until(&mut [&mut source, &mut receiver], |ends| {
        ends[0].accepted().is_some()
    });
    let accepted = source.accepted().unwrap();
    receiver.io.link_pause(dialled, true);
    source.io.link_send(accepted, &pattern(100_000));
    receiver.io.link_close(dialled);
    until(&mut [&mut source, &mut receiver], |ends| {
        ends[0].was_told(LinkEvent::Closed)
    });
    source.io.link_close(accepted);
    until(&mut [&mut source, &mut receiver], |ends| {
        ends[1].io.links.unfinished() == 0
    });
}

#[test]
fn a_paused_link_that_is_reset_is_closed() {
    let (mut source, address) = listening(79, SocketOptions::default());
    let stream = TcpStream::connect(address).unwrap();
    until(&mut [&mut source], |ends| ends[0].accepted().is_some());
    let accepted = source.accepted().unwrap();
    source.io.link_pause(accepted, true);
    source.io.link_send(accepted, b"unread by its peer");
    thread::sleep(Duration::from_millis(10));
    // The other end closes with unread bytes, so its kernel sends a reset.
    drop(stream);
    until(&mut [&mut source], |ends| {
        ends[0].was_told(LinkEvent::Closed)
    });
}
