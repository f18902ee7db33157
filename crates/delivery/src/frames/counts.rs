//! What became of the frames of a stream, by cause.

/// Why a frame was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameLoss {
    /// Packets did not arrive, and their repairs did not come in time.
    Network,
    /// The kernel dropped packets because this receiver's socket buffer was full.
    SocketBuffer,
    /// No packet is known to be lost, but the frame was not ready in time: the sender, the path or
    /// this host was slow.
    Late,
    /// The sender had no room for the frame, because it had not yet sent earlier frames.
    Overrun,
    /// The frame is longer than this receiver takes, or this receiver had no memory for it.
    Refused,
}

impl FrameLoss {
    /// Every cause.
    pub const ALL: [Self; 5] = [
        Self::Network,
        Self::SocketBuffer,
        Self::Late,
        Self::Overrun,
        Self::Refused,
    ];
}

/// What became of the frames of a stream, from the first frame after this receiver joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Number of the first frame that is counted; `None` before any frame was delivered or lost.
    pub first_id: Option<u64>,
    /// Frames delivered or lost: `whole` and all of `lost`.
    pub frames: u64,
    /// Frames delivered.
    pub whole: u64,
    /// Delivered frames of which a packet came out of order, after later packets. Usually that
    /// packet was a repair.
    pub repaired: u64,
    /// Bytes of the frames delivered.
    pub bytes: u64,
    /// Number of frames lost by each cause; the causes are in the order of [`FrameLoss::ALL`].
    pub lost: [u64; FrameLoss::ALL.len()],
    /// True when the sender has said where the stream ends, and all frames up to there are counted.
    pub is_end_known: bool,
}

impl FrameCounts {
    /// Returns how many frames were lost for this cause.
    #[must_use]
    pub const fn lost_by(&self, cause: FrameLoss) -> u64 {
        self.lost[cause as usize]
    }

    /// Returns how many frames were lost.
    #[must_use]
    pub fn lost_all(&self) -> u64 {
        self.lost.iter().sum()
    }
}

/// What became of the frames of one of two feeds. Counting begins at the first frame that either
/// feed had. Each frame that this feed has reported as whole or lost is counted in one field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedCounts {
    /// Frames given out from this feed: it had them whole first, or alone.
    pub first: u64,
    /// Frames that this feed had whole, too, but after the other feed.
    pub second: u64,
    /// Frames that this feed had whole, but too late to be given out.
    pub late: u64,
    /// Frames that this feed lost, and that the other feed had whole.
    pub saved: u64,
    /// Frames that this feed lost, and that the other feed did not have in time either.
    pub lost: u64,
}

impl FeedCounts {
    /// Returns how many frames this feed had whole.
    #[must_use]
    pub const fn whole(&self) -> u64 {
        self.first + self.second + self.late
    }

    /// Returns how many frames only this feed had in time. The other feed, whose counts are
    /// `other`, lost these frames, or is cut off and has not reported them.
    #[must_use]
    pub const fn only(&self, other: &Self) -> u64 {
        self.first.saturating_sub(other.second)
    }

    /// Returns how many frames this feed lost, whether or not the other feed had them.
    #[must_use]
    pub const fn lost_here(&self) -> u64 {
        self.saved + self.lost
    }
}

impl std::ops::AddAssign for FeedCounts {
    fn add_assign(&mut self, other: Self) {
        self.first += other.first;
        self.second += other.second;
        self.late += other.late;
        self.saved += other.saved;
        self.lost += other.lost;
    }
}
