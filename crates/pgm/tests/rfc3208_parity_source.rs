//! What RFC 3208 section 11 asks of a source that offers parity, as a receiver sees it on the wire.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod source_kit;

use base::{Budget, CounterSet as _, DropReason, Outcome, Verdict};
use source_kit::{Bench, Seen, TSI, nak_body};
use towline_pgm::{
    Config, ConfigBuilder,
    fec::{Code, Group, Numbering, Parity, Workspace, combine, encoded_contents},
};
use wire::{
    Sqn,
    pgm::{Addressing, Body, Flags, Fragment, Mark, NakList, PacketType, PgmOption, emit_flagged},
};

const K: u32 = 8;

fn config(settings: &[(&str, &str)]) -> ConfigBuilder {
    let mut builder = Config::builder();
    builder.set("fec_group", "8").unwrap();
    for (name, text) in settings {
        builder.set(name, text).unwrap();
    }
    builder
}

fn bench(settings: &[(&str, &str)]) -> Bench {
    Bench::with(config(settings), 0)
}

/// A parity NAK: each number names a group and how many packets of it are missing.
fn parity_nak(bench: &mut Bench, groups: &[(u32, u32)]) -> Verdict {
    let numbering = Numbering::new(K).unwrap();
    let request =
        |&(group, missing): &(u32, u32)| numbering.request(Sqn(group * K), missing).unwrap();
    let sqns: Vec<_> = groups.iter().map(request).collect();
    let list = [PgmOption::NakList(NakList::new(&sqns[1..]))];
    let options = if sqns.len() > 1 { &list[..] } else { &[] };
    let mut bytes = Vec::new();
    let addressing = Addressing::upstream(TSI, source_kit::PORT);
    let body = Body::Nak(nak_body(sqns[0].0));
    emit_flagged(&mut bytes, &addressing, Flags::PARITY, &body, options, &[]);
    bench.upstream(&bytes)
}

/// What a receiver sees in a parity packet: its group, index, and what the options say.
#[derive(Debug)]
struct Shown {
    kind: PacketType,
    group: u32,
    index: usize,
    size: Option<u32>,
    is_variable: bool,
    fragment: Option<[u8; 13]>,
    payload: Vec<u8>,
}

fn parities(bench: &Bench) -> Vec<Shown> {
    bench.seen.iter().filter_map(shown).collect()
}

fn shown(seen: &Seen) -> Option<Shown> {
    let packet = seen.packet();
    let (Body::Odata(data) | Body::Rdata(data)) = packet.body() else {
        return None;
    };
    let flags = packet.header().flags;
    if !flags.contains(Flags::PARITY) {
        return None;
    }
    let (mut group_option, mut size, mut fragment) = (None, None, None);
    for option in packet.options() {
        match option {
            PgmOption::ParityGrp(option) => group_option = Some(option),
            PgmOption::CurrTgsize(option) => size = Some(option.packet_count),
            PgmOption::Encoded(raw) => fragment = encoded_contents(&raw),
            other => panic!("{other} in a parity packet"),
        }
    }
    let numbering = Numbering::new(K).unwrap();
    Some(Shown {
        kind: packet.header().kind,
        group: data.sqn.0 / K,
        index: numbering.parity_index(data.sqn, group_option).unwrap(),
        size,
        is_variable: flags.contains(Flags::VAR_PKTLEN),
        fragment,
        payload: packet.tsdu().to_vec(),
    })
}

fn indexes(shown: &[Shown]) -> Vec<(u32, usize)> {
    shown
        .iter()
        .map(|shown| (shown.group, shown.index))
        .collect()
}

/// Everything of group `group` that was seen, but for the members in `lost`, as a receiver decodes
/// it: the lost members, by their numbers.
fn decoded(bench: &Bench, group: u32, lost: &[u32]) -> Vec<(u32, Vec<u8>, Option<Fragment>)> {
    let code = Code::new(K as usize).unwrap();
    let mut work = Workspace::new(combine, &code, 1500);
    let mut found = Group::default();
    for seen in &bench.seen {
        let packet = seen.packet();
        if let Some(parity) = shown(seen).filter(|parity| parity.group == group) {
            found.add_parity(
                &code,
                &work,
                &Parity {
                    index: parity.index,
                    payload: &parity.payload,
                    is_variable: parity.is_variable,
                    fragment: parity.fragment,
                    packet_count: parity.size.map(|size| size as usize),
                },
            );
        } else if let Some(sqn) = seen.data_sqn()
            && sqn / K == group
            && !lost.contains(&sqn)
            && !packet.header().flags.contains(Flags::PARITY)
        {
            let fragment = packet.options().find_map(|option| match option {
                PgmOption::Fragment(fragment) => Some(fragment),
                _ => None,
            });
            let at = (sqn % K) as usize;
            found.add_member(&code, &work, at, packet.tsdu(), fragment.as_ref());
        }
    }
    let mut all = Vec::new();
    found
        .recover(&code, &mut work, |at, payload, fragment| {
            all.push((group * K + at as u32, payload.to_vec(), fragment));
        })
        .unwrap();
    all
}

