//! Before any byte arrives: finds what exists, checks that there is room, makes the directories.
//!
//! After a failure, what an earlier attempt staged stays. If no earlier attempt had staged
//! anything, what this attempt made is removed.

use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt as _, path::Path, sync::Arc};

use delivery::{Manifest, RangeSet};
use sys::file::{Directory, Kind, Status};
use wire::object::{EntryKind, EntryRef, ManifestHeader};

use super::{
    Existing, Fault,
    claim::Claim,
    disk::Disk,
    journal::{Found, HELD_RANGES_MAX, Journal},
    leftover, path_of, private,
    room::{Needs, Room, Share},
    staging::{FileState, Staging, Works, is_same},
};

/// The settings with which a manifest is prepared.
#[derive(Debug)]
pub(super) struct Preparation {
    pub(super) disk: Disk,
    pub(super) existing: Existing,
    /// True when long runs of zeros are to take no room, even if the sender does not ask for that.
    pub(super) has_holes: bool,
    pub(super) takes_dot_names: bool,
    pub(super) room: Room,
}

/// A manifest whose files may be written, and what exists of these files already.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) staging: Staging,
    /// Ranges of the content that an earlier attempt staged, or that are in place.
    pub(super) held: RangeSet,
    /// What the user should know about an earlier attempt, one sentence each.
    pub(super) notes: Vec<String>,
}

impl Preparation {
    /// Prepares to put a manifest's files into the directory at `path`, which is made unless it
    /// exists.
    pub(super) fn prepare(&self, path: &Path, manifest: &Arc<Manifest>) -> Result<Prepared, Fault> {
        self.check_tops(manifest)?;
        let directory = self.disk.open_directory(path).map(Arc::new);
        let directory = directory.map_err(|error| Fault::new("open", Path::new(""), error))?;
        let claim = Claim::take(&directory, manifest.id())?;
        let place = claim.open()?;
        let found = Found::read(&place, manifest);
        let place = match found {
            Some(_) => place,
            None => {
                claim.clear();
                claim.open()?
            }
        };
        let mut attempt = Attempt {
            of: self,
            directory: &directory,
            manifest,
            has_holes: self.has_holes || manifest.has_flag(ManifestHeader::SPARSE),
            was_committing: found.as_ref().is_some_and(|found| found.is_committing),
            is_new: found.is_none(),
            files: vec![FileState::Absent; manifest.files().len()],
            notes: notes_of(found.as_ref()),
            held: found.map_or_else(|| RangeSet::new(HELD_RANGES_MAX), |found| found.held),
        };
        match attempt.make(&place) {
            Ok((tree, journal)) => Ok(attempt.finish(claim, place, tree, journal)),
            Err(fault) => {
                if attempt.is_new {
                    claim.clear();
                }
                Err(fault)
            }
        }
    }
}

impl Preparation {
    /// Refuses names at the top that may be settings of this user's programs, such as `.bashrc` in
    /// a home directory.
    fn check_tops(&self, manifest: &Manifest) -> Result<(), Fault> {
        let mut entries = manifest.entries();
        let is_hidden =
            |entry: &EntryRef<'_>| entry.path.first() == Some(&b'.') && !entry.path.contains(&b'/');
        match entries.find(is_hidden) {
            Some(entry) if !self.takes_dot_names => {
                let text = "names that begin with a dot are refused at the top of a transfer; \
                            send its parent directory instead, or let the receiver allow such \
                            names";
                let error = io::Error::new(io::ErrorKind::InvalidData, text);
                Err(Fault::new("take in", path_of(&entry), error))
            }
            _ => Ok(()),
        }
    }
}

fn notes_of(found: Option<&Found>) -> Vec<String> {
    let Some(found) = found.filter(|found| !found.held.is_empty()) else {
        return Vec::new();
    };
    let mut note = format!(
        "{} bytes are here from an earlier attempt",
        found.held.bytes()
    );
    if found.is_other_boot {
        note.push_str(
            "; this machine was started since, so those that it has spoiled are sent again",
        );
    }
    vec![note]
}

struct Attempt<'a> {
    of: &'a Preparation,
    directory: &'a Arc<Directory>,
    manifest: &'a Arc<Manifest>,
    has_holes: bool,
    was_committing: bool,
    is_new: bool,
    files: Vec<FileState>,
    held: RangeSet,
    notes: Vec<String>,
}

