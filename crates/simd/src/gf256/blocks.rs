//! The part that all vector forms share: four rows at a time, whole vectors, then the tail.

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

/// Returns how many rows the coefficients are for.
pub(super) fn row_count(coefficients: &[u8], inputs: &[&[u8]]) -> usize {
    coefficients.len() / inputs.len().max(1)
}

/// Splits off the next row.
pub(super) fn take<'a>(rows: &mut &'a mut [u8], stride: usize) -> &'a mut [u8] {
    let rest = std::mem::take(rows);
    let (row, rest) = rest.split_at_mut(stride.min(rest.len()));
    *rows = rest;
    row
}

/// Groups neighbouring inputs of equal length.
pub(super) fn runs<'a>(inputs: &'a [&'a [u8]]) -> impl Iterator<Item = &'a [&'a [u8]]> {
    inputs.chunk_by(|one, next| one.len() == next.len())
}

/// Returns the whole vectors of a row.
pub(super) fn vectors<const WIDTH: usize>(
    row: &mut [u8],
) -> impl ExactSizeIterator<Item = &mut [u8; WIDTH]> {
    row.as_chunks_mut().0.iter_mut()
}

/// Defines `combine` for the vector form whose pieces stand in the same module.
///
/// The module gives `Vector`, `Factor` (a constant made ready), and functions with the same target
/// features: `load`, `store`, `and`, `xor`, `factor`, `halves` (what all products of one
/// vector have in common) and `product`. `WIDTH` is a vector's length in bytes. `ACROSS` is how
/// many vectors of each of four rows fit into the registers. `HAS_ROOM` is true when it is faster
/// to keep these vectors in registers than to keep the factors there.
macro_rules! combine_in_blocks {
    ($features:literal) => {
        /// See [`Combine`](super::super::Combine).
        #[target_feature(enable = $features)]
        fn combine(rows: &mut [u8], stride: usize, coefficients: &[u8], inputs: &[&[u8]]) {
            use $crate::gf256::blocks;

            blocks::check(rows, stride, coefficients, inputs);
            let is_summed = HAS_ROOM && blocks::runs(inputs).count() <= inputs.len() / 4;
            let mut rows = rows;
            let mut quads = coefficients.chunks_exact((4 * inputs.len()).max(1));
            for coefficients in &mut quads {
                let four = std::array::from_fn(|_| blocks::take(&mut rows, stride));
                if is_summed {
                    sum_runs::<4>(four, coefficients, inputs);
                } else {
                    add_to_four(four, coefficients, inputs);
                }
            }
            for coefficients in quads.remainder().chunks(inputs.len().max(1)) {
                let row = blocks::take(&mut rows, stride);
                if is_summed {
                    sum_runs([row], coefficients, inputs);
                } else {
                    add_to_one(row, coefficients, inputs);
                }
            }
        }

        /// Adds one input after the other. The factors of the present input stay in registers.
        #[target_feature(enable = $features)]
        fn add_to_four(rows: [&mut [u8]; 4], coefficients: &[u8], inputs: &[&[u8]]) {
            use $crate::gf256::blocks::vectors;

            let [a, b, c, d] = rows;
            for (i, input) in inputs.iter().enumerate() {
                let [fa, fb, fc, fd] = [0, 1, 2, 3].map(|row| coefficients[row * inputs.len() + i]);
                let (fa, fb, fc, fd) = (factor(fa), factor(fb), factor(fc), factor(fd));
                let (whole, tail) = input.as_chunks::<WIDTH>();
                // Zipped, so that no index is checked inside the loop.
                let (ab, cd) = (vectors(a).zip(vectors(b)), vectors(c).zip(vectors(d)));
                for (bytes, ((a, b), (c, d))) in whole.iter().zip(ab.zip(cd)) {
                    let parts = halves(load(bytes));
                    *a = store(xor(load(a), product(&fa, &parts)));
                    *b = store(xor(load(b), product(&fb, &parts)));
                    *c = store(xor(load(c), product(&fc, &parts)));
                    *d = store(xor(load(d), product(&fd, &parts)));
                }
                if !tail.is_empty() {
                    let parts = halves(last(input, tail.len()));
                    finish(a, input.len(), product(&fa, &parts));
                    finish(b, input.len(), product(&fb, &parts));
                    finish(c, input.len(), product(&fc, &parts));
                    finish(d, input.len(), product(&fd, &parts));
                }
            }
        }

        #[target_feature(enable = $features)]
        fn add_to_one(row: &mut [u8], coefficients: &[u8], inputs: &[&[u8]]) {
            for (input, &coefficient) in inputs.iter().zip(coefficients) {
                let factor = factor(coefficient);
                let (whole, tail) = input.as_chunks::<WIDTH>();
                for (bytes, sum) in whole.iter().zip($crate::gf256::blocks::vectors(row)) {
                    *sum = store(xor(load(sum), product(&factor, &halves(load(bytes)))));
                }
                if !tail.is_empty() {
                    let parts = halves(last(input, tail.len()));
                    finish(row, input.len(), product(&factor, &parts));
                }
            }
        }

        /// Adds the inputs in groups: neighbours of equal length form a group. Goes through each
        /// group column by column, and keeps the sums in registers.
        #[target_feature(enable = $features)]
        fn sum_runs<const ROWS: usize>(
            mut rows: [&mut [u8]; ROWS],
            coefficients: &[u8],
            inputs: &[&[u8]],
        ) {
            let mut first = 0;
            for run in $crate::gf256::blocks::runs(inputs) {
                let of_row = |row| &coefficients[row * inputs.len() + first..][..run.len()];
                sum_columns(&mut rows, std::array::from_fn(of_row), run);
                first += run.len();
            }
        }

        #[target_feature(enable = $features)]
        fn sum_columns<const ROWS: usize>(
            rows: &mut [&mut [u8]; ROWS],
            coefficients: [&[u8]; ROWS],
            inputs: &[&[u8]],
        ) {
            let len = inputs.first().map_or(0, |input| input.len());
            let whole = len / WIDTH;
            let wide = whole / ACROSS * ACROSS;
            for at in (0..wide).step_by(ACROSS) {
                sum_vectors::<ROWS, ACROSS>(rows, at * WIDTH, coefficients, inputs);
            }
            for at in wide..whole {
                sum_vectors::<ROWS, 1>(rows, at * WIDTH, coefficients, inputs);
            }
            let fresh = len % WIDTH;
            if fresh == 0 {
                return;
            }
            let mut sums = [load(&[0; WIDTH]); ROWS];
            for (nth, input) in inputs.iter().enumerate() {
                let parts = halves(last(input, fresh));
                for (sum, coefficients) in sums.iter_mut().zip(coefficients) {
                    *sum = xor(*sum, product(&factor(coefficients[nth]), &parts));
                }
            }
            for (row, sum) in rows.iter_mut().zip(sums) {
                finish(row, len, sum);
            }
        }

        /// Adds `ACROSS` vectors of each input, from byte `at` on.
        #[target_feature(enable = $features)]
        fn sum_vectors<const ROWS: usize, const ACROSS: usize>(
            rows: &mut [&mut [u8]; ROWS],
            at: usize,
            coefficients: [&[u8]; ROWS],
            inputs: &[&[u8]],
        ) {
            // These are loops, because an array's `map` lacks the target features even if its
            // closure has them.
            let mut sums = [[load(&[0; WIDTH]); ACROSS]; ROWS];
            let mut factors = [factor(0); ROWS];
            for (nth, input) in inputs.iter().enumerate() {
                for (ready, coefficients) in factors.iter_mut().zip(coefficients) {
                    *ready = factor(coefficients[nth]);
                }
                let bytes = input[at..].as_chunks().0.first_chunk::<ACROSS>();
                for (column, bytes) in bytes.expect("all are as long").iter().enumerate() {
                    let parts = halves(load(bytes));
                    for (sums, factor) in sums.iter_mut().zip(&factors) {
                        sums[column] = xor(sums[column], product(factor, &parts));
                    }
                }
            }
            for (row, sums) in rows.iter_mut().zip(sums) {
                for (bytes, sum) in row[at..].as_chunks_mut().0.iter_mut().zip(sums) {
                    *bytes = store(xor(load(bytes), sum));
                }
            }
        }

        /// Returns the vector that ends where the input ends, with zeros in place of all except its
        /// last `fresh` bytes. For an input that is shorter than a vector, returns the whole input
        /// followed by zeros.
        #[target_feature(enable = $features)]
        fn last(input: &[u8], fresh: usize) -> Vector {
            match input.last_chunk() {
                Some(bytes) => {
                    let mask = &$crate::gf256::blocks::MASKS[64 - WIDTH + fresh..];
                    and(
                        load(bytes),
                        load(mask.first_chunk().expect("64 bytes follow")),
                    )
                }
                None => {
                    let mut padded = [0; WIDTH];
                    padded[..fresh].copy_from_slice(input);
                    load(&padded)
                }
            }
        }

        /// Adds `product`, computed from the vector that [`last`] gave, to the row's bytes at the
        /// end of an input of `len` bytes. Row and input begin at the same place.
        #[target_feature(enable = $features)]
        fn finish(row: &mut [u8], len: usize, product: Vector) {
            if let Some(sum) = row[..len].last_chunk_mut() {
                *sum = store(xor(load(sum), product));
            } else if let Some(sum) = row.first_chunk_mut() {
                *sum = store(xor(load(sum), product));
            } else {
                for (to, byte) in row.iter_mut().zip(store(product)) {
                    *to ^= byte;
                }
            }
        }
    };
}
pub(super) use combine_in_blocks;

/// Zeros, then ones. As a mask, the `width` bytes from `64 - width + n` on keep the last n bytes of
/// a vector.
pub(super) static MASKS: [u8; 128] = {
    let mut masks = [0; 128];
    let mut at = 64;
    while at < masks.len() {
        masks[at] = 0xFF;
        at += 1;
    }
    masks
};
