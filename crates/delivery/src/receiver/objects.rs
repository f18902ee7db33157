//! What a receiver holds of its manifest's three objects.
//!
//! ```text
//!   manifest  bytes in memory until whole, then checked against the manifest id
//!   content   ranges only; the bytes are in the store. Slabs: lacking -> asked -> computed -> good
//!   seals     bytes in memory until whole, then checked against their hash
//! ```
//!
//! Invariants: `slabs[i].lacking` is the number of bytes of slab `i` that `held` does not have; a
//! slab is `Good` only when the sender's seal equals the seal of the stored slab, or says that the
//! slab is withdrawn.
//!
//! **Spec**: `docs/src/protocol.md` sections 1 and 7.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use crate::{HASH_LEN, Hash, Manifest, RangeSet, SlabHash, SlabHashes, WITHDRAWN, hash_bytes};

/// Bytes of an object that is held in memory.
#[derive(Debug)]
pub(super) struct Bytes {
    bytes: Vec<u8>,
    held: RangeSet,
    /// The bytes were complete once, and did not match the expected hash.
    was_wrong: bool,
}

impl Bytes {
    /// Makes room for `len` bytes; the caller has checked `len` against its limits.
    pub(super) fn new(len: usize, ranges_max: usize) -> Self {
        Self {
            bytes: vec![0; len],
            held: RangeSet::new(ranges_max),
            was_wrong: false,
        }
    }

    /// Keeps a piece, and returns `Some(true)`. Returns `None` when the piece reaches beyond the
    /// object, and `Some(false)` when it was held already or the set of ranges has no room for it.
    pub(super) fn put(&mut self, offset: u64, piece: &[u8]) -> Option<bool> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(piece.len())?;
        let place = self.bytes.get_mut(start..end)?;
        let range = offset..offset + piece.len() as u64;
        // Once complete, the bytes are checked, so blocks that come later must not change them.
        if self.held.contains(&range) {
            return Some(false);
        }
        if self.held.insert(range, |_| {}).is_err() {
            return Some(false);
        }
        place.copy_from_slice(piece);
        Some(true)
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn is_whole(&self) -> bool {
        self.held.bytes() == self.len()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        self.held.clear();
        std::mem::take(&mut self.bytes)
    }

    pub(super) fn discard(&mut self) {
        self.held.clear();
    }

    /// Discards bytes that do not match the expected hash.
    pub(super) fn reject(&mut self) {
        self.discard();
        self.was_wrong = true;
    }

    pub(super) const fn was_wrong(&self) -> bool {
        self.was_wrong
    }

    pub(super) const fn held(&self) -> &RangeSet {
        &self.held
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.len() + range_bytes(&self.held)
    }
}

/// The content and its seals.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) manifest: Arc<Manifest>,
    pub(super) held: RangeSet,
    slabs: Vec<SlabState>,
    /// The hashes that the store computed.
    pub(super) hashes: SlabHashes,
    pub(super) seals: Bytes,
    seals_hash: Option<Hash>,
    are_seals_good: bool,
    pub(super) verified_bytes: u64,
    good: u32,
    /// Complete slabs that the store has not yet been asked to hash.
    unasked: Vec<u32>,
    /// How many slabs the store is hashing.
    asked: u32,
    /// For each slab whose hash was wrong: how often it was wrong.
    bad: BTreeMap<u32, u8>,
    /// Numbers of the withdrawn slabs for which `held` had no room.
    unnoted: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct SlabState {
    lacking: u32,
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Lacking,
    Asked,
    Computed,
    Good,
}

/// The result of comparing a slab with its seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// There is nothing to compare: the slab's hash or its seal is not known yet, or the two were
    /// compared before.
    Open,
    Good,
    /// The hash was wrong this many times, so the slab must be fetched again.
    Bad(u8),
}

