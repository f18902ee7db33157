//! Reads the files of a manifest where they lie, one call after the other.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::FileExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use delivery::{ContentError, Manifest};
use sys::file::{self, Directory};
use wire::object::ErrorCode;

use crate::disk::tree::mtime_of;

/// The path or open file that a top-level name of the manifest stands for.
#[derive(Debug)]
pub(crate) enum Root {
    Path(PathBuf),
    File(fs::File),
}

/// For each top-level name of the manifest, the path or open file that it stands for.
pub(crate) type Roots = BTreeMap<Vec<u8>, Root>;

/// A reader of files, which keeps at most [`OPEN_MAX`] of them open.
#[derive(Debug)]
pub(super) struct Files {
    roots: Arc<Roots>,
    withdrawn: Withdrawn,
    /// Open files, each with the index of its manifest entry. The first was read most recently.
    open: VecDeque<(u32, fs::File)>,
    parents: Parents,
}

/// The indices in [`Manifest::files`] of files that are not sent any more; clones share the list.
#[derive(Clone, Debug, Default)]
pub(super) struct Withdrawn(Arc<Mutex<BTreeSet<usize>>>);

impl Withdrawn {
    pub(super) fn add(&self, file: usize) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.insert(file);
    }

    fn contains(&self, file: usize) -> bool {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.contains(&file)
    }
}

/// The directory that was opened last, with its path. It is kept open because the next path is
/// usually in the same directory.
#[derive(Debug, Default)]
pub(crate) struct Parents(Option<(PathBuf, Directory)>);

impl Parents {
    /// Returns the directory that `path` is in, and the name of `path` there.
    pub(crate) fn of<'a, 'b>(
        &'a mut self,
        path: &'b Path,
    ) -> io::Result<(&'a Directory, &'b Path)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if self.0.as_ref().is_none_or(|(known, _)| known != parent) {
            self.0 = Some((parent.to_path_buf(), Directory::open(parent)?));
        }
        let (_, directory) = self.0.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok((directory, Path::new(name)))
    }
}

impl Files {
    pub(super) const fn new(roots: Arc<Roots>, withdrawn: Withdrawn) -> Self {
        Self {
            roots,
            withdrawn,
            open: VecDeque::new(),
            parents: Parents(None),
        }
    }

    /// Fills `out` with the content from position `offset` on. Withdrawn files read as zeros.
    pub(super) fn read(
        &mut self,
        manifest: &Manifest,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), ContentError> {
        let end = offset + out.len() as u64;
        let mut rest = out;
        for (index, file_offset, range) in manifest.pieces(offset..end) {
            let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            let (piece, after) = rest.split_at_mut(len);
            rest = after;
            if self.withdrawn.contains(index) {
                piece.fill(0);
                continue;
            }
            let is_last = file_offset + len as u64 == manifest.files()[index].size_bytes;
            let is_all = is_last && file_offset == 0;
            self.read_piece(manifest, index, file_offset, piece, is_all)
                .and_then(|()| {
                    let (_, file) = &self.open[0];
                    // If the file changed while it was read, the hash would cover a mixture of both
                    // versions.
                    match is_last {
                        true => self.check(manifest, index, file),
                        false => Ok(()),
                    }
                })
                .map_err(|error| error.of_file(index))?;
            if is_all {
                self.open.pop_front();
            }
        }
        Ok(())
    }

    /// Fills `out` as [`Files::read`] does, but only with content that the system has in memory.
    /// Returns false when that fails; `out` may then have changed. It always fails for a whole
    /// file, for a range that spans files, and for a withdrawn file.
    pub(super) fn read_cached(&mut self, manifest: &Manifest, offset: u64, out: &mut [u8]) -> bool {
        let mut pieces = manifest.pieces(offset..offset + out.len() as u64);
        let (Some((index, at, _)), None) = (pieces.next(), pieces.next()) else {
            return false;
        };
        let end = at + out.len() as u64;
        let is_last = end == manifest.files()[index].size_bytes;
        if self.withdrawn.contains(index) || (at == 0 && is_last) {
            return false;
        }
        // The error is dropped here: [`Files::read`] finds it, too, and returns it.
        let Ok(file) = self.file(manifest, index, false) else {
            return false;
        };
        let is_read = file::read_cached(file, out, at).is_ok_and(|count| count == out.len());
        is_read && (!is_last || self.check(manifest, index, &self.open[0].1).is_ok())
    }

