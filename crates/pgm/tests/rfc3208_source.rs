//! Conformance of the source with RFC 3208: each test is named after the section it holds to.

mod source_kit;

use std::{net::SocketAddr, time::Duration};

use base::{Arrival, DropReason, Instant, Outcome, Pace, PathId, Socket, Verdict};
use source_kit::{
    BUDGET, Bench, GROUP, OVERHEAD, PORT, RECEIVER, SOURCE, START, TSI, nak, nak_body, upstream,
};
use towline_pgm::{Config, Full, Source, SourceSetup};
use wire::{
    Sqn,
    pgm::{
        Ack, Addressing, Body, Data, Fragment, Header, Mark, Nak, NakList, Packet, PacketType,
        PgmOption, Polr, Profile, Rst, Spm, emit,
    },
};

const WRAPS: [u32; 4] = [0, (1 << 31) - 5, u32::MAX - 5, u32::MAX];

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

#[test]
fn s3_3_the_window_is_empty_at_first() {
    for first in WRAPS {
        let mut bench = Bench::with(Config::builder(), first);
        bench.drain();
        let spm = bench.seen[0].spm().unwrap();
        assert_eq!((spm.trail, spm.lead.next()), (Sqn(first), Sqn(first)));
    }
}

#[test]
fn s3_3_spms_tell_the_edges_of_what_was_sent() {
    for first in WRAPS {
        let mut bench = Bench::paced(100_000, first);
        // More than leaves at once: lead is what was transmitted, not what was submitted.
        bench.send(10, 1000);
        assert_eq!(bench.source.unsent() + 10, bench.source.lead());
        bench.ms(40);
        let sent = bench.sqns(PacketType::Odata).len() as u64;
        assert!((1..10).contains(&sent));
        let first = (1 << 32) + u64::from(first);
        assert_eq!(bench.source.unsent(), first + sent);
        bench.ms(1000);
        let spm = bench.of(PacketType::Spm).last().unwrap().spm().unwrap();
        assert_eq!((spm.trail, spm.lead), (Sqn::of(first), Sqn::of(first + 9)));
    }
}

#[test]
fn s5_1_1_odata_is_numbered_in_the_order_of_submission() {
    for first in WRAPS {
        let mut bench = Bench::with(Config::builder(), first);
        for i in 0..1000_u16 {
            bench.source.offer(&i.to_be_bytes()).unwrap();
        }
        bench.drain();
        let odata = bench.of(PacketType::Odata);
        assert_eq!(odata.len(), 1000);
        for (i, seen) in (0_u16..).zip(odata) {
            assert_eq!(seen.data_sqn(), Some(first.wrapping_add(u32::from(i))));
            assert_eq!(seen.packet().tsdu(), i.to_be_bytes());
        }
    }
}

#[test]
fn s5_1_1_the_rate_covers_spm_odata_rdata_and_ncf() {
    let mut bench = Bench::set(&[("rate", "1MB/s"), ("elimination_interval", "0")]);
    for round in 0..200_u32 {
        bench.flood(Duration::from_millis(5), 500);
        let sent = bench.source.unsent() as u32;
        for sqn in 0..sent.min(20) {
            bench.nak(&[sent - 1 - sqn]);
        }
        if round % 10 == 0 {
            bench.spmr();
        }
    }
    for kind in [
        PacketType::Spm,
        PacketType::Odata,
        PacketType::Rdata,
        PacketType::Ncf,
    ] {
        assert!(!bench.of(kind).is_empty(), "{kind}");
    }
    assert!(bench.excess_bytes(1_000_000) <= bench.longest_run_bytes());
    let second = bench.wire_bytes();
    assert!((990_000..=1_002_000).contains(&second), "{second} bytes");
    let counters = bench.source.counters();
    assert_eq!(counters.wire_bytes, second);
}

#[test]
fn s5_1_2_over_any_interval_the_rate_is_exceeded_by_one_run_at_most() {
    // Odd pairs of rate and packet size, among them those where a thousandth of the rate is just
    // above or below a packet.
    for (rate, len) in [
        (1_500_u64, 1000_usize),
        (12_500, 1448),
        (1_499_999, 1448),
        (1_500_001, 1448),
        (1_501_000, 1448),
        (7_777_777, 611),
        (100_000_000, 1400),
        (100_000_001, 64),
        (1_250_000_000, 1400),
        (12_345_678_901, 1),
    ] {
        let mut bench = Bench::paced(rate, 0);
        let seconds = (200_000 / rate).clamp(1, 100);
        let time = match rate {
            0..10_000_000 => Duration::from_secs(seconds),
            _ => Duration::from_millis(5),
        };
        bench.flood(time, len);
        let longest = bench.longest_run_bytes();
        let excess = bench.excess_bytes(rate);
        // A deadline is a whole nanosecond.
        let allowed = longest + rate.div_ceil(1_000_000_000);
        assert!(excess <= allowed, "{rate}, {len}: {excess} over {longest}");
        let wanted = u128::from(rate) * time.as_nanos() / 1_000_000_000;
        let sent = u128::from(bench.wire_bytes());
        assert!(
            sent + u128::from(2 * longest) >= wanted && sent * 100 >= wanted * 95,
            "{rate}, {len}: {sent} of {wanted} bytes"
        );
    }
}

