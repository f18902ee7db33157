//! Puts verified content in place: sync, directories, files, links, attributes, sync.

use std::{
    ffi::OsStr,
    fs::Permissions,
    io,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::Path,
    sync::Arc,
};

use delivery::Plan;
use sys::file::{Directory, FileTime, Taken};
use wire::object::{EntryKind, EntryRef};

use super::{Fault, claim::Claim, path_of};

/// Everything that is needed for it, on a thread of its own.
pub(super) struct Commit {
    pub(super) directory: Arc<Directory>,
    pub(super) plan: Arc<Plan>,
    pub(super) claim: Claim,
    pub(super) taken: Taken,
}

impl Commit {
    /// Nothing is staged any more when this returns, however it went.
    pub(super) fn run(mut self) -> Result<(), Fault> {
        self.sync()?;
        for entry in self.entries(EntryKind::Directory) {
            match self.directory.make_directory(path_of(&entry), 0o700) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(fault("make", &entry, error));
                }
                _ => {}
            }
        }
        for (index, file) in self.plan.files().iter().enumerate() {
            self.place(index, &self.plan.entry(file.entry as usize))?;
        }
        // Links last: nothing is ever made through one.
        for entry in self.entries(EntryKind::Symlink) {
            self.link(&entry)?;
        }
        // From the inside out: what is made in a directory changes its time, and its mode may
        // forbid going in.
        for entry in self.plan.entries().rev() {
            if entry.kind == EntryKind::Directory {
                self.set_attributes(&entry)?;
            }
        }
        self.claim.give_up();
        self.sync()
    }

    fn entries(&self, kind: EntryKind) -> impl Iterator<Item = EntryRef<'_>> {
        self.plan.entries().filter(move |entry| entry.kind == kind)
    }

    fn sync(&self) -> Result<(), Fault> {
        let synced = self.directory.sync_filesystem();
        synced.map_err(|error| Fault::new("sync", Path::new(""), error))
    }

    fn place(&self, index: usize, entry: &EntryRef<'_>) -> Result<(), Fault> {
        let staged = self.claim.path().join(index.to_string());
        let opened = self.directory.open_to_write(&staged);
        opened
            .and_then(|file| file.set_permissions(Permissions::from_mode(mode_of(entry))))
            .and_then(|()| self.directory.set_modified(&staged, time_of(entry)))
            .and_then(|()| self.rename(&staged, entry))
            .map_err(|error| fault("put in place", entry, error))
    }

    fn link(&self, entry: &EntryRef<'_>) -> Result<(), Fault> {
        let target = Path::new(OsStr::from_bytes(entry.target));
        let staged = self.claim.path().join("link");
        self.directory
            .make_link(target, &staged)
            .and_then(|()| self.directory.set_modified(&staged, time_of(entry)))
            .and_then(|()| self.rename(&staged, entry))
            .map_err(|error| fault("put in place", entry, error))
    }

    fn rename(&self, staged: &Path, entry: &EntryRef<'_>) -> io::Result<()> {
        self.directory
            .rename(staged, &self.directory, path_of(entry), self.taken)
    }

    fn set_attributes(&self, entry: &EntryRef<'_>) -> Result<(), Fault> {
        let path = path_of(entry);
        self.directory
            .directory(path)
            .and_then(|directory| directory.set_mode(mode_of(entry)))
            .and_then(|()| self.directory.set_modified(path, time_of(entry)))
            .map_err(|error| fault("set the attributes of", entry, error))
    }
}

fn fault(doing: &'static str, entry: &EntryRef<'_>, error: io::Error) -> Fault {
    Fault::new(doing, path_of(entry), error)
}

/// Read, write, execute: never set-user-id and the like, which a sender could abuse.
fn mode_of(entry: &EntryRef<'_>) -> u32 {
    u32::from(entry.mode & 0o777)
}

const fn time_of(entry: &EntryRef<'_>) -> FileTime {
    FileTime {
        seconds: entry.mtime.seconds,
        nanoseconds: entry.mtime.nanoseconds,
    }
}
