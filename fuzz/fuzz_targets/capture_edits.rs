//! Any frame with any changes to it: see `fuzzing::capture::edits`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::capture::edits(data));
