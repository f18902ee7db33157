//! Any bytes as each header behind a link layer: see `fuzzing::wire::headers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::wire::headers(data));