impl Attempt<'_> {
    fn make(&mut self, place: &Directory) -> Result<(Directory, Journal), Fault> {
        let disk = &self.of.disk;
        let failed =
            |error| Fault::new("keep unfinished files in", Path::new(super::STAGING), error);
        let tree_path = Path::new(TREE);
        disk.make_directory(place, tree_path).map_err(failed)?;
        let tree = place.directory(tree_path);
        let tree = tree.and_then(|tree| private::check(&tree).map(|()| tree));
        let tree = tree.map_err(failed)?;
        if !self.is_new {
            self.look_at_staged(&tree)?;
        }
        self.check_names()?;
        self.check_space()?;
        for entry in self.manifest.entries() {
            if entry.kind == EntryKind::Directory {
                disk.make_directory(&tree, path_of(&entry))
                    .map_err(|error| Fault::new("make the directory", path_of(&entry), error))?;
            }
        }
        let journal = Journal::create(disk, place, self.manifest, &self.held, self.was_committing)
            .map_err(failed)?;
        Ok((tree, journal))
    }

    /// Finds what an earlier attempt staged. Files that do not have the planned length are removed.
    fn look_at_staged(&mut self, tree: &Directory) -> Result<(), Fault> {
        for (index, file) in self.manifest.files().iter().enumerate() {
            let entry = self.manifest.entry(file.entry as usize);
            let status = match tree.status(path_of(&entry)) {
                Ok(status) => Some(status),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => {
                    return Err(Fault::new(
                        "look for what is staged of",
                        path_of(&entry),
                        error,
                    ));
                }
            };
            let is_whole =
                |found: &Status| found.kind == Kind::File && found.bytes == file.size_bytes;
            if let Some(found) = status.filter(is_whole) {
                if found.mode & 0o600 != 0o600 {
                    // The file had its attributes already, and its mode may forbid opening it.
                    tree.set_mode_of(path_of(&entry), 0o600).map_err(|error| {
                        Fault::new("open what is staged of", path_of(&entry), error)
                    })?;
                }
                self.files[index] = FileState::Staged;
                continue;
            }
            if status.is_some() {
                tree.remove_file(path_of(&entry)).map_err(|error| {
                    Fault::new("remove what is staged of", path_of(&entry), error)
                })?;
            }
            self.held
                .remove_always(file.start..file.start + file.size_bytes);
        }
        Ok(())
    }

    /// Checks early that every entry can get its final name, and finds the files in place already.
    fn check_names(&mut self) -> Result<(), Fault> {
        // Entries come depth first: below a missing directory everything is missing too.
        let mut absent: Option<&[u8]> = None;
        let mut file_index = 0;
        for entry in self.manifest.entries() {
            let index = file_index;
            file_index += usize::from(entry.kind == EntryKind::File);
            if absent.is_some_and(|absent| is_below(entry.path, absent)) {
                continue;
            }
            let path = path_of(&entry);
            let status = match self.directory.status(path) {
                Ok(status) => status,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    absent = Some(entry.path);
                    continue;
                }
                Err(error) => return Err(Fault::new("write", path, error)),
            };
            let is_fine = match (entry.kind, status.kind) {
                (EntryKind::Directory, Kind::Directory) => true,
                (EntryKind::Directory, _) | (_, Kind::Directory) => false,
                (EntryKind::File, _) => self.check_file(index, &entry, &status),
                (EntryKind::Symlink, _) => {
                    let is_ours = self.was_committing && is_same_link(self.directory, &entry);
                    is_ours || self.of.existing != Existing::Refuse
                }
                (EntryKind::HardLink, _) => {
                    // Whether the name leads to its file is known only once that file is in place.
                    // Until then, a file of the same length and time counts as that file.
                    let file = self.manifest.file_called(entry.target);
                    let file = file.map(|file| self.manifest.files()[file].entry as usize);
                    let is_same = |file| is_same(&self.manifest.entry(file), &status);
                    let is_ours = self.was_committing && file.is_some_and(is_same);
                    is_ours || self.of.existing != Existing::Refuse
                }
            };
            if !is_fine {
                return Err(Fault::new("write", path, in_the_way(&entry, &status)));
            }
        }
        Ok(())
    }

    /// Returns true when a file may get its name although something of that name exists. If a
    /// regular file of the same length and time is there and may stay, marks it as in place.
    fn check_file(&mut self, index: usize, entry: &EntryRef<'_>, status: &Status) -> bool {
        // If an earlier attempt had begun to give staged files their final names, and this file is
        // not staged now, that attempt renamed it.
        let is_ours = self.was_committing && self.files[index] == FileState::Absent;
        let may_stay = is_ours || self.of.existing == Existing::SkipUnchanged;
        if may_stay && is_same(entry, status) {
            self.files[index] = FileState::InPlace;
            let file = &self.manifest.files()[index];
            // The journal records only staged files, and this file is in place instead.
            self.held
                .remove_always(file.start..file.start + file.size_bytes);
            return true;
        }
        self.of.existing != Existing::Refuse
    }

    /// Checks that there is room for what is still to come. The check reserves no room, because a
    /// sender may announce more than it sends. If another program takes the room meanwhile, the
    /// transfer fails on the way.
    fn check_space(&self) -> Result<(), Fault> {
        let mut needs = Needs {
            bytes: 0,
            entries: self.manifest.entry_count() as u64,
        };
        for (file, state) in self.manifest.files().iter().zip(&self.files) {
            match state {
                FileState::InPlace => needs.entries -= 1,
                // Nobody knows how much room a file with holes needs.
                _ if self.has_holes => {}
                _ => needs.bytes = needs.bytes.saturating_add(file.size_bytes),
            }
        }
        needs.bytes = needs.bytes.saturating_sub(self.held.bytes());
        let directory = self.directory;
        let left = || leftover::removable_bytes(directory, self.manifest.id());
        let checked = self.of.room.check(directory, needs, left);
        checked.map_err(|full| Fault::new("receive into", Path::new(""), full))
    }

    fn finish(self, claim: Claim, place: Directory, tree: Directory, journal: Journal) -> Prepared {
        let mut held = RangeSet::new(2 * HELD_RANGES_MAX);
        let in_place = self.manifest.files().iter().zip(&self.files);
        let in_place = in_place
            .filter(|(_, state)| **state == FileState::InPlace)
            .map(|(file, _)| file.start..file.start + file.size_bytes);
        for range in self.held.iter().chain(in_place) {
            // A range that the set has no room for is fetched again.
            let _is_noted = held.insert(range, |_| {}).is_ok();
        }
        let share = Share::new(self.of.room.clone(), self.held.bytes());
        let staging = Staging {
            disk: self.of.disk.clone(),
            directory: Arc::clone(self.directory),
            manifest: Arc::clone(self.manifest),
            claim,
            place,
            tree,
            inodes: vec![0; self.files.len()],
            files: self.files,
            held: self.held,
            journal,
            was_committing: self.was_committing,
            has_holes: self.has_holes,
            share,
            notes: Vec::new(),
            works: Works::default(),
        };
        Prepared {
            staging,
            held,
            notes: self.notes,
        }
    }
}

