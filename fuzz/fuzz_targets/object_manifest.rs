//! Any bytes as a manifest: see `fuzzing::wire::manifest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::wire::manifest(data));
