//! Any operations on an audience: see `fuzzing::delivery::audience`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::delivery::audience(data));
