//! Searches by halving for the highest rate without loss: decides what to try next, and when the
//! rate is known.
//!
//! ```text
//!   as fast as can be -- no loss --> known: the sender is the limit
//!        | loss
//!        v
//!   just below what arrived --> a little more, twice as much more, ... --> halves of the last step
//! ```
//! On a machine that others use, one slow moment loses packets at any rate. So a rate counts as
//! failed when it failed twice, or once with more than 5 % loss. When a sender misses a rate that
//! is far below one that it reached before, it was interrupted, and the trial is repeated. Rates
//! are those that were really sent, not those that were asked for.
//!
//! Source: RFC 2544 section 26.1, with loss allowed up to a share instead of none.

/// What the next trial sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// As many datagrams as the sender can.
    Flood,
    /// Datagrams each second.
    Rate(u64),
}

/// The results of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Datagrams each second that the sender offered.
    pub offered_per_s: f64,
    /// Datagrams each second that arrived.
    pub received_per_s: f64,
    /// Share of the offered datagrams that did not arrive, 0 to 1.
    pub loss: f64,
}

/// A search under way.
#[derive(Clone, Debug)]
pub struct RateSearch {
    loss_max: f64,
    next: Option<Load>,
    /// The highest rate without loss so far; `high` is the lowest rate with loss.
    low: f64,
    high: f64,
    has_failed_once: bool,
    /// The highest rate that the sender reaches.
    flood: f64,
    /// The share by which the next rate exceeds a rate that passed.
    step: f64,
    trials: u32,
}

impl RateSearch {
    /// Makes a search for the highest rate with a loss of at most `loss_max`, 0 to 1.
    #[must_use]
    pub const fn new(loss_max: f64) -> Self {
        Self {
            loss_max,
            next: Some(Load::Flood),
            low: 0.0,
            high: f64::INFINITY,
            has_failed_once: false,
            flood: 0.0,
            step: STEP,
            trials: 0,
        }
    }

    /// Returns the next trial; `None` when the rate is known, or the search has used up its trials.
    #[must_use]
    pub const fn next(&self) -> Option<Load> {
        self.next
    }

    /// Takes the result of the trial that [`RateSearch::next`] asked for; true when it is the best
    /// so far.
    pub fn take(&mut self, trial: &Trial) -> bool {
        let Some(load) = self.next else {
            return false;
        };
        self.trials += 1;
        if load == Load::Flood {
            self.flood = trial.offered_per_s;
        }
        let passes = trial.loss <= self.loss_max;
        let is_best = passes && trial.offered_per_s >= self.low;
        if passes {
            self.low = self.low.max(trial.offered_per_s);
            self.has_failed_once = false;
        } else if self.has_failed_once || trial.loss > DOUBTFUL || load == Load::Flood {
            self.high = self.high.min(trial.offered_per_s.max(self.low));
            self.has_failed_once = false;
        } else {
            self.has_failed_once = true;
            self.next = (self.trials < TRIALS_MAX).then_some(load);
            return false;
        }
        self.next = self.choose(load, trial, passes);
        is_best
    }

    /// Returns the highest rate that passed, in datagrams each second; 0 when none did.
    #[must_use]
    pub const fn found_per_s(&self) -> f64 {
        self.low
    }

    fn choose(&mut self, load: Load, trial: &Trial, passes: bool) -> Option<Load> {
        let is_short = match load {
            Load::Flood => true,
            Load::Rate(asked) => trial.offered_per_s < asked as f64 * ATTAINED,
        };
        if passes && is_short {
            let was_held_up =
                matches!(load, Load::Rate(asked) if (asked as f64) < self.flood * EASY);
            return (was_held_up && self.trials < TRIALS_MAX).then_some(load);
        }
        if self.trials >= TRIALS_MAX || self.high <= self.low * PRECISION || self.high < 2.0 {
            return None;
        }
        let mut middle = f64::midpoint(self.low, self.high);
        if passes {
            middle = middle.min(self.low * (1.0 + self.step));
            self.step *= 2.0;
        }
        // Under overload, what arrives is usually what the path can carry.
        let hint = trial.received_per_s * HINT;
        let is_useful = !passes && hint > self.low * PRECISION && hint < self.high;
        let rate = if is_useful { hint } else { middle };
        // Rates are whole datagrams a second, so the search ends when two neighbours are known.
        let rate = (rate as u64).max(1);
        (rate > self.low as u64).then_some(Load::Rate(rate))
    }
}

