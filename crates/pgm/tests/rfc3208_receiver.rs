//! What RFC 3208 asks of receivers, section by section, against a forged sender.

mod receiver_kit;

use std::{net::IpAddr, time::Duration};

use base::{DropReason, Instant, Verdict};
use receiver_kit::{
    Bench, Event, GROUP, NEIGHBOUR, PORT, SOURCE, TSI, data, downstream, downstream_of, dropped,
    joined, joined_with, made, nak_like, odata, rdata, spm, upstream,
};
use towline_pgm::{Config, ConfigBuilder, LateJoin, Mode, Status, Timer};
use wire::{
    Sqn,
    pgm::{Body, Gsi, Join, PgmOption, Rst, Spm, Tsi},
};

/// Timers far apart, so that each test sees one at a time.
fn slow() -> ConfigBuilder {
    Config::builder()
        .nak_backoff_min(Timer::Fixed(Duration::from_millis(1)))
        .nak_backoff_max(Timer::Fixed(Duration::from_millis(50)))
        .nak_repeat_interval(Timer::Fixed(Duration::from_millis(200)))
        .nak_rdata_interval(Timer::Fixed(Duration::from_millis(400)))
}

mod section_6_1_data_reception {
    use super::*;

    #[test]
    fn the_first_odata_opens_the_session_and_the_next_is_delivered() {
        let mut bench = Bench::new(Mode::Sequence);
        bench.trail = 90_000;
        assert_eq!(bench.odata(90_000, b"one"), Verdict::Held);
        assert!(matches!(
            bench.odata(90_001, b"two"),
            Verdict::Payload { .. }
        ));
        assert_eq!(bench.take_texts(), ["found", "one", "two"]);
    }

    #[test]
    fn an_rdata_opens_the_session_too() {
        let mut bench = Bench::new(Mode::Sequence);
        bench.trail = 90_000;
        bench.rdata(90_000, b"one");
        bench.odata(90_001, b"two");
        assert_eq!(bench.take_texts(), ["found", "one", "two"]);
    }

    #[test]
    fn an_spm_opens_the_session_at_what_comes_next() {
        let mut bench = Bench::new(Mode::Sequence);
        bench.trail = 89_000;
        assert_eq!(bench.spm(89_999, &[]), Verdict::Control);
        bench.odata(90_000, b"one");
        assert_eq!(bench.take_texts(), ["found", "one"]);
        assert!(bench.take_naks().is_empty());
    }

    #[test]
    fn the_empty_window_of_an_openpgm_sender_opens_the_session_at_zero() {
        let mut bench = Bench::new(Mode::Sequence);
        bench.spm(u32::MAX, &[]);
        bench.odata(1, b"two");
        bench.pass_ms(5);
        assert_eq!(bench.take_naks(), [0]);
        bench.rdata(0, b"one");
        assert_eq!(bench.take_texts(), ["found", "one", "two"]);
    }

    #[test]
    fn repairs_are_not_requested_from_before_the_first_packet() {
        let mut bench = Bench::new(Mode::Sequence);
        bench.trail = 80_000;
        bench.odata(90_000, b"one");
        bench.spm(90_000, &[]);
        bench.pass_ms(1000);
        assert!(bench.take_naks().is_empty());
    }

    #[test]
    fn out_of_order_data_waits_for_its_turn() {
        let mut bench = joined(Mode::Sequence, 10);
        assert_eq!(bench.odata(13, b"d"), Verdict::Held);
        assert_eq!(bench.odata(12, b"c"), Verdict::Held);
        assert!(matches!(bench.odata(11, b"b"), Verdict::Payload { .. }));
        assert_eq!(bench.take_texts(), ["b", "c", "d"]);
    }

    #[test]
    fn in_the_order_received_everything_is_given_out_at_once() {
        let mut bench = joined(Mode::Arrival, 10);
        for sqn in [13, 11, 12] {
            assert!(matches!(bench.odata(sqn, b"x"), Verdict::Payload { .. }));
        }
        assert_eq!(bench.odata(12, b"x"), dropped(DropReason::Duplicate));
        assert_eq!(bench.take_events().len(), 3);
    }

