//! Any bytes as a file packed by gzip or zstd: see `fuzzing::capture::compressed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::capture::compressed(data));
