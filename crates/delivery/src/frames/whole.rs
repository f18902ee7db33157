//! A frame that is whole, with its memory.

use std::time::Duration;

use base::Instant;
use wire::object::FrameHeader;

use super::{entry::margin_of, receiver::Frame, room::Room};

/// A frame that is whole.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) header: FrameHeader,
    pub(super) room: Room,
    pub(super) is_repaired: bool,
    pub(super) due: Instant,
    /// True when the frame came before its turn: earlier frames are not settled (whole or lost).
    pub(super) is_ahead: bool,
}

impl Whole {
    pub(super) const fn new(
        header: FrameHeader,
        room: Room,
        is_repaired: bool,
        due: Instant,
    ) -> Self {
        Self {
            header,
            room,
            is_repaired,
            due,
            is_ahead: false,
        }
    }

    /// Returns the latest time to begin giving the frame out: a margin before the frame is due,
    /// because giving it out takes time.
    pub(super) fn give_by(&self) -> Instant {
        self.due - margin_of(&self.header)
    }

    /// Returns the frame in the form given to the application, with the number of its stream.
    pub(super) fn frame(&self, stream: u32) -> Frame<'_> {
        let header = &self.header;
        let (data, format) = self.room.bytes.split_at(data_len(header) as usize);
        Frame {
            stream,
            id: header.id,
            timestamp_ns: header.timestamp_ns,
            interval: Duration::from_micros(header.interval_us.into()),
            is_repaired: self.is_repaired,
            format,
            data,
        }
    }
}

/// Returns how many bytes a frame has, its format not included.
pub(super) fn data_len(header: &FrameHeader) -> u64 {
    u64::from(header.len) - u64::from(header.format_len)
}
