//! Frames of the link layer: where each header begins, and how super-packets are cut.
//!
//! [`Layers::parse`] finds the headers of an Ethernet frame as far as it can and never fails: a
//! frame that is cut short or of an unknown kind has fewer layers, and [`Stop`] tells why.
//! [`segment`](segment()) cuts a super-packet (GSO) into the packets that the wire would carry, and
//! fills in their checksums. [`replace_address`] and its neighbours change a frame in place.
//!
//! **Spec**: IEEE 802.1Q, RFC 791, RFC 8200, RFC 9293, RFC 768.

mod layers;
pub use layers::{Ip, Layers, Stop};

mod rewrite;
pub use rewrite::{insert_tag, remove_tags, replace_address};

mod segment;
pub use segment::{SegmentKind, fill_checksum, segment};
