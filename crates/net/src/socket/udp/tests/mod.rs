//! UdpIo over the loopback interface: real sockets, no privileges, nothing leaves the host.

use std::{
    net::{IpAddr, Ipv4Addr},
    ops::Range,
    time::Duration,
};

use base::{Arrival, PathId, Segments, Socket};

use super::*;
use crate::SocketOptions;

mod faults;
mod links;
mod waiting;

const LOOPBACK: u32 = 1;
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A group of its own for each test: they run side by side.
fn group(test: u8) -> SocketAddr {
    SocketAddr::from(([239, 192, 77, test], 27_500 + u16::from(test)))
}

fn open(role: Role, destination: SocketAddr, options: SocketOptions) -> UdpIo {
    let setup = UdpSetup::new(role, destination, LOOPBACK, LOCAL).options(options);
    UdpIo::open(setup).unwrap()
}

fn pair(test: u8) -> (UdpIo, UdpIo) {
    let open = |role| open(role, group(test), SocketOptions::default());
    (open(Role::Source), open(Role::Receiver))
}

fn run<'a>(
    memory: &'a [u8],
    ranges: &'a [Range<usize>],
    segment: usize,
    to: SocketAddr,
) -> Run<'a> {
    Run {
        path: PathId(0),
        to,
        hops: None,
        segment,
        memory,
        ranges,
    }
}

fn send_one(io: &mut UdpIo, bytes: &[u8], to: SocketAddr) -> Outcome {
    let whole = 0..bytes.len();
    io.send(&run(bytes, std::slice::from_ref(&whole), bytes.len(), to))
}

/// Returns the datagrams that reach `io` until `count` have come or nothing has come for a second.
fn collect(io: &mut impl Io, batch: &mut RecvBatch, count: usize) -> Vec<(Arrival, Vec<u8>)> {
    let mut datagrams = Vec::new();
    let mut give_up = io.now() + Duration::from_secs(1);
    while datagrams.len() < count && io.now() < give_up {
        batch.clear();
        if io.recv(batch).unwrap() == 0 {
            io.wait(Some(give_up));
            continue;
        }
        give_up = io.now() + Duration::from_secs(1);
        for (datagram, bytes) in batch.datagrams() {
            for segment in Segments::new(bytes, datagram.segment) {
                datagrams.push((datagram.arrival, segment.to_vec()));
            }
        }
    }
    datagrams
}

/// Returns true when nothing arrives for 50 ms.
fn is_silent(io: &mut UdpIo) -> bool {
    let mut batch = io.batch();
    let end = io.now() + Duration::from_millis(50);
    while io.now() < end {
        if io.recv(&mut batch).unwrap() > 0 {
            return false;
        }
        io.wait(Some(end));
    }
    true
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect()
}

fn joined(datagrams: &[(Arrival, Vec<u8>)]) -> Vec<u8> {
    datagrams
        .iter()
        .flat_map(|(_, bytes)| bytes.clone())
        .collect()
}

const WITHOUT_GSO: fn() -> SocketOptions = || SocketOptions {
    gso: false,
    ..SocketOptions::default()
};
const WITHOUT_GRO: fn() -> SocketOptions = || SocketOptions {
    gro: false,
    ..SocketOptions::default()
};

fn send_and_compare(test: u8, source_options: SocketOptions, receiver_options: SocketOptions) {
    let to = group(test);
    let mut receiver = open(Role::Receiver, to, receiver_options);
    let mut source = open(Role::Source, to, source_options);
    let memory = pattern(20 * 1400 + 100);
    let whole = 0..memory.len();
    let run = run(&memory, std::slice::from_ref(&whole), 1400, to);
    assert_eq!(source.send(&run), Outcome::Sent { datagrams: 21 });

    let mut batch = receiver.batch();
    let datagrams = collect(&mut receiver, &mut batch, 21);
    assert_eq!(datagrams.len(), 21, "{:?}", receiver.counters());
    assert!(joined(&datagrams) == memory, "changed or out of order");
    for (arrival, _) in &datagrams {
        assert_eq!(arrival.socket, Socket::Group);
        assert_eq!(arrival.source, SocketAddr::new(LOCAL, to.port()));
        assert_eq!(arrival.destination, to.ip());
    }
    assert_eq!(source.counters().sent_datagrams, 21);
    assert_eq!(receiver.counters().received_datagrams, 21);
}

#[test]
fn a_run_arrives_whole_with_gso_and_gro() {
    send_and_compare(1, SocketOptions::default(), SocketOptions::default());
}

