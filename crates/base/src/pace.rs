//! The limit of a sending rate.

use std::num::NonZeroU64;

/// The limit of a rate.
///
/// On the wire and in texts, 0 stands for no limit. This type has a value of its own for no limit,
/// so that no code divides by 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as the host can.
    Unlimited,
    /// At most this many bytes a second.
    BytesPerS(NonZeroU64),
}

impl Pace {
    /// Returns the pace that a number stands for: bytes a second, or 0 for no limit.
    #[must_use]
    pub const fn of(bytes_per_s: u64) -> Self {
        match NonZeroU64::new(bytes_per_s) {
            None => Self::Unlimited,
            Some(bytes_per_s) => Self::BytesPerS(bytes_per_s),
        }
    }

    /// Makes the limit for a computed rate: at least a byte a second, so that 0 does not mean no
    /// limit.
    #[must_use]
    pub const fn at_most(bytes_per_s: u64) -> Self {
        match NonZeroU64::new(bytes_per_s) {
            None => Self::BytesPerS(NonZeroU64::MIN),
            Some(bytes_per_s) => Self::BytesPerS(bytes_per_s),
        }
    }

    /// Returns the limit in bytes a second; `None` when there is no limit.
    #[must_use]
    pub const fn bytes_per_s(self) -> Option<u64> {
        match self {
            Self::Unlimited => None,
            Self::BytesPerS(bytes_per_s) => Some(bytes_per_s.get()),
        }
    }

    /// Returns the limit in bytes a second, 0 for no limit: the reverse of [`Pace::of`].
    #[must_use]
    pub const fn to_number(self) -> u64 {
        match self {
            Self::Unlimited => 0,
            Self::BytesPerS(bytes_per_s) => bytes_per_s.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_limit_where_it_stands_for_one_and_the_least_where_it_was_computed() {
        assert_eq!((Pace::of(0), Pace::of(0).to_number()), (Pace::Unlimited, 0));
        assert_eq!(Pace::of(7).bytes_per_s(), Some(7));
        assert_eq!(Pace::Unlimited.bytes_per_s(), None);
        assert_eq!(Pace::at_most(0), Pace::of(1));
    }
}
