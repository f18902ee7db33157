//! Any frame as a super-packet that is cut: see `fuzzing::wire::segments`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::wire::segments(data));
