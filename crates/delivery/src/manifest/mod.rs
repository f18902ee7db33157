//! A manifest: what one transfer delivers, and how its bytes are numbered.
//!
//! A manifest holds names, sizes and positions; it opens no file. The sender makes a manifest from
//! a list of entries; a receiver reads it from bytes. Both make the same checks, so a receiver with
//! the same limits as the sender can read every manifest that the sender makes.
//!
//! ```text
//!   object 0   manifest          header, entries in depth-first order, owners, attributes
//!   object 1   content           | file a | file b | ...    one 64-bit byte space, no gaps
//!   object 2   seals             | slab 0 | slab 1 | ...    32 bytes each
//!   slabs                        a file is cut every 2^shift bytes; no slab spans two files
//! ```
//!
//! Invariants: every path is relative and has no `..`. Its parent is a directory of the manifest,
//! unless the path is at the top. No path comes twice. Every symbolic link leads to a place inside
//! the tree. Every hard link names a file that comes before the link. `files` ascend by `start`.
//!
//! **Spec**: `docs/src/protocol.md` sections 1 and 4.

use std::{fmt, ops::Range};

use wire::object::{AttributesRef, EntryRef, ManifestHeader, ManifestRef, OwnersRef, Sections};

mod attributes;
pub use attributes::Attribute;

mod check;
pub use check::{ManifestError, ManifestLimits, PathFault, check_link, path_order};

mod entry;
pub use entry::{Entry, Owner};

mod owners;
pub use owners::OwnerNames;

mod groups;
pub use groups::SlabGroups;

mod hash;
pub use hash::{HASH_LEN, Hash, SlabHash, SlabHasher, WITHDRAWN, hash_bytes};

mod hashes;
pub use hashes::SlabHashes;

/// What one transfer delivers.
#[derive(Debug)]
pub struct Manifest {
    id: ManifestId,
    bytes: Vec<u8>,
    header: ManifestHeader,
    /// The position in `bytes` at which each entry begins.
    entries: Vec<u32>,
    files: Vec<File>,
    /// The further names of files, ascending by file, then by entry.
    hard_links: Vec<HardLink>,
    slab_count: u32,
}

/// A manifest's name: the first 128 bits of the hash of its bytes. The sender's identity is among
/// these bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ManifestId(pub [u8; 16]);

/// A regular file's place in the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Index of the file's entry in the manifest.
    pub entry: u32,
    /// Position of the file's first byte in the content.
    pub start: u64,
    /// The file's length in bytes; may be 0.
    pub size_bytes: u64,
    /// How many slabs all files before this one have together. If this file is not empty, this is
    /// the number of its first slab.
    pub first_slab: u32,
}

/// Another name of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HardLink {
    /// Index in [`Manifest::files`] of the file with this further name.
    pub file: u32,
    /// Index of the further name's entry in the manifest.
    pub entry: u32,
}

/// A piece of a file, with a hash of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slab {
    /// The slab's number.
    pub index: u32,
    /// Index in [`Manifest::files`] of the file that the slab belongs to.
    pub file: u32,
    /// Position of the slab's first byte in the content.
    pub start: u64,
    /// Position of the slab's first byte in the file.
    pub file_offset: u64,
    /// The slab's length in bytes; at least 1.
    pub len: u32,
    /// The slab is the whole file, so its hasher also gives the file's root.
    pub is_whole_file: bool,
}

impl Manifest {
    /// Makes a manifest of `entries`, which may come in any order.
    ///
    /// # Errors
    /// See [`ManifestError`]. [`ManifestError::Path`] names the entry.
    pub fn build(
        identity: [u8; 16],
        entries: Vec<Entry>,
        limits: &ManifestLimits,
    ) -> Result<Self, ManifestError> {
        Self::build_with(0, &OwnerNames::default(), identity, entries, limits)
    }

