//! A sender's files: the walk that makes a plan of them.
//!
//! Links in a tree are sent as links and never followed. What is neither file, directory nor link
//! is left out, with a note.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use delivery::{Entry, Plan, PlanLimits};
use wire::object::{EntryKind, Mtime};

use crate::{
    NetError,
    content::{FileContent, Root, Roots, open_regular},
};

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
            roots: Roots::new(),
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
        let plan = Arc::new(plan);
        Ok(Self {
            content: FileContent::new(Arc::clone(&plan), roots),
            plan,
            notes,
        })
    }
}

#[derive(Debug)]
struct Walk<W> {
    entries: Vec<Entry>,
    notes: Vec<String>,
    roots: Roots,
    /// What could not be read and why: the first few of them.
    unreadable: Vec<String>,
    unreadable_count: usize,
    is_wanted: W,
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

pub(crate) fn mtime_of(metadata: &fs::Metadata) -> Mtime {
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

/// Unreadable files that an error names.
const UNREADABLE_NAMED_MAX: usize = 10;
