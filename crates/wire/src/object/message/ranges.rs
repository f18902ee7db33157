//! Lists of byte ranges: what a receiver holds or lacks. A long list takes several messages.

use super::{FRAME_HEADER_LEN, Message, ObjectId, RANGES_MAX, Range, Reader, too_long};
use crate::ParseError;

/// Ranges of one object, at most as many as fit one message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangeList<'a> {
    /// The pass that the list answers; 0 before the first pass.
    pub pass: u32,
    /// The object that the ranges belong to.
    pub object: ObjectId,
    /// True when no further list belongs to this answer.
    pub is_last: bool,
    /// The ranges.
    pub ranges: Ranges<'a>,
}

/// Ranges as on the wire, 16 bytes each: the start, and the end, which is exclusive. They are
/// ascending, not empty, and do not touch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranges<'a> {
    bytes: &'a [u8],
}

impl<'a> RangeList<'a> {
    pub(super) fn read(r: &mut Reader<'a>) -> Result<Self, ParseError> {
        let pass = r.u32("pass")?;
        let object = ObjectId(r.u32("object")?);
        let is_last = r.flag("last flag")?;
        let count = usize::from(r.u16("range count")?);
        if count > RANGES_MAX {
            let at = r.offset() - 2;
            return Err(too_long("ranges", at, count, RANGES_MAX, "the range count"));
        }
        let at = r.offset();
        let ranges = Ranges {
            bytes: r.take("ranges", count * RANGE_LEN)?,
        };
        let mut floor = None;
        for (index, range) in ranges.iter().enumerate() {
            if range.start >= range.end || floor.is_some_and(|end| range.start <= end) {
                return Err(r.forbidden("range order", at + index * RANGE_LEN, range.start));
            }
            floor = Some(range.end);
        }
        Ok(Self {
            pass,
            object,
            is_last,
            ranges,
        })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let count = self.ranges.len();
        assert!(count <= RANGES_MAX, "a list is split before it is sent");
        let count = u16::try_from(count).expect("checked against the longest list");
        out.extend_from_slice(&self.pass.to_be_bytes());
        out.extend_from_slice(&self.object.0.to_be_bytes());
        out.push(u8::from(self.is_last));
        out.extend_from_slice(&count.to_be_bytes());
        out.extend_from_slice(self.ranges.bytes);
    }
}

impl<'a> Ranges<'a> {
    /// Encodes at most [`RANGES_MAX`] ranges from the front of `ranges` into `scratch`.
    ///
    /// The ranges must be ascending and must not touch. When the iterator has more, the caller
    /// sends the rest in further messages.
    pub fn encode(scratch: &'a mut Vec<u8>, ranges: &mut impl Iterator<Item = Range<u64>>) -> Self {
        scratch.clear();
        for range in ranges.take(RANGES_MAX) {
            scratch.extend_from_slice(&range.start.to_be_bytes());
            scratch.extend_from_slice(&range.end.to_be_bytes());
        }
        Self { bytes: scratch }
    }

    /// Returns the ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + use<'a> {
        self.bytes.chunks_exact(RANGE_LEN).map(|chunk| {
            let (start, end) = chunk.split_at(8);
            let number = |bytes: &[u8]| {
                u64::from_be_bytes(bytes.try_into().expect("half of a range is eight bytes"))
            };
            number(start)..number(end)
        })
    }

    /// Returns the number of ranges.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len() / RANGE_LEN
    }

    /// Returns true when the list has no range.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Length of the longest list message, in bytes.
const RANGE_LIST_LEN_MAX: usize = FRAME_HEADER_LEN + 11 + RANGES_MAX * RANGE_LEN;

const RANGE_LEN: usize = 16;

const _: () = assert!(RANGE_LIST_LEN_MAX < super::BODY_LEN_MAX);
const _: () = assert!(size_of::<Message<'static>>() <= 128);