#[test]
fn a_run_arrives_whole_whatever_the_kernel_cannot_do() {
    send_and_compare(2, WITHOUT_GSO(), WITHOUT_GRO());
    send_and_compare(3, WITHOUT_GSO(), SocketOptions::default());
    send_and_compare(4, SocketOptions::default(), WITHOUT_GRO());
}

#[test]
fn single_datagrams_are_taken_many_at_a_time_and_coalesced_ones_a_few() {
    let (mut source, mut receiver) = pair(20);
    let mut batch = receiver.batch();
    let mut calls_for = |count: usize, bytes: usize, segment: usize| {
        let memory = pattern(bytes);
        for _ in 0..count {
            let whole = 0..bytes;
            let ranges = std::slice::from_ref(&whole);
            source.send(&run(&memory, ranges, segment, group(20)));
        }
        let before = receiver.counters().receive_calls;
        let datagrams = count * bytes.div_ceil(segment);
        assert_eq!(
            collect(&mut receiver, &mut batch, datagrams).len(),
            datagrams
        );
        receiver.counters().receive_calls - before
    };
    // Four calls, with 4, 8, 16 and 32 buffers, and at most two calls that find nothing.
    assert!(calls_for(60, 1000, 1000) <= 6);
    assert!(calls_for(60, 1000, 1000) <= 4);
    // The first call still offers many buffers; after it, calls offer 4 buffers.
    assert!(calls_for(40, 4000, 1000) > 2);
}

#[test]
fn repairs_are_gathered_from_where_they_lie() {
    for (test, options) in [(5, SocketOptions::default()), (6, WITHOUT_GSO())] {
        let to = group(test);
        let mut receiver = open(Role::Receiver, to, SocketOptions::default());
        let mut source = open(Role::Source, to, options);
        let memory = pattern(10_000);
        let ranges = [4000..5000, 0..500, 9000..9500, 1000..1300];
        let run = run(&memory, &ranges, 500, to);
        assert_eq!(source.send(&run), Outcome::Sent { datagrams: 5 });
        let mut batch = receiver.batch();
        let datagrams = collect(&mut receiver, &mut batch, 5);
        let expected: Vec<_> = run.datagrams().map(<[u8]>::to_vec).collect();
        let got: Vec<_> = datagrams.into_iter().map(|(_, bytes)| bytes).collect();
        assert!(got == expected, "test {test}");
    }
}

#[test]
fn a_run_beyond_the_limit_leaves_in_several_calls() {
    let to = group(7);
    let (mut source, mut receiver) = pair(7);
    let limit = source.run_limit();
    assert_eq!((limit.bytes, limit.datagrams), (65_000, 128));
    let memory = pattern(300 * 1000);
    let whole = 0..memory.len();
    let run = run(&memory, std::slice::from_ref(&whole), 1000, to);
    assert_eq!(source.send(&run), Outcome::Sent { datagrams: 300 });
    assert_eq!(source.counters().gso_runs, 5);
    let mut batch = receiver.batch();
    let datagrams = collect(&mut receiver, &mut batch, 300);
    assert!(
        joined(&datagrams) == memory,
        "{} datagrams",
        datagrams.len()
    );
}

#[test]
fn upstream_packets_reach_the_source_alone() {
    let (mut source, mut receiver) = pair(8);
    let mut other = open(Role::Receiver, group(8), SocketOptions::default());
    let to_source = SocketAddr::new(LOCAL, group(8).port());
    assert_eq!(source.upstream_address(), to_source);
    let sent = send_one(&mut receiver, b"nak", to_source);
    assert_eq!(sent, Outcome::Sent { datagrams: 1 });
    let mut batch = source.batch();
    let datagrams = collect(&mut source, &mut batch, 1);
    let (arrival, bytes) = &datagrams[0];
    assert_eq!(&bytes[..], b"nak");
    assert_eq!(
        (arrival.socket, arrival.destination),
        (Socket::Upstream, LOCAL)
    );
    assert_eq!(arrival.source, receiver.upstream_address());
    assert!(is_silent(&mut other) && is_silent(&mut receiver));
}

