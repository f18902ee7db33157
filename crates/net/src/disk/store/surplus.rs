//! Deletes files that the receiver has and its sender does not have, if the receiver was told to.
//! By then, everything in the transfer is verified, synced and in place.
//!
//! Only directories of the manifest are looked into. The receive directory itself is looked into
//! only when the sender sent the contents of one or more directories, without the directories
//! themselves. Each directory is opened beneath the receive directory. Symbolic links and mount
//! points are not followed. A link is deleted itself, never what it leads to.
//!
//! Invariants: nothing that is in the manifest is deleted, not even a withdrawn file. When the
//! sender could not read everything, nothing at all is deleted. When the sender's rules have left
//! something out, only [`Delete::Excluded`] deletes anything.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use delivery::{Manifest, Surplus};
use sys::file::{Directory, Kind};
use wire::object::{EntryKind, EntryRef, ManifestHeader};

use super::{STAGING, disk::Disk, path_of, staging::time_of};

/// What happens to the files in a transfer's directories that are not in the transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delete {
    /// The files stay.
    #[default]
    Nothing,
    /// The files are deleted when all of the transfer is in place. They stay when the sender's
    /// rules have left something out, or when the sender could not read everything.
    Surplus,
    /// As [`Delete::Surplus`], but also when the sender's rules have left something out: files that
    /// these rules have left out are deleted, too.
    Excluded,
    /// The receiver names what [`Delete::Surplus`] would delete, and deletes nothing.
    List,
}

/// Deletes or lists the files in `directory` that are not in `manifest`. Everything in the manifest
/// is in place already.
pub(super) fn sweep(
    (directory, disk): (&Directory, &Disk),
    manifest: &Manifest,
    delete: Delete,
) -> Vec<Surplus> {
    if delete == Delete::Nothing {
        return Vec::new();
    }
    let kept = |why: &str| {
        let (path, why) = (Vec::new(), why.to_owned());
        vec![Surplus::Kept { path, why }]
    };
    if manifest.has_flag(ManifestHeader::INCOMPLETE) {
        return kept("nothing is deleted: the sender could not read all of its files");
    }
    if manifest.has_flag(ManifestHeader::SELECTED) && delete != Delete::Excluded {
        return kept("nothing is deleted: the sender has left files out by its rules");
    }
    let mut sweep = Sweep {
        disk,
        known: manifest.entries().map(|entry| entry.path).collect(),
        is_listing: delete == Delete::List,
        found: Vec::new(),
    };
    if manifest.has_flag(ManifestHeader::CONTENTS) {
        let names = sweep.surplus(directory, b"");
        sweep.clear(directory, b"", &names);
    }
    for entry in manifest.entries() {
        if entry.kind == EntryKind::Directory {
            sweep.visit(directory, &entry);
        }
    }
    sweep.found
}

struct Sweep<'a> {
    disk: &'a Disk,
    known: BTreeSet<&'a [u8]>,
    is_listing: bool,
    found: Vec<Surplus>,
}

impl Sweep<'_> {
    /// Deletes or lists those entries of one directory that the manifest does not have. The
    /// directory keeps its mode and time.
    fn visit(&mut self, directory: &Directory, entry: &EntryRef<'_>) {
        let path = path_of(entry);
        let opened = match directory.directory_unmounted(path) {
            Ok(opened) => opened,
            Err(error) => return self.kept(entry.path.to_vec(), &error),
        };
        let names = self.surplus(&opened, entry.path);
        if names.is_empty() {
            return;
        }
        // The directory's mode may forbid deleting something in it.
        let mode = self.disk.mode_of(entry);
        let has_right = self.is_listing || mode & WRITABLE == WRITABLE;
        let opens = |mode: u32| {
            if has_right {
                Ok(())
            } else {
                opened.set_mode(mode)
            }
        };
        let opening = opens(mode | WRITABLE);
        self.clear(&opened, entry.path, &names);
        let closing = opens(mode);
        let dated = match self.is_listing {
            true => Ok(()),
            false => directory.set_modified(path, time_of(entry)),
        };
        if let Err(error) = opening.and(closing).and(dated) {
            self.kept(entry.path.to_vec(), &error);
        }
    }

    /// Returns the names in an open directory that the manifest does not have.
    fn surplus(&mut self, opened: &Directory, path: &[u8]) -> Vec<OsString> {
        let mut names = match opened.names() {
            Ok(names) => names,
            Err(error) => {
                self.kept(path.to_vec(), &error);
                return Vec::new();
            }
        };
        names.retain(|name| !self.is_known(&full(path, name)));
        names
    }

    /// Deletes or lists the entries with these names in an open directory.
    fn clear(&mut self, opened: &Directory, path: &[u8], names: &[OsString]) {
        let mut has_deleted = false;
        for name in names {
            let full = full(path, name);
            if self.is_listing {
                self.found.push(Surplus::Listed { path: full });
                continue;
            }
            has_deleted = true;
            match remove(opened, Path::new(name), 0) {
                Ok(()) => self.found.push(Surplus::Deleted { path: full }),
                Err(error) => self.kept(full, &error),
            }
        }
        if has_deleted && let Err(error) = opened.sync() {
            self.kept(path.to_vec(), &error);
        }
    }

    fn is_known(&self, path: &[u8]) -> bool {
        path == STAGING.as_bytes() || self.known.contains(path)
    }

    fn kept(&mut self, path: Vec<u8>, error: &io::Error) {
        let why = match error.kind() {
            io::ErrorKind::CrossesDevices => "another filesystem is mounted there".to_owned(),
            _ => sys::with_usual_remedy(error),
        };
        self.found.push(Surplus::Kept { path, why });
    }
}

fn full(path: &[u8], name: &OsStr) -> Vec<u8> {
    match path {
        b"" => name.as_bytes().to_vec(),
        _ => [path, b"/", name.as_bytes()].concat(),
    }
}

/// Removes the entry `name`, with all that is in it. A link that somebody puts in its place
/// meanwhile is not followed.
fn remove(parent: &Directory, name: &Path, depth: usize) -> io::Result<()> {
    let removed = match parent.status(name) {
        Ok(status) if status.kind == Kind::Directory => remove_directory(parent, name, depth),
        Ok(_) => parent.remove_file(name),
        Err(error) => Err(error),
    };
    match removed {
        // Another program has removed it first.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn remove_directory(parent: &Directory, name: &Path, depth: usize) -> io::Result<()> {
    if depth == DEPTH_MAX {
        return Err(io::Error::other(format!(
            "directories are nested {DEPTH_MAX} deep or deeper in it; delete it by hand"
        )));
    }
    let opened = parent.directory_unmounted(name)?;
    for below in opened.names()? {
        remove(&opened, Path::new(&below), depth + 1)?;
    }
    parent.remove_directory(name)
}

/// The most levels of directories that are entered; a manifest's paths are not deeper either.
const DEPTH_MAX: usize = 255;
/// The permission bits that an owner needs to delete something in a directory.
const WRITABLE: u32 = 0o300;
