//! What the network may send without harm: malformed, forged, far too much. Nothing panics, memory
//! stays bounded, and the real session goes on.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod receiver_kit;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use base::{CounterSet as _, DropReason, Rng, Verdict};
use receiver_kit::{
    Bench, Event, NEIGHBOUR, TSI, addresses, data, downstream_of, dropped, joined, joined_with,
    made, nak_like, odata, over_each_kind, spm,
};
use towline_pgm::{Config, Mode, Told};
use wire::{
    Sqn, checksum,
    object::StreamPhase,
    pgm::{Body, Flags, Gsi, PgmOption, Rst, Tsi, emit_flagged},
};

/// Makes the checksum of `packet` right, whatever the rest holds.
fn with_checksum(mut packet: Vec<u8>) -> Vec<u8> {
    packet[6..8].fill(0);
    let check = checksum::finish(checksum::sum(&packet));
    packet[6..8].copy_from_slice(&check.to_be_bytes());
    packet
}

fn stranger(number: u32) -> Tsi {
    let [a, b, c, d] = number.to_be_bytes();
    Tsi {
        gsi: Gsi([0xEE, 0, a, b, c, d]),
        port: 99,
    }
}

/// Sends on for `count` packets and sees that they come out.
fn goes_on(bench: &mut Bench, first: u32, count: u32) {
    bench.take_events();
    for sqn in first..first + count {
        bench.odata(sqn, b"real");
    }
    let texts = bench.take_texts();
    assert!(texts.iter().all(|text| text == "real"), "{texts:?}");
    assert_eq!(texts.len(), count as usize);
    bench.assert_accounts();
}

#[test]
fn packets_that_are_none_are_dropped_with_their_reason() {
    let mut bench = joined(Mode::Sequence, 10);
    let good = odata(11, 10, &[], b"payload");
    let mut other_port = made(&downstream_of(TSI), &Body::Odata(data(11, 10)), &[], b"x");
    other_port[3] ^= 1;
    let mut no_checksum = good.clone();
    no_checksum[6..8].fill(0);
    let mut bad_checksum = good.clone();
    bad_checksum[30] ^= 1;
    let mut version = good.clone();
    version[4] |= 0x40;
    for (what, packet, reason) in [
        ("empty", vec![], DropReason::Truncated),
        ("15 bytes", good[..15].to_vec(), DropReason::Truncated),
        (
            "header only",
            with_checksum(good[..16].to_vec()),
            DropReason::Truncated,
        ),
        (
            "cut short",
            with_checksum(good[..30].to_vec()),
            DropReason::Truncated,
        ),
        (
            "another port",
            with_checksum(other_port),
            DropReason::NotForUs,
        ),
        ("no checksum", no_checksum, DropReason::NoChecksum),
        ("bad checksum", bad_checksum, DropReason::BadChecksum),
        ("version 1", with_checksum(version), DropReason::UnknownType),
    ] {
        assert_eq!(bench.packet(&packet), dropped(reason), "{what}");
    }
    goes_on(&mut bench, 11, 10);
}

#[test]
fn an_option_of_length_zero_is_malformed() {
    let mut bench = joined(Mode::Sequence, 10);
    let mut packet = odata(11, 10, &[PgmOption::Fin], b"payload");
    // Header 16, body 8, OPT_LENGTH 4: the length byte of the first option.
    packet[29] = 0;
    let verdict = bench.packet(&with_checksum(packet));
    assert_eq!(verdict, dropped(DropReason::Malformed));
    goes_on(&mut bench, 11, 10);
}

#[test]
fn what_another_address_sends_with_the_tsi_does_not_reach_the_session() {
    over_each_kind(|| {
        let mut bench = joined(Mode::Sequence, 10);
        let ncf = nak_like(Body::Ncf, false, &[11]);
        let verdict = bench.packet_from(addresses().others[0], &ncf);
        assert_eq!(verdict, dropped(DropReason::WrongSource));
        let reset = PgmOption::Rst(Rst {
            is_deaf: true,
            reason: 0,
        });
        for packet in [
            odata(11, 10, &[], b"forged"),
            spm(9000, 10, 10, &[reset]),
            spm(9001, 1 << 30, 1 << 30, &[]),
            ncf,
        ] {
            bench.packet_from(addresses().others[0], &packet);
        }
        assert_eq!(bench.receiver.counters().sessions_shared, 1);
        assert_eq!(bench.receiver.position(0).unwrap().missing, 0);
        goes_on(&mut bench, 11, 10);
    });
}

