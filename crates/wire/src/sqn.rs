//! Sequence numbers: 32 bits on the wire, which wrap; 64 bits inside the program, which never do.
//!
//! The module knows no window. In: a [`Sqn`] read from a packet. Out: a comparison with another, or
//! the 64-bit position that it stands for near a known position.
//!
//! ```text
//!  64-bit positions   ...  near - 2^31 ............ near ............ near + 2^31 - 1  ...
//!                          \_____ exactly one position here has the low 32 bits `sqn` ____/
//! ```

use std::{
    fmt,
    ops::{Add, AddAssign, Sub},
};

/// A 32-bit sequence number with serial arithmetic: comparisons look at the sign of the difference.
///
/// There is no `Ord`: serial order is not transitive around the circle. Two numbers that are
/// exactly 2^31 apart are neither before nor after each other.
///
/// # Positions
/// A *position* is the number of a data packet in its session, in 64 bits. It counts packets, not
/// bytes, and never wraps; its low 32 bits are the packet's sequence number. What a position bounds
/// follows from its name:
///
/// | name | stands for |
/// |---|---|
/// | `trail` | the first packet that can still be repaired |
/// | `hold` | the first packet that must be kept |
/// | `base`, `contiguous` | the first packet that was not handed out: an exclusive end |
/// | `lead` | the last packet that was sent, or is known to exist: an inclusive end |
/// | `lead` of `pgm::Source` and its log | one past the newest packet: an exclusive end |
/// | `next`, `end` | one past the last packet: an exclusive end |
///
/// **Spec**: RFC 3208 section 3.1 (unsigned 32-bit serial numbers), RFC 1982.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sqn(pub u32);

impl Sqn {
    /// Returns the sequence number of a 64-bit position: its low 32 bits.
    #[inline]
    #[must_use]
    pub const fn of(position: u64) -> Self {
        Self(position as u32)
    }

    /// Returns the number after this one.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Returns the number before this one.
    #[inline]
    #[must_use]
    pub const fn previous(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }

    /// Returns the number of steps from `other` up to `self`; negative when `self` comes first.
    ///
    /// Numbers exactly 2^31 apart give `i32::MIN` both ways.
    #[inline]
    #[must_use]
    pub const fn distance_from(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// Returns true when `self` comes before `other`; false at a distance of exactly 2^31.
    #[inline]
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        other.distance_from(self) > 0
    }

    /// Returns true when `self` comes after `other`; false at a distance of exactly 2^31.
    #[inline]
    #[must_use]
    pub const fn is_after(self, other: Self) -> bool {
        self.distance_from(other) > 0
    }

    /// Returns the 64-bit position with these low 32 bits that is nearest to `near`.
    ///
    /// **Shape**: the result lies in `near - 2^31 ..= near + 2^31 - 1`. Where that range does not
    /// fit 64 bits, the result is the nearest position that does: it never wraps.
    #[inline]
    #[must_use]
    pub fn extend(self, near: u64) -> u64 {
        #[cfg(feature = "planted-bugs")]
        if base::planted::is_planted(base::planted::Bug::PlainComparison) {
            return near >> 32 << 32 | u64::from(self.0);
        }
        let step = self.distance_from(Self::of(near)) as i64;
        match near.checked_add_signed(step) {
            Some(position) => position,
            None if step < 0 => near.wrapping_add_signed(step).wrapping_add(1 << 32),
            None => near.wrapping_add_signed(step).wrapping_sub(1 << 32),
        }
    }
}

impl From<u64> for Sqn {
    #[inline]
    fn from(position: u64) -> Self {
        Self::of(position)
    }
}

impl Add<u32> for Sqn {
    type Output = Self;

    #[inline]
    fn add(self, steps: u32) -> Self {
        Self(self.0.wrapping_add(steps))
    }
}

impl AddAssign<u32> for Sqn {
    #[inline]
    fn add_assign(&mut self, steps: u32) {
        *self = *self + steps;
    }
}

impl Sub<u32> for Sqn {
    type Output = Self;

    #[inline]
    fn sub(self, steps: u32) -> Self {
        Self(self.0.wrapping_sub(steps))
    }
}

impl fmt::Display for Sqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_wrap() {
        let (last, first) = (Sqn(u32::MAX), Sqn(0));
        assert!(last.is_before(first) && first.is_after(last));
        assert_eq!(last.next(), first);
        assert_eq!(first.previous(), last);
        assert_eq!(first.distance_from(last), 1);
        assert_eq!(last + 5, Sqn(4));
        assert_eq!(Sqn(4) - 5, last);
    }

    #[test]
    fn opposite_numbers_are_in_no_order() {
        let (a, b) = (Sqn(7), Sqn(7 + (1 << 31)));
        assert_eq!(a.distance_from(b), i32::MIN);
        assert!(!a.is_before(b) && !a.is_after(b) && !b.is_before(a) && !b.is_after(a));
    }

    #[test]
    fn extension_never_leaves_64_bits() {
        assert_eq!(Sqn(u32::MAX).extend(0), u64::from(u32::MAX));
        assert_eq!(Sqn(u32::MAX).extend(1 << 32), (1 << 32) - 1);
        assert_eq!(Sqn(0).extend(u64::MAX), u64::MAX - u64::from(u32::MAX));
        assert_eq!(Sqn(3).extend((1 << 33) - 1), (1 << 33) + 3);
        assert_eq!(Sqn(1 << 31).extend(1 << 32), (1 << 32) - (1 << 31));
    }
}
