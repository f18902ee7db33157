//! Any bytes as a plan: see `fuzzing::delivery::plan`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::delivery::plan(data));