#[test]
fn who_repeats_a_tsi_first_does_not_keep_its_sender_away() {
    over_each_kind(|| {
        for is_joined in [false, true] {
            let mut bench = Bench::new(Mode::Sequence);
            let forged = spm(9000, 500, 600, &[]);
            if is_joined {
                bench.packet(&spm(1, 10, 10, &[]));
            }
            for _ in 0..10 {
                bench.packet_from(addresses().others[0], &forged);
            }
            bench.packet(&spm(2, 10, 10, &[]));
            for sqn in 11..30 {
                let verdict = bench.odata(sqn, b"real");
                assert!(!matches!(verdict, Verdict::Drop(_)), "{verdict:?}");
            }
            let counters = bench.receiver.counters();
            assert_eq!((counters.sessions_found, counters.sessions_shared), (2, 1));
            assert_eq!(counters.odata_packets, 19);
        }
    });
}

#[test]
fn one_forged_spm_with_a_far_lead_costs_little_and_loses_nothing() {
    for mode in [Mode::Sequence, Mode::Arrival] {
        for lead in [100_000, 1 << 20, (1 << 31) + 5] {
            let config = Config::builder()
                .nak_ncf_retries(2)
                .repair_time_max(Duration::from_millis(100));
            let mut bench = joined_with(mode, config, 10);
            bench.packet(&spm(u32::MAX / 2, 10, lead, &[]));
            let position = bench.receiver.position(0).unwrap();
            assert!(position.missing <= 1 << 20);
            goes_on(&mut bench, 11, 100);
            bench.pass(Duration::from_secs(20));
            goes_on(&mut bench, 111, 100);
            let lost = bench.receiver.counters().lost_sqns;
            assert_eq!(
                (lost, bench.receiver.drops().total()),
                (0, 0),
                "{mode:?} {lead}"
            );
            // The request for what was never sent is bounded in its rate, and ends.
            bench.pass(Duration::from_secs(60));
            bench.take_sent();
        }
    }
}

#[test]
fn a_lead_told_once_is_asked_for_a_list_at_a_time() {
    let mut bench = joined(Mode::Sequence, 10);
    // So much has come that many requests may be sent.
    for sqn in 11..211 {
        bench.odata(sqn, &[7; 1400]);
    }
    bench.packet(&spm(u32::MAX / 2, 10, 100_000, &[]));
    bench.pass_ms(9);
    // The same 63, however often the back-off ends: one forged packet must not become thousands.
    let asked = bench.take_naks();
    assert!(asked.iter().all(|&sqn| sqn < 211 + 63), "{asked:?}");
    assert!(!asked.is_empty());
    // The next packet that tells it makes it certain.
    bench.packet(&spm(u32::MAX / 2 + 1, 10, 100_000, &[]));
    bench.pass_ms(20);
    assert!(bench.take_naks().len() > 1_000);
}

#[test]
fn one_forged_trail_loses_nothing() {
    for trail in [500, 900_000, 1 << 30] {
        let mut bench = joined(Mode::Sequence, 10);
        bench.packet(&spm(4000, trail, trail, &[]));
        goes_on(&mut bench, 11, 10);
        bench.packet(&odata(trail + 7, trail, &[], b"forged"));
        let events = bench.take_events();
        assert!(!events.iter().any(|event| matches!(event, Event::Lost(..))));
        goes_on(&mut bench, 21, 10);
    }
}

#[test]
fn a_sender_that_really_moved_on_is_followed() {
    for mode in [Mode::Sequence, Mode::Arrival] {
        let mut bench = joined(mode, 10);
        // Silent for a while: three million packets went by, 50,000 can be repaired.
        bench.trail = 3_000_000;
        bench.spm(3_050_000, &[]);
        bench.odata(3_050_001, b"x");
        bench.odata(3_050_002, b"x");
        let events = bench.take_events();
        let lost = (1 << 32) + 11;
        assert!(
            events.contains(&Event::Lost(lost, 3_000_000 - 11)),
            "{events:?}"
        );
        let position = bench.receiver.position(0).unwrap();
        assert_eq!(position.contiguous, (1 << 32) + 3_000_000);
        bench.pass_ms(5);
        assert_eq!(bench.take_naks()[..3], [3_000_000, 3_000_001, 3_000_002]);
    }
}

