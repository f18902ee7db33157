//! The state machine by which a session of messages ends; every turn of the loop advances it.
//!
//! ```text
//!   close --> Confirming --all who report have everything--> Announcing --linger over--> Confirmed
//!                 |                                               '-----deadline-------> Hurried
//!                 |--deadline, and only absent expected receivers lack anything--> Unconfirmed
//!                 '--deadline--> BreakingOff --told often enough--> BrokenOff
//!   break off --> Confirming --all who report have everything, or deadline--> BreakingOff
//! ```
//! The source breaks a session off at the deadline, or when the owner cannot send the rest and so
//! asks the source to. When the owner asks, the source first delivers what it has taken. Then the
//! source tells receivers that the session is broken off.
//!
//! While a reporting receiver lacks something, or an expected receiver is still to come, the source
//! answers NAKs until the deadline, even if its linger is shorter. Once all reporting receivers
//! have everything, a source that takes reports lingers only briefly. But if a host without a
//! reporting receiver has sent a NAK, the source stays for the full linger: receivers of OpenPGM do
//! not report, and ask only every two seconds for what they still lack.

use base::{Instant, earliest};
use delivery::Audience;
use pgm::Source;

use crate::parameters::{BREAK_OFF_SPMS, BREAK_OFF_TIME_MAX, CONFIRMED_LINGER, UNHEARD_LINGER};

/// How a session of messages ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every reporting receiver was given everything or is gone, and the source announced the end
    /// until its linger was over.
    Confirmed,
    /// As `Confirmed`, except that the deadline cut the announcement short.
    Hurried,
    /// Everything was sent and the end announced. But before the deadline, an expected receiver did
    /// not join, or did not come back for what it lacked.
    Unconfirmed,
    /// The source broke the session off and told receivers. Either the owner asked for it, or at
    /// the deadline some data was unsent or a connected receiver lacked data.
    BrokenOff,
}

/// How far the session is on its way to the end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// The end has not begun.
    Open,
    Confirming(Confirming),
    Announcing(Announcing),
    BreakingOff(BreakingOff),
    Over(Ended),
}

impl Ending {
    /// Begins the session's end. If it has begun already, only a nearer deadline has an effect.
    /// With `is_cut`, the source delivers what it has taken, then breaks the session off.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        by: Instant,
        is_cut: bool,
        source: &mut Source,
        audience: &Audience,
    ) {
        match self {
            Self::Open => {
                *self = Self::Confirming(Confirming {
                    deadline: by,
                    end: source.lead(),
                    is_cut,
                    has_reporters: audience.receiver_count() > 0,
                });
                if is_cut {
                    source.uncork();
                } else {
                    source.close(now);
                }
            }
            Self::Confirming(Confirming { deadline, .. })
            | Self::Announcing(Announcing { deadline, .. }) => *deadline = by.min(*deadline),
            Self::BreakingOff(_) | Self::Over(_) => {}
        }
    }

    /// Takes every step that can be taken now.
    pub(crate) fn advance(&mut self, now: Instant, source: &mut Source, audience: &mut Audience) {
        // At the deadline, `Confirming` may become `Announcing`, which then ends at once. So one
        // call takes both steps.
        if let Self::Confirming(state) = *self {
            *self = state.advance(now, source, audience);
        }
        *self = match *self {
            Self::Announcing(state) => state.advance(now, source, audience),
            Self::BreakingOff(state) => state.advance(now, source),
            Self::Open | Self::Confirming(_) | Self::Over(_) => *self,
        };
    }

    /// Says when [`Ending::advance`] has something to do.
    pub(crate) fn due(&self, source: &Source, audience: &Audience) -> Option<Instant> {
        let (can_go_on, deadline) = match *self {
            Self::Open | Self::Over(_) => return None,
            Self::Confirming(Confirming { deadline, end, .. }) => {
                let can_go_on = source.is_over() || is_confirmed(end, source, audience);
                (can_go_on, deadline)
            }
            Self::Announcing(Announcing { deadline, .. }) => (source.is_over(), deadline),
            Self::BreakingOff(state) => (state.has_told(source), state.until),
        };
        earliest(can_go_on.then_some(Instant::ZERO), Some(deadline))
    }

    pub(crate) const fn is_confirmed(&self) -> bool {
        matches!(
            self,
            Self::Announcing(_) | Self::Over(Ended::Confirmed | Ended::Hurried)
        )
    }

    pub(crate) const fn ended(&self) -> Option<Ended> {
        match self {
            Self::Over(ended) => Some(*ended),
            _ => None,
        }
    }
}

