//! What a count of lost frames proves: the share, the bounds of the share, and "very stable".

use std::{fmt, time::Duration};

use super::binomial;

/// How many frames were expected, and how many of them were not delivered whole and in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCount {
    /// Frames that were due, the lost ones among them.
    pub expected: u64,
    /// Frames that were lost, for whatever cause. A number above `expected` counts as `expected`.
    pub lost: u64,
}

impl LossCount {
    /// Returns the share that was lost, from 0 to 1; 0 while nothing was expected.
    #[must_use]
    pub fn share(self) -> f64 {
        if self.expected == 0 {
            return 0.0;
        }
        self.known_lost() as f64 / self.expected as f64
    }

    /// Returns the one-sided 95 % upper bound of the share that this path loses (Clopper and
    /// Pearson): a path that loses more would show a count as low as this one in at most 5 % of
    /// runs. Without a loss it is `1 - 0.05^(1/n)`, about `3/n`. 1 while nothing was expected.
    ///
    /// It assumes that frames are lost independently of each other. Losses that come in bursts
    /// prove less than their number suggests.
    ///
    /// **Cost**: no allocation. A logarithm for each lost or for each whole frame, whichever are
    /// fewer, 10,000 at most. Up to 64 halvings, each of which sums about as many terms as the root
    /// of the losses.
    #[must_use]
    pub fn upper_95(self) -> f64 {
        upper(self.known_lost(), self.expected)
    }

    /// Returns the one-sided 95 % lower bound: a path that loses less would show a count as high as
    /// this one in at most 5 % of runs.
    #[must_use]
    pub fn lower_95(self) -> f64 {
        1.0 - upper(self.expected - self.known_lost(), self.expected)
    }

    /// Returns how many frames must be expected in all, with this number of losses, to prove that
    /// the share lost is below `share`; `None` when `share` is 0 or less, which no number proves,
    /// or so small that the number does not fit the type.
    #[must_use]
    pub fn expected_to_prove(self, share: f64) -> Option<u64> {
        if share <= 0.0 {
            return None;
        }
        let lost = self.known_lost();
        let is_enough = |expected: u64| upper(lost, expected) < share;
        let mut enough = lost.max(1);
        while !is_enough(enough) {
            enough = enough.checked_mul(2)?;
        }
        let mut too_few = enough / 2;
        while enough - too_few > 1 {
            let middle = too_few + (enough - too_few) / 2;
            if is_enough(middle) {
                enough = middle;
            } else {
                too_few = middle;
            }
        }
        Some(enough)
    }

    fn known_lost(self) -> u64 {
        self.lost.min(self.expected)
    }
}

impl fmt::Display for LossCount {
    /// `3 of 12000 frames lost (0.025 %; at most 0.065 % at 95 %)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { expected, lost } = self;
        let [share, upper] = [self.share(), self.upper_95()].map(|share| share * 100.0);
        write!(
            f,
            "{lost} of {expected} frames lost ({share:.3} %; at most {upper:.3} % at 95 %)"
        )
    }
}

/// Whether a run shows that its path is very stable, and if not, what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// The run lasted [`VERY_STABLE_TIME`], and the 95 % upper bound of the share of frames lost is
    /// below [`VERY_STABLE_LOSS`].
    VeryStable,
    /// The run is shorter than [`VERY_STABLE_TIME`], and the 95 % lower bound of the share lost is
    /// below [`VERY_STABLE_LOSS`].
    TooShort {
        /// How much longer the run must last.
        left: Duration,
    },
    /// The run lasted long enough and lost few frames, but it had too few frames to show that the
    /// path is very stable.
    TooFewFrames {
        /// How many frames must be expected in all, when no more get lost.
        needed: u64,
    },
    /// The share of frames lost is [`VERY_STABLE_LOSS`] or more. In a run shorter than
    /// [`VERY_STABLE_TIME`] the 95 % lower bound of the share must be that high, too.
    TooManyLost,
}

impl Stability {
    /// Judges a run in which frames were expected for the time `lasted`.
    #[must_use]
    pub fn of(loss: LossCount, lasted: Duration) -> Self {
        let is_proven_bad = loss.lower_95() >= VERY_STABLE_LOSS;
        let left = VERY_STABLE_TIME.saturating_sub(lasted);
        if is_proven_bad {
            Self::TooManyLost
        } else if !left.is_zero() {
            Self::TooShort { left }
        } else if loss.upper_95() < VERY_STABLE_LOSS {
            Self::VeryStable
        } else if loss.share() >= VERY_STABLE_LOSS {
            Self::TooManyLost
        } else {
            let needed = loss.expected_to_prove(VERY_STABLE_LOSS);
            Self::TooFewFrames {
                needed: needed.unwrap_or(u64::MAX),
            }
        }
    }

