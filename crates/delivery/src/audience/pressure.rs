//! Tells which receiver holds the others back, and for how long. A receiver holds the others back
//! when the sender has something to send, but has no room for it until this receiver catches up.
//!
//! Input: whether the sender waits, and how far each receiver is behind. Output: how long one
//! receiver has held the sender back without a break.

use std::time::Duration;

use base::{Instant, LinkId};

use crate::steering::holds_back;

/// The receiver that holds the sender back, and since when.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    /// The time of the last call of `observe`, and whether the sender waited then.
    seen: Option<(Instant, bool)>,
    /// The time of the last call of `look`; `waited` is how long the sender has waited since then.
    looked_at: Option<Instant>,
    waited: Duration,
    /// The receiver that held the sender back at the last call of `look`, and since when.
    by: Option<(LinkId, Instant)>,
}

impl Pressure {
    /// Notes whether the sender has something to send and no room for it.
    pub(super) fn observe(&mut self, now: Instant, is_held: bool) {
        if let Some((at, true)) = self.seen {
            self.waited += now.since(at);
        }
        self.seen = Some((now, is_held));
    }

    /// Finds the receiver that holds the sender back. `behind` gives how far each receiver is
    /// behind the sender.
    pub(super) fn look(&mut self, now: Instant, behind: impl Iterator<Item = (u64, LinkId)>) {
        let is_held = self.seen.is_some_and(|(_, is_held)| is_held);
        self.observe(now, is_held);
        let waited = std::mem::take(&mut self.waited);
        let since = self.looked_at.replace(now).unwrap_or(now);
        // A receiver holds the sender back only if the sender has waited for more than half of the
        // time since the last look: a window that is full for moments slows nobody down.
        let slow = (waited * 2 > now.since(since)).then(|| holds_back(behind.collect()));
        self.by = slow.flatten().map(|link| match self.by {
            Some((known, at)) if known == link => (link, at),
            _ => (link, since),
        });
    }

    /// Returns how long the receiver of `link` has held the others back; zero if it does not.
    pub(super) fn of(&self, now: Instant, link: LinkId) -> Duration {
        match self.by {
            Some((by, since)) if by == link => now.since(since),
            _ => Duration::ZERO,
        }
    }
}