/// The source sends everything, and reporting receivers have yet to be given all of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirming {
    deadline: Instant,
    /// One past the position of the last packet.
    end: u64,
    /// True when the owner had more to send, and so the session is to be broken off.
    is_cut: bool,
    /// True when at least one receiver was reporting at the moment the end began. Receivers leave
    /// once they have seen the end, so their number may be 0 later.
    has_reporters: bool,
}

impl Confirming {
    fn advance(self, now: Instant, source: &mut Source, audience: &mut Audience) -> Ending {
        let is_late = now >= self.deadline;
        let is_confirmed = is_confirmed(self.end, source, audience);
        if self.is_cut && (is_confirmed || is_late) {
            return BreakingOff::begin(now, is_confirmed, source);
        }
        if is_confirmed {
            return self.announce(now, source, audience);
        }
        let is_given = source.is_drained() && audience.has_given(self.end);
        if source.is_over() || is_late && is_given {
            audience.close(now);
            return Ending::Over(Ended::Unconfirmed);
        }
        if is_late {
            return BreakingOff::begin(now, false, source);
        }
        if audience.receiver_count() > 0 || audience.awaits(self.end) {
            source.extend_linger(self.deadline);
        } else {
            source.shorten_linger(now, source.config().linger());
        }
        Ending::Confirming(self)
    }

    fn announce(self, now: Instant, source: &mut Source, audience: &mut Audience) -> Ending {
        let linger = source.config().linger();
        let has_reporters = self.has_reporters || audience.receiver_count() > 0;
        audience.close(now);
        // Once all reporting receivers have everything, only hosts that do not report can still ask
        // for repairs.
        let left = if has_reporters {
            CONFIRMED_LINGER
        } else if source.takes_reports() {
            linger.min(UNHEARD_LINGER)
        } else {
            linger
        };
        source.shorten_linger(now, left);
        Ending::Announcing(Announcing {
            deadline: self.deadline,
            heard_until: now + linger,
        })
    }
}

/// All reporting receivers have everything; the source announces the session's end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announcing {
    deadline: Instant,
    /// If a host that does not report has asked for a repair, the source lingers until this time.
    heard_until: Instant,
}

impl Announcing {
    fn advance(self, now: Instant, source: &mut Source, audience: &Audience) -> Ending {
        if audience.has_strangers() {
            source.extend_linger(self.heard_until);
        }
        match source.is_over() {
            true => Ending::Over(Ended::Confirmed),
            false if now >= self.deadline => Ending::Over(Ended::Hurried),
            false => Ending::Announcing(self),
        }
    }
}

/// The source tells receivers that the session is broken off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BreakingOff {
    /// The source has told receivers often enough when it has sent this many SPMs in all.
    spms: u64,
    until: Instant,
}

impl BreakingOff {
    fn begin(now: Instant, repairs: bool, source: &mut Source) -> Ending {
        source.abort(now, 0, repairs);
        Ending::BreakingOff(Self {
            spms: source.counters().spms + u64::from(BREAK_OFF_SPMS),
            until: now + BREAK_OFF_TIME_MAX,
        })
    }

    fn advance(self, now: Instant, source: &Source) -> Ending {
        if self.has_told(source) || now >= self.until {
            Ending::Over(Ended::BrokenOff)
        } else {
            Ending::BreakingOff(self)
        }
    }

    fn has_told(&self, source: &Source) -> bool {
        source.counters().spms >= self.spms
    }
}

/// Returns true when everything was sent, no reporting receiver lacks any of it, and no expected
/// receiver is awaited.
fn is_confirmed(end: u64, source: &Source, audience: &Audience) -> bool {
    #[cfg(feature = "planted-bugs")]
    if base::planted::is_planted(base::planted::Bug::ConfirmedTooEarly) {
        return source.is_drained();
    }
    source.is_drained() && audience.has_confirmed(end)
}