#[test]
fn s5_1_2_a_late_host_makes_up_for_no_more_than_the_catch_up() {
    let rate = 10_000_000;
    let mut bench = Bench::paced(rate, 0);
    for _ in 0..2000 {
        bench.source.offer(&[7; 1000]).unwrap();
    }
    // Up to 0.7 ms late each time, which a deadline schedule makes good in the long run.
    let time = Duration::from_millis(150);
    bench.run_late(time, |wake| us(wake * 37 % 700));
    let sent = bench.wire_bytes();
    assert!(sent >= rate * 145 / 1000, "{sent} bytes");
    let allowed = bench.longest_run_bytes() + rate / 1000;
    assert!(bench.excess_bytes(rate) <= allowed);
    // A pause of a second is not made good.
    bench.forget();
    bench.now += Duration::from_secs(1);
    let start = bench.now;
    bench.drain();
    let burst: usize = bench.seen.iter().map(source_kit::Seen::on_wire).sum();
    assert!(bench.seen.iter().all(|seen| seen.at == start));
    assert!(burst as u64 <= allowed, "{burst} bytes at once");
}

#[test]
fn s5_1_2_a_run_lasts_a_quantum_of_the_rate() {
    for (rate, len, packets) in [
        (1_000_u64, 1000_usize, 2_usize),
        (10_000_000, 1000, 2),
        (100_000_000, 1000, 23),
        (1_000_000_000, 1000, 62),
        (1_000_000_000, 40, 128),
    ] {
        let mut bench = Bench::paced(rate, 0);
        bench.drain();
        bench.now += Duration::from_secs(1);
        bench.drain();
        bench.forget();
        for _ in 0..200 {
            bench.source.offer(&vec![7; len]).unwrap();
        }
        bench.drain();
        let first = bench.of(PacketType::Odata)[0].run;
        let run = bench.seen.iter().filter(|seen| seen.run == first).count();
        assert_eq!(run, packets, "{rate} bytes/s, {len} bytes");
    }
}

#[test]
fn s5_1_3_ncfs_go_before_spms_and_both_before_data() {
    let mut bench = Bench::new();
    bench.send(3, 100);
    bench.ms(50);
    bench.forget();
    bench.source.offer(&[1; 100]).unwrap();
    bench.spmr();
    bench.nak(&[1]);
    bench.drain();
    assert_eq!(
        bench.kinds(),
        [
            PacketType::Ncf,
            PacketType::Spm,
            PacketType::Rdata,
            PacketType::Odata
        ]
    );
}

#[test]
fn s5_1_3_repairs_and_new_data_share_the_rate() {
    let mut bench = Bench::set(&[
        ("rate", "10MB/s"),
        ("repair_share", "25"),
        ("elimination_interval", "0"),
        ("tx_window_sqns", "4096"),
    ]);
    bench.flood(Duration::from_millis(200), 1000);
    bench.forget();
    for _ in 0..40 {
        // 100 packets in 25 ms are 40 % of the rate, more than repairs may take.
        let unsent = bench.source.unsent() as u32;
        for block in 1..=2 {
            let sqns: Vec<_> = (0..50).map(|i| unsent - block * 50 + i).collect();
            bench.nak(&sqns);
        }
        bench.flood(Duration::from_millis(25), 1000);
    }
    let share = |kind| {
        let bytes: usize = bench.of(kind).iter().map(|seen| seen.on_wire()).sum();
        bytes * 100 / bench.wire_bytes() as usize
    };
    let (rdata, odata) = (share(PacketType::Rdata), share(PacketType::Odata));
    assert!((23..=26).contains(&rdata), "{rdata} % of repairs");
    assert!(odata >= 70, "{odata} % of new data");
    assert!(bench.excess_bytes(10_000_000) <= bench.longest_run_bytes());
}

#[test]
fn s5_1_4_ambient_spms_flow_whatever_the_data() {
    let mut bench = Bench::set(&[("spm_active", "10s"), ("spm_ambient", "10s")]);
    for _ in 0..700 {
        bench.send(1, 100);
        bench.ms(50);
    }
    let spms = bench.of(PacketType::Spm);
    let gaps: Vec<_> = spms.windows(2).map(|w| w[1].ms() - w[0].ms()).collect();
    assert!(gaps.iter().all(|&gap| gap <= 10_000), "{gaps:?}");
    assert!(spms.last().unwrap().ms() > 29_000);
}

