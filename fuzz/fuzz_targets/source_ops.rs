//! Any operations on a PGM source: see `fuzzing::pgm::source_ops`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::pgm::source_ops(data));
