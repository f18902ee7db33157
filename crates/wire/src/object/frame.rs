//! The 40 bytes in front of each piece of a frame.
//!
//! ```text
//!  0        1            2                4                         8
//!  +--------+------------+----------------+-------------------------+
//!  | kind   | format len | stride         | index of the piece      |
//!  +--------+------------+----------------+-------------------------+
//!  | number of the frame                                            |
//!  +----------------------------------------------------------------+
//!  | timestamp, ns of the sender's clock                            |
//!  +-------------------------------+--------------------------------+
//!  | length, bytes                 | interval, us                   |
//!  +-------------------------------+--------------------------------+
//!  | deadline, us                  | frames skipped so far          |
//!  +-------------------------------+--------------------------------+
//! ```
//!
//! A frame is cut into pieces of `stride` bytes, one in each packet; the last piece may be shorter.
//! The frame's last `format len` bytes say how to read its other bytes. Each packet tells where its
//! whole frame lies: when the packet at position `p` has piece `index`, the frame begins in the
//! packet at `p - index`.

use super::reader::Reader;
use crate::{Fault, ParseError};

/// A frame header: it describes the bytes behind it, and the frame that they belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What follows: a piece of a frame; at the end, nothing.
    pub kind: FrameKind,
    /// How many bytes at the frame's end say how to read it.
    pub format_len: u8,
    /// Bytes of every piece but the last.
    pub stride: u16,
    /// Number of this piece, from 0.
    pub index: u32,
    /// Number of the frame, from 0; at the end, how many frames there were.
    pub id: u64,
    /// When the frame was made, in nanoseconds of the sender's clock.
    pub timestamp_ns: u64,
    /// Bytes of the whole frame, its format included.
    pub len: u32,
    /// The time from one frame to the next, in microseconds; 0 when it is not known.
    pub interval_us: u32,
    /// How long after its timestamp the frame is of use, in microseconds.
    pub deadline_us: u32,
    /// How many frames before this one the sender numbered and did not send.
    pub skipped: u32,
}

/// What follows a frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A piece of a frame.
    Piece,
    /// Nothing: there are no more frames. Length, stride, index and format length are 0.
    End,
}

impl FrameHeader {
    /// Length of the header in bytes.
    pub const LEN: usize = 40;
    /// The least stride, in bytes: it bounds the number of pieces that a length can claim.
    pub const STRIDE_MIN: usize = 256;

    /// The highest number of a frame.
    pub const ID_MAX: u64 = (1 << 48) - 1;

    /// Returns how many pieces the frame has; 1 for the end.
    #[inline]
    #[must_use]
    pub const fn pieces(&self) -> u32 {
        match self.kind {
            FrameKind::Piece => self.len.div_ceil(self.stride as u32),
            FrameKind::End => 1,
        }
    }

