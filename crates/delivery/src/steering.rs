//! What a source tells of itself once a turn, and what its receivers' reports ask of it.

use std::time::Duration;

/// Where a source's packet stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// The last position that was sent. What waits does not count: no receiver is behind because of
    /// data that the flow window holds back.
    pub lead: u64,
    /// Something waits for the rate limit.
    pub is_rate_limited: bool,
    /// Something waits for room that the slowest receiver has not given.
    pub is_held: bool,
    /// Packets that a receiver may be behind before the source waits for it.
    pub window: u64,
}

/// What the receivers of a source want of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// The rate to go at, in bytes a second, 0 for no limit; `None` when nobody sets it.
    pub rate: Option<u64>,
    /// How many there are, or are going to be: many spread what all of them do at once, one alone
    /// asks for repairs without listening for others.
    pub count: u32,
    /// The number of the one who limits the session.
    pub limiting: Option<u32>,
    /// The position from which on everything is to be kept; `None` when nothing is held back.
    pub hold: Option<u64>,
    /// The longest round trip to any of them, once one is known.
    pub round_trip: Option<Duration>,
}

/// The receiver that the others wait for, of all with how far each is behind: half of the others
/// are at least half as far ahead as the stream itself.
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
