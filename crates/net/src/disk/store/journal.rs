//! The record of what a staging directory holds: a file that outlives the receiver.
//!
//! An append-only file next to the staged content: a header, then one record for each range whose
//! bytes are in their files. A record is written after its bytes. So after `kill -9` every record
//! is true, because the page cache outlives the process. After a crash of the machine a record may
//! be wrong; then the hashes decide, because the receiver verifies every slab before it commits.
//! Unlike a bitmap of blocks, a log of exact ranges also covers blocks that arrived in part, and
//! every record has its own check value.
//!
//! ```text
//! header  64 B   magic 8 | version 4 | 0 4 | manifest 16 | boot 16 | content length 8 | check 8
//! record  24 B   start 8 | length 8 | check 8          all numbers little-endian
//!                start = length = 2^64-1: renaming has begun
//! ```
//!
//! Reading stops at the first record that has a wrong check value or goes beyond the content. A
//! header with a wrong check value counts as no journal, and the attempt starts from nothing.
//! Records gather in memory. They are written when they cover [`UNTOLD_BYTES_MAX`] of content, when
//! there are [`UNTOLD_RECORDS_MAX`] of them, and whenever the store has nothing else to do.

use std::{
    fs::File,
    io::{self, BufReader, Read as _},
    ops::Range,
    path::Path,
};

use delivery::{Manifest, ManifestId, RangeSet};
use sys::file::{Directory, Taken};

use super::disk::Disk;

/// A journal open for writing.
#[derive(Debug)]
pub(super) struct Journal {
    id: ManifestId,
    content_bytes: u64,
    file: File,
    len: u64,
    untold: Vec<u8>,
    untold_bytes: u64,
    rewrite_at: u64,
    is_committing: bool,
}

/// What the journal says of an earlier attempt.
#[derive(Debug)]
pub(super) struct Found {
    /// Ranges of content whose bytes the earlier attempt has put into their files.
    pub(super) held: RangeSet,
    /// The earlier attempt had begun to rename files.
    pub(super) is_committing: bool,
    /// The machine was restarted after the earlier attempt, so the held bytes may not have reached
    /// the disk.
    pub(super) is_other_boot: bool,
    content_bytes: u64,
}

impl Journal {
    /// Begins a journal that records `held`, and replaces an older journal by it. If that fails,
    /// the older journal stays.
    pub(super) fn create(
        disk: &Disk,
        place: &Directory,
        manifest: &Manifest,
        held: &RangeSet,
        is_committing: bool,
    ) -> io::Result<Self> {
        let (id, content_bytes) = (manifest.id(), manifest.content_bytes());
        let (file, len) = write_new(disk, place, id, content_bytes, held, is_committing)?;
        Ok(Self {
            id,
            content_bytes,
            file,
            len,
            untold: Vec::new(),
            untold_bytes: 0,
            rewrite_at: rewrite_at(len),
            is_committing,
        })
    }

    /// Notes that the bytes of `range` are in their files.
    pub(super) fn note(&mut self, range: &Range<u64>) {
        let len = range.end - range.start;
        push_record(&mut self.untold, self.id, range.start, len);
        self.untold_bytes += len;
    }

    /// Returns true when the records that wait in memory should be written now.
    pub(super) fn is_due(&self) -> bool {
        self.untold_bytes >= UNTOLD_BYTES_MAX || self.untold.len() >= UNTOLD_RECORDS_MAX * RECORD
    }

    /// Writes the records that wait in memory. When the file has grown long, replaces all its
    /// records by those of `held`, which has all ranges whose bytes are in their files.
    pub(super) fn flush(
        &mut self,
        disk: &Disk,
        place: &Directory,
        held: &RangeSet,
    ) -> io::Result<()> {
        if self.untold.is_empty() {
            return Ok(());
        }
        if self.len >= self.rewrite_at {
            let id = self.id;
            let (bytes, commits) = (self.content_bytes, self.is_committing);
            let (file, len) = write_new(disk, place, id, bytes, held, commits)?;
            (self.file, self.len) = (file, len);
            self.rewrite_at = rewrite_at(len);
        } else {
            disk.write(&self.file, &self.untold, self.len)?;
            self.len += self.untold.len() as u64;
        }
        self.untold.clear();
        self.untold_bytes = 0;
        Ok(())
    }

    /// Records that files may have their final names from this moment on.
    pub(super) fn note_commit(&mut self, disk: &Disk) -> io::Result<()> {
        push_record(&mut self.untold, self.id, u64::MAX, u64::MAX);
        disk.write(&self.file, &self.untold, self.len)?;
        self.len += self.untold.len() as u64;
        self.untold.clear();
        self.is_committing = true;
        Ok(())
    }

    pub(super) const fn file(&self) -> &File {
        &self.file
    }
}

impl Found {
    /// Reads the journal of `manifest` in `place`; `None` when it is missing or cannot be trusted.
    pub(super) fn read(place: &Directory, manifest: &Manifest) -> Option<Self> {
        let found = Self::read_any(place, manifest.id())?;
        (found.content_bytes == manifest.content_bytes()).then_some(found)
    }

