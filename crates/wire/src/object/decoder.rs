//! Finds messages in the byte stream of a control connection.
//!
//! In: pieces of any size, as the connection gives them. Out: whole messages. The buffer holds at
//! most one unfinished frame beside the last piece; a frame that claims to be longer than the limit
//! is refused when its length is read, before any byte of it is kept.

use std::fmt;

use super::{FRAME_HEADER_LEN, Message};
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

    /// Takes the next piece of the stream. Every message should be taken out before the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(piece);
    }

    /// The next whole message, or `None` until more bytes arrive.
    ///
    /// # Errors
    /// When the stream cannot be followed further: the connection is to be closed.
    pub fn next_message(&mut self) -> Result<Option<Message<'_>>, StreamError> {
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
        let (header, body) = frame.split_at(FRAME_HEADER_LEN);
        let kind = u16::from_be_bytes([header[4], header[5]]);
        let flags = u16::from_be_bytes([header[6], header[7]]);
        self.at += frame.len();
        let message = Message::parse(kind, flags, body).map_err(StreamError::Message)?;
        if let Message::Unknown {
            kind,
            is_critical: true,
        } = message
        {
            return Err(StreamError::Unknown { kind });
        }
        Ok(Some(message))
    }

    /// Bytes kept.
    #[must_use]
    pub const fn buffered(&self) -> usize {
        self.buffer.len() - self.at
    }
}

/// Why a stream cannot be followed further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// A frame claims more bytes than are allowed at this point.
    TooLong {
        /// Claimed.
        len: usize,
        /// Allowed.
        max: usize,
    },
    /// A message that must be understood and is not: the peer speaks a newer protocol.
    Unknown {
        /// Its kind.
        kind: u16,
    },
    /// A message whose fields are not as the format demands.
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
            Self::Message(error) => write!(f, "control message: {error}"),
        }
    }
}

impl std::error::Error for StreamError {}
