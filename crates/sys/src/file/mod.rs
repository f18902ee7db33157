//! Files beneath one directory, so that no name from the network can lead out of it.
//!
//! Paths are relative to a [`Directory`]. They must not contain `..`. No symbolic link on the way
//! is followed, even when another process puts one there at the wrong moment. The kernel checks
//! that (`openat2`, `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`). Where the kernel is too old or a
//! sandbox forbids the call, components are opened one by one, with the same effect.
//!
//! ```text
//! "a/b/file" ──> open "a/b" beneath, no links ──> operation on "file" in it, not following it
//! ```
//!
//! Opened files are [`std::fs::File`]s: the standard library reads and writes at an offset.

use std::{
    ffi::{CStr, CString},
    fs::File,
    io::{self, IoSliceMut},
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::{
            ffi::OsStrExt as _,
            fs::{FileExt as _, FileTypeExt as _},
        },
    },
    path::{Component, Path},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    fs::{
        AtFlags, FallocateFlags, FsWord, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Uid,
        chownat, fallocate, fchmod, fchown, fstat, fstatfs, fsync, linkat, mkdirat, open, openat,
        openat2, renameat_with, symlinkat, syncfs, unlinkat,
    },
    io::{Errno, ReadWriteFlags, preadv2, retry_on_intr},
};

use crate::call::check;

mod attributes;
pub use attributes::{attribute, attribute_names, remove_attribute, set_attribute};

mod status;
pub use status::{
    FileTime, Kind, Space, Status, creation_mask, effective_user, open_without_waiting,
};

/// A directory; its operations reach only what is beneath it.
#[derive(Debug)]
pub struct Directory(OwnedFd);

/// The effect of a rename when the new name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The rename fails with `AlreadyExists`. Most filesystems check and rename in one step: see
    /// [`Directory::rename`].
    Refuse,
    /// The rename replaces what has the new name.
    Replace,
}

