//! A sender's files: the walk that makes a plan of them, and the reading of their content.
//!
//! Links in a tree are sent as links and never followed. What is neither file, directory nor link
//! is left out, with a note.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use delivery::{Content, ContentError, Entry, Plan, PlanLimits};
use sys::file::Directory;
use wire::object::{EntryKind, ErrorCode, Mtime};

use crate::NetError;

/// A plan of files on this machine, and what is needed to read them.
#[derive(Debug)]
pub struct Tree {
    /// What is to be delivered.
    pub plan: Arc<Plan>,
    /// Its bytes.
    pub content: FileContent,
    /// What was left out, one sentence each.
    pub notes: Vec<String>,
}

/// Something to send.
#[derive(Debug)]
pub enum TreeSource {
    /// A file or directory, delivered under its last component.
    Path(PathBuf),
    /// An open regular file, delivered under a name that it need not have anywhere.
    File {
        /// One component.
        name: OsString,
        /// Its bytes; they must not change.
        file: fs::File,
    },
}

impl Tree {
    /// Walks `paths`; each is delivered under its last component.
    ///
    /// # Errors
    /// As [`Tree::select`].
    pub fn read(paths: &[PathBuf]) -> Result<Self, NetError> {
        let sources = paths.iter().cloned().map(TreeSource::Path);
        Self::select(sources.collect(), |_, _| true)
    }

    /// Walks `sources` and takes what `is_wanted` says yes to, which is asked with the path as it
    /// would be delivered and whether it is a directory. Below a directory that is not wanted
    /// nothing is looked at.
    ///
    /// **Cost**: opens every file, so that one that cannot be read is found before anybody waits.
    ///
    /// # Errors
    /// When something cannot be read (the first ten are named), or the whole is no plan: two
    /// sources of the same name, a name that cannot be delivered, a link that leads out of the
    /// tree.
    pub fn select(
        sources: Vec<TreeSource>,
        is_wanted: impl FnMut(&Path, bool) -> bool,
    ) -> Result<Self, NetError> {
        let mut walk = Walk {
            entries: Vec::new(),
            notes: Vec::new(),
            roots: BTreeMap::new(),
            unreadable: Vec::new(),
            unreadable_count: 0,
            is_wanted,
        };
        for source in sources {
            match source {
                TreeSource::Path(path) => walk.path(&path),
                TreeSource::File { name, file } => walk.file(&name, file),
            }?;
        }
        let Walk {
            entries,
            notes,
            roots,
            unreadable,
            unreadable_count,
            ..
        } = walk;
        if !unreadable.is_empty() {
            let mut cause = unreadable.join("; ");
            if unreadable_count > unreadable.len() {
                cause += &format!("; and {} more", unreadable_count - unreadable.len());
            }
            let target = format!("{unreadable_count} of what is to be sent");
            return Err(NetError::refused("read", target, cause)
                .remedy("make them readable for this user or exclude them"));
        }
        let plan = Plan::build(identity(), entries, &PlanLimits::default())
            .map_err(|error| NetError::refused("plan", "the transfer", error))?;
        let content = FileContent {
            roots,
            open: VecDeque::new(),
        };
        Ok(Self {
            plan: Arc::new(plan),
            content,
            notes,
        })
    }
}

#[derive(Debug)]
struct Walk<W> {
    entries: Vec<Entry>,
    notes: Vec<String>,
    roots: BTreeMap<Vec<u8>, Root>,
    /// What could not be read and why: the first few of them.
    unreadable: Vec<String>,
    unreadable_count: usize,
    is_wanted: W,
}

/// Where a top-level name of the plan comes from.
#[derive(Debug)]
enum Root {
    Path(PathBuf),
    File(fs::File),
}

impl<W: FnMut(&Path, bool) -> bool> Walk<W> {
    fn path(&mut self, path: &Path) -> Result<(), NetError> {
        let name = name_of(path)?;
        self.root(&name, path, Root::Path(path.to_path_buf()))?;
        self.visit(path, name.as_bytes());
        Ok(())
    }

