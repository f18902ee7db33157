//! What the two ends of a [`DeliveredStream`](super::DeliveredStream) say to each other.
//!
//! ```text
//!   each way:  magic, then frames
//!   DATA     1  length u32   that many bytes of the application
//!   CONFIRM  2  total u64    the application at this end has taken so many bytes of the other's
//!   END      3  total u64, BLAKE3 of all bytes     nothing follows from this application
//!   DONE     4  total u64, BLAKE3 of all bytes     the answer to END: the application has it all
//! ```
//! Numbers are in network order.

use std::io;

/// The BLAKE3 hash of a stream.
pub(super) type Digest = [u8; 32];

/// One frame; of data only its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Data { bytes: u32 },
    Confirm { total: u64 },
    End { total: u64, digest: Digest },
    Done { total: u64, digest: Digest },
}

impl Frame {
    /// Appends the frame, of data its header.
    pub(super) fn write(self, out: &mut Vec<u8>) {
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
                out.push(if matches!(self, Self::End { .. }) {
                    END
                } else {
                    DONE
                });
                out.extend_from_slice(&total.to_be_bytes());
                out.extend_from_slice(&digest);
            }
        }
    }

    /// Reads the frame at the front of `bytes`, of data its header; returns it with its length, and
    /// `None` while it is not there as a whole.
    ///
    /// # Errors
    /// `InvalidData` for what is no frame.
    pub(super) fn read(bytes: &[u8]) -> io::Result<Option<(Self, usize)>> {
        let Some((&kind, rest)) = bytes.split_first() else {
            return Ok(None);
        };
        let total = rest.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        let digest = rest.get(8..).and_then(|rest| rest.first_chunk().copied());
        let frame = match kind {
            DATA => match rest.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)) {
                Some(0) => return Err(foreign("a piece of data is empty")),
                Some(bytes) if bytes > DATA_MAX => return Err(foreign("a piece is too long")),
                length => length.map(|bytes| (Self::Data { bytes }, 5)),
            },
            CONFIRM => total.map(|total| (Self::Confirm { total }, 9)),
            END => total
                .zip(digest)
                .map(|(total, digest)| (Self::End { total, digest }, 41)),
            DONE => total
                .zip(digest)
                .map(|(total, digest)| (Self::Done { total, digest }, 41)),
            _ => return Err(foreign("the peer speaks another protocol")),
        };
        Ok(frame)
    }
}

/// Makes the error of what this protocol does not allow.
pub(super) fn foreign(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// What each end says first.
pub(super) const MAGIC: &[u8; 8] = b"towline1";
/// The longest piece of data.
pub(super) const DATA_MAX: u32 = 256 << 10;
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
            Frame::Data { bytes: DATA_MAX },
            Frame::Confirm { total: u64::MAX },
            Frame::End { total: 5, digest },
            Frame::Done { total: 5, digest },
        ];
        for frame in frames {
            let mut bytes = Vec::new();
            frame.write(&mut bytes);
            for cut in 0..bytes.len() {
                assert_eq!(Frame::read(&bytes[..cut]).unwrap(), None, "{frame:?} {cut}");
            }
            let len = bytes.len();
            bytes.push(9);
            assert_eq!(Frame::read(&bytes).unwrap(), Some((frame, len)));
        }
        for wrong in [
            &[0][..],
            &[9],
            &[1, 0, 0, 0, 0],
            &[1, 0, 4, 0, 1],
            b"GET / HTTP",
        ] {
            assert!(Frame::read(wrong).is_err(), "{wrong:?}");
        }
    }
}
