//! Any bytes as the frames of a stream whose bytes are proven: see `fuzzing::wire::delivered`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::wire::delivered(data));