#[test]
fn s5_1_5_heartbeats_decay_from_ihb_min_to_ihb_max() {
    let settings = [("spm_heartbeat_min", "100ms"), ("spm_heartbeat_max", "1s")];
    let mut bench = Bench::set(&settings);
    bench.ms(10_000);
    bench.forget();
    bench.send(1, 100);
    let start = bench.now.as_nanos() / 1_000_000;
    bench.ms(6000);
    let times: Vec<_> = bench
        .of(PacketType::Spm)
        .iter()
        .map(|seen| seen.ms() - start)
        .collect();
    // The first tells the new lead at once, the others are heartbeats.
    assert_eq!(times, [0, 100, 300, 700, 1500, 2500, 3500, 4500, 5500]);
}

#[test]
fn s5_1_5_repairs_start_the_heartbeats_over() {
    let settings = [("spm_heartbeat_min", "100ms"), ("spm_heartbeat_max", "1s")];
    let mut bench = Bench::set(&settings);
    bench.send(1, 100);
    bench.ms(10_000);
    bench.forget();
    bench.nak(&[0]);
    let start = bench.now.as_nanos() / 1_000_000;
    bench.ms(1000);
    let times: Vec<_> = bench
        .of(PacketType::Spm)
        .iter()
        .map(|seen| seen.ms() - start)
        .collect();
    assert_eq!(times, [0, 100, 300, 700]);
}

#[test]
fn s5_1_6_an_active_source_sends_spms_every_active_interval() {
    let mut bench = Bench::set(&[("rate", "10MB/s")]);
    bench.flood(Duration::from_millis(500), 1000);
    let spms = bench.of(PacketType::Spm);
    assert!((48..=53).contains(&spms.len()), "{}", spms.len());
    let sqns: Vec<_> = spms.iter().map(|seen| seen.spm().unwrap().sqn).collect();
    assert!(sqns.windows(2).all(|w| w[1] == w[0].next()));
}

#[test]
fn s5_1_6_spms_stay_a_small_part_of_a_low_rate() {
    let mut bench = Bench::set(&[("rate", "12500B/s"), ("mtu", "1500")]);
    bench.flood(Duration::from_secs(20), 1448);
    let spm: usize = bench
        .of(PacketType::Spm)
        .iter()
        .map(|seen| seen.on_wire())
        .sum();
    assert!(
        spm * 15 <= bench.wire_bytes() as usize,
        "{spm} bytes of SPMs"
    );
}

#[test]
fn s5_2_any_nak_is_confirmed_at_once() {
    for first in WRAPS {
        let mut bench = Bench::with(Config::builder(), first);
        bench.send(20, 100);
        bench.forget();
        for i in [0, 7, 19] {
            let sqn = first.wrapping_add(i);
            assert_eq!(bench.nak(&[sqn]), Verdict::Control);
            bench.drain();
            let ncf = bench.of(PacketType::Ncf);
            assert_eq!(ncf.last().unwrap().ncf_sqns(), Some(vec![sqn]));
            assert_eq!(ncf.last().unwrap().at, bench.now);
        }
    }
}

#[test]
fn s5_2_a_nak_behind_the_window_is_confirmed_and_told_the_trail() {
    let mut bench = Bench::set(&[("tx_window_sqns", "16")]);
    for _ in 0..40 {
        bench.send(1, 10);
    }
    bench.ms(100);
    bench.forget();
    assert_eq!(bench.nak(&[0]), Verdict::Control);
    bench.drain();
    assert_eq!(bench.kinds(), [PacketType::Ncf, PacketType::Spm]);
    assert_eq!(bench.seen[1].spm().unwrap().trail, Sqn(24));
    assert_eq!(bench.source.counters().nak_behind, 1);
}

#[test]
fn s5_2_deviation_a_nak_for_data_never_sent_is_not_confirmed() {
    let mut bench = Bench::new();
    bench.send(5, 100);
    bench.forget();
    for sqns in [&[5][..], &[5, 6], &[1 << 30], &[0x7FFF_FFFF]] {
        let verdict = bench.nak(sqns);
        assert_eq!(verdict, Verdict::Drop(DropReason::BeyondWindow), "{sqns:?}");
    }
    bench.drain();
    assert_eq!(bench.kinds(), []);
    assert_eq!(bench.source.counters().nak_beyond, 5);
}

#[test]
fn s5_2_a_nak_storm_costs_bounded_bandwidth() {
    let repairs = ("repair_bytes_per_s_max", "10MB/s");
    let mut bench = Bench::set(&[repairs, ("ncfs_per_s_max", "2000")]);
    bench.send(4000, 1000);
    bench.ms(100);
    bench.forget();
    // 10,000 NAKs a second of 63 entries each, spread over the whole window, for a second.
    for i in 0..10_000_u32 {
        let first = i.wrapping_mul(40_503) % 3900;
        bench.nak(&(first..first + 63).collect::<Vec<_>>());
        bench.run_for(us(100));
    }
    let ncfs = bench.of(PacketType::Ncf).len();
    assert!((1900..=2300).contains(&ncfs), "{ncfs} NCFs");
    let repairs = bench.of(PacketType::Rdata);
    let bytes: usize = repairs.iter().map(|seen| seen.on_wire()).sum();
    assert!(bytes <= 10_200_000, "{bytes} bytes of repairs");
    // Each packet had its turn: the flood for one part of the window did not starve another.
    let mut sqns = bench.sqns(PacketType::Rdata);
    sqns.sort_unstable();
    sqns.dedup();
    assert!(sqns.len() > 3900, "{} packets repaired", sqns.len());
    let counters = bench.source.counters();
    assert_eq!(counters.naks, 10_000);
    assert_eq!(
        counters.nak_sqns,
        counters.nak_queued + counters.nak_merged + counters.nak_eliminated + counters.nak_refused
    );
    assert!(counters.ncf_suppressed > 0);
}

