//! Files beneath one directory, so that no name from the network can lead out of it.
//!
//! [`Directory`] is the only way in: names are relative, without `..`, and no symbolic link on the
//! way is followed, also when someone puts one there at the wrong moment. The kernel checks that
//! (`openat2`, `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`); where it is too old or a sandbox forbids
//! the call, every component is opened by itself with the same effect.
//!
//! ```text
//! "a/b/file" ──> open "a/b" beneath, no links ──> operation on "file" in it, not following it
//! ```
//!
//! Opened files are [`std::fs::File`]s: reading and writing at an offset is the standard library's.

use std::{
    ffi::{CStr, CString},
    fs::File,
    io,
    mem::size_of,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::FileTypeExt as _},
    },
    path::{Component, Path},
    sync::atomic::{AtomicBool, Ordering},
};

use libc::c_int;

use crate::call::check;

mod status;
pub use status::{FileTime, Kind, Space, Status, creation_mask, effective_user};

/// A directory that everything is done beneath.
#[derive(Debug)]
pub struct Directory(OwnedFd);

/// What happens when the new name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The rename fails with `AlreadyExists`; checked by the kernel in one step.
    Refuse,
    /// What was there is replaced.
    Replace,
}

impl Directory {
    /// Opens a directory anywhere; links in `path` are followed, for it is the user's own choice.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory` or `PermissionDenied`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: `path` is a live nul-terminated string, only read.
        let raw = check(unsafe { libc::open(path.as_ptr(), flags) })?;
        // SAFETY: `raw` was just returned open by open and belongs to nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// Opens a directory beneath this one.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, or a link on the way.
    pub fn directory(&self, path: &Path) -> io::Result<Self> {
        self.beneath(path, libc::O_RDONLY | libc::O_DIRECTORY, 0)
            .map(Self)
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// `NotFound`, a link on the way, or `InvalidInput` for anything but a regular file.
    pub fn open_to_read(&self, path: &Path) -> io::Result<File> {
        self.regular(path, libc::O_RDONLY, 0)
    }

    /// Opens whatever is at `path` for reading, without waiting, for who checks what it is
    /// afterwards.
    ///
    /// # Errors
    /// `NotFound`, or a link on the way.
    pub fn open_unchecked(&self, path: &Path) -> io::Result<File> {
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
        self.beneath(path, flags, 0).map(File::from)
    }

    /// Opens an existing regular file for reading and writing.
    ///
    /// # Errors
    /// As [`Directory::open_to_read`].
    pub fn open_to_write(&self, path: &Path) -> io::Result<File> {
        self.regular(path, libc::O_RDWR, 0)
    }

    /// Makes a new file for reading and writing. The process's mask applies to `mode`.
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken, also by a link.
    pub fn create(&self, path: &Path, mode: u32) -> io::Result<File> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        self.beneath(path, flags, mode).map(File::from)
    }

