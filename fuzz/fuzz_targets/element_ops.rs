//! Any operations on a PGM network element: see `fuzzing::pgm::element_ops`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::pgm::element_ops(data));
