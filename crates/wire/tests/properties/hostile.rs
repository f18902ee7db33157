//! Bytes that nobody sent in good faith are an error; the fuzzing crate's tests look for panics.

use proptest::{prelude::*, sample::Index};
use towline_wire::{
    Fault,
    pgm::{ChecksumState, Packet, verify_checksum},
};

use crate::packets::packets;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

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
