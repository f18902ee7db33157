//! Towline's own option in data packets that carry a row of messages, not one message.
//!
//! A private option, OPX "discard": a receiver that does not know it must not take the row for one
//! message. Others may use option type 0x6D, too: only the magic tells whose it is. A single
//! message with its length before it, in one packet or several, is a row of one message.
//!
//! ```text
//!   option                      message (TSDU, or the whole of a message in fragments)
//!   +------+----+----+----+    +--------+---------+--------+---------+ ...
//!   | 0x6D |  8 | 02 | 00 |    | length | message | length | message |
//!   +------+----+----+----+    +--------+---------+--------+---------+ ...
//!   |  "TWPK"             |    length: 0xxxxxxx, or 10 and 30 bits, network order;
//!   +---------------------+    0xFF in its place: the rest is padding
//!                              a message of less than 8 bytes with its length is filled up to 8
//! ```

use std::fmt;

use super::Contents;
use crate::{
    ParseError,
    cursor::{Reader, Writer},
};

/// The option of a data packet that carries several messages, each after its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed;

impl Packed {
    /// The magic "TWPK", which tells this option from another of the same type.
    pub const MAGIC: u32 = 0x5457_504B;

    /// The byte that stands in place of a length where the rest of the row is padding. No length
    /// begins with this byte.
    pub const PADDING: u8 = 0xFF;

    /// Returns how many bytes the length field takes in front of a message of `len` bytes: 1 or 4.
    #[inline]
    #[must_use]
    pub const fn length_len(len: usize) -> usize {
        if len < SHORT_END { 1 } else { 4 }
    }

    /// Returns the number of bytes that a message of `len` bytes takes in a row, with its length
    /// field. It is at least 8: so the receiver needs no more memory than a few times the row's
    /// size, however short the messages are.
    #[inline]
    #[must_use]
    pub const fn span(len: usize) -> usize {
        let span = Self::length_len(len) + len;
        if span < SPAN_MIN { SPAN_MIN } else { span }
    }

    /// Writes the length of a message; `out` must have [`Packed::length_len`] bytes.
    ///
    /// **Panics**: when `out` has no room for the length, or is neither 1 nor 4 bytes long. Also
    /// when `len` is 2^30 or more; no message is that long.
    #[inline]
    pub fn write_length(out: &mut [u8], len: usize) {
        if let ([out], 0..SHORT_END) = (&mut *out, len) {
            *out = len as u8;
            return;
        }
        let len = u32::try_from(len).ok().filter(|len| len >> 30 == 0);
        let len = len.expect("a message is shorter than 2^30 bytes");
        out.copy_from_slice(&(len | 1 << 31).to_be_bytes());
    }

    /// Splits a row into its first message and the rest. Returns `None` at the row's end and for a
    /// row that is cut off or malformed; [`Packed::is_end`] tells the end from the other two.
    #[inline]
    #[must_use]
    pub fn split(row: &[u8]) -> Option<(&[u8], &[u8])> {
        let first = usize::from(*row.first()?);
        let len = if first < SHORT_END {
            first
        } else {
            let len = u32::from_be_bytes(*row.first_chunk()?) ^ 1 << 31;
            usize::try_from(len).ok().filter(|len| len >> 30 == 0)?
        };
        let (message, behind) = row.split_at_checked(Self::span(len))?;
        let start = Self::length_len(len);
        Some((&message[start..start + len], behind))
    }

    /// Returns true when no message follows in a row.
    #[must_use]
    pub const fn is_end(row: &[u8]) -> bool {
        matches!(row, [] | [Self::PADDING, ..])
    }

    pub(super) fn is_ours(value: &[u8]) -> bool {
        value == Self::MAGIC.to_be_bytes()
    }
}

/// Messages shorter than this have a length field of one byte.
const SHORT_END: usize = 0x80;
/// The fewest bytes that a message takes with its length field.
const SPAN_MIN: usize = 8;

impl<'a> Contents<'a> for Packed {
    const NAME: &'static str = "our data option";
    const KIND: u8 = 0x6D;

    fn parse(reader: &mut Reader<'a>, _specific: u8) -> Result<Self, ParseError> {
        reader.u32()?;
        Ok(Self)
    }

    fn value_len(&self) -> usize {
        4
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.u32(Self::MAGIC);
    }

    fn bits(&self) -> u8 {
        OPX_DISCARD
    }
}

/// The OPX value "discard": a receiver that does not know the option must discard the packet (RFC
/// 3208 section 9).
const OPX_DISCARD: u8 = 0x02;

impl fmt::Display for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("packed")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row_of(messages: &[Vec<u8>]) -> Vec<u8> {
        let mut row = Vec::new();
        for message in messages {
            let at = row.len();
            row.resize(at + Packed::length_len(message.len()), 0);
            Packed::write_length(&mut row[at..], message.len());
            row.extend_from_slice(message);
            row.resize(at + Packed::span(message.len()), 0);
        }
        row
    }

    #[test]
    fn lengths_change_their_form_at_128() {
        for (len, bytes) in [
            (0, &[0][..]),
            (127, &[127]),
            (128, &[0x80, 0, 0, 128]),
            (65_536, &[0x80, 1, 0, 0]),
        ] {
            let mut out = vec![0; Packed::length_len(len)];
            Packed::write_length(&mut out, len);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn a_row_that_lies_about_its_length_gives_nothing_beyond_its_end() {
        for row in [
            &[][..],
            &[1],
            &[5, 1, 2, 3, 4],
            &[0x80],
            &[0x80, 0, 0, 2, 1],
            &[0xFF; 9],
        ] {
            assert_eq!(Packed::split(row), None, "{row:?}");
        }
    }

    proptest! {
        #[test]
        fn what_was_put_in_a_row_comes_out(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
        ) {
            let row = row_of(&messages);
            let mut rest = &row[..];
            let mut seen = Vec::new();
            while let Some((message, behind)) = Packed::split(rest) {
                seen.push(message.to_vec());
                rest = behind;
            }
            prop_assert_eq!(seen, messages);
            prop_assert!(rest.is_empty());
        }
    }
}