    /// Reads a journal as [`Found::read`] does, but does not check the length of the content.
    pub(super) fn read_any(place: &Directory, id: ManifestId) -> Option<Self> {
        let file = place.open_to_read(Path::new(NAME)).ok()?;
        let mut input = BufReader::with_capacity(READ_BYTES, file);
        let mut header = [0; HEADER];
        input.read_exact(&mut header).ok()?;
        let boot = &header[32..48];
        let content_bytes = number(&header[48..56]);
        if header != header_of(id, boot, content_bytes) {
            return None;
        }
        let mut found = Self {
            held: RangeSet::new(HELD_RANGES_MAX),
            is_committing: false,
            is_other_boot: boot != boot_id(),
            content_bytes,
        };
        let mut record = [0; RECORD];
        while input.read_exact(&mut record).is_ok() && found.take(&record, id) {}
        Some(found)
    }

    /// Notes what a record says. Returns false when the record is wrong; the caller then ignores
    /// the rest of the journal.
    fn take(&mut self, record: &[u8; RECORD], id: ManifestId) -> bool {
        let (start, len) = (number(&record[..8]), number(&record[8..16]));
        if number(&record[16..]) != check_of(id, start, len) {
            return false;
        }
        if (start, len) == (u64::MAX, u64::MAX) {
            self.is_committing = true;
            return true;
        }
        let Some(end) = start.checked_add(len) else {
            return false;
        };
        if end > self.content_bytes {
            return false;
        }
        // When the set is full, further ranges are left out, and their bytes are fetched again.
        self.held.insert(start..end, |_| {}).is_ok() || self.held.range_count() >= HELD_RANGES_MAX
    }
}

fn write_new(
    disk: &Disk,
    place: &Directory,
    id: ManifestId,
    content_bytes: u64,
    held: &RangeSet,
    is_committing: bool,
) -> io::Result<(File, u64)> {
    let new = Path::new(NEW_NAME);
    match place.remove_file(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.create(place, new)?;
    let mut bytes = header_of(id, &boot_id(), content_bytes).to_vec();
    for range in held.iter() {
        push_record(&mut bytes, id, range.start, range.end - range.start);
    }
    if is_committing {
        push_record(&mut bytes, id, u64::MAX, u64::MAX);
    }
    disk.write(&file, &bytes, 0)?;
    disk.rename((place, new), (place, Path::new(NAME)), Taken::Replace)?;
    Ok((file, bytes.len() as u64))
}

pub(super) fn header_of(id: ManifestId, boot: &[u8], content_bytes: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..32].copy_from_slice(&id.0);
    header[32..48].copy_from_slice(boot);
    header[48..56].copy_from_slice(&content_bytes.to_le_bytes());
    let hash = blake3::hash(&header[..56]);
    header[56..].copy_from_slice(&hash.as_bytes()[..8]);
    header
}

fn push_record(out: &mut Vec<u8>, id: ManifestId, start: u64, len: u64) {
    for value in [start, len, check_of(id, start, len)] {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Computes a record's check value. It covers the manifest's id, so that a record of another
/// journal is not accepted.
fn check_of(id: ManifestId, start: u64, len: u64) -> u64 {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&id.0);
    bytes[16..24].copy_from_slice(&start.to_le_bytes());
    bytes[24..].copy_from_slice(&len.to_le_bytes());
    number(&blake3::hash(&bytes).as_bytes()[..8])
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes were cut out"))
}

/// Returns an id that changes whenever the machine starts; all zero when the system has none.
fn boot_id() -> [u8; 16] {
    let text = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut id = [0; 16];
    if !text.is_empty() {
        id.copy_from_slice(&blake3::hash(&text).as_bytes()[..16]);
    }
    id
}

/// Returns the length at which to rewrite the journal: four times `len`, and at least 1 MiB, so
/// that rewriting is rare. `len` is the journal's length when it was last written anew.
const fn rewrite_at(len: u64) -> u64 {
    let four = len.saturating_mul(4);
    if four < REWRITE_BYTES_MIN {
        REWRITE_BYTES_MIN
    } else {
        four
    }
}

pub(super) const NAME: &str = "journal";
const NEW_NAME: &str = "journal.new";
const MAGIC: &[u8; 8] = b"TWLstage";
const VERSION: u32 = 1;
const HEADER: usize = 64;
const RECORD: usize = 24;
/// The most ranges that are kept in memory, 16 bytes each. When there are more ranges, some bytes
/// are fetched again.
pub(super) const HELD_RANGES_MAX: usize = 65_536;
/// When the records in memory cover this many bytes of content, they are written. `kill -9` loses
/// at most about this much content, besides the writes that still wait in the store's queue.
const UNTOLD_BYTES_MAX: u64 = 1 << 20;
const UNTOLD_RECORDS_MAX: usize = 256;
const REWRITE_BYTES_MIN: u64 = 1 << 20;
const READ_BYTES: usize = 64 << 10;
