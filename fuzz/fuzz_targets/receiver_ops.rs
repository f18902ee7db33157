//! Any operations on a PGM receiver: see `fuzzing::pgm::receiver_ops`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::pgm::receiver_ops(data));