impl Directory {
    /// Opens a directory anywhere. It follows links in `path`, because the user chose the path.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory` or `PermissionDenied`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(open(path, flags, Mode::empty())?))
    }

    /// Opens a directory beneath this one.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, or a link on the way.
    pub fn directory(&self, path: &Path) -> io::Result<Self> {
        self.beneath(path, OFlags::RDONLY | OFlags::DIRECTORY, 0)
            .map(Self)
    }

    /// Opens a directory as [`Directory::directory`] does, but only on this directory's own
    /// filesystem, not on one that is mounted beneath it.
    ///
    /// # Errors
    /// As [`Directory::directory`], and `CrossesDevices`.
    pub fn directory_unmounted(&self, path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let opened = self.open_beneath(path, flags, 0, ResolveFlags::NO_XDEV)?;
        // Where `openat2` is missing, the kernel has not checked that the filesystem is the same.
        if fstat(&opened)?.st_dev != fstat(&self.0)?.st_dev {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        Ok(Self(opened))
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// `NotFound`, a link on the way, or anything but a regular file (usually `InvalidInput`).
    pub fn open_to_read(&self, path: &Path) -> io::Result<File> {
        self.regular(path, OFlags::RDONLY)
    }

    /// Opens whatever is at `path` for reading, without waiting. The caller then checks what it is.
    ///
    /// # Errors
    /// `NotFound`, or a link on the way.
    pub fn open_unchecked(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        self.beneath(path, flags, 0).map(File::from)
    }

    /// Opens an existing regular file for reading and writing.
    ///
    /// # Errors
    /// As [`Directory::open_to_read`].
    pub fn open_to_write(&self, path: &Path) -> io::Result<File> {
        self.regular(path, OFlags::RDWR)
    }

    /// Makes a new file for reading and writing. The process's mask applies to `mode`.
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken, also by a link.
    pub fn create(&self, path: &Path, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        self.beneath(path, flags, mode).map(File::from)
    }

    /// Makes a directory. The process's mask applies to `mode`.
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken.
    pub fn make_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        let (parent, name) = self.parent_of(path)?;
        Ok(mkdirat(parent, &name, Mode::from_raw_mode(mode))?)
    }

    /// Makes a symbolic link at `path` whose text is `target`. The text is not checked.
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken.
    pub fn make_link(&self, target: &Path, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent_of(path)?;
        Ok(symlinkat(target, parent, &name)?)
    }

    /// Gives the file `from` beneath this directory a further name `to` beneath `destination`. A
    /// symbolic link at `from` is not followed: the symbolic link itself gets the further name.
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken; `CrossesDevices` when `to` is on another
    /// filesystem; `TooManyLinks`, or `PermissionDenied` where the filesystem has no hard links or
    /// the file is another user's (`fs.protected_hardlinks`).
    pub fn hard_link(&self, from: &Path, destination: &Self, to: &Path) -> io::Result<()> {
        let (old_parent, old) = self.parent_of(from)?;
        let (new_parent, new) = destination.parent_of(to)?;
        Ok(linkat(
            &old_parent,
            &old,
            &new_parent,
            &new,
            AtFlags::empty(),
        )?)
    }

    /// Renames `from` beneath this directory to `to` beneath `destination`, in one step. A name
    /// that is a symbolic link is not followed. With [`Taken::Refuse`], some filesystems (NFS)
    /// cannot do it in one step: there, a file gets its new name before it loses the old one, and
    /// renaming a directory fails.
    ///
    /// # Errors
    /// `AlreadyExists` when the new name is taken, with [`Taken::Refuse`]; `CrossesDevices` when
    /// `from` and `to` are on different filesystems.
    pub fn rename(
        &self,
        from: &Path,
        destination: &Self,
        to: &Path,
        taken: Taken,
    ) -> io::Result<()> {
        let (old_parent, old) = self.parent_of(from)?;
        let (new_parent, new) = destination.parent_of(to)?;
        let flags = match taken {
            Taken::Refuse => RenameFlags::NOREPLACE,
            Taken::Replace => RenameFlags::empty(),
        };
        match renameat_with(&old_parent, &old, &new_parent, &new, flags) {
            // The filesystem can rename, but not on the condition that the new name is free.
            Err(Errno::INVAL | Errno::NOSYS) if taken == Taken::Refuse => {
                link_over(old_parent.as_fd(), &old, new_parent.as_fd(), &new)
            }
            renamed => Ok(renamed?),
        }
    }

    /// Removes a file or a link (the link itself, not what it names).
    ///
    /// # Errors
    /// `NotFound`, or `IsADirectory`.
    pub fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.unlink(path, AtFlags::empty())
    }

    /// Sets the permission bits of this directory.
    ///
    /// # Errors
    /// `PermissionDenied` when the directory belongs to another user.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(fchmod(&self.0, Mode::from_raw_mode(mode))?)
    }

    /// Sets the permission bits of what is at `path`, which need not be readable. It does not
    /// follow a link there.
    ///
    /// # Errors
    /// `Unsupported` for a link; `PermissionDenied` when the file belongs to another user.
    pub fn set_mode_of(&self, path: &Path, mode: u32) -> io::Result<()> {
        let (parent, name) = self.parent_of(path)?;
        let (at, flags) = (parent.as_fd().as_raw_fd(), libc::AT_SYMLINK_NOFOLLOW);
        // rustix refuses AT_SYMLINK_NOFOLLOW, so this calls the C library, which goes through
        // `/proc` where the kernel has no `fchmodat2`. SAFETY: `name` is a live nul-terminated
        // string, only read; `parent` is open.
        check(unsafe { libc::fchmodat(at, name.as_ptr(), mode, flags) })?;
        Ok(())
    }

    /// Sets the user and the group of what is at `path`; `None` leaves the user or the group
    /// unchanged. It does not follow a link there: the link itself gets the new owner.
    ///
    /// # Errors
    /// `PermissionDenied` when this process may not; `InvalidInput` for a number that this user
    /// namespace does not map.
    pub fn set_owner_of(
        &self,
        path: &Path,
        user: Option<u32>,
        group: Option<u32>,
    ) -> io::Result<()> {
        let (parent, name) = self.parent_of(path)?;
        let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(chownat(parent, &name, user, group, flags)?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, or `DirectoryNotEmpty`.
    pub fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.unlink(path, AtFlags::REMOVEDIR)
    }

    /// Returns the status of what is at `path`. It does not follow a link there.
    ///
    /// # Errors
    /// `NotFound`, or a link on the way.
    pub fn status(&self, path: &Path) -> io::Result<Status> {
        let (parent, name) = self.parent_of(path)?;
        Status::at(parent.as_fd(), &name)
    }

    /// Checks whether this process, with its effective rights, may read what is at `path`. It does
    /// not follow a link there. The check is cheaper than opening the file, but only opening is
    /// certain.
    ///
    /// # Errors
    /// `PermissionDenied` when the process may not read it; `NotFound`, or a link on the way.
    pub fn check_readable(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent_of(path)?;
        match status::check_readable(parent.as_fd(), &name) {
            Err(error) if is_missing(&error) => self.open_to_read(path).map(drop),
            checked => checked,
        }
    }

    /// Returns the text of the link at `path`: where it points.
    ///
    /// # Errors
    /// `InvalidInput` when there is no link at `path`.
    pub fn read_link(&self, path: &Path) -> io::Result<std::path::PathBuf> {
        let (parent, name) = self.parent_of(path)?;
        status::read_link(parent.as_fd(), &name)
    }

    /// Sets the modification time of what is at `path`. It does not follow a link there: the link
    /// itself gets the time. The access time stays.
    ///
    /// # Errors
    /// When the file belongs to another user.
    pub fn set_modified(&self, path: &Path, modified: FileTime) -> io::Result<()> {
        let (parent, name) = self.parent_of(path)?;
        status::set_modified(parent.as_fd(), &name, modified)
    }

    /// Returns the names in this directory, without `.` and `..`, in no particular order.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn names(&self) -> io::Result<Vec<std::ffi::OsString>> {
        // Reads through the descriptor, so that the names are this directory's even after a rename.
        let through = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        std::fs::read_dir(through)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect()
    }

    /// Writes this directory's own entries to the disk. Call it after a rename, before reporting
    /// that rename.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.0)?)
    }

    /// Writes everything on this directory's filesystem to the disk: one call for many files.
    ///
    /// # Errors
    /// When the disk fails; since Linux 5.8 also when the disk failed earlier.
    pub fn sync_filesystem(&self) -> io::Result<()> {
        Ok(syncfs(&self.0)?)
    }

    /// Returns how much room the filesystem has.
    ///
    /// # Errors
    /// When the filesystem does not say.
    pub fn space(&self) -> io::Result<Space> {
        Space::of(self.0.as_fd())
    }

    fn unlink(&self, path: &Path, flags: AtFlags) -> io::Result<()> {
        let (parent, name) = self.parent_of(path)?;
        Ok(unlinkat(parent, &name, flags)?)
    }

    /// Opens a regular file. It never waits (opening a pipe would wait for the pipe's other end),
    /// and checks the kind of what it opened.
    fn regular(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let fd = self.beneath(path, flags | OFlags::NONBLOCK | OFlags::NOCTTY, 0)?;
        let file = File::from(fd);
        let kind = file.metadata()?.file_type();
        if kind.is_file() {
            return Ok(file);
        }
        let what = match () {
            () if kind.is_fifo() => "a pipe",
            () if kind.is_socket() => "a socket",
            () if kind.is_dir() => "a directory",
            () => "a device",
        };
        let text = format!("{what}, not a regular file");
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    /// Opens the directory that `path` is in, and returns it with the last name of `path`.
    fn parent_of(&self, path: &Path) -> io::Result<(Parent<'_>, CString)> {
        let names = components(path)?;
        let (name, above) = names.split_last().ok_or_else(|| unusable(path))?;
        if above.is_empty() {
            return Ok((Parent::Same(self.0.as_fd()), name.clone()));
        }
        let above = path.parent().ok_or_else(|| unusable(path))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let parent = self.beneath(above, flags, 0)?;
        Ok((Parent::Opened(parent), name.clone()))
    }

    fn beneath(&self, path: &Path, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
        self.open_beneath(path, flags, mode, ResolveFlags::empty())
    }

    fn open_beneath(
        &self,
        path: &Path,
        flags: OFlags,
        mode: u32,
        more: ResolveFlags,
    ) -> io::Result<OwnedFd> {
        let names = components(path)?;
        if names.is_empty() {
            return Err(unusable(path));
        }
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // `openat2` accepts a mode other than 0 only when it makes a file: other callers pass 0.
        let mode = Mode::from_raw_mode(mode);
        if !OPENAT2_IS_MISSING.load(Ordering::Relaxed) {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | more;
            match openat2(&self.0, path, flags, mode, resolve).map_err(io::Error::from) {
                Err(error) if is_missing(&error) => {
                    OPENAT2_IS_MISSING.store(true, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        self.beneath_by_steps(&names, flags, mode)
    }

    /// Opens the components one by one, and fails for a link.
    fn beneath_by_steps(
        &self,
        names: &[CString],
        flags: OFlags,
        mode: Mode,
    ) -> io::Result<OwnedFd> {
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut at = Parent::Same(self.0.as_fd());
        for (index, name) in names.iter().enumerate() {
            if index + 1 == names.len() {
                return Ok(openat(at, name, flags, mode)?);
            }
            at = Parent::Opened(openat(at, name, step, Mode::empty())?);
        }
        Err(io::ErrorKind::InvalidInput.into())
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Reads those bytes of a file, from `at` on, that are in memory already, without waiting for a
/// disk. Returns how many it read. If these are fewer than `out` has room for, the next byte is not
/// in memory, or the file ends.
///
/// # Errors
/// `WouldBlock` when the first byte is not in memory; `Unsupported` where the filesystem cannot
/// tell; or any error of reading a file.
pub fn read_cached(file: &File, out: &mut [u8], at: u64) -> io::Result<usize> {
    let read = retry_on_intr(|| {
        let mut room = [IoSliceMut::new(out)];
        preadv2(file, &mut room, at, ReadWriteFlags::NOWAIT)
    });
    match read {
        // tmpfs does not know the flag `NOWAIT`, but its files are in memory, so a usual read waits
        // for no disk.
        Err(Errno::OPNOTSUPP) if fstatfs(file)?.f_type == TMPFS => file.read_at(out, at),
        read => Ok(read?),
    }
}

/// `TMPFS_MAGIC`: the kernel's number for the type of filesystem tmpfs.
const TMPFS: FsWord = 0x0102_1994;

/// Reserves disk space for the first `bytes` bytes of a file, and lengthens a shorter file to
/// `bytes`. So a full disk is found before data arrives. With 0 it empties the file.
///
/// # Errors
/// `StorageFull`, `FileTooLarge` or `QuotaExceeded`; `Unsupported` where the filesystem cannot
/// reserve.
pub fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return file.set_len(0);
    }
    if i64::try_from(bytes).is_err() {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(retry_on_intr(|| {
        fallocate(file, FallocateFlags::empty(), 0, bytes)
    })?)
}

/// Sets the mode of an open file or directory.
///
/// # Errors
/// `PermissionDenied` when it belongs to another user.
pub fn set_mode(open: &impl AsFd, mode: u32) -> io::Result<()> {
    Ok(fchmod(open, Mode::from_raw_mode(mode))?)
}

/// Reserves disk space for `bytes` bytes of a file from `at` on. The file's length stays.
///
/// # Errors
/// As [`allocate`].
pub fn allocate_ahead(file: &File, at: u64, bytes: u64) -> io::Result<()> {
    let flags = FallocateFlags::KEEP_SIZE;
    Ok(retry_on_intr(|| fallocate(file, flags, at, bytes))?)
}

/// Sets the user and the group of an open file or directory; `None` leaves the user or the group
/// unchanged.
///
/// # Errors
/// As [`Directory::set_owner_of`].
pub fn set_owner(open: &impl AsFd, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
    let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
    Ok(fchown(open, user, group)?)
}

/// Makes `bytes` bytes of a file, from `at` on, zeros that take no room on the disk. A block of the
/// filesystem that is only partly in this range keeps its room. The file's length stays.
///
/// # Errors
/// `Unsupported` where the filesystem cannot.
pub fn punch_hole(file: &File, at: u64, bytes: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(retry_on_intr(|| fallocate(file, flags, at, bytes))?)
}

/// The directory an operation is done in.
enum Parent<'a> {
    Same(BorrowedFd<'a>),
    Opened(OwnedFd),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Same(fd) => *fd,
            Self::Opened(fd) => fd.as_fd(),
        }
    }
}

/// Returns the names in a relative path; refuses any other path.
fn components(path: &Path) -> io::Result<Vec<CString>> {
    let name = |component| match component {
        Component::Normal(name) => CString::new(name.as_bytes()).map_err(io::Error::from),
        _ => Err(unusable(path)),
    };
    path.components().map(name).collect()
}

fn unusable(path: &Path) -> io::Error {
    let odd = path
        .components()
        .find(|it| !matches!(it, Component::Normal(_)));
    let cause = match odd {
        None => "it is empty",
        Some(Component::CurDir) => "it begins with `.`",
        Some(Component::ParentDir) => "it contains `..`",
        Some(_) => "it begins with `/`",
    };
    let text = format!(
        "the path `{}` cannot be used, because {cause}; give a relative path without `.` and `..`",
        path.display()
    );
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Returns true when a call failed because the kernel lacks it or a sandbox forbids it. The error
/// may have another cause; then the caller's fallback fails, too.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP)
    )
}

/// Renames a file unless the new name is taken, as [`Taken::Refuse`] demands. It takes two steps;
/// between them the file has both names.
fn link_over(
    old_at: BorrowedFd<'_>,
    old: &CStr,
    new_at: BorrowedFd<'_>,
    new: &CStr,
) -> io::Result<()> {
    linkat(old_at, old, new_at, new, AtFlags::empty())?;
    Ok(unlinkat(old_at, old, AtFlags::empty())?)
}

/// True once `openat2` failed because the kernel lacks it or a sandbox forbids it. Threads that
/// race may each try the call once more, which does no harm.
static OPENAT2_IS_MISSING: AtomicBool = AtomicBool::new(false);

#[cfg(test)]
mod tests;
