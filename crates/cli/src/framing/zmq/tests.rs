use std::ops::Range;

use proptest::{collection::vec, prelude::*};

use super::*;

/// Takes the packets in turn; returns the messages, and how many packets were not in the form.
fn unframed<'a>(
    unframer: &mut Unframer,
    packets: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Vec<u8>>, usize) {
    let (mut messages, mut misframed) = (Vec::new(), 0);
    for packet in packets {
        let taken = unframer.take(packet, |message| messages.push(message.to_vec()));
        misframed += usize::from(taken.is_err());
    }
    (messages, misframed)
}

#[test]
fn messages_are_framed_as_zeromq_frames_them() {
    let mut framer = Framer::new(1_448);
    framer.push(b"one");
    framer.push(b"");
    framer.flush();
    framer.flush();
    assert_eq!(framer.packets, [b"\0\0\x04\0one\x01\0"]);
    let mut framer = Framer::new(258);
    framer.push(&[b'a'; 253]);
    framer.push(&[b'b'; 254]);
    framer.flush();
    let packets: Vec<_> = framer.packets.iter().map(Vec::as_slice).collect();
    // The first begins at once, the second with the last byte of the first packet.
    assert_eq!(packets[0][..4], [0, 0, 254, 0]);
    assert_eq!(packets[0][257..], [0xFF]);
    assert_eq!(packets[1][..12], *b"\xFF\xFF\0\0\0\0\0\0\0\xFF\0b");
    let read = unframed(&mut Unframer::new(254), packets);
    assert_eq!(read, (vec![vec![b'a'; 253], vec![b'b'; 254]], 0));
}

#[test]
fn the_parts_of_a_message_stand_behind_each_other_with_a_tab_between() {
    let stream = b"\0\0\x06\x01topic\x01\x01\x05\0body\x02\0x";
    let whole = (vec![b"topic\t\tbody".to_vec(), b"x".to_vec()], 0);
    assert_eq!(unframed(&mut Unframer::new(11), [&stream[..]]), whole);
    let (messages, misframed) = unframed(&mut Unframer::new(10), [&stream[..]]);
    assert_eq!((messages.len(), misframed), (0, 1), "longer than the limit");
}

#[test]
fn a_late_one_begins_with_the_first_message_that_begins() {
    let packets: [&[u8]; 3] = [b"\xFF\xFFest of one", b"\0\x03ne.", b"\xFF\xFF\x02\0x"];
    assert_eq!(
        unframed(&mut Unframer::new(9), packets),
        (vec![b"x".to_vec()], 0)
    );
}

#[test]
fn what_contradicts_the_form_is_told_and_the_next_packet_read() {
    let wrong: [&[u8]; 6] = [
        b"",
        b"\0",
        b"one",
        b"\0\x05\x02\0x",
        b"\0\0\0",
        b"\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0",
    ];
    for packet in wrong {
        let mut unframer = Unframer::new(1 << 20);
        let (messages, misframed) =
            unframed(&mut unframer, [packet, b"\xFF\xFFxx", b"\0\0\x02\0x"]);
        assert_eq!(
            (messages, misframed),
            (vec![b"x".to_vec()], 1),
            "{packet:?}"
        );
    }
}

/// Returns which of the messages, by their bytes in the stream, lost none of their packets.
fn whole(messages: &[Range<usize>], packets: &[Range<usize>], is_lost: &[bool]) -> Vec<bool> {
    let lost = || packets.iter().zip(is_lost).filter(|(_, is_lost)| **is_lost);
    let overlap = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
    messages
        .iter()
        .map(|message| !lost().any(|(packet, _)| overlap(message, packet)))
        .collect()
}

/// The places of pieces of these lengths, one behind the other.
fn places(lens: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut end = 0;
    let place = |len| {
        let start = end;
        end += len;
        start..end
    };
    lens.into_iter().map(place).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_message_of_which_no_packet_is_lost_comes(
        messages in vec((vec(any::<u8>(), 0..600), any::<bool>()), 0..30),
        packet_bytes in 3_usize..400,
        is_lost in vec(prop::bool::weighted(0.1), 10_000),
    ) {
        let mut framer = Framer::new(packet_bytes);
        for (message, is_flushed) in &messages {
            framer.push(message);
            if *is_flushed {
                framer.flush();
            }
        }
        framer.flush();
        prop_assert!(framer.packets.iter().all(|packet| packet.len() <= packet_bytes));
        let head = |len: usize| if len < 254 { 2 } else { 10 };
        let wanted = whole(
            &places(messages.iter().map(|(message, _)| message.len() + head(message.len()))),
            &places(framer.packets.iter().map(|packet| packet.len() - OFFSET_BYTES)),
            &is_lost,
        );
        let wanted = messages.iter().zip(wanted).filter(|(_, is_whole)| *is_whole);
        let wanted: Vec<_> = wanted.map(|((message, _), _)| message.clone()).collect();
        let (mut unframer, mut got) = (Unframer::new(600), Vec::new());
        for (packet, is_lost) in framer.packets.iter().zip(&is_lost) {
            if *is_lost {
                unframer.lose();
            } else {
                let taken = unframer.take(packet, |message| got.push(message.to_vec()));
                prop_assert_eq!(taken, Ok(()));
            }
        }
        prop_assert_eq!(got, wanted);
    }

    #[test]
    fn no_bytes_make_it_panic_or_hold_more_than_the_limit(
        packets in vec((0_u16..8, vec(prop_oneof![0..8_u8, Just(LONG)], 0..80)), 0..40),
    ) {
        let mut unframer = Unframer::new(100);
        for (offset, stream) in packets {
            let offset = if offset == 7 { NONE } else { offset };
            let packet = [&offset.to_be_bytes(), &stream[..]].concat();
            let taken = unframer.take(&packet, |message| assert!(message.len() <= 100));
            prop_assert!(taken.is_ok() || unframer.next.is_none());
            // A tab may stand behind the last byte that fits.
            prop_assert!(unframer.message.len() <= 101);
        }
    }
}