#[test]
fn s5_3_every_confirmed_nak_in_the_window_is_repaired() {
    for first in WRAPS {
        let mut bench = Bench::with(Config::builder(), first);
        bench.send(20, 100);
        bench.forget();
        let wanted = [3, 4, 11].map(|i| first.wrapping_add(i));
        bench.nak(&wanted);
        bench.drain();
        assert_eq!(bench.sqns(PacketType::Rdata), wanted);
    }
}

#[test]
fn s5_3_a_repair_equals_the_original() {
    let mut bench = Bench::new();
    let mut message = vec![0_u8; 3000];
    for (i, byte) in message.iter_mut().enumerate() {
        *byte = (i * 7 % 256) as u8;
    }
    bench.source.offer(&message).unwrap();
    bench.source.offer(&message[..101]).unwrap();
    bench.source.offer(&[]).unwrap();
    bench.drain();
    let count = bench.sqns(PacketType::Odata).len() as u32;
    bench.nak(&(0..count).collect::<Vec<_>>());
    bench.drain();
    let (odata, rdata) = (bench.of(PacketType::Odata), bench.of(PacketType::Rdata));
    assert_eq!(odata.len(), rdata.len());
    for (original, repair) in odata.iter().zip(&rdata) {
        let (original, repair) = (original.packet(), repair.packet());
        assert_eq!(original.tsdu(), repair.tsdu());
        assert!(original.options().eq(repair.options()));
        assert_eq!(original.header().tsdu_len, repair.header().tsdu_len);
        assert_eq!(original.header().flags, repair.header().flags);
    }
}

#[test]
fn s5_3_successive_naks_for_one_packet_bring_a_repair_each() {
    let mut bench = Bench::set(&[("elimination_interval", "4ms")]);
    bench.send(3, 100);
    bench.forget();
    for _ in 0..1000 {
        bench.nak(&[1]);
        bench.ms(4);
    }
    assert_eq!(bench.sqns(PacketType::Rdata), [1; 1000]);
    assert_eq!(bench.of(PacketType::Ncf).len(), 1000);
}

#[test]
fn s5_3_naks_from_the_whole_loss_neighbourhood_bring_one_repair() {
    let mut bench = Bench::set(&[("elimination_interval", "4ms")]);
    bench.send(3, 100);
    bench.forget();
    for _ in 0..30 {
        bench.nak(&[1]);
        bench.run_for(us(100));
    }
    assert_eq!(bench.sqns(PacketType::Rdata), [1]);
    assert_eq!(bench.source.counters().nak_eliminated, 29);
    bench.ms(2);
    bench.nak(&[1]);
    bench.drain();
    assert_eq!(bench.sqns(PacketType::Rdata), [1, 1]);
}

#[test]
fn s5_3_a_packet_that_waits_for_repair_stays_in_the_window() {
    let mut bench = Bench::set(&[("tx_window_sqns", "64"), ("rate", "100kB/s")]);
    bench.flood(Duration::from_secs(1), 100);
    let trail = bench.source.trail();
    bench.nak(&[trail as u32]);
    bench.forget();
    // New data is taken only as far as the window goes beyond the packet that waits.
    while bench.source.offer(&[1; 100]).is_ok() {}
    assert_eq!(bench.source.trail(), trail);
    bench.flood(Duration::from_secs(1), 100);
    assert_eq!(bench.sqns(PacketType::Rdata), [trail as u32]);
    assert!(bench.source.trail() > trail);
}

#[test]
fn s8_ports_and_identifier_are_those_of_the_session() {
    let mut bench = Bench::new();
    bench.send(2, 10);
    bench.nak(&[0]);
    bench.ms(20);
    assert_eq!(bench.of(PacketType::Rdata).len(), 1);
    for seen in &bench.seen {
        let packet = seen.packet();
        assert_eq!(packet.header().tsi(), TSI);
        assert_eq!(packet.header().destination_port, PORT);
    }
}

#[test]
fn s8_1_an_spm_carries_the_source_address_as_path() {
    let mut bench = Bench::new();
    bench.drain();
    assert_eq!(bench.seen[0].spm().unwrap().path_nla, SOURCE);
}