    #[test]
    fn duplicates_and_data_outside_the_window_are_discarded() {
        let config = Config::builder().rx_window_sqns(1024);
        let mut bench = joined_with(Mode::Sequence, config, 10);
        assert_eq!(bench.odata(10, b"again"), dropped(DropReason::Duplicate));
        assert_eq!(bench.odata(9, b"old"), dropped(DropReason::BehindWindow));
        assert_eq!(
            bench.odata(11 + 1024, b"far"),
            dropped(DropReason::BeyondWindow)
        );
        bench.odata(12, b"c");
        assert_eq!(bench.rdata(12, b"again"), dropped(DropReason::Duplicate));
        assert!(bench.take_texts().is_empty());
        bench.assert_accounts();
    }

    #[test]
    fn a_message_without_bytes_is_a_message() {
        let mut bench = joined(Mode::Sequence, 10);
        bench.odata(12, b"");
        bench.odata(11, b"");
        assert_eq!(bench.take_texts(), ["", ""]);
    }
}

mod section_6_2_source_path_messages {
    use super::*;

    #[test]
    fn an_spm_out_of_sequence_is_discarded_with_its_lead() {
        let mut bench = joined(Mode::Sequence, 90_000);
        let old = spm(20, 90_000, 90_010, &[]);
        assert_eq!(bench.packet(&old), dropped(DropReason::Stale));
        let same = spm(bench.spm_sqn, 90_000, 90_010, &[]);
        assert_eq!(bench.packet(&same), dropped(DropReason::Stale));
        bench.pass_ms(1000);
        assert!(bench.take_naks().is_empty());
    }

    #[test]
    fn spm_sequence_numbers_wrap() {
        let mut bench = Bench::new(Mode::Sequence);
        bench.spm_sqn = u32::MAX - 1;
        for _ in 0..4 {
            assert_eq!(bench.spm(9, &[]), Verdict::Control);
        }
    }

    #[test]
    fn window_information_that_is_out_of_date_is_ignored() {
        let mut bench = joined(Mode::Sequence, 10);
        bench.odata(11, b"b");
        bench.odata(12, b"c");
        bench.trail = 5;
        assert_eq!(bench.spm(10, &[]), Verdict::Control);
        bench.odata(13, b"d");
        bench.pass_ms(1000);
        assert!(bench.take_naks().is_empty());
        assert_eq!(bench.take_texts(), ["b", "c", "d"]);
    }

    #[test]
    fn no_nak_before_the_first_spm_and_no_loss_for_want_of_it() {
        let mut bench = Bench::new(Mode::Sequence);
        bench.odata(10, b"a");
        bench.odata(12, b"c");
        bench.pass(Duration::from_secs(29));
        assert!(bench.take_naks().is_empty());
        assert_eq!(bench.take_texts(), ["found", "a"]);
        bench.spm(12, &[]);
        bench.pass_ms(5);
        assert_eq!(bench.take_naks(), [11]);
        bench.rdata(11, b"b");
        assert_eq!(bench.take_texts(), ["b", "c"]);
    }

    #[test]
    fn naks_go_to_the_path_of_the_latest_spm() {
        // By default they go to the sender of the SPM: see `network_elements`.
        for (has_elements, to) in [(true, NEIGHBOUR), (false, SOURCE)] {
            let config = Config::builder().network_elements(has_elements);
            let mut bench = joined_with(Mode::Sequence, config, 10);
            asked_after_spm_of(&mut bench, to);
        }
    }

    fn asked_after_spm_of(bench: &mut Bench, to: IpAddr) {
        let body = Body::Spm(Spm {
            sqn: Sqn(bench.spm_sqn + 1),
            trail: Sqn(10),
            lead: Sqn(11),
            path_nla: NEIGHBOUR,
        });
        bench.packet(&made(&downstream(), &body, &[], &[]));
        bench.pass_ms(5);
        let sent = bench.take_sent();
        assert_eq!(sent[0].to.ip(), to);
        let Body::Nak(nak) = sent[0].body() else {
            panic!("not a NAK: {sent:?}");
        };
        assert_eq!((nak.source_nla, nak.group_nla), (to, GROUP));
    }

    #[test]
    fn a_path_that_is_no_unicast_address_is_refused() {
        let mut bench = joined(Mode::Sequence, 10);
        for nla in [
            "239.1.1.1",
            "0.0.0.0",
            "255.255.255.255",
            "127.0.0.1",
            "fe80::1",
        ] {
            let body = Body::Spm(Spm {
                sqn: Sqn(bench.spm_sqn + 1),
                trail: Sqn(10),
                lead: Sqn(11),
                path_nla: nla.parse().unwrap(),
            });
            let verdict = bench.packet(&made(&downstream(), &body, &[], &[]));
            assert_eq!(verdict, dropped(DropReason::Malformed), "{nla}");
        }
    }

