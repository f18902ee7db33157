//! The status of a file, and of the filesystem that the file is on.

use std::{
    ffi::{CStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStringExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        Access, AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, accessat,
        fstat, fstatvfs, open, readlinkat, statat, utimensat,
    },
    process::geteuid,
};

/// The status of a file, directory or link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether this is a file, a directory, a link or something else.
    pub kind: Kind,
    /// Permission bits, including set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Number of the user who owns the file.
    pub owner: u32,
    /// Number of the file's group.
    pub group: u32,
    /// Length in bytes; for a link, the length of its text.
    pub bytes: u64,
    /// Bytes that the file takes on the disk.
    pub taken_bytes: u64,
    /// When the contents were last modified.
    pub modified: FileTime,
    /// Number of the device that the file is on.
    pub device: u64,
    /// Number of the file on that device.
    pub inode: u64,
    /// Number of names that the file has.
    pub links: u64,
}

/// The kinds of things in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A pipe, socket or device.
    Other,
}

/// A time of the wall clock, in the form that files have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct FileTime {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

/// The room on a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Number of bytes that an unprivileged user may still write.
    pub available_bytes: u64,
    /// Number of bytes that the filesystem has in all.
    pub total_bytes: u64,
    /// Number of files that may still be made. A filesystem without such a limit says 0 here and in
    /// `total_files`.
    pub available_files: u64,
    /// The most files that the filesystem can hold in all.
    pub total_files: u64,
}

impl Status {
    /// Returns true when `user` owns the file, and the owner's permission bits let `user` read it.
    /// For the owner, only these bits decide: the group's bits and access lists have no effect. The
    /// answer proves nothing about the directories above the file or about network filesystems.
    #[must_use]
    pub const fn is_readable_by_owner(&self, user: u32) -> bool {
        self.owner == user && self.mode & OWNER_READS != 0
    }

    /// Returns the status of an open file or directory.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn of(open: &impl AsFd) -> io::Result<Self> {
        Ok(Self::new(&fstat(open)?))
    }

    pub(super) fn at(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<Self> {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Self::new(&stat))
    }

    fn new(stat: &Stat) -> Self {
        Self {
            kind: match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Kind::File,
                FileType::Directory => Kind::Directory,
                FileType::Symlink => Kind::Link,
                _ => Kind::Other,
            },
            mode: stat.st_mode & 0o7777,
            owner: stat.st_uid,
            group: stat.st_gid,
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            taken_bytes: u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK_BYTES,
            modified: FileTime {
                seconds: stat.st_mtime,
                nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
            },
            device: stat.st_dev,
            inode: stat.st_ino,
            links: stat.st_nlink,
        }
    }
}

impl Space {
    pub(super) fn of(directory: BorrowedFd<'_>) -> io::Result<Self> {
        let stat = fstatvfs(directory)?;
        Ok(Self {
            available_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            available_files: stat.f_favail,
            total_files: stat.f_files,
        })
    }
}

pub(super) fn read_link(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<PathBuf> {
    let text = readlinkat(directory, name, Vec::new())?;
    Ok(OsString::from_vec(text.into_bytes()).into())
}

/// Checks the right to read. Fails as [`accessat`] does, and with ENOSYS before Linux 5.8.
pub(super) fn check_readable(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let flags = AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW;
    Ok(accessat(directory, name, Access::READ_OK, flags)?)
}

/// Opens whatever is at `path` for reading, and never waits: a plain open of a FIFO would wait for
/// a writer. The caller checks through the descriptor what was opened.
///
/// # Errors
/// Those of open(2).
pub fn open_without_waiting(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?.into())
}

/// Returns the number of the user with whose rights this process opens files.
#[must_use]
pub fn effective_user() -> u32 {
    geteuid().as_raw()
}

/// Returns the permission bits that this process's mask removes from every file that it makes.
///
/// **Cost**: reads a file of `/proc`, because the call that returns the mask would change it.
///
/// # Errors
/// When `/proc` does not show the mask (before Linux 4.7).
pub fn creation_mask() -> io::Result<u32> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let mask = text.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok());
    mask.ok_or_else(|| io::ErrorKind::Unsupported.into())
}

pub(super) fn set_modified(
    directory: BorrowedFd<'_>,
    name: &CStr,
    modified: FileTime,
) -> io::Result<()> {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: modified.seconds,
            tv_nsec: modified.nanoseconds.into(),
        },
    };
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    Ok(utimensat(directory, name, &times, flags)?)
}

/// The permission bit that lets the owner read: `S_IRUSR`.
const OWNER_READS: u32 = 0o400;
/// The unit of `st_blocks`, in bytes. It does not depend on the filesystem's block size.
const BLOCK_BYTES: u64 = 512;
