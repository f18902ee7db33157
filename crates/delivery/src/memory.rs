//! Content and stores in memory, for simulations and tests.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    task::Poll,
};

use wire::object::ErrorCode;

use crate::{
    Content, ContentError, Entry, Manifest, ManifestError, ManifestLimits, RangeSet, Slab,
    SlabHash, SlabHashes, Store, StoreEvent,
};

/// A manifest's content, held in memory.
#[derive(Clone, Debug)]
pub struct MemoryContent {
    bytes: Vec<u8>,
    /// Reading fails from this content position to the end of the file at that position, as if that
    /// file had been cut short.
    pub fails_at: Option<u64>,
    /// The file at this content position is being fetched, until this is `None` again.
    pub comes_at: Option<u64>,
    /// `fails_at` has no effect before this many bytes were read.
    pub fails_after_bytes: u64,
    withdrawn: BTreeSet<usize>,
    /// Bytes read so far.
    pub bytes_read: u64,
}

impl MemoryContent {
    /// Makes a manifest of `entries`, and random content for it, drawn from `seed`.
    ///
    /// # Errors
    /// When no manifest can be made of the entries.
    pub fn generate(
        entries: Vec<Entry>,
        identity: [u8; 16],
        seed: u64,
    ) -> Result<(Arc<Manifest>, Self), ManifestError> {
        let manifest = Manifest::build(identity, entries, &ManifestLimits::default())?;
        let len =
            usize::try_from(manifest.content_bytes()).map_err(|_| ManifestError::ContentTooLong)?;
        let mut bytes = vec![0; len];
        base::Rng::new(seed).fill(&mut bytes);
        Ok((Arc::new(manifest), Self::new(bytes)))
    }

    /// Makes content of these bytes.
    #[must_use]
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            fails_at: None,
            fails_after_bytes: 0,
            comes_at: None,
            withdrawn: BTreeSet::new(),
            bytes_read: 0,
        }
    }

    /// Returns all bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Computes the hashes of all slabs of `manifest`, whose content this is.
    #[must_use]
    pub fn hashes(&self, manifest: &Manifest) -> SlabHashes {
        let mut hashes = SlabHashes::unknown(manifest);
        for slab in (0..manifest.slab_count()).map(|index| manifest.slab(index)) {
            hashes.set(&slab, &hash_of(&slab, &self.bytes));
        }
        hashes
    }
}

impl Content for MemoryContent {
    fn read(
        &mut self,
        manifest: &Manifest,
        offset: u64,
        out: &mut [u8],
    ) -> Result<Poll<()>, ContentError> {
        let changed = || {
            ContentError::new(
                ErrorCode::SourceChanged,
                "the content is shorter than its manifest says",
            )
        };
        let start = usize::try_from(offset).map_err(|_| changed())?;
        let end = start.checked_add(out.len()).ok_or_else(changed)?;
        let bytes = self.bytes.get(start..end).ok_or_else(changed)?;
        let comes_at = self.comes_at.unwrap_or(u64::MAX);
        for (index, _, range) in manifest.pieces(offset..end as u64) {
            let file = &manifest.files()[index];
            if (file.start..range.end).contains(&comes_at) {
                return Ok(Poll::Pending);
            }
            let mut fails_at = self.fails_at.iter();
            let is_due = self.bytes_read >= self.fails_after_bytes;
            let fails = fails_at.any(|&at| (file.start..range.end).contains(&at));
            if fails && is_due && !self.withdrawn.contains(&index) {
                return Err(changed().of_file(index));
            }
        }
        out.copy_from_slice(bytes);
        self.bytes_read += out.len() as u64;
        for &index in &self.withdrawn {
            let file = &manifest.files()[index];
            let from = file.start.clamp(offset, end as u64) - offset;
            let to = (file.start + file.size_bytes).clamp(offset, end as u64) - offset;
            let at = |position| usize::try_from(position).expect("within the bytes read");
            out[at(from)..at(to)].fill(0);
        }
        Ok(Poll::Ready(()))
    }

    /// Reads only a part of one file. It refuses a range that spans files or covers a whole file,
    /// as if a disk had to open the file first.
    fn read_cached(&mut self, manifest: &Manifest, offset: u64, out: &mut [u8]) -> bool {
        let mut pieces = manifest.pieces(offset..offset + out.len() as u64);
        let (Some((index, ..)), None) = (pieces.next(), pieces.next()) else {
            return false;
        };
        let is_part = (out.len() as u64) < manifest.files()[index].size_bytes;
        is_part
            && !self.withdrawn.contains(&index)
            && self.read(manifest, offset, out) == Ok(Poll::Ready(()))
    }

    fn withdraw(&mut self, file: usize) {
        self.withdrawn.insert(file);
    }
}

/// Hashes a slab of `content`.
fn hash_of(slab: &Slab, content: &[u8]) -> SlabHash {
    let start = usize::try_from(slab.start).expect("it fits in memory");
    let mut hasher = slab.hasher();
    hasher.update(&content[start..start + slab.len as usize]);
    hasher.finish()
}

