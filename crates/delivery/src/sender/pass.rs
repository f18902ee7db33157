//! Decides which ranges a pass sends to everybody, and which go to single receivers over their
//! connections.
//!
//! ```text
//!   r1  [####)      [####)
//!   r2     [####)                  wanted by more than `few`:  everybody, once
//!   r3     [##)            [##)    wanted by at most `few`:    those who want it, over TCP
//! ```
//!
//! **Spec**: `docs/src/protocol.md` section 6.

use std::ops::Range;

use wire::object::ObjectId;

use crate::RangeSet;

/// A set of ranges for each object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Needs([RangeSet; OBJECTS]);

/// Number of the objects that belong to a manifest: the manifest itself, content and seals.
pub(super) const OBJECTS: usize = 3;

impl Needs {
    pub(super) fn new(ranges_max: usize) -> Self {
        let empty = || RangeSet::new(ranges_max);
        Self([empty(), empty(), empty()])
    }

    /// Returns the ranges of an object; `None` when `object` is not below [`OBJECTS`].
    pub(super) fn of_mut(&mut self, object: ObjectId) -> Option<&mut RangeSet> {
        self.0.get_mut(object.0 as usize)
    }

    pub(super) fn of(&self, object: ObjectId) -> &RangeSet {
        &self.0[object.0 as usize]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(RangeSet::is_empty)
    }

    /// Replaces the ranges of an object of a manifest.
    pub(super) fn set(&mut self, object: ObjectId, ranges: RangeSet) {
        self.0[object.0 as usize] = ranges;
    }

    /// Removes a range of an object.
    pub(super) fn remove(&mut self, object: ObjectId, range: Range<u64>) {
        self.0[object.0 as usize].remove_always(range);
    }

    /// Returns true when some position of an object is in both `self` and `other`.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| {
            a.iter().any(|range| {
                b.first_from(range.start)
                    .is_some_and(|hit| hit.start < range.end)
            })
        })
    }

    pub(super) fn clear(&mut self) {
        self.0.iter_mut().for_each(RangeSet::clear);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(RangeSet::bytes).sum()
    }

    /// Returns the first range from `place` on, and its object. Objects come in order.
    pub(super) fn next_after(&self, place: Place) -> Option<(ObjectId, Range<u64>)> {
        let objects = (0..).zip(&self.0).skip(place.object.0 as usize);
        objects
            .filter_map(|(number, set)| {
                let object = ObjectId(number);
                let from = if object == place.object {
                    place.offset
                } else {
                    0
                };
                let range = set.first_from(from)?;
                Some((object, range))
            })
            .next()
    }
}

/// A place in the objects of a manifest: everything before it has been dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) object: ObjectId,
    pub(super) offset: u64,
}

impl Place {
    pub(super) const START: Self = Self {
        object: ObjectId::MANIFEST,
        offset: 0,
    };
}

/// Divides what receivers want. Ranges that more than `few` of them want are sent to all. The rest
/// is sent only to those who want it, to each alone.
///
/// **Shape**: `wanted` has one set for each receiver, and `Division::lone` one for each in the same
/// order.
/// **Cost**: sorts all ends of all ranges.
pub(super) fn split(wanted: &[&RangeSet], few: usize, ranges_max: usize) -> Division {
    let mut ends: Vec<(u64, bool)> = Vec::new();
    for set in wanted {
        for range in set.iter() {
            ends.push((range.start, true));
            ends.push((range.end, false));
        }
    }
    ends.sort_unstable();
    let mut common = Vec::new();
    let (mut count, mut since) = (0_usize, 0);
    for (at, is_start) in ends {
        let was_common = count > few;
        count = if is_start { count + 1 } else { count - 1 };
        match (was_common, count > few) {
            (false, true) => since = at,
            (true, false) if since < at => common.push(since..at),
            _ => {}
        }
    }
    let len = common.last().map_or(0, |range: &Range<u64>| range.end);
    let common = RangeSet::covering(common.into_iter(), len, ranges_max);
    let mut ranges_omitted = 0;
    let lone = wanted.iter().map(|set| {
        let mut left = RangeSet::new(ranges_max);
        ranges_omitted += without(set, &common, &mut left);
        left
    });
    Division {
        lone: lone.collect(),
        common,
        ranges_omitted,
    }
}