#[test]
fn requests_are_bounded_however_much_is_missing() {
    let mut bench = joined(Mode::Sequence, 10);
    bench.odata(1_000_000, b"far");
    bench.spm(1_000_000, &[]);
    let sent = |bench: &mut Bench| bench.take_sent().len();
    bench.pass_ms(1);
    let mut most = 0;
    for _ in 0..50 {
        bench.pass_ms(1);
        most = most.max(sent(&mut bench));
    }
    assert!(most <= 3 * 64, "{most} NAKs in a millisecond");
}

#[test]
fn a_million_forged_sessions_leave_the_real_one_alone() {
    let mut bench = joined(Mode::Sequence, 10);
    goes_on(&mut bench, 11, 20);
    let forger = IpAddr::V4(Ipv4Addr::new(10, 6, 6, 6));
    let mut sqn = 31;
    for number in 0..1_000_000_u32 {
        let addressing = downstream_of(stranger(number));
        let body = match number % 3 {
            0 => Body::Odata(data(number, number)),
            _ => Body::Rdata(data(number, 0)),
        };
        bench.packet_from(forger, &made(&addressing, &body, &[], b"forged"));
        if number % 1000 == 0 {
            bench.events.clear();
            bench.odata(sqn, b"real");
            assert!(matches!(&bench.events[..], [Event::Message(_, data)] if data == b"real"));
            sqn += 1;
            bench.pass(Duration::from_micros(100));
        }
    }
    assert_eq!(bench.receiver.sessions().count(), 64);
    let counters = bench.receiver.counters();
    assert_eq!(counters.sessions_evicted, 1_000_001 - 64);
    assert!(bench.receiver.held_memory_bytes() < 64 * 65_536);
    bench.assert_accounts();
}

#[test]
fn a_new_session_under_attack_finds_its_place() {
    let mut bench = Bench::new(Mode::Sequence);
    for number in 0..100_000_u32 {
        let addressing = downstream_of(stranger(number));
        let body = Body::Odata(data(7, 7));
        bench.packet_from(NEIGHBOUR, &made(&addressing, &body, &[], b"forged"));
        if number % 30 == 0 {
            bench.events.clear();
            bench.odata(number / 30, b"real");
            assert!(matches!(bench.events.last(), Some(Event::Message(..))));
        }
    }
    let position = bench.receiver.sessions().find_map(|session| {
        let position = bench.receiver.position(session).unwrap();
        (position.tsi == TSI).then_some(position)
    });
    assert_eq!(position.unwrap().contiguous, (1 << 32) + 99_999 / 30 + 1);
}

/// Sends `count` data packets of the session with this number from `host`: 20 prove it.
fn send_of(bench: &mut Bench, host: IpAddr, number: u32, sqns: std::ops::Range<u32>) -> Verdict {
    let addressing = downstream_of(stranger(number));
    let mut verdict = dropped(DropReason::PeerLimit);
    for sqn in sqns {
        let packet = made(&addressing, &Body::Odata(data(sqn, 0)), &[], b"x");
        verdict = bench.packet_from(host, &packet);
    }
    verdict
}

/// The numbers of the sessions of `host` that are not over.
fn sessions_of(bench: &Bench, host: IpAddr) -> Vec<Tsi> {
    let all = bench.receiver.sessions();
    let all = all.map(|session| bench.receiver.position(session).unwrap());
    all.filter(|at| at.source == host)
        .map(|at| at.tsi)
        .collect()
}

#[test]
fn a_host_with_more_than_its_share_of_proven_sessions_makes_room_for_other_hosts() {
    over_each_kind(|| {
        let mut bench = Bench::with(Mode::Sequence, Config::builder().peers_max(8));
        let [greedy, late] = addresses().others;
        for number in 0..8 {
            send_of(&mut bench, greedy, number, 0..20);
        }
        assert_eq!(
            sessions_of(&bench, greedy).len(),
            8,
            "as long as nobody else comes"
        );
        bench.take_events();
        // The sender's first packet finds a place; no flood of the greedy host takes it back.
        assert_eq!(bench.spm(9, &[]), Verdict::Control);
        for number in 100..1000 {
            let verdict = send_of(&mut bench, greedy, number, 0..1);
            assert_eq!(verdict, dropped(DropReason::PeerLimit));
        }
        bench.odata(11, b"second");
        bench.rdata(10, b"first");
        let texts = bench.take_texts();
        assert_eq!(texts, ["expired", "found", "first", "second"]);
        goes_on(&mut bench, 12, 20);
        // Its share, a quarter, stays with the greedy host, whatever another one sends.
        for number in 200..210 {
            send_of(&mut bench, late, number, 0..20);
        }
        let counts = [greedy, late, addresses().source].map(|it| sessions_of(&bench, it).len());
        assert_eq!(
            counts,
            [5, 2, 1],
            "a host takes from others until it has its share"
        );
        bench.assert_accounts();
    });
}

