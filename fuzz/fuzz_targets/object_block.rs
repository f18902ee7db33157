//! Any bytes as an object block: see `fuzzing::wire::block`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::wire::block(data));
