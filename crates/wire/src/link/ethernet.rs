//! The Ethernet header, and a VLAN tag within it.
//!
//! ```text
//!  0                 6                 12              14
//! +-----------------+-----------------+---------------+------------ ...
//! | destination     | source          | type          | contents
//! +-----------------+-----------------+---------------+------------ ...
//!
//!  0                 6                 12              14                  16     18
//! +-----------------+-----------------+---------------+-------------------+------+-------- ...
//! | destination     | source          | type of a tag | priority 3 bits,  | type | contents
//! |                 |                 |               | drop 1, number 12 |      |
//! +-----------------+-----------------+---------------+-------------------+------+-------- ...
//! ```
//! A second tag begins at offset 16, in front of the type of the contents. A capture holds neither
//! the preamble in front of the frame nor the check sequence behind it.
//!
//! **Spec**: IEEE 802.3 clause 3, IEEE 802.1Q clause 9.

use std::fmt;

use crate::cursor::{array_at, put_u16, u16_at};

/// A view of the Ethernet header at the beginning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Ethernet<T> {
    /// Views the header at the beginning of `bytes`: 14 bytes, or 18 with a tag. `None` when
    /// `bytes` are fewer.
    #[inline]
    pub fn of(bytes: T) -> Option<Self> {
        let frame = bytes.as_ref();
        let is_whole =
            frame.len() >= LEN && (!is_tag(u16_at(frame, TYPE)) || frame.len() >= TAGGED_LEN);
        is_whole.then_some(Self { bytes })
    }

    /// Returns the hardware address of the destination.
    #[inline]
    pub fn destination(&self) -> [u8; 6] {
        array_at(self.bytes.as_ref(), DESTINATION)
    }

    /// Returns the hardware address of the source.
    #[inline]
    pub fn source(&self) -> [u8; 6] {
        array_at(self.bytes.as_ref(), SOURCE)
    }

    /// Returns true for a frame to a group, or to all.
    #[inline]
    pub fn is_to_group(&self) -> bool {
        self.destination()[0] & 1 != 0
    }

    /// Returns the first VLAN tag.
    #[inline]
    pub fn tag(&self) -> Option<VlanTag> {
        let bytes = self.bytes.as_ref();
        let kind = u16_at(bytes, TYPE);
        is_tag(kind).then(|| VlanTag {
            kind,
            control: u16_at(bytes, CONTROL),
        })
    }

    /// Returns the type of what follows the header and the first tag: 0x0800 IPv4, 0x86DD IPv6, or
    /// the type of a second tag.
    #[inline]
    pub fn ether_type(&self) -> u16 {
        u16_at(self.bytes.as_ref(), self.header_len() - 2)
    }

    /// Returns the length of the header in bytes, the first tag included: 14 or 18.
    #[inline]
    pub fn header_len(&self) -> usize {
        if is_tag(u16_at(self.bytes.as_ref(), TYPE)) {
            TAGGED_LEN
        } else {
            LEN
        }
    }

    /// Returns the fields as a value.
    pub fn header(&self) -> EthernetHeader {
        EthernetHeader {
            destination: self.destination(),
            source: self.source(),
            tag: self.tag(),
            ether_type: self.ether_type(),
        }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ethernet<T> {
    /// Sets the type of what follows the header and the first tag. The new type must not be the
    /// type of a tag.
    pub fn set_ether_type(&mut self, ether_type: u16) {
        let at = self.header_len() - 2;
        put_u16(self.bytes.as_mut(), at, ether_type);
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Ethernet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.header().fmt(f)
    }
}

/// The fields of an Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetHeader {
    /// The hardware address of the destination.
    pub destination: [u8; 6],
    /// The hardware address of the source.
    pub source: [u8; 6],
    /// The first VLAN tag.
    pub tag: Option<VlanTag>,
    /// The type of what follows: 0x0800 IPv4, 0x86DD IPv6, or the type of a second tag.
    pub ether_type: u16,
}

impl EthernetHeader {
    /// Appends the header: 14 bytes, or 18 with a tag.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.destination);
        out.extend(self.source);
        if let Some(tag) = self.tag {
            out.extend(tag.kind.to_be_bytes());
            out.extend(tag.control.to_be_bytes());
        }
        out.extend(self.ether_type.to_be_bytes());
    }
}

