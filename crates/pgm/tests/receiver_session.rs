//! Sessions as their owner sees them: events, positions, marks, numbers, addresses.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod receiver_kit;

use std::{
    net::{IpAddr, SocketAddr, SocketAddrV6},
    time::Duration,
};

use base::{Arrival, Budget, DropReason, Instant, Outcome, Pace, PathId, Socket, Verdict};
use receiver_kit::{
    Bench, Event, GROUP, NEIGHBOUR, OWN, PORT, SOURCE, TSI, data, downstream, downstream_of,
    dropped, joined, joined_with, made, odata, spm,
};
use towline_pgm::{Config, Mode, Ready, Receiver, ReceiverSetup, Status};
use wire::{
    Sqn,
    pgm::{Body, Gsi, Mark, PgmOption, Profile, Rst, Spm, Tsi},
};

const FIRST: u64 = 1 << 32;

#[test]
fn a_mark_is_told_when_it_is_new_or_changed() {
    let mut bench = Bench::new(Mode::Sequence);
    let mut mark = Mark::new(Profile::Messages, 77);
    bench.spm(9, &[PgmOption::Mark(mark)]);
    bench.spm(9, &[PgmOption::Mark(mark)]);
    assert_eq!(bench.take_texts(), ["found", "mark"]);
    mark.announced_pace = Pace::of(5);
    bench.spm(9, &[PgmOption::Mark(mark)]);
    assert_eq!(bench.take_events(), [Event::Mark(mark)]);
    assert_eq!(bench.receiver.position(0).unwrap().mark, Some(mark));
    bench.spm(9, &[]);
    assert!(
        bench.take_events().is_empty(),
        "an SPM without a mark takes none back"
    );
}

/// Where the NAK goes of a receiver that lacks 10, after an SPM of `path_nla` with `mark`.
fn asked_after(path_nla: IpAddr, mark: Mark) -> SocketAddr {
    let config = Config::builder().network_elements(true);
    let mut bench = joined_with(Mode::Sequence, config, 10);
    let body = Body::Spm(Spm {
        sqn: Sqn(bench.spm_sqn + 1),
        trail: Sqn(10),
        lead: Sqn(12),
        path_nla,
    });
    let options = [PgmOption::Mark(mark)];
    bench.packet(&made(&downstream(), &body, &options, &[]));
    bench.pass_ms(1_000);
    bench.take_sent()[0].to
}

#[test]
fn nothing_is_taken_or_asked_for_of_a_protected_sender_before_its_owner_vouches_for_it() {
    let mut bench = Bench::protected(Mode::Sequence);
    bench.trail = 10;
    assert_eq!(bench.odata(10, b"a"), dropped(DropReason::Unproven));
    assert_eq!(
        bench.receiver.sessions().count(),
        0,
        "data alone shows no sender"
    );
    bench.spm(9, &[PgmOption::Mark(Mark::new(Profile::Messages, 7))]);
    assert_eq!(bench.take_texts(), ["mark"], "its owner alone hears of it");
    assert_eq!(bench.odata(10, b"a"), dropped(DropReason::Unproven));
    bench.spm(11, &[]);
    bench.pass_ms(500);
    assert!(
        bench.take_naks().is_empty(),
        "what was missed is not asked for"
    );
    bench.receiver.vouch(0);
    bench.pass_ms(500);
    assert_eq!(bench.take_naks()[..2], [10, 11]);
    bench.rdata(10, b"a");
    bench.rdata(11, b"b");
    assert_eq!(bench.take_texts(), ["found", "a", "b"]);
    bench.assert_accounts();
}

#[test]
fn an_old_protected_session_that_is_played_again_is_never_shown() {
    let mark = PgmOption::Mark(Mark::new(Profile::Messages, 7));
    let reset = Rst {
        is_deaf: false,
        reason: 0,
    };
    for last in [PgmOption::Fin, PgmOption::Rst(reset)] {
        let mut bench = Bench::protected(Mode::Sequence);
        bench.spm(9, &[mark]);
        bench.spm(9, &[last, mark]);
        assert_eq!(bench.take_texts(), ["mark"]);
        for _ in 0..40 {
            bench.pass_ms(1_000);
        }
        assert_eq!(
            bench.take_texts(),
            [""; 0],
            "it is forgotten without a word"
        );
        assert_eq!(bench.receiver.sessions().count(), 0);
    }
}

