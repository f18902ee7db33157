//! What RFC 3208 section 11 asks of a receiver with parity, and what it must not believe.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod receiver_kit;

use base::{DropReason, Verdict};
use receiver_kit::{Bench, Sent, data, downstream, dropped, joined_with, nak_body, upstream};
use towline_pgm::{
    Config, ConfigBuilder, Mode,
    fec::{Code, Encoder, FRAGMENT_BYTES, Numbering, combine, encoded_fragment, fragment_contents},
};
use wire::{
    Sqn,
    pgm::{
        Addressing, Body, CurrTgsize, Flags, Fragment, Mark, Packet, ParityGrp, ParityPrm,
        ParityReading, PgmOption, Profile, emit, emit_flagged,
    },
};

const K: u32 = 8;

fn offer(group_size: u32) -> PgmOption<'static> {
    let (is_proactive, is_on_demand) = (false, true);
    let reading = ParityReading::Rfc;
    PgmOption::ParityPrm(ParityPrm::new(
        is_proactive,
        is_on_demand,
        group_size,
        reading,
    ))
}

/// A receiver of a session that begins at 0, believes the offer and has everything up to 7.
fn offered_with(config: ConfigBuilder) -> Bench {
    let mut bench = joined_with(Mode::Sequence, config, 0);
    bench.trail = 0;
    for sqn in 1..8 {
        bench.odata(sqn, &payload(sqn));
    }
    for _ in 0..2 {
        bench.spm(7, &[offer(K)]);
    }
    bench.take_events();
    bench.take_sent();
    bench
}

fn offered() -> Bench {
    offered_with(Config::builder())
}

fn payload(sqn: u32) -> Vec<u8> {
    format!("packet {sqn:3}").into_bytes()
}

/// Parity packet `index` of the group that begins at `first`, of `size` members.
fn parity_packet(first: u32, size: u32, index: usize) -> Vec<u8> {
    let code = Code::new(K as usize).unwrap();
    let members: Vec<_> = (first..first + size).map(payload).collect();
    let members: Vec<&[u8]> = members.iter().map(|member| &member[..]).collect();
    let mut encoder = Encoder::new(combine, 1, 100);
    let parities = encoder.encode(&code, &members, &[index]);
    let bytes = parities.payloads().next().unwrap();
    let numbering = Numbering::new(K).unwrap();
    let (sqn, group) = numbering.parity(Sqn(first), index).unwrap();
    let tgsize = (size < K).then_some(PgmOption::CurrTgsize(CurrTgsize { packet_count: size }));
    let options: Vec<_> = tgsize
        .into_iter()
        .chain(group.map(PgmOption::ParityGrp))
        .collect();
    flagged(&downstream(), &Body::Rdata(data(sqn.0, 0)), &options, bytes)
}

