//! PGM packets that nobody sent in good faith, and whole ones: an error or a packet, never a panic.
//!
//! The committed seeds go the same way in `corpus.rs`; here packets are made up from every type and
//! option that there is.

/// The name by which the packets below know the crate.
extern crate wire as towline_wire;

use proptest::{prelude::*, sample::Index};
use towline_fuzzing::wire;

#[path = "../../wire/tests/properties/packets.rs"]
mod packets;
use packets::packets;

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
        wire::packet(&bytes);
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
        wire::packet(&bytes);
    }

    #[test]
    fn changed_packets_never_panic(parts in packets(), changes in changes()) {
        let mut bytes = parts.emit();
        for change in &changes {
            change.apply(&mut bytes);
        }
        wire::packet(&bytes);
    }

    #[test]
    fn whole_packets_hold(parts in packets()) {
        wire::packet(&parts.emit());
    }
}
