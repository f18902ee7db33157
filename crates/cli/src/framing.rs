//! The forms of messages in a byte stream: lines, messages that end with a zero byte, or each
//! message after its length.
//!
//! ```text
//!   lines    message \n  message \n           a message cannot hold a line feed
//!   nul      message \0  message \0           a message cannot hold a zero byte
//!   length   u32 big-endian length | message  anything
//!   zmq      as lines; ZeroMQ's own form is in the packets (`zmq.rs`)
//! ```

use std::io::{self, BufRead, Read as _, Write};

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::Given;

mod zmq;
pub(crate) use zmq::{Framer, Unframer};

/// How messages are told apart in a byte stream, and, with `Zmq`, in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Framing {
    /// Each message is a line; the line feed is not part of it.
    Lines,
    /// Each message ends with a zero byte, which is not part of it, as `find -print0` writes.
    Nul,
    /// Each message follows its length as four bytes, most significant first.
    Length,
    /// Each message is a line; ZeroMQ's frames are put around it in packets, and taken off.
    Zmq,
}

/// The longest message that may be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) bytes: usize,
    /// The name of the protocol parameter that allows longer messages when it is raised.
    pub(crate) parameter: &'static str,
}

/// The result of reading one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A message; more may follow.
    Message,
    /// A message without its end byte: the stream has ended. A terminal must not be read again,
    /// because that would wait for more input.
    Last,
    /// The end of the stream.
    End,
}

impl Framing {
    /// Returns the framing of a session: what the user asked for, or else what its profile needs.
    pub(crate) fn of(asked: Option<Self>, given: &Given) -> Self {
        let is_zmq = given
            .values
            .get("profile")
            .is_some_and(|name| name == "zmq");
        asked.unwrap_or(if is_zmq { Self::Zmq } else { Self::Lines })
    }

    /// Returns true when each message is a line of the byte stream.
    pub(crate) const fn is_lines(self) -> bool {
        matches!(self, Self::Lines | Self::Zmq)
    }

    /// Replaces `message` by the next one.
    ///
    /// # Errors
    /// `InvalidData` when a message is longer than `limit`, or, with `Length`, when the stream ends
    /// within a message or its length. Otherwise the error of the input.
    pub(crate) fn read(
        self,
        input: &mut impl BufRead,
        limit: Limit,
        message: &mut Vec<u8>,
    ) -> io::Result<Found> {
        message.clear();
        match self {
            Self::Lines | Self::Zmq => read_until(b'\n', input, limit, message),
            Self::Nul => read_until(0, input, limit, message),
            Self::Length => read_counted(input, limit, message),
        }
    }

    /// Returns true when `bytes` begin with a whole message, so that reading it does not wait.
    pub(crate) fn is_whole_in(self, bytes: &[u8]) -> bool {
        match self {
            Self::Lines | Self::Zmq => bytes.contains(&b'\n'),
            Self::Nul => bytes.contains(&0),
            Self::Length => bytes.split_first_chunk().is_some_and(|(head, rest)| {
                rest.len() as u64 >= u64::from(u32::from_be_bytes(*head))
            }),
        }
    }

    /// Writes one message.
    ///
    /// # Errors
    /// Those of the output; with `Length`, `InvalidData` for a message of 4 GiB or more.
    pub(crate) fn write(self, output: &mut impl Write, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Lines | Self::Zmq => {
                output.write_all(message)?;
                output.write_all(b"\n")
            }
            Self::Nul => {
                output.write_all(message)?;
                output.write_all(b"\0")
            }
            Self::Length => {
                let length = u32::try_from(message.len()).map_err(|_| {
                    let text = "a message of 4 GiB or more is too long for --framing length; use \
                                --framing nul";
                    io::Error::new(io::ErrorKind::InvalidData, text)
                })?;
                output.write_all(&length.to_be_bytes())?;
                output.write_all(message)
            }
        }
    }
}

fn read_until(
    end: u8,
    input: &mut impl BufRead,
    limit: Limit,
    message: &mut Vec<u8>,
) -> io::Result<Found> {
    // There is room for the end byte, and for one byte more than the limit allows. That byte shows
    // that a message is too long.
    let bytes_max = (limit.bytes as u64).saturating_add(2);
    if input.take(bytes_max).read_until(end, message)? == 0 {
        return Ok(Found::End);
    }
    let is_ended = message.last() == Some(&end);
    if is_ended {
        message.pop();
    }
    match message.len() > limit.bytes {
        true => Err(too_long(limit)),
        false if is_ended => Ok(Found::Message),
        false => Ok(Found::Last),
    }
}