    /// Makes a manifest as [`Manifest::build`] does. `flags` go into its header; `names` are the
    /// names of the users and groups that own entries.
    ///
    /// # Errors
    /// See [`ManifestError`]. [`ManifestError::Path`] names the entry.
    pub fn build_with(
        flags: u16,
        names: &OwnerNames,
        identity: [u8; 16],
        mut entries: Vec<Entry>,
        limits: &ManifestLimits,
    ) -> Result<Self, ManifestError> {
        entries.sort_by(|a, b| path_order(&a.path, &b.path));
        let total = entries
            .iter()
            .try_fold(0_u64, |sum, entry| sum.checked_add(entry.size_bytes));
        let content_bytes = total.ok_or(ManifestError::ContentTooLong)?;
        for entry in &entries {
            let lengths = [
                (entry.path.len(), PathFault::TooLong),
                (entry.target.len(), PathFault::TargetTooLong),
            ];
            let is_long = |(len, _): &(usize, PathFault)| *len > check::PATH_LEN_MAX;
            if let Some((_, fault)) = lengths.into_iter().find(is_long) {
                return Err(ManifestError::path(&entry.path, fault));
            }
        }
        let header = ManifestHeader {
            slab_shift: SLAB_SHIFT,
            flags,
            entry_count: 0,
            content_bytes,
            identity,
        };
        let mut manifest = Vec::new();
        let (owners, attributes) = (names.section(&entries)?, attributes::section(&entries)?);
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let owners = owners.as_deref().map(|body| OwnersRef::parse(body, count));
        let attributes = attributes
            .as_deref()
            .map(|body| AttributesRef::parse(body, count));
        let sections = Sections {
            owners: owners.transpose()?,
            attributes: attributes.transpose()?,
        };
        let listed = entries.iter().map(Entry::as_ref);
        ManifestRef::emit(&mut manifest, &header, listed, sections);
        // When there are more slabs than allowed, larger slabs are tried.
        for shift in SLAB_SHIFT..=SLAB_SHIFT_MAX {
            manifest[SLAB_SHIFT_AT] = shift;
            match check::check(manifest, limits) {
                Err((ManifestError::TooManySlabs { .. }, bytes)) if shift < SLAB_SHIFT_MAX => {
                    manifest = bytes;
                }
                done => return done.map_err(|(error, _)| error),
            }
        }
        unreachable!("the last shift returns whatever it gives")
    }

    /// Takes a manifest from its bytes, which may be hostile.
    ///
    /// # Errors
    /// See [`ManifestError`]. The bytes are then dropped.
    pub fn from_bytes(bytes: Vec<u8>, limits: &ManifestLimits) -> Result<Self, ManifestError> {
        check::check(bytes, limits).map_err(|(error, _)| error)
    }

    /// Computes the id of these bytes without parsing them.
    #[must_use]
    pub fn id_of(bytes: &[u8]) -> ManifestId {
        let hash = hash_bytes(bytes);
        let (id, _) = hash.split_at(16);
        ManifestId(id.try_into().expect("half of a hash is 16 bytes"))
    }

    /// Returns the manifest's name.
    #[must_use]
    pub const fn id(&self) -> ManifestId {
        self.id
    }

    /// Returns the bytes of object 0.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns true when the header has a flag, such as [`ManifestHeader::INCOMPLETE`].
    #[must_use]
    pub const fn has_flag(&self, flag: u16) -> bool {
        self.header.flags & flag != 0
    }

