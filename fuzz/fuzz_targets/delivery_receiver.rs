//! Any operations on a plan receiver: see `fuzzing::delivery::receiver`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::delivery::receiver(data));
