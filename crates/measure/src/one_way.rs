//! One-way delays between two clocks: with their error, or the reason why they cannot be measured.
//!
//! ```text
//!   here    t1 sent                                      t4 received       one wall clock
//!             \                                         /
//!   there      t2 received --- answered --- t3 sent ---+                   another
//!
//!   there = t2 - t1        back = t4 - t3        each +- (error here + error there)
//! ```
//! Each end's daemon states the bound of its clock's error; nothing is estimated from the round
//! trip. A delay is refused when it does not exceed the sum of both bounds, or when two clocks
//! within their bounds cannot produce it.

use serde::Serialize;

/// One question and its answer. All times are nanoseconds since 1970; each end reads its own wall
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockExchange {
    /// When the question left here.
    pub sent_ns: u64,
    /// When the question arrived there.
    pub received_there_ns: u64,
    /// When the answer left there.
    pub sent_there_ns: u64,
    /// When the answer arrived here.
    pub received_ns: u64,
    /// The state of the clock here.
    pub here: ClockState,
    /// The state of the clock there.
    pub there: ClockState,
}

/// How good a wall clock is, as its daemon says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClockState {
    /// A daemon says that it keeps the clock synchronised.
    pub is_synchronised: bool,
    /// The most by which the clock may be wrong, as the daemon states it, in nanoseconds.
    pub error_ns_max: u64,
}

/// The delays of one direction, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OneWayTimes {
    /// The least.
    pub min_ns: i64,
    /// The median.
    pub p50_ns: i64,
    /// The 99th percentile.
    pub p99_ns: i64,
    /// The greatest.
    pub max_ns: i64,
}

/// Delays of both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OneWay {
    /// From here to there.
    pub there: OneWayTimes,
    /// From there to here.
    pub back: OneWayTimes,
    /// How far each delay may be wrong, up or down, in nanoseconds: the sum of both ends' bounds.
    pub error_ns_max: u64,
}

impl OneWay {
    /// Computes the delays from the exchanges. With `is_one_clock` both ends read the same clock,
    /// so the error of the clock cancels out.
    ///
    /// # Errors
    /// Says why the clocks are not good enough to measure delays.
    pub fn of(exchanges: &[ClockExchange], is_one_clock: bool) -> Result<Self, String> {
        let there = exchanges.iter().map(ClockExchange::there_ns);
        let back = exchanges.iter().map(ClockExchange::back_ns);
        let (Some(there), Some(back)) = (OneWayTimes::of(there), OneWayTimes::of(back)) else {
            return Err("nothing was exchanged".to_owned());
        };
        let errors = exchanges.iter().map(ClockExchange::error_ns_max);
        let error_ns_max = if is_one_clock {
            0
        } else {
            synchronised(exchanges)?;
            errors.max().unwrap_or(u64::MAX)
        };
        let found = Self {
            there,
            back,
            error_ns_max,
        };
        found.check(is_one_clock).map(|()| found)
    }

    /// Checks that the bound is below the delays, and that the delays can be true.
    fn check(&self, is_one_clock: bool) -> Result<(), String> {
        let bound = i128::from(self.error_ns_max);
        let earliest = self.there.min_ns.min(self.back.min_ns);
        if i128::from(earliest) < -bound {
            let text = if is_one_clock {
                "the wall clock was set meanwhile; measure again".to_owned()
            } else {
                format!(
                    "by these clocks a message arrived {} before it was sent, though the errors \
                     that both ends state add up to at most {}: at least one clock is worse than \
                     its daemon says",
                    time(earliest.unsigned_abs()),
                    time(self.error_ns_max)
                )
            };
            return Err(text);
        }
        let delay = self.there.p50_ns.min(self.back.p50_ns);
        if bound > 0 && i128::from(delay) <= bound {
            return Err(format!(
                "the two clocks may differ by {}, but the shorter of the two delays would be {}: \
                 the error is larger than the delay",
                time(self.error_ns_max),
                time(u64::try_from(delay).unwrap_or(0))
            ));
        }
        Ok(())
    }
}

impl ClockExchange {
    /// Returns the delay from here to there, by the two wall clocks.
    fn there_ns(&self) -> i64 {
        difference(self.sent_ns, self.received_there_ns)
    }

    /// Returns the delay from there to here, by the two wall clocks.
    fn back_ns(&self) -> i64 {
        difference(self.sent_there_ns, self.received_ns)
    }

    /// Returns how far a delay between these two clocks may be wrong, in nanoseconds: the sum of
    /// both bounds.
    #[must_use]
    pub const fn error_ns_max(&self) -> u64 {
        self.here
            .error_ns_max
            .saturating_add(self.there.error_ns_max)
    }
}

