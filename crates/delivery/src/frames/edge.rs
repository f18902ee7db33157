//! A place between two frames of a stream, and what may follow there.

use wire::object::FrameHeader;

use crate::parameters::FRAMES_OPEN_MAX;

/// A place between two frames: every frame before this number is known, or settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    /// The next frame's number.
    pub(super) id: u64,
    /// One past the position of the last packet before it.
    pub(super) position: u64,
    pub(super) skipped: u32,
    pub(super) drops: u64,
}

impl Edge {
    /// Returns the edge behind a frame that begins at `first`.
    pub(super) fn behind(header: &FrameHeader, first: u64, drops: u64) -> Self {
        Self {
            id: header.id + 1,
            position: first + u64::from(header.pieces()),
            skipped: header.skipped,
            drops,
        }
    }

    /// Whether a frame that begins at `first` can follow: there is a packet at least for each frame
    /// before it of which nothing was heard.
    pub(super) fn leads_to(&self, header: &FrameHeader, first: u64) -> bool {
        let count = unheard(self.id, self.skipped, header);
        let room = first.checked_sub(self.position);
        count.zip(room).is_some_and(|(count, room)| count <= room)
    }

    /// Whether a single packet is believed that so many frames were overrun since.
    pub(super) const fn is_near(&self, header: &FrameHeader) -> bool {
        header.skipped.saturating_sub(self.skipped) <= OVERRUNS_MAX
    }
}

/// Returns how many frames were sent between the number `next` and the frame of `header`, when
/// `skipped` frames had been skipped by then; `None` when the header contradicts that.
pub(super) fn unheard(next: u64, skipped: u32, header: &FrameHeader) -> Option<u64> {
    let overruns = u64::from(header.skipped.checked_sub(skipped)?);
    header.id.checked_sub(next)?.checked_sub(overruns)
}

/// Judgement: a sender that has no room for so many frames in a row is stuck, and rare.
const OVERRUNS_MAX: u32 = FRAMES_OPEN_MAX;