/// A trial with more loss than this fails at once.
const DOUBTFUL: f64 = 0.05;
/// The search ends when two rates differ by no more than this ratio.
const PRECISION: f64 = 1.01;
/// A sender that reaches less than this share of the wanted rate is at its limit.
const ATTAINED: f64 = 0.97;
/// A sender that misses a rate below this share of its best rate was interrupted, so the trial is
/// repeated.
const EASY: f64 = 0.8;
const HINT: f64 = 0.995;
const STEP: f64 = 0.02;
const TRIALS_MAX: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches on a path that carries `carried` datagrams a second, with a sender that can send
    /// `sender`; returns the rate found, and the number of trials.
    fn searched(sender: f64, carried: f64) -> (f64, u32) {
        let mut search = RateSearch::new(0.001);
        while let Some(load) = search.next() {
            let offered = match load {
                Load::Flood => sender,
                Load::Rate(rate) => sender.min(rate as f64),
            };
            let received = offered.min(carried);
            search.take(&Trial {
                offered_per_s: offered,
                received_per_s: received,
                loss: 1.0 - received / offered,
            });
        }
        (search.found_per_s(), search.trials)
    }

    #[test]
    fn a_limit_is_found_within_a_percent_in_few_trials() {
        for (sender, carried) in [
            (1e6, 1e5),
            (1e6, 37.0),
            (1e6, 999_000.0),
            (1e5, 1e6),
            (9e5, 9e5),
        ] {
            let (found, trials) = searched(sender, carried);
            let limit = sender.min(carried);
            assert!(
                found <= limit * 1.0011 && found >= limit * 0.97,
                "{found} of {limit}"
            );
            assert!(trials <= 9, "{trials} trials");
        }
        // When nothing arrives at all, the search ends without a rate.
        assert_eq!(searched(1e6, 0.0).0, 0.0);
    }

    #[test]
    fn a_sender_that_was_held_up_tries_again() {
        let mut search = RateSearch::new(0.001);
        let trial = |offered_per_s: f64, loss: f64| Trial {
            offered_per_s,
            received_per_s: offered_per_s * (1.0 - loss),
            loss,
        };
        search.take(&trial(1_000.0, 0.5));
        let asked = search.next();
        assert!(search.take(&trial(300.0, 0.0)));
        assert_eq!(search.next(), asked);
        // At its limit the sender cannot do more, so the trial is not repeated.
        let mut search = RateSearch::new(0.001);
        search.take(&trial(1_000.0, 0.01));
        assert!(search.take(&trial(900.0, 0.0)));
        assert_eq!(search.next(), None);
    }

    #[test]
    fn one_slow_moment_does_not_decide() {
        let mut search = RateSearch::new(0.001);
        let trial = |offered_per_s: f64, loss: f64| Trial {
            offered_per_s,
            received_per_s: offered_per_s * (1.0 - loss),
            loss,
        };
        assert!(!search.take(&trial(1_000.0, 0.5)));
        let Some(Load::Rate(rate)) = search.next() else {
            panic!("{search:?}");
        };
        assert!(!search.take(&trial(rate as f64, 0.01)));
        assert_eq!(search.next(), Some(Load::Rate(rate)));
        assert!(search.take(&trial(rate as f64, 0.0)));
        assert!(search.found_per_s() > 490.0);
    }
}