    fn file(&mut self, name: &OsStr, file: fs::File) -> Result<(), NetError> {
        let metadata = file
            .metadata()
            .map_err(|error| NetError::system("read", name.display(), &error))?;
        self.entries.push(Entry {
            kind: EntryKind::File,
            mode: mode_of(&metadata),
            mtime: mtime_of(&metadata),
            size: metadata.len(),
            path: name.as_bytes().to_vec(),
            target: Vec::new(),
        });
        self.root(name, Path::new(name), Root::File(file))
    }

    fn root(&mut self, name: &OsStr, path: &Path, root: Root) -> Result<(), NetError> {
        let before = self.roots.insert(name.as_bytes().to_vec(), root);
        if before.is_some() {
            let cause = "another path of the same name is sent too";
            return Err(NetError::refused("send", path.display(), cause));
        }
        Ok(())
    }

    fn visit(&mut self, path: &Path, name: &[u8]) {
        if let Err(error) = self.take(path, name) {
            self.unreadable(path, &error);
        }
    }

    fn take(&mut self, path: &Path, name: &[u8]) -> io::Result<()> {
        let metadata = fs::symlink_metadata(path)?;
        let kind = metadata.file_type();
        if !(self.is_wanted)(Path::new(OsStr::from_bytes(name)), kind.is_dir()) {
            return Ok(());
        }
        let mut entry = Entry {
            kind: EntryKind::File,
            mode: mode_of(&metadata),
            mtime: mtime_of(&metadata),
            size: 0,
            path: name.to_vec(),
            target: Vec::new(),
        };
        if kind.is_file() {
            entry.size = metadata.len();
            open_regular(path)?;
        } else if kind.is_symlink() {
            entry.kind = EntryKind::Symlink;
            let target = fs::read_link(path)?;
            entry.target = target.as_os_str().as_bytes().to_vec();
            // The entry's own depth is what its link may climb: the walk has no other roots above.
            let depth = name.iter().filter(|&&byte| byte == b'/').count();
            if let Err(fault) = delivery::check_link(&entry.target, depth) {
                let (path, target) = (path.display(), target.display());
                let text = format!("{path} is left out: {fault} (to {target})");
                self.notes.push(text);
                return Ok(());
            }
        } else if kind.is_dir() {
            entry.kind = EntryKind::Directory;
        } else {
            let text = format!(
                "{} is left out: it is no file, directory or link",
                path.display()
            );
            self.notes.push(text);
            return Ok(());
        }
        self.entries.push(entry);
        if kind.is_dir() {
            for below in fs::read_dir(path)? {
                let below = below?.file_name();
                let name = [name, b"/", below.as_bytes()].concat();
                self.visit(&path.join(&below), &name);
            }
        }
        Ok(())
    }

    fn unreadable(&mut self, path: &Path, error: &io::Error) {
        if self.unreadable.len() < UNREADABLE_NAMED_MAX {
            self.unreadable.push(format!("{}: {error}", path.display()));
        }
        self.unreadable_count += 1;
    }
}

/// The name that `path` is delivered under.
fn name_of(path: &Path) -> Result<OsString, NetError> {
    let whole = match path.file_name() {
        Some(_) => path.to_path_buf(),
        None => fs::canonicalize(path)
            .map_err(|error| NetError::system("read", path.display(), &error))?,
    };
    let name = whole.file_name().ok_or_else(|| {
        let cause = "it has no name to be delivered under";
        NetError::refused("send", path.display(), cause).remedy("name what is in it instead")
    })?;
    Ok(name.to_owned())
}

fn mode_of(metadata: &fs::Metadata) -> u16 {
    u16::try_from(metadata.mode() & 0o7777).unwrap_or(0o644)
}

fn mtime_of(metadata: &fs::Metadata) -> Mtime {
    Mtime {
        seconds: metadata.mtime(),
        nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
    }
}

/// The same on every start of this machine, so that an unchanged tree is the same plan again.
fn identity() -> [u8; 16] {
    let machine = fs::read("/etc/machine-id").unwrap_or_default();
    let name = sys::host_name().unwrap_or_default();
    let hash = blake3::hash(&[&machine, name.as_bytes()].concat());
    let mut identity = [0; 16];
    identity.copy_from_slice(&hash.as_bytes()[..16]);
    identity
}

