//! Hosts that send NAKs and do not report: anybody can.

mod source_kit;

use std::time::Duration;

use source_kit::{Bench, addresses, nak, over_each_kind};
use towline_pgm::{Config, SourceSetup};
use wire::pgm::PacketType;

/// Asks for everything in the window, round and round, with `per_s` NAKs a second, each of 63
/// numbers, from two hosts in turn. Returns the bytes of the NAKs, and of what left because of
/// them, with headers.
fn flood_at(bench: &mut Bench, window: u32, per_s: u32, seconds: u32) -> (usize, usize) {
    bench.forget();
    let mut asked = 0;
    for round in 0..per_s * seconds {
        let first = round * 63 % window;
        let sqns: Vec<_> = (first..window.min(first + 63)).collect();
        let nak = nak(&sqns);
        asked += nak.len() + addresses().overhead();
        let host = addresses().others[round as usize % 2];
        bench.stranger(host, &nak);
        bench.run_for(Duration::from_secs(1) / per_s);
    }
    (asked, answered(bench))
}

/// Bytes of everything but SPMs that has left, with headers.
fn answered(bench: &Bench) -> usize {
    let is_answer = |seen: &&source_kit::Seen| seen.kind() != PacketType::Spm;
    let left = bench.seen.iter().filter(is_answer);
    left.map(source_kit::Seen::on_wire).sum()
}

/// As [`flood_at`], with 3,000 NAKs a second for four seconds.
fn flood(bench: &mut Bench, window: u32) -> (usize, usize) {
    flood_at(bench, window, 3000, 4)
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
fn strangers_draw_each_packet_eight_times_and_then_three_times_what_they_ask_with() {
    // At 14 NAKs a second, a source without this bound gives 280 times the bytes of the NAKs.
    over_each_kind(|| {
        for (per_s, seconds) in [(14, 20), (30, 20), (300, 10), (3000, 8)] {
            let mut bench = Bench::new();
            bench.send(500, 1400);
            let data = answered(&bench);
            bench.ms(4000);
            let (asked, left) = flood_at(&mut bench, 500, per_s, seconds);
            assert!(left <= 8 * data + 3 * asked, "{per_s}/s: {left} of {data}");
            assert!(
                left >= 7 * data,
                "{per_s}/s: {left} of {data} are no long flood"
            );
            let (asked, left) = flood_at(&mut bench, 500, per_s, 6);
            let factor = left as f64 / asked as f64;
            println!("{per_s} NAKs a second bring {factor:.2} times their bytes");
            assert!(left <= 3 * asked, "{per_s}/s: {asked} bytes brought {left}");
            assert!(
                left > asked / 10,
                "nobody is refused for good: {asked}, {left}"
            );
        }
    });
}

#[test]
fn a_packet_asked_for_again_and_again_is_repaired_eight_times_ever_less_often() {
    let mut bench = Bench::set(&[("elimination_interval", "4ms")]);
    bench.send(3, 1400);
    bench.forget();
    for _ in 0..1000 {
        bench.stranger(addresses().others[0], &nak(&[1]));
        bench.ms(4);
    }
    let repairs = bench.of(PacketType::Rdata);
    let at: Vec<_> = repairs
        .iter()
        .map(|seen| seen.ms() - repairs[0].ms())
        .collect();
    assert_eq!(at, [0, 4, 20, 84, 340, 1340, 2340, 3340]);
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
fn a_host_that_reports_draws_as_much_as_the_data_and_then_what_a_stranger_draws() {
    over_each_kind(|| {
        let mut bench = Bench::new();
        for _ in 0..10 {
            bench.send(1000, 1400);
            bench.ms(20);
        }
        let data = answered(&bench);
        bench.ms(4000);
        bench.forget();
        let mut asked = 0;
        for round in 0..3000 {
            let first = round * 63 % 10_000;
            let nak = nak(&(first..10_000.min(first + 63)).collect::<Vec<_>>());
            asked += nak.len() + addresses().overhead();
            bench.upstream(&nak);
            bench.run_for(Duration::from_secs(1) / 3000);
        }
        // One megabyte beside the data; one second, and what strangers may have at once.
        let as_stranger = 1_100_000 + 2 * 1_250_000;
        let left = answered(&bench);
        assert!(
            left <= data + as_stranger + asked,
            "{data} bytes, {asked} brought {left}"
        );
        assert!(left >= data, "{left} of {data}");
        assert!(bench.source.counters().nak_overdrawn > 0);
        // It may have no room for what it asks for: it keeps its part of the rate for any packet.
        for _ in 0..50 {
            bench.ms(20);
            bench.forget();
            bench.nak(&[5]);
            bench.ms(5);
            assert_eq!(bench.sqns(PacketType::Rdata), [5]);
        }
    });
}

#[test]
fn a_host_that_reports_has_full_service_while_it_loses_less_than_half() {
    let mut bench = Bench::new();
    let mut asked = 0;
    // 70 MB/s, of which the receiver loses three sevenths.
    for round in 0..1000_u32 {
        bench.send(49, 1400);
        let all = round * 49..(round + 1) * 49;
        let sqns: Vec<_> = all.filter(|sqn| sqn % 7 < 3).collect();
        asked += sqns.len();
        bench.nak(&sqns);
        bench.ms(1);
    }
    assert_eq!(bench.of(PacketType::Rdata).len(), asked);
    assert_eq!(bench.source.counters().nak_overdrawn, 0);
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
