//! Any bytes as a file packed by gzip or zstd: see `capture::fuzzing::compressed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| capture::fuzzing::compressed(data));