/// Makes the error for a name that is taken. Even a receiver that replaces what exists never
/// replaces a directory, and never puts a directory in the place of something else.
fn in_the_way(entry: &EntryRef<'_>, status: &Status) -> io::Error {
    let (kind, text) = match (entry.kind, status.kind) {
        (EntryKind::Directory, _) => (
            io::ErrorKind::ResourceBusy,
            "a directory is sent, and something else is there already; remove it, or receive into \
             another directory",
        ),
        (_, Kind::Directory) => (
            io::ErrorKind::ResourceBusy,
            "a directory is there already, and none is sent; remove it, or receive into another \
             directory",
        ),
        _ => (io::ErrorKind::AlreadyExists, "something is there already"),
    };
    io::Error::new(kind, text)
}

/// Returns true when the link that an entry describes exists already.
pub(super) fn is_same_link(directory: &Directory, entry: &EntryRef<'_>) -> bool {
    let target = directory.read_link(path_of(entry));
    target.is_ok_and(|target| target == Path::new(OsStr::from_bytes(entry.target)))
}

pub(super) fn is_below(path: &[u8], directory: &[u8]) -> bool {
    let below = path.strip_prefix(directory);
    below.is_some_and(|below| below.first() == Some(&b'/'))
}

pub(super) const TREE: &str = "tree";