    #[test]
    fn an_spm_without_a_window_gives_the_path_alone() {
        let mut bench = Bench::new(Mode::Sequence);
        assert_eq!(bench.spm(0x8000_0000, &[]), Verdict::Control);
        bench.trail = 10;
        bench.odata(10, b"a");
        bench.odata(12, b"c");
        bench.pass_ms(5);
        assert_eq!(bench.take_naks(), [11]);
    }
}

mod section_6_3_detecting_missing_packets {
    use super::*;

    #[test]
    fn a_jump_in_odata_rdata_or_an_spm_is_asked_for() {
        for jump in 0..3 {
            let mut bench = joined(Mode::Sequence, 90_000);
            match jump {
                0 => bench.odata(90_003, b"d"),
                1 => bench.rdata(90_003, b"d"),
                _ => bench.spm(90_002, &[]),
            };
            bench.pass_ms(5);
            assert_eq!(bench.take_naks(), [90_001, 90_002]);
        }
    }

    #[test]
    fn an_ncf_reveals_what_was_not_known_to_exist() {
        let mut bench = joined(Mode::Sequence, 10);
        assert_eq!(bench.ncf(&[12]), Verdict::Control);
        bench.pass_ms(5);
        assert_eq!(bench.take_naks(), [11], "12 waits for its data");
        bench.pass_ms(30);
        assert!(bench.take_naks().contains(&12));
    }

    #[test]
    fn an_ncf_defines_no_window() {
        let mut bench = Bench::new(Mode::Sequence);
        assert_eq!(bench.ncf(&[12]), dropped(DropReason::UnknownSession));
        bench.spm(0x8000_0000, &[]);
        assert_eq!(bench.ncf(&[12]), dropped(DropReason::Unexpected));
    }

    #[test]
    fn mild_reordering_causes_no_nak() {
        let mut bench = joined(Mode::Sequence, 10);
        bench.odata(12, b"c");
        bench.pass(Duration::from_micros(150));
        bench.odata(11, b"b");
        bench.pass_ms(100);
        assert!(bench.take_naks().is_empty());
    }
}

mod section_6_3_generating_naks {
    use super::*;

    fn gap(config: ConfigBuilder) -> Bench {
        let mut bench = joined_with(Mode::Sequence, config, 90_000);
        bench.odata(90_002, b"c");
        bench
    }

    #[test]
    fn a_nak_follows_a_random_back_off_within_its_bounds() {
        let mut waits = Vec::new();
        for round in 0..40 {
            let mut bench = joined_with(Mode::Sequence, slow(), 90_000);
            // Other draws before this one make each round another point of the sequence.
            for sqn in 0..round {
                bench.odata(90_002 + 2 * sqn, b"x");
                bench.rdata(90_001 + 2 * sqn, b"x");
                bench.pass(Duration::from_nanos(1));
            }
            let found = bench.now;
            bench.odata(90_102, b"y");
            bench.pass_ms(60);
            let sent = bench.take_sent();
            waits.push(sent[0].at.since(found));
        }
        let (low, high) = (Duration::from_millis(1), Duration::from_millis(54));
        assert!(
            waits.iter().all(|wait| (low..=high).contains(wait)),
            "{waits:?}"
        );
        let spread = *waits.iter().max().unwrap() - *waits.iter().min().unwrap();
        // A group of unknown size draws late rather than early (RFC 5401 section 3.2.3).
        assert!(spread > Duration::from_millis(20), "{waits:?}");
    }

