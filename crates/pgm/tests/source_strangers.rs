//! Hosts that send NAKs and do not report: anybody can.

mod source_kit;

use std::time::Duration;

use source_kit::{Bench, addresses, nak, over_each_kind};
use towline_pgm::{Config, SourceSetup};
use wire::pgm::PacketType;

/// Asks for everything in the window, round and round, with 3,000 NAKs a second for four seconds.
/// Returns the bytes of the NAKs, and of what left because of them, with headers.
fn flood(bench: &mut Bench, window: u32) -> (usize, usize) {
    let mut asked = 0;
    for round in 0..12_000_u32 {
        let first = round * 63 % window;
        let sqns: Vec<_> = (first..window.min(first + 63)).collect();
        let nak = nak(&sqns);
        asked += nak.len() + addresses().overhead();
        let host = addresses().others[round as usize % 2];
        bench.stranger(host, &nak);
        bench.run_for(Duration::from_nanos(333_333));
    }
    let is_answer = |seen: &&source_kit::Seen| seen.kind() != PacketType::Spm;
    let left = bench
        .seen
        .iter()
        .filter(is_answer)
        .map(source_kit::Seen::on_wire);
    (asked, left.sum())
}

#[test]
fn forged_naks_bring_at_most_three_times_their_bytes() {
    over_each_kind(|| {
        let mut bench = Bench::new();
        bench.send(2000, 1400);
        for _ in 0..9 {
            bench.ms(20);
            bench.send(2000, 1400);
        }
        // The sender has nothing to send any more.
        bench.ms(4000);
        bench.forget();
        let (asked, left) = flood(&mut bench, 20_000);
        assert!(left <= 3 * asked, "{asked} bytes brought {left}");
        assert!(bench.source.counters().nak_refused > 0);
    });
}

#[test]
fn a_packet_asked_for_again_and_again_is_repaired_ever_less_often() {
    let mut bench = Bench::set(&[("elimination_interval", "4ms")]);
    bench.send(3, 100);
    bench.forget();
    for _ in 0..1000 {
        bench.stranger(addresses().others[0], &nak(&[1]));
        bench.ms(4);
    }
    let repairs = bench.of(PacketType::Rdata).len();
    assert!((12..20).contains(&repairs), "{repairs} repairs in 4 s");
}

#[test]
fn whoever_reports_has_full_service_beside_them() {
    let mut bench = Bench::new();
    bench.send(2000, 1400);
    bench.ms(100);
    flood(&mut bench, 2000);
    bench.forget();
    for block in 0..30 {
        let sqns: Vec<_> = (block * 63..(block + 1) * 63).collect();
        bench.nak(&sqns);
        bench.ms(20);
    }
    assert_eq!(bench.of(PacketType::Rdata).len(), 30 * 63);
}

#[test]
fn a_plain_receiver_gets_what_it_lacks_while_data_flows() {
    let mut bench = Bench::new();
    let mut asked = 0;
    // 70 MB/s, of which the receiver loses an eighth.
    for round in 0..1000_u32 {
        bench.send(50, 1400);
        let sqns: Vec<_> = (round * 50..round * 50 + 50).step_by(8).collect();
        asked += sqns.len();
        bench.stranger(addresses().others[0], &nak(&sqns));
        bench.ms(1);
    }
    assert_eq!(bench.of(PacketType::Rdata).len(), asked);
}

#[test]
fn with_a_key_nobody_is_a_stranger() {
    use base::{Arrival, Instant, PathId, Socket};
    use source_kit::{GROUP, PORT, SOURCE, TSI};
    use wire::pgm::{Mark, Profile};

    let setup = SourceSetup {
        tsi: TSI,
        destination_port: PORT,
        group: (GROUP, PORT).into(),
        nla: SOURCE,
        path: PathId(0),
        first_sqn: 0,
        seed: 1,
        mark: Some(Mark::new(Profile::Messages, 42).protected()),
    };
    let now = Instant::from_nanos(1_000_000_000);
    let mut source = towline_pgm::Source::new(Config::default(), setup, now);
    for _ in 0..2000 {
        source.offer(&[7; 1400]).unwrap();
    }
    while let Some(run) = source.poll_run(now, source_kit::BUDGET) {
        let datagrams = run.datagram_count();
        source.run_done(now, base::Outcome::Sent { datagrams });
    }
    let arrival = Arrival::from((addresses().others[0], 40_000).into(), Socket::Upstream);
    for first in (0..1900).step_by(63) {
        let sqns: Vec<_> = (first..first + 63).collect();
        source.handle(now, &arrival, &nak(&sqns));
    }
    assert_eq!(source.counters().nak_refused, 0);
    assert!(source.counters().nak_queued > 1900);
}
