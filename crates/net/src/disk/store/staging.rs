//! The files of a transfer under way: they are written, hashed and corrected in a tree like the
//! final one.
//!
//! ```text
//! DIR/.towline/<manifest>/tree/...   files and directories under the names they are going to have
//! DIR/.towline/<manifest>/journal    what is in them
//! ```
//!
//! Files are made when their first bytes come. For files above 64 KiB, disk space is reserved a
//! little ahead of the bytes that arrive ([`super::room`]). A file that comes in one piece is made
//! and written in one go. Bytes that come in order are hashed from memory; bytes around a gap are
//! read back.

use std::{
    collections::VecDeque, fs::File, io, ops::Range, os::unix::fs::MetadataExt as _, path::Path,
    sync::Arc,
};

use delivery::{Manifest, RangeSet, SlabGroups, SlabHash};
use sys::file::{Directory, FileTime, Kind, Status};
use wire::object::{EntryKind, EntryRef};

use super::{
    Fault,
    claim::Claim,
    disk::Disk,
    early::{EARLY_BYTES, EarlySync},
    journal::Journal,
    leftover, path_of,
    queue::Extent,
    room::Share,
};

/// The staged files of one manifest, with their journal and claim.
#[derive(Debug)]
pub(super) struct Staging {
    pub(super) disk: Disk,
    /// The receive directory, in which everything gets its final name.
    pub(super) directory: Arc<Directory>,
    pub(super) manifest: Arc<Manifest>,
    pub(super) claim: Claim,
    pub(super) place: Directory,
    pub(super) tree: Directory,
    /// The state of each of the manifest's files.
    pub(super) files: Vec<FileState>,
    /// The inode of each staged file that was opened, by which a later opening and the commit see
    /// whether the file was replaced; 0 for other files.
    pub(super) inodes: Vec<u64>,
    /// Ranges of the content that are in staged files. Files in place are not included.
    pub(super) held: RangeSet,
    pub(super) journal: Journal,
    /// True when an earlier attempt had begun to give final names.
    pub(super) was_committing: bool,
    /// True when long runs of zeros become holes, which take no room on the disk.
    pub(super) has_holes: bool,
    pub(super) share: Share,
    /// Notes for a person; one sentence each.
    pub(super) notes: Vec<String>,
    pub(super) works: Works,
}

/// Where one file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileState {
    /// The file does not exist yet.
    Absent,
    /// The file is in the staged tree, perhaps not whole.
    Staged,
    /// The file is in the staged tree, whole, with its attributes.
    Finished,
    /// The file has its final name, and the length and time that the manifest says.
    InPlace,
    /// The sender has withdrawn the file, so it exists nowhere and does not come.
    Withdrawn,
}

/// Open files and buffers that make the work faster.
#[derive(Debug, Default)]
pub(super) struct Works {
    /// Files that were used lately. The first was used most recently.
    open: VecDeque<Open>,
    /// The staged directory used last.
    parent: Option<(std::path::PathBuf, Directory)>,
    /// Slabs that are hashed in part. The first was used most recently.
    hashing: VecDeque<SlabGroups>,
    buffer: Vec<u8>,
    pub(super) early: EarlySync,
}

/// An open file.
#[derive(Debug)]
struct Open {
    index: usize,
    file: File,
    /// The offset in the file up to which disk space was reserved since the file was opened.
    taken_to: u64,
    /// Bytes written to the file since the disk was last told to sync it.
    unsynced: u64,
}

impl Staging {
    /// Writes the bytes of an extent to their files, and notes them for the journal.
    pub(super) fn write(&mut self, extent: &Extent) -> Result<(), Fault> {
        let manifest = Arc::clone(&self.manifest);
        for (range, piece) in extent.pieces() {
            for (index, file_offset, part) in manifest.pieces(range.clone()) {
                let bytes = &piece[within(&part, range.start)];
                self.hash_on_the_way(&part, bytes);
                let written = self.write_piece(index, file_offset, bytes, &range);
                written.map_err(|error| self.fault("write", index, error))?;
            }
            self.note(range);
        }
        self.share.settle();
        Ok(())
    }

