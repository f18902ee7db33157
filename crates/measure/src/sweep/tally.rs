//! Counts the datagrams of a trial that came: each once, however late and however often it comes.
//!
//! ```text
//!   numbers      0 ......... | base ........ base + WINDOW |
//!                 forgotten      one bit each                 moves the window on
//! ```
//! A number behind the window counts as not seen before. A datagram gets there only when 65,536
//! others overtake it. The memory is 8 KiB in any case.

/// A count of datagrams by number.
#[derive(Clone, Debug)]
pub struct Tally {
    bits: Vec<u64>,
    /// One beyond the greatest number that was seen.
    end: u64,
    received: u64,
    duplicates: u64,
    out_of_order: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

impl Tally {
    /// Makes a tally that has seen no datagram.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bits: vec![0; WORDS],
            end: 0,
            received: 0,
            duplicates: 0,
            out_of_order: 0,
        }
    }

    /// Takes a datagram's number; true when it was not seen before.
    pub fn take(&mut self, sequence: u64) -> bool {
        if sequence >= self.end {
            self.advance(sequence);
        } else {
            self.out_of_order += 1;
            if self.end - sequence <= WINDOW && self.is_set(sequence) {
                self.out_of_order -= 1;
                self.duplicates += 1;
                return false;
            }
        }
        self.set(sequence);
        self.received += 1;
        true
    }

    /// Returns how many different datagrams came.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Returns how many datagrams came again.
    #[must_use]
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Returns how many datagrams came after one with a greater number.
    #[must_use]
    pub const fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// Clears the bits of the numbers that enter the window.
    fn advance(&mut self, sequence: u64) {
        if sequence - self.end >= WINDOW {
            self.bits.fill(0);
        } else {
            for entering in self.end..=sequence {
                let (word, bit) = place(entering);
                self.bits[word] &= !bit;
            }
        }
        self.end = sequence.saturating_add(1);
    }

    fn is_set(&self, sequence: u64) -> bool {
        let (word, bit) = place(sequence);
        self.bits[word] & bit != 0
    }

    fn set(&mut self, sequence: u64) {
        // A number behind the window has no bit any more.
        if self.end - sequence <= WINDOW {
            let (word, bit) = place(sequence);
            self.bits[word] |= bit;
        }
    }
}

const fn place(sequence: u64) -> (usize, u64) {
    let at = sequence % WINDOW;
    ((at / 64) as usize, 1 << (at % 64))
}

const WINDOW: u64 = 65_536;
const WORDS: usize = (WINDOW / 64) as usize;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gaps_repetitions_and_the_greatest_number() {
        let mut tally = Tally::new();
        let fresh = [0, 1, 3, 3, 2, 200_000, 199_999, 200_000].map(|n| tally.take(n));
        assert_eq!(fresh, [true, true, true, false, true, true, true, false]);
        assert_eq!((tally.received(), tally.duplicates()), (6, 2));
        assert_eq!(tally.out_of_order(), 2);
        assert!(tally.take(u64::MAX - 1) && !tally.take(u64::MAX - 1));
    }

    proptest! {
        #[test]
        fn within_the_window_it_counts_as_a_set_does(
            numbers in proptest::collection::vec(0..WINDOW, 0..400),
        ) {
            let (mut tally, mut seen) = (Tally::new(), BTreeSet::new());
            for &number in &numbers {
                prop_assert_eq!(tally.take(number), seen.insert(number));
            }
            prop_assert_eq!(tally.received(), seen.len() as u64);
            prop_assert_eq!(tally.duplicates(), (numbers.len() - seen.len()) as u64);
        }
    }
}