fn counter(bench: &Bench, name: &str) -> u64 {
    bench.source.counters().value_of(name).unwrap()
}

/// A message that no other equals.
fn message(number: u32, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u32 * 7 + number * 31) as u8)
        .collect()
}

#[test]
fn s11_4_the_offer_stands_in_every_spm_as_it_was_configured() {
    for (settings, is_proactive, is_on_demand) in [
        (&[][..], false, true),
        (&[("fec_proactive_max", "2")], true, true),
        (
            &[("fec_proactive", "1"), ("fec_on_demand", "off")],
            true,
            false,
        ),
        (&[("fec_form", "openpgm")], false, true),
    ] {
        let mut bench = bench(settings);
        bench.ms(100);
        let spms = bench.of(PacketType::Spm);
        assert!(spms.len() >= 3);
        for seen in spms {
            let offer = seen.packet().options().find_map(|option| match option {
                PgmOption::ParityPrm(offer) => Some(offer),
                _ => None,
            });
            let mark = seen.packet().options().find_map(|option| match option {
                PgmOption::Mark(mark) => Some(mark),
                _ => None,
            });
            let (offer, reading) = (offer.unwrap(), Mark::parity_reading(mark.as_ref()));
            assert_eq!(offer.group_size, K);
            assert_eq!(offer.is_proactive(reading), is_proactive);
            assert_eq!(offer.is_on_demand(reading), is_on_demand);
        }
    }
}

#[test]
fn s11_4_a_parity_nak_is_confirmed_and_answered_with_so_many_parity_packets() {
    let mut bench = bench(&[]);
    for number in 0..24 {
        bench.source.offer(&message(number, 100)).unwrap();
    }
    bench.drain();
    assert_eq!(parity_nak(&mut bench, &[(1, 3), (2, 1)]), Verdict::Control);
    let from = bench.seen.len();
    bench.drain();
    let ncf = &bench.seen[from];
    assert_eq!(ncf.kind(), PacketType::Ncf);
    assert!(ncf.packet().header().flags.contains(Flags::PARITY));
    assert_eq!(ncf.ncf_sqns().unwrap(), [8 + 2, 16]);
    let sent = parities(&bench);
    assert_eq!(indexes(&sent), [(1, 0), (1, 1), (1, 2), (2, 0)]);
    for parity in &sent {
        assert_eq!(parity.kind, PacketType::Rdata);
        assert_eq!(
            (parity.size, parity.is_variable, parity.fragment),
            (None, false, None)
        );
    }
    let found = decoded(&bench, 1, &[8, 11, 15]);
    let expected = [8, 11, 15].map(|sqn| (sqn, message(sqn, 100), None));
    assert_eq!(found, expected);
    assert_eq!(counter(&bench, "parity_packets"), 4);
    assert_eq!(counter(&bench, "rdata_packets"), 0);
}

#[test]
fn s11_2_lengths_and_fragments_of_lost_members_come_back() {
    let mut bench = bench(&[]);
    bench.source.offer(&message(0, 3000)).unwrap();
    for number in 1..6 {
        bench
            .source
            .offer(&message(number, 10 * number as usize))
            .unwrap();
    }
    bench.drain();
    assert_eq!(
        bench.source.lead() % u64::from(K),
        0,
        "three pieces and five messages"
    );
    parity_nak(&mut bench, &[(0, 2)]);
    bench.drain();
    let sent = parities(&bench);
    assert!(
        sent.iter()
            .all(|parity| parity.is_variable && parity.fragment.is_some())
    );
    let found = decoded(&bench, 0, &[1, 4]);
    let (piece, whole) = (&found[0], &found[1]);
    let len = bench.source.max_fragment_tsdu();
    assert_eq!(piece.1, message(0, 3000)[len..2 * len]);
    let fragment = piece.2.unwrap();
    assert_eq!((fragment.first, fragment.offset as usize), (Sqn(0), len));
    assert_eq!((whole.0, &whole.1, whole.2), (4, &message(2, 20), None));
}