    /// Writes the gathered notes to the journal: in any case when `at_once` is true, else only when
    /// they are due.
    pub(super) fn tell_journal(&mut self, at_once: bool) -> Result<(), Fault> {
        if !at_once && !self.journal.is_due() {
            return Ok(());
        }
        self.journal
            .flush(&self.disk, &self.place, &self.held)
            .map_err(|error| Fault::new("write the journal in", self.claim.path(), error))
    }

    /// Hashes a slab whose bytes are all written. `extent` is the extent that was written last,
    /// which is still in memory.
    pub(super) fn hash_slab(
        &mut self,
        slab: u32,
        extent: Option<&Extent>,
    ) -> Result<SlabHash, Fault> {
        let place = self.manifest.slab(slab);
        let known = self.works.take_hashing(slab);
        if let Some(bytes) = extent.and_then(|extent| extent.find(&place.range())) {
            let mut hasher = place.hasher();
            hasher.update(bytes);
            return Ok(hasher.finish());
        }
        let mut groups = known.unwrap_or_else(|| SlabGroups::new(place));
        let index = place.file as usize;
        let mut buffer = std::mem::take(&mut self.works.buffer);
        buffer.resize(READ_BYTES, 0);
        while let Some(Range { start, end }) = groups.missing() {
            let len = (end - start).min(READ_BYTES as u64);
            let piece = &mut buffer[..usize::try_from(len).unwrap_or(READ_BYTES)];
            self.read_piece(index, place.file_offset + (start - place.start), piece)
                .map_err(|error| self.fault("read back", index, error))?;
            groups.update(start, piece);
        }
        self.works.buffer = buffer;
        Ok(groups.finish().expect("nothing is missing"))
    }

    /// Returns true when the staged bytes are not worth their disk space: there are none, or fewer
    /// than both 1 MiB and a hundredth of the transfer. Returns false if an earlier attempt had
    /// begun to give files their final names.
    pub(super) fn is_worthless(&self) -> bool {
        let entries = self.manifest.entries();
        let directories = entries.filter(|entry| entry.kind == EntryKind::Directory);
        let whole = self.manifest.content_bytes() + directories.count() as u64 * DIRECTORY_BYTES;
        let held = self.held.bytes();
        !self.was_committing && (held == 0 || held < WORTH_BYTES && held < whole / 100)
    }

    /// Opens a staged file for writing; makes it when it does not exist.
    pub(super) fn file(&mut self, index: usize) -> io::Result<&File> {
        match self.works.open.iter().position(|open| open.index == index) {
            Some(0) => {}
            Some(at) => self.works.open.swap(0, at),
            None => {
                let file = self.open_or_make(index)?;
                self.works.open.truncate(OPEN_MAX - 1);
                self.works.open.push_front(Open {
                    index,
                    file,
                    taken_to: 0,
                    unsynced: 0,
                });
            }
        }
        Ok(&self.works.open[0].file)
    }

    pub(super) fn close(&mut self, index: usize) {
        self.works.open.retain(|open| open.index != index);
    }

    /// Charges the transfer for bytes about to be written to a file. For a long file, also reserves
    /// disk space a little ahead.
    fn take_room(&mut self, index: usize, at: Range<u64>) -> io::Result<()> {
        let size = self.manifest.files()[index].size_bytes;
        self.file(index)?;
        let Works { open, .. } = &mut self.works;
        let open = &mut open[0];
        if at.end <= open.taken_to {
            return Ok(());
        }
        let from = at.start.max(open.taken_to);
        pay(
            &mut self.share,
            (&self.directory, &*self.manifest),
            &self.held,
            &mut self.notes,
            at.end - from,
        )?;
        // Bytes in the gap between the reserved space and this range may still come. Space is
        // reserved for the gap, too, if the transfer has paid for enough.
        let gap = from - open.taken_to;
        if size <= SMALL_BYTES_MAX || self.has_holes || !self.share.covers(gap) {
            return Ok(());
        }
        let ahead = gap + self.share.ahead(size - at.end);
        let from = open.taken_to;
        open.taken_to = at.end + ahead - gap;
        if ahead > 0 {
            let bytes = open.taken_to - from;
            self.disk.allocate_ahead(&open.file, from, bytes)?;
        }
        Ok(())
    }