#[test]
fn of_a_host_with_more_than_its_share_what_was_found_last_goes_first() {
    let mut bench = Bench::with(Mode::Sequence, Config::builder().peers_max(4));
    let greedy = addresses().others[0];
    for number in 0..4 {
        send_of(&mut bench, greedy, number, 0..20);
        bench.pass_ms(1);
    }
    let vouched = bench.receiver.sessions().last().unwrap();
    bench.receiver.vouch(vouched);
    // The first may be the only genuine one. It is heard less than those that were forged.
    for number in 1..4 {
        send_of(&mut bench, greedy, number, 20..21);
    }
    bench.spm(9, &[]);
    let left = sessions_of(&bench, greedy);
    assert_eq!(left, [stranger(0), stranger(1), stranger(3)]);
}

#[test]
fn a_network_of_many_addresses_with_proven_sessions_leaves_a_quarter_to_others() {
    let mut bench = Bench::with(Mode::Sequence, Config::builder().peers_max(8));
    let near = |number: u32| IpAddr::from(Ipv6Addr::from(0xfd << 120 | u128::from(number)));
    for number in 0..8 {
        send_of(&mut bench, near(number), number, 0..20);
    }
    for (number, host) in ["fd00:0:0:1::1", "10.0.0.9", "10.0.0.10"]
        .iter()
        .enumerate()
    {
        let verdict = send_of(
            &mut bench,
            host.parse().unwrap(),
            100 + number as u32,
            0..20,
        );
        let is_taken = verdict != dropped(DropReason::PeerLimit);
        assert_eq!(is_taken, number < 2, "{host}");
        for number in 200..300 {
            let verdict = send_of(&mut bench, near(number), number, 0..1);
            assert_eq!(verdict, dropped(DropReason::PeerLimit));
        }
    }
}

#[test]
fn proven_sessions_within_the_share_of_their_host_are_kept_and_others_refused() {
    over_each_kind(|| {
        let mut bench = Bench::with(Mode::Sequence, Config::builder().peers_max(2));
        let [second, third] = addresses().others;
        let first = addresses().source;
        send_of(&mut bench, first, 1, 0..20);
        send_of(&mut bench, second, 2, 0..20);
        for host in [first, second, third] {
            let verdict = send_of(&mut bench, host, 3, 1..2);
            assert_eq!(verdict, dropped(DropReason::PeerLimit), "{host}");
        }
        bench.pass(Duration::from_secs(31));
        bench.take_events();
        send_of(&mut bench, third, 3, 1..2);
        assert!(matches!(bench.take_events()[..], [Event::Found(tsi), _] if tsi == stranger(3)));
    });
}

#[test]
fn a_session_vouched_for_outlives_a_flood_before_its_first_data() {
    for is_vouched_for in [true, false] {
        let mut bench = Bench::with(Mode::Sequence, Config::builder().peers_max(8));
        bench.spm(9, &[]);
        let session = bench.receiver.sessions().next().unwrap();
        if is_vouched_for {
            bench.receiver.vouch(session);
        }
        // Each with another address: sessions of one host take the places of its own sessions.
        for number in 0..100 {
            let forged = downstream_of(stranger(number));
            let body = Body::Odata(data(7, 7));
            let forger = IpAddr::V4(Ipv4Addr::new(10, 6, 6, number as u8));
            bench.packet_from(forger, &made(&forged, &body, &[], b"forged"));
        }
        bench.take_events();
        // The first packet is lost: only who was there from the start knows.
        bench.odata(11, b"second");
        bench.rdata(10, b"first");
        let texts = bench.take_texts();
        let is_whole = texts == ["first", "second"];
        assert_eq!(is_whole, is_vouched_for, "{texts:?}");
    }
}

