//! The most that a link can carry; plots show it as a ceiling.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Plain datagrams.
    Udp,
    /// One connection.
    Tcp,
    /// Messages of a PGM session over UDP, whose answers come in a second session.
    Pgm,
}

impl Transport {
    /// Returns how many more header bytes a message has than in a plain datagram: those of TCP with
    /// its time stamps, or of PGM.
    #[must_use]
    pub const fn extra_bytes(self) -> usize {
        match self {
            Self::Udp => 0,
            Self::Tcp | Self::Pgm => 24,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Pgm => "PGM",
        })
    }
}

/// An Ethernet link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Link {
    /// Bits each second.
    pub bits_per_s: u64,
    /// Bytes of the largest IP packet.
    #[serde(alias = "mtu")]
    pub mtu_bytes: u32,
}

impl Link {
    /// Returns the most datagrams of `payload` bytes that the link carries each second, one way. It
    /// counts the Ethernet header and check sequence (18 bytes, and at least 64 in total), preamble
    /// and gap (20 bytes), IP and UDP headers, and the fragments of a datagram that is longer than
    /// the MTU.
    #[must_use]
    pub fn datagrams_per_s(&self, payload: usize, is_ipv6: bool) -> u64 {
        let octets = wire_octets(payload, self.mtu_bytes, is_ipv6);
        self.bits_per_s / (octets * 8)
    }
}

/// Returns how many bytes one datagram takes on an Ethernet wire, gap included.
fn wire_octets(payload: usize, mtu: u32, is_ipv6: bool) -> u64 {
    let fragment_header = if is_ipv6 { 8 } else { 0 };
    let datagram = payload as u64 + UDP_HEADER;
    let ip = headers(is_ipv6) - UDP_HEADER;
    let room = u64::from(mtu).saturating_sub(ip).max(8);
    if datagram <= room {
        return frame(datagram + ip);
    }
    // Every fragment except the last carries a multiple of eight bytes.
    let each = (room - fragment_header.min(room - 8)) / 8 * 8;
    let (whole, rest) = (datagram / each, datagram % each);
    let last = if rest > 0 {
        frame(rest + ip + fragment_header)
    } else {
        0
    };
    whole * frame(each + ip + fragment_header) + last
}

/// Returns how many bytes the headers of IP and UDP have.
pub(crate) const fn headers(is_ipv6: bool) -> u64 {
    UDP_HEADER + if is_ipv6 { 40 } else { 20 }
}

/// Returns how many bytes a packet takes with Ethernet header, check sequence, padding, preamble
/// and gap.
pub(crate) fn frame(packet: u64) -> u64 {
    (packet + ETHERNET).max(FRAME_MIN) + PREAMBLE_AND_GAP
}

const UDP_HEADER: u64 = 8;
const ETHERNET: u64 = 18;
const FRAME_MIN: u64 = 64;
const PREAMBLE_AND_GAP: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethernets_known_ceilings() {
        let gigabit = Link {
            bits_per_s: 1_000_000_000,
            mtu_bytes: 1_500,
        };
        // The figures in every handbook: frames of 64 and of 1518 bytes at 1 Gbit/s.
        assert_eq!(gigabit.datagrams_per_s(18, false), 1_488_095);
        assert_eq!(gigabit.datagrams_per_s(1_472, false), 81_274);
        // One byte more needs a second frame, which is padded to the minimum.
        assert_eq!(
            gigabit.datagrams_per_s(1_473, false),
            1_000_000_000 / ((1_538 + 84) * 8)
        );
        assert!(gigabit.datagrams_per_s(1_472, true) < 81_274);
        let narrow = Link {
            bits_per_s: 1_000,
            mtu_bytes: 0,
        };
        assert_eq!(narrow.datagrams_per_s(65_507, true), 0);
    }
}
