//! Hashes a slab while its bytes come in any order.
//!
//! A slab is divided into groups of chunks; each group is a subtree of the hash tree. A group is
//! hashed at once if all its bytes come in order before another group begins. At the end, the owner
//! of the bytes reads back the groups that are not hashed yet: mostly those around gaps.

use std::{cmp::Ordering, ops::Range};

use super::{Hash, Slab, SlabHash, SlabHasher, hash};

/// The hashes of one slab, as far as they are known.
///
/// **Cost**: 33 bytes for each group, and the bytes of one group: 16 KiB or, for a slab above 16
/// MiB, less than 1/512 of the slab.
#[derive(Debug)]
pub struct SlabGroups {
    slab: Slab,
    shift: u8,
    /// The witness (hash of the subtree) of each group; `None` until the group is hashed.
    groups: Vec<Option<Hash>>,
    /// The file's root hash, once the slab is hashed, if the slab is a whole file of one group.
    root: Option<Hash>,
    open: Open,
}

/// The group whose bytes are being gathered. The group is hashed once it is complete. Hashing it
/// piece by piece would take several times as long.
#[derive(Debug, Default)]
struct Open {
    group: usize,
    /// The bytes that have come, from the beginning of the group on.
    bytes: Vec<u8>,
}

impl SlabGroups {
    /// Makes the state of a slab of which nothing is hashed yet.
    #[must_use]
    pub fn new(slab: Slab) -> Self {
        let mut shift = GROUP_SHIFT;
        while slab.len.div_ceil(1 << shift) > GROUPS_MAX {
            shift += 1;
        }
        let groups = slab.len.div_ceil(1 << shift) as usize;
        Self {
            slab,
            shift,
            groups: vec![None; groups],
            root: None,
            open: Open::default(),
        }
    }

    /// Returns the slab.
    #[must_use]
    pub const fn slab(&self) -> &Slab {
        &self.slab
    }

    /// Takes bytes of the slab; in the content, they begin at the position `at`. Bytes given later
    /// replace earlier ones at the same position.
    ///
    /// **Panics**: when the bytes reach beyond the slab.
    pub fn update(&mut self, mut at: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (group, range) = self.group_at(at);
            let len = (range.end - at).min(bytes.len() as u64);
            let (piece, rest) = bytes.split_at(usize::try_from(len).expect("within a group"));
            self.take(group, &range, at, piece);
            at += len;
            bytes = rest;
        }
    }

    /// Returns the first range whose bytes are not hashed yet. [`SlabGroups::update`] must get
    /// these bytes in order.
    #[must_use]
    pub fn missing(&self) -> Option<Range<u64>> {
        let first = self.groups.iter().position(Option::is_none)?;
        let known = self.groups[first..].iter().position(Option::is_some);
        let end = known.map_or(self.slab.range().end, |len| self.start_of(first + len));
        let mut start = self.start_of(first);
        if self.open.group == first {
            start += self.open.bytes.len() as u64;
        }
        Some(start..end)
    }

    /// Returns the slab's hashes; `None` while a group is not hashed yet.
    #[must_use]
    pub fn finish(&self) -> Option<SlabHash> {
        let witnesses: Option<Vec<Hash>> = self.groups.iter().copied().collect();
        let (witnesses, len) = (witnesses?.concat(), u64::from(self.slab.len));
        let is_merged = self.slab.is_whole_file && self.groups.len() > 1;
        let merged = is_merged.then(|| hash::merged_root(&witnesses, len, self.shift));
        Some(SlabHash {
            witness: hash::subtree(&witnesses, len, self.shift),
            root: merged.or(self.root),
        })
    }

    /// Takes a piece that lies in one group.
    fn take(&mut self, group: usize, range: &Range<u64>, at: u64, piece: &[u8]) {
        self.groups[group] = None;
        let len = range.end - range.start;
        if at == range.start {
            self.open.group = group;
            self.open.bytes.clear();
            if piece.len() as u64 == len {
                self.hash(group, range, piece);
                return;
            }
            let len = usize::try_from(len).expect("a group is in memory");
            self.open.bytes.reserve_exact(len);
        }
        if group != self.open.group {
            return;
        }
        match at.cmp(&(range.start + self.open.bytes.len() as u64)) {
            Ordering::Less => self.open.bytes.clear(),
            Ordering::Equal => self.open.bytes.extend_from_slice(piece),
            Ordering::Greater => {}
        }
        if self.open.bytes.len() as u64 == len {
            let mut bytes = std::mem::take(&mut self.open.bytes);
            self.hash(group, range, &bytes);
            bytes.clear();
            self.open.bytes = bytes;
        }
    }

    fn hash(&mut self, group: usize, range: &Range<u64>, bytes: &[u8]) {
        let file_offset = self.slab.file_offset + (range.start - self.slab.start);
        let is_whole_file = self.slab.is_whole_file && self.groups.len() == 1;
        let mut hasher = SlabHasher::new(file_offset, is_whole_file);
        hasher.update(bytes);
        let SlabHash { witness, root } = hasher.finish();
        (self.groups[group], self.root) = (Some(witness), root);
    }

    fn group_at(&self, at: u64) -> (usize, Range<u64>) {
        let slab = self.slab.range();
        assert!(slab.contains(&at), "byte {at} is not in {slab:?}");
        let group = usize::try_from((at - slab.start) >> self.shift).expect("2^10 at most");
        (
            group,
            self.start_of(group)..self.start_of(group + 1).min(slab.end),
        )
    }

    const fn start_of(&self, group: usize) -> u64 {
        self.slab.start + ((group as u64) << self.shift)
    }
}

