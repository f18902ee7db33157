//! Frames of the link layer: where each header begins, and how super-packets are cut.
//!
//! [`Layers::parse`] finds the headers of an Ethernet frame as far as it can and never fails: a
//! frame that is cut short or of an unknown kind has fewer layers, and [`Stop`] tells why.
//! [`segment`](segment()) cuts a super-packet (GSO) into the packets that the wire would carry, and
//! fills in their checksums. [`replace_address`] and its neighbours change a frame in place.
//!
//! Each header is a file: [`Ipv4`], [`Ipv6`], [`Tcp`] and [`Udp`] view the bytes of a frame and
//! change them in place.
//!
//! **Spec**: IEEE 802.1Q, RFC 791, RFC 8200, RFC 9293, RFC 768.

mod ipv4;
pub use ipv4::Ipv4;

mod ipv6;
pub use ipv6::Ipv6;

mod layers;
pub use layers::{Ip, Layers, Stop};

mod rewrite;
pub use rewrite::{insert_tag, remove_tags, replace_address};

mod segment;
pub use segment::{SegmentKind, fill_checksum, segment};

mod tcp;
pub use tcp::Tcp;

mod udp;
pub use udp::Udp;

use crate::checksum;

/// Returns the partial sum of a pseudo header: addresses, protocol, and length of header and data.
#[inline]
fn pseudo_sum(addresses: &[u8], protocol: u8, len: usize) -> u64 {
    let len = len as u32;
    let words = u32::from(protocol) + (len & 0xFFFF) + (len >> 16);
    checksum::sum(addresses) + checksum::of_words(words)
}
