//! Any bytes as an object block: see `wire::object::fuzzing::block`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::object::fuzzing::block(data));