#[test]
fn a_source_with_a_port_of_its_own_is_asked_there() {
    let told = |upstream_port| Mark {
        upstream_port,
        ..Mark::new(Profile::Messages, 77)
    };
    let own = asked_after(SOURCE, told(40_001));
    assert_eq!(own, (SOURCE, 40_001).into());
    // As of every sender that says nothing about it.
    assert_eq!(asked_after(SOURCE, told(0)), (SOURCE, PORT).into());
    // Nobody is made to send to the services of a host, or to any port of another one.
    assert_eq!(asked_after(SOURCE, told(53)), (SOURCE, PORT).into());
    let behind = asked_after(NEIGHBOUR, told(40_001));
    assert_eq!(behind, (NEIGHBOUR, PORT).into());
    // What another version says there means something else.
    let other = Mark {
        version: 0x20,
        ..told(40_001)
    };
    assert_eq!(asked_after(SOURCE, other), (SOURCE, PORT).into());
}

#[test]
fn only_the_latest_of_marks_not_yet_popped_is_told() {
    let mut bench = Bench::new(Mode::Sequence);
    let arrival = Arrival::from(SocketAddr::new(SOURCE, 1), Socket::Group);
    for rate in 1..4 {
        let mut mark = Mark::new(Profile::Objects, 77);
        mark.announced_pace = Pace::of(rate);
        let packet = spm(rate as u32, 0, 9, &[PgmOption::Mark(mark)]);
        bench.receiver.handle(bench.now, &arrival, &packet);
    }
    let events = bench.take_events();
    assert!(
        matches!(events[..], [Event::Found(_), Event::Mark(m)] if m.announced_pace == Pace::of(3))
    );
}

#[test]
fn data_stays_in_order_when_the_owner_pops_late() {
    let mut bench = joined(Mode::Sequence, 10);
    let arrival = Arrival::from(SocketAddr::new(SOURCE, 1), Socket::Group);
    for sqn in [12, 11, 13, 14] {
        let packet = odata(sqn, 10, &[], &[sqn as u8]);
        let verdict = bench.receiver.handle(bench.now, &arrival, &packet);
        let is_payload = matches!(verdict, Verdict::Payload { .. });
        assert_eq!(is_payload, sqn == 11, "{sqn}");
    }
    let events = bench.take_events();
    let sqns = events.iter().map(|event| match event {
        Event::Message(sqn, _) => sqn - FIRST,
        other => panic!("{other:?}"),
    });
    assert_eq!(sqns.collect::<Vec<_>>(), [12, 13, 14]);
}

#[test]
fn a_position_tells_where_a_session_stands() {
    let mut bench = joined(Mode::Sequence, 10);
    bench.odata(13, b"four");
    let position = bench.receiver.position(0).unwrap();
    assert_eq!(
        (position.contiguous, position.lead),
        (FIRST + 11, FIRST + 13)
    );
    assert_eq!((position.missing, position.held_bytes), (2, 4));
    assert_eq!((position.source, position.path_nla), (SOURCE, Some(SOURCE)));
    assert_eq!(position.trail, FIRST + 10);
    assert!(matches!(bench.receiver.status(), Status::TimerPending(_)));
    assert_eq!(bench.receiver.position(1), None);
}

#[test]
fn a_session_that_ended_still_has_its_last_position() {
    let mut bench = joined(Mode::Sequence, 10);
    bench.spm(10, &[PgmOption::Fin]);
    assert_eq!(bench.take_texts(), ["ended"]);
    assert_eq!(bench.receiver.position(0).unwrap().contiguous, FIRST + 11);
    assert_eq!(bench.receiver.sessions().count(), 0);
    bench.pass(Duration::from_secs(31));
    assert_eq!(
        bench.receiver.position(0),
        None,
        "remembered only while its packets come"
    );
    assert!(bench.take_events().is_empty());
    assert_eq!(bench.receiver.next_timeout(), None);
}

#[test]
fn a_forgotten_session_is_ignored_until_it_falls_silent() {
    let mut bench = joined(Mode::Sequence, 10);
    bench.odata(12, b"held");
    bench.receiver.forget(0);
    assert_eq!(bench.receiver.held_memory_bytes(), 0);
    for sqn in 11..20 {
        assert_eq!(bench.odata(sqn, b"x"), dropped(DropReason::Ended));
        bench.pass(Duration::from_secs(20));
    }
    assert_eq!(bench.spm(19, &[]), dropped(DropReason::Ended));
    assert!(bench.take_texts().is_empty() && bench.take_sent().is_empty());
    bench.pass(Duration::from_secs(31));
    bench.odata(20, b"again");
    assert_eq!(bench.take_texts(), ["found", "again"]);
}

