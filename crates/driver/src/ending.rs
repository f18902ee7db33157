//! How a session of messages ends, as state: it goes on with every turn of the loop.
//!
//! ```text
//!   close --> Confirming --all who report have everything--> Announcing --linger over--> Confirmed
//!                 |                                               '-----deadline-------> Hurried
//!                 |--nobody is waited for, and linger over--> Unconfirmed
//!                 '--deadline--> BreakingOff --told often enough--> BrokenOff
//! ```
//!
//! While a receiver that reports lacks something, the source goes on to answer NAKs until the
//! deadline, however short its linger is.

use std::time::Duration;

use base::{Instant, earliest};
use delivery::Registry;
use pgm::Source;

/// How the end of a session of messages came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every reporting receiver was given everything or is gone, and the end was announced for as
    /// long as it has to be.
    Confirmed,
    /// As confirmed, except that the deadline cut the announcement short.
    Hurried,
    /// Everything was sent and the end announced, but receivers that are expected never came.
    Unconfirmed,
    /// The deadline came first: what was not confirmed is broken off, and receivers were told.
    BrokenOff,
}

/// How far the end of a session is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// Not begun.
    Open,
    /// Everything is to be sent, and given to those who report.
    Confirming {
        deadline: Instant,
        /// The position after the last packet.
        end: u64,
        /// Somebody reported when the end began. Receivers say good-bye when they have seen the
        /// end: they count as those who confirm.
        has_reporters: bool,
    },
    /// Everything is confirmed; the end is announced to those who did not hear of it.
    Announcing {
        deadline: Instant,
    },
    /// Receivers are told that the rest does not come.
    BreakingOff {
        /// What the source has counted when it is enough.
        spms: u64,
        until: Instant,
    },
    Over(Ended),
}

impl Ending {
    /// Begins the end, or brings the deadline of one that has begun nearer.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        by: Instant,
        source: &mut Source,
        registry: &Registry,
    ) {
        match self {
            Self::Open => {
                *self = Self::Confirming {
                    deadline: by,
                    end: source.lead(),
                    has_reporters: registry.receiver_count() > 0,
                };
                source.close(now);
            }
            Self::Confirming { deadline, .. } | Self::Announcing { deadline } => {
                *deadline = by.min(*deadline);
            }
            Self::BreakingOff { .. } | Self::Over(_) => {}
        }
    }

    /// Takes every step that can be taken now.
    pub(crate) fn advance(&mut self, now: Instant, source: &mut Source, registry: &mut Registry) {
        if let Self::Confirming {
            deadline,
            end,
            has_reporters,
        } = *self
        {
            let linger = source.config().linger();
            if is_confirmed(end, source, registry) {
                registry.close(now);
                // With everything in the hands of those who report, nobody is left to ask for it.
                let left = if has_reporters {
                    CONFIRMED_LINGER
                } else {
                    linger
                };
                source.shorten_linger(now, left);
                *self = Self::Announcing { deadline };
            } else if source.is_over() {
                *self = Self::Over(Ended::Unconfirmed);
            } else if now >= deadline {
                source.abort(now, 0, false);
                *self = Self::BreakingOff {
                    spms: source.counters().spms + BREAK_OFF_SPMS,
                    until: now + BREAK_OFF_TIME_MAX,
                };
            } else if registry.receiver_count() > 0 {
                source.extend_linger(deadline);
            } else {
                source.shorten_linger(now, linger);
            }
        }
        match *self {
            Self::Announcing { .. } if source.is_over() => *self = Self::Over(Ended::Confirmed),
            Self::Announcing { deadline } if now >= deadline => {
                *self = Self::Over(Ended::Hurried);
            }
            Self::BreakingOff { spms, until } if source.counters().spms >= spms || now >= until => {
                *self = Self::Over(Ended::BrokenOff);
            }
            _ => {}
        }
    }

    /// When [`Ending::advance`] has something to do.
    pub(crate) fn due(&self, source: &Source, registry: &Registry) -> Option<Instant> {
        let (can_go_on, deadline) = match *self {
            Self::Open | Self::Over(_) => return None,
            Self::Confirming { deadline, end, .. } => {
                let can_go_on = source.is_over() || is_confirmed(end, source, registry);
                (can_go_on, deadline)
            }
            Self::Announcing { deadline } => (source.is_over(), deadline),
            Self::BreakingOff { spms, until } => (source.counters().spms >= spms, until),
        };
        earliest(can_go_on.then_some(Instant::ZERO), Some(deadline))
    }

    pub(crate) const fn is_confirmed(&self) -> bool {
        matches!(
            self,
            Self::Announcing { .. } | Self::Over(Ended::Confirmed | Ended::Hurried)
        )
    }

    pub(crate) const fn ended(&self) -> Option<Ended> {
        match self {
            Self::Over(ended) => Some(*ended),
            _ => None,
        }
    }
}

/// True when everything was sent and nobody who reports lacks any of it.
fn is_confirmed(end: u64, source: &Source, registry: &Registry) -> bool {
    #[cfg(feature = "planted-bugs")]
    if base::planted::is_planted(base::planted::Bug::ConfirmedTooEarly) {
        return source.is_drained();
    }
    source.is_drained() && registry.has_confirmed(end)
}

/// How long the end is still announced when everyone who reports has confirmed everything.
const CONFIRMED_LINGER: Duration = Duration::from_millis(30);
/// How often receivers are told that a session was broken off: as often as at a good end.
const BREAK_OFF_SPMS: u64 = 3;
/// How long that may take under a rate limit.
const BREAK_OFF_TIME_MAX: Duration = Duration::from_secs(1);
