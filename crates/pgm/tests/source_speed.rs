//! How long the source takes a packet. Figures come from a release build:
//!
//! `cargo test -p towline-pgm --release --test source_speed -- --nocapture`
//!
//! A debug build makes few rounds, which show that nothing is refused or left unsent.

#![allow(
    clippy::unwrap_used,
    reason = "test code, though not in a test function"
)]

use std::{
    hint::black_box,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::{Duration, Instant as Clock},
};

use base::{Arrival, Budget, Instant, Outcome, PathId, Socket};
use towline_pgm::{Config, Source, SourceSetup};
use wire::{
    Sqn,
    pgm::{Addressing, Body, Gsi, Mark, Nak, NakList, PgmOption, Profile, Tsi, emit},
};

const NLA: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 192, 0, 1));
const TSI: Tsi = Tsi {
    gsi: Gsi([1; 6]),
    port: 4000,
};
const BUDGET: Budget = Budget {
    bytes: 64_000,
    datagrams: 128,
};

/// A debug build makes one round of so many.
const SHARE: u64 = if cfg!(debug_assertions) { 100 } else { 1 };

fn source(window_bytes: usize) -> Source {
    let config = Config::builder().tx_window_bytes(window_bytes);
    let setup = SourceSetup {
        tsi: TSI,
        destination_port: 7500,
        group: SocketAddr::new(GROUP, 7500),
        nla: NLA,
        path: PathId(0),
        first_sqn: 0,
        seed: 1,
        mark: Some(Mark::new(Profile::Messages, 1)),
    };
    Source::new(config.build().unwrap(), setup, Instant::ZERO)
}

/// Sends all that is due; nanoseconds it took.
fn drain(source: &mut Source, now: Instant) -> Duration {
    let start = start_clock();
    while let Some(run) = source.poll_run(now, BUDGET) {
        let datagrams = black_box(&run).datagram_count();
        source.run_done(now, Outcome::Sent { datagrams });
    }
    start.elapsed()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a measurement needs the real clock"
)]
fn start_clock() -> Clock {
    Clock::now()
}

fn ns_each(time: Duration, count: u64) -> f64 {
    time.as_nanos() as f64 / count as f64
}

#[test]
fn nanoseconds_per_packet() {
    const BATCH: u64 = 256;
    const ROUNDS: u64 = 12_000 / SHARE;
    // A window within the processor's cache, and the default one.
    let windows = [4 << 20, 64 << 20];
    for (window, len) in windows.into_iter().flat_map(|w| [(w, 64), (w, 1400)]) {
        for kind in ["offer", "commit", "burst"] {
            let mut source = source(window);
            let payload = vec![7_u8; len];
            let (mut taking, mut sending, mut count) = (Duration::ZERO, Duration::ZERO, 0);
            for round in 0..ROUNDS {
                let now = Instant::from_nanos(round * 100_000);
                let start = start_clock();
                match kind {
                    "offer" => {
                        for _ in 0..BATCH {
                            black_box(source.offer(black_box(&payload)).unwrap());
                        }
                    }
                    "commit" => {
                        for _ in 0..BATCH {
                            let mut slot = source.reserve(len).unwrap();
                            black_box(slot.payload_mut());
                            black_box(slot.commit());
                        }
                    }
                    _ => {
                        let mut burst = source.reserve_burst(len, BATCH as usize).unwrap();
                        black_box(burst.slot(0));
                        black_box(burst.commit());
                    }
                }
                let taken = start.elapsed();
                let sent = drain(&mut source, now);
                // The first rounds make the operating system hand out the window's memory.
                if round >= ROUNDS / 3 {
                    taking += taken;
                    sending += sent;
                    count += BATCH;
                }
            }
            println!(
                "{:2} MiB, {len:4} B, {kind:6}: take {:6.1} ns, send {:5.2} ns a packet",
                window >> 20,
                ns_each(taking, count),
                ns_each(sending, count)
            );
        }
    }
}

#[test]
fn nanoseconds_per_nak_and_repair() {
    let mut source = source(64 << 20);
    let payload = vec![7_u8; 1400];
    for i in 0..40_000 {
        source.offer(&payload).unwrap();
        if i % 256 == 0 {
            drain(&mut source, Instant::ZERO);
        }
    }
    let mut now = Instant::from_nanos(1_000_000_000);
    drain(&mut source, now);
    let arrival = Arrival::from(SocketAddr::new(NLA, 9), Socket::Upstream);
    let (mut handling, mut sending, mut count) = (Duration::ZERO, Duration::ZERO, 0);
    let naks = 20_000 / SHARE;
    for round in 0..naks as u32 {
        let first = 1 + round.wrapping_mul(40_503) % 38_000;
        let list: Vec<_> = (1..63).map(|i| Sqn(first + i * 9)).collect();
        let nak = Nak {
            sqn: Sqn(first),
            source_nla: NLA,
            group_nla: GROUP,
        };
        let mut bytes = Vec::new();
        let options = [PgmOption::NakList(NakList::new(&list))];
        let addressing = Addressing::upstream(TSI, 7500);
        emit(&mut bytes, &addressing, &Body::Nak(nak), &options, &[]);
        let start = start_clock();
        black_box(source.handle(now, &arrival, black_box(&bytes)));
        handling += start.elapsed();
        let before = source.counters().rdata_packets;
        sending += drain(&mut source, now);
        count += source.counters().rdata_packets - before;
        now += Duration::from_micros(500);
    }
    assert!(count > naks, "{count} repairs for {naks} NAKs");
    println!(
        "NAK of 63: {:.0} ns; repair {:.1} ns a packet ({count} repairs)",
        ns_each(handling, naks),
        ns_each(sending, count)
    );
}