#[test]
fn session_numbers_are_small_and_used_again_after_the_end() {
    let mut bench = Bench::new(Mode::Sequence);
    for round in 0..10 {
        for number in 0..3 {
            let tsi = Tsi {
                gsi: Gsi([round; 6]),
                port: number,
            };
            let body = Body::Odata(data(7, 7));
            bench.packet(&made(&downstream_of(tsi), &body, &[], b"x"));
        }
        let sessions: Vec<_> = bench.receiver.sessions().collect();
        assert_eq!(sessions, [0, 1, 2]);
        bench.pass(Duration::from_secs(31));
    }
}

#[test]
fn a_sender_that_counts_its_spms_anew_is_believed_after_a_while() {
    let mut bench = joined(Mode::Sequence, 10);
    bench.spm_sqn = 5;
    let accepted = |verdict| verdict == Verdict::Control;
    let count = (0..10).position(|_| accepted(bench.spm(10, &[]))).unwrap();
    assert_eq!(count, 7);
    assert_eq!(bench.spm(10, &[]), Verdict::Control);
}

#[test]
fn data_that_an_spm_overtook_is_not_lost() {
    let mut bench = Bench::new(Mode::Sequence);
    bench.trail = 100;
    bench.spm(105, &[]);
    for sqn in [104, 105, 106] {
        bench.odata(sqn, &[b'a' + (sqn - 104) as u8]);
    }
    assert_eq!(bench.take_texts(), ["found", "a", "b", "c"]);
    // A repair for another receiver begins nothing.
    let mut other = Bench::new(Mode::Sequence);
    other.trail = 100;
    other.spm(160, &[]);
    assert_eq!(other.rdata(101, b"old"), dropped(DropReason::Duplicate));
}

#[test]
fn numbers_wrap_without_a_trace() {
    for mode in [Mode::Sequence, Mode::Arrival] {
        for start in [u32::MAX - 20, (1 << 31) - 20] {
            let mut bench = joined(mode, start);
            for i in 1..40_u32 {
                let sqn = start.wrapping_add(i);
                bench.trail = sqn.wrapping_sub(5);
                if i % 7 == 0 {
                    bench.odata(sqn.wrapping_add(1), b"x");
                    bench.rdata(sqn, b"x");
                } else if i % 7 != 1 || i == 1 {
                    bench.odata(sqn, b"x");
                }
            }
            let position = bench.receiver.position(0).unwrap();
            assert_eq!(position.contiguous, FIRST + u64::from(start) + 40);
            assert_eq!(bench.receiver.drops().total(), 0);
        }
    }
}

/// Over IPv6 a link-local path NLA is reached through the interface that its SPM came by.
#[test]
fn naks_over_ipv6_leave_by_the_interface_of_the_spm() {
    let group: IpAddr = "ff15::1".parse().unwrap();
    let source = "fe80::1".parse().unwrap();
    let now = Instant::from_nanos(5);
    let setup = ReceiverSetup {
        mode: Mode::Sequence,
        destination_port: PORT,
        group: SocketAddr::new(group, PORT),
        path: PathId(0),
        seed: 1,
        is_protected: false,
        own_nla: "fe80::2".parse().unwrap(),
    };
    let mut receiver = Receiver::new(Config::default(), setup, now);
    let mut arrival = Arrival::from(SocketAddrV6::new(source, 9, 0, 42).into(), Socket::Group);
    arrival.path = PathId(3);
    let body = Body::Spm(Spm {
        sqn: Sqn(1),
        trail: Sqn(0),
        lead: Sqn(u32::MAX),
        path_nla: source.into(),
    });
    let spm = made(&downstream(), &body, &[], &[]);
    assert_eq!(receiver.handle(now, &arrival, &spm), Verdict::Control);
    receiver.handle(now, &arrival, &odata(1, 0, &[], b"b"));
    let due = now + Duration::from_millis(5);
    receiver.handle_timeout(due);
    let budget = Budget {
        bytes: 1000,
        datagrams: 9,
    };
    let run = receiver.poll_run(due, budget).unwrap();
    assert_eq!(run.to, SocketAddrV6::new(source, PORT, 0, 42).into());
    assert_eq!((run.path, run.len()), (PathId(3), 60));
    assert!(matches!(receiver.pop_ready(), Some(Ready::Found { .. })));
}

