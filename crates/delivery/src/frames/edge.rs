//! A place between two frames of a stream, and which frames may follow it.

use wire::object::FrameHeader;

use crate::parameters::FRAMES_OPEN_MAX;

/// A place between two frames, described by the header of the frame before or after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    /// The next frame's number.
    pub(super) id: u64,
    /// One past the position of the last packet before this place.
    pub(super) position: u64,
    /// Number of frames before this place that were numbered by the sender but not sent.
    pub(super) skipped: u32,
    /// How many packets the kernel had dropped when this place was noted. If it has dropped more
    /// later, those drops explain why frames behind this place were lost.
    pub(super) drops: u64,
}

impl Edge {
    /// Returns the edge directly behind the frame of `header`, whose first packet is at `first`.
    pub(super) fn behind(header: &FrameHeader, first: u64, drops: u64) -> Self {
        Self {
            id: header.id + 1,
            position: first + u64::from(header.pieces()),
            skipped: header.skipped,
            drops,
        }
    }

    /// Returns true when a frame that begins at `first` can follow this edge. Between the edge and
    /// `first`, there must be room for at least one packet of each frame of which nothing was
    /// heard.
    pub(super) fn leads_to(&self, header: &FrameHeader, first: u64) -> bool {
        let count = unheard(self.id, self.skipped, header);
        let room = first.checked_sub(self.position);
        count.zip(room).is_some_and(|(count, room)| count <= room)
    }

    /// Returns true when `header` is believed without a second packet that agrees: it claims at
    /// most `OVERRUNS_MAX` overruns (frames that the sender numbered and did not send) since the
    /// edge.
    pub(super) const fn is_near(&self, header: &FrameHeader) -> bool {
        header.skipped.saturating_sub(self.skipped) <= OVERRUNS_MAX
    }
}

/// Returns how many of the frames from number `next` up to, but not including, `header.id` were
/// sent. `skipped` is how many frames before `next` were not sent. `None` when `header` contradicts
/// these two numbers.
pub(super) fn unheard(next: u64, skipped: u32, header: &FrameHeader) -> Option<u64> {
    let overruns = u64::from(header.skipped.checked_sub(skipped)?);
    header.id.checked_sub(next)?.checked_sub(overruns)
}

/// The most overruns (frames numbered and not sent) that a header may claim without a second packet
/// that agrees. Judgement: a sender that has no room for this many frames in a row is nearly always
/// stuck.
const OVERRUNS_MAX: u32 = FRAMES_OPEN_MAX;
