//! When each message of a run is due: a fixed schedule in whole nanoseconds.
//!
//! Slot `n` is due at `floor(n * 10^9 / rate)` nanoseconds after the start. This is computed anew
//! for each slot, so no rounding error adds up: at 30,000 a second, with gaps of 33,333.3 ns, the
//! millionth slot is as exact as the first.

/// A schedule of a fixed rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    per_second: u64,
}

impl Schedule {
    /// Makes a schedule of `per_second` slots each second.
    ///
    /// # Errors
    /// [`ScheduleError`] for a rate of 0 or above [`Schedule::RATE_MAX`].
    pub const fn new(per_second: u64) -> Result<Self, ScheduleError> {
        if per_second == 0 || per_second > Self::RATE_MAX {
            return Err(ScheduleError { per_second });
        }
        Ok(Self { per_second })
    }

    /// Returns the number of slots each second.
    #[must_use]
    pub const fn per_second(&self) -> u64 {
        self.per_second
    }

    /// Returns when slot `slot` is due, in nanoseconds after the start; at most 584 years, the most
    /// that the type holds.
    #[must_use]
    pub const fn due_ns(&self, slot: u64) -> u64 {
        let due = slot as u128 * NANOS as u128 / self.per_second as u128;
        if due > u64::MAX as u128 {
            u64::MAX
        } else {
            due as u64
        }
    }

    /// Returns how many slots are due within the first `elapsed_ns` nanoseconds, the last instant
    /// included.
    #[must_use]
    pub const fn slots_due(&self, elapsed_ns: u64) -> u64 {
        // The greatest n with floor(n * 10^9 / rate) <= elapsed, plus slot 0.
        let slots = ((elapsed_ns as u128 + 1) * self.per_second as u128 - 1) / NANOS as u128 + 1;
        if slots > u64::MAX as u128 {
            u64::MAX
        } else {
            slots as u64
        }
    }

    /// Returns how many slots start within `duration_ns`, the last instant not included: the slots
    /// of a run of this length.
    #[must_use]
    pub const fn slots_within(&self, duration_ns: u64) -> u64 {
        match duration_ns.checked_sub(1) {
            None => 0,
            Some(last) => self.slots_due(last),
        }
    }

    /// The highest rate: a slot every 100 ns, which is faster than any socket.
    pub const RATE_MAX: u64 = 10_000_000;
}

/// The error for a rate that no schedule can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{per_second} messages/s: a rate is 1 to {max} messages/s", max = Schedule::RATE_MAX)]
pub struct ScheduleError {
    per_second: u64,
}

const NANOS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_gap_that_is_no_whole_number_does_not_drift() {
        let schedule = Schedule::new(30_000).unwrap();
        let due: Vec<u64> = (0..4).map(|slot| schedule.due_ns(slot)).collect();
        assert_eq!(due, [0, 33_333, 66_666, 100_000]);
        // A year of slots ends on the nanosecond.
        let year_s = 365 * 86_400;
        assert_eq!(schedule.due_ns(30_000 * year_s), year_s * NANOS);
        assert_eq!(schedule.slots_within(60 * NANOS), 1_800_000);
    }

    #[test]
    fn impossible_rates_are_refused() {
        for rate in [0, Schedule::RATE_MAX + 1, u64::MAX] {
            let error = Schedule::new(rate).unwrap_err();
            assert!(error.to_string().contains("10000000"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn due_and_slots_due_are_inverse(rate in 1..=Schedule::RATE_MAX, slot in 0..1_u64 << 40) {
            let schedule = Schedule::new(rate).unwrap();
            let due = schedule.due_ns(slot);
            prop_assert!(schedule.slots_due(due) > slot);
            if due > 0 {
                prop_assert!(schedule.slots_due(due - 1) <= slot);
            }
            // A slot is never early, and less than a nanosecond after its exact time.
            let exact = u128::from(slot) * u128::from(NANOS);
            let error = exact - u128::from(due) * u128::from(rate);
            prop_assert!(error < u128::from(rate));
        }
    }
}
