//! The window of packet numbers taken before; it slides with the highest number.

/// The window's length. A number that is this far below the highest number, or further, counts as
/// taken before. Packets overtake each other by less.
pub(super) const SPAN: u64 = 1024;

/// The numbers of one end's packets that another end has taken.
///
/// **Spec**: the anti-replay window of RFC 4303 section 3.4.3, with [`SPAN`] places.
#[derive(Clone, Debug)]
pub(super) struct ReplayWindow {
    /// One past the highest number taken.
    next: u64,
    /// A bit for each of the [`SPAN`] numbers below `next`, at the place `number % SPAN`.
    taken: [u64; WORDS],
}

const WORDS: usize = (SPAN / 64) as usize;

impl ReplayWindow {
    pub(super) const fn new() -> Self {
        Self {
            next: 0,
            taken: [0; WORDS],
        }
    }

    /// Takes a number. Returns false when it was taken before, is too old to tell, or is
    /// `u64::MAX`.
    pub(super) fn take(&mut self, number: u64) -> bool {
        if number == u64::MAX || self.next.saturating_sub(number) > SPAN {
            return false;
        }
        let (word, bit) = (number / 64 % WORDS as u64, 1 << (number % 64));
        if number >= self.next {
            let skipped = (number - self.next).min(SPAN);
            for free in number - skipped..=number {
                self.taken[(free / 64 % WORDS as u64) as usize] &= !(1 << (free % 64));
            }
            self.next = number + 1;
        } else if self.taken[word as usize] & bit != 0 {
            return false;
        }
        self.taken[word as usize] |= bit;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_number_is_taken_once_in_any_order() {
        let mut window = ReplayWindow::new();
        for number in [5, 3, 4, 0] {
            assert!(window.take(number), "{number}");
            assert!(!window.take(number), "{number} again");
        }
        assert!(window.take(SPAN + 5));
        assert!(!window.take(5), "too old to tell");
        assert!(window.take(7), "late, but within the window");
        assert!(!window.take(u64::MAX));
        assert!(window.take(u64::MAX - 1) && !window.take(u64::MAX - 1));
    }

    proptest! {
        #[test]
        fn nothing_is_taken_twice(steps in proptest::collection::vec(0_u64..3 * SPAN, 1..400)) {
            let (mut window, mut seen, mut highest) = (ReplayWindow::new(), BTreeSet::new(), 0);
            for number in steps {
                let is_new = seen.insert(number);
                let is_taken = window.take(number);
                prop_assert!(is_new || !is_taken, "{number} twice");
                let is_old = number + SPAN <= highest;
                prop_assert!(!is_new || is_taken || is_old, "{number} is refused");
                highest = highest.max(number);
            }
        }
    }
}