#[test]
fn s8_1_addresses_may_be_ipv6() {
    let [own, group] = ["2001:db8::1", "ff15::1"].map(|text| text.parse().unwrap());
    let setup = SourceSetup {
        tsi: TSI,
        destination_port: PORT,
        group: SocketAddr::new(group, PORT),
        nla: own,
        path: PathId(0),
        first_sqn: 0,
        seed: 1,
        mark: Some(Mark::new(Profile::Messages, 1)),
    };
    let config = Config::builder().send_join(true).build().unwrap();
    let mut source = Source::new(config, setup, START);
    assert_eq!(source.max_tsdu(), 1428);
    for _ in 0..64 {
        source.offer(&[1; 100]).unwrap();
    }
    let send_all = |source: &mut Source| {
        let mut seen = Vec::new();
        while let Some(run) = source.poll_run(START, BUDGET) {
            let bytes: Vec<_> = run.datagrams().map(<[u8]>::to_vec).collect();
            let datagrams = bytes.len();
            seen.extend(bytes);
            source.run_done(START, Outcome::Sent { datagrams });
        }
        seen
    };
    let seen = send_all(&mut source);
    let Body::Spm(spm) = Packet::parse(&seen[0]).unwrap().body() else {
        panic!("not an SPM");
    };
    assert_eq!(spm.path_nla, own);
    let nak = Nak {
        sqn: Sqn(0),
        source_nla: own,
        group_nla: group,
    };
    let list: Vec<_> = (1..63).map(Sqn).collect();
    let options = [PgmOption::NakList(NakList::new(&list))];
    let arrival = Arrival::from(SocketAddr::new(own, 9), Socket::Upstream);
    let bytes = upstream(&Body::Nak(nak), &options);
    let verdict = source.handle(START, &arrival, &bytes);
    assert_eq!(verdict, Verdict::Control);
    let seen = send_all(&mut source);
    let ncf = Packet::parse(&seen[0]).unwrap();
    assert_eq!(ncf.body(), Body::Ncf(nak));
    assert_eq!((ncf.bytes().len(), seen.len()), (316, 64));
}

#[test]
fn s8_1_our_own_option_is_last_and_dated() {
    let mut bench = Bench::set(&[("send_join", "true")]);
    bench.now = Instant::from_nanos(100_123_456_789);
    let pace = Pace::of(1000);
    bench.source.set_announced(pace, 7, Mark::NO_RECEIVER);
    bench.drain();
    let options: Vec<_> = bench.seen[0].packet().options().collect();
    let [PgmOption::Join(_), PgmOption::Mark(mark)] = options[..] else {
        panic!("{options:?}");
    };
    assert_eq!((mark.tx_time_us, mark.session_id), (100_123_456, 42));
    assert_eq!((mark.announced_pace, mark.receiver_count), (pace, 7));
}

#[test]
fn s8_1_a_strict_source_sends_no_option_that_the_rfc_does_not_define() {
    let mut bench = Bench::set(&[("strict_pgm", "true")]);
    bench.drain();
    assert_eq!(bench.seen[0].packet().options().count(), 0);
    assert_eq!(bench.seen[0].bytes.len(), 36);
}

#[test]
fn s8_2_the_trail_of_rdata_is_the_present_one() {
    let mut bench = Bench::set(&[("tx_window_sqns", "16")]);
    for _ in 0..20 {
        bench.send(1, 10);
    }
    bench.nak(&[10]);
    bench.drain();
    let rdata = bench.of(PacketType::Rdata);
    let Body::Rdata(data) = rdata[0].packet().body() else {
        panic!("not RDATA");
    };
    assert_eq!(data.trail, Sqn(4));
    let odata = bench.of(PacketType::Odata);
    let Body::Odata(data) = odata[10].packet().body() else {
        panic!("not ODATA");
    };
    assert_eq!(data.trail, Sqn(0));
}

#[test]
fn s8_3_a_nak_must_name_our_address_and_our_group() {
    let mut bench = Bench::new();
    bench.send(3, 10);
    bench.forget();
    let ours = nak_body(1);
    for (source_nla, group_nla) in [(RECEIVER, GROUP), (SOURCE, SOURCE), (GROUP, SOURCE)] {
        let nak = Nak {
            source_nla,
            group_nla,
            ..ours
        };
        for body in [Body::Nak(nak), Body::Nnak(nak)] {
            let verdict = bench.upstream(&upstream(&body, &[]));
            assert_eq!(verdict, Verdict::Drop(DropReason::NotForUs));
        }
    }
    assert_eq!(bench.nak(&[1]), Verdict::Control);
    bench.drain();
    assert_eq!(bench.kinds(), [PacketType::Ncf, PacketType::Rdata]);
}

#[test]
fn s8_3_the_ports_of_upstream_packets_are_swapped() {
    let mut bench = Bench::new();
    bench.send(3, 10);
    bench.forget();
    for addressing in [
        Addressing::downstream(TSI, PORT),
        Addressing::upstream(TSI, PORT + 1),
    ] {
        for body in [Body::Nak(nak_body(1)), Body::Spmr] {
            let mut bytes = Vec::new();
            emit(&mut bytes, &addressing, &body, &[], &[]);
            let verdict = bench.upstream(&bytes);
            assert_eq!(verdict, Verdict::Drop(DropReason::NotForUs));
        }
    }
    bench.drain();
    assert_eq!(bench.kinds(), []);
}

