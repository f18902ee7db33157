//! Any bytes as a manifest: see `wire::object::fuzzing::manifest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::object::fuzzing::manifest(data));
