//! The netlink codec: it writes requests, and reads replies and attributes. It makes no system
//! calls.
//!
//! Bytes from the kernel -> [`Replies`] -> [`Reply`] -> [`Attributes`] -> [`Attribute`]. Each step
//! is checked against the bytes that are there, so a malformed buffer is an error and never a
//! panic.
//!
//! ```text
//! | length u32 | kind u16 | flags u16 | sequence u32 | port u32 | fixed header | attributes... |
//! attribute: | length u16, header included | kind u16 | payload | padding to 4 |
//! ```
//! All integers are in host order, as netlink(7) demands.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// One netlink message under construction.
#[derive(Clone, Debug)]
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// Makes a message of `kind` with `flags`. [`Request::finish`] fills in the length and the
    /// sequence number.
    #[must_use]
    pub fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        Self { bytes }
    }

    /// Appends the fixed header that precedes the attributes.
    pub fn fixed(&mut self, header: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(header);
        self.pad();
        self
    }

    /// Appends one attribute.
    ///
    /// **Panics** (bug): when the payload is longer than 65,531 bytes.
    pub fn attribute(&mut self, kind: u16, payload: &[u8]) -> &mut Self {
        self.nested_as(kind, |request| request.bytes.extend_from_slice(payload))
    }

    /// Appends an attribute that holds a number in host order.
    pub fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Appends an attribute that holds text, zero-terminated as the kernel wants it.
    pub fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        self.nested_as(kind, |request| {
            request.bytes.extend_from_slice(value.as_bytes());
            request.bytes.push(0);
        })
    }

    /// Appends an attribute that holds an IP address.
    pub fn address(&mut self, kind: u16, address: IpAddr) -> &mut Self {
        match address {
            IpAddr::V4(v4) => self.attribute(kind, &v4.octets()),
            IpAddr::V6(v6) => self.attribute(kind, &v6.octets()),
        }
    }

    /// Appends an attribute whose payload is what `fill` appends.
    pub fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.nested_as(kind | NESTED, fill)
    }

    fn nested_as(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; ATTRIBUTE_HEADER_LEN]);
        fill(self);
        let len = u16::try_from(self.bytes.len() - start).expect("a request's attribute is short");
        self.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self.bytes[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
        self.pad();
        self
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Makes the kernel confirm this request, for requests that are sent several at a time.
    pub fn want_acknowledgement(&mut self) {
        let flags = u16::from_ne_bytes([self.bytes[6], self.bytes[7]]) | ACKNOWLEDGE;
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    }

    /// Returns the complete message, with its sequence number set and `flags` added to its flags.
    #[must_use]
    pub fn finish(mut self, flags: u16, sequence: u32) -> Vec<u8> {
        let len = u32::try_from(self.bytes.len()).expect("a request is far below 4 GiB");
        let flags = flags | u16::from_ne_bytes([self.bytes[6], self.bytes[7]]);
        self.bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// One netlink message that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The message type (`RTM_NEWLINK`, `NLMSG_DONE`, ...).
    pub kind: u16,
    /// `NLM_F_*` bits.
    pub flags: u16,
    /// The sequence number of the request that the message answers.
    pub sequence: u32,
    /// The bytes after the netlink header.
    pub payload: &'a [u8],
}

/// An iterator over the messages in one received buffer, in order. It ends after the first
/// malformed message.
#[derive(Clone, Debug)]
pub struct Replies<'a> {
    rest: &'a [u8],
}

impl<'a> Replies<'a> {
    /// Makes an iterator over the messages in `buffer`.
    #[must_use]
    pub const fn new(buffer: &'a [u8]) -> Self {
        Self { rest: buffer }
    }
}

impl<'a> Iterator for Replies<'a> {
    type Item = Result<Reply<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let buffer = std::mem::take(&mut self.rest);
        let header = match fixed::<HEADER_LEN>(buffer, "netlink header") {
            Ok((header, _)) => header,
            Err(malformed) => return Some(Err(malformed)),
        };
        let len = u32_at(header, 0) as usize;
        let Some(payload) = buffer.get(HEADER_LEN..len) else {
            return Some(Err(Malformed {
                what: "netlink message",
                needed: len.max(HEADER_LEN),
                available: buffer.len(),
            }));
        };
        self.rest = buffer.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Ok(Reply {
            kind: u16_at(header, 4),
            flags: u16_at(header, 6),
            sequence: u32_at(header, 8),
            payload,
        }))
    }
}

/// One attribute of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// The type, without the nested and byte-order bits.
    pub kind: u16,
    /// The attribute's contents.
    pub payload: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// Returns the first byte of the payload.
    #[must_use]
    pub fn byte(&self) -> Option<u8> {
        self.payload.first().copied()
    }

    /// Returns the payload as a 32-bit number in host order.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.payload.try_into().ok()?))
    }

    /// Returns the payload as text up to its terminating zero; bytes that are not UTF-8 are
    /// replaced.
    #[must_use]
    pub fn text(&self) -> String {
        let end = self.payload.iter().position(|&byte| byte == 0);
        let text = &self.payload[..end.unwrap_or(self.payload.len())];
        String::from_utf8_lossy(text).into_owned()
    }

    /// Returns the payload as an IP address; its length tells the family.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        if let Ok(octets) = <[u8; 4]>::try_from(self.payload) {
            return Some(Ipv4Addr::from(octets).into());
        }
        let octets = <[u8; 16]>::try_from(self.payload).ok()?;
        Some(Ipv6Addr::from(octets).into())
    }

    /// Reads the attributes in this attribute's payload.
    ///
    /// # Errors
    /// When the payload is not a chain of attributes.
    pub fn nested(&self) -> Result<Attributes<'a>, Malformed> {
        Attributes::parse(self.payload)
    }
}

