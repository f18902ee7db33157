//! Any bytes as a message of a round-trip measurement: see `fuzzing::measure::message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::measure::message(data));
