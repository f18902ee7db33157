//! The timers of NAK generation of one session, and how they follow its network and its group.
//!
//! They start as configured, which suits a LAN. A group with a longer round trip gets longer ones,
//! so that a receiver does not ask again before an answer can have come, and a back-off long enough
//! for the first NAK's confirmation to silence the others. In: times between our NAKs and their
//! confirmations, and how many receivers the sender counts. Out: the timers.
//!
//! ```text
//!   density of the back-off, group of 1:   _______________        group of 1,000:            __/
//!                                          min         max                       min ______--  max
//! ```
//!
//! Few of a large group draw early, whatever its size, and whoever draws first silences the rest:
//! the number of NAKs for a packet that everybody lost grows with the logarithm of the group.
//!
//! **Spec**: RFC 3208 section 6.3 (NAK_RB_IVL, NAK_RPT_IVL, NAK_RDATA_IVL); the truncated
//! exponential back-off and its bound of four round trips are those of RFC 5401 section 3.2.3.
//! Deviation: section 6.3 draws uniformly.

use std::time::Duration;

use base::Rng;

use crate::Config;

/// The timers as they are at the moment. One value a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// Bounds of the random wait before a NAK (NAK_RB_IVL within NAK_BO_IVL).
    pub(super) back_off_min: Duration,
    pub(super) back_off_max: Duration,
    /// NAK_RPT_IVL.
    pub(super) wait_ncf: Duration,
    /// NAK_RDATA_IVL.
    pub(super) wait_data: Duration,
    /// NAK_NCF_RETRIES and NAK_DATA_RETRIES.
    pub(super) ncf_tries_max: u16,
    pub(super) data_tries_max: u16,
    /// Nothing is given up sooner.
    pub(super) repair_time_max: Duration,
    /// Between two looks at all gaps: bounds the work of a receiver with very many.
    pub(super) scan_interval: Duration,
    /// Receivers that the sender counts, or the number assumed.
    pub(super) group_size: u32,
    /// From a NAK to its confirmation; zero before the first.
    pub(super) round_trip: Duration,
    /// The least of the samples since the round trip was last renewed, and their number.
    pub(super) least: Duration,
    pub(super) samples: u8,
}

impl Timing {
    pub(super) fn new(config: &Config) -> Self {
        let back_off_max = config.nak_backoff_max();
        Self {
            back_off_min: config.nak_backoff_min(),
            back_off_max,
            wait_ncf: config.nak_repeat_interval(),
            wait_data: config.nak_rdata_interval(),
            ncf_tries_max: u16::try_from(config.nak_ncf_retries()).unwrap_or(u16::MAX),
            data_tries_max: u16::try_from(config.nak_data_retries()).unwrap_or(u16::MAX),
            repair_time_max: config.repair_time_max(),
            scan_interval: (back_off_max / 16).min(SCAN_INTERVAL_MAX),
            group_size: GROUP_SIZE_ASSUMED,
            round_trip: Duration::ZERO,
            least: ROUND_TRIP_MAX,
            samples: 0,
        }
    }

    /// The sender counts so many receivers; 0 when it does not know.
    pub(super) fn count_group(&mut self, receivers: u32, configured: &Self) {
        self.group_size = match receivers {
            0 => GROUP_SIZE_ASSUMED,
            count => count.min(GROUP_SIZE_MAX),
        };
        self.follow(configured);
    }

    /// A confirmation came `sample` after the first NAK for its packet.
    ///
    /// What is lost on the way makes a sample longer, never shorter, and longer timers make such
    /// samples longer still: so the least of several counts. Another receiver's NAK can make one
    /// shorter; the configured timers are the floor under that.
    pub(super) fn confirmed_after(&mut self, sample: Duration, configured: &Self) {
        let sample = sample.min(ROUND_TRIP_MAX);
        self.least = self.least.min(sample);
        self.samples += 1;
        if self.samples == SAMPLES {
            self.round_trip = self.least;
            (self.least, self.samples) = (ROUND_TRIP_MAX, 0);
        } else if self.round_trip.is_zero() || sample < self.round_trip {
            self.round_trip = sample;
        }
        self.follow(configured);
    }

    fn follow(&mut self, configured: &Self) {
        let round_trip = self.round_trip;
        self.wait_ncf = configured.wait_ncf.max(round_trip * 2);
        self.wait_data = configured.wait_data.max(round_trip * 2);
        // Who is alone has nobody to listen for.
        let listening = if self.group_size > 1 {
            round_trip * 4
        } else {
            Duration::ZERO
        };
        self.back_off_max = configured.back_off_max.max(listening);
    }

