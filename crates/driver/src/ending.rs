//! How a session of messages ends, as state: every turn of the loop advances it.
//!
//! ```text
//!   close --> Confirming --all who report have everything--> Announcing --linger over--> Confirmed
//!                 |                                               '-----deadline-------> Hurried
//!                 |--deadline, and only those who are expected and gone lack it--> Unconfirmed
//!                 '--deadline--> BreakingOff --told often enough--> BrokenOff
//!   break off --> Confirming --all who report have everything, or deadline--> BreakingOff
//! ```
//! A session is broken off when its owner had more to send and cannot. The source delivers what it
//! has taken, then tells receivers that the rest does not come.
//!
//! While a reporting receiver lacks something, or an expected one is still to come, the source
//! answers NAKs until the deadline, however short its linger is. It lingers only briefly when it
//! takes reports and either every receiver that it heard reports, or it heard none. One NAK of a
//! host without a reporting receiver is enough for the full linger: libpgm, which does not report,
//! asks for what it still lacks every two seconds only.

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
    /// Everything was sent and the end announced, but an expected receiver did not join, or did not
    /// come back for what it lacked, before the deadline.
    Unconfirmed,
    /// The deadline came before all was confirmed: the source broke the session off and told
    /// receivers.
    BrokenOff,
}

/// How far the session is on its way to the end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// Not begun.
    Open,
    /// The source sends everything, and reporting receivers have yet to be given all of it.
    Confirming {
        deadline: Instant,
        /// One past the position of the last packet.
        end: u64,
        /// The owner had more to send: the session is to be broken off.
        is_cut: bool,
        /// Receivers reported when the end began. They say good-bye once they have seen the end,
        /// and still count as receivers that confirm.
        has_reporters: bool,
    },
    /// Everything is confirmed; the source announces the end to receivers that have not heard of
    /// it.
    Announcing {
        deadline: Instant,
        /// The source lingers until then if a host that does not report asks for a repair.
        heard_until: Instant,
    },
    /// The source tells receivers that the rest does not come.
    BreakingOff {
        /// The source has told receivers often enough when it has sent this many SPMs in all.
        spms: u64,
        until: Instant,
    },
    Over(Ended),
}

impl Ending {
    /// Begins the end; when it has begun already, brings its deadline nearer. With `is_cut`, the
    /// source delivers what it has taken, then breaks the session off.
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
                *self = Self::Confirming {
                    deadline: by,
                    end: source.lead(),
                    is_cut,
                    has_reporters: audience.receiver_count() > 0,
                };
                if is_cut {
                    source.uncork();
                } else {
                    source.close(now);
                }
            }
            Self::Confirming { deadline, .. } | Self::Announcing { deadline, .. } => {
                *deadline = by.min(*deadline);
            }
            Self::BreakingOff { .. } | Self::Over(_) => {}
        }
    }

    /// Takes every step that can be taken now.
    pub(crate) fn advance(&mut self, now: Instant, source: &mut Source, audience: &mut Audience) {
        if let Self::Confirming {
            deadline,
            end,
            is_cut,
            has_reporters,
        } = *self
        {
            let linger = source.config().linger();
            let has_reporters = has_reporters || audience.receiver_count() > 0;
            let is_awaited = audience.receiver_count() > 0 || audience.awaits(end);
            let is_late = now >= deadline;
            let is_confirmed = is_confirmed(end, source, audience);
            if is_cut && (is_confirmed || is_late) {
                *self = Self::break_off(now, is_confirmed, source);
            } else if is_confirmed {
                audience.close(now);
                // Once all reporting receivers have everything, only hosts that do not report can
                // still ask.
                let left = if has_reporters {
                    CONFIRMED_LINGER
                } else if source.takes_reports() {
                    linger.min(UNHEARD_LINGER)
                } else {
                    linger
                };
                source.shorten_linger(now, left);
                *self = Self::Announcing {
                    deadline,
                    heard_until: now + linger,
                };
            } else if source.is_over()
                || (is_late && source.is_drained() && audience.has_given(end))
            {
                audience.close(now);
                *self = Self::Over(Ended::Unconfirmed);
            } else if is_late {
                *self = Self::break_off(now, false, source);
            } else if is_awaited {
                source.extend_linger(deadline);
            } else {
                source.shorten_linger(now, linger);
            }
        }
        if let Self::Announcing { heard_until, .. } = *self
            && audience.has_strangers()
        {
            source.extend_linger(heard_until);
        }
        match *self {
            Self::Announcing { .. } if source.is_over() => *self = Self::Over(Ended::Confirmed),
            Self::Announcing { deadline, .. } if now >= deadline => {
                *self = Self::Over(Ended::Hurried);
            }
            Self::BreakingOff { spms, until } if source.counters().spms >= spms || now >= until => {
                *self = Self::Over(Ended::BrokenOff);
            }
            _ => {}
        }
    }

    fn break_off(now: Instant, repairs: bool, source: &mut Source) -> Self {
        source.abort(now, 0, repairs);
        Self::BreakingOff {
            spms: source.counters().spms + u64::from(BREAK_OFF_SPMS),
            until: now + BREAK_OFF_TIME_MAX,
        }
    }

    /// Says when [`Ending::advance`] has something to do.
    pub(crate) fn due(&self, source: &Source, audience: &Audience) -> Option<Instant> {
        let (can_go_on, deadline) = match *self {
            Self::Open | Self::Over(_) => return None,
            Self::Confirming { deadline, end, .. } => {
                let can_go_on = source.is_over() || is_confirmed(end, source, audience);
                (can_go_on, deadline)
            }
            Self::Announcing { deadline, .. } => (source.is_over(), deadline),
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

/// Returns true when everything was sent and no reporting receiver lacks any of it.
fn is_confirmed(end: u64, source: &Source, audience: &Audience) -> bool {
    #[cfg(feature = "planted-bugs")]
    if base::planted::is_planted(base::planted::Bug::ConfirmedTooEarly) {
        return source.is_drained();
    }
    source.is_drained() && audience.has_confirmed(end)
}
