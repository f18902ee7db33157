//! Rows of messages: what is offered comes out, whatever shares a packet with what.

#![allow(
    clippy::unwrap_used,
    reason = "test code, though not in a test function"
)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use towline_pgm::Full;
use wire::pgm::{Packed, PacketType, PgmOption};

mod source_kit;
use source_kit::{Bench, Seen};

/// Offers and sends, in an order that is drawn.
#[derive(Clone, Debug)]
enum Step {
    Offer(usize),
    Reserve(usize),
    Abandon(usize),
    Send,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![6 => 0..200_usize, 2 => 0..1500_usize, 1 => 1300..6000_usize];
    let step = prop_oneof![
        6 => len.clone().prop_map(Step::Offer),
        4 => (0..1000_usize).prop_map(Step::Reserve),
        1 => (0..1000_usize).prop_map(Step::Abandon),
        2 => Just(Step::Send),
    ];
    prop::collection::vec(step, 1..200)
}

/// The messages that the packets carry, in order.
fn messages(packets: &[&Seen]) -> Vec<Vec<u8>> {
    let (mut all, mut pieces) = (Vec::new(), BTreeMap::new());
    for seen in packets {
        let packet = seen.packet();
        let is_packed = |option| option == PgmOption::Packed(Packed);
        assert!(packet.options().any(is_packed), "every packet says so");
        let fragment = packet.options().find_map(|option| match option {
            PgmOption::Fragment(fragment) => Some(fragment),
            _ => None,
        });
        let mut row = packet.tsdu().to_vec();
        if let Some(fragment) = fragment {
            pieces.insert(fragment.offset, row);
            let held: usize = pieces.values().map(Vec::len).sum();
            if held < fragment.apdu_len as usize {
                continue;
            }
            row = std::mem::take(&mut pieces)
                .into_values()
                .flatten()
                .collect();
        }
        let mut rest = &row[..];
        while let Some((message, behind)) = Packed::split(rest) {
            all.push(message.to_vec());
            rest = behind;
        }
        assert!(Packed::is_end(rest));
    }
    all
}

fn message(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at) as u8).collect()
}

proptest! {
    #[test]
    fn what_was_offered_comes_out_in_order(steps in steps(), has_syn in any::<bool>()) {
        let syn = if has_syn { "true" } else { "false" };
        let mut bench = Bench::set(&[("pack", "true"), ("send_syn", syn)]);
        let mut offered = Vec::new();
        for step in steps {
            match step {
                Step::Offer(len) => {
                    let message = message(offered.len(), len);
                    let position = bench.source.offer(&message).unwrap();
                    prop_assert!(position < bench.source.lead());
                    offered.push(message);
                }
                Step::Reserve(len) => {
                    let message = message(offered.len(), len);
                    let mut slot = bench.source.reserve(len).unwrap();
                    slot.payload_mut().copy_from_slice(&message);
                    prop_assert_eq!(slot.commit(), bench.source.lead() - 1);
                    offered.push(message);
                }
                Step::Abandon(len) => {
                    let mut slot = bench.source.reserve(len).unwrap();
                    slot.payload_mut().fill(0xEE);
                }
                Step::Send => bench.drain(),
            }
        }
        bench.drain();
        prop_assert!(bench.source.is_drained());
        let sent = bench.of(PacketType::Odata);
        prop_assert!(sent.iter().all(|seen| seen.on_wire() <= 1500));
        prop_assert_eq!(messages(&sent), offered);
    }
}

#[test]
fn small_messages_share_packets_that_leave_as_one_run() {
    let mut bench = Bench::set(&[("pack", "true")]);
    for number in 0..1000 {
        bench.source.offer(&message(number, 64)).unwrap();
    }
    bench.drain();
    let sent = bench.of(PacketType::Odata);
    assert_eq!(sent.len(), 1000_usize.div_ceil(1436 / 65));
    let (last, full) = sent.split_last().unwrap();
    assert!(
        full.iter()
            .all(|seen| seen.bytes.len() == full[0].bytes.len())
    );
    assert!(last.bytes.len() < full[0].bytes.len());
    assert_eq!(bench.source.counters().packed, 1000);
}

#[test]
fn a_message_that_has_left_is_not_added_to() {
    let mut bench = Bench::set(&[("pack", "true")]);
    let first = bench.source.offer(b"one").unwrap();
    assert_eq!(bench.source.offer(b"two"), Ok(first));
    bench.drain();
    assert_eq!(bench.source.offer(b"three"), Ok(first + 1));
    bench.drain();
    let before = bench.of(PacketType::Odata);
    assert_eq!(messages(&before), [&b"one"[..], b"two", b"three"]);
    let (asked, len) = (before[0].data_sqn().unwrap(), before[0].bytes.len());
    bench.forget();
    bench.nak(&[asked]);
    bench.ms(20);
    let again = bench.of(PacketType::Rdata);
    assert_eq!(again[0].bytes.len(), len);
    assert_eq!(messages(&again[..1]), [&b"one"[..], b"two"]);
}

#[test]
fn a_full_window_takes_nothing_into_a_row_either() {
    let mut bench = Bench::set(&[("pack", "true"), ("tx_window_bytes", "20000")]);
    let mut taken = 0;
    let end = loop {
        match bench.source.offer(&message(taken, 100)) {
            Ok(_) => taken += 1,
            Err(end) => break end,
        }
    };
    assert_eq!(end, Full::Window);
    bench.drain();
    assert_eq!(messages(&bench.of(PacketType::Odata)).len(), taken);
    assert!(bench.source.offer(b"more").is_ok());
}

#[test]
fn what_is_too_long_and_what_is_no_row_is_refused() {
    let mut bench = Bench::set(&[("pack", "true")]);
    let max = bench.source.max_apdu();
    let too_long = vec![0; max + 1];
    assert_eq!(bench.source.offer(&too_long), Err(Full::TooLong { max }));
    assert!(bench.source.offer(&too_long[..max]).is_ok());
    let max = bench.source.max_tsdu();
    let refused = bench.source.reserve(max + 1).map(drop).unwrap_err();
    assert_eq!(refused, Full::TooLong { max });
    assert!(bench.source.reserve_burst(100, 2).is_err());
}

#[test]
fn an_abort_drops_the_open_row_with_all_that_was_not_sent() {
    let mut bench = Bench::set(&[("pack", "true")]);
    bench.source.offer(b"one").unwrap();
    bench.source.abort(bench.now, 0, false);
    bench.ms(50);
    assert!(bench.of(PacketType::Odata).is_empty());
}
