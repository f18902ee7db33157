//! The extended attributes of a manifest's entries: a section behind the entries, in version 2.
//!
//! ```text
//! section:  kind u8 = 2 | length u32 | body
//! body:     count of sets u32 | sets | for each entry: its set u32, 0 for no attributes
//! set:      count of attributes u16, at least 1 | attributes
//! attribute:  name length u8 | name | value length u32 | value
//! ```
//!
//! Entries with equal attributes share a set. Sets are numbered from 1 in the order in which
//! entries first use them. The names in a set ascend. So equal entries give equal bytes.

use super::reader::Reader;
use crate::{Fault, ParseError};

/// The checked body of the section of attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributesRef<'a> {
    body: &'a [u8],
    sets: AttributeSets<'a>,
    of: &'a [u8],
}

/// An extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttributeRef<'a> {
    /// Its name with its namespace, such as `user.comment`: 1 to 255 bytes without NUL.
    pub name: &'a [u8],
    /// Its value, at most 65,536 bytes.
    pub value: &'a [u8],
}

/// The sets of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeSets<'a>(&'a [u8]);

/// The attributes of a set, their names ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeSet<'a>(&'a [u8]);

impl<'a> AttributesRef<'a> {
    /// Checks the section's body; the manifest has `entries` entries.
    ///
    /// # Errors
    /// When a length, a name, a value or an index is not what the layout allows.
    pub fn parse(body: &'a [u8], entries: u32) -> Result<Self, ParseError> {
        let mut reader = Reader::new(body, "the section's end");
        if body.len() > ATTRIBUTES_LEN_MAX {
            return Err(reader.forbidden("length of the attributes", 0, body.len() as u64));
        }
        let count = reader.u32("sets of attributes")?;
        let start = reader.offset();
        for _ in 0..count {
            read_set(&mut reader)?;
        }
        let end = reader.offset();
        let mut highest = 0;
        for _ in 0..entries {
            let at = reader.offset();
            let set = reader.u32("attributes of an entry")?;
            // Entries use the sets for the first time in the order of the sets.
            if set > count || set > highest + 1 {
                return Err(reader.forbidden("attributes of an entry", at, set.into()));
            }
            highest = highest.max(set);
        }
        if highest != count {
            return Err(reader.forbidden("sets of attributes", 0, count.into()));
        }
        if reader.remaining() != 0 {
            return Err(ParseError {
                limited_by: "the last entry",
                ..reader.fault("attributes", reader.offset(), Fault::Surplus)
            });
        }
        Ok(Self {
            body,
            sets: AttributeSets(&body[start..end]),
            of: &body[end..],
        })
    }

    /// Appends a body. `of` gives the set of each entry, counted from 1; 0 for no attributes.
    ///
    /// **Panics** (bug): when a set has more than 65,535 attributes, or a name more than 255 bytes.
    /// Also when the number of sets or the length of a value does not fit 32 bits.
    pub fn emit<'e>(
        out: &mut Vec<u8>,
        sets: &[impl AsRef<[AttributeRef<'e>]>],
        of: impl Iterator<Item = u32>,
    ) {
        let count = u32::try_from(sets.len()).expect("sets are checked before");
        out.extend_from_slice(&count.to_be_bytes());
        for set in sets {
            let set = set.as_ref();
            let count = u16::try_from(set.len()).expect("sets are checked before");
            out.extend_from_slice(&count.to_be_bytes());
            for AttributeRef { name, value } in set {
                out.push(u8::try_from(name.len()).expect("names are checked before"));
                out.extend_from_slice(name);
                let len = u32::try_from(value.len()).expect("values are checked before");
                out.extend_from_slice(&len.to_be_bytes());
                out.extend_from_slice(value);
            }
        }
        for set in of {
            out.extend_from_slice(&set.to_be_bytes());
        }
    }

    /// Returns the sets; the first one is set 1.
    #[must_use]
    pub const fn sets(&self) -> AttributeSets<'a> {
        self.sets
    }

    /// Returns the number of an entry's set, counted from 1; 0 for no attributes.
    ///
    /// **Panics** (bug): when the manifest has no such entry.
    #[must_use]
    pub fn of(&self, entry: usize) -> u32 {
        let set = &self.of[4 * entry..4 * entry + 4];
        u32::from_be_bytes(set.try_into().expect("four bytes"))
    }

    /// Returns the bytes of the section's body.
    #[must_use]
    pub const fn body(&self) -> &'a [u8] {
        self.body
    }
}

impl<'a> Iterator for AttributeSets<'a> {
    type Item = AttributeSet<'a>;

    fn next(&mut self) -> Option<AttributeSet<'a>> {
        if self.0.is_empty() {
            return None;
        }
        let mut reader = Reader::new(self.0, SET_END);
        read_set(&mut reader).expect("parse read every one");
        let (set, rest) = self.0.split_at(reader.offset());
        self.0 = rest;
        // The count comes first; the last attribute ends where the set ends.
        Some(AttributeSet(&set[2..]))
    }
}

impl<'a> Iterator for AttributeSet<'a> {
    type Item = AttributeRef<'a>;

    fn next(&mut self) -> Option<AttributeRef<'a>> {
        if self.0.is_empty() {
            return None;
        }
        let mut reader = Reader::new(self.0, SET_END);
        let attribute = read_attribute(&mut reader).expect("parse read every one");
        self.0 = &self.0[reader.offset()..];
        Some(attribute)
    }
}

