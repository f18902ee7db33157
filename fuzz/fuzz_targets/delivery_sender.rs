//! Any operations on a plan sender: see `delivery::fuzzing::sender`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| delivery::fuzzing::sender(data));
