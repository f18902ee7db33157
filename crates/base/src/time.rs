//! The monotonic clock value that every state machine takes as an argument.

use std::{
    fmt,
    ops::{Add, AddAssign, Sub},
    time::Duration,
};

/// A point on a monotonic clock, in nanoseconds since an origin that the clock's owner chose.
///
/// **Units and clock**: nanoseconds; `CLOCK_MONOTONIC` in the shipped programs, virtual time in
/// simulation. Values of two different clocks must not be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// A time that never comes: "no deadline" in comparisons.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the instant `ns` nanoseconds after the clock's origin.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Returns the nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to `self`; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Adds a duration; the result is at most [`Instant::NEVER`].
    fn add(self, rhs: Duration) -> Self {
        let ns = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(ns))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// Subtracts a duration; the result is not before the clock's origin.
    fn sub(self, rhs: Duration) -> Self {
        let ns = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(ns))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:09}s",
            self.0 / 1_000_000_000,
            self.0 % 1_000_000_000
        )
    }
}

/// Returns the earlier of two optional deadlines; `None` means "no deadline".
#[must_use]
pub fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let one_second = Duration::from_secs(1);
        assert_eq!(Instant::ZERO - one_second, Instant::ZERO);
        assert_eq!(Instant::NEVER + one_second, Instant::NEVER);
        assert_eq!(Instant::ZERO.since(Instant::from_nanos(5)), Duration::ZERO);
        assert_eq!(
            (Instant::ZERO + one_second).since(Instant::ZERO),
            one_second
        );
    }

    #[test]
    fn earliest_prefers_a_deadline_over_none() {
        let (a, b) = (Instant::from_nanos(1), Instant::from_nanos(2));
        assert_eq!(earliest(Some(b), Some(a)), Some(a));
        assert_eq!(earliest(None, Some(b)), Some(b));
        assert_eq!(earliest(None, None), None);
    }
}
