//! Any operations on a PGM source: see `pgm::fuzzing::source_ops`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pgm::fuzzing::source_ops(data));
