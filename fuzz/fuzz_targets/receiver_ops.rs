//! Any operations on a PGM receiver: see `pgm::fuzzing::receiver_ops`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pgm::fuzzing::receiver_ops(data));