    #[test]
    fn a_nak_carries_swapped_ports_the_path_and_the_group() {
        let mut bench = gap(slow());
        bench.pass_ms(60);
        let sent = bench.take_sent();
        let expected = nak_like(Body::Nak, true, &[90_001]);
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0].to.ip(), sent[0].to.port()), (SOURCE, PORT));
        assert_eq!(sent[0].bytes, expected);
        assert_eq!(sent[0].hops, None);
    }

    #[test]
    fn an_ncf_during_back_off_delays_the_nak() {
        let mut bench = gap(slow());
        bench.ncf(&[90_001]);
        bench.pass_ms(399);
        assert!(bench.take_naks().is_empty());
        bench.pass_ms(60);
        assert_eq!(bench.take_naks(), [90_001]);
    }

    #[test]
    fn a_nak_of_another_receiver_delays_ours() {
        let mut bench = gap(slow());
        assert_eq!(bench.heard_nak(&[90_001]), Verdict::Control);
        bench.pass_ms(399);
        assert!(bench.take_naks().is_empty());
        bench.pass_ms(60);
        assert_eq!(bench.take_naks(), [90_001]);
    }

    #[test]
    fn each_matching_ncf_restarts_the_wait_for_data() {
        let mut bench = gap(slow());
        bench.pass_ms(60);
        assert_eq!(bench.take_naks(), [90_001]);
        for _ in 0..5 {
            bench.ncf(&[90_001]);
            bench.pass_ms(390);
        }
        assert!(bench.take_naks().is_empty());
        bench.pass_ms(70);
        assert_eq!(bench.take_naks(), [90_001]);
    }

    #[test]
    fn an_ncf_for_delivered_data_changes_nothing() {
        let mut bench = gap(slow());
        bench.ncf(&[90_000]);
        bench.ncf(&[89_000]);
        bench.pass_ms(60);
        assert_eq!(bench.take_naks(), [90_001]);
    }

    #[test]
    fn other_receivers_cannot_silence_a_receiver_for_ever() {
        let mut bench = gap(slow());
        for _ in 0..40 {
            bench.heard_nak(&[90_001]);
            bench.pass_ms(100);
        }
        assert!(bench.take_naks().contains(&90_001));
    }

    #[test]
    fn without_ncf_the_nak_is_repeated_and_given_up_at_the_limit() {
        let config = slow()
            .nak_ncf_retries(10)
            .repair_time_max(Duration::from_millis(1));
        let mut bench = gap(config);
        bench.pass(Duration::from_secs(6));
        assert_eq!(bench.take_naks(), [90_001; 10]);
        assert_eq!(bench.take_texts(), ["-1", "c"]);
    }

    #[test]
    fn with_ncf_and_no_data_the_nak_is_repeated_and_given_up_at_the_limit() {
        let config = slow()
            .nak_data_retries(10)
            .repair_time_max(Duration::from_millis(1));
        let mut bench = gap(config);
        let mut naks = 0;
        for _ in 0..8000 {
            bench.pass_ms(1);
            for _ in bench.take_naks() {
                naks += 1;
                bench.ncf(&[90_001]);
            }
        }
        assert_eq!(naks, 10);
        assert_eq!(bench.take_texts(), ["-1", "c"]);
    }

    #[test]
    fn nothing_is_given_up_before_the_repair_time() {
        let config = slow()
            .nak_ncf_retries(2)
            .repair_time_max(Duration::from_secs(5));
        let mut bench = gap(config);
        bench.pass_ms(4900);
        assert!(bench.take_texts().is_empty());
        assert!(bench.take_naks().len() > 8);
        bench.pass_ms(700);
        assert_eq!(bench.take_texts(), ["-1", "c"]);
    }

    #[test]
    fn the_trail_passing_cancels_the_request() {
        let mut bench = gap(slow());
        bench.trail = 90_002;
        bench.spm(90_002, &[]);
        assert_eq!(bench.take_texts(), ["-1", "c"]);
        bench.pass(Duration::from_secs(5));
        assert!(bench.take_naks().is_empty());
    }

    #[test]
    fn late_odata_or_rdata_completes_the_request() {
        for is_repair in [false, true] {
            let mut bench = gap(slow());
            bench.pass_ms(60);
            assert_eq!(bench.take_naks(), [90_001]);
            let packet = if is_repair {
                rdata(90_001, 90_000, &[], b"b")
            } else {
                odata(90_001, 90_000, &[], b"b")
            };
            bench.packet(&packet);
            assert_eq!(bench.take_texts(), ["b", "c"]);
            bench.pass_ms(2000);
            assert!(bench.take_naks().is_empty());
            assert_eq!(bench.receiver.status(), Status::Waiting);
        }
    }
}

mod section_9_1_options {
    use super::*;

