//! What a source tells of its state once a turn, and what the receivers want of the source.

use std::time::Duration;

use base::Pace;
use wire::object::StreamPhase;

/// The state of a source's packet stream; `lead` and `trail` are [positions](wire::Sqn#positions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// The last position that was sent. Data that waits to be sent does not count, so a receiver
    /// that lacks only such data is not behind.
    pub lead: u64,
    /// The first position that can still be repaired.
    pub trail: u64,
    /// Whether more data will follow.
    pub phase: StreamPhase,
    /// Data waits for the rate limit.
    pub is_rate_limited: bool,
    /// Data waits for room, which the slowest receiver has to make.
    pub is_held: bool,
    /// How many packets a receiver may be behind before the source waits for it.
    pub window_packets: u64,
}

/// What the receivers of a source want of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// The pace for the source; `None` when no rate control sets it.
    pub pace: Option<Pace>,
    /// The number of receivers; the source announces it to the receivers. For a sender of files it
    /// is at least the number of expected receivers. If there are many, they spread in time what
    /// all would otherwise do at once. A single receiver asks for repairs without listening for
    /// NAKs of others.
    pub count: u32,
    /// The number of the receiver that limits the session; `None` when none does.
    pub limiting: Option<u32>,
    /// The position from which on the source must keep everything; `None` when it does not have to
    /// keep anything.
    pub hold: Option<u64>,
    /// The longest round trip of the receivers, once one is known.
    pub round_trip: Option<Duration>,
}

/// Returns the receiver that the others wait for, if there is one; `behind` says how far behind
/// each receiver is. It is the slowest receiver, if at least half of the receivers are less than
/// half as far behind.
///
/// ```text
///   slowest                          median          lead
///   |................................|...............|      slow: the others wait for it
///                             slowest  median        lead
///                             |......|...............|      not: all wait for packets
/// ```
pub(crate) fn holds_back<T: Copy + Ord>(mut behind: Vec<(u64, T)>) -> Option<T> {
    behind.sort_unstable();
    let &(most, slowest) = behind.last()?;
    let (median, _) = behind[(behind.len() - 1) / 2];
    (behind.len() > 1 && most > median.saturating_mul(2)).then_some(slowest)
}