#[test]
fn a_source_hears_the_group_but_not_itself() {
    let (mut source, mut receiver) = pair(9);
    let own = send_one(&mut source, b"data", group(9));
    assert_eq!(own, Outcome::Sent { datagrams: 1 });
    assert!(is_silent(&mut source));
    let request = send_one(&mut receiver, b"spmr", group(9));
    assert_eq!(request, Outcome::Sent { datagrams: 1 });
    let mut batch = source.batch();
    let datagrams = collect(&mut source, &mut batch, 1);
    assert_eq!(&datagrams[0].1[..], b"spmr");
    assert_eq!(
        datagrams[0].0.socket,
        Socket::Upstream,
        "same host: told directly"
    );
    assert_eq!(receiver.counters().own_host_copies, 1);

    let elsewhere = UdpSetup::new(Role::Receiver, group(9), LOOPBACK, [127, 0, 0, 5].into());
    let mut elsewhere = UdpIo::open(elsewhere).unwrap();
    send_one(&mut elsewhere, b"other", group(9));
    let datagrams = collect(&mut source, &mut batch, 1);
    assert_eq!(&datagrams[0].1[..], b"other");
    assert_eq!(datagrams[0].0.socket, Socket::Group);
    assert!(is_silent(&mut source), "once each");
}

#[test]
fn a_receiver_takes_its_group_and_its_source_only() {
    let mut receiver = open(Role::Receiver, group(11), SocketOptions::default());
    let mut source = open(Role::Source, group(11), SocketOptions::default());
    let neighbour = SocketAddr::new(group(12).ip(), group(11).port());
    let _member = open(Role::Receiver, neighbour, SocketOptions::default());
    send_one(&mut source, b"other group", neighbour);
    assert!(is_silent(&mut receiver));

    let from = |source: [u8; 4]| {
        let setup = UdpSetup::new(Role::Receiver, group(11), LOOPBACK, LOCAL);
        UdpIo::open(setup.source(Some(source.into()))).unwrap()
    };
    let (mut right, mut wrong) = (from([127, 0, 0, 1]), from([127, 0, 0, 9]));
    send_one(&mut source, b"data", group(11));
    let mut batch = right.batch();
    assert_eq!(collect(&mut right, &mut batch, 1).len(), 1);
    assert!(is_silent(&mut wrong));
}

#[test]
fn a_second_sender_on_the_port_is_told_so() {
    let (_source, _receiver) = pair(13);
    let setup = UdpSetup::new(Role::Source, group(13), LOOPBACK, LOCAL);
    let error = UdpIo::open(setup).unwrap_err().to_string();
    assert!(
        error.contains("127.0.0.1:27513")
            && error.contains("another sender, or a receiver of a unicast"),
        "{error}"
    );
}

#[test]
fn a_second_sender_that_tells_its_port_takes_another_one() {
    let open = || {
        let setup = UdpSetup::new(Role::Source, group(14), LOOPBACK, LOCAL);
        UdpIo::open(setup.shares_port(true)).unwrap()
    };
    let (first, mut second) = (open(), open());
    let port = group(14).port();
    assert_eq!(first.upstream_port(), port);
    assert!(![0, port].contains(&second.upstream_port()));
    // It sends from there, and takes what comes there.
    let mut receiver = UdpIo::open(UdpSetup::new(Role::Receiver, group(14), LOOPBACK, LOCAL));
    let receiver = receiver.as_mut().unwrap();
    send_one(&mut second, b"data", group(14));
    let mut batch = receiver.batch();
    assert_eq!(collect(receiver, &mut batch, 1).len(), 1);
    let own = SocketAddr::new(LOCAL, second.upstream_port());
    send_one(receiver, b"NAK", own);
    let mut batch = second.batch();
    assert_eq!(collect(&mut second, &mut batch, 1).len(), 1);
    drop(first);
    assert_eq!(open().upstream_port(), port, "it is free again");
}

#[test]
fn a_unicast_session_has_a_receiver_with_an_address() {
    let to: SocketAddr = "127.0.0.2:27514".parse().unwrap();
    let at = |role, local: [u8; 4]| {
        UdpIo::open(UdpSetup::new(role, to, LOOPBACK, local.into())).unwrap()
    };
    let mut receiver = at(Role::Receiver, [127, 0, 0, 2]);
    let mut source = at(Role::Source, [127, 0, 0, 1]);
    let memory = pattern(10 * 1000);
    let whole = 0..memory.len();
    let run = run(&memory, std::slice::from_ref(&whole), 1000, to);
    assert_eq!(source.send(&run), Outcome::Sent { datagrams: 10 });
    let mut batch = receiver.batch();
    let datagrams = collect(&mut receiver, &mut batch, 10);
    assert!(joined(&datagrams) == memory);
    let (arrival, _) = datagrams[0];
    assert_eq!(
        (arrival.socket, arrival.destination),
        (Socket::Group, to.ip())
    );

    send_one(&mut receiver, b"nak", arrival.source);
    let mut batch = source.batch();
    let datagrams = collect(&mut source, &mut batch, 1);
    assert_eq!(datagrams[0].0.socket, Socket::Upstream);

    let taken = UdpIo::open(UdpSetup::new(Role::Receiver, to, LOOPBACK, to.ip()));
    let error = taken.unwrap_err().to_string();
    assert!(error.contains("has the port for itself"), "{error}");
}

