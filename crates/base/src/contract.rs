//! A check, in debug builds, that the owner of a sans-IO type keeps the contract of its methods.

use crate::Instant;

/// A check that panics when the owner misuses a sans-IO type, and says how. In release builds it is
/// empty and does nothing.
#[derive(Debug, Default)]
pub struct Contract {
    #[cfg(debug_assertions)]
    now: Option<Instant>,
}

impl Contract {
    /// Notes the time that the owner gives, which must not go back.
    ///
    /// # Panics
    /// In debug builds, when the owner gave a later time before.
    #[inline]
    #[track_caller]
    #[cfg_attr(
        not(debug_assertions),
        expect(
            clippy::unused_self,
            clippy::needless_pass_by_ref_mut,
            reason = "nothing is watched"
        )
    )]
    pub fn tell_time(&mut self, now: Instant) {
        #[cfg(debug_assertions)]
        {
            let before = self.now.replace(now);
            assert!(
                before.is_none_or(|before| before <= now),
                "time goes back from {before:?} to {now:?}: `now` must never decrease"
            );
        }
        #[cfg(not(debug_assertions))]
        let _unwatched = now;
    }

    /// Notes that the owner asks for the next run. It must have answered for the last one.
    ///
    /// # Panics
    /// In debug builds, when the owner has not answered for the last run.
    #[inline]
    #[track_caller]
    pub fn poll_run(is_answered: bool) {
        debug_assert!(
            is_answered,
            "poll_run without run_done: each run is answered for before the next is asked for"
        );
    }

    /// Notes that the owner answers for a run, which must have been given out.
    ///
    /// # Panics
    /// In debug builds, when no run was given out.
    #[inline]
    #[track_caller]
    pub fn run_done(was_given: bool) {
        debug_assert!(
            was_given,
            "run_done without poll_run: only a run that was given out is answered for"
        );
    }
}
