//! What a receiver sends to a host that it knows from packets alone, which anybody can forge.

mod receiver_kit;

use std::time::Duration;

use base::Verdict;
use receiver_kit::{
    Bench, TSI, addresses, downstream_of, joined, joined_with, made, odata, over_each_kind, spm,
};
use towline_pgm::{Config, LateJoin, Mode};
use wire::{
    Sqn,
    pgm::{Body, Poll, Spm},
};

fn spm_of(sqn: u32, trail: u32, lead: u32, path_nla: std::net::IpAddr) -> Body {
    Body::Spm(Spm {
        sqn: Sqn(sqn),
        trail: Sqn(trail),
        lead: Sqn(lead),
        path_nla,
    })
}

/// Everything that the bench sent to one host, with headers; what has one hop stays in the group.
fn sent_bytes(bench: &mut Bench) -> usize {
    let sent = bench.take_sent();
    let unicast = sent.iter().filter(|sent| !sent.to.ip().is_multicast());
    unicast
        .map(|sent| sent.bytes.len() + addresses().overhead())
        .sum()
}

/// A session of twenty packets of one byte, whose SPMs announce a million more, an SPM each
/// `every_ms` for `seconds`. Returns the bytes that came and those that the source's host got.
fn announce_a_million(every_ms: Option<u64>, seconds: u64) -> (usize, usize) {
    let mut bench = Bench::new(Mode::Sequence);
    let mut came = 0;
    let mut next_spm = 1;
    let mut take = |bench: &mut Bench, packet: Vec<u8>| {
        came += packet.len() + addresses().overhead();
        bench.packet(&packet);
    };
    take(&mut bench, spm(next_spm, 1, 0, &[]));
    for sqn in 1..=20 {
        take(&mut bench, odata(sqn, 1, &[], b"x"));
    }
    for _ in 0..2 {
        next_spm += 1;
        take(&mut bench, spm(next_spm, 1, 1_000_020, &[]));
    }
    let step = every_ms.unwrap_or(1000 * seconds);
    for _ in 0..1000 * seconds / step {
        bench.pass_ms(step);
        if every_ms.is_some() {
            next_spm += 1;
            take(&mut bench, spm(next_spm, 1, 1_000_020, &[]));
        }
    }
    (came, sent_bytes(&mut bench))
}

#[test]
fn a_forged_lead_brings_its_source_at_most_three_times_its_bytes() {
    over_each_kind(|| {
        for (every_ms, seconds) in [(None, 33), (Some(1000), 30), (Some(50), 10)] {
            let (came, sent) = announce_a_million(every_ms, seconds);
            assert!(sent > 0, "it asks");
            assert!(sent <= 3 * came, "{came} bytes brought {sent}");
        }
    });
}

/// As receivers ask the path NLA, an SPM that names another host must not make them ask that one.
#[test]
fn a_path_nla_that_is_another_host_brings_that_host_nothing() {
    over_each_kind(|| {
        let mut bench = joined(Mode::Sequence, 100);
        let victim = addresses().others[1];
        for number in 0..5 {
            let body = spm_of(7_000 + number, 90, 5_000, victim);
            bench.packet(&made(&downstream_of(TSI), &body, &[], &[]));
            bench.pass_ms(500);
        }
        let sent = bench.take_sent();
        assert!(!sent.is_empty(), "it asks the source");
        assert!(sent.iter().all(|sent| sent.to.ip() != victim), "{victim}");
    });
}

#[test]
fn data_without_an_spm_brings_its_source_at_most_its_bytes() {
    over_each_kind(|| {
        let mut bench = Bench::new(Mode::Sequence);
        let packet = odata(7, 1, &[], b"x");
        bench.packet(&packet);
        bench.pass_ms(20_000);
        let sent = sent_bytes(&mut bench);
        assert!(sent <= packet.len() + addresses().overhead(), "{sent}");
    });
}

#[test]
fn polls_bring_their_source_replies_of_no_more_than_their_bytes() {
    over_each_kind(|| {
        let mut bench = Bench::new(Mode::Sequence);
        let mut came = 0;
        let mut take = |bench: &mut Bench, packet: Vec<u8>| {
            came += packet.len() + addresses().overhead();
            bench.packet(&packet);
        };
        take(&mut bench, spm(1, 1, 0, &[]));
        take(&mut bench, odata(1, 1, &[], b"x"));
        for number in 1..=1_000 {
            let poll = Body::Poll(Poll {
                sqn: Sqn(number),
                round: 0,
                sub_type: Poll::GENERAL,
                path_nla: addresses().source,
                back_off_us: 1_000,
                random: 0,
                mask: 0,
            });
            take(&mut bench, made(&downstream_of(TSI), &poll, &[], &[]));
            bench.pass_ms(2);
        }
        assert!(bench.receiver.counters().polr_packets > 900, "it replies");
        let sent = sent_bytes(&mut bench);
        assert!(sent <= came, "{came} bytes brought {sent}");
    });
}

#[test]
fn who_never_answers_is_asked_ever_less_often() {
    let mut bench = joined(Mode::Sequence, 100);
    for sqn in 101..1100 {
        bench.odata(sqn, &[7; 1400]);
    }
    bench.take_events();
    for lead in [2000, 2000] {
        bench.spm(lead, &[]);
    }
    bench.pass_ms(10_000);
    let asked: Vec<_> = bench.take_sent().iter().map(|sent| sent.at).collect();
    assert!(asked.len() < 500, "{} NAKs in 10 s", asked.len());
    let last = asked.windows(2).next_back().unwrap();
    assert!(
        last[1].since(last[0]) <= Duration::from_secs(2),
        "it goes on"
    );
}

#[test]
fn credit_does_not_limit_one_whose_sender_answers() {
    // A receiver that begins at the window's oldest packet lacks all 20,000 at first.
    let config = Config::builder().late_join(LateJoin::Window);
    let mut bench = joined_with(Mode::Sequence, config, 0);
    for lead in [20_000, 20_000] {
        bench.spm(lead, &[]);
    }
    let mut turns = 0;
    let mut repaired = 0;
    while repaired < 20_000 {
        turns += 1;
        assert!(turns < 3000, "{repaired} repaired");
        bench.pass_ms(1);
        for sqn in bench.take_naks() {
            bench.ncf(&[sqn]);
            // Messages of 20 bytes: small ones bring least.
            if bench.rdata(sqn, &[7; 20]) != Verdict::Drop(base::DropReason::Duplicate) {
                repaired += 1;
            }
        }
    }
    assert!(turns < 200, "{turns} ms");
}

#[test]
fn of_files_only_a_sender_that_was_taken_is_asked() {
    let mut bench = Bench::new(Mode::Arrival);
    bench.receiver.ask_known_only();
    bench.spm(99, &[]);
    bench.odata(100, b"a");
    bench.odata(110, b"b");
    bench.pass_ms(3000);
    assert!(bench.take_sent().is_empty());
    bench.receiver.vouch(0);
    bench.pass_ms(100);
    assert!(!bench.take_naks().is_empty());
}
