//! Any operations on a reporter: see `fuzzing::delivery::reporter`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::delivery::reporter(data));