    #[test]
    fn parity_packets_are_counted_and_change_nothing() {
        use wire::pgm::{Flags, emit_flagged};
        let mut bench = joined(Mode::Sequence, 10);
        let (mut packet, body) = (Vec::new(), Body::Rdata(data(11, 10)));
        emit_flagged(
            &mut packet,
            &downstream(),
            Flags::PARITY,
            &body,
            &[],
            b"parity",
        );
        assert_eq!(bench.packet(&packet), dropped(DropReason::Unexpected));
        assert_eq!(bench.receiver.counters().parity_packets, 1);
        bench.odata(11, b"b");
        assert_eq!(bench.take_texts(), ["b"]);
    }

    #[test]
    fn options_of_no_interest_do_not_disturb() {
        let mut bench = joined(Mode::Sequence, 10);
        let packet = odata(11, 10, &[PgmOption::Syn], b"b");
        assert!(matches!(bench.packet(&packet), Verdict::Payload { .. }));
        assert_eq!(bench.take_texts(), ["b"]);
    }
}

mod section_9_2_fragments {
    use super::*;

    const APDU: &[u8] = b"abcdefghij";

    #[test]
    fn pieces_in_any_order_make_one_message() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
            let mut bench = joined(Mode::Sequence, 10);
            for piece in order {
                let len = if piece == 2 { 2 } else { 4 };
                let verdict = bench.fragment(11 + piece, 11, 4 * piece, APDU, len);
                assert_eq!(verdict, Verdict::Held);
            }
            bench.odata(14, b"next");
            assert_eq!(bench.take_texts(), ["abcdefghij", "next"], "{order:?}");
            bench.assert_accounts();
        }
    }

    #[test]
    fn a_message_of_5000_bytes_arrives_whole() {
        let apdu: Vec<_> = (0..5000_u32).map(|i| i as u8).collect();
        let mut bench = joined(Mode::Sequence, 10);
        for (piece, at) in (0..5000).step_by(1428).enumerate() {
            let len = (5000 - at).min(1428);
            bench.fragment(11 + piece as u32, 11, at as u32, &apdu, len);
        }
        let sqn = (1 << 32) + 11;
        assert_eq!(bench.take_events(), [Event::Message(sqn, apdu)]);
    }

    #[test]
    fn a_lost_piece_loses_the_whole_message_once() {
        let mut bench = joined(Mode::Sequence, 10);
        bench.fragment(11, 11, 0, APDU, 4);
        bench.fragment(13, 11, 8, APDU, 2);
        bench.odata(14, b"next");
        bench.trail = 13;
        bench.spm(14, &[]);
        assert_eq!(bench.take_texts(), ["-3", "next"]);
        assert_eq!(bench.receiver.counters().broken_messages, 1);
    }

    #[test]
    fn pieces_of_a_message_begun_before_the_session_are_no_loss() {
        let mut bench = Bench::new(Mode::Sequence);
        bench.fragment(12, 11, 4, APDU, 4);
        bench.fragment(13, 11, 8, APDU, 2);
        bench.odata(14, b"next");
        assert_eq!(bench.take_texts(), ["found", "next"]);
        assert_eq!(bench.receiver.counters().skipped_fragments, 2);
    }

    #[test]
    fn a_contradictory_piece_is_refused_and_reported() {
        let mut bench = joined(Mode::Sequence, 10);
        let verdict = bench.fragment(11, 12, 0, APDU, 4);
        assert_eq!(verdict, dropped(DropReason::Malformed));
        bench.odata(12, b"next");
        assert_eq!(bench.take_texts(), ["-1", "next"]);
        bench.assert_accounts();
    }

    #[test]
    fn a_message_that_stops_half_way_is_lost_when_another_begins() {
        let mut bench = joined(Mode::Sequence, 10);
        bench.fragment(11, 11, 0, APDU, 4);
        bench.fragment(12, 12, 0, APDU, 4);
        bench.fragment(13, 12, 4, APDU, 6);
        bench.fragment(14, 14, 0, APDU, 4);
        bench.odata(15, b"next");
        assert_eq!(bench.take_texts(), ["-1", "abcdefghij", "-1", "next"]);
    }

    #[test]
    fn a_single_piece_is_the_message_itself() {
        let mut bench = joined(Mode::Sequence, 10);
        let verdict = bench.fragment(11, 11, 0, APDU, 10);
        assert!(matches!(verdict, Verdict::Payload { .. }));
    }

    #[test]
    fn in_the_order_received_pieces_are_refused_not_given_out_half() {
        let mut bench = joined(Mode::Arrival, 10);
        let verdict = bench.fragment(11, 11, 0, APDU, 4);
        assert_eq!(verdict, dropped(DropReason::Incompatible));
        bench.odata(12, b"next");
        assert_eq!(bench.take_texts(), ["-1", "next"]);
    }
}

