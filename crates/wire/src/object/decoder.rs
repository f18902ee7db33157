//! Finds messages in the byte stream of a control connection.
//!
//! In: pieces of the stream, of any size. Out: whole messages. The buffer holds at most one
//! unfinished frame and the last piece; the decoder refuses a frame that claims to be longer than
//! the limit as soon as it reads the length.

use std::fmt;

use super::{FRAME_HEADER_LEN, Message, TAG_LEN};
use crate::ParseError;

/// An incremental reader of messages.
///
/// **Cost**: one copy of the bytes; allocates only what has arrived.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    at: usize,
    body_len_max: usize,
}

impl Decoder {
    /// A decoder that refuses bodies longer than `body_len_max`.
    #[must_use]
    pub const fn new(body_len_max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            at: 0,
            body_len_max,
        }
    }

    /// Sets the longest body accepted from here on.
    pub const fn set_body_len_max(&mut self, body_len_max: usize) {
        self.body_len_max = body_len_max;
    }

    /// Takes the next piece of the stream. The caller should take out every message before it
    /// pushes the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(piece);
    }

    /// The next whole message, or `None` until more bytes arrive.
    ///
    /// # Errors
    /// When the stream cannot be read any further: the caller must close the connection.
    pub fn next_message(&mut self) -> Result<Option<Message<'_>>, StreamError> {
        match self.next_frame()? {
            Some(frame) if frame.is_tagged() => Err(StreamError::Tagged),
            Some(frame) => frame.message().map(Some),
            None => Ok(None),
        }
    }

    /// The next whole frame, or `None` until more bytes arrive: for callers that check the tag
    /// before they read the message.
    ///
    /// # Errors
    /// When the stream cannot be read any further: the caller must close the connection.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, StreamError> {
        let rest = &self.buffer[self.at..];
        let Some(&[l0, l1, l2, l3]) = rest.first_chunk::<4>() else {
            return Ok(None);
        };
        let len = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if len > self.body_len_max {
            return Err(StreamError::TooLong {
                len,
                max: self.body_len_max,
            });
        }
        let Some(frame) = rest.get(..FRAME_HEADER_LEN + len) else {
            return Ok(None);
        };
        self.at += frame.len();
        Ok(Some(Frame { bytes: frame }))
    }
}

/// One frame of a control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Header, body, and the tag, if there is one.
    bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// True when a tag stands behind the body.
    #[must_use]
    pub const fn is_tagged(&self) -> bool {
        self.flags() & TAGGED != 0
    }

    /// Splits the frame into what the tag covers (header and body) and the tag; `None` without a
    /// tag.
    #[must_use]
    pub fn split_tag(&self) -> Option<(&'a [u8], &'a [u8; TAG_LEN])> {
        let (covered, tag) = self.bytes.split_last_chunk::<TAG_LEN>()?;
        (self.is_tagged() && covered.len() >= FRAME_HEADER_LEN).then_some((covered, tag))
    }

    /// Reads the message. If the frame is tagged, believe the message only after checking the tag.
    ///
    /// # Errors
    /// When the stream cannot be read any further: the caller must close the connection.
    pub fn message(&self) -> Result<Message<'a>, StreamError> {
        let covered = match self.split_tag() {
            Some((covered, _)) => covered,
            None if self.is_tagged() => return Err(StreamError::Tagged),
            None => self.bytes,
        };
        let kind = u16::from_be_bytes([covered[4], covered[5]]);
        let body = &covered[FRAME_HEADER_LEN..];
        let message = Message::parse(kind, self.flags(), body).map_err(StreamError::Message)?;
        match message {
            Message::Unknown {
                kind,
                is_critical: true,
            } => Err(StreamError::Unknown { kind }),
            other => Ok(other),
        }
    }

    const fn flags(&self) -> u16 {
        u16::from_be_bytes([self.bytes[6], self.bytes[7]])
    }
}

/// Tags the last frame of `out`, which begins at `start`: `tag` computes the tag from the bytes
/// that it covers.
///
/// **Panics** (bug): when no whole frame begins there.
pub fn tag_frame(out: &mut Vec<u8>, start: usize, tag: impl FnOnce(&[u8]) -> [u8; TAG_LEN]) {
    let len = out.len() - start - FRAME_HEADER_LEN + TAG_LEN;
    let len = u32::try_from(len).expect("a body is bounded");
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
    let flags = u16::from_be_bytes([out[start + 6], out[start + 7]]) | TAGGED;
    out[start + 6..start + 8].copy_from_slice(&flags.to_be_bytes());
    let tag = tag(&out[start..]);
    out.extend_from_slice(&tag);
}

/// A tag stands behind the body.
const TAGGED: u16 = 0x0002;

/// Why a stream cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// A frame claims more bytes than are allowed at this point.
    TooLong {
        /// Claimed.
        len: usize,
        /// Allowed.
        max: usize,
    },
    /// A message of unknown kind that must not be skipped: the peer speaks a newer protocol.
    Unknown {
        /// Its kind.
        kind: u16,
    },
    /// A message with a tag where none is expected, or too short for its tag.
    Tagged,
    /// A message with a field that the format does not allow.
    Message(ParseError),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { len, max } => {
                write!(
                    f,
                    "a control message claims {len} bytes where {max} are allowed"
                )
            }
            Self::Unknown { kind } => {
                write!(
                    f,
                    "control message kind {kind} must be understood and is not known here"
                )
            }
            Self::Tagged => {
                f.write_str("a control message is tagged with a key, but this end has none")
            }
            Self::Message(error) => write!(f, "control message: {error}"),
        }
    }
}

impl std::error::Error for StreamError {}