/// Returns true for a name that a manifest may hold.
#[must_use]
pub fn is_attribute_name(name: &[u8]) -> bool {
    (1..=255).contains(&name.len()) && !name.contains(&0)
}

fn read_set(reader: &mut Reader<'_>) -> Result<(), ParseError> {
    let at = reader.offset();
    let count = reader.u16("attributes of a set")?;
    if count == 0 {
        return Err(reader.forbidden("attributes of a set", at, 0));
    }
    let mut previous: Option<&[u8]> = None;
    for _ in 0..count {
        let at = reader.offset();
        let attribute = read_attribute(reader)?;
        if previous >= Some(attribute.name) {
            return Err(reader.forbidden("order of attributes", at, 0));
        }
        previous = Some(attribute.name);
    }
    Ok(())
}

fn read_attribute<'a>(reader: &mut Reader<'a>) -> Result<AttributeRef<'a>, ParseError> {
    let at = reader.offset();
    let len = usize::from(reader.u8("length of an attribute's name")?);
    let name = reader.take("attribute's name", len)?;
    if !is_attribute_name(name) {
        return Err(reader.forbidden("attribute's name", at, len as u64));
    }
    let at = reader.offset();
    let len = reader.u32("length of an attribute's value")?;
    let bytes = usize::try_from(len).unwrap_or(usize::MAX);
    if bytes > ATTRIBUTE_VALUE_LEN_MAX {
        return Err(reader.forbidden("length of an attribute's value", at, len.into()));
    }
    let value = reader.take("attribute's value", bytes)?;
    Ok(AttributeRef { name, value })
}

/// The longest section of attributes, in bytes: a quarter of the longest manifest.
pub const ATTRIBUTES_LEN_MAX: usize = 16 << 20;
/// The longest value of an attribute, in bytes: the limit of Linux (XATTR_SIZE_MAX).
pub const ATTRIBUTE_VALUE_LEN_MAX: usize = 65_536;
const SET_END: &str = "the set's end";

#[cfg(test)]
mod tests {
    use super::*;

    const fn attribute(name: &'static [u8], value: &'static [u8]) -> AttributeRef<'static> {
        AttributeRef { name, value }
    }

    fn body() -> Vec<u8> {
        let sets = [
            vec![attribute(b"user.a", b"xy")],
            vec![attribute(b"user.a", b""), attribute(b"user.b", b"\0")],
        ];
        let mut out = Vec::new();
        AttributesRef::emit(&mut out, &sets, [0, 1, 2, 1].into_iter());
        out
    }

    #[test]
    fn attributes_read_back_what_was_written() {
        let golden = [
            &[0, 0, 0, 2][..],
            &[0, 1, 6],
            b"user.a",
            &[0, 0, 0, 2],
            b"xy",
            &[0, 2, 6],
            b"user.a",
            &[0, 0, 0, 0, 6],
            b"user.b",
            &[0, 0, 0, 1, 0],
            &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1],
        ];
        let body = body();
        assert_eq!(body, golden.concat());
        let attributes = AttributesRef::parse(&body, 4).unwrap();
        assert_eq!([0, 1, 2, 3].map(|entry| attributes.of(entry)), [0, 1, 2, 1]);
        let sets: Vec<Vec<_>> = attributes.sets().map(Iterator::collect).collect();
        assert_eq!(sets[0], [attribute(b"user.a", b"xy")]);
        assert_eq!(sets[1].len(), 2);
        assert_eq!(sets[1][1], attribute(b"user.b", b"\0"));
    }

    #[test]
    fn what_is_not_whole_or_not_as_it_must_be_is_refused() {
        let body = body();
        for len in 0..body.len() {
            assert!(AttributesRef::parse(&body[..len], 4).is_err(), "{len}");
        }
        for entries in [0, 3, 5, u32::MAX] {
            assert!(AttributesRef::parse(&body, entries).is_err(), "{entries}");
        }
        // A set more, an empty set, a NUL in a name, no name, a value that is too long, names that
        // do not ascend, and sets that are used out of order, not at all, or do not exist.
        let last = body.len() - 1;
        for (at, value) in [
            (3, 3),
            (5, 0),
            (8, 0),
            (6, 0),
            (14, 2),
            (38, b'a'),
            (last - 12, 2),
            (last - 4, 1),
            (last, 3),
        ] {
            let mut body = body.clone();
            assert_ne!(body[at], value, "{at}");
            body[at] = value;
            assert!(AttributesRef::parse(&body, 4).is_err(), "{at}");
        }
    }

    #[test]
    fn a_value_may_be_as_long_as_linux_takes_and_no_longer() {
        for (len, is_taken) in [
            (ATTRIBUTE_VALUE_LEN_MAX, true),
            (ATTRIBUTE_VALUE_LEN_MAX + 1, false),
        ] {
            let value = vec![7; len];
            let set = [AttributeRef {
                name: b"user.a",
                value: &value,
            }];
            let mut body = Vec::new();
            AttributesRef::emit(&mut body, &[set], [1].into_iter());
            assert_eq!(AttributesRef::parse(&body, 1).is_ok(), is_taken, "{len}");
        }
        let long = vec![0; ATTRIBUTES_LEN_MAX + 1];
        let error = AttributesRef::parse(&long, 1).unwrap_err();
        assert!(
            error.to_string().contains("length of the attributes"),
            "{error}"
        );
    }
}
