//! Every message survives emit and parse; no bytes make parse panic.

use proptest::prelude::*;

use super::*;
use crate::object::{BlockHeader, Decoder, HELLO_LEN_MAX, StreamError};

#[test]
fn a_message_that_ends_too_early_says_what_it_lacks_and_why() {
    let error = Message::parse(COMPLETE, 0, &[0, 0, 1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "pass at offset 8: cut short, 4 bytes needed but 3 left by the frame's length field"
    );
}

/// One of each kind that starts something, with fields that would show a swap.
fn one_of_each_order(scratch: &mut Vec<u8>) -> Vec<Message<'_>> {
    let ranges = Ranges::encode(scratch, &mut [1..5, 9..10, 1 << 40..1 << 41].into_iter());
    let list = RangeList {
        pass: 3,
        object: ObjectId::CONTENT,
        is_last: true,
        ranges,
    };
    vec![
        Message::Challenge(Challenge { nonce: [7; 16] }),
        Message::Invite(Invite {
            session_id: 1,
            required: 2,
            receiver_count: 3,
        }),
        Message::Wait,
        Message::Hello(Hello {
            version_min: 1,
            version_max: 2,
            instance: 3,
            session_id: 4,
            name: "größe",
            nonce: Some([6; 16]),
        }),
        Message::Welcome(Welcome {
            version: 1,
            slot: 2,
            manifest: [3; 16],
            session_id: 4,
            receiver_count: 5,
            report_interval_us: 6,
            report_sqns: 7,
            manifest_bytes: 8,
            is_late: true,
            nonce: [9; 16],
        }),
        Message::Refused {
            reason: Refusal::DuplicateName,
            text: "twice",
        },
        Message::Have(list),
        Message::Need(list),
        Message::PassEnd(PassEnd {
            pass: 9,
            position: Some(1 << 33),
        }),
        Message::PassEnd(PassEnd {
            pass: 9,
            position: None,
        }),
        Message::Complete { pass: 7 },
        Message::Seals(Seals {
            bytes: 64,
            hash: [9; 32],
        }),
        Message::Block(Block {
            object: ObjectId::MANIFEST,
            offset: 5,
            data: b"data",
        }),
    ]
}

fn one_of_each(scratch: &mut Vec<u8>) -> Vec<Message<'_>> {
    let mut all = one_of_each_order(scratch);
    all.extend(one_of_each_report());
    all
}

/// The rest of one of each kind: what a receiver reports, and how a connection ends.
fn one_of_each_report() -> Vec<Message<'static>> {
    vec![
        Message::Pos(Pos {
            contiguous: 1,
            lead: 2,
            held: 3,
            bytes_per_s: 4,
            queue_delay_us: 5,
            host_drops: 6,
            lost: 7,
            naks: 8,
            echo_us: 9,
            echo_age_us: 10,
        }),
        Message::Progress(Progress {
            phase: Phase::Verifying,
            numbers: Progressed {
                held: 1,
                verified: 2,
                lost: 3,
                repairs_asked: 4,
                repairs_got: 5,
                store_waits: 6,
            },
        }),
        Message::Done(Done {
            root: [1; 32],
            proof: [2; 32],
            numbers: DoneNumbers {
                bytes: 1,
                lost: 2,
                repairs_asked: 3,
                repairs_got: 4,
                time_ns: 5,
            },
        }),
        Message::Acknowledged,
        Message::Ask,
        Message::Name { name: "ticks" },
        Message::Window(Window {
            trail: 1 << 33,
            end: 1 << 34,
            phase: StreamPhase::Ended,
        }),
        Message::Error {
            code: ErrorCode::DiskFull,
            text: "full",
        },
        Message::Bye,
        Message::Unknown {
            kind: 999,
            is_critical: false,
        },
    ]
}

#[test]
fn every_message_survives_the_stream_byte_by_byte() {
    let mut scratch = Vec::new();
    let messages = one_of_each(&mut scratch);
    let mut stream = Vec::new();
    for message in &messages {
        message.emit(&mut stream);
    }
    for step in [1, 3, 7, 1000, stream.len()] {
        let mut decoder = Decoder::new(BODY_LEN_MAX);
        let mut seen = 0;
        for piece in stream.chunks(step) {
            decoder.push(piece);
            while let Some(message) = decoder.next_message().unwrap() {
                assert_eq!(message, messages[seen], "{}", message.name());
                seen += 1;
            }
        }
        assert_eq!(seen, messages.len(), "in steps of {step}");
    }
}

#[test]
fn every_truncation_of_a_body_is_refused_or_shorter() {
    let mut scratch = Vec::new();
    for message in one_of_each(&mut scratch) {
        let mut frame = Vec::new();
        message.emit(&mut frame);
        let body = &frame[FRAME_HEADER_LEN..];
        for len in 0..body.len() {
            if let Ok(read) = Message::parse(message.kind(), 0, &body[..len]) {
                let is_open_ended = matches!(read, Message::Block(_));
                assert!(is_open_ended, "{} of {len} bytes", message.name());
            }
        }
    }
}

