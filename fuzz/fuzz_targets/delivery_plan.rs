//! Any bytes as a plan: see `delivery::fuzzing::plan`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| delivery::fuzzing::plan(data));