    /// Returns what the sender says of all entries: who owns them, and their extended attributes.
    ///
    /// **Cost**: reads the whole manifest once.
    #[must_use]
    pub fn sections(&self) -> Sections<'_> {
        let manifest = ManifestRef::parse(&self.bytes).expect("it was read when it was made");
        manifest.sections()
    }

    /// Returns the size of object 1, the content, in bytes.
    #[must_use]
    pub const fn content_bytes(&self) -> u64 {
        self.header.content_bytes
    }

    /// Returns the size of object 2, the seals, in bytes.
    #[must_use]
    pub const fn seals_bytes(&self) -> u64 {
        self.slab_count as u64 * HASH_LEN as u64
    }

    /// Returns the number of entries.
    #[must_use]
    pub const fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// Returns an entry by its index.
    ///
    /// **Panics** (bug): when there is no such entry.
    #[must_use]
    pub fn entry(&self, index: usize) -> EntryRef<'_> {
        let at = self.entries[index] as usize;
        ManifestRef::entry_at(&self.bytes, at)
            .expect("every entry was read when the manifest was made")
    }

    /// Returns all entries; a directory comes before what is in it.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = EntryRef<'_>> + ExactSizeIterator {
        (0..self.entries.len()).map(|index| self.entry(index))
    }

    /// Returns the regular files in the order of their content.
    #[must_use]
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// Returns all further names of files: ascending by file, then in the order of the entries.
    #[must_use]
    pub fn hard_links(&self) -> &[HardLink] {
        &self.hard_links
    }

    /// Returns the further names of one file; `file` is its index among [`Manifest::files`].
    #[must_use]
    pub fn hard_links_of(&self, file: usize) -> &[HardLink] {
        let links = &self.hard_links[..];
        let from = links.partition_point(|link| (link.file as usize) < file);
        let to = links.partition_point(|link| link.file as usize <= file);
        &links[from..to]
    }

    /// Returns the paths of a file, its first path first; `file` is its index among
    /// [`Manifest::files`].
    pub fn paths_of(&self, file: usize) -> impl Iterator<Item = &[u8]> {
        let links = self.hard_links_of(file).iter();
        let further = links.map(|link| self.entry(link.entry as usize).path);
        std::iter::once(self.path_of(&self.files[file])).chain(further)
    }

    /// Returns the index of the file whose first path is `path`.
    #[must_use]
    pub fn file_called(&self, path: &[u8]) -> Option<usize> {
        file_called(&self.bytes, &self.entries, &self.files, path)
    }

    /// Returns the first path of a file.
    #[must_use]
    pub fn path_of(&self, file: &File) -> &[u8] {
        self.entry(file.entry as usize).path
    }

    /// Returns the number of slabs.
    #[must_use]
    pub const fn slab_count(&self) -> u32 {
        self.slab_count
    }

    /// Returns the size of a full slab in bytes.
    #[must_use]
    pub const fn slab_bytes(&self) -> u64 {
        1 << self.header.slab_shift
    }

    /// Returns a slab by its number.
    ///
    /// **Panics** (bug): when there is no such slab.
    #[must_use]
    pub fn slab(&self, index: u32) -> Slab {
        assert!(index < self.slab_count, "a slab beyond the manifest's last");
        // Empty files have the same `first_slab` as the next file that is not empty, and come
        // before it. So the last file with a `first_slab` up to `index` holds the slab.
        let behind = self.files.partition_point(|file| file.first_slab <= index);
        self.slab_in(behind - 1, index)
    }

    /// Returns the slab that holds a position of the content.
    ///
    /// **Panics** (bug): when the position is beyond the content.
    #[must_use]
    pub fn slab_at(&self, position: u64) -> Slab {
        let file = self.file_at(position);
        let offset = position - self.files[file].start;
        let within = u32::try_from(offset >> self.header.slab_shift);
        let within = within.expect("slabs are counted in 32 bits");
        self.slab_in(file, self.files[file].first_slab + within)
    }

    /// Returns the index of the file that holds a position of the content.
    ///
    /// **Panics** (bug): when the position is beyond the content.
    #[must_use]
    pub fn file_at(&self, position: u64) -> usize {
        assert!(
            position < self.content_bytes(),
            "a position beyond the content"
        );
        self.files.partition_point(|file| file.start <= position) - 1
    }

    /// Returns the parts of files that a range of the content covers. Each part comes as the file's
    /// index, the part's offset in the file, and its range in the content. Empty files never
    /// appear.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (usize, u64, Range<u64>)> + '_ {
        let first = if range.is_empty() {
            self.files.len()
        } else {
            self.file_at(range.start)
        };
        let files = self.files[first..].iter().enumerate();
        files
            .take_while({
                let end = range.end;
                move |(_, file)| file.start < end
            })
            .filter(|(_, file)| file.size_bytes > 0)
            .map(move |(index, file)| {
                let start = range.start.max(file.start);
                let end = range.end.min(file.start + file.size_bytes);
                (first + index, start - file.start, start..end)
            })
    }

    /// Computes the root of a file: the hash that `b3sum` prints for it. `file` is its index among
    /// [`Manifest::files`].
    #[must_use]
    pub fn root_of(&self, file: usize, hashes: &SlabHashes) -> Hash {
        hashes.root_of(self, file)
    }

    /// Returns where a file's seals lie in object 2.
    pub(crate) fn seals_of(&self, file: &File) -> Range<usize> {
        let from = file.first_slab as usize * HASH_LEN;
        from..from + self.slabs_of(file) as usize * HASH_LEN
    }

    /// Returns the indices of the files that the sender has withdrawn. `seals` holds one hash for
    /// each slab: all seals (the bytes of object 2), or all witnesses.
    pub fn withdrawn(&self, seals: &[u8]) -> impl Iterator<Item = usize> {
        let files = self.files.iter().enumerate();
        files
            .filter(|(_, file)| self.is_withdrawn(file, seals))
            .map(|(index, _)| index)
    }

    /// Returns true when the sender has withdrawn at least one slab of `file`: a file is delivered
    /// only when all of it is proven. `seals` is as for [`Manifest::withdrawn`].
    #[must_use]
    pub fn is_withdrawn(&self, file: &File, seals: &[u8]) -> bool {
        let mut seals = seals[self.seals_of(file)].chunks_exact(HASH_LEN);
        seals.any(|seal| seal == WITHDRAWN)
    }

    /// Returns the number of content bytes, not counting withdrawn files.
    #[must_use]
    pub fn delivered_bytes(&self, hashes: &SlabHashes) -> u64 {
        let withdrawn = self.withdrawn(hashes.witnesses());
        self.content_bytes()
            - withdrawn
                .map(|index| self.files[index].size_bytes)
                .sum::<u64>()
    }

    /// Returns each path of each file with the file's root, file by file in the manifest's order.
    /// Withdrawn files are left out.
    pub fn file_roots<'a>(
        &'a self,
        hashes: &'a SlabHashes,
    ) -> impl Iterator<Item = (&'a [u8], Hash)> {
        let files = self.files.iter().enumerate();
        let sent = files.filter(|(_, file)| !self.is_withdrawn(file, hashes.witnesses()));
        sent.flat_map(|(index, _)| {
            let root = self.root_of(index, hashes);
            self.paths_of(index).map(move |path| (path, root))
        })
    }

    /// Computes one hash over all files. It is the BLAKE3 of the lines that `b3sum` prints for the
    /// files, sorted by the bytes of their paths. So anybody can compute it with other tools.
    /// Withdrawn files are left out. The hash covers contents and paths, but not types and modes.
    #[must_use]
    pub fn tree_root(&self, hashes: &SlabHashes) -> Hash {
        let mut hasher = blake3::Hasher::new();
        let mut line = Vec::new();
        let mut files: Vec<(&[u8], Hash)> = self.file_roots(hashes).collect();
        files.sort_unstable();
        for (path, root) in files {
            line.clear();
            write_sum_line(&mut line, &root, path);
            hasher.update(&line);
        }
        *hasher.finalize().as_bytes()
    }

    /// Returns the number of slabs of a file.
    #[must_use]
    pub fn slabs_of(&self, file: &File) -> u32 {
        let count = file.size_bytes.div_ceil(self.slab_bytes());
        u32::try_from(count).expect("slabs are counted in 32 bits")
    }

    fn slab_in(&self, file_index: usize, index: u32) -> Slab {
        let file = &self.files[file_index];
        let file_offset = u64::from(index - file.first_slab) << self.header.slab_shift;
        let len = (file.size_bytes - file_offset).min(self.slab_bytes());
        Slab {
            index,
            file: u32::try_from(file_index).expect("entries are counted in 32 bits"),
            start: file.start + file_offset,
            file_offset,
            len: u32::try_from(len).expect("a slab has at most 2^30 bytes"),
            is_whole_file: file.size_bytes <= self.slab_bytes(),
        }
    }
}