/// The ranges that receivers want: `common` goes to all; `lone` has a set for each receiver alone.
#[derive(Debug)]
pub(super) struct Division {
    pub(super) common: RangeSet,
    pub(super) lone: Vec<RangeSet>,
    /// How many ranges `lone` had no room for. The receivers that lack these ranges ask for them
    /// again later.
    pub(super) ranges_omitted: u64,
}

/// Puts into `left` the ranges of `set` that are not in `other`. Returns the number of ranges that
/// had no room in `left`.
fn without(set: &RangeSet, other: &RangeSet, left: &mut RangeSet) -> u64 {
    let mut omitted = 0;
    let mut keep = |range: Range<u64>| omitted += u64::from(left.insert(range, |_| {}).is_err());
    for range in set.iter() {
        let mut at = range.start;
        while let Some(cut) = other.first_from(at).filter(|cut| cut.start < range.end) {
            keep(at..cut.start);
            at = cut.end.min(range.end);
            if at == range.end {
                break;
            }
        }
        keep(at..range.end);
    }
    omitted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(ranges: &[(u64, u64)]) -> RangeSet {
        let mut set = RangeSet::new(100);
        for &(start, end) in ranges {
            set.insert(start..end, |_| {}).unwrap();
        }
        set
    }

    #[test]
    fn ranges_that_find_no_room_are_counted() {
        let wanted = set(&[(0, 1), (2, 3), (4, 5), (6, 7)]);
        let division = split(&[&wanted], 1, 3);
        assert!(division.lone[0].iter().eq([0..1, 2..3, 4..5]));
        assert_eq!(division.ranges_omitted, 1);
    }

    #[test]
    fn what_few_want_goes_to_them_alone() {
        let (a, b, c) = (set(&[(0, 10)]), set(&[(5, 15), (30, 40)]), set(&[(8, 12)]));
        let Division { common, lone, .. } = split(&[&a, &b, &c], 1, 100);
        assert_eq!(common, set(&[(5, 12)]));
        assert_eq!(lone, [set(&[(0, 5)]), set(&[(12, 15), (30, 40)]), set(&[])]);
        let all = split(&[&a, &b, &c], 0, 100).common;
        assert_eq!(all, set(&[(0, 15), (30, 40)]));
    }

    #[test]
    fn places_go_over_the_objects_in_order() {
        let mut needs = Needs::new(10);
        needs
            .of_mut(ObjectId::CONTENT)
            .unwrap()
            .insert(5..9, |_| {})
            .unwrap();
        needs
            .of_mut(ObjectId::SEALS)
            .unwrap()
            .insert(0..3, |_| {})
            .unwrap();
        assert!(needs.of_mut(ObjectId(3)).is_none());
        assert_eq!(
            needs.next_after(Place::START),
            Some((ObjectId::CONTENT, 5..9))
        );
        let (object, offset) = (ObjectId::CONTENT, 7);
        assert_eq!(
            needs.next_after(Place { object, offset }),
            Some((object, 7..9))
        );
        let offset = 9;
        assert_eq!(
            needs.next_after(Place { object, offset }),
            Some((ObjectId::SEALS, 0..3))
        );
    }

    proptest! {
        #[test]
        fn everybody_gets_what_they_want_and_nothing_twice(
            wanted in proptest::collection::vec(
                proptest::collection::vec((0..64_u64, 1..9_u64), 0..6), 1..6),
            few in 0..4_usize,
        ) {
            let bits = |set: &RangeSet| set.iter().flatten().fold(0_u128, |b, at| b | 1 << at);
            let sets: Vec<_> = wanted.iter().map(|ranges| {
                let mut set = RangeSet::new(100);
                for &(start, len) in ranges {
                    set.insert(start..start + len, |_| {}).unwrap();
                }
                set
            }).collect();
            let Division { common, lone, .. } = split(&sets.iter().collect::<Vec<_>>(), few, 100);
            for (set, alone) in sets.iter().zip(&lone) {
                prop_assert_eq!(bits(alone), bits(set) & !bits(&common));
            }
            for at in 0..80 {
                let count = sets.iter().filter(|set| bits(set) >> at & 1 == 1).count();
                prop_assert_eq!(bits(&common) >> at & 1 == 1, count > few);
            }
        }
    }
}
