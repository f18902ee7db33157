//! Any operations on a plan sender: see `fuzzing::delivery::sender`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::delivery::sender(data));
