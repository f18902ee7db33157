//! Any bytes as a PGM packet: see `fuzzing::wire::packet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::wire::packet(data));