mod section_9_3_nak_lists {
    use super::*;

    #[test]
    fn up_to_63_missing_packets_share_a_nak_oldest_first() {
        let mut bench = joined_with(Mode::Sequence, slow(), 0);
        bench.odata(101, b"x");
        bench.pass_ms(60);
        let sent = bench.take_sent();
        let lists: Vec<_> = sent.iter().map(receiver_kit::Sent::nak_sqns).collect();
        assert_eq!(lists, [(1..64).collect::<Vec<_>>(), (64..101).collect()]);
    }

    #[test]
    fn an_ncf_list_suspends_each_of_its_members() {
        let mut bench = joined_with(Mode::Sequence, slow(), 0);
        bench.odata(10, b"x");
        bench.ncf(&[2, 3, 4, 7]);
        bench.pass_ms(60);
        assert_eq!(bench.take_naks(), [1, 5, 6, 8, 9]);
        bench.pass_ms(400);
        let again = bench.take_naks();
        assert!(
            [2, 3, 4, 7].iter().all(|sqn| again.contains(sqn)),
            "{again:?}"
        );
    }

    #[test]
    fn a_nak_list_of_another_receiver_suspends_each_of_its_members() {
        let mut bench = joined_with(Mode::Sequence, slow(), 0);
        bench.odata(6, b"x");
        bench.heard_nak(&[1, 2, 5]);
        bench.pass_ms(60);
        assert_eq!(bench.take_naks(), [3, 4]);
    }
}

mod section_9_4_late_joining {
    use super::*;

    fn first_request(late_join: LateJoin, options: &[PgmOption<'_>]) -> Vec<u32> {
        let config = Config::builder().late_join(late_join);
        let mut bench = Bench::with(Mode::Sequence, config);
        bench.trail = 95;
        // One SPM is worth a request for one packet.
        for _ in 0..3 {
            bench.spm(99, options);
        }
        bench.pass_ms(5);
        bench.take_naks()
    }

    #[test]
    fn history_is_asked_for_as_far_as_configured_and_offered() {
        let offer = [PgmOption::Join(Join { min: Sqn(97) })];
        assert!(first_request(LateJoin::Now, &offer).is_empty());
        assert!(first_request(LateJoin::Offered, &[]).is_empty());
        assert_eq!(first_request(LateJoin::Offered, &offer), [97, 98, 99]);
        assert_eq!(first_request(LateJoin::Window, &[]), [95, 96, 97, 98, 99]);
    }

    #[test]
    fn an_offer_beyond_the_window_is_cut_to_it() {
        let offer = [PgmOption::Join(Join { min: Sqn(7) })];
        assert_eq!(first_request(LateJoin::Offered, &offer).len(), 5);
    }

    #[test]
    fn data_carries_the_offer_too() {
        let config = Config::builder().late_join(LateJoin::Offered);
        let mut bench = Bench::with(Mode::Sequence, config);
        let offer = [PgmOption::Join(Join { min: Sqn(98) })];
        bench.packet(&odata(100, 95, &offer, b"c"));
        bench.rdata(98, b"a");
        bench.rdata(99, b"b");
        assert_eq!(bench.take_texts(), ["found", "a", "b", "c"]);
    }
}

mod section_9_7_session_finish {
    use super::*;

    #[test]
    fn a_fin_ends_the_session_when_all_is_delivered() {
        let mut bench = joined(Mode::Sequence, 10);
        bench.odata(11, b"b");
        bench.spm(12, &[PgmOption::Fin]);
        assert_eq!(bench.take_texts(), ["b"]);
        bench.pass_ms(5);
        assert_eq!(bench.take_naks(), [12]);
        bench.rdata(12, b"c");
        assert_eq!(bench.take_texts(), ["c", "ended"]);
        assert_eq!(bench.spm(12, &[PgmOption::Fin]), dropped(DropReason::Ended));
        assert_eq!(bench.odata(13, b"d"), dropped(DropReason::Ended));
        assert!(bench.take_texts().is_empty());
        assert_eq!(bench.receiver.status(), Status::NoSender);
    }