    /// A random wait before a NAK. Never zero: nothing is asked for at the moment it is missed.
    pub(super) fn draw_back_off(&self, rng: &mut Rng) -> Duration {
        let spread = self.back_off_max.saturating_sub(self.back_off_min);
        let spread_ns = u64::try_from(spread.as_nanos()).unwrap_or(u64::MAX);
        // With x uniform in 1..=top, log(x) / log(top) has an exponential density over 0..=1.
        let top = E * u64::from(self.group_size.max(1));
        let part = u128::from(log2(rng.between(ONE, top)));
        let wait_ns = u128::from(spread_ns) * part / u128::from(log2(top));
        let wait = Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(spread_ns));
        (self.back_off_min + wait).max(Duration::from_nanos(1))
    }

    /// What is added to the back-off after asking `tries` times in vain, doubling from the second
    /// time on: a source that cannot answer, or not yet, is not to be shouted at.
    pub(super) fn patience(&self, tries: u16) -> Duration {
        let doublings = u32::from(tries.saturating_sub(1)).min(PATIENCE_DOUBLINGS_MAX);
        let more = self.wait_ncf * ((1 << doublings) - 1);
        more.min(self.wait_ncf.max(PATIENCE_MAX))
    }

    /// How long another receiver's NAK silences ours.
    pub(super) fn wait_silenced(&self) -> Duration {
        self.wait_ncf.max(self.wait_data)
    }
}

/// The binary logarithm of a number with 16 binary places, at least 1: with 16 binary places, and
/// straight between powers of two, which is close enough for a density.
const fn log2(number: u64) -> u64 {
    let power = 63 - number.leading_zeros() as u64;
    let fraction = (number << (63 - power) << 1) >> 48;
    ((power - 16) << 16) + fraction
}

/// 1, and e, with 16 binary places.
const ONE: u64 = 1 << 16;
const E: u64 = 178_145;
/// Judgement: too large a guess costs a lone receiver half a back-off, too small a one costs a
/// large group a NAK storm.
const GROUP_SIZE_ASSUMED: u32 = 128;
/// A sender that claims more cannot make receivers wait longer.
const GROUP_SIZE_MAX: u32 = 100_000;
/// Asking goes on at an interval of at most 16 waits, 160 ms as configured, or this much more.
const PATIENCE_DOUBLINGS_MAX: u32 = 4;
const PATIENCE_MAX: Duration = Duration::from_millis(250);
/// A longer round trip is believed when so many samples in a row were longer.
const SAMPLES: u8 = 8;
const ROUND_TRIP_MAX: Duration = Duration::from_secs(1);
/// Longest pause between two looks at all gaps: what a timer of the host is late by anyway.
const SCAN_INTERVAL_MAX: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean back-off and the mean of the earliest of `group_size`, in per cent of the longest.
    fn draws(group_size: u32) -> (u128, u128) {
        let mut timing = Timing::new(&Config::default());
        timing.back_off_min = Duration::ZERO;
        timing.group_size = group_size;
        let (mut rng, max) = (Rng::new(5), timing.back_off_max.as_nanos());
        let (mut sum, mut firsts) = (0, 0);
        for _ in 0..100 {
            let mut draw = || timing.draw_back_off(&mut rng).as_nanos();
            let all: Vec<u128> = (0..group_size).map(|_| draw()).collect();
            assert!(all.iter().all(|&wait| (1..=max).contains(&wait)));
            sum += all.iter().sum::<u128>() / u128::from(group_size);
            firsts += all.iter().min().unwrap();
        }
        (sum / max, firsts / max)
    }

    #[test]
    fn a_large_group_draws_late_and_its_earliest_not_at_once() {
        let (alone, first_alone) = draws(1);
        assert!((45..70).contains(&alone) && alone == first_alone, "{alone}");
        let (mean, first) = draws(1000);
        assert!((80..95).contains(&mean), "{mean}");
        assert!((3..25).contains(&first), "{first}");
    }

    #[test]
    fn the_timers_follow_a_long_round_trip_and_keep_to_the_configured_ones_in_a_short() {
        let configured = Timing::new(&Config::default());
        let mut timing = configured;
        timing.confirmed_after(Duration::from_micros(200), &configured);
        assert_eq!(timing.wait_ncf, configured.wait_ncf);
        assert_eq!(timing.back_off_max, configured.back_off_max);
        for _ in 0..20 {
            timing.confirmed_after(Duration::from_millis(100), &configured);
        }
        assert!(timing.wait_ncf > Duration::from_millis(190));
        assert!(timing.back_off_max > Duration::from_millis(380));
        timing.count_group(1, &configured);
        assert_eq!(timing.back_off_max, configured.back_off_max);
    }
}
