//! Any frame with any changes to it: see `capture::fuzzing::edits`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| capture::fuzzing::edits(data));
