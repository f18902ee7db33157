//! The calls that write content to the disk and read it back; each can be made to fail.
//!
//! Tests use this to see what a full or broken disk does to a transfer, as they use
//! [`crate::intercept`] for lost packets. Without a fault a call costs one more comparison.

use std::{
    fs::{File, FileTimes, Permissions},
    io,
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use sys::file::{Directory, FileTime, Taken};

use wire::object::{EntryKind, EntryRef};

use super::holes;

/// The kinds of calls that a store makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskCall {
    /// Making a file.
    Create,
    /// Opening a file that exists.
    Open,
    /// Making a directory.
    MakeDirectory,
    /// Making a symbolic or hard link.
    MakeLink,
    /// Taking space for a file.
    Allocate,
    /// Writing content or the journal.
    Write,
    /// Reading content back.
    Read,
    /// Setting a file's mode and time.
    SetAttributes,
    /// Syncing a file, a directory or the whole filesystem to the disk.
    Sync,
    /// Renaming a file or directory.
    Rename,
}

/// A fault for tests: calls of one kind fail after the first `after` of them, or one such call
/// takes 2 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFault {
    /// The kind of call that fails.
    pub call: DiskCall,
    /// How many calls of this kind succeed before the fault.
    pub after: u32,
    /// The error that the call returns: `ENOSPC` is 28, `EIO` is 5. With 0, one call takes 2 s and
    /// then succeeds, as on a disk that stands still.
    pub errno: i32,
}

/// The disk, with or without a fault.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    fault: Option<Arc<Planned>>,
    /// The permission bits that new files do not get (umask); 0o777 when they are unknown.
    mask: u32,
    modes: Modes,
}

/// Which of the permission bits at the sender are also set at the receiver. The set-user-id bit and
/// the like are never set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Modes {
    /// The bits that the process's mask (umask) leaves, as for every file that the process makes.
    /// The owner of a directory may always enter and list it.
    #[default]
    Umask,
    /// All permission bits.
    Exact,
}

#[derive(Debug)]
struct Planned {
    fault: DiskFault,
    good: AtomicU32,
}

impl Disk {
    pub(super) fn new(fault: Option<DiskFault>, modes: Modes) -> Self {
        let planned = |fault: DiskFault| {
            let good = AtomicU32::new(fault.after);
            Arc::new(Planned { fault, good })
        };
        Self {
            fault: fault.map(planned),
            mask: sys::file::creation_mask().unwrap_or(0o777),
            modes,
        }
    }

    /// Returns the permission bits that an entry gets.
    pub(super) fn mode_of(&self, entry: &EntryRef<'_>) -> u32 {
        let mode = u32::from(entry.mode & 0o777);
        match self.modes {
            Modes::Exact => mode,
            Modes::Umask => {
                // When the mask is unknown, the usual mask, 0o022, is assumed.
                let mask = if self.mask == 0o777 { 0o022 } else { self.mask };
                let least = match entry.kind {
                    EntryKind::Directory => OWNER_ENTERS,
                    _ => 0,
                };
                mode & !mask | least
            }
        }
    }

    fn before(&self, call: DiskCall) -> io::Result<()> {
        let Some(planned) = self.fault.as_ref().filter(|p| p.fault.call == call) else {
            return Ok(());
        };
        let still_good = planned
            .good
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        match still_good {
            Ok(_) => Ok(()),
            Err(_) if planned.fault.errno == 0 => {
                planned.good.store(u32::MAX, Ordering::Relaxed);
                std::thread::sleep(STAND_STILL);
                Ok(())
            }
            Err(_) => Err(io::Error::from_raw_os_error(planned.fault.errno)),
        }
    }

    pub(super) fn create(&self, within: &Directory, path: &Path) -> io::Result<File> {
        self.before(DiskCall::Create)?;
        // No other user may read the content before the file's mode is set.
        within.create(path, 0o600)
    }

    /// Makes a file in a private directory, with its final `mode` if possible. Returns the file,
    /// and true when it has this mode. On false, the caller must set the mode later.
    pub(super) fn create_as(
        &self,
        within: &Directory,
        path: &Path,
        mode: u32,
    ) -> io::Result<(File, bool)> {
        if mode & (self.mask | !0o777) != 0 || mode & 0o600 != 0o600 {
            return self.create(within, path).map(|file| (file, false));
        }
        self.before(DiskCall::Create)?;
        within.create(path, mode).map(|file| (file, true))
    }

    pub(super) fn open_to_write(&self, within: &Directory, path: &Path) -> io::Result<File> {
        self.before(DiskCall::Open)?;
        within.open_to_write(path)
    }

    pub(super) fn open_to_read(&self, within: &Directory, path: &Path) -> io::Result<File> {
        self.before(DiskCall::Open)?;
        within.open_to_read(path)
    }

    /// Opens the receive directory; makes it unless it exists.
    pub(super) fn open_directory(&self, path: &Path) -> io::Result<Directory> {
        self.before(DiskCall::MakeDirectory)?;
        std::fs::create_dir_all(path)?;
        Directory::open(path)
    }

