//! Bytes that nobody sent in good faith: an error or a packet, never a panic.

use proptest::{prelude::*, sample::Index};
use towline_wire::{
    Fault,
    pgm::{ChecksumState, Packet, fuzzing, verify_checksum},
};

use crate::packets::packets;

/// A change that keeps most of a packet valid, so that it reaches past the first check.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let len = bytes.len();
        if len == 0 {
            return;
        }
        match self {
            Self::Set(at, value) => bytes[at.index(len)] = *value,
            Self::Flip(at, bit) => bytes[at.index(len)] ^= 1 << bit,
            Self::Insert(at, more) => {
                let at = at.index(len);
                bytes.splice(at..at, more.iter().copied());
            }
            Self::Remove(at, count) => {
                let at = at.index(len);
                bytes.drain(at..len.min(at + count));
            }
        }
    }
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, value)| Change::Set(at, value)),
        (any::<Index>(), 0_u8..8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        (any::<Index>(), prop::collection::vec(any::<u8>(), 1..20))
            .prop_map(|(at, more)| Change::Insert(at, more)),
        (any::<Index>(), 1_usize..20).prop_map(|(at, count)| Change::Remove(at, count)),
    ];
    prop::collection::vec(change, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzzing::packet(&bytes);
    }

    #[test]
    fn random_bodies_after_a_plausible_start_never_panic(
        kind in 0_u8..16,
        flags in any::<u8>(),
        mut bytes in prop::collection::vec(any::<u8>(), 16..120),
    ) {
        bytes[4] = kind;
        bytes[5] = flags;
        bytes[14..16].fill(0);
        fuzzing::packet(&bytes);
    }

    #[test]
    fn changed_packets_never_panic(parts in packets(), changes in changes()) {
        let mut bytes = parts.emit();
        for change in &changes {
            change.apply(&mut bytes);
        }
        fuzzing::packet(&bytes);
    }

    #[test]
    fn a_flipped_bit_is_seen_by_the_checksum(
        parts in packets(),
        at in any::<Index>(),
        bit in 0_u8..8,
    ) {
        let mut bytes = parts.emit();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert_ne!(verify_checksum(&bytes), ChecksumState::Good);
    }
}

proptest! {
    #[test]
    fn every_cut_is_an_error_that_names_its_place(parts in packets()) {
        let bytes = parts.emit();
        for len in 0..bytes.len() {
            let error = Packet::parse(&bytes[..len]).expect_err("a packet cut short");
            prop_assert!(error.offset <= len, "{error:?} at {len}");
            prop_assert_eq!(error.what, Fault::Truncated);
            prop_assert!(error.needed > error.available);
            prop_assert_eq!(error.offset + error.available, len);
        }
    }

    #[test]
    fn every_byte_too_many_is_an_error(parts in packets(), more in 1_usize..20) {
        let mut bytes = parts.emit();
        bytes.resize(bytes.len() + more, 0);
        let error = Packet::parse(&bytes).expect_err("a packet with bytes to spare");
        prop_assert_eq!(error.what, Fault::Surplus);
    }
}
