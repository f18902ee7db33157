//! A cursor that cannot read past the end of its bytes.

use base::text::is_plain;

use crate::{Fault, ParseError};

/// A reader of consecutive big-endian fields.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    limited_by: &'static str,
}

impl<'a> Reader<'a> {
    /// Makes a reader of `bytes`. `limited_by` names what sets their end.
    pub(super) const fn new(bytes: &'a [u8], limited_by: &'static str) -> Self {
        Self {
            bytes,
            at: 0,
            limited_by,
        }
    }

    /// Returns the offset of the next field.
    pub(super) const fn offset(&self) -> usize {
        self.at
    }

    /// Returns the number of bytes not yet read.
    pub(super) const fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn take(&mut self, what: &'static str, len: usize) -> Result<&'a [u8], ParseError> {
        let available = self.remaining();
        if len > available {
            return Err(short(what, self.at, len, available, self.limited_by));
        }
        let taken = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<[u8; N], ParseError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(what, N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, ParseError> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(super) fn u16(&mut self, what: &'static str) -> Result<u16, ParseError> {
        Ok(u16::from_be_bytes(self.array(what)?))
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, ParseError> {
        Ok(u32::from_be_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, ParseError> {
        Ok(u64::from_be_bytes(self.array(what)?))
    }

    /// Reads a byte that must be 0 or 1.
    pub(super) fn flag(&mut self, what: &'static str) -> Result<bool, ParseError> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.forbidden(what, self.at - 1, u64::from(other))),
        }
    }

    /// Reads a text of at most `max` bytes with its length in front. The text must be UTF-8 without
    /// control and format characters, because names and explanations end up on terminals.
    pub(super) fn text(&mut self, what: &'static str, max: usize) -> Result<&'a str, ParseError> {
        let start = self.at;
        let len = usize::from(self.u16(what)?);
        if len > max {
            return Err(too_long(what, start, len, max, "the text's length field"));
        }
        let start = self.at;
        let bytes = self.take(what, len)?;
        let text = std::str::from_utf8(bytes)
            .map_err(|error| self.fault(what, start + error.valid_up_to(), Fault::Text))?;
        if let Some((at, hidden)) = text.char_indices().find(|&(_, c)| !is_plain(c)) {
            return Err(self.forbidden(what, start + at, u64::from(u32::from(hidden))));
        }
        Ok(text)
    }

    /// Makes the error for a field at `offset` that is whole but holds a value that the format
    /// forbids.
    #[cold]
    pub(super) const fn forbidden(
        &self,
        layer: &'static str,
        offset: usize,
        value: u64,
    ) -> ParseError {
        self.fault(layer, offset, Fault::Value(value))
    }

    /// Makes the error for a fault at `offset` that more bytes would not cure.
    #[cold]
    pub(super) const fn fault(
        &self,
        layer: &'static str,
        offset: usize,
        what: Fault,
    ) -> ParseError {
        ParseError {
            layer,
            offset,
            needed: 0,
            available: self.bytes.len() - offset,
            limited_by: self.limited_by,
            what,
        }
    }
}

/// Returns a text as messages carry it: cut to `max` bytes, with a question mark for each control
/// and format character.
pub fn carried_text(text: &str, max: usize) -> impl Iterator<Item = char> {
    let plain = text.chars().map(|c| if is_plain(c) { c } else { '?' });
    let mut left = max;
    plain.map_while(move |c| {
        left = left.checked_sub(c.len_utf8())?;
        Some(c)
    })
}

/// Appends a text as [`Reader::text`] reads it and [`carried_text`] makes it.
pub(super) fn emit_text(out: &mut Vec<u8>, text: &str, max: usize) {
    let at = out.len();
    out.extend_from_slice(&[0, 0]);
    let mut buffer = [0; 4];
    for c in carried_text(text, max) {
        out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
    }
    let len = u16::try_from(out.len() - at - 2).expect("a text is cut to fewer than 64 KiB");
    out[at..at + 2].copy_from_slice(&len.to_be_bytes());
}

/// Makes the error for bytes that end before the field does.
#[cold]
pub(super) const fn short(
    layer: &'static str,
    offset: usize,
    needed: usize,
    available: usize,
    limited_by: &'static str,
) -> ParseError {
    ParseError {
        layer,
        offset,
        needed,
        available,
        limited_by,
        what: Fault::Truncated,
    }
}

/// Makes the error for a length or count `found` in `field`, where `max` is the most allowed.
#[cold]
pub(super) const fn too_long(
    layer: &'static str,
    offset: usize,
    found: usize,
    max: usize,
    field: &'static str,
) -> ParseError {
    ParseError {
        layer,
        offset,
        needed: max,
        available: found,
        limited_by: field,
        what: Fault::TooLong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &[u8]) -> Reader<'_> {
        Reader::new(bytes, "the frame's length field")
    }

    #[test]
    fn fields_follow_each_other_in_network_order() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 1];
        let mut r = reader(&bytes);
        assert_eq!(r.u8("a"), Ok(1));
        assert_eq!(r.u16("b"), Ok(0x0203));
        assert_eq!(r.u32("c"), Ok(0x0405_0607));
        assert_eq!(r.u64("d"), Ok(0x0809_0A0B_0C0D_0E0F));
        assert_eq!((r.flag("e"), r.remaining(), r.offset()), (Ok(true), 0, 16));
    }

    #[test]
    fn a_field_that_is_cut_says_which_where_and_by_what() {
        let mut r = reader(&[0, 0, 1]);
        r.u8("first").unwrap();
        assert_eq!(
            r.u32("session").unwrap_err().to_string(),
            "session at offset 1: cut short, 4 bytes needed but 2 left by the frame's length field"
        );
        assert_eq!(r.offset(), 1, "nothing was taken");
    }

    #[test]
    fn a_flag_is_0_or_1() {
        let error = reader(&[2]).flag("key flag").unwrap_err();
        assert_eq!((error.what, error.offset), (Fault::Value(2), 0));
    }

    #[test]
    fn a_text_is_short_valid_and_without_hidden_characters() {
        let text = |bytes: &'static [u8]| reader(bytes).text("name", 4);
        assert_eq!(text(&[0, 3, b'a', 0xC3, 0xA4]), Ok("a\u{e4}"));
        let refused: [(&[u8], Fault); 5] = [
            (&[0, 5, b'a', b'b', b'c', b'd', b'e'], Fault::TooLong),
            (&[0, 2, b'a', 0x1B], Fault::Value(0x1B)),
            // U+202E, after which a terminal writes from right to left.
            (&[0, 4, b'a', 0xE2, 0x80, 0xAE], Fault::Value(0x202E)),
            (&[0, 1, 0xC3], Fault::Text),
            (&[0, 2, b'a'], Fault::Truncated),
        ];
        for (bytes, what) in refused {
            assert_eq!(text(bytes).unwrap_err().what, what, "{bytes:?}");
        }
    }

    #[test]
    fn the_error_of_a_text_names_the_byte_and_the_limit() {
        let said = |bytes: &'static [u8]| reader(bytes).text("name", 4).unwrap_err().to_string();
        assert_eq!(
            said(&[0, 5, b'a', b'b', b'c', b'd', b'e']),
            "name at offset 0: the text's length field is 5, but must be at most 4"
        );
        assert_eq!(said(&[0, 2, b'a', 0xFF]), "name at offset 3: not UTF-8");
        assert_eq!(
            said(&[0, 2, b'a', 0x1B]),
            "name at offset 3: forbidden value 27"
        );
    }

    #[test]
    fn a_text_is_written_as_it_can_be_read() {
        let written = |text: &str| {
            let mut out = vec![9];
            emit_text(&mut out, text, 4);
            out
        };
        assert_eq!(written("abc"), [9, 0, 3, b'a', b'b', b'c']);
        assert_eq!(written("a\nb"), [9, 0, 3, b'a', b'?', b'b']);
        assert_eq!(written("a\u{202e}b"), [9, 0, 3, b'a', b'?', b'b']);
        // The cut is between characters.
        assert_eq!(written("abc\u{e4}"), [9, 0, 3, b'a', b'b', b'c']);
    }
}
