//! Anything on the way between a PGM source and a receiver with parity: see
//! `pgm::fuzzing::parity_ops`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pgm::fuzzing::parity_ops(data));
