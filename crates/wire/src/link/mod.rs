//! Frames of the link layer: where each header begins, and how super-packets are cut.
//!
//! [`Layers::parse`] finds the headers of an Ethernet frame as far as it can and never fails: a
//! frame that is cut short or of an unknown kind has fewer layers, and [`Stop`] tells why.
//! [`segment`](segment()) cuts a super-packet (GSO) into the packets that the wire would carry, and
//! fills in their checksums. [`replace_address`], [`insert_tag`] and [`remove_tags`] change a frame
//! in place.
//!
//! Each header is a file: [`Ethernet`], [`Ipv4`], [`Ipv6`], [`Igmp`], [`Mld`], [`Tcp`] and [`Udp`]
//! view the bytes of a frame, and most change them in place. Each view gives its fields as a value,
//! such as [`Ipv4Header`], and the value's `emit` writes them anew. A method of a view does not
//! panic: `of` gives `None` when the bytes end within the fields, so a view has every field.
//!
//! **Spec**: IEEE 802.1Q, RFC 791, RFC 8200, RFC 3376, RFC 3810, RFC 9293, RFC 768.

mod ethernet;
pub use ethernet::{ETHER_TYPE_IPV4, ETHER_TYPE_IPV6, Ethernet, EthernetHeader, VlanTag};

mod igmp;
pub use igmp::{IGMP_QUERY, IGMP_REPORT_V1, IGMP_REPORT_V2, IGMP_REPORT_V3, Igmp, IgmpMessage};

mod ipv4;
pub use ipv4::{Ipv4, Ipv4Header};

mod ipv6;
pub use ipv6::{Ipv6, Ipv6Header};

mod layers;
pub use layers::{Ip, Layers, Stop};

mod mld;
pub use mld::{MLD_DONE, MLD_QUERY, MLD_REPORT, MLD_REPORT_V2, Mld, MldMessage};

mod rewrite;
pub use rewrite::{insert_tag, remove_tags, replace_address};

mod segment;
pub use segment::{SegmentKind, fill_checksum, segment};

mod tcp;
pub use tcp::{Tcp, TcpHeader};

mod udp;
pub use udp::{Udp, UdpHeader};

use crate::checksum;

/// The protocol number of IGMP in an IPv4 header.
pub const PROTOCOL_IGMP: u8 = 2;
/// The protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// The protocol number of ICMPv6, of which MLD is a part.
pub const PROTOCOL_ICMPV6: u8 = 58;

/// Returns the partial sum of a pseudo header: addresses, protocol, and length of header and data.
#[inline]
fn pseudo_sum(addresses: &[u8], protocol: u8, len: usize) -> u64 {
    let len = len as u32;
    let words = u32::from(protocol) + (len & 0xFFFF) + (len >> 16);
    checksum::sum(addresses) + checksum::of_words(words)
}