/// What is not taken stays first in line; what the network refuses is asked for again later.
#[test]
fn requests_wait_while_the_socket_is_full() {
    let mut bench = joined_with(Mode::Sequence, Config::builder(), 0);
    bench.odata(130, b"x");
    bench.now += Duration::from_millis(5);
    bench.receiver.handle_timeout(bench.now);
    let budget = Budget {
        bytes: 64_000,
        datagrams: 10,
    };
    let count = |bench: &mut Bench| {
        let run = bench.receiver.poll_run(bench.now, budget);
        run.map_or(0, |run| run.datagram_count())
    };
    assert_eq!(
        count(&mut bench),
        3,
        "two full lists and a shorter one are one run"
    );
    bench.receiver.run_done(bench.now, Outcome::Blocked);
    assert_eq!(count(&mut bench), 3);
    bench
        .receiver
        .run_done(bench.now, Outcome::Sent { datagrams: 2 });
    assert_eq!(count(&mut bench), 1);
    bench.receiver.run_done(bench.now, Outcome::Failed);
    assert_eq!(count(&mut bench), 0);
    bench.pass_ms(20);
    assert_eq!(bench.take_naks().len(), 129);
}

#[test]
fn packets_for_another_group_on_the_same_port_are_not_ours() {
    let mut bench = joined(Mode::Sequence, 10);
    let mut arrival = Arrival::from(SocketAddr::new(SOURCE, 1), Socket::Group);
    arrival.destination = "239.1.2.3".parse().unwrap();
    let packet = odata(11, 10, &[], b"b");
    let verdict = bench.receiver.handle(bench.now, &arrival, &packet);
    assert_eq!(verdict, dropped(DropReason::NotForUs));
    for destination in [GROUP, OWN] {
        arrival.destination = destination;
        let verdict = bench.receiver.handle(bench.now, &arrival, &packet);
        assert_ne!(verdict, dropped(DropReason::NotForUs));
    }
}

#[test]
fn upstream_packets_of_kinds_for_sources_are_not_expected() {
    let mut bench = joined(Mode::Sequence, 10);
    for body in [
        Body::Polr(wire::pgm::Polr {
            sqn: Sqn(1),
            round: 1,
        }),
        Body::Nnak(receiver_kit::nak_body(11)),
    ] {
        let packet = made(&receiver_kit::upstream(), &body, &[], &[]);
        assert_eq!(bench.packet(&packet), dropped(DropReason::Unexpected));
    }
}

/// Nothing that a sender announced vanishes with it in silence.
#[test]
fn a_tail_announced_once_is_lost_when_its_sender_is_gone() {
    let config = Config::builder()
        .nak_ncf_retries(2)
        .repair_time_max(Duration::from_millis(100));
    let mut bench = joined_with(Mode::Sequence, config, 10);
    bench.spm(13, &[]);
    bench.pass(Duration::from_secs(20));
    assert!(bench.take_texts().is_empty(), "it may still come");
    bench.pass(Duration::from_secs(11));
    assert_eq!(bench.take_texts(), ["-3", "expired"]);
}

#[test]
fn each_session_counts_what_it_missed_asked_for_and_was_repaired() {
    let mut bench = joined(Mode::Arrival, 10);
    for sqn in [13, 15] {
        bench.odata(sqn, b"data");
    }
    bench.pass_ms(1_000);
    for sqn in [11, 12] {
        bench.rdata(sqn, b"repair");
    }
    let other = Tsi { port: 99, ..TSI };
    let clean = made(
        &downstream_of(other),
        &Body::Odata(data(40, 40)),
        &[],
        b"other",
    );
    bench.packet(&clean);

    let lossy = bench.receiver.position(0).unwrap().arrived;
    assert_eq!((lossy.packets, lossy.missed, lossy.repairs), (5, 3, 2));
    let asked = bench.receiver.counters().nak_sqns;
    assert!(asked >= 3, "{asked}");
    assert_eq!(lossy.repairs_asked, asked);
    let clean = bench.receiver.position(1).unwrap().arrived;
    let suffered = (clean.missed, clean.repairs_asked, clean.repairs);
    assert_eq!((clean.packets, suffered), (1, (0, 0, 0)));
}

#[test]
fn what_arrives_counts_with_the_headers_of_its_ip_version() {
    for (source, headers) in [("10.0.0.1", 20 + 8 + 24), ("fd00::1", 40 + 8 + 24)] {
        let mut bench = Bench::new(Mode::Arrival);
        let source = source.parse().unwrap();
        for sqn in [10, 11] {
            bench.packet_from(source, &odata(sqn, 0, &[], b"0123456789"));
        }
        let at = bench.receiver.position(0).unwrap();
        assert_eq!(at.bytes_with_headers(), 2 * (headers + 10), "{source}");
    }
}