    /// Makes a directory. The process's mask applies to `mode`.
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken.
    pub fn make_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        let (parent, name) = self.parent_of(path)?;
        let parent = parent.as_raw_fd();
        // SAFETY: `name` is a live nul-terminated string, only read; `parent` is open.
        check(unsafe { libc::mkdirat(parent, name.as_ptr(), mode) })?;
        Ok(())
    }

    /// Makes a symbolic link at `path` that says `target`, whatever that is.
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken.
    pub fn make_link(&self, target: &Path, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent_of(path)?;
        let target = CString::new(target.as_os_str().as_bytes())?;
        let parent = parent.as_raw_fd();
        // SAFETY: both strings are live and nul-terminated, only read; `parent` is open.
        check(unsafe { libc::symlinkat(target.as_ptr(), parent, name.as_ptr()) })?;
        Ok(())
    }

    /// Gives what is called `from` here the name `to` beneath `destination`, in one step. Neither
    /// name is followed when it is a link. Filesystems that cannot refuse a taken name (NFS) give
    /// files the new name before they take the old one away; directories they do not rename then.
    ///
    /// # Errors
    /// `AlreadyExists` by [`Taken::Refuse`]; `CrossesDevices` when the two are on different
    /// filesystems.
    pub fn rename(
        &self,
        from: &Path,
        destination: &Self,
        to: &Path,
        taken: Taken,
    ) -> io::Result<()> {
        let (old_parent, old) = self.parent_of(from)?;
        let (new_parent, new) = destination.parent_of(to)?;
        let (old_at, new_at) = (old_parent.as_raw_fd(), new_parent.as_raw_fd());
        let flags = match taken {
            Taken::Refuse => libc::RENAME_NOREPLACE,
            Taken::Replace => 0,
        };
        // SAFETY: both names are live nul-terminated strings, only read; both directories are open.
        let renamed =
            check(unsafe { libc::renameat2(old_at, old.as_ptr(), new_at, new.as_ptr(), flags) });
        match renamed {
            Err(error) if flags != 0 && knows_no_flags(&error) => {
                link_over(old_parent.as_fd(), &old, new_parent.as_fd(), &new)
            }
            renamed => renamed.map(drop),
        }
    }

    /// Removes a file or a link (itself, not what it names).
    ///
    /// # Errors
    /// `NotFound`, or `IsADirectory`.
    pub fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.unlink(path, 0)
    }

    /// Sets this directory's own permission bits.
    ///
    /// # Errors
    /// `PermissionDenied` when it belongs to someone else.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        // SAFETY: takes no memory; the descriptor is owned, hence open.
        check(unsafe { libc::fchmod(self.0.as_raw_fd(), mode) })?;
        Ok(())
    }

    /// Sets the permission bits of what is at `path`, which need not be readable; a link there is
    /// not followed.
    ///
    /// # Errors
    /// `Unsupported` for a link; `PermissionDenied` when it belongs to someone else.
    pub fn set_mode_of(&self, path: &Path, mode: u32) -> io::Result<()> {
        let (parent, name) = self.parent_of(path)?;
        let (at, flags) = (parent.as_raw_fd(), libc::AT_SYMLINK_NOFOLLOW);
        // SAFETY: `name` is a live nul-terminated string, only read; `parent` is open.
        check(unsafe { libc::fchmodat(at, name.as_ptr(), mode, flags) })?;
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, or `DirectoryNotEmpty`.
    pub fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.unlink(path, libc::AT_REMOVEDIR)
    }

    /// What is at `path`, not following a link there.
    ///
    /// # Errors
    /// `NotFound`, or a link on the way.
    pub fn status(&self, path: &Path) -> io::Result<Status> {
        let (parent, name) = self.parent_of(path)?;
        Status::at(parent.as_fd(), &name)
    }

    /// Whether this process, by the rights it acts with, may read what is at `path`, not following
    /// a link there. Cheaper than opening it; only opening it is certain.
    ///
    /// # Errors
    /// `PermissionDenied` when it may not; `NotFound`, or a link on the way.
    pub fn check_readable(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent_of(path)?;
        match status::check_readable(parent.as_fd(), &name) {
            Err(error) if is_missing(&error) => self.open_to_read(path).map(drop),
            checked => checked,
        }
    }

    /// Where the link at `path` points.
    ///
    /// # Errors
    /// `InvalidInput` when it is no link.
    pub fn read_link(&self, path: &Path) -> io::Result<std::path::PathBuf> {
        let (parent, name) = self.parent_of(path)?;
        status::read_link(parent.as_fd(), &name)
    }

    /// Sets when the contents of what is at `path` were last modified, of a link itself. The access
    /// time stays.
    ///
    /// # Errors
    /// When it is not ours.
    pub fn set_modified(&self, path: &Path, modified: FileTime) -> io::Result<()> {
        let (parent, name) = self.parent_of(path)?;
        status::set_modified(parent.as_fd(), &name, modified)
    }

    /// Names in this directory, without `.` and `..`, in no particular order.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn names(&self) -> io::Result<Vec<std::ffi::OsString>> {
        // Through the descriptor, so that it is this directory whatever its name is by now.
        let through = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        std::fs::read_dir(through)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect()
    }

    /// Writes this directory's own entries to the disk: after a rename, before it is reported.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the descriptor is owned, hence open.
        check(unsafe { libc::fsync(self.0.as_raw_fd()) })?;
        Ok(())
    }

    /// Writes everything on this directory's filesystem to the disk: one call for many files.
    ///
    /// # Errors
    /// When the disk failed, since Linux 5.8 also when it did so earlier.
    pub fn sync_filesystem(&self) -> io::Result<()> {
        // SAFETY: the descriptor is owned, hence open.
        check(unsafe { libc::syncfs(self.0.as_raw_fd()) })?;
        Ok(())
    }

    /// How much room the filesystem has.
    ///
    /// # Errors
    /// When the filesystem does not say.
    pub fn space(&self) -> io::Result<Space> {
        Space::of(self.0.as_fd())
    }

    fn unlink(&self, path: &Path, flags: c_int) -> io::Result<()> {
        let (parent, name) = self.parent_of(path)?;
        let parent = parent.as_raw_fd();
        // SAFETY: `name` is a live nul-terminated string, only read; `parent` is open.
        check(unsafe { libc::unlinkat(parent, name.as_ptr(), flags) })?;
        Ok(())
    }

    /// Opening never waits (as it would for a pipe's other end), and what is opened is checked.
    fn regular(&self, path: &Path, flags: c_int, mode: u32) -> io::Result<File> {
        let fd = self.beneath(path, flags | libc::O_NONBLOCK | libc::O_NOCTTY, mode)?;
        let file = File::from(fd);
        let kind = file.metadata()?.file_type();
        if kind.is_file() {
            return Ok(file);
        }
        let what = if kind.is_fifo() || kind.is_socket() {
            "a pipe or socket"
        } else {
            "a device or directory"
        };
        let text = format!("{what}, not a regular file");
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    /// The directory that `path` is in, and its name there.
    fn parent_of(&self, path: &Path) -> io::Result<(Parent<'_>, CString)> {
        let names = components(path)?;
        let (name, above) = names.split_last().ok_or_else(|| unusable(path))?;
        if above.is_empty() {
            return Ok((Parent::Same(self.0.as_fd()), name.clone()));
        }
        let above = path.parent().ok_or_else(|| unusable(path))?;
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let parent = self.beneath(above, flags, 0)?;
        Ok((Parent::Opened(parent), name.clone()))
    }

    fn beneath(&self, path: &Path, flags: c_int, mode: u32) -> io::Result<OwnedFd> {
        let names = components(path)?;
        if names.is_empty() {
            return Err(unusable(path));
        }
        let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        if !OPENAT2_IS_MISSING.load(Ordering::Relaxed) {
            let whole = CString::new(path.as_os_str().as_bytes())?;
            match openat2(self.0.as_fd(), &whole, flags, mode) {
                Err(error) if is_missing(&error) => {
                    OPENAT2_IS_MISSING.store(true, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        self.beneath_by_steps(&names, flags, mode)
    }

    /// Opens each component by itself, none of which may be a link.
    fn beneath_by_steps(&self, names: &[CString], flags: c_int, mode: u32) -> io::Result<OwnedFd> {
        let step = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        let mut at = Parent::Same(self.0.as_fd());
        for (index, name) in names.iter().enumerate() {
            if index + 1 == names.len() {
                return openat(at.as_fd(), name, flags, mode);
            }
            at = Parent::Opened(openat(at.as_fd(), name, step, 0)?);
        }
        Err(io::ErrorKind::InvalidInput.into())
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Takes disk space for `bytes` bytes of a file, which gets that length: so that a full disk is
/// found before anything is received.
///
/// # Errors
/// `StorageFull`, `FileTooLarge` or `QuotaExceeded`; `Unsupported` where the filesystem cannot.
pub fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return file.set_len(0);
    }
    let len = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    loop {
        // SAFETY: takes integers by value; the descriptor is borrowed, hence open.
        match check(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) }) {
            Ok(_zero) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
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

impl Parent<'_> {
    fn as_raw_fd(&self) -> c_int {
        self.as_fd().as_raw_fd()
    }
}

/// The names in a relative path; anything else is refused.
fn components(path: &Path) -> io::Result<Vec<CString>> {
    let name = |component| match component {
        Component::Normal(name) => CString::new(name.as_bytes()).map_err(io::Error::from),
        _ => Err(unusable(path)),
    };
    path.components().map(name).collect()
}

fn unusable(path: &Path) -> io::Error {
    let text = format!("{}: not a path beneath a directory", path.display());
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn openat2(at: BorrowedFd<'_>, path: &CStr, flags: c_int, mode: u32) -> io::Result<OwnedFd> {
    // SAFETY: `open_how` is a C structure of integers; all zero is a valid value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::from(flags.cast_unsigned());
    how.mode = if flags & libc::O_CREAT == 0 {
        0
    } else {
        u64::from(mode)
    };
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS;
    // SAFETY: `path` is a live nul-terminated string and `how` a live structure of the size given;
    // both are only read. The directory is borrowed, hence open.
    let raw = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            at.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    let raw = check(c_int::try_from(raw).unwrap_or(-1))?;
    // SAFETY: `raw` was just returned open by openat2 and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn openat(at: BorrowedFd<'_>, name: &CStr, flags: c_int, mode: u32) -> io::Result<OwnedFd> {
    // SAFETY: `name` is a live nul-terminated string, only read; the directory is borrowed, hence
    // open.
    let raw = check(unsafe { libc::openat(at.as_raw_fd(), name.as_ptr(), flags, mode) })?;
    // SAFETY: `raw` was just returned open by openat and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// A kernel before 5.6 does not know the call; some sandboxes forbid it. A path that is forbidden
/// for another reason is forbidden by the other way too.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP)
    )
}

/// The filesystem renames, but not with a condition.
fn knows_no_flags(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS))
}

/// Renames a file unless the new name is taken, as [`Taken::Refuse`], in two steps: in between it
/// has both names.
fn link_over(
    old_at: BorrowedFd<'_>,
    old: &CStr,
    new_at: BorrowedFd<'_>,
    new: &CStr,
) -> io::Result<()> {
    let (old_at, new_at) = (old_at.as_raw_fd(), new_at.as_raw_fd());
    // SAFETY: both names are live nul-terminated strings, only read; both directories are borrowed,
    // hence open.
    check(unsafe { libc::linkat(old_at, old.as_ptr(), new_at, new.as_ptr(), 0) })?;
    // SAFETY: `old` is a live nul-terminated string, only read; the directory is borrowed.
    check(unsafe { libc::unlinkat(old_at, old.as_ptr(), 0) })?;
    Ok(())
}

/// Learnt at the first call. A race only repeats the attempt.
static OPENAT2_IS_MISSING: AtomicBool = AtomicBool::new(false);

#[cfg(test)]
mod tests;
