//! Operation lists and well-formed lies, made up rather than found: no machine of the object
//! protocol breaks, and the parsers beneath keep their identities.

use ::delivery::hash_bytes;
use ::wire::object::{Block, Message, ObjectId, PassEnd, Pos, RangeList, Ranges, Seals};
use proptest::prelude::*;
use towline_fuzzing::{delivery, wire};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn operation_lists_never_break_a_machine(
        operations in proptest::collection::vec(
            (any::<u8>(), any::<u8>(), proptest::collection::vec(any::<u8>(), 0..60)), 0..60),
    ) {
        let mut data = Vec::new();
        for (kind, parameter, bytes) in operations {
            data.extend_from_slice(&[kind, parameter, bytes.len() as u8]);
            data.extend_from_slice(&bytes);
        }
        delivery::audience(&data);
        delivery::sender(&data);
        delivery::receiver(&data);
    }

    #[test]
    fn well_formed_lies_never_break_a_machine(
        lies in proptest::collection::vec((0..12_u8, any::<u32>(), any::<u8>()), 0..40),
    ) {
        let mut data = vec![0, 0, 0, 5, 0, 0];
        for (kind, number, small) in lies {
            let mut scratch = Vec::new();
            let start = u64::from(number % 4000);
            let mut ranges = std::iter::once(start..start + 1 + u64::from(small));
            let object = ObjectId(u32::from(small % 4));
            let lie = RangeList {
                pass: number % 3,
                object,
                is_last: small & 1 == 0,
                ranges: Ranges::encode(&mut scratch, &mut ranges),
            };
            let noise = [small; 40];
            let message = match kind {
                0 | 1 => Message::Need(lie),
                2 | 3 => Message::Have(lie),
                4 => Message::Complete { pass: number % 3 },
                5 => Message::PassEnd(PassEnd {
                    pass: number % 3,
                    position: (small & 1 == 0).then_some(start),
                }),
                6 | 7 => Message::Block(Block {
                    object,
                    offset: start,
                    data: &noise,
                }),
                8 => Message::Seals(Seals { bytes: 64, hash: hash_bytes(&[small; 64]) }),
                9 => Message::Pos(Pos {
                    contiguous: u64::from(number) << 16,
                    ..Pos::default()
                }),
                10 => Message::Bye,
                _ => Message::Acknowledged,
            };
            let bytes = frame(&message);
            if let Ok(len) = u8::try_from(bytes.len()) {
                data.extend_from_slice(&[3, 0, len]);
                data.extend_from_slice(&bytes);
            }
            data.extend_from_slice(&match small % 5 {
                0 => [6, 0, small],
                1 => [5, small, 0],
                2 => [1, 0, 0],
                3 => [0, small % 4, 0],
                _ => [7, 0, 0],
            });
        }
        delivery::audience(&data);
        delivery::sender(&data);
        delivery::receiver(&data);
    }

    #[test]
    fn arbitrary_manifests_never_break_a_plan(
        data in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        delivery::manifest(&data);
    }

    #[test]
    fn arbitrary_streams_never_panic(data in proptest::collection::vec(any::<u8>(), 0..600)) {
        wire::stream(&data);
        wire::manifest(&data);
        wire::block(&data);
    }

    #[test]
    fn arbitrary_bodies_of_each_kind_keep_the_identity(
        kind in 0_u16..20,
        body in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut frame = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        frame.extend_from_slice(&kind.to_be_bytes());
        frame.extend_from_slice(&[0, 0]);
        frame.extend_from_slice(&body);
        wire::stream(&frame);
    }

    #[test]
    fn arbitrary_files_never_panic(
        data in proptest::collection::vec(any::<u8>(), 0..400),
        kind in 0..4,
    ) {
        let mut data = data;
        let begin: &[u8] = match kind {
            0 => &[],
            1 => &[0xd4, 0xc3, 0xb2, 0xa1],
            2 => &[0xa1, 0xb2, 0x3c, 0x4d],
            _ => &[10, 13, 13, 10, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a],
        };
        data.splice(0..0, begin.iter().copied());
        wire::file(&data);
    }
}

/// What a connection carries for one message.
fn frame(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    bytes
}
