//! Any bytes as a capture file: see `fuzzing::wire::file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::wire::file(data));
