//! Any bytes as a control connection: see `wire::object::fuzzing::stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::object::fuzzing::stream(data));
