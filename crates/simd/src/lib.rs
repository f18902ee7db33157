//! Vector kernels chosen at run time, with safe faces. Unsafe code is allowed in this crate.
//!
//! The crate knows no protocol: byte slices in, byte slices out. Each kernel exists in a plain
//! form, which every processor runs, and in one form for each vector extension. Tests compare these
//! forms with the plain form. The caller chooses a form once and gets an ordinary function. The
//! pure crates take this function as a value and never depend on this crate.
//!
//! ```text
//! gf256::Level::best() --combine()--> fn(rows, stride, coefficients, inputs) --> pgm's FEC
//! ```
//!
//! Miri runs the tests with extensions that the processor lacks:
//! `RUSTFLAGS=-Ctarget-feature=+gfni,+avx512f,+avx512bw cargo +nightly miri test -p towline-simd`.
//!
//! Invariant: a function that needs a vector extension comes only from a [`gf256::Level`], and that
//! level is made only after the processor has said that it has the extension.
//!
//! The Internet checksum is not here. Copying and summing 1400 bytes into a ring takes 149 ns with
//! the wire crate's plain loop, and 128 ns with a fused AVX2 loop. For 64 or 8000 bytes, both take
//! the same time: most of the cost is the store into memory.
#![allow(
    unsafe_code,
    reason = "this crate exists to hold the vector code of the others"
)]

pub mod gf256;
