//! Any operations on a plan receiver: see `delivery::fuzzing::receiver`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| delivery::fuzzing::receiver(data));
