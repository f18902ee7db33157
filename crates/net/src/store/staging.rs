//! The files of a transfer under way: numbered, allocated, written in long pieces, hashed.
//!
//! Blocks of a thousand bytes come in order almost always: they are put together in memory and
//! written 256 KiB at a time, which saves hundreds of system calls. What is put together is written
//! before anything is read back.

use std::{collections::VecDeque, fs::File, io, os::unix::fs::FileExt as _, path::Path, sync::Arc};

use delivery::{Hash, Plan};
use sys::file::Directory;

use super::{Fault, claim::Claim};

/// Where the content of one plan is put together.
#[derive(Debug)]
pub(super) struct Staging {
    plan: Arc<Plan>,
    claim: Claim,
    /// The files used last, the latest first.
    open: VecDeque<(usize, File)>,
    /// Content not yet written, from position `pending_at` on.
    pending: Vec<u8>,
    pending_at: u64,
    /// Where slabs are read back.
    buffer: Vec<u8>,
}

impl Staging {
    /// Takes the space for all of a plan's content. What an earlier attempt left is removed.
    pub(super) fn make(directory: &Arc<Directory>, plan: &Arc<Plan>) -> Result<Self, Fault> {
        // Dropped by a failure: a full disk is left as it was found.
        let claim = Claim::take(directory, plan.id())?;
        allocate_all(directory, plan, claim.path())?;
        Ok(Self {
            plan: Arc::clone(plan),
            claim,
            open: VecDeque::new(),
            pending: Vec::new(),
            pending_at: 0,
            buffer: Vec::new(),
        })
    }

    /// Takes bytes of the content; they are on their way to a file.
    pub(super) fn write(
        &mut self,
        directory: &Directory,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let is_next = offset == self.pending_at + self.pending.len() as u64;
        if !is_next || self.pending.len() + bytes.len() > PENDING_MAX {
            self.flush(directory)?;
            self.pending_at = offset;
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes what was put together.
    pub(super) fn flush(&mut self, directory: &Directory) -> Result<(), Fault> {
        let pending = std::mem::take(&mut self.pending);
        let plan = Arc::clone(&self.plan);
        let mut rest = &pending[..];
        let range = self.pending_at..self.pending_at + pending.len() as u64;
        for (index, file_offset, range) in plan.pieces(range) {
            let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            let (piece, after) = rest.split_at(len);
            rest = after;
            let written = self
                .file(directory, index)
                .and_then(|file| file.write_all_at(piece, file_offset));
            written.map_err(|error| self.fault("write", index, error))?;
        }
        self.pending = pending;
        self.pending.clear();
        Ok(())
    }

    /// Hashes a slab that was written whole.
    pub(super) fn seal(&mut self, directory: &Directory, slab: u32) -> Result<Hash, Fault> {
        let place = self.plan.slab(slab);
        let index = place.file as usize;
        let mut hasher = place.hasher();
        let pending = self.pending_at..self.pending_at + self.pending.len() as u64;
        if pending.start <= place.start && place.range().end <= pending.end {
            // A small file that has just come in: no need to ask the disk for it.
            let at = usize::try_from(place.start - pending.start).expect("within the memory");
            hasher.update(&self.pending[at..at + place.len as usize]);
            return Ok(hasher.finish());
        }
        self.flush(directory)?;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(place.len as usize, 0);
        let read = self
            .file(directory, index)
            .and_then(|file| file.read_exact_at(&mut buffer, place.file_offset));
        hasher.update(&buffer);
        self.buffer = buffer;
        read.map_err(|error| self.fault("read back", index, error))?;
        Ok(hasher.finish())
    }

    /// The plan, and the claim to its staged files.
    pub(super) fn finish(self) -> (Arc<Plan>, Claim) {
        (self.plan, self.claim)
    }

    fn file(&mut self, directory: &Directory, index: usize) -> io::Result<&File> {
        match self.open.iter().position(|(open, _)| *open == index) {
            Some(0) => {}
            Some(at) => self.open.swap(0, at),
            None => {
                let file = directory.open_to_write(&self.claim.path().join(index.to_string()))?;
                self.open.truncate(OPEN_MAX - 1);
                self.open.push_front((index, file));
            }
        }
        Ok(&self.open[0].1)
    }

    /// A fault with a file, by the name the user knows.
    fn fault(&self, doing: &'static str, index: usize, error: io::Error) -> Fault {
        let entry = self.plan.entry(self.plan.files()[index].entry as usize);
        Fault::new(doing, super::path_of(&entry), error)
    }
}

fn allocate_all(directory: &Directory, plan: &Plan, path: &Path) -> Result<(), Fault> {
    let full = || io::Error::from(io::ErrorKind::StorageFull);
    if let Ok(space) = directory.space() {
        let files = plan.files().len() as u64;
        let has_files = space.total_files == 0 || files <= space.available_files;
        if space.available_bytes < plan.content_bytes() || !has_files {
            return Err(Fault::new("make room in", path, full()));
        }
    }
    for (index, file) in plan.files().iter().enumerate() {
        let made = directory.create(&path.join(index.to_string()), 0o600);
        made.and_then(|made| allocate(&made, file.size))
            .map_err(|error| {
                let entry = plan.entry(file.entry as usize);
                Fault::new("make room for", super::path_of(&entry), error)
            })?;
    }
    Ok(())
}

/// Takes the space where the filesystem can, and only the length where it cannot.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    match sys::file::allocate(file, bytes) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => file.set_len(bytes),
        done => done,
    }
}

/// Files kept open.
const OPEN_MAX: usize = 64;
/// Bytes put together before they are written.
const PENDING_MAX: usize = 256 << 10;
