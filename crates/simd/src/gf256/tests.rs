//! Every form against products bit by bit.

use proptest::prelude::*;

use super::{Level, POLYNOMIAL, product};

/// What [`super::Combine`] says, byte by byte.
fn model(rows: &mut [u8], stride: usize, coefficients: &[u8], inputs: &[&[u8]]) {
    for (at, &coefficient) in coefficients.iter().enumerate() {
        let (row, input) = (at / inputs.len(), inputs[at % inputs.len()]);
        for (column, &byte) in input.iter().enumerate() {
            rows[row * stride + column] ^= product(coefficient, byte);
        }
    }
}

fn bytes(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) | 1;
    let mut next = || {
        state = state.wrapping_mul(0x9E37_79B1).rotate_left(13) ^ 0x5BD1_E995;
        (state >> 11) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn the_field_is_that_of_the_rfc() {
    assert_eq!(POLYNOMIAL, 0x11D);
    assert_eq!(product(2, 0x80), 0x1D);
    // x has order 255: it generates the field.
    let mut power = 1;
    for exponent in 1..=255 {
        power = product(power, 2);
        assert_eq!(power == 1, exponent == 255, "2 to the {exponent}");
    }
    assert_eq!(
        product(0x53, product(0xCA, 7)),
        product(product(0x53, 0xCA), 7)
    );
}

/// Lengths around every vector's width, at every alignment of rows and inputs that matters, with
/// bytes after the rows and inputs that must neither change nor count.
#[test]
fn every_length_and_alignment() {
    let lengths = if cfg!(miri) {
        vec![0, 1, 15, 33, 64, 65, 130]
    } else {
        (0..=200).collect()
    };
    for level in Level::available() {
        for &len in &lengths {
            for shift in if cfg!(miri) {
                vec![0, 3]
            } else {
                (0..16).collect()
            } {
                let data = bytes(len as u32 * 16 + shift as u32, 2 * (len + 64));
                let (first, second) = data.split_at(len + 64);
                let inputs = [&first[shift..shift + len], &second[16 - shift..][..len / 2]];
                let coefficients = [1, 0, 0x8E, 0xFF, 2, 0x1D, 0, 1, 3, 0xB7];
                let mut rows = bytes(7, shift + 5 * len + 3);
                let mut expected = rows.clone();
                level.combine()(&mut rows[shift..], len, &coefficients, &inputs);
                model(&mut expected[shift..], len, &coefficients, &inputs);
                assert_eq!(rows, expected, "{level:?}, {len} bytes from {shift}");
                // Inputs of one length, and a last row that ends with them.
                let same = [inputs[0]; 5];
                let coefficients = bytes(5, 5 * same.len());
                let mut rows = bytes(7, shift + 5 * len + 4 * 3);
                let mut expected = rows.clone();
                level.combine()(&mut rows[shift..], len + 3, &coefficients, &same);
                model(&mut expected[shift..], len + 3, &coefficients, &same);
                assert_eq!(
                    rows, expected,
                    "{level:?}, 5 times {len} bytes from {shift}"
                );
            }
        }
    }
}

#[test]
fn all_products_of_all_forms() {
    let all: Vec<u8> = (0..=255).collect();
    for level in Level::available() {
        for coefficient in (0..=255).step_by(if cfg!(miri) { 37 } else { 1 }) {
            let mut row = vec![0; 256];
            level.combine()(&mut row, 256, &[coefficient], &[&all]);
            let expected: Vec<u8> = all.iter().map(|&byte| product(coefficient, byte)).collect();
            assert_eq!(row, expected, "{level:?}, {coefficient}");
        }
    }
}

#[test]
fn nothing_to_do_is_nothing() {
    for level in Level::available() {
        level.combine()(&mut [], 0, &[], &[]);
        let mut rows = [7; 4];
        level.combine()(&mut rows, 4, &[], &[&[1, 2, 3, 4]]);
        level.combine()(&mut rows, 4, &[9], &[&[]]);
        assert_eq!(rows, [7; 4]);
    }
}

#[test]
#[should_panic(expected = "fewer rows than coefficients")]
fn rows_that_are_too_short_are_a_bug() {
    Level::best().combine()(&mut [0; 7], 4, &[1, 2], &[&[1, 2, 3, 4]]);
}

#[test]
#[should_panic(expected = "an input longer than a row")]
fn an_input_that_is_too_long_is_a_bug() {
    Level::best().combine()(&mut [0; 8], 3, &[1, 2], &[&[1, 2, 3, 4]]);
}

#[test]
fn levels_that_are_missing_here_are_said() {
    let names: Vec<_> = Level::available().map(Level::name).collect();
    assert_eq!(names[0], "portable");
    if !names.contains(&"gfni") {
        println!("skipped: the GFNI kernels, as this processor has no GFNI");
    }
    assert_eq!(names.last(), Some(&Level::best().name()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 200 }))]

    /// Any number of rows, and inputs of any lengths, some of one length in a row.
    #[test]
    fn agrees_with_the_model(
        row_count in 0..12_usize,
        runs in prop::collection::vec((0..700_usize, 1..7_usize), 1..8),
        slack in 0..80_usize,
        seed: u32,
    ) {
        let lengths: Vec<usize> =
            runs.iter().flat_map(|&(len, times)| std::iter::repeat_n(len, times)).collect();
        let stride = lengths.iter().max().unwrap_or(&0) + slack;
        let data: Vec<_> =
            lengths.iter().enumerate().map(|(i, &len)| bytes(seed ^ i as u32, len)).collect();
        let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let coefficients = bytes(!seed, row_count * inputs.len());
        let rows = bytes(seed.rotate_left(9), row_count * stride);
        let mut expected = rows.clone();
        model(&mut expected, stride, &coefficients, &inputs);
        for level in Level::available() {
            let mut rows = rows.clone();
            level.combine()(&mut rows, stride, &coefficients, &inputs);
            prop_assert_eq!(&rows, &expected, "{:?}", level);
        }
    }
}
