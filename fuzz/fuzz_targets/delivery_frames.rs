//! Any payloads as pieces of frames: see `fuzzing::frames::receiver`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::frames::receiver(data));
