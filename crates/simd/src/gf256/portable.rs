//! The plain form: it doubles the input once for each bit of the constant, in a loop that compilers
//! turn into vector instructions.

use super::{POLYNOMIAL, blocks};

/// See [`super::Combine`].
pub(super) fn combine(rows: &mut [u8], stride: usize, coefficients: &[u8], inputs: &[&[u8]]) {
    blocks::check(rows, stride, coefficients, inputs);
    for (i, input) in inputs.iter().enumerate() {
        let column = coefficients.iter().skip(i).step_by(inputs.len());
        for (row, &coefficient) in rows.chunks_mut(stride.max(1)).zip(column) {
            multiply_add(&mut row[..input.len()], coefficient, input);
        }
    }
}

fn multiply_add(row: &mut [u8], coefficient: u8, input: &[u8]) {
    let masks: [u8; 8] = std::array::from_fn(|bit| ((coefficient >> bit) & 1).wrapping_neg());
    for (sum, &byte) in row.iter_mut().zip(input) {
        let mut power = byte;
        for mask in masks {
            *sum ^= power & mask;
            let overflow = (power as i8 >> 7) as u8;
            power = power.wrapping_add(power) ^ (overflow & POLYNOMIAL as u8);
        }
    }
}
