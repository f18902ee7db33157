//! Any bytes as a stream of video: see `fuzzing::video::stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::video::stream(data));
