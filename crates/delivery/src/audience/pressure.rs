//! Who holds the others back, and for how long: the sender has something to send, and one receiver
//! gives no room for it.
//!
//! In: whether the sender waits, once a turn. Out: at each look, since when one receiver has held
//! it back without a pause.

use std::time::Duration;

use base::{Instant, LinkId};

use crate::steering::holds_back;

/// Who holds the sender back, and since when.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    /// When the sender was last seen, and whether it waited then.
    seen: Option<(Instant, bool)>,
    /// When was last looked, and for how long the sender has waited since.
    looked_at: Option<Instant>,
    waited: Duration,
    /// Who held it back at each look since.
    by: Option<(LinkId, Instant)>,
}

impl Pressure {
    /// The sender has something to send and no room for it, or not.
    pub(super) fn observe(&mut self, now: Instant, is_held: bool) {
        if let Some((at, true)) = self.seen {
            self.waited += now.since(at);
        }
        self.seen = Some((now, is_held));
    }

    /// Looks who holds the sender back. `behind` gives each receiver with how far it is behind.
    pub(super) fn look(&mut self, now: Instant, behind: impl Iterator<Item = (u64, LinkId)>) {
        let is_held = self.seen.is_some_and(|(_, is_held)| is_held);
        self.observe(now, is_held);
        let waited = std::mem::take(&mut self.waited);
        let since = self.looked_at.replace(now).unwrap_or(now);
        // For most of the time: a window that is full for moments slows nobody down.
        let slow = (waited * 2 > now.since(since)).then(|| holds_back(behind.collect()));
        self.by = slow.flatten().map(|link| match self.by {
            Some((known, at)) if known == link => (link, at),
            _ => (link, since),
        });
    }

    /// For how long this receiver has held the others back.
    pub(super) fn of(&self, now: Instant, link: LinkId) -> Duration {
        match self.by {
            Some((by, since)) if by == link => now.since(since),
            _ => Duration::ZERO,
        }
    }
}