    fn read_piece(
        &mut self,
        manifest: &Manifest,
        index: usize,
        file_offset: u64,
        piece: &mut [u8],
        is_all: bool,
    ) -> Result<(), ContentError> {
        let file = self.file(manifest, index, is_all)?;
        let Err(error) = file.read_exact_at(piece, file_offset) else {
            return Ok(());
        };
        // When the file changed, saying so helps more than the read error.
        let (_, file) = &self.open[0];
        self.check(manifest, index, file)?;
        let path = self.path_of(manifest, index);
        Err(if error.kind() == io::ErrorKind::UnexpectedEof {
            changed(&path)
        } else {
            content_error(&path, &error)
        })
    }

    fn path_of(&self, manifest: &Manifest, file: usize) -> PathBuf {
        let path = manifest.path_of(&manifest.files()[file]);
        let (top, rest) = match path.iter().position(|&byte| byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (path, &[][..]),
        };
        match self.roots.get(top) {
            Some(Root::Path(root)) if rest.is_empty() => root.clone(),
            Some(Root::Path(root)) => root.join(OsStr::from_bytes(rest)),
            Some(Root::File(_)) | None => PathBuf::from(OsStr::from_bytes(top)),
        }
    }

    /// Returns an open file; opens it if it is not open yet. Then [`Files::check`] is called here
    /// only without `is_all`: with `is_all`, the caller reads the whole file and checks it after.
    fn file(
        &mut self,
        manifest: &Manifest,
        index: usize,
        is_all: bool,
    ) -> Result<&fs::File, ContentError> {
        let entry = manifest.files()[index].entry;
        match self.open.iter().position(|(open, _)| *open == entry) {
            Some(0) => {}
            Some(at) => self.open.swap(0, at),
            None => {
                let file = self.open(manifest, index)?;
                if !is_all {
                    self.check(manifest, index, &file)?;
                }
                self.open.truncate(OPEN_MAX - 1);
                self.open.push_front((entry, file));
            }
        }
        Ok(&self.open[0].1)
    }

    fn open(&mut self, manifest: &Manifest, index: usize) -> Result<fs::File, ContentError> {
        let path = self.path_of(manifest, index);
        if let Some(Root::File(file)) = self.roots.get(manifest.path_of(&manifest.files()[index])) {
            return file
                .try_clone()
                .map_err(|error| content_error(&path, &error));
        }
        self.open_path(&path).map_err(|error| {
            let is_file = fs::symlink_metadata(&path).is_ok_and(|now| now.is_file());
            let is_gone = error.kind() == io::ErrorKind::NotFound;
            if is_file || is_gone {
                content_error(&path, &error)
            } else {
                changed(&path)
            }
        })
    }

    /// Opens a file by its name. Something else may have taken this name since the files were
    /// listed: a pipe must not block the open, and a link must not lead elsewhere. [`Files::check`]
    /// finds out whether the opened file is as the manifest says.
    fn open_path(&mut self, path: &Path) -> io::Result<fs::File> {
        let (directory, name) = self.parents.of(path)?;
        directory.open_unchecked(name)
    }

    /// Checks that `file` is a regular file with the length and time that the manifest gives.
    fn check(
        &self,
        manifest: &Manifest,
        index: usize,
        file: &fs::File,
    ) -> Result<(), ContentError> {
        let metadata = file
            .metadata()
            .map_err(|error| content_error(&self.path_of(manifest, index), &error))?;
        let planned = manifest.entry(manifest.files()[index].entry as usize);
        let is_same = metadata.is_file()
            && metadata.len() == planned.size_bytes
            && mtime_of(&metadata) == planned.mtime;
        if is_same {
            return Ok(());
        }
        Err(changed(&self.path_of(manifest, index)))
    }
}

fn changed(path: &Path) -> ContentError {
    let text = format!(
        "{} changed after the transfer was planned; send it again",
        path.display()
    );
    ContentError::new(ErrorCode::SourceChanged, text)
}

fn content_error(path: &Path, error: &io::Error) -> ContentError {
    let code = match error.kind() {
        io::ErrorKind::NotFound => ErrorCode::SourceChanged,
        io::ErrorKind::PermissionDenied => ErrorCode::Permission,
        _ => ErrorCode::Io,
    };
    let path = path.display();
    let text = match code {
        ErrorCode::SourceChanged => format!(
            "{path} was removed or renamed after the transfer was planned; start the transfer again"
        ),
        ErrorCode::Permission => {
            format!("cannot read {path}: {error}; let this user read it, or leave it out")
        }
        _ => format!("cannot read {path}: {}", sys::with_usual_remedy(error)),
    };
    ContentError::new(code, text)
}

/// The most files that are kept open for reading.
const OPEN_MAX: usize = 16;
