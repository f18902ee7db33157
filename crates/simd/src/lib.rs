//! Vector kernels chosen at run time, with safe faces; one of the two homes of unsafe.
//!
//! It knows no protocol: byte slices in, byte slices out. Each kernel exists in a plain form that
//! every processor runs, which is also what the others are tested against, and in one form per
//! vector extension. The choice is made once, when a kernel is asked for; what is handed out is an
//! ordinary function: the pure crates take it as a value and never depend on this crate.
//!
//! ```text
//! gf256::Level::best() --combine()--> fn(rows, stride, coefficients, inputs) --> pgm's FEC
//! ```
//!
//! Miri runs the tests with extensions that the processor lacks:
//! `RUSTFLAGS=-Ctarget-feature=+gfni,+avx512f,+avx512bw cargo +nightly miri test -p towline-simd`.
//!
//! Invariant: a function that needs a vector extension is handed out only by a [`gf256::Level`]
//! that exists because the processor was asked.
//!
//! The Internet checksum is not here. Copying and summing 1400 bytes into a ring takes the wire
//! crate's plain loop 149 ns and a fused AVX2 loop 128 ns, and 64 or 8000 bytes the same time with
//! either: most of the cost is the store into memory.
#![allow(
    unsafe_code,
    reason = "this crate exists to hold the vector code of the others"
)]

pub mod gf256;