/// Log2 of a group's length in bytes. Such a group is long enough for a processor's vector units,
/// and short enough to read back cheaply around a gap. A slab above 16 MiB has larger groups.
const GROUP_SHIFT: u8 = 14;
/// The most groups of a slab. This bounds a search for missing ranges, which looks at the groups.
const GROUPS_MAX: u32 = 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Entry, Manifest, ManifestLimits};

    const GROUP_BYTES: u64 = 1 << GROUP_SHIFT;

    /// Makes a manifest of two files, the second of `size` bytes, and returns it with its content.
    fn sample(size: u64) -> (Manifest, Vec<u8>) {
        let entries = vec![Entry::file("pad", 7), Entry::file("x", size)];
        let manifest = Manifest::build([0; 16], entries, &ManifestLimits::default()).unwrap();
        let bytes = (0..manifest.content_bytes()).map(|at| (at * 31 + at / 997) as u8);
        let bytes = bytes.collect();
        (manifest, bytes)
    }

    fn place(range: &Range<u64>) -> Range<usize> {
        usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()
    }

    fn part<'a>(bytes: &'a [u8], range: &Range<u64>) -> &'a [u8] {
        &bytes[place(range)]
    }

    /// Gives `groups` what it lacks from `bytes`, at most `step` bytes at a time. Returns how many
    /// bytes that was.
    fn read_back(groups: &mut SlabGroups, bytes: &[u8], step: u64) -> u64 {
        let mut read = 0;
        while let Some(missing) = groups.missing() {
            let range = missing.start..missing.end.min(missing.start + step);
            groups.update(range.start, part(bytes, &range));
            read += range.end - range.start;
        }
        read
    }

    fn hash_of(slab: &Slab, bytes: &[u8]) -> Option<SlabHash> {
        let mut hasher = slab.hasher();
        hasher.update(part(bytes, &slab.range()));
        Some(hasher.finish())
    }

    #[test]
    fn in_order_nothing_is_missing_in_the_end() {
        for size in [1, 16_383, 16_384, 16_385, 100_000, 1 << 20, (1 << 20) + 1] {
            let (manifest, bytes) = sample(size);
            for index in 0..manifest.slab_count() {
                let slab = manifest.slab(index);
                let mut groups = SlabGroups::new(slab);
                assert_eq!(groups.finish(), None);
                let range = slab.range();
                for at in range.clone().step_by(1_400) {
                    groups.update(at, part(&bytes, &(at..range.end.min(at + 1_400))));
                }
                assert_eq!(groups.missing(), None);
                assert_eq!(groups.finish(), hash_of(&slab, &bytes), "{size} bytes");
            }
        }
    }

    #[test]
    fn groups_are_longer_in_a_long_slab() {
        let slab = |len| Slab {
            index: 0,
            file: 0,
            start: 0,
            file_offset: 0,
            len,
            is_whole_file: false,
        };
        assert_eq!(SlabGroups::new(slab(16 << 20)).groups.len(), 1024);
        assert_eq!(SlabGroups::new(slab((16 << 20) + 1)).groups.len(), 513);
        assert_eq!(SlabGroups::new(slab(1 << 30)).groups.len(), 1024);
        let long = slab((16 << 20) + 1);
        let bytes: Vec<u8> = (0..long.len).map(|at| (at * 31 + at / 997) as u8).collect();
        let mut groups = SlabGroups::new(long);
        groups.update(50_000, &bytes[50_000..90_000]);
        read_back(&mut groups, &bytes, 300_000);
        assert_eq!(groups.finish(), hash_of(&long, &bytes));
    }

    #[test]
    fn a_gap_costs_the_groups_it_touches() {
        let (manifest, bytes) = sample(1 << 20);
        let slab = manifest.slab(1);
        let mut groups = SlabGroups::new(slab);
        let range = slab.range();
        // One packet across the border of two groups, repaired later.
        let lost = range.start + 3 * GROUP_BYTES - 100..range.start + 3 * GROUP_BYTES + 1_300;
        groups.update(range.start, part(&bytes, &(range.start..lost.start)));
        groups.update(lost.end, part(&bytes, &(lost.end..range.end)));
        groups.update(lost.start, part(&bytes, &lost));
        assert_eq!(groups.finish(), None);
        let border = range.start + 3 * GROUP_BYTES;
        let touched = border - GROUP_BYTES..border + GROUP_BYTES;
        assert_eq!(groups.missing(), Some(touched));
        assert_eq!(read_back(&mut groups, &bytes, 1 << 20), 2 * GROUP_BYTES);
        assert_eq!(groups.finish(), hash_of(&slab, &bytes));
    }

    proptest! {
        #[test]
        fn whatever_is_taken_the_hashes_are_of_what_is_stored_in_the_end(
            size in 1_u64..300_000,
            step in 1_000_u64..100_000,
            // Where a piece begins, its length, whether its bytes are right.
            pieces in proptest::collection::vec(
                (0_u64..300_000, 1_u64..40_000, any::<bool>()),
                0..40,
            ),
        ) {
            let (manifest, bytes) = sample(size);
            let slab = manifest.slab(1);
            let range = slab.range();
            let mut groups = SlabGroups::new(slab);
            let mut stored = bytes.clone();
            for (at, len, is_right) in pieces {
                let start = range.start + at % size;
                let piece = start..range.end.min(start + len);
                let place = place(&piece);
                let wrong: Vec<u8> = bytes[place.clone()].iter().map(|byte| !byte).collect();
                let new = if is_right { &bytes[place.clone()] } else { &wrong };
                stored[place].copy_from_slice(new);
                groups.update(piece.start, new);
            }
            let read = read_back(&mut groups, &stored, step);
            // Each byte is read at most once, except those gathered for one group.
            prop_assert!(read <= size + GROUP_BYTES);
            prop_assert_eq!(groups.finish(), hash_of(&slab, &stored));
        }
    }
}
