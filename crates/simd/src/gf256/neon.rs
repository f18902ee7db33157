//! AArch64: two table look-ups a product.

use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8,
};

use super::{Level, blocks::combine_in_blocks, table::HALVES};

/// Returns the forms that this processor can run.
pub(super) fn levels() -> [Option<Level>; 1] {
    let is_there = std::arch::is_aarch64_feature_detected!("neon");
    [is_there.then_some(Level {
        name: "neon",
        combine: entry,
    })]
}

const WIDTH: usize = 16;
const ACROSS: usize = 1;
// A factor takes two registers.
const HAS_ROOM: bool = false;
type Vector = uint8x16_t;

#[derive(Clone, Copy)]
struct Factor {
    low: uint8x16_t,
    high: uint8x16_t,
}

fn entry(rows: &mut [u8], stride: usize, coefficients: &[u8], inputs: &[&[u8]]) {
    // SAFETY: `levels` hands this function out only on a processor with NEON.
    unsafe { combine(rows, stride, coefficients, inputs) }
}

#[target_feature(enable = "neon")]
fn load(bytes: &[u8; WIDTH]) -> uint8x16_t {
    // SAFETY: a reference to 16 bytes is valid for reading 16 bytes; no alignment is needed.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[target_feature(enable = "neon")]
fn store(vector: uint8x16_t) -> [u8; WIDTH] {
    let mut bytes = [0; WIDTH];
    // SAFETY: a local array of 16 bytes is valid for writing 16 bytes; no alignment is needed.
    unsafe { vst1q_u8(bytes.as_mut_ptr(), vector) }
    bytes
}

#[target_feature(enable = "neon")]
fn and(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
    vandq_u8(a, b)
}

#[target_feature(enable = "neon")]
fn xor(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
    veorq_u8(a, b)
}

#[target_feature(enable = "neon")]
fn factor(constant: u8) -> Factor {
    let table = &HALVES[usize::from(constant)];
    Factor {
        low: load(&table.low),
        high: load(&table.high),
    }
}

#[target_feature(enable = "neon")]
fn halves(bytes: uint8x16_t) -> [uint8x16_t; 2] {
    [vandq_u8(bytes, vdupq_n_u8(0x0F)), vshrq_n_u8::<4>(bytes)]
}

#[target_feature(enable = "neon")]
fn product(factor: &Factor, halves: &[uint8x16_t; 2]) -> uint8x16_t {
    let low = vqtbl1q_u8(factor.low, halves[0]);
    veorq_u8(low, vqtbl1q_u8(factor.high, halves[1]))
}

combine_in_blocks!("neon");