    /// Charges the transfer for the disk space of a whole file of `bytes` bytes.
    fn pay_whole(&mut self, bytes: u64) -> io::Result<()> {
        let of = (&self.directory, &*self.manifest);
        let bytes = on_disk(bytes);
        pay(&mut self.share, of, &self.held, &mut self.notes, bytes)
    }

    /// Gives a whole file its mode and time.
    pub(super) fn finish(&mut self, index: usize) -> io::Result<()> {
        let entry = self
            .manifest
            .entry(self.manifest.files()[index].entry as usize);
        let (mode, time) = (self.disk.mode_of(&entry), time_of(&entry));
        let disk = self.disk.clone();
        disk.set_attributes(self.file(index)?, mode, time)?;
        self.files[index] = FileState::Finished;
        Ok(())
    }

    /// Makes a fault about a file, with the file's path as the user knows it.
    pub(super) fn fault(&self, doing: &'static str, index: usize, error: io::Error) -> Fault {
        let entry = self
            .manifest
            .entry(self.manifest.files()[index].entry as usize);
        Fault::new(doing, path_of(&entry), error)
    }

    fn note(&mut self, range: Range<u64>) {
        self.journal.note(&range);
        // If the set has no room for the range, a later attempt fetches the range again.
        let _is_noted = self.held.insert(range, |_| {}).is_ok();
    }

    fn write_piece(
        &mut self,
        index: usize,
        file_offset: u64,
        bytes: &[u8],
        extent: &Range<u64>,
    ) -> io::Result<()> {
        if self.files[index] == FileState::InPlace {
            self.bring_back(index)?;
        }
        let place = self.manifest.files()[index];
        let whole = place.start..place.start + place.size_bytes;
        let is_whole = self
            .held
            .missing_in(whole.clone())
            .all(|gap| extent.start <= gap.start && gap.end <= extent.end);
        if self.files[index] == FileState::Finished {
            self.files[index] = FileState::Staged;
        }
        let (disk, is_new) = (self.disk.clone(), self.files[index] == FileState::Absent);
        if is_new && bytes.len() as u64 == place.size_bytes {
            return self.write_whole(index, bytes);
        }
        self.take_room(index, file_offset..file_offset + bytes.len() as u64)?;
        let has_holes = self.has_holes;
        let file = self.file(index)?;
        match has_holes {
            true => disk.write_sparse(file, bytes, file_offset)?,
            false => disk.write(file, bytes, file_offset)?,
        }
        if is_new && (bytes.len() as u64) < place.size_bytes {
            // A later attempt keeps a staged file only if it has the planned length.
            file.set_len(place.size_bytes)?;
        }
        self.sync_early(bytes.len() as u64);
        let entry = self.manifest.entry(place.entry as usize);
        // A file whose mode would forbid opening it again gets its attributes in the commit.
        if is_whole && self.disk.mode_of(&entry) & 0o600 == 0o600 {
            self.finish(index)?;
            self.close(index);
        }
        Ok(())
    }

    /// Counts bytes written to the file that was used last, and has them synced when they reach
    /// [`EARLY_BYTES`].
    fn sync_early(&mut self, bytes: u64) {
        let Works { open, early, .. } = &mut self.works;
        let Some(open) = open.front_mut() else {
            return;
        };
        open.unsynced += bytes;
        if open.unsynced >= EARLY_BYTES && early.begin(&self.disk, &open.file) {
            open.unsynced = 0;
        }
    }

    /// Makes a file whose content is all in memory, in one go.
    fn write_whole(&mut self, index: usize, bytes: &[u8]) -> io::Result<()> {
        self.pay_whole(bytes.len() as u64)?;
        let (manifest, disk) = (Arc::clone(&self.manifest), self.disk.clone());
        let entry = manifest.entry(manifest.files()[index].entry as usize);
        let (mode, time) = (self.disk.mode_of(&entry), time_of(&entry));
        let has_holes = self.has_holes;
        let (parent, name) = self.staged_at(path_of(&entry))?;
        let (file, has_mode) = disk.create_as(parent, name, mode)?;
        self.files[index] = FileState::Staged;
        self.inodes[index] = file.metadata()?.ino();
        if has_holes {
            // A hole at the end does not make a file longer.
            file.set_len(bytes.len() as u64)?;
            disk.write_sparse(&file, bytes, 0)?;
        } else {
            disk.write(&file, bytes, 0)?;
        }
        if mode & 0o600 != 0o600 {
            // With this mode, the file could not be opened again to put a slab right, so the commit
            // sets the mode.
            return Ok(());
        }
        if has_mode {
            disk.set_time(&file, time)?;
        } else {
            disk.set_attributes(&file, mode, time)?;
        }
        self.files[index] = FileState::Finished;
        Ok(())
    }