fn read_counted(
    input: &mut impl BufRead,
    limit: Limit,
    message: &mut Vec<u8>,
) -> io::Result<Found> {
    if input.fill_buf()?.is_empty() {
        return Ok(Found::End);
    }
    let mut head = [0; 4];
    let read = input.read_exact(&mut head);
    read.map_err(|error| cut_short(error, "the 4 bytes of a length"))?;
    let length = u32::from_be_bytes(head) as usize;
    if length > limit.bytes {
        let Limit { bytes, parameter } = limit;
        let text = format!(
            "the next message claims {length} bytes, and a message may have at most {bytes}; raise \
             --{}, or check {WRITER}",
            parameter.replace('_', "-")
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    message.resize(length, 0);
    let read = input.read_exact(message);
    read.map_err(|error| cut_short(error, &format!("a message of {length} bytes")))?;
    Ok(Found::Message)
}

fn too_long(limit: Limit) -> io::Error {
    let Limit { bytes, parameter } = limit;
    let remedy = parameter.replace('_', "-");
    let text = format!("a message is longer than {bytes} bytes; raise --{remedy}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Makes the error for an input that ends in the middle of `within`. Returns any other error as it
/// is.
fn cut_short(error: io::Error, within: &str) -> io::Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        let text = format!("it ends within {within}; check {WRITER}");
        io::Error::new(io::ErrorKind::InvalidData, text)
    } else {
        error
    }
}

/// What the user should check when a length does not fit the input.
const WRITER: &str = "the program that writes the input: --framing length reads a u32, \
                      big-endian, before each message";

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(framing: Framing, mut input: &[u8], max: usize) -> io::Result<Vec<Vec<u8>>> {
        let (mut found, mut message) = (Vec::new(), Vec::new());
        let limit = Limit {
            bytes: max,
            parameter: "fragments_max",
        };
        loop {
            let what = framing.read(&mut input, limit, &mut message)?;
            if what != Found::End {
                found.push(message.clone());
            }
            if what != Found::Message {
                return Ok(found);
            }
        }
    }

    #[test]
    fn lines_may_be_empty_and_the_last_may_lack_its_end() {
        let found = read_all(Framing::Lines, b"one\n\nthree", 5).unwrap();
        assert_eq!(found, [&b"one"[..], b"", b"three"]);
        assert!(read_all(Framing::Lines, b"", 5).unwrap().is_empty());
    }

    #[test]
    fn only_a_whole_message_is_one_that_is_there() {
        for (bytes, is_whole) in [("", false), ("on", false), ("one\n", true), ("\ntw", true)] {
            assert_eq!(Framing::Lines.is_whole_in(bytes.as_bytes()), is_whole);
        }
        let stream = b"\0\0\0\x0212";
        for cut in 0..6 {
            assert!(!Framing::Length.is_whole_in(&stream[..cut]), "cut at {cut}");
        }
        assert!(Framing::Length.is_whole_in(stream));
        assert!(Framing::Length.is_whole_in(b"\0\0\0\0"));
    }

    #[test]
    fn the_longest_message_passes_and_one_byte_more_does_not() {
        assert_eq!(read_all(Framing::Lines, b"12345\n", 5).unwrap(), [b"12345"]);
        let error = read_all(Framing::Lines, b"123456\n", 5).unwrap_err();
        let text = "a message is longer than 5 bytes; raise --fragments-max";
        assert_eq!(error.to_string(), text);
        assert_eq!(
            read_all(Framing::Length, b"\0\0\0\x0212", 2).unwrap(),
            [b"12"]
        );
        assert!(read_all(Framing::Length, b"\0\0\0\x03123", 2).is_err());
    }

    #[test]
    fn a_stream_that_ends_within_a_message_is_an_error() {
        for cut in 1..6 {
            let error = read_all(Framing::Length, &b"\0\0\0\x0212"[..cut], 9).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let messages = [&b""[..], b"a", &[0xff; 300]];
        for framing in [Framing::Lines, Framing::Nul, Framing::Length, Framing::Zmq] {
            let mut stream = Vec::new();
            for message in messages {
                framing.write(&mut stream, message).unwrap();
            }
            assert_eq!(read_all(framing, &stream, 300).unwrap(), messages);
        }
        let lines = read_all(Framing::Nul, b"one\ntwo\0three", 9).unwrap();
        assert_eq!(lines, [&b"one\ntwo"[..], b"three"]);
    }
}
