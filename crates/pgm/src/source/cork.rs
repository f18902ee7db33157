//! The short delay in which new data waits, so that more data can leave with it. A stream of small
//! messages then does not cost a system call for each message.
//!
//! The first message after a pause leaves at once, so an application that seldom sends never waits.
//! A span begins when this message has been handed over. Messages offered during the span wait, and
//! leave together: when the span is over, or as soon as half of the longest run or 32 packets wait.
//! If the span began before the hand-over, and the hand-over took longer than the span, every
//! message would leave alone.
//!
//! Unless the configuration sets the span, it is eight times as long as a hand-over took lately,
//! but at most `SPAN_MAX`. Below that limit, an application that sends all the time spends about an
//! eighth of its time in send calls.
//!
//! ```text
//!   offered   A   B C D             E
//!   sent      A         BCD         E
//!             |- span --|- span --|
//! ```
//!
//! Data before the position `released` may leave, in any number of runs. The next span begins when
//! all of this data has left.

use std::time::Duration;

use base::{Instant, RunLimit};

use crate::config::Timer;

/// A rule for when new data leaves: at once, or after a short wait for more data to leave with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cork {
    set: Timer,
    /// The moving average of the time taken to hand over a run.
    cost: Duration,
    /// The end of the last hand-over of a run.
    handed_over: Instant,
    due: Instant,
    /// Data before this position may leave at once.
    released: u64,
}

impl Cork {
    /// Makes a cork. Its span is `set`, or follows the duration of send calls if `set` is
    /// [`Timer::Auto`].
    pub(super) const fn new(set: Timer) -> Self {
        Self {
            set,
            cost: Duration::ZERO,
            handed_over: Instant::ZERO,
            due: Instant::ZERO,
            released: 0,
        }
    }

    /// Notes a hand-over of a run: it ended at `end` and took the time `took`. A longer time than
    /// `SPAN_MAX` counts as `SPAN_MAX`.
    pub(super) fn run_took(&mut self, end: Instant, took: Duration) {
        self.cost = (self.cost * (COST_PART - 1) + took.min(SPAN_MAX)) / COST_PART;
        self.handed_over = end;
    }

    /// Notes that new data has left up to the position `unsent`, in a turn at `now`; later data may
    /// have to wait.
    pub(super) fn left(&mut self, now: Instant, unsent: u64) {
        if unsent >= self.released {
            let span = self.set.or((self.cost * SPAN_COSTS).min(SPAN_MAX));
            self.due = now.max(self.handed_over) + span;
        }
    }

    /// Lets all data before the position `lead` leave at once.
    pub(super) const fn release(&mut self, lead: u64) {
        self.released = lead;
    }

    /// Returns the time when the packets from position `unsent` to before `lead` may leave; they
    /// have `bytes` bytes in all.
    #[inline]
    pub(super) const fn due(&self, unsent: u64, lead: u64, bytes: usize) -> Instant {
        let is_enough = lead - unsent >= PACKETS_ENOUGH || bytes >= BYTES_ENOUGH;
        if is_enough || unsent < self.released {
            Instant::ZERO
        } else {
            self.due
        }
    }
}

/// The span of the cork lasts this many times as long as the hand-over of a run, so send calls take
/// about an eighth of the time.
const SPAN_COSTS: u32 = 8;
/// The longest span of the cork. Measured on two processors that forward 50,000 messages a second
/// to three receivers: with spans of 0, 50 us and 100 us, the processors are idle for 20 %, 35 %
/// and 40 % of the time. Against a span of 0, 50 us and 100 us halve the number of messages that
/// take more than 500 us, and lengthen the median delay by 30 us and by 80 us.
const SPAN_MAX: Duration = Duration::from_micros(50);
/// About how many of the last runs the moving average `Cork::cost` covers.
const COST_PART: u32 = 8;
/// When this many bytes (half of the longest run) or packets wait, they leave at once: waiting for
/// more would gain little.
const BYTES_ENOUGH: usize = RunLimit::BYTES_MAX / 2;
const PACKETS_ENOUGH: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    const START: Instant = Instant::from_nanos(1_000_000_000);

    #[test]
    fn the_span_follows_what_runs_take_up_to_its_bound() {
        let mut cork = Cork::new(Timer::Auto);
        cork.left(START, 7);
        assert_eq!(cork.due(7, 8, 100), START, "nothing is known yet");
        for _ in 0..100 {
            cork.run_took(START, us(5));
        }
        cork.left(START, 8);
        let span = cork.due(8, 9, 100).since(START);
        assert!((us(39)..=us(40)).contains(&span), "{span:?}");
        cork.run_took(START, Duration::from_secs(1));
        cork.left(START, 9);
        assert_eq!(cork.due(9, 10, 100), START + us(50));
    }

    #[test]
    fn a_call_longer_than_the_span_leaves_the_next_message_its_span() {
        let mut cork = Cork::new(Timer::Auto);
        for run in 1..100 {
            let begun = START + us(run * 90);
            cork.run_took(begun + us(80), us(80));
            cork.left(begun, run);
            let due = cork.due(run, run + 1, 100);
            assert!(due > begun + us(80 + 5), "{:?}", due.since(begun));
        }
    }

    #[test]
    fn half_of_a_run_does_not_wait() {
        let mut cork = Cork::new(Timer::Fixed(us(500)));
        cork.left(START, 7);
        assert_eq!(cork.due(7, 38, BYTES_ENOUGH - 1), START + us(500));
        assert!(cork.due(7, 39, 1000) <= START);
        assert!(cork.due(7, 9, BYTES_ENOUGH) <= START);
    }

    #[test]
    fn what_is_released_leaves_in_several_runs_and_then_a_span_begins() {
        let mut cork = Cork::new(Timer::Fixed(us(500)));
        cork.left(START, 7);
        cork.release(12);
        cork.left(START, 9);
        assert!(cork.due(9, 13, 100) <= START);
        cork.left(START, 12);
        assert_eq!(cork.due(12, 13, 100), START + us(500));
    }
}