/// A store in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    manifest: Option<Arc<Manifest>>,
    bytes: Vec<u8>,
    events: VecDeque<StoreEvent>,
    is_committed: bool,
    /// The faults that the store shows, for tests.
    pub faults: StoreFaults,
    /// Bytes that are held from the beginning, by their position in the content, as in a resumed
    /// transfer. [`StoreEvent::Prepared`] tells their ranges.
    pub resumed: BTreeMap<u64, Vec<u8>>,
    /// Bytes written so far.
    pub bytes_written: u64,
    writes: u64,
    /// The indexes of the files that the hanging commit leaves out; `None` while no commit hangs.
    hanging: Option<Vec<usize>>,
    /// How many more polls must find no event before the store is no longer behind; 0 when it is
    /// not behind.
    behind_polls: u32,
}

/// The faults of a [`MemoryStore`].
#[derive(Clone, Debug, Default)]
pub struct StoreFaults {
    /// `prepare` fails with this code.
    pub prepare: Option<ErrorCode>,
    /// `prepare` takes this many polls, as on a disk that makes room slowly.
    pub prepare_polls: u32,
    /// `commit` fails with this code.
    pub commit: Option<ErrorCode>,
    /// One write in this many is refused, as if a queue were full; the store is then behind until
    /// two polls have found no event. With 0, no write is refused.
    pub full_every: u64,
    /// While this is set, the store says that it is behind, so the sender should pause.
    pub is_behind: bool,
    /// While this is set, `commit` does not end, as on a disk that hangs.
    pub commit_hangs: bool,
    /// The next hashes, this many, are wrong, as if the disk had flipped a bit.
    pub hashes_wrong: u64,
}

impl MemoryStore {
    /// Returns the content; `None` before it is committed.
    #[must_use]
    pub fn committed(&self) -> Option<&[u8]> {
        self.is_committed.then_some(&self.bytes)
    }

    /// Returns the bytes written or resumed so far, with zeros elsewhere.
    #[must_use]
    pub fn staged(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the manifest that the store was given.
    #[must_use]
    pub const fn manifest(&self) -> Option<&Arc<Manifest>> {
        self.manifest.as_ref()
    }

    fn fail(&mut self, code: ErrorCode) {
        let text = code.to_string();
        self.events.push_back(StoreEvent::Failed { code, text });
    }
}

impl Store for MemoryStore {
    fn prepare(&mut self, manifest: &Arc<Manifest>) {
        if let Some(code) = self.faults.prepare {
            return self.fail(code);
        }
        self.bytes = vec![0; usize::try_from(manifest.content_bytes()).expect("it fits in memory")];
        let mut held = RangeSet::new(1 << 16);
        for (&offset, bytes) in &self.resumed {
            let start = usize::try_from(offset).expect("it fits in memory");
            self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
            let end = offset + bytes.len() as u64;
            held.insert(offset..end, |_| {})
                .expect("few ranges are resumed");
        }
        self.manifest = Some(Arc::clone(manifest));
        self.events.push_back(StoreEvent::Prepared { held });
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> bool {
        self.writes += 1;
        if self.faults.full_every > 0 && self.writes.is_multiple_of(self.faults.full_every) {
            self.behind_polls = 2;
            return false;
        }
        let start = usize::try_from(offset).expect("it fits in memory");
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.bytes_written += bytes.len() as u64;
        true
    }

    fn is_behind(&self) -> bool {
        self.faults.is_behind || self.behind_polls > 0
    }

    fn hash_slab(&mut self, slab: u32) -> bool {
        let manifest = self
            .manifest
            .as_ref()
            .expect("a store hashes after it was prepared");
        let mut hash = hash_of(&manifest.slab(slab), &self.bytes);
        if self.faults.hashes_wrong > 0 {
            self.faults.hashes_wrong -= 1;
            hash.witness[0] ^= 1;
        }
        self.events.push_back(StoreEvent::Hashed { slab, hash });
        true
    }

    fn commit(&mut self, withdrawn: &[usize]) {
        if let Some(code) = self.faults.commit {
            return self.fail(code);
        }
        if self.faults.commit_hangs {
            self.hanging = Some(withdrawn.to_vec());
            return;
        }
        for &index in withdrawn {
            let files = self.manifest.iter().map(|manifest| manifest.files()[index]);
            for file in files {
                let start = usize::try_from(file.start).expect("it fits in memory");
                let size = usize::try_from(file.size_bytes).expect("it fits in memory");
                self.bytes[start..start + size].fill(0);
            }
        }
        self.is_committed = true;
        self.events.push_back(StoreEvent::Committed);
    }

    fn abandon(&mut self) {
        self.hanging = None;
        self.events.clear();
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        let is_prepared = matches!(self.events.front(), Some(StoreEvent::Prepared { .. }));
        if is_prepared && self.faults.prepare_polls > 0 {
            self.faults.prepare_polls -= 1;
            return None;
        }
        if !self.faults.commit_hangs
            && let Some(withdrawn) = self.hanging.take()
        {
            self.commit(&withdrawn);
        }
        if self.events.is_empty() {
            self.behind_polls = self.behind_polls.saturating_sub(1);
        }
        self.events.pop_front()
    }
}