    /// Returns where in the frame the piece begins, in bytes.
    #[inline]
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.index as usize * self.stride as usize
    }

    /// Returns the length of the piece in bytes.
    #[inline]
    #[must_use]
    pub const fn piece_len(&self) -> usize {
        let left = (self.len as usize).saturating_sub(self.offset());
        if left < self.stride as usize {
            left
        } else {
            self.stride as usize
        }
    }

    /// Returns true when both headers describe the same frame, whatever their pieces.
    #[must_use]
    pub fn is_same_frame(&self, other: &Self) -> bool {
        Self {
            index: other.index,
            ..*self
        } == *other
    }

    /// Splits a payload into its header and the piece.
    ///
    /// # Errors
    /// When the payload is shorter than a header, when the header holds a forbidden value or
    /// contradicts itself, or when the piece has another length than the header says.
    #[inline]
    pub fn parse(payload: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut reader = Reader::new(payload, "the TSDU length");
        let kind = match reader.u8("frame header")? {
            1 => FrameKind::Piece,
            2 => FrameKind::End,
            other => return Err(reader.forbidden("frame kind", 0, u64::from(other))),
        };
        let header = Self {
            kind,
            format_len: reader.u8("frame header")?,
            stride: reader.u16("frame header")?,
            index: reader.u32("frame header")?,
            id: reader.u64("frame header")?,
            timestamp_ns: reader.u64("frame header")?,
            len: reader.u32("frame header")?,
            interval_us: reader.u32("frame header")?,
            deadline_us: reader.u32("frame header")?,
            skipped: reader.u32("frame header")?,
        };
        header.check(&reader)?;
        let piece = &payload[Self::LEN..];
        if piece.len() != header.piece_len() {
            let mut error = reader.fault("frame piece", Self::LEN, Fault::Length);
            error.needed = header.piece_len();
            return Err(error);
        }
        Ok((header, piece))
    }

    /// Checks that no field has a forbidden value and that no two fields contradict each other.
    fn check(&self, reader: &Reader<'_>) -> Result<(), ParseError> {
        let wrong = |what, at, value| Err(reader.forbidden(what, at, value));
        let is_empty = self.len == 0 && self.stride == 0;
        if self.kind == FrameKind::End && !is_empty {
            return wrong("length of a frame at the end", 24, u64::from(self.len));
        }
        if self.kind == FrameKind::Piece && usize::from(self.stride) < Self::STRIDE_MIN {
            return wrong("frame stride", 2, u64::from(self.stride));
        }
        if self.index >= self.pieces() {
            return wrong("frame index", 4, u64::from(self.index));
        }
        if u32::from(self.format_len) > self.len {
            return wrong("frame format length", 1, u64::from(self.format_len));
        }
        if self.id > Self::ID_MAX {
            return wrong("frame number", 8, self.id);
        }
        if u64::from(self.skipped) > self.id {
            return wrong("frames skipped", 36, u64::from(self.skipped));
        }
        Ok(())
    }

    /// Returns the header as it goes on the wire.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = match self.kind {
            FrameKind::Piece => 1,
            FrameKind::End => 2,
        };
        bytes[1] = self.format_len;
        bytes[2..4].copy_from_slice(&self.stride.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.index.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.id.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.timestamp_ns.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_be_bytes());
        bytes[28..32].copy_from_slice(&self.interval_us.to_be_bytes());
        bytes[32..36].copy_from_slice(&self.deadline_us.to_be_bytes());
        bytes[36..].copy_from_slice(&self.skipped.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: FrameHeader = FrameHeader {
        kind: FrameKind::Piece,
        format_len: 3,
        stride: 0x0102,
        index: 1,
        id: 0x1314_1516_1718,
        timestamp_ns: 0x2122_2324_2526_2728,
        len: 0x0103,
        interval_us: 0x3132_3334,
        deadline_us: 0x4142_4344,
        skipped: 0x5152_5354,
    };

    #[test]
    fn a_header_is_forty_bytes_in_this_order() {
        let bytes = HEADER.to_bytes();
        assert_eq!(
            bytes,
            [
                1, 3, 1, 2, 0, 0, 0, 1, 0, 0, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23,
                0x24, 0x25, 0x26, 0x27, 0x28, 0, 0, 1, 3, 0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43,
                0x44, 0x51, 0x52, 0x53, 0x54
            ]
        );
        let payload = [&bytes[..], b"x"].concat();
        assert_eq!(FrameHeader::parse(&payload), Ok((HEADER, &b"x"[..])));
        assert_eq!(
            (HEADER.pieces(), HEADER.offset(), HEADER.piece_len()),
            (2, 0x0102, 1)
        );
    }

    #[test]
    fn every_truncation_and_surplus_is_refused() {
        let whole = [&HEADER.to_bytes()[..], b"x"].concat();
        for len in 0..whole.len() {
            assert!(FrameHeader::parse(&whole[..len]).is_err(), "{len}");
        }
        let error = FrameHeader::parse(&[&whole[..], b"y"].concat()).unwrap_err();
        assert_eq!((error.what, error.needed), (Fault::Length, 1));
    }

    #[test]
    fn a_header_that_contradicts_itself_is_refused() {
        let wrong = [
            FrameHeader {
                stride: 255,
                ..HEADER
            },
            FrameHeader { index: 2, ..HEADER },
            FrameHeader { len: 0, ..HEADER },
            FrameHeader {
                len: 2,
                index: 0,
                ..HEADER
            },
            FrameHeader { id: 7, ..HEADER },
            FrameHeader {
                id: 1 << 48,
                ..HEADER
            },
            FrameHeader {
                kind: FrameKind::End,
                ..HEADER
            },
        ];
        for header in wrong {
            let payload = [&header.to_bytes()[..], &vec![0; header.piece_len()]].concat();
            assert!(FrameHeader::parse(&payload).is_err(), "{header:?}");
        }
        let mut unknown = HEADER.to_bytes();
        unknown[0] = 3;
        assert!(FrameHeader::parse(&unknown).is_err());
    }

    #[test]
    fn the_end_has_no_piece() {
        let end = FrameHeader {
            kind: FrameKind::End,
            format_len: 0,
            stride: 0,
            index: 0,
            len: 0,
            ..HEADER
        };
        assert_eq!(FrameHeader::parse(&end.to_bytes()), Ok((end, &[][..])));
        assert_eq!(end.pieces(), 1);
    }
}