fn flagged(
    addressing: &Addressing,
    body: &Body,
    options: &[PgmOption<'_>],
    tsdu: &[u8],
) -> Vec<u8> {
    let mut out = Vec::new();
    emit_flagged(&mut out, addressing, Flags::PARITY, body, options, tsdu);
    out
}

/// Everything of `range` but `lost` arrives.
fn arrive(bench: &mut Bench, range: std::ops::Range<u32>, lost: &[u32]) {
    for sqn in range.filter(|sqn| !lost.contains(sqn)) {
        bench.odata(sqn, &payload(sqn));
    }
}

/// What was asked for: numbers of selective NAKs, and of parity NAKs.
fn take_asked(bench: &mut Bench) -> (Vec<u32>, Vec<u32>) {
    let sent = bench.take_sent();
    let is_parity = |sent: &&Sent| {
        let packet = Packet::parse(&sent.bytes).unwrap();
        packet.header().flags.contains(Flags::PARITY)
    };
    let (parity, selective): (Vec<_>, Vec<_>) = sent.iter().partition(is_parity);
    let sqns = |list: Vec<&Sent>| list.into_iter().flat_map(Sent::nak_sqns).collect();
    (sqns(selective), sqns(parity))
}

fn texts(range: std::ops::Range<u32>) -> Vec<String> {
    range
        .map(|sqn| String::from_utf8(payload(sqn)).unwrap())
        .collect()
}

#[test]
fn s11_5_loss_is_asked_for_by_count_once_its_group_is_complete() {
    let mut bench = offered();
    arrive(&mut bench, 8..15, &[9, 12]);
    bench.pass_ms(5);
    assert_eq!(
        take_asked(&mut bench),
        (vec![], vec![]),
        "the group goes on"
    );
    arrive(&mut bench, 15..17, &[]);
    bench.pass_ms(5);
    assert_eq!(
        take_asked(&mut bench),
        (vec![], vec![8 + 1]),
        "two of group 8"
    );
    assert_eq!(bench.take_texts(), texts(8..9));
    for index in [3, 30] {
        assert_eq!(bench.packet(&parity_packet(8, 8, index)), Verdict::Control);
    }
    assert_eq!(bench.take_texts(), texts(9..17));
    let counters = bench.receiver.counters();
    assert_eq!((counters.recovered_sqns, counters.parity_kept), (2, 2));
    assert_eq!(counters.parity_asked, 2);
    bench.assert_accounts();
}

/// The flag 0x02 is unasked parity by the RFC, and parity on demand by OpenPGM, which aborts when
/// it is asked for it. Towline with `fec_form` openpgm makes the same offer, and says so in the
/// mark.
#[test]
fn s11_5_parity_is_asked_for_only_where_the_offer_has_it_on_demand() {
    let one = ParityPrm::new(false, true, K, ParityReading::OpenPgm);
    let marked = PgmOption::Mark(Mark::new(Profile::Messages, 1));
    let in_openpgms_form = Mark::new(Profile::Messages, 1).with_parity(ParityReading::OpenPgm);
    let (selective, parity) = ((vec![9, 12], vec![]), (vec![], vec![8 + 1]));
    for (mark, asked) in [
        (None, &selective),
        (Some(marked), &selective),
        (Some(PgmOption::Mark(in_openpgms_form)), &parity),
    ] {
        let mut options = vec![PgmOption::ParityPrm(one)];
        options.extend(mark);
        let mut bench = joined_with(Mode::Sequence, Config::builder(), 0);
        arrive(&mut bench, 1..8, &[]);
        for _ in 0..2 {
            bench.spm(7, &options);
        }
        bench.take_sent();
        arrive(&mut bench, 8..17, &[9, 12]);
        bench.pass_ms(5);
        assert_eq!(take_asked(&mut bench), *asked, "{mark:?}");
    }
}

#[test]
fn s11_5_what_remains_lacking_is_asked_for_again_and_late_members_count() {
    let mut bench = offered();
    arrive(&mut bench, 8..17, &[9, 10, 12]);
    bench.pass_ms(5);
    assert_eq!(take_asked(&mut bench).1, [8 + 2]);
    bench.packet(&parity_packet(8, 8, 0));
    bench.packet(&parity_packet(8, 8, 0));
    assert_eq!(bench.receiver.drops().duplicate, 1);
    bench.rdata(10, &payload(10));
    bench.pass_ms(200);
    let (selective, parity) = take_asked(&mut bench);
    assert!(
        !parity.is_empty() && parity.iter().all(|&sqn| sqn == 8),
        "one is lacking"
    );
    assert!(
        selective.iter().all(|sqn| [9, 12].contains(sqn)),
        "{selective:?}"
    );
    bench.packet(&parity_packet(8, 8, 1));
    assert_eq!(bench.take_texts(), texts(8..17));
}

#[test]
fn s11_5_a_partial_group_that_goes_nowhere_is_asked_for_selectively() {
    // The SPM says that nothing follows for now; or time passes without one.
    for has_spm in [true, false] {
        let mut bench = offered();
        arrive(&mut bench, 8..12, &[9]);
        if has_spm {
            bench.spm(11, &[offer(K)]);
        }
        bench.pass_ms(if has_spm { 5 } else { 30 });
        let (selective, parity) = take_asked(&mut bench);
        assert!(!selective.is_empty() && selective.iter().all(|&sqn| sqn == 9));
        assert!(parity.is_empty());
    }
}

#[test]
fn s11_5_parity_that_follows_unasked_is_waited_for_until_the_next_group_begins() {
    let both = ParityPrm::new(true, true, K, ParityReading::Lax);
    let mut bench = joined_with(Mode::Sequence, Config::builder(), 0);
    arrive(&mut bench, 1..8, &[]);
    for _ in 0..2 {
        bench.spm(7, &[PgmOption::ParityPrm(both)]);
    }
    arrive(&mut bench, 8..16, &[9, 10]);
    bench.pass_ms(5);
    assert_eq!(
        take_asked(&mut bench),
        (vec![], vec![]),
        "it may be right behind"
    );
    bench.packet(&parity_packet(8, 8, 0));
    arrive(&mut bench, 16..17, &[]);
    bench.pass_ms(5);
    assert_eq!(
        take_asked(&mut bench),
        (vec![], vec![8]),
        "one was not enough"
    );
}

#[test]
fn s11_5_the_last_group_is_short_and_asked_for_as_if_it_were_full() {
    let mut bench = offered();
    arrive(&mut bench, 8..13, &[9, 10]);
    let last = PgmOption::CurrTgsize(CurrTgsize { packet_count: 5 });
    bench.spm(12, &[offer(K), last, PgmOption::Fin]);
    bench.pass_ms(5);
    assert_eq!(
        take_asked(&mut bench),
        (vec![], vec![8 + 4]),
        "it has three of eight"
    );
    for index in 0..2 {
        bench.packet(&parity_packet(8, 5, index));
    }
    let mut expected = texts(8..13);
    expected.push("ended".to_owned());
    assert_eq!(bench.take_texts(), expected);
    assert_eq!(bench.receiver.held_memory_bytes(), 0);
}

#[test]
fn s11_5_parity_tells_that_its_group_was_sent_to_the_end() {
    let mut bench = offered();
    arrive(&mut bench, 8..14, &[]);
    bench.packet(&parity_packet(8, 8, 0));
    bench.packet(&parity_packet(8, 8, 1));
    assert_eq!(
        bench.take_texts(),
        texts(8..16),
        "two last packets came as parity alone"
    );
}

#[test]
fn s11_3_2_a_confirmation_counts_when_it_promises_enough() {
    let numbering = Numbering::new(K).unwrap();
    let waits = |count: u32| {
        let mut bench = offered();
        arrive(&mut bench, 8..17, &[9, 10]);
        bench.pass_ms(5);
        assert_eq!(take_asked(&mut bench).1, [8 + 1]);
        let sqn = numbering.request(Sqn(8), count).unwrap();
        let ncf = flagged(&downstream(), &Body::Ncf(nak_body(sqn.0)), &[], &[]);
        assert_eq!(bench.packet(&ncf), Verdict::Control);
        bench.pass_ms(12);
        take_asked(&mut bench).1.is_empty()
    };
    assert!(waits(2) && waits(5), "confirmed: repairs have 20 ms");
    assert!(!waits(1), "an NCF for fewer is for somebody else");
}

#[test]
fn s11_3_1_another_receivers_parity_nak_silences_who_lacks_no_more() {
    let numbering = Numbering::new(K).unwrap();
    let asks = |count: u32| {
        let mut bench = offered();
        arrive(&mut bench, 8..17, &[9, 10]);
        let sqn = numbering.request(Sqn(8), count).unwrap();
        let nak = flagged(&upstream(), &Body::Nak(nak_body(sqn.0)), &[], &[]);
        bench.packet_from(receiver_kit::NEIGHBOUR, &nak);
        bench.pass_ms(5);
        !take_asked(&mut bench).1.is_empty()
    };
    assert!(!asks(2) && !asks(8));
    assert!(asks(1));
}

#[test]
fn s11_5_an_offer_counts_when_two_spms_agree_and_until_one_does_not() {
    let asks_for_parity = |offers: &[u32]| {
        let mut bench = joined_with(Mode::Sequence, Config::builder(), 0);
        arrive(&mut bench, 1..8, &[]);
        for &group_size in offers {
            let options = [offer(group_size)];
            let options = if group_size == 0 { &[][..] } else { &options };
            bench.spm(7, options);
        }
        arrive(&mut bench, 8..18, &[9]);
        bench.pass_ms(5);
        let (selective, parity) = take_asked(&mut bench);
        assert!(selective.is_empty() != parity.is_empty());
        !parity.is_empty()
    };
    assert!(asks_for_parity(&[8, 8]) && asks_for_parity(&[8, 8, 8]));
    assert!(!asks_for_parity(&[8]), "one may be forged");
    assert!(!asks_for_parity(&[8, 8, 16]) && !asks_for_parity(&[8, 8, 0]));
    assert!(!asks_for_parity(&[12, 12]), "no group size");
}

#[test]
fn s11_5_groups_begun_before_the_offer_or_without_memory_are_asked_for_selectively() {
    let mut bench = joined_with(Mode::Sequence, Config::builder(), 0);
    arrive(&mut bench, 1..10, &[]);
    for _ in 0..2 {
        bench.spm(9, &[offer(K)]);
    }
    arrive(&mut bench, 10..18, &[12]);
    bench.pass_ms(5);
    assert_eq!(take_asked(&mut bench), (vec![12], vec![]));
    let mut bench = offered_with(Config::builder().rx_fec_bytes(0));
    arrive(&mut bench, 8..18, &[12]);
    bench.pass_ms(5);
    assert_eq!(take_asked(&mut bench), (vec![12], vec![]));
    let parity = bench.packet(&parity_packet(8, 8, 0));
    assert_eq!(parity, dropped(DropReason::Unexpected));
}

#[test]
fn s11_5_parity_naks_that_nobody_answers_become_selective() {
    let mut bench = offered();
    arrive(&mut bench, 8..18, &[12]);
    bench.pass_ms(1000);
    let (selective, parity) = take_asked(&mut bench);
    assert!((1..4).contains(&parity.len()), "{parity:?}");
    assert!(!selective.is_empty() && selective.iter().all(|&sqn| sqn == 12));
    bench.rdata(12, &payload(12));
    assert_eq!(bench.take_texts(), texts(8..18));
}

#[test]
fn forged_parity_that_contradicts_costs_its_group_parity_and_nothing_else() {
    let mut bench = offered();
    arrive(&mut bench, 8..18, &[12]);
    let sqn = Body::Rdata(data(8, 0));
    for (options, tsdu) in [
        (&[][..], &b"short"[..]),
        (
            &[PgmOption::CurrTgsize(CurrTgsize { packet_count: 99 })],
            b"packet   0",
        ),
    ] {
        bench.packet(&flagged(&downstream(), &sqn, options, tsdu));
    }
    assert_eq!(bench.receiver.counters().recovered_sqns, 0);
    bench.pass_ms(5);
    assert_eq!(
        take_asked(&mut bench),
        (vec![12], vec![]),
        "selectively, by now"
    );
    bench.rdata(12, &payload(12));
    assert_eq!(bench.take_texts(), texts(8..18));
    bench.assert_accounts();
}

#[test]
fn parity_from_elsewhere_of_strangers_and_far_ahead_is_refused() {
    let mut bench = offered();
    let good = parity_packet(8, 8, 0);
    let elsewhere = bench.packet_from(receiver_kit::NEIGHBOUR, &good);
    assert_eq!(elsewhere, dropped(DropReason::WrongSource));
    let far = flagged(&downstream(), &Body::Odata(data(1 << 30, 0)), &[], b"far");
    assert_eq!(bench.packet(&far), dropped(DropReason::BeyondWindow));
    let mut fresh = Bench::new(Mode::Sequence);
    assert_eq!(fresh.packet(&good), dropped(DropReason::UnknownSession));
    bench.assert_accounts();
}

#[test]
fn what_is_kept_for_parity_stays_within_its_bound() {
    let bound = 64 << 10;
    let mut bench = offered_with(Config::builder().rx_fec_bytes(bound));
    let before = bench.receiver.held_memory_bytes();
    // One of each group is missing, so that all others are kept; and far parity beside them.
    for group in 1..2000 {
        let first = group * K;
        arrive(&mut bench, first..first + K, &[first + 3]);
        let sqn = Body::Rdata(data(first + 40 * K, 0));
        bench.packet(&flagged(&downstream(), &sqn, &[], &[7; 100]));
        let position = bench.receiver.position(0).unwrap();
        let held_pages = (position.held_bytes as usize * 8).next_multiple_of(65_536) + 65_536;
        let kept = bench.receiver.held_memory_bytes() - before;
        assert!(kept <= held_pages + bound, "{kept} bytes in group {group}");
    }
    bench.assert_accounts();
}

#[test]
fn s11_2_of_several_encoded_options_the_first_of_its_kind_counts() {
    let code = Code::new(K as usize).unwrap();
    let none = fragment_contents(None);
    let mut encoder = Encoder::new(combine, 1, FRAGMENT_BYTES);
    let parities = encoder.encode(&code, &[&none[..]; K as usize], &[0]);
    let first: [u8; FRAGMENT_BYTES] = parities.payloads().next().unwrap().try_into().unwrap();
    let plain = parity_packet(8, 8, 0);
    let plain = Packet::parse(&plain).unwrap();
    for change in 1..=u8::MAX {
        let second = first.map(|byte| byte ^ change);
        let mut other = encoded_fragment(&second);
        other.kind = 0x0D;
        let options = [encoded_fragment(&first), other, encoded_fragment(&second)];
        let options = options.map(PgmOption::Encoded);
        let parity = flagged(&downstream(), &plain.body(), &options, plain.tsdu());
        let mut bench = offered();
        arrive(&mut bench, 8..17, &[9]);
        assert_eq!(bench.packet(&parity), Verdict::Control);
        assert_eq!(bench.take_texts(), texts(8..17), "{change}");
    }
}

#[test]
fn s11_2_of_several_sizes_or_sets_the_first_counts() {
    let tgsize = |count| {
        PgmOption::CurrTgsize(CurrTgsize {
            packet_count: count,
        })
    };
    let set = |group| PgmOption::ParityGrp(ParityGrp { group });
    // Index 9 is the second of set 1. The group has five members, of eight.
    let right = parity_packet(8, 5, K as usize + 1);
    let right = Packet::parse(&right).unwrap();
    for (sizes, is_recovered) in [([5, 7], true), ([7, 5], false)] {
        let options = [tgsize(sizes[0]), set(1), tgsize(sizes[1]), set(2)];
        let parity = flagged(&downstream(), &right.body(), &options, right.tsdu());
        let mut bench = offered();
        arrive(&mut bench, 8..13, &[9]);
        bench.packet(&parity);
        let is_whole = bench.take_texts() == texts(8..13);
        assert_eq!(is_whole, is_recovered, "{sizes:?}");
    }
}

#[test]
fn s11_2_of_several_fragments_in_an_original_packet_the_first_counts() {
    let fragment = |offset, len| {
        PgmOption::Fragment(Fragment {
            first: Sqn(8),
            offset,
            apdu_len: len,
        })
    };
    let mut bench = offered();
    for (sqn, offset, text) in [(8, 0, "packet "), (9, 7, "  8")] {
        let options = [fragment(offset, 10), fragment(3, 1000)];
        let mut packet = Vec::new();
        let body = Body::Odata(data(sqn, 0));
        emit(&mut packet, &downstream(), &body, &options, text.as_bytes());
        bench.packet(&packet);
    }
    assert_eq!(bench.take_texts(), texts(8..9));
}
