//! `libtowline`: the library for programs in C. `cargo xtask header` makes `include/towline.h` from
//! the functions and types of the modules, whose documentation is for programmers in C. A function
//! that C calls says `Option<&mut MaybeUninit<T>>` where others say `cabi::Out`, because cbindgen
//! does not look through an alias.
//!
//! A handle is a Rust object behind a pointer that C does not look into. A function that works on a
//! handle takes it first, and gives its results last. A function that can fail returns an
//! `Outcome`, and keeps the error's text for the calling thread. No panic leaves a function, and
//! null is refused where a function needs what the pointer leads to.
//!
//! | module | what |
//! |---|---|
//! | `outcome` | results, and the text of the last error |
//! | `session` | where a session is, and its settings by name |
//! | `publisher`, `subscriber` | messages |
//! | `files` | a transfer of files, sent or received |
//! | `transmit` | a file into a TCP connection of the caller's |
//! | `interfaces`, `counters` | what there is to use, and what happened |
#![cfg(target_os = "linux")]
#![allow(
    unsafe_code,
    reason = "this crate is a C interface: it takes pointers, and exports names"
)]

mod counters;
mod files;
mod interfaces;
mod outcome;
mod publisher;
mod session;
mod subscriber;
mod transmit;
