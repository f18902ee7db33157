//! Sessions that share too little memory: they take turns, and lose nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod receiver_kit;

use base::{DropReason, Verdict};
use receiver_kit::{Bench, SOURCE, data, downstream_of, dropped, joined_with, made};
use towline_pgm::{Config, ConfigBuilder, Mode};
use wire::{
    Sqn,
    pgm::{Body, Fragment, Gsi, PgmOption, Rst, Spm, Tsi},
};

const OTHER: Tsi = Tsi {
    gsi: Gsi([6, 5, 4, 3, 2, 1]),
    port: 1234,
};

/// Room for four pages of 2048 bytes and the longest message.
fn cramped() -> ConfigBuilder {
    Config::builder()
        .apdu_bytes_max(4000)
        .rx_window_bytes(8192)
        .rx_total_bytes(8192 + 4096)
}

/// A packet of the other sender: a whole message.
fn whole(bench: &mut Bench, sqn: u32, payload: &[u8]) -> Verdict {
    let body = Body::Odata(data(sqn, 0));
    bench.packet(&made(&downstream_of(OTHER), &body, &[], payload))
}

/// A packet of the other sender: 1000 bytes of a message of 3000 that begins at `first`.
fn piece(bench: &mut Bench, first: u32, index: u32) -> Verdict {
    let option = PgmOption::Fragment(Fragment {
        first: Sqn(first),
        offset: index * 1000,
        apdu_len: 3000,
    });
    let body = Body::Odata(data(first + index, 0));
    bench.packet(&made(
        &downstream_of(OTHER),
        &body,
        &[option],
        &[b'p'; 1000],
    ))
}

/// Lengths of the messages seen so far; what was lost is negative.
fn lens(bench: &mut Bench) -> Vec<i64> {
    let len = |text: String| text.parse().unwrap_or(text.len() as i64);
    bench.take_texts().into_iter().map(len).collect()
}

/// Two sessions: of the other, 10 is missing, and what follows fills the store.
fn filled() -> Bench {
    let mut bench = joined_with(Mode::Sequence, cramped(), 1);
    assert!(matches!(whole(&mut bench, 9, b"nine"), Verdict::Held));
    bench.take_events();
    for index in 0..3 {
        assert_eq!(piece(&mut bench, 11, index), Verdict::Held);
    }
    let full = dropped(DropReason::NoRoom);
    assert!((14..30).any(|sqn| whole(&mut bench, sqn, &[b'w'; 900]) == full));
    bench
}

/// All but the last piece of a message that takes the reserve, because the store is full.
fn begin_another(bench: &mut Bench) {
    for index in 0..3 {
        let verdict = bench.fragment(2 + index, 2, index * 1000, &[b'a'; 4000], 1000);
        assert_eq!(verdict, Verdict::Held);
    }
}

#[test]
fn a_full_store_has_room_for_the_message_that_is_due() {
    let mut bench = filled();
    assert!(lens(&mut bench).is_empty());
    whole(&mut bench, 10, b"ten");
    let lens = lens(&mut bench);
    assert_eq!(lens[..2], [3, 3000]);
    assert!(lens[2..].iter().all(|&len| len == 900), "{lens:?}");
}

#[test]
fn a_held_message_waits_for_room_that_another_session_has() {
    let mut bench = filled();
    begin_another(&mut bench);
    whole(&mut bench, 10, b"ten");
    assert_eq!(lens(&mut bench), [3], "the message behind it has no room");
    assert!(bench.receiver.held_memory_bytes() <= 8192 + 4096);

    bench.fragment(5, 2, 3000, &[b'a'; 4000], 1000);

    let lens = lens(&mut bench);
    assert_eq!(lens[..2], [4000, 3000], "one after the other, and no loss");
    assert!(lens[2..].iter().all(|&len| len == 900), "{lens:?}");
    assert!(bench.receiver.held_memory_bytes() <= 8192 + 4096);
    bench.assert_accounts();
}

#[test]
fn a_session_that_goes_away_leaves_its_room_to_others() {
    let mut bench = filled();
    begin_another(&mut bench);
    whole(&mut bench, 10, b"ten");
    assert_eq!(lens(&mut bench), [3]);
    bench.receiver.forget(0);
    assert_eq!(lens(&mut bench)[..1], [3000]);
}

#[test]
fn who_breaks_off_while_waiting_for_room_leaves_a_loss_and_no_silence() {
    let mut bench = filled();
    begin_another(&mut bench);
    whole(&mut bench, 10, b"ten");
    assert_eq!(lens(&mut bench), [3]);
    let body = Body::Spm(Spm {
        sqn: Sqn(1),
        trail: Sqn(9),
        lead: Sqn(13),
        path_nla: SOURCE,
    });
    let reset = PgmOption::Rst(Rst {
        is_deaf: true,
        reason: 0,
    });
    bench.packet(&made(&downstream_of(OTHER), &body, &[reset], &[]));
    let texts = bench.take_texts();
    assert_eq!(texts[0], "-3");
    assert_eq!(texts.last().unwrap(), "reset");
}
