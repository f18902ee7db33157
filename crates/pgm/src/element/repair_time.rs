//! How long the repairs of a session take, and for how long confirmed NAKs are eliminated.
//!
//! The element measures from the confirmation of its NAK to the repair. Only a packet or group
//! whose NAK it passed on once counts: otherwise the repair may answer either NAK.

use std::time::Duration;

use base::Instant;

use super::ElementTimers;

/// The average time of a session's repairs; `None` before the first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RepairTime(Option<Duration>);

impl RepairTime {
    /// Adds the time that one repair took, if it is known.
    pub(super) fn add(&mut self, time: Option<Duration>) {
        if let Some(time) = time {
            self.0 = Some(self.0.map_or(time, |known| (known * 7 + time) / 8));
        }
    }

    /// Returns the time after a confirmation in which no further NAK for the packet or group is
    /// passed on (NAK_ELIM_IVL).
    pub(super) fn elimination(self, timers: &ElementTimers) -> Duration {
        let long = (self.0.unwrap_or_default() * 2).min(timers.rdata_wait / 4);
        timers.elimination.max(long)
    }
}

/// The measurement of one repair.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Measure {
    /// The element has not asked.
    #[default]
    Idle,
    /// The element has passed on one NAK, which is not confirmed.
    Asked,
    Confirmed(Instant),
    /// The time cannot be measured: the element has asked twice, or another host has.
    Void,
}

impl Measure {
    /// Notes that a NAK is passed on.
    pub(super) const fn ask(&mut self) {
        *self = match self {
            Self::Idle => Self::Asked,
            _ => Self::Void,
        };
    }

    /// Notes that an NCF has come.
    pub(super) const fn confirm(&mut self, now: Instant) {
        *self = match *self {
            Self::Idle => Self::Void,
            Self::Asked => Self::Confirmed(now),
            other => other,
        };
    }

    /// Returns how long the repair took that has come at `now`, and measures no further repair.
    pub(super) fn end(&mut self, now: Instant) -> Option<Duration> {
        match std::mem::replace(self, Self::Void) {
            Self::Confirmed(from) => Some(now.since(from)),
            _ => None,
        }
    }
}
