//! Any bytes as a PGM packet: see `wire::pgm::fuzzing::packet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::pgm::fuzzing::packet(data));
