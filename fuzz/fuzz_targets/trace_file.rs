//! Any bytes as a capture file: see `wire::trace_file::fuzzing::file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::trace_file::fuzzing::file(data));
