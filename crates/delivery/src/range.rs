//! Sets of byte ranges, for bytes that are held, missing, or to be sent.
//!
//! ```text
//!   0        10       20       30       40
//!   |  [#####)        [########)   [####)      ranges: ascending, not empty, not touching
//! ```
//!
//! Invariants: ranges ascend, none is empty, and no two touch or overlap. `bytes` is the sum of
//! their lengths. There are at most `ranges_max` ranges, plus one for each
//! [`RangeSet::remove_always`].

use std::ops::Range;

/// A set of byte positions as sorted, disjoint ranges.
///
/// **Cost**: an insert that extends the last range, as for data in order, takes constant time. Any
/// other insert or removal takes a binary search, and may move all ranges behind its place. Memory:
/// 16 bytes for each range, bounded by `ranges_max`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeSet {
    ranges: Vec<Range<u64>>,
    ranges_max: usize,
    bytes: u64,
}

/// The error of an insert or a removal that would give the set more ranges than it may have. The
/// set is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRanges;

impl RangeSet {
    /// Makes an empty set of at most `ranges_max` ranges.
    #[must_use]
    pub const fn new(ranges_max: usize) -> Self {
        Self {
            ranges: Vec::new(),
            ranges_max,
            bytes: 0,
        }
    }

    /// Makes the set of the positions `0..len`.
    #[must_use]
    pub fn whole(len: u64, ranges_max: usize) -> Self {
        let mut set = Self::new(ranges_max);
        if len > 0 {
            set.ranges.push(0..len);
            set.bytes = len;
        }
        set
    }

    /// Adds a range; `on_new` gets each part that was not in the set, in ascending order.
    ///
    /// # Errors
    /// When the set is full and the range touches nothing in it. The range is then not added.
    #[inline]
    pub fn insert(
        &mut self,
        range: Range<u64>,
        mut on_new: impl FnMut(Range<u64>),
    ) -> Result<(), TooManyRanges> {
        if range.is_empty() {
            return Ok(());
        }
        if let Some(last) = self.ranges.last_mut()
            && last.end == range.start
        {
            last.end = range.end;
            self.bytes += range.end - range.start;
            on_new(range);
            return Ok(());
        }
        self.insert_anywhere(range, &mut on_new)
    }

    fn insert_anywhere(
        &mut self,
        range: Range<u64>,
        on_new: &mut dyn FnMut(Range<u64>),
    ) -> Result<(), TooManyRanges> {
        // The ranges from `first` up to `behind`, exclusive, overlap or touch the new one.
        let first = self.ranges.partition_point(|known| known.end < range.start);
        let behind = self
            .ranges
            .partition_point(|known| known.start <= range.end);
        if first >= behind {
            if self.ranges.len() >= self.ranges_max {
                return Err(TooManyRanges);
            }
            self.bytes += range.end - range.start;
            self.ranges.insert(first, range.clone());
            on_new(range);
            return Ok(());
        }
        let mut at = range.start;
        for known in &self.ranges[first..behind] {
            if at < known.start {
                self.bytes += known.start - at;
                on_new(at..known.start);
            }
            at = at.max(known.end);
        }
        if at < range.end {
            self.bytes += range.end - at;
            on_new(at..range.end);
        }
        let start = range.start.min(self.ranges[first].start);
        let end = range.end.max(self.ranges[behind - 1].end);
        self.ranges[first] = start..end;
        self.ranges.drain(first + 1..behind);
        Ok(())
    }

    /// Removes a range.
    ///
    /// # Errors
    /// When the set is full and the removal would split one of its ranges. Nothing is then removed.
    pub fn remove(&mut self, range: Range<u64>) -> Result<(), TooManyRanges> {
        let is_full = self.ranges.len() >= self.ranges_max;
        self.take_out(range, is_full)
    }

    /// Removes a range even from a full set, for bytes that must not stay. Each such removal may
    /// add one range beyond `ranges_max`. Until the set has fewer than `ranges_max` ranges again,
    /// it takes only ranges that touch or overlap one of its own.
    pub fn remove_always(&mut self, range: Range<u64>) {
        let _is_out = self.take_out(range, false).is_ok();
    }