    /// Makes a directory unless it exists.
    pub(super) fn make_directory(&self, within: &Directory, path: &Path) -> io::Result<()> {
        self.before(DiskCall::MakeDirectory)?;
        match within.make_directory(path, 0o700) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn make_link(
        &self,
        within: &Directory,
        target: &Path,
        path: &Path,
    ) -> io::Result<()> {
        self.before(DiskCall::MakeLink)?;
        within.make_link(target, path)
    }

    /// Reserves space if the filesystem can do that; otherwise only sets the file's length.
    pub(super) fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        self.before(DiskCall::Allocate)?;
        match sys::file::allocate(file, bytes) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => file.set_len(bytes),
            done => done,
        }
    }

    /// Reserves space for a part of a file, if the filesystem can do that. The file's length stays.
    pub(super) fn allocate_ahead(&self, file: &File, at: u64, bytes: u64) -> io::Result<()> {
        self.before(DiskCall::Allocate)?;
        match sys::file::allocate_ahead(file, at, bytes) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            done => done,
        }
    }

    pub(super) fn write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        self.before(DiskCall::Write)?;
        file.write_all_at(bytes, at)
    }

    /// Writes as [`Disk::write`] does, but makes each long run of zeros a hole, whatever the file
    /// held there. A hole at the end does not make the file longer.
    pub(super) fn write_sparse(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        self.before(DiskCall::Write)?;
        holes::parts(bytes, |part, is_hole| {
            let at = at + part.start as u64;
            if is_hole {
                match sys::file::punch_hole(file, at, part.len() as u64) {
                    Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
                    done => return done,
                }
            }
            file.write_all_at(&bytes[part], at)
        })
    }

    /// Copies the first `bytes` bytes of a file; long runs of zeros become holes.
    pub(super) fn copy_sparse(&self, from: &File, to: &File, bytes: u64) -> io::Result<()> {
        let mut buffer = vec![0; COPY_BYTES];
        let mut at = 0;
        while at < bytes {
            let read = self.read(from, &mut buffer, at)?;
            if read == 0 {
                break;
            }
            self.write_sparse(to, &buffer[..read], at)?;
            at += read as u64;
        }
        Ok(())
    }

    /// Reads until `out` is full or the file ends. Returns the number of bytes read.
    pub(super) fn read(&self, file: &File, out: &mut [u8], at: u64) -> io::Result<usize> {
        self.before(DiskCall::Read)?;
        let mut done = 0;
        while done < out.len() {
            match file.read_at(&mut out[done..], at + done as u64) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    pub(super) fn set_attributes(&self, file: &File, mode: u32, time: FileTime) -> io::Result<()> {
        file.set_permissions(Permissions::from_mode(mode))?;
        self.set_time(file, time)
    }

    pub(super) fn set_time(&self, file: &File, time: FileTime) -> io::Result<()> {
        self.before(DiskCall::SetAttributes)?;
        let since = Duration::from_secs(time.seconds.unsigned_abs());
        let second = if time.seconds < 0 {
            SystemTime::UNIX_EPOCH.checked_sub(since)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(since)
        };
        let nanoseconds = Duration::from_nanos(time.nanoseconds.into());
        let modified = second.and_then(|second| second.checked_add(nanoseconds));
        let modified = modified.ok_or(io::ErrorKind::InvalidInput)?;
        file.set_times(FileTimes::new().set_modified(modified))
    }

    pub(super) fn sync(&self, file: &File) -> io::Result<()> {
        self.before(DiskCall::Sync)?;
        file.sync_all()
    }

    /// Syncs a file's bytes and the metadata needed to read them, but no other metadata.
    pub(super) fn sync_data(&self, file: &File) -> io::Result<()> {
        self.before(DiskCall::Sync)?;
        file.sync_data()
    }

    pub(super) fn sync_directory(&self, directory: &Directory) -> io::Result<()> {
        self.before(DiskCall::Sync)?;
        directory.sync()
    }

    pub(super) fn sync_filesystem(&self, directory: &Directory) -> io::Result<()> {
        self.before(DiskCall::Sync)?;
        directory.sync_filesystem()
    }

    /// Gives the file `from` the further name `to`.
    pub(super) fn hard_link(
        &self,
        from: (&Directory, &Path),
        to: (&Directory, &Path),
    ) -> io::Result<()> {
        self.before(DiskCall::MakeLink)?;
        from.0.hard_link(from.1, to.0, to.1)
    }

    pub(super) fn rename(
        &self,
        from: (&Directory, &Path),
        to: (&Directory, &Path),
        taken: Taken,
    ) -> io::Result<()> {
        self.before(DiskCall::Rename)?;
        from.0.rename(from.1, to.0, to.1, taken)
    }
}

/// How long a call takes on a disk that stands still.
pub(super) const STAND_STILL: Duration = Duration::from_secs(2);
/// The bits by which an owner may enter and list a directory.
const OWNER_ENTERS: u32 = 0o500;
/// Bytes copied at a time.
const COPY_BYTES: usize = 256 << 10;
