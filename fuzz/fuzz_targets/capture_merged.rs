//! Any bytes as files that are merged by time: see `capture::fuzzing::merged`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| capture::fuzzing::merged(data));