impl fmt::Display for EthernetHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ethernet ")?;
        hardware_address(f, self.source)?;
        f.write_str(" > ")?;
        hardware_address(f, self.destination)?;
        if let Some(tag) = self.tag {
            write!(f, " VLAN {}", tag.id())?;
        }
        write!(f, " type 0x{:04x}", self.ether_type)
    }
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// The type that makes it a tag: 0x8100 of a customer, 0x88A8 of a provider, or 0x9100, which
    /// providers used before 0x88A8 was standardised.
    pub kind: u16,
    /// Priority (3 bits), drop eligible (1) and number of the VLAN (12).
    pub control: u16,
}

impl VlanTag {
    /// Returns the number of the VLAN, 0 to 4095; 0 for a tag that carries only a priority.
    #[must_use]
    pub const fn id(self) -> u16 {
        self.control & 0x0FFF
    }

    /// Returns the priority, 0 to 7.
    #[must_use]
    pub const fn priority(self) -> u8 {
        (self.control >> 13) as u8
    }
}

fn hardware_address(f: &mut fmt::Formatter<'_>, address: [u8; 6]) -> fmt::Result {
    let [a, b, c, d, e, g] = address;
    write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
}

/// Returns true for the type of a VLAN tag.
pub(super) const fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, 0x8100 | 0x88A8 | 0x9100)
}

/// Length of a header without a tag, in bytes.
pub(super) const LEN: usize = 14;
const TAGGED_LEN: usize = 18;
/// The type of IPv4 in an Ethernet header.
pub const ETHER_TYPE_IPV4: u16 = 0x0800;
/// The type of IPv6 in an Ethernet header.
pub const ETHER_TYPE_IPV6: u16 = 0x86DD;

/// Offsets of fields.
const DESTINATION: usize = 0;
const SOURCE: usize = 6;
const TYPE: usize = 12;
const CONTROL: usize = 14;

#[cfg(test)]
mod tests {
    use super::*;

    fn header(tag: Option<VlanTag>) -> EthernetHeader {
        EthernetHeader {
            destination: [1, 0, 0x5E, 1, 2, 3],
            source: [2, 0, 0, 0, 0, 0xFE],
            tag,
            ether_type: ETHER_TYPE_IPV4,
        }
    }

    const TAG: VlanTag = VlanTag {
        kind: 0x8100,
        control: 0xA00F,
    };

    #[test]
    fn what_is_emitted_is_read_with_and_without_a_tag() {
        for (tag, len) in [(None, 14), (Some(TAG), 18)] {
            let mut frame = Vec::new();
            header(tag).emit(&mut frame);
            let view = Ethernet::of(&frame).unwrap();
            assert_eq!(view.header(), header(tag));
            assert_eq!((view.header_len(), frame.len()), (len, len));
            assert!(view.is_to_group());
        }
        assert_eq!((TAG.id(), TAG.priority()), (15, 5));
    }

    #[test]
    fn fields_are_where_the_drawing_has_them() {
        let mut frame = Vec::new();
        header(Some(TAG)).emit(&mut frame);
        assert_eq!(frame[..6], [1, 0, 0x5E, 1, 2, 3]);
        assert_eq!(frame[6..12], [2, 0, 0, 0, 0, 0xFE]);
        assert_eq!(frame[12..], [0x81, 0, 0xA0, 0x0F, 8, 0]);
        let mut view = Ethernet::of(&mut frame).unwrap();
        view.set_ether_type(ETHER_TYPE_IPV6);
        assert_eq!(
            view.to_string(),
            "Ethernet 02:00:00:00:00:fe > 01:00:5e:01:02:03 VLAN 15 type 0x86dd"
        );
        assert_eq!(frame[16..], [0x86, 0xDD]);
    }

    #[test]
    fn every_shorter_length_is_none() {
        for (tag, whole) in [(None, 14), (Some(TAG), 18)] {
            let mut frame = Vec::new();
            header(tag).emit(&mut frame);
            for len in 0..=whole {
                let is_viewed = Ethernet::of(&frame[..len]).is_some();
                assert_eq!(is_viewed, len == whole, "{len}");
            }
        }
    }
}
