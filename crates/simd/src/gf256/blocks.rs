//! What every vector form does alike: four rows at a time, whole vectors, then the tail.

/// Panics when the slices of a call do not fit together: see [`super::Combine`].
pub(super) fn check(rows: &[u8], stride: usize, coefficients: &[u8], inputs: &[&[u8]]) {
    let longest = inputs.iter().map(|input| input.len()).max().unwrap_or(0);
    assert!(longest <= stride, "an input longer than a row");
    let count = row_count(coefficients, inputs);
    assert_eq!(
        count * inputs.len(),
        coefficients.len(),
        "coefficients are not a whole number of rows"
    );
    let needed = match count {
        0 => 0,
        _ => (count - 1) * stride + longest,
    };
    assert!(rows.len() >= needed, "fewer rows than coefficients");
}

/// How many rows the coefficients are for.
pub(super) fn row_count(coefficients: &[u8], inputs: &[&[u8]]) -> usize {
    coefficients.len() / inputs.len().max(1)
}

/// Splits the next `N` rows off.
pub(super) fn take<'a, const N: usize>(
    rows: &mut &'a mut [u8],
    stride: usize,
) -> [&'a mut [u8]; N] {
    std::array::from_fn(|_| {
        let rest = std::mem::take(rows);
        let (row, rest) = rest.split_at_mut(stride.min(rest.len()));
        *rows = rest;
        row
    })
}

/// Defines `combine` for the vector form whose pieces stand in the same module.
///
/// The module gives `Vector` and `Factor` (a constant made ready), and functions with the same
/// target features: `load`, `store`, `xor`, `factor`, `halves` (what all products of one vector
/// have in common) and `product`. `WIDTH` is a vector's length in bytes.
macro_rules! combine_in_blocks {
    ($features:literal) => {
        /// See [`Combine`](super::super::Combine).
        #[target_feature(enable = $features)]
        fn combine(rows: &mut [u8], stride: usize, coefficients: &[u8], inputs: &[&[u8]]) {
            $crate::gf256::blocks::check(rows, stride, coefficients, inputs);
            let count = $crate::gf256::blocks::row_count(coefficients, inputs);
            let (mut rows, mut at) = (rows, 0);
            while at + 4 <= count {
                block::<4>(
                    &mut rows,
                    stride,
                    &coefficients[at * inputs.len()..],
                    inputs,
                );
                at += 4;
            }
            let rest = &coefficients[at * inputs.len()..];
            match count - at {
                0 => {}
                1 => block::<1>(&mut rows, stride, rest, inputs),
                2 => block::<2>(&mut rows, stride, rest, inputs),
                _ => block::<3>(&mut rows, stride, rest, inputs),
            }
        }

        #[target_feature(enable = $features)]
        fn block<const R: usize>(
            rows: &mut &mut [u8],
            stride: usize,
            coefficients: &[u8],
            inputs: &[&[u8]],
        ) {
            let mut rows: [&mut [u8]; R] = $crate::gf256::blocks::take(rows, stride);
            for (i, input) in inputs.iter().enumerate() {
                let mut factors = [factor(0); R];
                for (q, slot) in factors.iter_mut().enumerate() {
                    *slot = factor(coefficients[q * inputs.len() + i]);
                }
                let (whole, tail) = input.as_chunks::<WIDTH>();
                let wholes: [&mut [[u8; WIDTH]]; R] = rows
                    .each_mut()
                    .map(|row| &mut row.as_chunks_mut().0[..whole.len()]);
                for (at, bytes) in whole.iter().enumerate() {
                    let parts = halves(load(bytes));
                    for q in 0..R {
                        let sum = &mut wholes[q][at];
                        *sum = store(xor(load(sum), product(&factors[q], &parts)));
                    }
                }
                if !tail.is_empty() {
                    finish(&mut rows, whole.len() * WIDTH, &factors, tail);
                }
            }
        }

        /// The last bytes of an input, as if zeros followed; most rows have room for a vector.
        #[target_feature(enable = $features)]
        fn finish<const R: usize>(
            rows: &mut [&mut [u8]; R],
            at: usize,
            factors: &[Factor; R],
            tail: &[u8],
        ) {
            let mut padded = [0; WIDTH];
            padded[..tail.len()].copy_from_slice(tail);
            let parts = halves(load(&padded));
            for (row, factor) in rows.iter_mut().zip(factors) {
                let row = &mut row[at..];
                match row.first_chunk_mut::<WIDTH>() {
                    Some(sum) => *sum = store(xor(load(sum), product(factor, &parts))),
                    None => {
                        let sum = store(product(factor, &parts));
                        for (to, byte) in row.iter_mut().zip(sum) {
                            *to ^= byte;
                        }
                    }
                }
            }
        }
    };
}
pub(super) use combine_in_blocks;