#[test]
fn s8_3_a_null_nak_brings_no_repair() {
    let mut bench = Bench::new();
    bench.send(3, 10);
    bench.forget();
    let nnak = upstream(&Body::Nnak(nak_body(1)), &[]);
    assert_eq!(bench.upstream(&nnak), Verdict::Control);
    bench.drain();
    assert_eq!(bench.kinds(), []);
    assert_eq!(bench.source.counters().nnaks, 1);
}

#[test]
fn s8_what_is_wrong_or_not_for_a_source_is_dropped_for_a_reason() {
    let mut bench = Bench::new();
    bench.send(3, 10);
    let own = bench.of(PacketType::Odata)[0].bytes.clone();
    let mut bad_sum = nak(&[1]);
    bad_sum[Header::CHECKSUM_AT] ^= 0xFF;
    let mut foreign = own.clone();
    foreign[8] ^= 1;
    let mut unknown = own.clone();
    unknown[Header::TYPE_AT] = 0x0F;
    let polr = upstream(
        &Body::Polr(Polr {
            sqn: Sqn(0),
            round: 0,
        }),
        &[],
    );
    let ack = upstream(
        &Body::Ack(Ack {
            rx_max: Sqn(0),
            bitmap: 1,
        }),
        &[],
    );
    let cases = [
        (&own[..], DropReason::Looped),
        (&own[..10], DropReason::Truncated),
        (&[], DropReason::Truncated),
        (&nak(&[1])[..30], DropReason::Truncated),
        (&bad_sum, DropReason::BadChecksum),
        (&foreign, DropReason::NotForUs),
        (&unknown, DropReason::UnknownType),
        (&polr, DropReason::Stale),
        (&ack, DropReason::Unexpected),
    ];
    for (bytes, reason) in cases {
        assert_eq!(bench.upstream(bytes), Verdict::Drop(reason));
    }
    let counters = bench.source.counters();
    assert_eq!(counters.upstream_packets, cases.len() as u64);
    assert_eq!(bench.source.drops().total(), cases.len() as u64);
}

#[test]
fn s9_2_2_a_long_message_is_cut_into_fragments() {
    let mut bench = Bench::with(Config::builder(), u32::MAX);
    let message: Vec<_> = (0..5000_u32).map(|i| (i % 251) as u8).collect();
    let first = bench.source.offer(&message).unwrap();
    bench.drain();
    let odata = bench.of(PacketType::Odata);
    assert_eq!(odata.len(), 5000_usize.div_ceil(1428));
    let mut offset = 0;
    for seen in odata {
        let packet = seen.packet();
        let options: Vec<_> = packet.options().collect();
        let expected = Fragment {
            first: Sqn::of(first),
            offset: offset as u32,
            apdu_len: 5000,
        };
        assert_eq!(options, [PgmOption::Fragment(expected)]);
        assert_eq!(
            packet.tsdu(),
            &message[offset..offset + packet.tsdu().len()]
        );
        assert!(seen.on_wire() <= 1500);
        offset += packet.tsdu().len();
    }
    assert_eq!(offset, 5000);
}

#[test]
fn s9_2_2_a_message_that_fits_one_packet_has_no_fragment_option() {
    let mut bench = Bench::new();
    assert_eq!(bench.source.max_tsdu(), 1448);
    assert_eq!(bench.source.max_fragment_tsdu(), 1428);
    bench.send(1, 1448);
    bench.send(1, 1449);
    let odata = bench.of(PacketType::Odata);
    let lens: Vec<_> = odata
        .iter()
        .map(|seen| (seen.packet().tsdu().len(), seen.packet().options().count()))
        .collect();
    assert_eq!(lens, [(1448, 0), (1428, 1), (21, 1)]);
    assert_eq!(odata[0].bytes.len() + OVERHEAD, 1500);
}

#[test]
fn s9_2_2_the_bound_of_a_message_has_a_name() {
    for settings in [
        ("apdu_bytes_max", "20000"),
        ("fragments_max", "10"),
        ("tx_window_sqns", "64"),
        ("tx_window_bytes", "64KiB"),
    ] {
        assert_eq!(Bench::set(&[settings]).source.apdu_limit(), settings.0);
    }
}

#[test]
fn s9_2_2_messages_beyond_the_bounds_are_refused_whole() {
    let settings = [("apdu_bytes_max", "20000"), ("fragments_max", "10")];
    let mut bench = Bench::set(&settings);
    let max = 14_280;
    assert_eq!(bench.source.max_apdu(), max);
    assert_eq!(bench.source.apdu_limit(), "fragments_max");
    let refused = bench.source.offer(&vec![0; max + 1]);
    assert_eq!(refused, Err(Full::TooLong { max }));
    bench.send(1, max);
    assert_eq!(bench.sqns(PacketType::Odata).len(), 10);
}

