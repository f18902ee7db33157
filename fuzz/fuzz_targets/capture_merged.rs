//! Any bytes as files that are merged by time: see `fuzzing::capture::merged`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::capture::merged(data));
