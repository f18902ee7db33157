//! UdpIo over the loopback interface: real sockets, no privileges, nothing leaves the host.

use std::{
    net::{IpAddr, Ipv4Addr},
    ops::Range,
    time::Duration,
};

use super::*;
use crate::SocketOptions;
use base::{Arrival, PathId, Segments, Socket};

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

/// Datagrams that reach `io` until `count` came or nothing has come for a second.
fn collect(io: &mut UdpIo, batch: &mut RecvBatch, count: usize) -> Vec<(Arrival, Vec<u8>)> {
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

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect()
}

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
    let bytes: Vec<u8> = datagrams
        .iter()
        .flat_map(|(_, bytes)| bytes.clone())
        .collect();
    assert!(
        bytes == memory,
        "the datagrams came changed or out of order"
    );
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
fn a_run_arrives_whole_without_gso_and_gro() {
    let plain = SocketOptions {
        gso: false,
        gro: false,
        ..SocketOptions::default()
    };
    send_and_compare(2, plain.clone(), plain);
}
