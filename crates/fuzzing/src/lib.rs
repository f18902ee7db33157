//! The bodies of the fuzz targets: they drive parsers and state machines with arbitrary bytes.
//!
//! A body takes any bytes, as a file, a packet or a list of operations, and panics when an
//! invariant fails. The programs in `fuzz/` let a fuzzer search for such bytes. The tests here need
//! no fuzzer: they replay what it found (`fuzz/corpus`), and changed copies of it. Bodies use only
//! the public functions of the product's crates, and no shipped program contains them.
#![forbid(unsafe_code)]

pub mod capture;
pub mod delivery;
pub mod frames;
pub mod measure;
pub mod pgm;
pub mod protection;
pub mod video;
pub mod wire;

/// A function that panics when these bytes make an invariant fail.
pub type Body = fn(&[u8]);

/// Each fuzz target by its name: the program in `fuzz/fuzz_targets` and the folder in
/// `fuzz/corpus`.
pub const TARGETS: &[(&str, Body)] = &[
    ("capture_compressed", capture::compressed),
    ("capture_edits", capture::edits),
    ("capture_merged", capture::merged),
    ("delivered_stream", wire::delivered),
    ("delivery_audience", delivery::audience),
    ("delivery_frames", frames::receiver),
    ("delivery_manifest", delivery::manifest),
    ("delivery_receiver", delivery::receiver),
    ("delivery_reporter", delivery::reporter),
    ("delivery_sender", delivery::sender),
    ("element_ops", pgm::element_ops),
    ("link_headers", wire::headers),
    ("link_segments", wire::segments),
    ("object_block", wire::block),
    ("object_manifest", wire::manifest),
    ("object_stream", wire::stream),
    ("parity_ops", pgm::parity_ops),
    ("protected_packets", protection::unprotect),
    ("reach_beacon", measure::beacon),
    ("receiver_ops", pgm::receiver_ops),
    ("rtt_message", measure::message),
    ("source_ops", pgm::source_ops),
    ("trace_file", wire::file),
    ("video_stream", video::stream),
    ("wire_packet", wire::packet),
];