#[test]
fn an_evicted_session_is_reported_before_its_number_is_used_again() {
    let config = Config::builder().peers_max(1);
    let mut bench = Bench::with(Mode::Sequence, config);
    bench.odata(10, b"a");
    let second = downstream_of(stranger(1));
    bench.packet(&made(&second, &Body::Odata(data(5, 5)), &[], b"b"));
    assert_eq!(bench.take_texts(), ["found", "a", "expired", "found", "b"]);
}

#[test]
fn what_arrives_out_of_order_is_held_within_its_bound() {
    let config = Config::builder()
        .apdu_bytes_max(1000)
        .rx_window_bytes(1 << 20)
        .rx_total_bytes(1 << 20);
    let mut bench = joined_with(Mode::Sequence, config, 10);
    let payload = [b'x'; 1000];
    let mut held = 0;
    for sqn in 12..5000 {
        held += u64::from(bench.odata(sqn, &payload) == Verdict::Held);
    }
    assert!((900..1049).contains(&held), "{held}");
    assert!(bench.receiver.held_memory_bytes() <= 1 << 20);
    assert_eq!(bench.receiver.drops().no_room, 4988 - held);
    // While there is no room only what is due first is asked for; then the rest is.
    bench.spm(4999, &[]);
    bench.pass_ms(10);
    assert_eq!(bench.take_naks(), [11]);
    bench.rdata(11, &payload);
    assert_eq!(bench.take_events().len() as u64, held + 1);
    bench.pass_ms(10);
    assert_eq!(bench.take_naks()[0] as u64, 12 + held);
}

#[test]
fn alternate_losses_beyond_the_bound_of_gaps_are_recovered() {
    let config = Config::builder().rx_gaps_max(100);
    for mode in [Mode::Sequence, Mode::Arrival] {
        let mut bench = joined_with(mode, config, 0);
        for sqn in (2..2000).step_by(2) {
            bench.odata(sqn, b"x");
        }
        bench.spm(1999, &[]);
        let mut given = bench.take_events().len();
        for _ in 0..400 {
            bench.pass_ms(5);
            for sqn in bench.take_naks() {
                bench.rdata(sqn, b"x");
            }
            given += bench.take_events().len();
        }
        assert_eq!(given, 1999);
        assert!(bench.receiver.drops().no_room > 0);
    }
}

#[test]
fn ncfs_for_every_other_packet_split_gaps_up_to_the_bound_only() {
    let config = Config::builder().rx_gaps_max(64);
    let mut bench = joined_with(Mode::Sequence, config, 0);
    bench.odata(5000, b"x");
    for first in (1..4900).step_by(126) {
        let sqns: Vec<_> = (first..first + 126).step_by(2).collect();
        assert_eq!(bench.ncf(&sqns), Verdict::Control);
        bench.heard_nak(&sqns);
    }
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.receiver.position(0).unwrap().missing, 4999);
}

#[test]
fn parity_naks_and_ncfs_are_left_alone() {
    let mut bench = joined(Mode::Sequence, 10);
    bench.odata(12, b"c");
    let mut packet = Vec::new();
    let ncf = nak_like(Body::Ncf, false, &[11]);
    let body = wire::pgm::Packet::parse(&ncf).unwrap().body();
    let addressing = downstream_of(TSI);
    emit_flagged(&mut packet, &addressing, Flags::PARITY, &body, &[], &[]);
    assert_eq!(bench.packet(&packet), dropped(DropReason::Unexpected));
    bench.pass_ms(5);
    assert_eq!(bench.take_naks(), [11]);
}

/// Random bytes with a valid checksum, most of them behind a valid header: nothing may panic.
#[test]
fn random_bytes_do_no_harm() {
    let mut rng = Rng::new(5);
    for mode in [Mode::Sequence, Mode::Arrival] {
        let mut bench = joined(mode, 10);
        for round in 0..200_000 {
            let mut packet = vec![0; usize::try_from(rng.between(8, 90)).unwrap()];
            rng.fill(&mut packet);
            let kind = [0, 1, 2, 4, 5, 8, 9, 10, 12, 13][rng.below(10) as usize];
            let head = made(&downstream_of(TSI), &Body::Odata(data(0, 0)), &[], &[]);
            if packet.len() >= 24 && !rng.chance(1, 10) {
                packet[..16].copy_from_slice(&head[..16]);
                packet[4] = kind;
                packet[5] = [0, 1, 0x81, 0x80][rng.below(4) as usize];
                let tsdu_len = rng.below(40) as u16;
                packet[14..16].copy_from_slice(&tsdu_len.to_be_bytes());
            }
            bench.packet(&with_checksum(packet));
            if round % 100 == 0 {
                bench.events.clear();
                bench.pass_ms(rng.below(50));
            }
        }
        bench.assert_accounts();
        assert!(bench.receiver.counters().value_of("seen_packets") >= Some(200_000));
    }
}

