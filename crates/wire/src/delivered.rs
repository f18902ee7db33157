//! The frames of a connection whose two ends prove to each other that all bytes arrived
//! (`towline::DeliveredStream`).
//!
//! ```text
//!   each way:  magic, then frames
//!   DATA     1  length u32   so many bytes of the application follow
//!   CONFIRM  2  total u64    the application here has taken so many bytes from the other end
//!   END      3  total u64, BLAKE3 of all bytes     nothing follows from this application
//!   DONE     4  total u64, BLAKE3 of all bytes     the answer to END: the application has it all
//! ```
//! Numbers are in network order.
//!
//! **Spec**: `docs/src/protocol.md` section 15.

use crate::{Fault, ParseError};

/// The BLAKE3 hash of a stream.
pub type Digest = [u8; 32];

/// One frame. A data frame is represented by its header alone, which has the length of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Bytes of the application follow.
    Data {
        /// Number of bytes: 1 to [`DATA_BYTES_MAX`].
        bytes: u32,
    },
    /// The application at this end has taken bytes that the other end wrote.
    Confirm {
        /// Number of bytes so far.
        total: u64,
    },
    /// Nothing follows from this application.
    End {
        /// Number of bytes that it has written.
        total: u64,
        /// The hash of these bytes.
        digest: Digest,
    },
    /// The answer to an end: the application at this end has taken everything.
    Done {
        /// The total of the end that this frame answers.
        total: u64,
        /// The digest of the end that this frame answers.
        digest: Digest,
    },
}

impl Frame {
    /// Length of the longest frame in bytes; of a data frame, only the header counts.
    pub const LEN_MAX: usize = 41;

    /// Appends the frame; of a data frame, only the header.
    pub fn emit(self, out: &mut Vec<u8>) {
        match self {
            Self::Data { bytes } => {
                out.push(DATA);
                out.extend_from_slice(&bytes.to_be_bytes());
            }
            Self::Confirm { total } => {
                out.push(CONFIRM);
                out.extend_from_slice(&total.to_be_bytes());
            }
            Self::End { total, digest } | Self::Done { total, digest } => {
                let is_end = matches!(self, Self::End { .. });
                out.push(if is_end { END } else { DONE });
                out.extend_from_slice(&total.to_be_bytes());
                out.extend_from_slice(&digest);
            }
        }
    }

    /// Reads the frame at the front of `bytes` and returns it with its length; of a data frame, it
    /// reads only the header. Returns `None` when the bytes end too early.
    ///
    /// # Errors
    /// When the first byte is no kind of frame, or a piece of data is empty or longer than
    /// [`DATA_BYTES_MAX`]: the caller must close the connection.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, ParseError> {
        let Some((&kind, rest)) = bytes.split_first() else {
            return Ok(None);
        };
        let total = rest.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        let digest = rest.get(8..).and_then(|rest| rest.first_chunk().copied());
        let end = total.zip(digest);
        let wrong = |what, at: usize, value| ParseError {
            layer: what,
            offset: at,
            needed: 0,
            available: bytes.len() - at,
            limited_by: "what has arrived",
            what: Fault::Value(value),
        };
        Ok(match kind {
            DATA => match rest.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)) {
                Some(bytes) if !(1..=DATA_BYTES_MAX).contains(&bytes) => {
                    return Err(wrong("length of a piece of data", 1, bytes.into()));
                }
                length => length.map(|bytes| (Self::Data { bytes }, 5)),
            },
            CONFIRM => total.map(|total| (Self::Confirm { total }, 9)),
            END => end.map(|(total, digest)| (Self::End { total, digest }, Self::LEN_MAX)),
            DONE => end.map(|(total, digest)| (Self::Done { total, digest }, Self::LEN_MAX)),
            _ => return Err(wrong("kind of a frame", 0, kind.into())),
        })
    }
}

/// The bytes that each end sends first.
pub const MAGIC: &[u8; 8] = b"towline1";
/// The longest piece of data, in bytes.
pub const DATA_BYTES_MAX: u32 = 256 << 10;

const DATA: u8 = 1;
const CONFIRM: u8 = 2;
const END: u8 = 3;
const DONE: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_and_a_part_of_one_is_none_yet() {
        let digest = [7; 32];
        let frames = [
            Frame::Data { bytes: 1 },
            Frame::Data {
                bytes: DATA_BYTES_MAX,
            },
            Frame::Confirm { total: u64::MAX },
            Frame::End { total: 5, digest },
            Frame::Done { total: 5, digest },
        ];
        for frame in frames {
            let mut bytes = Vec::new();
            frame.emit(&mut bytes);
            for cut in 0..bytes.len() {
                assert_eq!(Frame::parse(&bytes[..cut]), Ok(None), "{frame:?} {cut}");
            }
            let len = bytes.len();
            bytes.push(9);
            assert_eq!(Frame::parse(&bytes), Ok(Some((frame, len))));
        }
    }

    #[test]
    fn what_is_no_frame_is_refused_with_its_place() {
        let refused: [(&[u8], usize, u64); 5] = [
            (&[0], 0, 0),
            (&[9], 0, 9),
            (&[1, 0, 0, 0, 0], 1, 0),
            (&[1, 0, 4, 0, 1], 1, 0x0004_0001),
            (b"GET / HTTP", 0, 0x47),
        ];
        for (bytes, offset, value) in refused {
            let error = Frame::parse(bytes).unwrap_err();
            assert_eq!((error.offset, error.what), (offset, Fault::Value(value)));
        }
    }
}
