//! Any changes to protected packets on their way: see `fuzzing::protection::unprotect`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::protection::unprotect(data));