    #[test]
    fn what_cannot_be_repaired_any_more_is_lost_before_the_end() {
        let config = slow()
            .nak_ncf_retries(2)
            .repair_time_max(Duration::from_millis(1));
        for mode in [Mode::Sequence, Mode::Arrival] {
            let mut bench = joined_with(mode, config, 10);
            bench.spm(12, &[PgmOption::Fin]);
            bench.pass_ms(2000);
            assert_eq!(bench.take_texts(), ["-2", "ended"]);
        }
    }

    #[test]
    fn a_fin_on_the_last_data_ends_the_session_too() {
        for mode in [Mode::Sequence, Mode::Arrival] {
            let mut bench = joined(mode, 10);
            bench.packet(&odata(11, 10, &[PgmOption::Fin], b"b"));
            assert_eq!(bench.take_texts(), ["b", "ended"]);
        }
    }

    #[test]
    fn the_end_of_a_session_never_heard_of_is_nothing() {
        let mut bench = Bench::new(Mode::Sequence);
        assert_eq!(bench.spm(9, &[PgmOption::Fin]), dropped(DropReason::Ended));
        assert!(bench.take_texts().is_empty());
    }

    #[test]
    fn a_message_cut_off_by_the_end_is_lost() {
        let mut bench = joined(Mode::Sequence, 10);
        bench.fragment(11, 11, 0, b"abcdefghij", 4);
        bench.spm(11, &[PgmOption::Fin]);
        assert_eq!(bench.take_texts(), ["-1", "ended"]);
    }
}

mod section_9_8_session_reset {
    use super::*;

    #[test]
    fn a_reset_aborts_the_session_after_what_was_received() {
        for mode in [Mode::Sequence, Mode::Arrival] {
            let mut bench = joined(mode, 10);
            bench.odata(12, b"c");
            let reset = PgmOption::Rst(Rst {
                is_deaf: true,
                reason: 3,
            });
            bench.spm(13, &[reset]);
            let mut texts = bench.take_texts();
            assert_eq!(texts.pop().as_deref(), Some("reset"));
            texts.sort();
            assert_eq!(texts, ["-1", "-1", "c"]);
            bench.pass_ms(1000);
            assert!(bench.take_naks().is_empty());
            assert_eq!(bench.odata(11, b"b"), dropped(DropReason::Ended));
        }
    }
}

mod section_13_5_spm_requests {
    use super::*;

    fn config() -> ConfigBuilder {
        Config::builder()
            .spmr_delay(Duration::from_millis(250))
            .spmr_interval(Duration::from_millis(500))
            .spmr_retries(2)
    }

    #[test]
    fn a_session_opened_by_data_asks_its_neighbours_first_and_then_the_source() {
        let mut bench = Bench::with(Mode::Sequence, config());
        bench.odata(10, b"a");
        bench.pass_ms(255);
        let sent = bench.take_sent();
        assert_eq!(sent.len(), 2);
        assert!(sent.iter().all(receiver_kit::Sent::is_spmr));
        assert_eq!((sent[0].to.ip(), sent[0].hops), (GROUP, Some(1)));
        assert_eq!((sent[1].to.ip(), sent[1].hops), (SOURCE, None));
        assert_eq!(sent[1].to.port(), PORT);
        assert_eq!(sent[0].bytes, made(&upstream(), &Body::Spmr, &[], &[]));
    }

    /// Deviation: the RFC knows no limit of what waits to be sent.
    #[test]
    fn a_request_that_finds_no_room_is_counted_and_made_later() {
        let mut bench = Bench::with(Mode::Sequence, config().peers_max(5_000));
        for nth in 0..5_000_u32 {
            let [_, _, high, low] = nth.to_be_bytes();
            let gsi = Gsi([1, 2, 3, 4, high, low]);
            let sender = downstream_of(Tsi { gsi, ..TSI });
            bench.packet(&made(&sender, &Body::Odata(data(10, 10)), &[], b"a"));
        }
        // Nothing leaves meanwhile: 128 KiB hold two packets of 16 bytes for each of 4096.
        bench.now += Duration::from_millis(255);
        bench.receiver.handle_timeout(bench.now);
        let counters = *bench.receiver.counters();
        assert_eq!(
            (counters.spmr_packets, counters.spmr_packets_omitted),
            (4_096, 904)
        );
        bench.pass_ms(1_000);
        let counters = bench.receiver.counters();
        assert!(counters.spmr_packets >= 5_000, "{counters:?}");
        assert_eq!(counters.spmr_packets_omitted, 904);
    }

