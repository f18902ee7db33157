//! The files that a demo sends: a given tree, or a large enough one of this machine.

use std::{
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
};

use crate::Error;

/// Files to send.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The paths given to `send`.
    pub paths: Vec<PathBuf>,
    /// How many regular files are below these paths.
    pub files: u64,
    /// How many bytes these files have in total.
    pub bytes: u64,
}

impl Tree {
    /// Makes the tree below one path. What `send` leaves out, such as links that lead elsewhere,
    /// does not count.
    ///
    /// # Errors
    /// When something below cannot be read, or lies more than 40 levels deep.
    pub fn of(path: &Path) -> Result<Self, Error> {
        // The processes and the checking tool run in other directories, so the path must be
        // absolute.
        let path = fs::canonicalize(path)
            .map_err(|error| net::SystemError::system("read", path.display(), &error))?;
        let mut tally = Tally {
            is_lenient: true,
            ..Tally::default()
        };
        if !tally.visit(&path, 0) {
            let unsuitable = tally.unsuitable.unwrap_or_default();
            let unsuitable = unsuitable.display();
            let (cause, remedy) = match tally.error {
                _ if tally.is_deep => (
                    format!("{unsuitable} is {DEPTH_MAX} levels down, and a demo goes no deeper"),
                    "name another path",
                ),
                Some(error) => (
                    format!("{unsuitable} cannot be read: {error}"),
                    "let this user read it, or name another path",
                ),
                None => (
                    format!("{unsuitable} is not a file or directory"),
                    "name another path",
                ),
            };
            return Err(net::SystemError::refused("send", path.display(), cause)
                .advise(remedy)
                .into());
        }
        Ok(Self {
            paths: vec![path],
            files: tally.files,
            bytes: tally.bytes,
        })
    }

    /// Finds directories of this machine that together hold at least this many bytes and files.
    /// Tries, in a fixed order, directories that everybody may read and that nothing changes.
    ///
    /// # Errors
    /// When the machine has no such directories.
    pub fn find(bytes_min: u64, files_min: u64) -> Result<Self, Error> {
        let mut found = Self {
            paths: Vec::new(),
            files: 0,
            bytes: 0,
        };
        for root in ROOTS {
            for directory in subdirectories(Path::new(root)) {
                if found.is_enough(bytes_min, files_min) {
                    return Ok(found);
                }
                found.add(directory, bytes_min);
            }
        }
        if found.is_enough(bytes_min, files_min) {
            return Ok(found);
        }
        let cause = format!(
            "the suitable directories of this machine have {} bytes in {} files together, and the \
             demo needs at least {bytes_min} bytes in {files_min} files",
            found.bytes, found.files
        );
        Err(net::SystemError::refused("find", "a tree to send", cause)
            .advise("name a tree: `towline demo PATH`, or lower --min-bytes or --min-files")
            .into())
    }

    const fn is_enough(&self, bytes_min: u64, files_min: u64) -> bool {
        self.bytes >= bytes_min && self.files >= files_min
    }

    /// Adds a directory, unless it is unsuitable, has no files, is larger than `bytes_min`, or has
    /// the name of an earlier one.
    fn add(&mut self, directory: PathBuf, bytes_min: u64) {
        let mut tally = Tally {
            bytes_max: bytes_min,
            ..Tally::default()
        };
        let is_new = |path: &PathBuf| path.file_name() != directory.file_name();
        if !self.paths.iter().all(is_new) || !tally.visit(&directory, 0) || tally.files == 0 {
            return;
        }
        self.paths.push(directory);
        self.files += tally.files;
        self.bytes += tally.bytes;
    }
}

#[derive(Debug, Default)]
struct Tally {
    files: u64,
    bytes: u64,
    /// The most bytes that are suitable; 0 for no limit.
    bytes_max: u64,
    /// Entries that `send` leaves out are suitable, too.
    is_lenient: bool,
    /// The first unsuitable entry.
    unsuitable: Option<PathBuf>,
    /// True when `unsuitable` is a directory whose contents lie too deep.
    is_deep: bool,
    /// The error of the last entry that could not be read.
    error: Option<std::io::Error>,
}

impl Tally {
    /// Counts the files and bytes below `path`; returns false as soon as an entry is unsuitable.
    fn visit(&mut self, path: &Path, depth: usize) -> bool {
        let is_suitable = self.count(path, depth);
        if !is_suitable && self.unsuitable.is_none() {
            self.unsuitable = Some(path.to_owned());
        }
        is_suitable
    }

    /// Returns what was read; otherwise keeps the error, and returns `None`.
    fn noted<T>(&mut self, read: std::io::Result<T>) -> Option<T> {
        read.map_err(|error| self.error = Some(error)).ok()
    }

    fn count(&mut self, path: &Path, depth: usize) -> bool {
        let Some(metadata) = self.noted(fs::symlink_metadata(path)) else {
            return false;
        };
        let kind = metadata.file_type();
        if kind.is_symlink() {
            let stays = |target: PathBuf| stays_inside(&target, depth);
            return self.is_lenient || fs::read_link(path).is_ok_and(stays);
        }
        if kind.is_file() {
            self.files += 1;
            self.bytes += metadata.len();
            let is_small = self.bytes_max == 0 || self.bytes <= self.bytes_max;
            return is_small && self.noted(fs::File::open(path)).is_some();
        }
        if !kind.is_dir() {
            return self.is_lenient;
        }
        let Some(entries) = self.noted(fs::read_dir(path)) else {
            return false;
        };
        if depth >= DEPTH_MAX {
            self.is_deep = true;
            return false;
        }
        entries
            .flatten()
            .all(|entry| self.visit(&entry.path(), depth + 1))
    }
}

/// Returns true for a link that cannot lead out of the tree; the link lies `depth` levels below the
/// root.
fn stays_inside(target: &Path, depth: usize) -> bool {
    let mut level = depth as i64 - 1;
    for component in target.components() {
        match component {
            Component::Normal(_) => level += 1,
            Component::CurDir => {}
            Component::ParentDir => level -= 1,
            Component::RootDir | Component::Prefix(_) => return false,
        }
        if level < 0 {
            return false;
        }
    }
    true
}

fn subdirectories(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    found.sort_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    found
}

/// The directories where systems keep files that anybody may read and that do not change.
const ROOTS: &[&str] = &[
    "/usr/share",
    "/usr/include",
    "/usr/lib",
    "/usr/local/lib",
    "/opt",
];
const DEPTH_MAX: usize = 40;
