//! Any faults between a PGM source and a receiver with parity: see `fuzzing::pgm::parity_ops`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::pgm::parity_ops(data));
