//! Any bytes as a beacon of a search for a group's faults: see `fuzzing::measure::beacon`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::measure::beacon(data));
