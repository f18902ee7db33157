//! The 16 bytes in front of each piece of an object.
//!
//! ```text
//!  0        1        2        3        4                 8                                16
//!  +--------+--------+--------+--------+--------+-------+--------+-------- ... --+--------+
//!  | kind   | flags  | key epoch       | object         | byte offset in the object      |
//!  +--------+--------+--------+--------+--------+-------+--------+-------- ... --+--------+
//! ```

use std::fmt;

use super::reader::Reader;
use crate::ParseError;

/// A block header: it describes the bytes behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// What the bytes are.
    pub kind: BlockKind,
    /// Reserved: sent as 0 and ignored when received. `parse` and `to_bytes` keep the bits.
    pub flags: u8,
    /// Number of the key that protects the bytes; 0 for no key.
    pub key_epoch: u16,
    /// The object that the bytes belong to.
    pub object: ObjectId,
    /// Position of the first byte within the object.
    pub offset: u64,
}

impl BlockHeader {
    /// Length of the header in bytes.
    pub const LEN: usize = 16;

    /// Makes the header of a plain data block.
    #[must_use]
    pub const fn data(object: ObjectId, offset: u64) -> Self {
        Self {
            kind: BlockKind::Data,
            flags: 0,
            key_epoch: 0,
            object,
            offset,
        }
    }

    /// Splits a payload into its header and the object's bytes.
    ///
    /// # Errors
    /// When the payload is shorter than a header or its kind is unknown.
    #[inline]
    pub fn parse(payload: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut reader = Reader::new(payload, "the TSDU length");
        let bytes: [u8; Self::LEN] = reader.array("block header")?;
        let kind = match bytes[0] {
            1 => BlockKind::Data,
            other => return Err(reader.forbidden("block kind", 0, u64::from(other))),
        };
        let [_, flags, e0, e1, o0, o1, o2, o3, offset @ ..] = bytes;
        let header = Self {
            kind,
            flags,
            key_epoch: u16::from_be_bytes([e0, e1]),
            object: ObjectId(u32::from_be_bytes([o0, o1, o2, o3])),
            offset: u64::from_be_bytes(offset),
        };
        Ok((header, &payload[Self::LEN..]))
    }

    /// Returns the header as it goes on the wire.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = match self.kind {
            BlockKind::Data => 1,
        };
        bytes[1] = self.flags;
        bytes[2..4].copy_from_slice(&self.key_epoch.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.object.0.to_be_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }
}

impl fmt::Display for BlockHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} offset {}", self.object, self.offset)
    }
}

/// The kind of bytes that a block carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Bytes of an object, from the offset on.
    Data,
}

/// An object of a session, numbered by the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId(pub u32);

impl ObjectId {
    /// The list of what is delivered.
    pub const MANIFEST: Self = Self(0);
    /// All regular files, one after the other in manifest order.
    pub const CONTENT: Self = Self(1);
    /// The seals of the content: 32 bytes for each slab, in order.
    pub const SEALS: Self = Self(2);
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::MANIFEST => f.write_str("manifest"),
            Self::CONTENT => f.write_str("content"),
            Self::SEALS => f.write_str("seals"),
            Self(other) => write!(f, "object {other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_sixteen_bytes_in_this_order() {
        let mut header = BlockHeader::data(ObjectId(0x0102_0304), 0x1112_1314_1516_1718);
        header.key_epoch = 0x2122;
        let bytes = header.to_bytes();
        assert_eq!(
            bytes,
            [
                1, 0, 0x21, 0x22, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18
            ]
        );
        let payload = [&bytes[..], b"rest"].concat();
        assert_eq!(BlockHeader::parse(&payload), Ok((header, &b"rest"[..])));
    }

    #[test]
    fn every_truncation_and_an_unknown_kind_are_refused() {
        let bytes = BlockHeader::data(ObjectId::CONTENT, 7).to_bytes();
        for len in 0..bytes.len() {
            let error = BlockHeader::parse(&bytes[..len]).unwrap_err();
            assert_eq!((error.needed, error.available), (16, len));
        }
        let mut unknown = bytes;
        unknown[0] = 9;
        assert!(BlockHeader::parse(&unknown).is_err());
    }
}