impl Contents {
    /// Makes the contents of a receiver that holds nothing yet. The caller has checked the number
    /// of the manifest's slabs against the limits.
    pub(super) fn new(manifest: Arc<Manifest>, ranges_max: usize) -> Self {
        let slabs = (0..manifest.slab_count()).map(|index| SlabState {
            lacking: manifest.slab(index).len,
            step: Step::Lacking,
        });
        let seals_len = manifest.slab_count() as usize * HASH_LEN;
        Self {
            held: RangeSet::new(ranges_max),
            slabs: slabs.collect(),
            hashes: SlabHashes::unknown(&manifest),
            seals: Bytes::new(seals_len, ranges_max),
            seals_hash: None,
            are_seals_good: seals_len == 0,
            verified_bytes: 0,
            good: 0,
            unasked: Vec::new(),
            asked: 0,
            bad: BTreeMap::new(),
            unnoted: Vec::new(),
            manifest,
        }
    }

    /// Returns how many bytes of memory the manifest, slabs, seals and ranges take. The store's
    /// memory does not count.
    pub(super) fn memory_bytes(&self) -> usize {
        let slabs = self.slabs.len() * size_of::<SlabState>() + self.hashes.memory_bytes();
        let manifest = self.manifest.bytes().len();
        manifest + slabs + self.seals.memory_bytes() + range_bytes(&self.held)
    }

    /// Notes that the store has the bytes of a range. Returns false when `held` has no room for the
    /// range, which then counts as lacking.
    pub(super) fn note(&mut self, range: Range<u64>) -> bool {
        let Self {
            held,
            slabs,
            manifest,
            unasked,
            ..
        } = self;
        let noted = held.insert(range, |new| {
            let mut at = new.start;
            while at < new.end {
                let slab = manifest.slab_at(at);
                let stop = slab.range().end.min(new.end);
                let state = &mut slabs[slab.index as usize];
                let part = u32::try_from(stop - at).expect("part of a slab");
                state.lacking -= part;
                if state.lacking == 0 {
                    unasked.push(slab.index);
                }
                at = stop;
            }
        });
        noted.is_ok()
    }

    /// Returns true when the hash of a slab with bytes in this range was wrong before.
    pub(super) fn was_wrong(&self, range: Range<u64>) -> bool {
        if self.bad.is_empty() || range.is_empty() {
            return false;
        }
        let first = self.manifest.slab_at(range.start).index;
        let last = self.manifest.slab_at(range.end - 1).index;
        self.bad.range(first..=last).next().is_some()
    }

    /// Returns a complete slab that the store should hash next.
    pub(super) fn next_unasked(&self) -> Option<u32> {
        self.unasked.last().copied()
    }

    /// Notes that the store took the request for the slab of [`Contents::next_unasked`].
    pub(super) fn asked(&mut self) {
        if let Some(slab) = self.unasked.pop() {
            self.slabs[slab as usize].step = Step::Asked;
            self.asked += 1;
        }
    }

    /// Takes a slab's hashes, which the store has computed.
    pub(super) fn computed(&mut self, slab: u32, hash: &SlabHash) -> Compared {
        let Some(state) = self.slabs.get_mut(slab as usize) else {
            return Compared::Open;
        };
        if state.step != Step::Asked {
            return Compared::Open;
        }
        self.asked -= 1;
        state.step = Step::Computed;
        self.hashes.set(&self.manifest.slab(slab), hash);
        self.compare(slab)
    }

    /// Compares a slab's hash with its seal, when both are known.
    pub(super) fn compare(&mut self, slab: u32) -> Compared {
        let at = slab as usize * HASH_LEN;
        let place = at..at + HASH_LEN;
        if self.are_seals_good && self.seals.bytes()[place.clone()] == WITHDRAWN {
            return self.forgo(slab);
        }
        let state = &mut self.slabs[slab as usize];
        if !self.are_seals_good || state.step != Step::Computed {
            return Compared::Open;
        }
        let slab_at = self.manifest.slab(slab);
        if self.hashes.seal(slab) == self.seals.bytes()[place] {
            state.step = Step::Good;
            self.good += 1;
            self.verified_bytes += u64::from(slab_at.len);
            return Compared::Good;
        }
        let times = self.bad.entry(slab).or_default();
        *times = times.saturating_add(1);
        let times = *times;
        // The removal may add a range beyond the bound of `held`, but at most one for each slab,
        // and the number of slabs is bounded.
        self.held.remove_always(slab_at.range());
        state.step = Step::Lacking;
        state.lacking = slab_at.len;
        Compared::Bad(times)
    }