impl Slab {
    /// Returns the slab's place in the content.
    #[must_use]
    pub const fn range(&self) -> Range<u64> {
        self.start..self.start + self.len as u64
    }

    /// Makes a hasher for the slab's bytes.
    #[must_use]
    pub fn hasher(&self) -> SlabHasher {
        SlabHasher::new(self.file_offset, self.is_whole_file)
    }
}

impl fmt::Display for ManifestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Writes the line that `b3sum` prints for a file called `path`, with its line end.
///
/// The line is that of b3sum from version 1.5.5 on. Bytes that are not UTF-8 become U+FFFD. When a
/// name has a backslash, a line feed or a carriage return, these are escaped, and the line begins
/// with a backslash. Older versions do not escape carriage returns, and print the same line for all
/// other names.
pub fn write_sum_line(out: &mut Vec<u8>, root: &Hash, path: &[u8]) {
    let path = String::from_utf8_lossy(path);
    if path.contains(['\\', '\n', '\r']) {
        out.push(b'\\');
    }
    let root = blake3::Hash::from_bytes(*root);
    out.extend_from_slice(root.to_hex().as_bytes());
    out.extend_from_slice(b"  ");
    for &byte in path.as_bytes() {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            _ => out.push(byte),
        }
    }
    out.push(b'\n');
}

/// Log2 of the bytes of a full slab: 1 MiB. If this makes too many slabs, larger slabs are used.
const SLAB_SHIFT: u8 = 20;
const SLAB_SHIFT_MAX: u8 = 30;
const SLAB_SHIFT_AT: usize = 5;

/// Returns the index in `files` of the file whose first path is `path`. The files ascend by path.
/// `entries` says where in `bytes` each entry begins.
fn file_called(bytes: &[u8], entries: &[u32], files: &[File], path: &[u8]) -> Option<usize> {
    let path_of = |file: &File| {
        let at = entries[file.entry as usize] as usize;
        ManifestRef::entry_at(bytes, at).expect("it was read").path
    };
    let found = files.binary_search_by(|file| path_order(path_of(file), path));
    // `path_order` cannot tell a slash from a NUL byte. No path of a manifest has a NUL byte, but
    // `path` may.
    found.ok().filter(|&file| path_of(&files[file]) == path)
}

#[cfg(test)]
mod tests;