impl OneWayTimes {
    fn of(times: impl Iterator<Item = i64>) -> Option<Self> {
        let mut times: Vec<i64> = times.collect();
        times.sort_unstable();
        let last = times.len().checked_sub(1)?;
        Some(Self {
            min_ns: times[0],
            p50_ns: times[last / 2],
            p99_ns: times[last * 99 / 100],
            max_ns: times[last],
        })
    }
}

/// Checks that each end had a synchronised clock in every exchange.
fn synchronised(exchanges: &[ClockExchange]) -> Result<(), String> {
    let remedy = |place: &str| {
        format!(
            "start chrony, ntpd, or ptp4l with phc2sys {place}, and wait until it has set the clock"
        )
    };
    let here = exchanges.iter().all(|one| one.here.is_synchronised);
    let there = exchanges.iter().all(|one| one.there.is_synchronised);
    match (here, there) {
        (true, true) => Ok(()),
        (false, true) => Err(format!(
            "no daemon keeps this host's clock synchronised; {}",
            remedy("here")
        )),
        (true, false) => Err(format!(
            "no daemon keeps the far end's clock synchronised; {}",
            remedy("there")
        )),
        (false, false) => Err(format!(
            "no daemon keeps either clock synchronised; {}",
            remedy("at both ends")
        )),
    }
}

/// Returns the time from `from` to `to`, limited to what the type holds.
fn difference(from: u64, to: u64) -> i64 {
    let wide = i128::from(to) - i128::from(from);
    let most = i128::from(i64::MAX);
    i64::try_from(wide.clamp(-most, most)).unwrap_or(0)
}

fn time(ns: u64) -> String {
    format!("{:.1} us", ns as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exchanges with delays of 200 us there and 300 us back; the clock there is `ahead_ns` before
    /// ours.
    fn exchanges(ahead_ns: i64, here: ClockState, there: ClockState) -> Vec<ClockExchange> {
        let start = 1_700_000_000_000_000_000_u64;
        let one = |nth: u64| {
            let sent_ns = start + nth * 10_000_000;
            let came = sent_ns + 200_000 + nth;
            let left = came + 5_000;
            ClockExchange {
                sent_ns,
                received_there_ns: came.checked_add_signed(ahead_ns).unwrap(),
                sent_there_ns: left.checked_add_signed(ahead_ns).unwrap(),
                received_ns: left + 300_000 + nth,
                here,
                there,
            }
        };
        (0..=100).map(one).collect()
    }

    fn good(error_ns_max: u64) -> ClockState {
        ClockState {
            is_synchronised: true,
            error_ns_max,
        }
    }

    #[test]
    fn delays_have_the_sum_of_both_bounds() {
        let found = OneWay::of(&exchanges(10_000, good(20_000), good(15_000)), false).unwrap();
        assert_eq!(found.error_ns_max, 35_000);
        let (there, back) = (found.there, found.back);
        assert_eq!(
            (there.min_ns, there.p50_ns, there.max_ns),
            (210_000, 210_050, 210_100)
        );
        assert_eq!((back.min_ns, back.p99_ns), (290_000, 290_099));
        // Half the round trip would give 250 us for both directions, which is wrong by 50 us.
        assert!(there.p50_ns.abs_diff(200_050) <= found.error_ns_max);
        assert!(back.p50_ns.abs_diff(300_050) <= found.error_ns_max);
    }

    #[test]
    fn what_the_clocks_do_not_justify_is_refused_with_the_reason() {
        let bad = ClockState::default();
        for (here, there, ahead_ns, reason) in [
            (bad, good(1), 0, "this host's clock"),
            (good(1), bad, 0, "the far end's clock"),
            (bad, bad, 0, "either clock"),
            (good(150_000), good(60_000), 0, "may differ by 210.0 us"),
            (good(u64::MAX), good(1), 0, "may differ by"),
            (
                good(1_000),
                good(1_000),
                400_000,
                "worse than its daemon says",
            ),
            (
                good(1_000),
                good(1_000),
                -400_000,
                "worse than its daemon says",
            ),
        ] {
            let refused = OneWay::of(&exchanges(ahead_ns, here, there), false).unwrap_err();
            assert!(refused.contains(reason), "{reason}: {refused}");
        }
        assert!(OneWay::of(&[], false).is_err());
    }

    #[test]
    fn one_clock_cannot_differ_from_itself() {
        let bad = ClockState::default();
        let found = OneWay::of(&exchanges(0, bad, bad), true).unwrap();
        assert_eq!((found.error_ns_max, found.there.min_ns), (0, 200_000));
        let set = OneWay::of(&exchanges(-400_000, bad, bad), true).unwrap_err();
        assert!(set.contains("was set"), "{set}");
    }
}