    /// Returns how long a run lasted in which `expected` frames came at equal intervals.
    /// `first_to_last` is the time between the first frame and the last. `first_to_stop` is the
    /// time between the first frame and the end of the run.
    ///
    /// Each frame stands for the interval up to the next frame: 12,000 frames at 20 a second are
    /// ten minutes, though the last comes 599.95 s after the first. One more interval allows for
    /// frames that are not delivered equally late. The result is at most `first_to_stop` plus one
    /// interval, because the first frame was on its way before it was whole.
    #[must_use]
    pub fn lasted(expected: u64, first_to_last: Duration, first_to_stop: Duration) -> Duration {
        let intervals = u32::try_from(expected)
            .unwrap_or(u32::MAX)
            .saturating_sub(1);
        let interval = first_to_last.checked_div(intervals).unwrap_or_default();
        let last = first_to_last.saturating_add(interval.saturating_mul(2));
        last.min(first_to_stop.saturating_add(interval))
    }

    /// Returns true when the run shows that its path is very stable.
    #[must_use]
    pub const fn is_very_stable(self) -> bool {
        matches!(self, Self::VeryStable)
    }
}

impl fmt::Display for Stability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VeryStable => f.write_str("very stable"),
            Self::TooShort { left } => {
                write!(
                    f,
                    "not known to be very stable: run it {} s longer",
                    ceil_s(*left)
                )
            }
            Self::TooFewFrames { needed } => write!(
                f,
                "not known to be very stable: {needed} frames are needed to tell"
            ),
            Self::TooManyLost => f.write_str("not very stable: 1 frame in 1000 or more is lost"),
        }
    }
}

