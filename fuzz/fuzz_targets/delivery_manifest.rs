//! Any bytes as a manifest: see `fuzzing::delivery::manifest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::delivery::manifest(data));
