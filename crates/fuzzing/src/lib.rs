//! What is done to parsers and state machines with bytes that nobody vouches for.
//!
//! A body takes any bytes, as a file, a packet or a list of operations, and panics when something
//! that must hold does not. The programs in `fuzz/` let a fuzzer look for such bytes; the tests
//! here replay what it found (`fuzz/corpus`), and changes of it, without one. Bodies use the
//! product's crates as anybody could, and no program that is shipped contains them.
#![forbid(unsafe_code)]

pub mod capture;
pub mod delivery;
pub mod measure;
pub mod pgm;
pub mod wire;

/// What panics when something that must hold does not hold for these bytes.
pub type Body = fn(&[u8]);

/// Each fuzz target by its name: the program in `fuzz/fuzz_targets` and the folder in
/// `fuzz/corpus`.
pub const TARGETS: &[(&str, Body)] = &[
    ("capture_compressed", capture::compressed),
    ("capture_edits", capture::edits),
    ("capture_merged", capture::merged),
    ("delivery_audience", delivery::audience),
    ("delivery_manifest", delivery::manifest),
    ("delivery_receiver", delivery::receiver),
    ("delivery_reporter", delivery::reporter),
    ("delivery_sender", delivery::sender),
    ("object_block", wire::block),
    ("object_manifest", wire::manifest),
    ("object_stream", wire::stream),
    ("parity_ops", pgm::parity_ops),
    ("receiver_ops", pgm::receiver_ops),
    ("rtt_message", measure::message),
    ("source_ops", pgm::source_ops),
    ("trace_file", wire::file),
    ("wire_packet", wire::packet),
];
