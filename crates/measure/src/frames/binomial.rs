//! Chances of a number of successes among independent trials, summed term by term from the largest
//! term on. Only the rounding of the sum makes them inexact.

/// Returns the chance of at most `most` successes in `trials`, each with the chance `each`.
pub(super) fn at_most(trials: u64, most: u64, each: f64) -> f64 {
    if most >= trials || each <= 0.0 {
        return 1.0;
    }
    if each >= 1.0 {
        return 0.0;
    }
    // Above the mean, the chances beyond `most` are the smaller part, so those are summed.
    if most as f64 > trials as f64 * each {
        return 1.0 - more_than(trials, most, each);
    }
    at_most_below_mean(ln_ways(trials, most), trials, most, each)
}

/// Returns what [`at_most`] does, for `most` up to the mean and a chance that is neither 0 nor 1.
/// `ways` is [`ln_ways`] of `trials` and `most`: a caller that tries many chances computes it once.
pub(super) fn at_most_below_mean(ways: f64, trials: u64, most: u64, each: f64) -> f64 {
    let odds = each / (1.0 - each);
    let (mut term, mut sum) = (exactly(ways, trials, most, each), 0.0);
    for count in (0..=most).rev() {
        sum += term;
        if term < sum * NEGLIGIBLE {
            break;
        }
        term *= count as f64 / ((trials - count + 1) as f64 * odds);
    }
    sum.min(1.0)
}

/// Returns the chance of more than `most` successes in `trials`, each with the chance `each`. The
/// result is exact also for small chances.
pub(super) fn more_than(trials: u64, most: u64, each: f64) -> f64 {
    if most >= trials || each <= 0.0 {
        return 0.0;
    }
    if each >= 1.0 {
        return 1.0;
    }
    if (most as f64) < trials as f64 * each {
        return 1.0 - at_most(trials, most, each);
    }
    let odds = each / (1.0 - each);
    let (mut term, mut sum) = (
        exactly(ln_ways(trials, most + 1), trials, most + 1, each),
        0.0,
    );
    for count in most + 1..=trials {
        sum += term;
        if term < sum * NEGLIGIBLE {
            break;
        }
        term *= (trials - count) as f64 * odds / (count + 1) as f64;
    }
    sum.min(1.0)
}

/// Returns the logarithm of the number of ways in which `count` of `trials` succeed; 0 where
/// [`exactly`] does not use it.
///
/// **Cost**: one logarithm for each success or for each failure, whichever are fewer; at most
/// [`SUMMED_MAX`].
pub(super) fn ln_ways(trials: u64, count: u64) -> f64 {
    let fewer = count.min(trials - count);
    if fewer > SUMMED_MAX {
        return 0.0;
    }
    let ways = (1..=fewer).map(|i| ((trials - fewer + i) as f64 / i as f64).ln());
    ways.sum()
}

/// Returns the chance of exactly `count` successes. `each` is above 0 and below 1, and `ways` is
/// [`ln_ways`] of `trials` and `count`.
///
/// When successes and failures are both more than [`SUMMED_MAX`], it uses C. Loader's expansion
/// ("Fast and accurate computation of binomial probabilities", 2000), because large logarithms that
/// cancel would lose digits.
fn exactly(ways: f64, trials: u64, count: u64, each: f64) -> f64 {
    let rest = trials - count;
    let fewer = count.min(rest);
    if fewer > SUMMED_MAX {
        return expanded(trials as f64, count as f64, rest as f64, each);
    }
    (ways + count as f64 * each.ln() + rest as f64 * (-each).ln_1p()).exp()
}

fn expanded(trials: f64, count: f64, rest: f64, each: f64) -> f64 {
    // The series of Stirling's formula: above SUMMED_MAX, its first two terms are exact enough.
    let stirling = |n: f64| 1.0 / (12.0 * n) - 1.0 / (360.0 * n * n * n);
    let exponent = stirling(trials)
        - stirling(count)
        - stirling(rest)
        - deviance(count, trials * each)
        - deviance(rest, trials * (1.0 - each));
    let scale = trials / (2.0 * std::f64::consts::PI * count * rest);
    scale.sqrt() * exponent.exp()
}

/// Returns `found ln(found / mean) + mean - found`, exact also where both are nearly equal.
fn deviance(found: f64, mean: f64) -> f64 {
    let off = found - mean;
    if off.abs() > 0.1 * (found + mean) {
        return found * (found / mean).ln() - off;
    }
    let ratio = off / (found + mean);
    let (mut sum, mut power) = (off * ratio, 2.0 * found * ratio);
    for odd in (3..100).step_by(2) {
        power *= ratio * ratio;
        let term = power / f64::from(odd);
        sum += term;
        if term.abs() < sum.abs() * NEGLIGIBLE {
            break;
        }
    }
    sum
}

/// The sum ends at a term that is less than this part of the sum: neither this term nor a later one
/// changes a digit of the sum.
const NEGLIGIBLE: f64 = 1e-18;
/// The most logarithms that [`ln_ways`] sums; beyond this [`exactly`] uses an expansion instead.
const SUMMED_MAX: u64 = 10_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same by Pascal's rule, one trial after the other.
    fn naive(trials: u64, each: f64) -> Vec<f64> {
        let mut chances = vec![1.0];
        for _ in 0..trials {
            let mut next = vec![0.0; chances.len() + 1];
            for (count, chance) in chances.iter().enumerate() {
                next[count] += chance * (1.0 - each);
                next[count + 1] += chance * each;
            }
            chances = next;
        }
        chances
    }

    #[test]
    fn large_numbers_join_the_summed_ones_without_a_step() {
        let (trials, count) = (30_000_000, SUMMED_MAX);
        for per in [2_900, 3_000, 3_100, 4_000] {
            let each = 1.0 / f64::from(per);
            let summed = exactly(ln_ways(trials, count), trials, count, each);
            let rest = (trials - count) as f64;
            let series = expanded(trials as f64, count as f64, rest, each);
            assert!(
                (summed / series - 1.0).abs() < 1e-8,
                "{per}: {summed} {series}"
            );
        }
        assert!((at_most(1 << 40, 1 << 20, 1.0 / (1 << 20) as f64) - 0.5).abs() < 1e-3);
    }

    proptest! {
        #[test]
        fn sums_are_those_of_trial_after_trial(
            trials in 1_u64..60, most in 0_u64..60, each in 0.0_f64..=1.0,
        ) {
            let chances = naive(trials, each);
            let split = chances.len().min(most as usize + 1);
            let (low, high) = chances.split_at(split);
            let (low, high): (f64, f64) = (low.iter().sum(), high.iter().sum());
            prop_assert!((at_most(trials, most, each) - low).abs() < 1e-9);
            let ours = more_than(trials, most, each);
            prop_assert!((ours - high).abs() < 1e-9);
            // A small chance is right in its own digits, too.
            prop_assert!(high < 1e-280 || (ours / high - 1.0).abs() < 1e-6, "{ours} {high}");
        }
    }
}