#[test]
fn a_gap_that_never_closes_stops_the_window_at_its_span() {
    let config = Config::builder().rx_window_sqns(1024);
    for mode in [Mode::Sequence, Mode::Arrival] {
        let mut bench = joined_with(mode, config, 10);
        goes_on(&mut bench, 11, 9);
        for sqn in 21..20 + 1024 {
            assert_ne!(bench.odata(sqn, b"x"), dropped(DropReason::BeyondWindow));
        }
        let verdict = bench.odata(20 + 1024, b"x");
        assert_eq!(verdict, dropped(DropReason::BeyondWindow));
        bench.rdata(20, b"x");
        goes_on(&mut bench, 20 + 1024, 1);
    }
}

/// A sender that has sent packets 10 to `lead`, in its own words.
const fn said(lead: u32, phase: StreamPhase) -> Told {
    Told {
        trail: Sqn(10),
        end: Sqn(lead + 1),
        phase,
    }
}

/// What a forger says: where the session ends, that it is broken off, that repairs are over, and
/// that far more was sent.
fn forgeries() -> [(&'static str, Vec<Vec<u8>>); 5] {
    let reset = PgmOption::Rst(Rst {
        is_deaf: true,
        reason: 0,
    });
    let trail = |n| odata(10, 100_000, &[], if n == 0 { b"a" } else { b"b" });
    [
        ("fin", vec![spm(9000, 10, 12, &[PgmOption::Fin])]),
        ("reset", vec![spm(9000, 10, 12, &[reset])]),
        ("trail", vec![trail(0), trail(1)]),
        (
            "trail of SPMs",
            vec![spm(9000, 5_000, 5_000, &[]), spm(9001, 5_000, 5_000, &[])],
        ),
        (
            "lead",
            (0..3).map(|n| spm(9000 + n, 10, 500_000, &[])).collect(),
        ),
    ]
}

#[test]
fn what_costs_data_waits_for_the_senders_own_word() {
    for mode in [Mode::Sequence, Mode::Arrival] {
        for (what, packets) in forgeries() {
            let mut bench = joined(mode, 10);
            bench.receiver.check_claims(0, true);
            bench.odata(12, b"a gap is open");
            for packet in &packets {
                bench.packet(packet);
            }
            assert_eq!(bench.receiver.is_doubtful(0), what != "lead", "{what}");
            bench.odata(13, b"still taken");
            bench.receiver.told(0, &said(13, StreamPhase::Open));
            bench.pop();
            assert!(!bench.receiver.is_doubtful(0), "{what}");
            bench.rdata(11, b"repaired");
            let mut texts = bench.take_texts();
            texts.sort();
            let all = ["a gap is open", "repaired", "still taken"];
            assert_eq!(texts, all, "{what} {mode:?}");
            let at = bench.receiver.position(0).unwrap();
            assert_eq!((at.missing, at.arrived.lost), (0, 0), "{what} {mode:?}");
            goes_on(&mut bench, 14, 10);
        }
    }
}

#[test]
fn the_senders_own_word_ends_a_session_and_without_one_packets_are_believed() {
    let last = |bench: &mut Bench| bench.take_events().pop();
    for (what, packets) in &forgeries()[..2] {
        let (phase, event) = match *what {
            "fin" => (StreamPhase::Ended, Event::Ended),
            _ => (StreamPhase::BrokenOff, Event::Reset),
        };
        for way in 0..3 {
            let mut bench = joined(Mode::Sequence, 10);
            bench.receiver.check_claims(0, true);
            bench.odata(11, b"one");
            bench.odata(12, b"two");
            bench.packet(&packets[0]);
            assert_ne!(last(&mut bench), Some(event.clone()), "{what}");
            match way {
                0 => bench.receiver.told(0, &said(12, phase)),
                1 => bench.receiver.believe_claims(0),
                _ => bench.receiver.check_claims(0, false),
            }
            bench.pop();
            assert_eq!(last(&mut bench), Some(event.clone()), "{what} {way}");
        }
    }
}
