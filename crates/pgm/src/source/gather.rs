//! How long new data waits for company, so that a stream of small messages does not cost a call
//! of the network for each.
//!
//! The first message after a pause leaves at once. What is offered within the span after it leaves
//! together when the span is over, or as soon as half of a run waits. Unless it is set, the span is
//! eight times what a run took to hand over lately: whoever sends a message now and then never
//! waits, and whoever sends many spends an eighth of the time on calls instead of all of it.
//!
//! ```text
//!   offered   A   B C D             E
//!   sent      A         BCD         E
//!             |- span --|- span --|
//! ```

use std::time::Duration;

use base::{Instant, RunLimit};

use crate::config::Timer;

/// When new data may leave that could still get company.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gather {
    set: Timer,
    /// What a run took lately.
    cost: Duration,
    due: Instant,
}

impl Gather {
    /// A span that is set, or follows what runs take.
    pub(super) const fn new(set: Timer) -> Self {
        Self {
            set,
            cost: Duration::ZERO,
            due: Instant::ZERO,
        }
    }

    /// A run took `took` to hand over. One that was interrupted for long counts as one that was
    /// not.
    pub(super) fn run_took(&mut self, took: Duration) {
        self.cost = (self.cost * (COST_PART - 1) + took.min(SPAN_MAX)) / COST_PART;
    }

    /// New data has left: what comes next may wait.
    pub(super) fn begin(&mut self, now: Instant) {
        self.due = now + self.set.or((self.cost * SPAN_COSTS).min(SPAN_MAX));
    }

    /// What waits now shall not wait any longer.
    pub(super) const fn end(&mut self) {
        self.due = Instant::ZERO;
    }

    /// When so many packets that wait, of so many bytes, may leave.
    #[inline]
    pub(super) const fn due(&self, packets: u64, bytes: usize) -> Instant {
        if packets >= PACKETS_ENOUGH || bytes >= BYTES_ENOUGH {
            return Instant::ZERO;
        }
        self.due
    }
}

/// An eighth of the time goes into calls.
const SPAN_COSTS: u32 = 8;
/// A tenth of what counts as late where delays matter. Two processors that forward 50,000/s to
/// three receivers are idle for 20 % of the time with 0, for 35 % with 50 us and for 40 % with
/// 100 us. Messages are late half as often with either, which cost the median 30 and 80 us.
const SPAN_MAX: Duration = Duration::from_micros(50);
/// The cost is a running mean over about so many runs.
const COST_PART: u32 = 8;
/// Half of the longest run: more would gain little.
const BYTES_ENOUGH: usize = RunLimit::BYTES_MAX / 2;
const PACKETS_ENOUGH: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    #[test]
    fn the_span_follows_what_runs_take_up_to_its_bound() {
        let mut gather = Gather::new(Timer::Auto);
        let now = Instant::from_nanos(1_000_000_000);
        gather.begin(now);
        assert_eq!(gather.due(1, 100), now, "nothing is known yet");
        for _ in 0..100 {
            gather.run_took(us(5));
        }
        gather.begin(now);
        let span = gather.due(1, 100).since(now);
        assert!((us(39)..=us(40)).contains(&span), "{span:?}");
        gather.run_took(Duration::from_secs(1));
        gather.begin(now);
        assert_eq!(gather.due(1, 100), now + us(50));
        gather.end();
        assert!(gather.due(1, 100) <= now);
    }

    #[test]
    fn half_of_a_run_does_not_wait() {
        let mut gather = Gather::new(Timer::Fixed(us(500)));
        let now = Instant::from_nanos(1_000_000_000);
        gather.begin(now);
        assert_eq!(gather.due(31, BYTES_ENOUGH - 1), now + us(500));
        assert!(gather.due(32, 1000) <= now);
        assert!(gather.due(2, BYTES_ENOUGH) <= now);
    }
}
