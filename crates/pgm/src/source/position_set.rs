//! A set of positions that lie within one window of each other.
//!
//! The set knows only positions, no packets or times. In: positions that enter and leave. Out: the
//! lowest position from a given position on. A position is in the set at most once, so repeated
//! requests for one packet's repair do not make the set grow.
//!
//! ```text
//!   summary  1 bit per word     [..1...]
//!   words    1 bit per position [0000][0110][0000]   position modulo capacity
//! ```
//!
//! Invariant: any two positions in the set are less than `capacity` apart. The owner makes the
//! capacity large enough for its transmit log.

/// A set of positions in a window of fixed capacity.
///
/// **Cost**: about one bit for each position, allocated once. Insertion is O(1). A search looks at
/// two words for each 4096 positions that are not in the set.
#[derive(Debug)]
pub(super) struct PositionSet {
    words: Vec<u64>,
    summary: Vec<u64>,
    mask: u64,
    len: u64,
    oldest: u64,
    end: u64,
}

impl PositionSet {
    /// Makes a set for positions within `capacity` (a power of two, at least 64) of each other.
    pub(super) fn new(capacity: u64) -> Self {
        assert!(
            capacity.is_power_of_two() && capacity >= 64,
            "the capacity of a set of positions is a power of two from 64 on"
        );
        let words = (capacity / 64) as usize;
        Self {
            words: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
            mask: capacity - 1,
            len: 0,
            oldest: u64::MAX,
            end: 0,
        }
    }

    /// Adds a position. Returns false when the set had it already.
    pub(super) fn insert(&mut self, position: u64) -> bool {
        let (word, bit) = self.locate(position);
        if self.words[word] & bit != 0 {
            return false;
        }
        self.words[word] |= bit;
        self.summary[word / 64] |= 1 << (word % 64);
        self.len += 1;
        self.oldest = self.oldest.min(position);
        self.end = self.end.max(position + 1);
        true
    }

    /// Takes a position out, if the set has it.
    pub(super) fn remove(&mut self, position: u64) {
        let (word, bit) = self.locate(position);
        if self.len == 0 || self.words[word] & bit == 0 {
            return;
        }
        self.words[word] &= !bit;
        if self.words[word] == 0 {
            self.summary[word / 64] &= !(1 << (word % 64));
        }
        self.len -= 1;
        if self.len == 0 {
            (self.oldest, self.end) = (u64::MAX, 0);
        } else if position == self.oldest {
            self.oldest = self
                .next_from(position + 1)
                .expect("a set that is not empty has an oldest position");
        }
    }

    /// Takes every position out.
    pub(super) fn clear(&mut self) {
        self.words.fill(0);
        self.summary.fill(0);
        (self.len, self.oldest, self.end) = (0, u64::MAX, 0);
    }

    /// Returns true when the set has the position.
    pub(super) fn contains(&self, position: u64) -> bool {
        let (word, bit) = self.locate(position);
        self.words[word] & bit != 0
    }

    /// Returns the lowest position in the set from `from` on.
    pub(super) fn next_from(&self, from: u64) -> Option<u64> {
        let mut at = from.max(self.oldest);
        while at < self.end {
            let (word, _) = self.locate(at);
            let rest = self.words[word] >> (at % 64);
            if rest != 0 {
                // A bit found at or beyond `end` belongs to a position that is lower by one
                // capacity, so it is below `from`.
                let found = at + u64::from(rest.trailing_zeros());
                return (found < self.end).then_some(found);
            }
            at = self.skip_empty_words((at | 63) + 1);
        }
        None
    }

    /// Returns the first position of the first non-empty word from `at` on; `at` is the first
    /// position of a word. Looks at only one word of the summary. If all words that this
    /// summary word covers are empty, returns the first position that the next one covers.
    fn skip_empty_words(&self, at: u64) -> u64 {
        let (word, _) = self.locate(at);
        let rest = self.summary[word / 64] >> (word % 64);
        if rest != 0 {
            return at + 64 * u64::from(rest.trailing_zeros());
        }
        // A summary word covers 4096 positions. A smaller set uses a part of its only summary word.
        let last = self.mask.min(4095);
        (at | last) + 1
    }

    /// Returns the lowest position, `u64::MAX` for an empty set.
    #[inline]
    pub(super) const fn oldest(&self) -> u64 {
        self.oldest
    }

    /// Returns true when the set is empty.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of positions.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    const fn locate(&self, position: u64) -> (usize, u64) {
        let slot = position & self.mask;
        ((slot / 64) as usize, 1 << (slot % 64))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use base::Rng;

    use super::*;

    #[test]
    fn it_agrees_with_a_plain_set() {
        for (seed, capacity) in [(1, 64), (2, 4096), (3, 16_384), (4, 1 << 20)] {
            let mut rng = Rng::new(seed);
            let mut queue = PositionSet::new(capacity);
            let mut model = BTreeSet::new();
            let mut base = (1 << 32) - 3 * capacity;
            for _ in 0..4000 {
                let position = base + rng.below(capacity);
                match rng.below(4) {
                    0 => {
                        queue.remove(position);
                        model.remove(&position);
                    }
                    1 => {
                        // The window moves on: everything below leaves.
                        base += rng.below(capacity / 8 + 1);
                        while let Some(&old) = model.first().filter(|&&old| old < base) {
                            queue.remove(old);
                            model.remove(&old);
                        }
                    }
                    _ => assert_eq!(queue.insert(position), model.insert(position)),
                }
                assert_eq!(queue.len(), model.len() as u64);
                assert_eq!(queue.is_empty(), model.is_empty());
                assert_eq!(queue.oldest(), model.first().copied().unwrap_or(u64::MAX));
                assert_eq!(queue.contains(position), model.contains(&position));
                let expected = model.range(position..).next().copied();
                assert_eq!(queue.next_from(position), expected);
            }
        }
    }
}