#[test]
fn a_receiver_that_is_gone_does_not_stop_the_source() {
    let to: SocketAddr = "127.0.0.2:27515".parse().unwrap();
    let mut source = open(Role::Source, to, SocketOptions::default());
    for _ in 0..10 {
        let outcome = send_one(&mut source, b"nobody is there", to);
        assert_eq!(outcome, Outcome::Sent { datagrams: 1 });
    }
    assert!(is_silent(&mut source));
    let counters = source.counters();
    assert!(counters.icmp_reports > 0, "{counters:?}");
    assert!(
        counters.waits < 20,
        "the reports kept it awake: {counters:?}"
    );
}

#[test]
fn an_unknown_interface_or_address_is_explained() {
    let setup = UdpSetup::new(Role::Receiver, group(16), 9999, LOCAL);
    let error = UdpIo::open(setup).unwrap_err().to_string();
    assert!(error.contains("choose another interface"), "{error}");
    let setup = UdpSetup::new(Role::Source, group(16), LOOPBACK, [192, 0, 2, 1].into());
    let error = UdpIo::open(setup).unwrap_err().to_string();
    assert!(
        error.contains("choose an address that this host has"),
        "{error}"
    );
}

#[test]
fn short_receive_buffers_switch_coalescing_off() {
    let to = group(17);
    let (mut source, mut receiver) = pair(17);
    let mut batch = RecvBatch::new(8, 2048);
    assert_eq!(receiver.recv(&mut batch).unwrap(), 0);
    assert!(
        receiver
            .take_warning()
            .is_some_and(|text| text.contains("GRO"))
    );
    let memory = pattern(20 * 1000);
    let whole = 0..memory.len();
    source.send(&run(&memory, std::slice::from_ref(&whole), 1000, to));
    assert!(joined(&collect(&mut receiver, &mut batch, 20)) == memory);
    assert_eq!(receiver.counters().truncated_buffers, 0);

    send_one(&mut source, &pattern(3000), to);
    let datagrams = collect(&mut receiver, &mut batch, 1);
    assert_eq!(datagrams[0].1.len(), 2048, "cut, and counted");
    assert_eq!(receiver.counters().truncated_buffers, 1);
}

#[test]
fn what_the_kernel_drops_is_counted() {
    let options = SocketOptions {
        receive_buffer_bytes: 4096,
        ..WITHOUT_GRO()
    };
    let mut receiver = open(Role::Receiver, group(18), options);
    let mut source = open(Role::Source, group(18), WITHOUT_GSO());
    let datagram = pattern(1000);
    for _ in 0..100 {
        send_one(&mut source, &datagram, group(18));
    }
    let mut batch = receiver.batch();
    let first = collect(&mut receiver, &mut batch, 100).len();
    assert!(first < 100);
    // No later message reports the last drops, so the last wait asked the kernel for them.
    let dropped = receiver.counters().kernel_drops;
    assert_eq!(dropped + first as u64, 100);
}

#[test]
fn what_udp_cannot_carry_is_too_big() {
    let (mut source, _receiver) = pair(19);
    let outcome = send_one(&mut source, &vec![0; 65_508], group(19));
    assert_eq!(outcome, Outcome::TooBig);
    assert_eq!(source.counters().send_too_big, 1);
    assert!(
        source
            .take_warning()
            .is_some_and(|text| text.contains("MTU"))
    );
}

#[test]
fn a_groups_port_is_shared_with_openpgms_receivers_of_the_same_user() {
    let to = group(77);
    // OpenPGM sets no other option.
    let openpgm = || {
        let socket = sys::UdpSocket::new(sys::Family::of(&to)).unwrap();
        socket.set_reuse_port(true).unwrap();
        socket.bind(to).unwrap();
        socket
    };
    let ours = || open(Role::Receiver, to, SocketOptions::default());
    let (first, then) = (openpgm(), ours());
    drop((first, then));
    let (first, then) = (ours(), openpgm());
    drop((first, then));
}