#[test]
fn s9_3_4_the_ncf_repeats_the_list_of_the_nak() {
    let mut bench = Bench::new();
    bench.send(200, 10);
    bench.forget();
    let full: Vec<_> = (0..126).step_by(2).collect();
    for list in [&[1, 2, 3][..], &[9], &full] {
        bench.nak(list);
        bench.drain();
        let ncf = bench.of(PacketType::Ncf);
        assert_eq!(ncf.last().unwrap().ncf_sqns().as_deref(), Some(list));
        let Body::Ncf(body) = ncf.last().unwrap().packet().body() else {
            panic!("not an NCF");
        };
        assert_eq!((body.source_nla, body.group_nla), (SOURCE, GROUP));
    }
    let mut repaired = bench.sqns(PacketType::Rdata);
    repaired.sort_unstable();
    let mut wanted: Vec<_> = [1, 3, 9].into_iter().chain(full).collect();
    wanted.sort_unstable();
    assert_eq!(repaired, wanted);
}

#[test]
fn s9_4_spms_offer_the_window_to_late_joiners() {
    let mut bench = Bench::set(&[("send_join", "true"), ("tx_window_sqns", "16")]);
    for _ in 0..20 {
        bench.send(1, 10);
    }
    bench.ms(20);
    let spms = bench.of(PacketType::Spm);
    let joins: Vec<_> = spms
        .last()
        .unwrap()
        .packet()
        .options()
        .filter_map(|option| match option {
            PgmOption::Join(join) => Some(join.min),
            _ => None,
        })
        .collect();
    assert_eq!(joins, [Sqn(4)]);
}

#[test]
fn s9_6_2_syn_marks_the_first_data_and_its_repair_only() {
    for len in [100, 3000] {
        let mut bench = Bench::set(&[("send_syn", "true")]);
        bench.send(3, len);
        bench.nak(&[0, 1]);
        bench.drain();
        let mut marked = Vec::new();
        for seen in &bench.seen {
            if seen.packet().options().any(|o| o == PgmOption::Syn) {
                marked.push((seen.kind(), seen.data_sqn()));
            }
            assert!(seen.on_wire() <= 1500);
        }
        assert_eq!(
            marked,
            [(PacketType::Odata, Some(0)), (PacketType::Rdata, Some(0))]
        );
    }
}

#[test]
fn s9_6_2_syn_leaves_room_in_bursts_too() {
    let mut bench = Bench::set(&[("send_syn", "true")]);
    let mut burst = bench.source.reserve_burst(50, 4).unwrap();
    for index in 0..4 {
        burst.slot(index).fill(index as u8);
    }
    burst.commit();
    bench.drain();
    let tsdus: Vec<_> = bench
        .of(PacketType::Odata)
        .iter()
        .map(|seen| seen.packet().tsdu().to_vec())
        .collect();
    assert_eq!(tsdus, [[0; 50], [1; 50], [2; 50], [3; 50]]);
}

#[test]
fn s9_7_2_every_spm_after_the_last_odata_carries_fin() {
    let mut bench = Bench::set(&[("linger", "2s"), ("rate", "100kB/s")]);
    bench.ms(1000);
    for _ in 0..10 {
        bench.source.offer(&[7; 1000]).unwrap();
    }
    bench.forget();
    bench.source.close(bench.now);
    assert_eq!(bench.source.offer(&[1]), Err(Full::Closed));
    bench.ms(60);
    // Data is still leaving: no FIN yet.
    assert!(!bench.source.is_drained());
    bench.ms(3000);
    let is_fin = |seen: &&source_kit::Seen| seen.packet().options().any(|o| o == PgmOption::Fin);
    let last_odata = bench
        .seen
        .iter()
        .rposition(|seen| seen.kind() == PacketType::Odata)
        .unwrap();
    let (before, after) = bench.seen.split_at(last_odata);
    let spms = after.iter().filter(|seen| seen.spm().is_some());
    let spms: Vec<_> = spms.collect();
    assert!(spms.len() > 5 && spms.iter().all(is_fin));
    assert!(!before.iter().any(|seen| is_fin(&seen)));
    let lead = spms.last().unwrap().spm().unwrap().lead;
    assert_eq!(lead, Sqn(9));
}

#[test]
fn s9_7_2_three_fins_in_quick_succession_then_naks_are_answered_until_the_end() {
    let mut bench = Bench::set(&[("linger", "2s")]);
    bench.send(5, 100);
    bench.ms(5000);
    bench.forget();
    let start = bench.now.as_nanos() / 1_000_000;
    bench.source.close(bench.now);
    bench.ms(30);
    let times: Vec<_> = bench.seen.iter().map(|seen| seen.ms() - start).collect();
    assert_eq!(times[..4], [0, 5, 10, 15]);
    bench.nak(&[2]);
    bench.drain();
    assert_eq!(bench.sqns(PacketType::Rdata), [2]);
    assert!(!bench.source.is_over());
    bench.ms(2000);
    assert!(bench.source.is_over());
    assert_eq!(bench.source.next_timeout(), None);
    bench.forget();
    let verdict = bench.nak(&[2]);
    assert_eq!(verdict, Verdict::Drop(DropReason::Ended));
    bench.ms(20_000);
    assert_eq!(bench.kinds(), []);
}

