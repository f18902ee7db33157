//! Any bytes as a control connection: see `fuzzing::wire::stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::wire::stream(data));
