//! Any operations on a reporter: see `delivery::fuzzing::reporter`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| delivery::fuzzing::reporter(data));