#[test]
fn s9_8_2_a_session_broken_off_after_its_end_was_announced_says_so_at_once() {
    let mut bench = Bench::set(&[("linger", "60s")]);
    bench.send(1, 1000);
    bench.source.close(bench.now);
    bench.ms(5_000);
    bench.forget();
    bench.source.abort(bench.now, 0, false);
    bench.ms(20);
    let spms = bench.of(PacketType::Spm);
    assert!(spms.len() >= 3);
    let is_reset = |option| matches!(option, PgmOption::Rst(_));
    for spm in spms {
        assert!(spm.packet().options().any(is_reset));
    }
}

#[test]
fn s9_8_2_an_aborted_session_says_so_in_every_spm() {
    for repairs in [true, false] {
        let mut bench = Bench::set(&[("rate", "100kB/s"), ("linger", "1s")]);
        bench.send(20, 1000);
        bench.ms(50);
        let sent = bench.sqns(PacketType::Odata).len() as u32;
        assert!(sent < 20);
        bench.forget();
        bench.source.abort(bench.now, 5, repairs);
        assert_eq!(bench.source.offer(&[1]), Err(Full::Closed));
        bench.ms(100);
        let expected = PgmOption::Rst(Rst {
            is_deaf: !repairs,
            reason: 5,
        });
        let spms = bench.of(PacketType::Spm);
        assert!(spms.len() > 3);
        for spm in spms {
            assert_eq!(spm.spm().unwrap().lead.next(), Sqn(sent));
            assert!(spm.packet().options().any(|option| option == expected));
        }
        assert_eq!(bench.sqns(PacketType::Odata), []);
        let verdict = bench.nak(&[1]);
        assert_eq!(verdict == Verdict::Control, repairs);
        bench.ms(1000);
        assert!(bench.source.is_over());
        assert_eq!(bench.sqns(PacketType::Rdata).len(), usize::from(repairs));
    }
}

#[test]
fn s13_4_an_spmr_is_answered_at_once_and_once_an_interval() {
    let mut bench = Bench::new();
    bench.ms(5000);
    bench.forget();
    bench.ms(1);
    for _ in 0..500 {
        assert_eq!(bench.spmr(), Verdict::Control);
        bench.run_for(us(100));
    }
    // 50 ms of requests at an interval of 5 ms.
    let spms = bench.of(PacketType::Spm);
    assert!((10..=11).contains(&spms.len()), "{}", spms.len());
    assert!(spms.windows(2).all(|w| w[1].at.since(w[0].at) >= us(5000)));
    assert_eq!(bench.source.counters().spmrs, 500);
}

#[test]
fn s16_2_only_new_data_moves_the_trail() {
    let mut bench = Bench::set(&[("tx_window_sqns", "64")]);
    for _ in 0..50 {
        bench.send(1, 10);
    }
    bench.ms(60_000);
    let trail = bench.source.trail();
    assert_eq!(bench.source.lead() - trail, 50);
    for _ in 0..200 {
        bench.send(1, 10);
    }
    assert_eq!(bench.source.lead() - bench.source.trail(), 64);
    assert!(bench.source.trail() > trail);
}

#[test]
fn s16_4_the_application_can_hold_the_trail() {
    let mut bench = Bench::set(&[("tx_window_sqns", "64")]);
    let first = bench.source.lead();
    bench.source.set_hold(Some(first + 3));
    let mut taken = 0;
    while bench.source.offer(&[1; 10]).is_ok() {
        taken += 1;
        bench.drain();
    }
    assert_eq!(taken, 64 + 3);
    assert_eq!(bench.source.trail(), first + 3);
    bench.source.set_hold(Some(first + 4));
    assert!(bench.source.offer(&[1; 10]).is_ok());
    assert_eq!(bench.source.offer(&[1; 10]), Err(Full::Window));
    bench.source.set_hold(None);
    assert!(bench.source.offer(&[1; 10]).is_ok());
}

#[test]
fn s8_1_no_packet_of_the_window_is_claimed_before_it_was_sent() {
    let mut bench = Bench::set(&[("rate", "1MB/s")]);
    bench.flood(Duration::from_millis(300), 700);
    let mut sent = Sqn(0);
    for seen in &bench.seen {
        match seen.packet().body() {
            Body::Odata(Data { sqn, .. }) => sent = sqn.next(),
            Body::Spm(Spm { lead, .. }) => assert_eq!(lead.next(), sent),
            _ => {}
        }
    }
}