    fn open_or_make(&mut self, index: usize) -> io::Result<File> {
        let place = self.manifest.files()[index];
        let is_new = self.files[index] == FileState::Absent;
        let (manifest, disk) = (Arc::clone(&self.manifest), self.disk.clone());
        let entry = manifest.entry(place.entry as usize);
        let (parent, name) = self.staged_at(path_of(&entry))?;
        let file = match is_new {
            false => disk.open_to_write(parent, name)?,
            true => disk.create(parent, name)?,
        };
        let inode = file.metadata()?.ino();
        if is_new {
            self.files[index] = FileState::Staged;
        } else if ![0, inode].contains(&self.inodes[index]) {
            return Err(changed());
        }
        self.inodes[index] = inode;
        Ok(file)
    }

    /// Checks that a staged file is the one that was hashed, and that it has no name besides the
    /// transfer's.
    pub(super) fn check_staged(&mut self, index: usize) -> io::Result<()> {
        let manifest = Arc::clone(&self.manifest);
        let entry = manifest.entry(manifest.files()[index].entry as usize);
        let names = 1 + manifest.hard_links_of(index).len() as u64;
        let device = Status::of(&self.tree)?.device;
        let (parent, name) = self.staged_at(path_of(&entry))?;
        let found = parent.status(name)?;
        let is_it = found.kind == Kind::File
            && (found.device, found.inode) == (device, self.inodes[index])
            && found.links <= names;
        if is_it { Ok(()) } else { Err(changed()) }
    }

    /// Returns the staged directory that holds `path`, and the last component of `path`.
    fn staged_at<'a>(&mut self, path: &'a Path) -> io::Result<(&Directory, &'a Path)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => return Ok((&self.tree, Path::new(name))),
        };
        if self
            .works
            .parent
            .as_ref()
            .is_none_or(|(known, _)| known != parent)
        {
            let opened = self.tree.directory(parent)?;
            self.works.parent = Some((parent.to_path_buf(), opened));
        }
        let (_, directory) = self.works.parent.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok((directory, Path::new(name)))
    }

    fn read_piece(&mut self, index: usize, file_offset: u64, out: &mut [u8]) -> io::Result<()> {
        let disk = self.disk.clone();
        let read = if self.files[index] == FileState::InPlace {
            let file = self.open_in_place(index)?;
            disk.read(&file, out, file_offset)?
        } else {
            disk.read(self.file(index)?, out, file_offset)?
        };
        // If another program cut the file short, zeros stand for the missing bytes: the hash comes
        // out wrong, and the slab is fetched again.
        out[read..].fill(0);
        Ok(())
    }

    /// Opens a file by its final name. The file must not have changed since it was found in place.
    pub(super) fn open_in_place(&self, index: usize) -> io::Result<File> {
        let entry = self
            .manifest
            .entry(self.manifest.files()[index].entry as usize);
        let file = self.disk.open_to_read(&self.directory, path_of(&entry))?;
        if self.is_in_place(&entry)? {
            return Ok(file);
        }
        Err(changed())
    }

    /// Returns true when the entry's final name belongs to a regular file with the length and
    /// modification time that the manifest says.
    pub(super) fn is_in_place(&self, entry: &EntryRef<'_>) -> io::Result<bool> {
        let status = self.directory.status(path_of(entry))?;
        Ok(is_same(entry, &status))
    }

    /// Copies a file that has its final name into the staged tree, to correct its content there or
    /// to set another owner or other attributes.
    pub(super) fn bring_back(&mut self, index: usize) -> io::Result<()> {
        let mut from = self.open_in_place(index)?;
        self.close(index);
        self.files[index] = FileState::Absent;
        let manifest = Arc::clone(&self.manifest);
        let place = manifest.files()[index];
        let entry = manifest.entry(place.entry as usize);
        let (parent, name) = self.staged_at(path_of(&entry))?;
        match parent.remove_file(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (disk, has_holes) = (self.disk.clone(), self.has_holes);
        self.pay_whole(place.size_bytes)?;
        let mut to = self.file(index)?;
        if has_holes {
            to.set_len(place.size_bytes)?;
            disk.copy_sparse(&from, to, place.size_bytes)?;
        } else {
            disk.allocate(to, place.size_bytes)?;
            io::copy(&mut from, &mut to)?;
        }
        self.share.settle();
        self.works.open[0].taken_to = place.size_bytes;
        if !self.is_in_place(&entry)? {
            return Err(changed());
        }
        self.note(place.start..place.start + place.size_bytes);
        Ok(())
    }

    /// Hashes the bytes of a slab while they are in memory. A slab that comes whole is left to
    /// [`Staging::hash_slab`], which finds its bytes in the extent.
    fn hash_on_the_way(&mut self, part: &Range<u64>, bytes: &[u8]) {
        let mut at = part.start;
        while at < part.end {
            let slab = self.manifest.slab_at(at);
            let stop = slab.range().end.min(part.end);
            let piece = &bytes[within(&(at..stop), part.start)];
            let known = self.works.take_hashing(slab.index);
            if known.is_some() || (at..stop) != slab.range() {
                let mut groups = known.unwrap_or_else(|| SlabGroups::new(slab));
                groups.update(at, piece);
                self.works.hashing.truncate(HASHING_MAX - 1);
                self.works.hashing.push_front(groups);
            }
            at = stop;
        }
    }
}