    /// Counts a withdrawn slab as held and right, because nobody will send it.
    fn forgo(&mut self, slab: u32) -> Compared {
        let place = self.manifest.slab(slab);
        let state = &mut self.slabs[slab as usize];
        match state.step {
            Step::Computed => {}
            Step::Lacking if state.lacking > 0 => {
                if self.held.insert(place.range(), |_| {}).is_err() {
                    self.unnoted.push(slab);
                    return Compared::Open;
                }
                state.lacking = 0;
            }
            // A complete slab is counted later, once the store has computed its hash; a good slab
            // was counted before.
            Step::Lacking | Step::Asked | Step::Good => return Compared::Open,
        }
        state.step = Step::Good;
        self.good += 1;
        self.verified_bytes += u64::from(place.len);
        Compared::Good
    }

    /// Tries again to add to `held` the withdrawn slabs for which it had no room before.
    pub(super) fn note_withdrawn(&mut self) {
        for slab in std::mem::take(&mut self.unnoted) {
            self.compare(slab);
        }
    }

    /// Sets the length and hash that the seals must have. Returns false when the length contradicts
    /// the manifest.
    pub(super) fn expect_seals(&mut self, bytes: u64, hash: &Hash) -> bool {
        if bytes != self.manifest.seals_bytes() {
            return false;
        }
        if self.seals_hash.is_some_and(|known| known != *hash) {
            self.forget_seals();
        }
        self.seals_hash = Some(*hash);
        true
    }

    /// Forgets the seals, because the sender has others now: it has withdrawn a file, or was
    /// restarted and found other content. Every slab is compared again.
    fn forget_seals(&mut self) {
        self.seals.discard();
        self.are_seals_good = self.seals.len() == 0;
        (self.verified_bytes, self.good) = (0, 0);
        for state in self
            .slabs
            .iter_mut()
            .filter(|state| state.step == Step::Good)
        {
            state.step = Step::Computed;
        }
    }

    /// Checks the seals once they are complete. Returns `Some(false)` when they were wrong and were
    /// discarded, and `None` when there is nothing to check.
    pub(super) fn check_seals(&mut self) -> Option<bool> {
        let hash = self.seals_hash?;
        if self.are_seals_good || !self.seals.is_whole() {
            return None;
        }
        self.are_seals_good = hash_bytes(self.seals.bytes()) == hash;
        if !self.are_seals_good {
            self.seals.reject();
        }
        Some(self.are_seals_good)
    }

    pub(super) const fn are_seals_good(&self) -> bool {
        self.are_seals_good
    }

    /// Returns true when every byte of the content is held, and the seals are complete and right.
    pub(super) fn is_whole(&self) -> bool {
        self.held.bytes() == self.manifest.content_bytes() && self.are_seals_good
    }

    pub(super) fn is_verified(&self) -> bool {
        self.are_seals_good && self.good == self.manifest.slab_count()
    }

    /// Returns true when no complete slab waits for its hash.
    pub(super) fn is_quiet(&self) -> bool {
        self.asked == 0 && self.unasked.is_empty()
    }
}

