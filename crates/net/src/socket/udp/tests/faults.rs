//! Rare paths of the socket code, forced; and loss, duplication and corruption after the GRO split.

use super::*;
use crate::{Faults, Intercept};

fn with(faults: &str) -> SocketOptions {
    SocketOptions {
        faults: faults.parse().unwrap(),
        ..SocketOptions::default()
    }
}

/// Sends `memory` as the run loop would: again from where it stopped, waiting when blocked.
fn send_all(source: &mut UdpIo, memory: &[u8], segment: usize, to: SocketAddr) {
    let mut start = 0;
    while start < memory.len() {
        let end = memory.len().min(start + 40 * segment);
        let range = start..end;
        match source.send(&run(memory, std::slice::from_ref(&range), segment, to)) {
            Outcome::Sent { datagrams } => start = end.min(start + datagrams * segment),
            Outcome::Blocked => {
                let until = source.now() + Duration::from_millis(100);
                source.wait(Some(until));
            }
            other => panic!("a passing fault became {other:?}"),
        }
    }
}

fn arrives_whole(test: u8, faults: &str, check: fn(&UdpCounters)) {
    let to = group(test);
    let mut receiver = open(Role::Receiver, to, with(faults));
    let mut source = open(Role::Source, to, with(faults));
    let memory = pattern(400 * 1000);
    let mut batch = receiver.batch();
    let mut arrived = Vec::new();
    for part in memory.chunks(40_000) {
        send_all(&mut source, part, 1000, to);
        arrived.extend(joined(&collect(&mut receiver, &mut batch, 40)));
    }
    assert!(arrived == memory, "{faults}: {} bytes", arrived.len());
    let mut both = *source.counters();
    both += receiver.counters();
    assert_eq!(both.sent_datagrams, 400, "{faults}");
    check(&both);
}

#[test]
fn passing_failures_of_system_calls_lose_nothing() {
    arrives_whole(30, "eintr=30%", |counters| {
        assert!(counters.send_interrupted > 0 && counters.receive_interrupted > 0);
    });
    arrives_whole(31, "eagain=30%,seed=3", |counters| {
        assert!(counters.send_full > 0 && counters.blocked > 0);
    });
    arrives_whole(32, "enobufs=30%,enomem=20%", |counters| {
        assert!(counters.send_no_buffers > 0 && counters.receive_failed > 0);
    });
    arrives_whole(33, "short=50%", |counters| {
        assert!(counters.short_runs > 0);
    });
    arrives_whole(
        34,
        "nogso,nogro,short=50%,eintr=10%,eagain=10%",
        |counters| {
            assert!(counters.short_runs > 0 && counters.gso_runs == 0 && counters.gro_buffers == 0);
        },
    );
}

#[test]
fn refused_segmentation_is_given_up_once_and_said_so() {
    arrives_whole(35, "eio=100%", |counters| {
        assert_eq!((counters.gso_runs, counters.gso_fallbacks), (0, 1));
    });
    let mut source = open(Role::Source, group(36), with("eio=100%"));
    let _receiver = open(Role::Receiver, group(36), SocketOptions::default());
    let memory = pattern(3000);
    let whole = 0..3000;
    source.send(&run(&memory, std::slice::from_ref(&whole), 1000, group(36)));
    let warning = source.take_warning().unwrap();
    assert!(warning.contains("UDP GSO"), "{warning}");
    assert_eq!(source.run_limit().datagrams, 64);
}

#[test]
fn loss_takes_single_datagrams_out_of_coalesced_buffers() {
    let to = group(37);
    let mut source = open(Role::Source, to, SocketOptions::default());
    let receiver = open(Role::Receiver, to, SocketOptions::default());
    let faults: Faults = "loss=20%,duplicate=10%,corrupt=5%,seed=5".parse().unwrap();
    let mut batch = receiver.batch();
    let mut receiver = Intercept::new(receiver, faults);
    let mut memory = vec![0; 40 * 1000];
    let mut arrived = Vec::new();
    for round in 0..25_u32 {
        for (index, datagram) in (0_u32..).zip(memory.chunks_exact_mut(1000)) {
            datagram[..4].copy_from_slice(&(round * 40 + index).to_be_bytes());
        }
        send_all(&mut source, &memory, 1000, to);
        let end = receiver.now() + Duration::from_millis(20);
        while receiver.now() < end {
            batch.clear();
            if receiver.recv(&mut batch).unwrap() == 0 {
                receiver.wait(Some(end));
            }
            for (datagram, bytes) in batch.datagrams() {
                arrived.extend(Segments::new(bytes, datagram.segment).map(<[u8]>::to_vec));
            }
        }
    }
    let counters = *receiver.counters();
    assert!(receiver.inner().counters().gro_buffers >= 25);
    assert_eq!(counters.lost + counters.passed + counters.corrupted, 1000);
    let delivered = counters.passed + counters.corrupted + counters.duplicated;
    assert_eq!(arrived.len() as u64, delivered);
    assert!((150..250).contains(&counters.lost), "{counters:?}");
    assert!((50..130).contains(&counters.duplicated), "{counters:?}");
    assert!((20..70).contains(&counters.corrupted), "{counters:?}");
    assert!(arrived.iter().all(|datagram| datagram.len() == 1000));
}

#[test]
fn the_same_seed_loses_the_same_datagrams() {
    let survivors = |test| {
        let to = group(test);
        let mut source = open(Role::Source, to, SocketOptions::default());
        let receiver = open(Role::Receiver, to, SocketOptions::default());
        let mut batch = receiver.batch();
        let mut receiver = Intercept::new(receiver, "loss=30%,seed=9".parse().unwrap());
        let memory = pattern(40 * 997);
        send_all(&mut source, &memory, 997, to);
        let datagrams = collect(&mut receiver, &mut batch, 40);
        datagrams
            .into_iter()
            .map(|(_, bytes)| bytes)
            .collect::<Vec<_>>()
    };
    let first = survivors(38);
    assert!(first.len() < 40 && first == survivors(39));
}

#[test]
fn without_faults_an_interceptor_passes_everything() {
    let (mut source, receiver) = pair(40);
    let mut batch = receiver.batch();
    let mut receiver = Intercept::new(receiver, Faults::NONE);
    let memory = pattern(10 * 1000);
    send_all(&mut source, &memory, 1000, group(40));
    assert!(joined(&collect(&mut receiver, &mut batch, 10)) == memory);
    assert_eq!(receiver.counters().passed, 0, "it did not even look");
}