    fn take_out(&mut self, range: Range<u64>, is_full: bool) -> Result<(), TooManyRanges> {
        if range.is_empty() {
            return Ok(());
        }
        let first = self
            .ranges
            .partition_point(|known| known.end <= range.start);
        let behind = self.ranges.partition_point(|known| known.start < range.end);
        if first >= behind {
            return Ok(());
        }
        let left = self.ranges[first].start..range.start;
        let right = range.end..self.ranges[behind - 1].end;
        let kept = [left, right]
            .into_iter()
            .filter(|part| part.start < part.end);
        let grows = behind - first == 1 && kept.clone().count() == 2;
        if grows && is_full {
            return Err(TooManyRanges);
        }
        let removed: u64 = self.ranges[first..behind].iter().map(len).sum();
        self.bytes -= removed;
        self.bytes += kept.clone().map(|part| len(&part)).sum::<u64>();
        self.ranges.splice(first..behind, kept);
        Ok(())
    }

    /// Returns true when every position of `range` is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, range: &Range<u64>) -> bool {
        if range.is_empty() {
            return true;
        }
        // Most data comes in order, so it starts at or after the start of the last range: look
        // there first.
        match self.ranges.last() {
            None => return false,
            Some(last) if last.start <= range.start => return range.end <= last.end,
            Some(_) => {}
        }
        let at = self.ranges.partition_point(|known| known.end < range.end);
        self.ranges
            .get(at)
            .is_some_and(|known| known.start <= range.start)
    }

    /// Returns the range that contains `position`, cut to begin there. If no range does, returns
    /// the first range after `position`, if any.
    #[must_use]
    pub fn first_from(&self, position: u64) -> Option<Range<u64>> {
        let at = self.ranges.partition_point(|known| known.end <= position);
        let known = self.ranges.get(at)?;
        Some(known.start.max(position)..known.end)
    }

    /// Returns the ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + Clone + '_ {
        self.ranges.iter().cloned()
    }

    /// Returns the positions of `0..len` that are not in the set, in ascending order.
    pub fn missing(&self, len: u64) -> impl Iterator<Item = Range<u64>> + Clone + '_ {
        self.missing_in(0..len)
    }

    /// Returns the positions of `range` that are not in the set, in ascending order.
    #[inline]
    pub fn missing_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + Clone + '_ {
        let Range { start, end } = range;
        // Most data comes in order, so it lies after all ranges.
        let first = match self.ranges.last() {
            Some(last) if start < last.end => {
                self.ranges.partition_point(|known| known.end <= start)
            }
            _ => self.ranges.len(),
        };
        let inside = self.ranges[first..]
            .iter()
            .take_while(move |known| known.start < end);
        let starts = [start]
            .into_iter()
            .chain(inside.clone().map(|known| known.end));
        let ends = inside.map(|known| known.start).chain([end]);
        starts
            .zip(ends)
            .map(|(start, end)| start..end)
            .filter(|gap| gap.start < gap.end)
    }

    /// Returns how many ranges there are.
    #[must_use]
    pub const fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// Returns how many positions are in the set.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true when the set has no position.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.bytes = 0;
    }

    /// Builds a set of at most `ranges_max` ranges that covers `ranges`, which must ascend. When
    /// there are too many, it widens them until few enough are left. Starts and ends then move
    /// outwards, to multiples of a power of two. No end goes beyond `len`. A `ranges_max` of 0
    /// counts as 1.
    #[must_use]
    pub fn covering(
        ranges: impl Iterator<Item = Range<u64>> + Clone,
        len: u64,
        ranges_max: usize,
    ) -> Self {
        let mut shift = 0;
        loop {
            let grain = (1_u64 << shift) - 1;
            let mut set = Self::new(ranges_max.max(1));
            let coarse = ranges.clone().map(|range| {
                let end = range
                    .end
                    .checked_add(grain)
                    .map_or(len, |end| (end & !grain).min(len));
                range.start & !grain..end
            });
            let mut fits = true;
            for range in coarse {
                fits &= set.insert(range, |_| {}).is_ok();
                if !fits {
                    break;
                }
            }
            if fits {
                return set;
            }
            shift += 1;
        }
    }
}

