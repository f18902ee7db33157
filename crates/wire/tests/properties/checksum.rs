//! The fast checksum against one that adds 16-bit words one by one.

use proptest::prelude::*;
use towline_wire::checksum::{adjust, adjust_u32, copy_and_sum, finish, fold, join, of_words, sum};

/// RFC 1071 by the letter: big-endian words, end-around carry at each addition.
fn naive(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0_u16, |total, pair| {
        let word = u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
        let (total, carry) = total.overflowing_add(word);
        total + u16::from(carry)
    })
}

/// Runs of one byte value provoke carries that random bytes rarely do.
fn contents() -> impl Strategy<Value = Vec<u8>> {
    let extreme = prop::sample::select(vec![0x00_u8, 0x01, 0x7F, 0x80, 0xFE, 0xFF]);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..2100),
        (extreme, 0_usize..2100).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

#[test]
fn every_length_at_every_alignment() {
    let bytes: Vec<u8> = (0..400_u32).map(|i| (i * 167 + 13) as u8).collect();
    for start in 0..16 {
        for len in 0..300 {
            let part = &bytes[start..start + len];
            assert_eq!(fold(sum(part)), naive(part), "{len} bytes from {start}");
            let mut copy = vec![0; len];
            assert_eq!(copy_and_sum(&mut copy, part), sum(part));
            assert_eq!(copy, part);
        }
    }
}

#[test]
fn the_longest_packet_of_ones() {
    let bytes = vec![0xFF; 65_535 + 40];
    assert_eq!(fold(sum(&bytes)), naive(&bytes));
    assert_eq!(finish(sum(&bytes[1..])), 0xFFFF);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn sum_is_the_naive_sum(bytes in contents(), skip in 0_usize..9) {
        let part = &bytes[skip.min(bytes.len())..];
        prop_assert_eq!(fold(sum(part)), naive(part));
        let check = finish(sum(part));
        prop_assert_eq!(check, match !naive(part) { 0 => 0xFFFF, check => check });
    }

    #[test]
    fn copying_sums_and_copies(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
        let mut copy = vec![0xEE; bytes.len()];
        prop_assert_eq!(copy_and_sum(&mut copy, &bytes), sum(&bytes));
        prop_assert_eq!(copy, bytes);
    }

    #[test]
    fn parts_join_at_any_cut(bytes in contents(), cut in 0_usize..2100) {
        let (a, b) = bytes.split_at(cut.min(bytes.len()));
        prop_assert_eq!(fold(join(sum(a), a.len(), sum(b))), naive(&bytes));
    }

    #[test]
    fn words_sum_as_their_bytes(words in prop::collection::vec(any::<u16>(), 1..60)) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let total = words.iter().map(|&word| u32::from(word)).sum();
        prop_assert_eq!(fold(of_words(total)), naive(&bytes));
    }

    #[test]
    fn adjusting_equals_recomputing(
        mut words in prop::collection::vec(any::<u16>(), 2..40),
        at in any::<prop::sample::Index>(),
        new in prop_oneof![any::<u16>(), Just(0), Just(0xFFFF)],
        fixed in 1_u16..,
    ) {
        // A PGM packet is never all zero: its first two bytes are a port.
        words.insert(0, fixed);
        let check_of = |words: &[u16]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            finish(sum(&bytes))
        };
        let before = check_of(&words);
        let at = 1 + at.index(words.len() - 1);
        let old = std::mem::replace(&mut words[at], new);
        prop_assert_eq!(adjust(before, old, new), check_of(&words));
    }

    #[test]
    fn adjusting_a_long_field_is_adjusting_its_halves(
        check in 1_u16..,
        old in any::<u32>(),
        new in any::<u32>(),
    ) {
        let halves = |field: u32| ((field >> 16) as u16, field as u16);
        let ((old_high, old_low), (new_high, new_low)) = (halves(old), halves(new));
        let by_halves = adjust(adjust(check, old_low, new_low), old_high, new_high);
        prop_assert_eq!(adjust_u32(check, old, new), by_halves);
    }
}
