//! Any operations on a registry: see `delivery::fuzzing::registry`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| delivery::fuzzing::registry(data));