#[test]
fn s11_4_requests_for_one_group_are_consolidated() {
    let mut bench = bench(&[]);
    bench.send(16, 50);
    parity_nak(&mut bench, &[(0, 2)]);
    parity_nak(&mut bench, &[(0, 1)]);
    parity_nak(&mut bench, &[(0, 3)]);
    bench.drain();
    assert_eq!(bench.of(PacketType::Ncf).len(), 3, "each is confirmed");
    assert_eq!(indexes(&parities(&bench)), [(0, 0), (0, 1), (0, 2)]);
    // A NAK that was under way when they left is one too late, unless it asks for more.
    parity_nak(&mut bench, &[(0, 3)]);
    parity_nak(&mut bench, &[(0, 4)]);
    bench.drain();
    assert_eq!(parities(&bench).len(), 4);
    assert_eq!(counter(&bench, "nak_eliminated"), 1);
    bench.ms(20);
    parity_nak(&mut bench, &[(0, 2)]);
    bench.drain();
    assert_eq!(
        indexes(&parities(&bench))[4..],
        [(0, 4), (0, 5)],
        "never the same again"
    );
}

#[test]
fn s11_4_parity_on_demand_follows_that_which_its_group_gets_unasked() {
    let mut bench = bench(&[("fec_proactive", "2")]);
    bench.drain();
    for number in 0..K {
        bench.source.offer(&message(number, 50)).unwrap();
    }
    // The data of the group leaves, and no parity yet.
    while bench.source.unsent() < bench.source.lead() {
        let budget = Budget {
            bytes: 64_000,
            datagrams: 64,
        };
        let run = bench.source.poll_run(bench.now, budget).unwrap();
        let datagrams = run.datagram_count();
        bench
            .source
            .run_done(bench.now, Outcome::Sent { datagrams });
    }
    assert_eq!(parity_nak(&mut bench, &[(0, 1)]), Verdict::Control);
    bench.drain();
    let sent: Vec<_> = parities(&bench)
        .iter()
        .map(|it| (it.kind, it.index))
        .collect();
    let (odata, rdata) = (PacketType::Odata, PacketType::Rdata);
    assert_eq!(sent, [(odata, 0), (odata, 1), (rdata, 2)]);
}

#[test]
fn s11_2_the_second_k_parity_packets_say_so_and_used_up_indexes_start_over() {
    let mut bench = bench(&[]);
    bench.send(8, 50);
    let mut seen = Vec::new();
    for _ in 0..32 {
        parity_nak(&mut bench, &[(0, 8)]);
        bench.ms(20);
        seen.extend(parities(&bench).iter().map(|parity| parity.index));
        bench.forget();
    }
    let expected: Vec<_> = (0..255 - 8).chain(0..).take(256).collect();
    assert_eq!(seen, expected);
}

#[test]
fn s11_4_proactive_parity_follows_its_group_as_odata_and_is_not_used_again() {
    let mut bench = bench(&[("fec_proactive", "2")]);
    bench.send(7, 50);
    assert!(parities(&bench).is_empty());
    bench.send(10, 50);
    let sent = parities(&bench);
    assert_eq!(indexes(&sent), [(0, 0), (0, 1), (1, 0), (1, 1)]);
    assert!(sent.iter().all(|parity| parity.kind == PacketType::Odata));
    assert_eq!(decoded(&bench, 1, &[9, 12]).len(), 2);
    let is_next = |seen: &Seen| seen.data_sqn() == Some(8) && shown(seen).is_none();
    let next_at = bench.seen.iter().position(is_next).unwrap();
    let is_parity = |seen: &Seen| shown(seen).is_some_and(|parity| parity.group == 0);
    let parity_at = bench.seen.iter().rposition(is_parity).unwrap();
    assert!(
        parity_at < next_at,
        "the next group would make receivers ask for it"
    );
    parity_nak(&mut bench, &[(1, 1)]);
    bench.drain();
    let last = parities(&bench).pop().unwrap();
    assert_eq!(
        (last.kind, last.group, last.index),
        (PacketType::Rdata, 1, 2)
    );
    assert_eq!(counter(&bench, "parity_unasked"), 4);
}

#[test]
fn s11_4_selective_naks_are_answered_selectively_for_receivers_without_parity() {
    let mut bench = bench(&[]);
    bench.send(20, 50);
    bench.nak(&[3, 18]);
    bench.drain();
    assert_eq!(bench.sqns(PacketType::Rdata), [3, 18]);
    assert!(parities(&bench).is_empty());
}