fn ceil_s(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// Returns the largest chance of losing a frame at which 5 % of runs lose at most `lost` of
/// `expected` frames.
fn upper(lost: u64, expected: u64) -> f64 {
    if lost >= expected {
        return 1.0;
    }
    if lost == 0 {
        return -(UNLIKELY.ln() / expected as f64).exp_m1();
    }
    let (mut low, mut high) = (lost as f64 / expected as f64, 1.0);
    let ways = binomial::ln_ways(expected, lost);
    for _ in 0..HALVINGS_MAX {
        // The middle is above the share that was lost, so the mean is above the number lost.
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            break;
        }
        if binomial::at_most_below_mean(ways, expected, lost, middle) > UNLIKELY {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The share of frames lost below which a path is very stable.
pub const VERY_STABLE_LOSS: f64 = 0.001;
/// The shortest run that can show that a path is very stable.
pub const VERY_STABLE_TIME: Duration = Duration::from_secs(600);

/// One minus the confidence.
const UNLIKELY: f64 = 0.05;
/// The most halvings: more than the 53 binary digits of a share.
const HALVINGS_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn loss(lost: u64, expected: u64) -> LossCount {
        LossCount { expected, lost }
    }

    #[test]
    fn bounds_are_those_of_the_tables() {
        // One-sided 95 %, which are the ends of the two-sided 90 % intervals of the handbooks.
        for (lost, expected, low, high) in [
            (0, 10, 0.0, 0.258_866),
            (1, 10, 0.005_116, 0.394_163),
            (5, 10, 0.222_441, 0.777_559),
            (10, 10, 0.741_134, 1.0),
        ] {
            let it = loss(lost, expected);
            assert!(
                (it.upper_95() - high).abs() < 1e-6,
                "{it:?} {}",
                it.upper_95()
            );
            assert!(
                (it.lower_95() - low).abs() < 1e-6,
                "{it:?} {}",
                it.lower_95()
            );
        }
        // Many frames: half a quantile of chi-square with 2 (lost + 1) degrees, over the frames.
        for (lost, quantile) in [(0, 2.995_73), (1, 4.743_86), (2, 6.295_79), (3, 7.753_66)] {
            let upper = loss(lost, 10_000_000).upper_95() * 1e7;
            assert!((upper - quantile).abs() < 1e-4, "{lost}: {upper}");
        }
        assert!((loss(0, 0).upper_95() - 1.0).abs() < f64::EPSILON);
        assert!(loss(0, 0).share().abs() < f64::EPSILON);
        assert!((loss(7, 3).share() - 1.0).abs() < f64::EPSILON, "all");
    }

    #[test]
    fn the_claim_needs_time_and_frames_and_few_losses() {
        use Stability::{TooFewFrames, TooManyLost, TooShort, VeryStable};
        let ten = VERY_STABLE_TIME;
        // Without a loss, 0.999^n must be below 5 %.
        for (count, lasted, verdict) in [
            (loss(0, 12_000), ten, VeryStable),
            (loss(0, 2_995), ten, VeryStable),
            (loss(0, 2_994), ten, TooFewFrames { needed: 2_995 }),
            (loss(1, 3_000), ten, TooFewFrames { needed: 4_742 }),
            (loss(1, 4_742), ten, VeryStable),
            (loss(12, 12_000), ten, TooManyLost),
            (loss(1, 2), ten / 100, TooManyLost),
            (
                loss(0, 1 << 40),
                ten - Duration::from_millis(1),
                TooShort {
                    left: Duration::from_millis(1),
                },
            ),
            (loss(0, 0), Duration::ZERO, TooShort { left: ten }),
        ] {
            assert_eq!(Stability::of(count, lasted), verdict, "{count}");
        }
        let short = TooShort {
            left: Duration::from_millis(1_500),
        };
        assert_eq!(
            short.to_string(),
            "not known to be very stable: run it 2 s longer"
        );
        assert_eq!(
            loss(3, 12_000).to_string(),
            "3 of 12000 frames lost (0.025 %; at most 0.065 % at 95 %)"
        );
    }

    #[test]
    fn ten_minutes_of_frames_are_ten_minutes() {
        let ms = Duration::from_millis;
        // 20 a second: the receiver stops ten minutes after the first, or with the sender.
        for (to_last, to_stop) in [(599_950, 600_001), (599_940, 599_970), (599_955, 600_300)] {
            let lasted = Stability::lasted(12_000, ms(to_last), ms(to_stop));
            let stability = Stability::of(loss(0, 12_000), lasted);
            assert_eq!(stability, Stability::VeryStable, "{to_last} {to_stop}");
        }
        // A second less is too short, and so is a sender that fell silent.
        for (to_last, to_stop) in [(598_950, 599_000), (598_950, 601_000), (300_000, 601_000)] {
            let lasted = Stability::lasted(12_000, ms(to_last), ms(to_stop));
            let stability = Stability::of(loss(0, 12_000), lasted);
            assert!(
                matches!(stability, Stability::TooShort { .. }),
                "{to_last} {to_stop}"
            );
        }
        // Intervals cannot be told from one frame.
        assert_eq!(Stability::lasted(1, ms(0), ms(700_000)), ms(0));
        assert_eq!(Stability::lasted(0, ms(0), ms(700_000)), ms(0));
    }

    #[test]
    fn one_early_loss_proves_nothing() {
        // 1 of 25: its lower bound is 0.2 %. 1 of 52 may come from a path that loses 0.1 %.
        let second = Duration::from_secs(1);
        assert_eq!(Stability::of(loss(1, 25), second), Stability::TooManyLost);
        let verdict = Stability::of(loss(1, 52), second);
        assert!(matches!(verdict, Stability::TooShort { .. }), "{verdict}");
    }

    #[test]
    fn the_bound_is_too_low_in_at_most_one_run_of_twenty() {
        for (seed, per) in [(1, 20), (2, 90), (3, 400)] {
            let mut rng = base::Rng::new(seed);
            let misses = (0..2_000).filter(|_| {
                let lost = (0..1_000).filter(|_| rng.below(per) == 0).count() as u64;
                loss(lost, 1_000).upper_95() < 1.0 / per as f64
            });
            // One in twenty, and four standard deviations.
            let misses = misses.count();
            assert!(misses <= 140, "{per}: {misses} of 2000");
        }
    }

    proptest! {
        #[test]
        fn bounds_hold_the_share_and_shrink_with_what_is_known(
            lost in 0_u64..500, more in 1_u64..1_000_000,
        ) {
            let it = loss(lost, lost + more);
            let (low, share, high) = (it.lower_95(), it.share(), it.upper_95());
            prop_assert!(0.0 <= low && low <= share && share < high && high <= 1.0);
            let longer = loss(lost, (lost + more) * 2);
            prop_assert!(longer.upper_95() < high);
            let worse = loss(lost + 1, lost + more);
            prop_assert!(worse.upper_95() > high);
            // What defines the bound: this count or a lower one has a chance of 5 % there.
            let chance = binomial::at_most(lost + more, lost, high);
            prop_assert!(high > 0.999 || (chance - 0.05).abs() < 1e-6, "{chance}");
        }

        #[test]
        fn the_frames_needed_are_enough_and_no_fewer_are(lost in 0_u64..50, per in 1_u32..5_000) {
            let share = 1.0 / f64::from(per + 1);
            let needed = loss(lost, lost).expected_to_prove(share).expect("a number");
            prop_assert!(loss(lost, needed).upper_95() < share);
            prop_assert!(loss(lost, needed - 1).upper_95() >= share);
        }
    }
}
