//! Any bytes as a message of a round-trip measurement: see `measure::fuzzing::message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| measure::fuzzing::message(data));
