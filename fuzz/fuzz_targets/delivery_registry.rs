//! Any operations on a registry: see `fuzzing::delivery::registry`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::delivery::registry(data));
