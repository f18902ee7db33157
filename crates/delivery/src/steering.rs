//! What a source reports about its state in each turn, and what the receivers want from the source.

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
    /// True while data waits because of the rate limit.
    pub is_rate_limited: bool,
    /// True while data waits because the slowest receiver is too far behind.
    pub is_held: bool,
    /// How many packets a receiver may be behind before the source waits for it.
    pub window_packets: u64,
}

/// What the receivers want from their source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// The pace for the source; `None` when no rate control sets it.
    pub pace: Option<Pace>,
    /// The number of receivers, which the source announces to them. A sender of files announces at
    /// least the number of receivers that it expects. Many receivers spread in time what all would
    /// otherwise do at once. A single receiver asks for repairs without waiting for NAKs of others.
    pub count: u32,
    /// The number of the receiver that limits the session; `None` when none does.
    pub limiting: Option<u32>,
    /// The source must keep every packet from this position on; `None` when it need not keep any.
    pub hold: Option<u64>,
    /// The longest round trip to any receiver; `None` while none is known.
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
///                             |......|...............|      not slow: many are behind
/// ```
pub(crate) fn holds_back<T: Copy + Ord>(mut behind: Vec<(u64, T)>) -> Option<T> {
    behind.sort_unstable();
    let &(most, slowest) = behind.last()?;
    let (median, _) = behind[(behind.len() - 1) / 2];
    (behind.len() > 1 && most > median.saturating_mul(2)).then_some(slowest)
}