#[test]
fn s11_3_1_parity_of_a_group_that_is_not_complete_cannot_be_asked_for() {
    let mut bench = bench(&[]);
    bench.send(12, 50);
    let verdict = parity_nak(&mut bench, &[(1, 2)]);
    assert_eq!(verdict, Verdict::Drop(DropReason::BeyondWindow));
    assert_eq!(parity_nak(&mut bench, &[(1, 2), (0, 1)]), Verdict::Control);
    bench.drain();
    assert_eq!(bench.of(PacketType::Ncf)[0].ncf_sqns().unwrap(), [0]);
    assert_eq!(indexes(&parities(&bench)), [(0, 0)]);
}

#[test]
fn s11_4_without_the_offer_parity_naks_are_strangers() {
    for settings in [&[("fec_group", "0")][..], &[("fec_on_demand", "off")]] {
        let mut bench = bench(settings);
        bench.send(16, 50);
        let verdict = parity_nak(&mut bench, &[(0, 1)]);
        assert_eq!(verdict, Verdict::Drop(DropReason::Unexpected));
    }
}

#[test]
fn s11_4_the_last_group_is_cut_short_when_the_session_ends() {
    let mut bench = bench(&[("fec_proactive", "1")]);
    for number in 0..13 {
        bench.source.offer(&message(number, 60)).unwrap();
    }
    bench.drain();
    bench.source.close(bench.now);
    bench.forget();
    bench.drain();
    let spm = bench.of(PacketType::Spm)[0].packet();
    let size = spm.options().find_map(|option| match option {
        PgmOption::CurrTgsize(option) => Some(option.packet_count),
        _ => None,
    });
    assert_eq!(size, Some(5));
    let unasked: Vec<_> = parities(&bench)
        .iter()
        .map(|parity| (parity.group, parity.size))
        .collect();
    assert_eq!(unasked, [(1, Some(5))]);
    // Two of five are missing: who asks has three of eight.
    parity_nak(&mut bench, &[(1, 5)]);
    bench.drain();
    let sent = parities(&bench);
    assert_eq!(indexes(&sent), [(1, 0), (1, 1), (1, 2)]);
    assert!(sent.iter().all(|parity| parity.size == Some(5)));
}

#[test]
fn s11_4_every_parity_packet_fits_the_path_whatever_its_members() {
    let mut bench = bench(&[("mtu", "600"), ("send_syn", "on"), ("fec_proactive", "8")]);
    let longest = bench.source.max_tsdu();
    bench.source.offer(&message(0, longest)).unwrap();
    bench.source.offer(&message(1, longest * 2)).unwrap();
    for number in 2..20 {
        bench
            .source
            .offer(&message(number, longest - number as usize))
            .unwrap();
    }
    bench.source.offer(&message(20, longest * 2)).unwrap();
    bench.drain();
    for round in 0..20 {
        parity_nak(&mut bench, &[(0, 8), (1, 8)]);
        bench.ms(20);
        if round == 10 {
            bench.source.close(bench.now);
        }
        parity_nak(&mut bench, &[(2, 8)]);
        bench.ms(20);
    }
    assert!(parities(&bench).iter().any(|parity| parity.index >= 8));
    assert!(parities(&bench).iter().any(|parity| parity.size.is_some()));
    let longest = bench.seen.iter().map(Seen::on_wire).max().unwrap();
    assert_eq!(longest, 600, "nor is any room left unused");
}

#[test]
fn s11_4_a_group_that_waits_for_parity_stays_in_the_window() {
    let mut bench = bench(&[
        ("tx_window_sqns", "64"),
        ("rate", "100kB/s"),
        ("repair_share", "1"),
    ]);
    bench.send(16, 1000);
    bench.ms(500);
    for group in 0..2 {
        parity_nak(&mut bench, &[(group, 8)]);
    }
    bench.forget();
    bench.flood(std::time::Duration::from_secs(20), 1000);
    let sent = parities(&bench);
    assert_eq!(sent.len(), 16, "both groups were served in full");
    assert!(counter(&bench, "full") > 0 && bench.source.trail() > 0);
}

#[test]
fn s11_4_the_share_of_proactive_parity_follows_what_is_asked_for() {
    let mut bench = bench(&[("fec_proactive_max", "3")]);
    for round in 0..64 * 4 {
        bench.send(8, 20);
        parity_nak(&mut bench, &[(round, 1)]);
        bench.ms(1);
    }
    bench.forget();
    bench.send(8, 20);
    assert_eq!(parities(&bench).len(), 3);
    for _ in 0..64 * 8 * 4 {
        bench.send(8, 20);
    }
    bench.forget();
    bench.send(8, 20);
    assert!(parities(&bench).is_empty());
}