/// The bytes of a plan's files, read where they lie.
///
/// A file whose length or modification time is not what was planned ends the transfer: its
/// receivers would otherwise hold a mixture.
#[derive(Debug)]
pub struct FileContent {
    /// Where each top-level name of the plan is.
    roots: BTreeMap<Vec<u8>, Root>,
    /// The files read last, the latest first.
    open: VecDeque<(u32, fs::File)>,
}

impl FileContent {
    fn path_of(&self, plan: &Plan, file: usize) -> PathBuf {
        let path = plan.path_of(&plan.files()[file]);
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

    fn file(&mut self, plan: &Plan, index: usize) -> Result<&fs::File, ContentError> {
        let entry = plan.files()[index].entry;
        match self.open.iter().position(|(open, _)| *open == entry) {
            Some(0) => {}
            Some(at) => self.open.swap(0, at),
            None => {
                let file = self.open(plan, index)?;
                self.open.truncate(OPEN_MAX - 1);
                self.open.push_front((entry, file));
            }
        }
        Ok(&self.open[0].1)
    }

    fn open(&self, plan: &Plan, index: usize) -> Result<fs::File, ContentError> {
        let path = self.path_of(plan, index);
        if let Some(Root::File(file)) = self.roots.get(plan.path_of(&plan.files()[index])) {
            return file
                .try_clone()
                .map_err(|error| content_error(&path, &error));
        }
        let file = open_regular(&path).map_err(|error| {
            let is_file = fs::symlink_metadata(&path).is_ok_and(|now| now.is_file());
            let is_gone = error.kind() == io::ErrorKind::NotFound;
            if is_file || is_gone {
                content_error(&path, &error)
            } else {
                changed(&path)
            }
        })?;
        self.check(plan, index, &file)?;
        Ok(file)
    }

    /// Refuses what is not the file that was planned.
    fn check(&self, plan: &Plan, index: usize, file: &fs::File) -> Result<(), ContentError> {
        let path = self.path_of(plan, index);
        let metadata = file
            .metadata()
            .map_err(|error| content_error(&path, &error))?;
        let planned = plan.entry(plan.files()[index].entry as usize);
        let is_same = metadata.is_file()
            && metadata.len() == planned.size
            && mtime_of(&metadata) == planned.mtime;
        if is_same { Ok(()) } else { Err(changed(&path)) }
    }
}

impl Content for FileContent {
    fn read(&mut self, plan: &Plan, offset: u64, out: &mut [u8]) -> Result<(), ContentError> {
        let end = offset + out.len() as u64;
        let mut rest = out;
        for (index, file_offset, range) in plan.pieces(offset..end) {
            let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            let (piece, after) = rest.split_at_mut(len);
            rest = after;
            let outcome = self.file(plan, index)?.read_exact_at(piece, file_offset);
            outcome.map_err(|error| {
                let path = self.path_of(plan, index);
                if error.kind() == io::ErrorKind::UnexpectedEof {
                    changed(&path)
                } else {
                    content_error(&path, &error)
                }
            })?;
            // Changed in place meanwhile, its bytes would be hashed as a mixture.
            let planned = plan.entry(plan.files()[index].entry as usize);
            if file_offset + len as u64 == planned.size {
                let (_, file) = &self.open[0];
                self.check(plan, index, file)?;
            }
        }
        Ok(())
    }
}

/// What was put there since the walk must neither hold the opening up, as a pipe does, nor lead
/// elsewhere, as a link does.
fn open_regular(path: &Path) -> io::Result<fs::File> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Directory::open(parent)?.open_to_read(Path::new(name))
}

fn changed(path: &Path) -> ContentError {
    let text = format!("{} changed after the transfer was planned", path.display());
    ContentError::new(ErrorCode::SourceChanged, text)
}

fn content_error(path: &Path, error: &io::Error) -> ContentError {
    let code = match error.kind() {
        io::ErrorKind::NotFound => ErrorCode::SourceChanged,
        io::ErrorKind::PermissionDenied => ErrorCode::Permission,
        _ => ErrorCode::Io,
    };
    ContentError::new(code, format!("cannot read {}: {error}", path.display()))
}

/// Unreadable files that an error names.
const UNREADABLE_NAMED_MAX: usize = 10;
/// Files kept open for reading.
const OPEN_MAX: usize = 16;