const fn len(range: &Range<u64>) -> u64 {
    range.end - range.start
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SPACE: u64 = 64;

    fn bits(set: &RangeSet) -> u64 {
        set.iter().flatten().fold(0, |bits, at| bits | 1 << at)
    }

    fn mask(range: Range<u64>) -> u64 {
        range.fold(0, |bits, at| bits | 1 << at)
    }

    fn check(set: &RangeSet) {
        let ranges: Vec<_> = set.iter().collect();
        assert!(ranges.iter().all(|range| range.start < range.end));
        assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        assert!(ranges.len() <= set.ranges_max);
        assert_eq!(set.bytes(), u64::from(bits(set).count_ones()));
    }

    proptest! {
        #[test]
        fn behaves_as_a_bitmap(
            operations in proptest::collection::vec((any::<bool>(), 0..SPACE, 0..12_u64), 0..60),
            ranges_max in 1..20_usize,
        ) {
            let mut set = RangeSet::new(ranges_max);
            let mut model = 0_u64;
            for (is_insert, start, len) in operations {
                let range = start..(start + len).min(SPACE);
                let before = set.clone();
                if is_insert {
                    let mut news = 0;
                    let inserted = set.insert(range.clone(), |part| {
                        prop_assert_ne_ok(part.start, part.end);
                        news |= mask(part);
                    });
                    if inserted.is_ok() {
                        prop_assert_eq!(news, mask(range.clone()) & !model);
                        model |= mask(range.clone());
                    } else {
                        prop_assert_eq!(&set, &before);
                        prop_assert_eq!(set.range_count(), ranges_max);
                    }
                } else if set.remove(range.clone()).is_ok() {
                    model &= !mask(range.clone());
                } else {
                    prop_assert_eq!(&set, &before);
                }
                check(&set);
                prop_assert_eq!(bits(&set), model);
                let missing = set.missing(SPACE).fold(0, |all, part| all | mask(part));
                prop_assert_eq!(missing, !model);
                let missing = set.missing_in(range.clone()).fold(0, |all, part| all | mask(part));
                prop_assert_eq!(missing, mask(range.clone()) & !model);
                let probe = mask(range.clone());
                prop_assert_eq!(set.contains(&range), model & probe == probe);
            }
        }

        #[test]
        fn a_covering_covers_within_its_bound(
            ranges in proptest::collection::vec((0..SPACE, 1..5_u64), 0..30),
            ranges_max in 1..8_usize,
        ) {
            let mut exact = RangeSet::new(1000);
            for (start, len) in ranges {
                exact.insert(start..(start + len).min(SPACE), |_| {}).unwrap();
            }
            let cover = RangeSet::covering(exact.iter(), SPACE, ranges_max);
            check(&cover);
            prop_assert_eq!(bits(&cover) & bits(&exact), bits(&exact));
            if exact.range_count() <= ranges_max {
                prop_assert_eq!(bits(&cover), bits(&exact));
            }
        }
    }

    fn prop_assert_ne_ok(a: u64, b: u64) {
        assert_ne!(a, b, "an empty part was reported as new");
    }

    #[test]
    fn what_must_go_goes_out_of_a_full_set() {
        let mut set = RangeSet::whole(30, 1);
        assert_eq!(set.remove(10..20), Err(TooManyRanges));
        set.remove_always(10..20);
        assert!(set.iter().eq([0..10, 20..30]));
        assert_eq!(set.insert(40..50, |_| {}), Err(TooManyRanges));
        set.insert(10..20, |_| {}).unwrap();
        assert_eq!((set.range_count(), set.bytes()), (1, 30));
    }

    #[test]
    fn the_far_end_of_the_space_does_not_overflow() {
        let mut set = RangeSet::new(4);
        set.insert(u64::MAX - 5..u64::MAX, |_| {}).unwrap();
        set.insert(0..3, |_| {}).unwrap();
        assert!(set.missing(u64::MAX).eq(std::iter::once(3..u64::MAX - 5)));
        let cover = RangeSet::covering(set.iter(), u64::MAX, 1);
        assert!(cover.iter().eq(std::iter::once(0..u64::MAX)));
    }
}
