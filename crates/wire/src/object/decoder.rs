//! The search for messages in the byte stream of a control connection.
//!
//! In: pieces of the stream, of any size. Out: whole messages. When the caller takes out all
//! messages before the next piece, the buffer holds at most one unfinished frame and the last
//! piece. When a frame claims to be longer than the limit, the decoder refuses it as soon as it
//! reads the length.

use std::{fmt, ops::Range};

use super::{FRAME_HEADER_LEN, Message, TAG_LEN};
use crate::ParseError;

/// An incremental reader of messages.
///
/// **Cost**: one copy of the bytes; allocates room only for bytes that have arrived.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    at: usize,
    body_len_max: usize,
}

impl Decoder {
    /// Makes a decoder that refuses bodies longer than `body_len_max` bytes.
    #[must_use]
    pub const fn new(body_len_max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            at: 0,
            body_len_max,
        }
    }

    /// Sets the longest body accepted from now on, in bytes.
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

    /// Returns true when nothing has arrived behind the last message that was taken out.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.at == self.buffer.len()
    }

    /// Returns the next whole message, or `None` until more bytes arrive.
    ///
    /// # Errors
    /// When the stream cannot be read any further: the caller must close the connection.
    pub fn next_message(&mut self) -> Result<Option<Message<'_>>, StreamError> {
        match self.next_frame()? {
            Some(frame) if frame.is_protected() => Err(StreamError::Protected),
            Some(frame) => read(&self.buffer[frame.body()], frame).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the next whole message of a stream that is protected with a key, or `None` until
    /// more bytes arrive. `open` gets the header, the encrypted body and its tag; it decrypts the
    /// body and says whether the tag is right.
    ///
    /// # Errors
    /// When the stream cannot be read any further: the caller must close the connection.
    pub fn next_protected(
        &mut self,
        open: impl FnOnce(&[u8], &mut [u8], &[u8; TAG_LEN]) -> bool,
    ) -> Result<Option<Message<'_>>, StreamError> {
        let Some(frame) = self.next_frame()? else {
            return Ok(None);
        };
        let (header, body) = self.buffer[frame.whole()].split_at_mut(FRAME_HEADER_LEN);
        let genuine = match body.split_last_chunk_mut::<TAG_LEN>() {
            Some((body, tag)) if frame.is_protected() => open(header, body, tag),
            _ => false,
        };
        if !genuine {
            return Err(StreamError::Forged);
        }
        let mut body = frame.body();
        body.end -= TAG_LEN;
        read(&self.buffer[body], frame).map(Some)
    }

    /// Steps over the next whole frame.
    fn next_frame(&mut self) -> Result<Option<Frame>, StreamError> {
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
        let Some(bytes) = rest.get(..FRAME_HEADER_LEN + len) else {
            return Ok(None);
        };
        let frame = Frame {
            at: self.at,
            len: bytes.len(),
            kind: u16::from_be_bytes([bytes[4], bytes[5]]),
            flags: u16::from_be_bytes([bytes[6], bytes[7]]),
        };
        self.at += frame.len;
        Ok(Some(frame))
    }
}

/// The place of one frame in the buffer, and what the frame's header says.
#[derive(Clone, Copy, Debug)]
struct Frame {
    at: usize,
    len: usize,
    kind: u16,
    flags: u16,
}

impl Frame {
    const fn is_protected(self) -> bool {
        self.flags & PROTECTED != 0
    }

    const fn whole(self) -> Range<usize> {
        self.at..self.at + self.len
    }

    const fn body(self) -> Range<usize> {
        self.at + FRAME_HEADER_LEN..self.at + self.len
    }
}

fn read(body: &[u8], frame: Frame) -> Result<Message<'_>, StreamError> {
    let message = Message::parse(frame.kind, frame.flags, body).map_err(StreamError::Message)?;
    match message {
        Message::Unknown {
            kind,
            is_critical: true,
        } => Err(StreamError::Unknown { kind }),
        other => Ok(other),
    }
}

/// Protects the last frame of `out`, which begins at `start`. `seal` gets the header and the body;
/// it encrypts the body and returns the tag over both.
///
/// **Panics** (bug): when no whole frame begins at `start`.
pub fn protect_frame(
    out: &mut Vec<u8>,
    start: usize,
    seal: impl FnOnce(&[u8], &mut [u8]) -> [u8; TAG_LEN],
) {
    let len = out.len() - start - FRAME_HEADER_LEN + TAG_LEN;
    let len = u32::try_from(len).expect("a body is bounded");
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
    let flags = u16::from_be_bytes([out[start + 6], out[start + 7]]) | PROTECTED;
    out[start + 6..start + 8].copy_from_slice(&flags.to_be_bytes());
    let (header, body) = out[start..].split_at_mut(FRAME_HEADER_LEN);
    let tag = seal(header, body);
    out.extend_from_slice(&tag);
}

/// A frame flag: the body is encrypted, and a tag stands behind it.
const PROTECTED: u16 = 0x0002;

/// The reason why a stream cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// A frame claims more bytes than are allowed at this point.
    TooLong {
        /// The length that the frame claims, in bytes.
        len: usize,
        /// The longest length allowed, in bytes.
        max: usize,
    },
    /// A message of unknown kind that the reader must not skip: the peer speaks a newer protocol.
    Unknown {
        /// The message's kind.
        kind: u16,
    },
    /// A message protected with a key, at an end that has no key.
    Protected,
    /// A message whose maker did not have the key, or made it for another place in the stream.
    Forged,
    /// A message whose fields are not what the format allows.
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
            Self::Protected => {
                f.write_str("a control message is protected with a key, but this end has none")
            }
            Self::Forged => {
                f.write_str("a control message was not made with the key of this connection")
            }
            Self::Message(error) => write!(f, "control message: {error}"),
        }
    }
}

impl std::error::Error for StreamError {}