/// A chain of attributes whose lengths were checked; iterating cannot fail.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// Checks the whole chain of attributes in `bytes`.
    ///
    /// # Errors
    /// When an attribute claims to be shorter than its header, or longer than the bytes left.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = bytes;
        while let Some((_, behind)) = split_attribute(rest)? {
            rest = behind;
        }
        Ok(Self { rest: bytes })
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        let (attribute, rest) = split_attribute(self.rest).ok().flatten()?;
        self.rest = rest;
        Some(attribute)
    }
}

/// An error: bytes from the kernel that are not what netlink promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The part that was being read.
    pub what: &'static str,
    /// Number of bytes that this part needs.
    pub needed: usize,
    /// Number of bytes that were left for this part.
    pub available: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the {} needs {} bytes and {} are there",
            self.what, self.needed, self.available
        )
    }
}

impl std::error::Error for Malformed {}

/// Splits off a header of fixed size; attributes follow at the next multiple of four bytes.
pub(super) fn fixed<'a, const N: usize>(
    bytes: &'a [u8],
    what: &'static str,
) -> Result<(&'a [u8; N], &'a [u8]), Malformed> {
    let (header, _) = bytes.split_first_chunk::<N>().ok_or(Malformed {
        what,
        needed: N,
        available: bytes.len(),
    })?;
    let rest = bytes.get(N.next_multiple_of(4)..).unwrap_or_default();
    Ok((header, rest))
}

/// Returns the 32-bit number at `offset` of a header, in host order.
pub(super) fn u32_at<const N: usize>(header: &[u8; N], offset: usize) -> u32 {
    u32::from_ne_bytes([
        header[offset],
        header[offset + 1],
        header[offset + 2],
        header[offset + 3],
    ])
}

/// Returns the 16-bit number at `offset` of a header, in host order.
pub(super) fn u16_at<const N: usize>(header: &[u8; N], offset: usize) -> u16 {
    u16::from_ne_bytes([header[offset], header[offset + 1]])
}

type Split<'a> = Option<(Attribute<'a>, &'a [u8])>;

fn split_attribute(bytes: &[u8]) -> Result<Split<'_>, Malformed> {
    // Behind the last attribute, the kernel may leave padding that is shorter than a header.
    if bytes.len() < ATTRIBUTE_HEADER_LEN {
        return Ok(None);
    }
    let (header, _) = fixed::<ATTRIBUTE_HEADER_LEN>(bytes, "attribute header")?;
    let len = usize::from(u16_at(header, 0));
    let payload = bytes.get(ATTRIBUTE_HEADER_LEN..len).ok_or(Malformed {
        what: "attribute",
        needed: len.max(ATTRIBUTE_HEADER_LEN),
        available: bytes.len(),
    })?;
    let attribute = Attribute {
        kind: u16_at(header, 2) & !(NESTED | NETWORK_ORDER),
        payload,
    };
    let rest = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    Ok(Some((attribute, rest)))
}

pub(super) const HEADER_LEN: usize = 16;
const ATTRIBUTE_HEADER_LEN: usize = 4;
/// `NLM_F_ACK`.
const ACKNOWLEDGE: u16 = 4;
/// `NLA_F_NESTED`.
const NESTED: u16 = 0x8000;
/// `NLA_F_NET_BYTEORDER`.
const NETWORK_ORDER: u16 = 0x4000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut request = Request::new(16, 1);
        request.fixed(&[7; 6]).number(3, 1500).text(4, "e0");
        request.nested(18, |inner| {
            inner.text(1, "veth");
        });
        let bytes = request.finish(4, 9);
        let reply = Replies::new(&bytes).next().unwrap().unwrap();
        assert_eq!((reply.kind, reply.flags, reply.sequence), (16, 5, 9));
        let (_, rest) = fixed::<6>(reply.payload, "test").unwrap();
        let attributes: Vec<_> = Attributes::parse(rest).unwrap().collect();
        assert_eq!(attributes[0].number(), Some(1500));
        assert_eq!(attributes[1].text(), "e0");
        assert_eq!(attributes[2].kind, 18);
        assert_eq!(
            attributes[2].nested().unwrap().next().unwrap().text(),
            "veth"
        );
    }

    #[test]
    fn lengths_that_lie_are_errors() {
        let bytes = Request::new(16, 1).finish(0, 0);
        for len in [0_u32, 15, 17, u32::MAX] {
            let mut lying = bytes.clone();
            lying[0..4].copy_from_slice(&len.to_ne_bytes());
            assert!(Replies::new(&lying).next().unwrap().is_err(), "{len}");
        }
        assert!(Attributes::parse(&[3, 0, 1, 0]).is_err());
        assert!(Attributes::parse(&[9, 0, 1, 0, 1, 2, 3, 4]).is_err());
        assert_eq!(Attributes::parse(&[4, 0, 1, 0, 9]).unwrap().count(), 1);
    }
}
