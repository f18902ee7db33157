//! The times to ask a new sender for an SPM: without an SPM, a receiver must not send a NAK.
//!
//! The module does not make packets. In: requests of other receivers, the SPM, time. Out: when to
//! ask.
//!
//! ```text
//!            due: ask                        SPM, in any state
//! BackOff ------------> Waiting --.               |
//!    |  heard a request    ^      | due: draw     v
//!    '---------------------'      '--> BackOff   Quiet
//! ```
//!
//! After the configured number of retries, each further try doubles the wait, up to 32 times the
//! first wait. A receiver never stops asking, since without an SPM it would lose data. But a
//! receiver that gets no answer asks less often.
//!
//! **Spec**: RFC 3208 section 13.5. Deviation: the RFC does not make the wait longer.

use std::time::Duration;

use base::{Instant, Rng};

use super::setup::Limits;

/// The state of one session's SPM requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpmRequest {
    state: State,
    due: Instant,
    tries: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Quiet,
    BackOff,
    Waiting,
}

impl SpmRequest {
    /// The state in which no request is wanted.
    pub(super) const QUIET: Self = Self {
        state: State::Quiet,
        due: Instant::NEVER,
        tries: 0,
    };

    /// Makes the state of a session that has had no SPM. The first request follows a random wait.
    pub(super) fn start(now: Instant, limits: &Limits, rng: &mut Rng) -> Self {
        Self {
            state: State::BackOff,
            due: now + rng.duration_up_to(limits.spmr_delay),
            tries: 0,
        }
    }

    /// Notes that another receiver asked: this receiver waits for the same answer.
    pub(super) fn heard(&mut self, now: Instant, limits: &Limits) {
        if self.state == State::BackOff {
            self.state = State::Waiting;
            self.due = now + limits.spmr_interval;
        }
    }

    /// Takes the next step when its time has come. Returns true when a request must be sent.
    pub(super) fn expire(&mut self, now: Instant, limits: &Limits, rng: &mut Rng) -> bool {
        if now < self.due {
            return false;
        }
        match self.state {
            State::Quiet => false,
            State::Waiting => {
                self.state = State::BackOff;
                self.due = now + rng.duration_up_to(limits.spmr_delay);
                false
            }
            State::BackOff => {
                self.state = State::Waiting;
                self.due = now + self.wait(limits);
                self.tries = self.tries.saturating_add(1);
                true
            }
        }
    }

    /// Returns the time from which [`SpmRequest::expire`] has something to do.
    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    fn wait(&self, limits: &Limits) -> Duration {
        let beyond = self
            .tries
            .saturating_sub(limits.spmr_retries)
            .min(DOUBLINGS_MAX);
        limits.spmr_interval * (1 << beyond)
    }
}

/// The most times that the wait between two requests for an SPM doubles.
const DOUBLINGS_MAX: u32 = 5;