impl Works {
    /// Takes out the unfinished hashing of a slab; `None` when none is kept.
    fn take_hashing(&mut self, slab: u32) -> Option<SlabGroups> {
        let is_it = |known: &SlabGroups| known.slab().index == slab;
        let at = self.hashing.iter().position(is_it)?;
        self.hashing.remove(at)
    }
}

/// Charges a transfer's share of the disk for bytes that are about to be written. If there is no
/// room for them, removes the leftovers of unfinished transfers.
fn pay(
    share: &mut Share,
    (directory, manifest): (&Arc<Directory>, &Manifest),
    held: &RangeSet,
    notes: &mut Vec<String>,
    bytes: u64,
) -> io::Result<()> {
    let lacking = manifest.content_bytes().saturating_sub(held.bytes());
    share.pay(directory, bytes, lacking, &mut || {
        let removed = leftover::discard_oldest(directory, manifest.id());
        let is_removed = removed.is_some();
        notes.extend(removed);
        is_removed
    })
}

/// Returns the space that a file of `bytes` bytes takes on most filesystems.
const fn on_disk(bytes: u64) -> u64 {
    bytes.next_multiple_of(4096)
}

/// Returns true for a regular file that has an entry's length and time.
pub(super) fn is_same(entry: &EntryRef<'_>, status: &Status) -> bool {
    status.kind == Kind::File
        && status.bytes == entry.size_bytes
        && status.modified == time_of(entry)
}

pub(super) fn changed() -> io::Error {
    let text = "it changed while it was compared; start again";
    io::Error::new(io::ErrorKind::ResourceBusy, text)
}

pub(super) const fn time_of(entry: &EntryRef<'_>) -> FileTime {
    FileTime {
        seconds: entry.mtime.seconds,
        nanoseconds: entry.mtime.nanoseconds,
    }
}

fn within(range: &Range<u64>, start: u64) -> Range<usize> {
    let at = |position: u64| usize::try_from(position - start).expect("within an extent");
    at(range.start)..at(range.end)
}

/// The most files that are kept open.
const OPEN_MAX: usize = 64;
/// The most slabs that are hashed at the same time. More than one is needed because repairs of one
/// slab come among the bytes of the next.
const HASHING_MAX: usize = 32;
/// Bytes that are read back at a time, whatever the length of a slab.
const READ_BYTES: usize = 256 << 10;
/// Bytes of the longest small file. Space is reserved ahead for longer files only.
const SMALL_BYTES_MAX: u64 = 64 << 10;
/// If at least this many bytes are staged, they are worth keeping, whatever the transfer's size.
const WORTH_BYTES: u64 = 1 << 20;
/// Bytes of disk space that a directory takes on many filesystems.
const DIRECTORY_BYTES: u64 = 4096;