#[test]
fn appended_fields_of_a_later_version_are_skipped() {
    let mut frame = Vec::new();
    Message::Complete { pass: 1 }.emit(&mut frame);
    frame.extend_from_slice(b"more");
    let body = &frame[FRAME_HEADER_LEN..];
    assert_eq!(
        Message::parse(COMPLETE, 0, body),
        Ok(Message::Complete { pass: 1 })
    );
}

#[test]
fn an_unknown_message_that_must_be_understood_ends_the_stream() {
    let mut frame = Vec::new();
    let (kind, is_critical) = (999, true);
    Message::Unknown { kind, is_critical }.emit(&mut frame);
    let mut decoder = Decoder::new(BODY_LEN_MAX);
    decoder.push(&frame);
    assert_eq!(decoder.next_message(), Err(StreamError::Unknown { kind }));
}

#[test]
fn texts_are_cleaned_for_terminals() {
    let mut frame = Vec::new();
    let text = format!("bad\u{1b}[2J{}", "x".repeat(2 * TEXT_LEN_MAX));
    let code = ErrorCode::Io;
    Message::Error { code, text: &text }.emit(&mut frame);
    let Message::Error { text, .. } = Message::parse(ERROR, 0, &frame[8..]).unwrap() else {
        panic!("another message came back");
    };
    assert!(text.starts_with("bad?[2J") && text.len() == TEXT_LEN_MAX);
    assert!(Message::parse(ERROR, 0, b"\0\x01\0\x01\x1b").is_err());
}

#[test]
fn ranges_must_ascend_and_not_touch() {
    let mut scratch = Vec::new();
    for bad in [
        [(0, 1), (5, 5)],
        [(0, 1), (6, 5)],
        [(1, 3), (3, 4)],
        [(4, 6), (1, 2)],
    ] {
        let mut bad = bad.into_iter().map(|(start, end)| start..end);
        let list = RangeList {
            pass: 0,
            object: ObjectId::CONTENT,
            is_last: false,
            ranges: Ranges::encode(&mut scratch, &mut bad),
        };
        let mut frame = Vec::new();
        Message::Need(list).emit(&mut frame);
        assert!(Message::parse(NEED, 0, &frame[8..]).is_err());
    }
}

#[test]
fn what_is_too_long_says_how_long_it_may_be() {
    let said = |kind, body: &[u8]| Message::parse(kind, 0, body).unwrap_err().to_string();
    let ranges = [&[0; 9][..], &2_001_u16.to_be_bytes()].concat();
    assert_eq!(
        said(NEED, &ranges),
        "ranges at offset 17: the range count is 2001, but must be at most 2000"
    );
    assert_eq!(
        said(BLOCK, &[0; 12 + BLOCK_DATA_MAX + 1]),
        "block data at offset 20: the length of the data is 32769, but must be at most 32768"
    );
    assert_eq!(
        said(BLOCK, &[0; 12]),
        "block data at offset 20: cut short, 1 bytes needed but 0 left by the frame's length field"
    );
    assert_eq!(
        said(BLOCK, &[&[0; 4][..], &[0xFF; 8], &[0]].concat()),
        format!("block position at offset 12: forbidden value {}", u64::MAX)
    );
    assert_eq!(
        said(ERROR, &[0, 1, 0x03, 0xE9]),
        "explanation at offset 10: the text's length field is 1001, but must be at most 1000"
    );
}

#[test]
fn a_stream_that_is_not_ours_is_refused_early() {
    let mut decoder = Decoder::new(HELLO_LEN_MAX);
    decoder.push(b"GET / HTTP/1.1\r\n");
    assert!(decoder.next_message().is_err());
    let mut decoder = Decoder::new(HELLO_LEN_MAX);
    decoder.push(&u32::MAX.to_be_bytes());
    assert!(
        decoder.next_message().is_err(),
        "refused by its length alone"
    );
}

proptest! {
    #[test]
    fn block_headers_keep_the_identity(bytes in proptest::array::uniform16(any::<u8>())) {
        if let Ok((header, rest)) = BlockHeader::parse(&bytes) {
            prop_assert!(rest.is_empty());
            prop_assert_eq!(header.to_bytes(), bytes);
        }
    }
}

#[test]
fn a_block_filled_in_its_place_is_the_block_and_one_that_fails_is_nothing() {
    let (place, data) = ((ObjectId::CONTENT, 77), b"some bytes");
    let mut copied = b"before".to_vec();
    Message::Block(Block {
        object: place.0,
        offset: place.1,
        data,
    })
    .emit(&mut copied);
    let mut filled = b"before".to_vec();
    let fill = |out: &mut Vec<u8>| -> Result<(), &str> {
        out.extend_from_slice(data);
        Ok(())
    };
    Block::emit_filled(&mut filled, place, data.len(), fill).unwrap();
    assert_eq!(filled, copied);
    let failed = Block::emit_filled(&mut filled, place, 9, |_| Err("no such file"));
    assert_eq!((failed, filled), (Err("no such file"), copied));
}