fn range_bytes(ranges: &RangeSet) -> usize {
    ranges.range_count() * size_of::<Range<u64>>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, memory::MemoryContent};

    /// The hashes of a slab that has this witness.
    fn hash(witness: u8) -> SlabHash {
        SlabHash {
            witness: [witness; 32],
            root: None,
        }
    }

    /// The seals of `slabs` slabs, each with this witness.
    fn seals(slabs: usize, witness: u8) -> Vec<u8> {
        let files = (0..slabs).map(|n| Entry::file(&format!("{n}"), 1));
        let (manifest, _) = MemoryContent::generate(files.collect(), [0; 16], 1).unwrap();
        let mut hashes = SlabHashes::unknown(&manifest);
        (0..manifest.slab_count()).for_each(|n| hashes.set(&manifest.slab(n), &hash(witness)));
        let mut seals = vec![0; 32 * slabs];
        hashes.copy_seals(0, &mut seals);
        seals
    }

    #[test]
    fn a_block_over_many_small_files_completes_all_their_slabs() {
        let entries = (0..50)
            .map(|n| Entry::file(&format!("{n:02}"), n % 3))
            .collect();
        let (manifest, _) = MemoryContent::generate(entries, [0; 16], 1).unwrap();
        let slabs = manifest.slab_count();
        let len = manifest.content_bytes();
        let mut contents = Contents::new(manifest, 10);
        assert!(contents.note(1..len));
        assert!(contents.note(0..2));
        let mut asked = 0;
        while contents.next_unasked().is_some() {
            contents.asked();
            asked += 1;
        }
        assert_eq!(asked, slabs);
    }

    #[test]
    fn wrong_seals_are_discarded_and_wrong_slabs_lacked_again() {
        let (manifest, _) = MemoryContent::generate(vec![Entry::file("a", 9)], [0; 16], 1).unwrap();
        let mut contents = Contents::new(manifest, 10);
        assert!(contents.note(0..9));
        contents.asked();
        assert_eq!(contents.computed(0, &hash(7)), Compared::Open);
        assert!(!contents.expect_seals(31, &[0; 32]));
        assert!(contents.expect_seals(32, &hash_bytes(&seals(1, 8))));
        assert_eq!(contents.seals.put(0, &seals(1, 9)), Some(true));
        assert_eq!(contents.check_seals(), Some(false));
        assert_eq!(contents.seals.put(0, &seals(1, 8)), Some(true));
        assert_eq!(contents.check_seals(), Some(true));
        assert_eq!(contents.compare(0), Compared::Bad(1));
        assert!(!contents.is_whole() && contents.held.is_empty());
        assert!(contents.note(0..9));
        contents.asked();
        assert_eq!(contents.computed(0, &hash(8)), Compared::Good);
        assert!(contents.is_verified() && contents.is_whole());
        assert_eq!(contents.verified_bytes, 9);
    }

    #[test]
    fn a_wrong_slab_is_lacked_again_though_no_range_is_left_to_note_it() {
        let entries = ["a", "b", "c"].map(|name| Entry::file(name, 9)).to_vec();
        let (manifest, _) = MemoryContent::generate(entries, [0; 16], 1).unwrap();
        let mut contents = Contents::new(manifest, 1);
        let seals = seals(3, 8);
        assert!(contents.expect_seals(96, &hash_bytes(&seals)));
        assert_eq!(contents.seals.put(0, &seals), Some(true));
        assert_eq!(contents.check_seals(), Some(true));
        assert!(contents.note(0..27));
        while contents.next_unasked().is_some() {
            contents.asked();
        }
        assert_eq!(contents.computed(1, &hash(7)), Compared::Bad(1));
        assert!(contents.held.missing(27).eq(std::iter::once(9..18)));
        assert!(contents.note(9..18));
        assert_eq!(contents.next_unasked(), Some(1));
        contents.asked();
        assert_eq!(contents.computed(1, &hash(8)), Compared::Good);
    }

    #[test]
    fn memory_objects_take_no_piece_beyond_their_end_and_no_change() {
        let mut bytes = Bytes::new(4, 4);
        assert_eq!(bytes.put(3, &[1, 2]), None);
        assert_eq!(bytes.put(u64::MAX, &[1]), None);
        assert_eq!(bytes.put(0, &[1, 2]), Some(true));
        assert_eq!(bytes.put(0, &[9, 9]), Some(false));
        assert_eq!(bytes.put(2, &[3, 4]), Some(true));
        assert_eq!(bytes.take(), [1, 2, 3, 4]);
    }
}
