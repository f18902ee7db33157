//! Bytes to typed headers and back: PGM packets and options, object blocks, control messages, the
//! frames of a delivered stream, link-layer frames and capture files.
//!
//! This crate has no clock or socket, and only its decoders keep state. Reading a PGM packet
//! allocates nothing. No bytes from outside make this crate panic: most readers give a
//! [`ParseError`] instead. In: a datagram. Out: borrowed views and small `Copy` values. Writing
//! goes the other way round.
//!
//! ```text
//! datagram --pgm::Packet::parse--> header, body, options, TSDU --pgm::emit--> the same datagram
//! ```
//!
//! Invariants, each held by property tests:
//! - `parse(emit(x)) == x` for every packet that can be described;
//! - `emit(parse(b)) == b` for every accepted `b`, except for bits that the format reserves
//!   (ignored on receipt, sent as zero) and the checksum (computed anew);
//! - `parse` checks every length once; the getters of what it accepted cannot fail.

#![forbid(unsafe_code)]

mod cursor;
mod error;
mod sqn;

pub mod checksum;
pub mod delivered;
pub mod link;
pub mod object;
pub mod pcap;
pub mod pcapng;
pub mod pgm;
pub mod trace_file;

pub use error::{Fault, ParseError};
pub use sqn::Sqn;