    #[test]
    fn an_spm_cancels_the_request() {
        let mut bench = Bench::with(Mode::Sequence, config());
        bench.odata(10, b"a");
        bench.spm(10, &[]);
        bench.pass(Duration::from_secs(10));
        assert!(bench.take_sent().is_empty());
    }

    #[test]
    fn a_request_of_a_neighbour_suppresses_ours_but_not_for_ever() {
        let mut bench = Bench::with(Mode::Sequence, config());
        bench.odata(10, b"a");
        let request = made(&upstream(), &Body::Spmr, &[], &[]);
        assert_eq!(bench.packet_from(NEIGHBOUR, &request), Verdict::Control);
        bench.pass_ms(499);
        assert!(bench.take_sent().is_empty());
        bench.pass_ms(260);
        assert_eq!(bench.take_sent().len(), 2);
    }

    #[test]
    fn our_own_request_looped_back_suppresses_nothing() {
        let mut bench = Bench::with(Mode::Sequence, config());
        bench.odata(10, b"a");
        let request = made(&upstream(), &Body::Spmr, &[], &[]);
        let verdict = bench.packet_from(receiver_kit::OWN, &request);
        assert_eq!(verdict, dropped(DropReason::Looped));
        bench.pass_ms(255);
        assert_eq!(bench.take_sent().len(), 2);
    }

    #[test]
    fn the_request_is_repeated_ever_more_rarely() {
        let mut bench = Bench::with(Mode::Sequence, config());
        let mut last = bench.now;
        let mut waits = Vec::new();
        for _ in 0..60_000 {
            bench.odata(10, b"a");
            bench.pass_ms(2);
            for sent in bench.take_sent().iter().step_by(2) {
                waits.push(sent.at.since(last).as_millis());
                last = sent.at;
            }
        }
        assert!(waits[0] <= 250, "{waits:?}");
        assert!(
            waits[1..3].iter().all(|wait| (500..=750).contains(wait)),
            "{waits:?}"
        );
        assert!(
            waits[8..]
                .iter()
                .all(|wait| (16_000..=16_250).contains(wait)),
            "{waits:?}"
        );
    }

    #[test]
    fn requests_of_others_for_unknown_sessions_are_nothing() {
        let mut bench = Bench::new(Mode::Sequence);
        let request = made(&upstream(), &Body::Spmr, &[], &[]);
        let verdict = bench.packet_from(NEIGHBOUR, &request);
        assert_eq!(verdict, dropped(DropReason::UnknownSession));
    }
}

mod session_expiry {
    use super::*;

    #[test]
    fn a_silent_sender_expires_and_may_come_back() {
        let mut bench = joined(Mode::Sequence, 10);
        bench.odata(12, b"c");
        bench.pass(Duration::from_secs(31));
        assert_eq!(bench.take_texts(), ["-1", "c", "expired"]);
        assert_eq!(bench.receiver.status(), Status::NoSender);
        bench.odata(20, b"again");
        assert_eq!(bench.take_texts(), ["found", "again"]);
    }

    #[test]
    fn data_alone_keeps_a_session_alive() {
        let mut bench = joined(Mode::Sequence, 10);
        for sqn in 11..21 {
            bench.pass(Duration::from_secs(20));
            bench.odata(sqn, b"x");
        }
        bench.pass(Duration::from_secs(29));
        assert_eq!(bench.take_texts(), ["x"; 10]);
    }

    #[test]
    fn spms_alone_keep_a_session_alive() {
        let mut bench = joined(Mode::Sequence, 10);
        for _ in 0..10 {
            bench.pass(Duration::from_secs(20));
            bench.spm(10, &[]);
        }
        assert!(bench.take_texts().is_empty());
        assert!(bench.now > Instant::from_nanos(200_000_000_000));
        assert_eq!(bench.receiver.sessions().count(), 1);
        assert_eq!(bench.receiver.position(0).unwrap().tsi, TSI);
    }
}
