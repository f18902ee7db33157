//! A sender's files: the walk that lists them in a manifest.
//!
//! Links in a tree are sent as links and never followed. The walk leaves out, with a note, what is
//! neither file, directory nor link. It also leaves out links that receivers would refuse, such as
//! those that lead out of the tree.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt, fs, io,
    os::{
        fd::AsFd,
        unix::{
            ffi::{OsStrExt as _, OsStringExt as _},
            fs::MetadataExt as _,
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use delivery::{Attribute, Entry, Manifest, ManifestLimits, Owner, OwnerNames, Unsent, path_order};
use sys::file::{Directory, Kind, Status, attribute, attribute_names};
use wire::object::{EntryKind, ManifestHeader, Mtime};

use super::content::{FileContent, Parents, Root, Roots};
use crate::SystemError;

/// A manifest of files on this machine, and what is needed to read them.
#[derive(Debug)]
pub struct Tree {
    /// The list of what is to be delivered.
    pub manifest: Arc<Manifest>,
    /// The bytes of the manifest's files.
    pub content: FileContent,
    /// What the walk left out, one sentence each.
    pub notes: Vec<String>,
    /// What the walk found below the sources and could not read; see [`Tree::select`]. A file that
    /// this process may not read is in the manifest all the same, so that receivers can name it.
    /// The sender withdraws the file when it would be sent.
    pub unsent: Vec<Unsent>,
}

/// Something to send.
#[derive(Debug)]
pub enum TreeSource {
    /// A file or directory, delivered under its last component. With a slash at its end: everything
    /// in the directory, each entry under its own name.
    Path(PathBuf),
    /// An open regular file, delivered under a name that need not exist on this machine.
    File {
        /// The name of the delivered file: one component.
        name: OsString,
        /// The open file; its bytes must not change.
        file: fs::File,
    },
}

impl TreeSource {
    /// Returns true for a path that stands for the contents of a directory.
    fn is_contents(&self) -> bool {
        match self {
            Self::Path(path) => {
                path.as_os_str().as_bytes().ends_with(b"/") && path.file_name().is_some()
            }
            Self::File { .. } => false,
        }
    }
}

/// How sources are walked, and what their manifest says besides names, content, modes and times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeOptions {
    /// Files and directories below a source that cannot be read are skipped; see [`Tree::unsent`].
    pub may_skip: bool,
    /// A file that has several names among the sources is sent once, and its further names as hard
    /// links. Receivers that know only version 1 of the manifest then refuse it.
    pub hard_links: bool,
    /// Receivers are asked to store runs of zeros as holes: [`ManifestHeader::SPARSE`].
    pub sparse: bool,
    /// The manifest says who owns each entry, by number and by name.
    pub owner: bool,
    /// The manifest has the extended attributes of files and directories that this process may
    /// read. These are `user.*`; if the superuser sends, also all others except file capabilities
    /// and `system.*`.
    pub attributes: bool,
}

impl Tree {
    /// Walks `paths`, each a [`TreeSource::Path`].
    ///
    /// # Errors
    /// As [`Tree::select`].
    pub fn read(paths: &[PathBuf]) -> Result<Self, SystemError> {
        let sources = paths.iter().cloned().map(TreeSource::Path);
        Self::select(sources.collect(), TreeOptions::default(), |_, _| true)
    }

    /// Walks `sources` and takes what `is_wanted` accepts. `is_wanted` gets the path as it would be
    /// delivered and whether it is a directory. The walk does not enter a directory that is not
    /// wanted.
    ///
    /// A source itself is always wanted, because the user named it. With [`TreeOptions::may_skip`],
    /// [`Tree::unsent`] lists what cannot be read below a source. Some of it, such as a directory
    /// that cannot be listed, is not in the manifest. Then [`ManifestHeader::INCOMPLETE`] tells
    /// receivers that something is missing.
    ///
    /// **Cost**: one or two system calls for each file, and more for its attributes. Files that
    /// this process may not read are found in this walk, before any receiver waits for them.
    ///
    /// # Errors
    /// When something cannot be read and may not be skipped; the error names the first ten paths.
    /// Also when no manifest can be made: two sources have the same name, or a name cannot be
    /// delivered.
    pub fn select(
        sources: Vec<TreeSource>,
        options: TreeOptions,
        is_wanted: impl FnMut(&Path, bool) -> bool,
    ) -> Result<Self, SystemError> {
        let mut walk = Walk {
            entries: Vec::new(),
            notes: Vec::new(),
            roots: Roots::new(),
            parents: Parents::default(),
            unreadable: Vec::new(),
            unreadable_count: 0,
            missing_count: 0,
            unsent: options.may_skip.then(Vec::new),
            names: options.hard_links.then(BTreeMap::new),
            is_incomplete: false,
            has_left_out: false,
            has_owners: options.owner,
            has_attributes: options.attributes,
            user: sys::file::effective_user(),
            is_wanted,
        };
        let are_contents = !sources.is_empty() && sources.iter().all(TreeSource::is_contents);
        for source in sources {
            match source {
                TreeSource::Path(path) => walk.path(&path),
                TreeSource::File { name, file } => walk.file(&name, file),
            }?;
        }
        walk.find_hard_links();
        let names = walk.owner_names();
        let Walk {
            entries,
            notes,
            roots,
            unreadable,
            unreadable_count,
            missing_count,
            unsent,
            is_incomplete,
            has_left_out,
            ..
        } = walk;
        let unsent = unsent.unwrap_or_default();
        let flags = [
            (is_incomplete, ManifestHeader::INCOMPLETE),
            (has_left_out, ManifestHeader::SELECTED),
            (are_contents, ManifestHeader::CONTENTS),
            (options.sparse, ManifestHeader::SPARSE),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set);
        let flags = flags.fold(0, |flags, (_, flag)| flags | flag);
        if !unreadable.is_empty() {
            let counts = (unreadable_count, missing_count);
            return Err(cannot_read(&unreadable, counts));
        }
        let manifest = Manifest::build_with(
            flags,
            &names,
            identity(),
            entries,
            &ManifestLimits::default(),
        )
        .map_err(|error| SystemError::refused("list", "what is to be sent", error))?;
        let manifest = Arc::new(manifest);
        Ok(Self {
            content: FileContent::new(Arc::clone(&manifest), roots),
            manifest,
            notes,
            unsent,
        })
    }
}

#[derive(Debug)]
struct Walk<W> {
    entries: Vec<Entry>,
    notes: Vec<String>,
    roots: Roots,
    parents: Parents,
    /// What could not be read, and why: the first [`UNREADABLE_NAMED_MAX`] paths.
    unreadable: Vec<String>,
    unreadable_count: usize,
    /// How many of the unreadable paths do not exist.
    missing_count: usize,
    /// What the walk skipped because it could not be read; `None` when the walk may skip nothing.
    unsent: Option<Vec<Unsent>>,
    /// For each file that may have several names: the indexes in `entries` of its names. The key is
    /// the file's device and inode. `None` when each name is to be a file of its own.
    names: Option<BTreeMap<(u64, u64), Vec<usize>>>,
    /// True when something that could not be read is not in the manifest.
    is_incomplete: bool,
    /// True when `is_wanted` has left something out.
    has_left_out: bool,
    has_owners: bool,
    has_attributes: bool,
    is_wanted: W,
    /// The effective user of this process, who reads the files.
    user: u32,
}

impl<W: FnMut(&Path, bool) -> bool> Walk<W> {
    fn path(&mut self, path: &Path) -> Result<(), SystemError> {
        let failed = |error| cannot_read_source(path, &error);
        if path.as_os_str().as_bytes().ends_with(b"/") && path.file_name().is_some() {
            let directory = Directory::open(path).map_err(failed)?;
            for name in directory.names().map_err(failed)? {
                let below = path.join(&name);
                let is_directory = directory
                    .status(Path::new(&name))
                    .is_ok_and(|status| status.kind == Kind::Directory);
                // Ask `is_wanted` before looking for clashes of names: a name that is not sent
                // cannot clash.
                let is_wanted = (self.is_wanted)(Path::new(&name), is_directory);
                self.has_left_out |= !is_wanted;
                if is_wanted {
                    self.root(&name, &below, Root::Path(below.clone()))?;
                    self.named(&directory, Path::new(&name), &below, name.as_bytes());
                }
            }
            return Ok(());
        }
        // A path such as `..` has no name of its own.
        let whole = if path.file_name().is_some() {
            path.to_path_buf()
        } else {
            fs::canonicalize(path).map_err(failed)?
        };
        let name = path.file_name().or(whole.file_name()).ok_or_else(|| {
            let cause = "it is the root directory, which has no name";
            SystemError::refused("send", path.display(), cause)
                .advise("name the files and directories in it instead")
        })?;
        self.root(name, path, Root::Path(whole.clone()))?;
        let mut parents = std::mem::take(&mut self.parents);
        match parents.of(&whole) {
            Ok((parent, last)) => self.named(parent, last, &whole, name.as_bytes()),
            Err(error) => self.unreadable(path, &error),
        }
        self.parents = parents;
        Ok(())
    }

    fn file(&mut self, name: &OsStr, file: fs::File) -> Result<(), SystemError> {
        let metadata = file
            .metadata()
            .map_err(|error| SystemError::system("read", name.display(), &error))?;
        self.entries.push(Entry {
            kind: EntryKind::File,
            mode: mode_of(metadata.mode()),
            mtime: mtime_of(&metadata),
            size_bytes: metadata.len(),
            path: name.as_bytes().to_vec(),
            target: Vec::new(),
            owner: self.owner(metadata.uid(), metadata.gid()),
            attributes: self.has_attributes.then(Vec::new),
        });
        self.root(name, Path::new(name), Root::File(file))
    }

    fn root(&mut self, name: &OsStr, path: &Path, root: Root) -> Result<(), SystemError> {
        let Some(before) = self.roots.insert(name.as_bytes().to_vec(), root) else {
            return Ok(());
        };
        let (cause, advice) = match (&before, self.roots.get(name.as_bytes())) {
            (Root::Path(before), Some(Root::Path(_))) if before == path => {
                ("it is named twice".to_owned(), ONCE)
            }
            (Root::Path(before), Some(Root::Path(now))) if is_same(before, now) => {
                (format!("it is sent already, as {}", before.display()), ONCE)
            }
            (Root::Path(before), Some(Root::Path(_))) => (
                format!(
                    "{} is sent too, and would have the same name at the receivers",
                    before.display()
                ),
                "rename one of them, or send a directory that both are in",
            ),
            _ => (
                "something else is sent under the same name".to_owned(),
                "give one of them another name",
            ),
        };
        Err(SystemError::refused("send", path.display(), cause).advise(advice))
    }

    /// Takes the entry `last` of `parent`, if `is_wanted` accepts it. Messages call the entry
    /// `path`, and the manifest calls it `name`.
    fn visit(&mut self, parent: &Directory, last: &Path, path: &Path, name: &[u8]) {
        let Err(error) = self.take(parent, last, path, name) else {
            return;
        };
        if self.skip(path, name, &error) {
            self.is_incomplete = true;
        } else {
            self.unreadable(path, &error);
        }
    }

    /// Notes an entry whose content is not sent because it cannot be read. Returns false when
    /// nothing may be skipped.
    fn skip(&mut self, path: &Path, name: &[u8], error: &io::Error) -> bool {
        let Some(unsent) = &mut self.unsent else {
            return false;
        };
        let cause = sys::with_usual_remedy(error);
        let text = format!("cannot read {}: {cause}", path.display());
        unsent.push(Unsent::new(name, text));
        true
    }

    /// Takes an entry as [`Walk::visit`] does, but without asking `is_wanted`: the user named the
    /// entry, or the caller has asked. An entry that cannot be read is always an error here.
    fn named(&mut self, parent: &Directory, last: &Path, path: &Path, name: &[u8]) {
        let taken = parent.status(last).and_then(|status| {
            if status.kind == Kind::File {
                parent.check_readable(last)?;
            }
            self.add(&status, parent, last, path, name)
        });
        if let Err(error) = taken {
            self.unreadable(path, &error);
        }
    }

    fn take(
        &mut self,
        parent: &Directory,
        last: &Path,
        path: &Path,
        name: &[u8],
    ) -> io::Result<()> {
        let status = parent.status(last)?;
        let is_directory = status.kind == Kind::Directory;
        if !(self.is_wanted)(Path::new(OsStr::from_bytes(name)), is_directory) {
            self.has_left_out = true;
            return Ok(());
        }
        self.add(&status, parent, last, path, name)
    }

    fn add(
        &mut self,
        status: &Status,
        parent: &Directory,
        last: &Path,
        path: &Path,
        name: &[u8],
    ) -> io::Result<()> {
        let is_directory = status.kind == Kind::Directory;
        let mut entry = Entry {
            kind: EntryKind::File,
            mode: mode_of(status.mode),
            mtime: Mtime {
                seconds: status.modified.seconds,
                nanoseconds: status.modified.nanoseconds,
            },
            size_bytes: 0,
            path: name.to_vec(),
            target: Vec::new(),
            owner: self.owner(status.owner, status.group),
            attributes: self.has_attributes.then(Vec::new),
        };
        match status.kind {
            Kind::File => {
                entry.size_bytes = status.bytes;
                // For most files, `status` already shows that this user may read them. That saves
                // the system call of `check_readable`.
                let mut is_skipped = false;
                if !status.is_readable_by_owner(self.user)
                    && let Err(error) = parent.check_readable(last)
                {
                    is_skipped = self.skip(path, name, &error);
                    if !is_skipped {
                        return Err(error);
                    }
                }
                if self.has_attributes && !is_skipped {
                    entry.attributes = Some(self.attributes(&parent.open_unchecked(last)?)?);
                }
                if let Some(names) = self.names.as_mut().filter(|_| status.links > 1) {
                    let names = names.entry((status.device, status.inode)).or_default();
                    names.push(self.entries.len());
                }
            }
            Kind::Link => {
                entry.kind = EntryKind::Symlink;
                entry.target = parent.read_link(last)?.into_os_string().into_vec();
                // A link stays in the tree when its target climbs at most as many levels as the
                // link is deep.
                let depth = name.iter().filter(|&&byte| byte == b'/').count();
                if let Err(fault) = delivery::check_link(&entry.target, depth) {
                    let target = OsStr::from_bytes(&entry.target).display();
                    self.leave_out(path, format_args!("{fault} (to {target})"));
                    return Ok(());
                }
            }
            Kind::Directory => entry.kind = EntryKind::Directory,
            Kind::Other => {
                self.leave_out(
                    path,
                    format_args!("it is not a file, directory or symbolic link"),
                );
                return Ok(());
            }
        }
        if !is_directory {
            self.entries.push(entry);
            return Ok(());
        }
        let directory = parent.directory(last)?;
        let names = directory.names()?;
        if self.has_attributes {
            entry.attributes = Some(self.attributes(&directory)?);
        }
        self.entries.push(entry);
        for below in names {
            let name = [name, b"/", below.as_bytes()].concat();
            self.visit(&directory, Path::new(&below), &path.join(&below), &name);
        }
        Ok(())
    }

    /// Reads the extended attributes that are sent. An attribute that vanishes meanwhile, or may
    /// not be read, is left out.
    fn attributes(&self, open: &impl AsFd) -> io::Result<Vec<Attribute>> {
        let mut names = attribute_names(open)?;
        names.retain(|name| is_sent(name, self.user == SUPERUSER));
        let mut attributes = Vec::with_capacity(names.len());
        for name in names {
            match attribute(open, &name) {
                Ok(Some(value)) => attributes.push(Attribute { name, value }),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error),
            }
        }
        Ok(attributes)
    }

    fn owner(&self, user: u32, group: u32) -> Option<Owner> {
        self.has_owners.then_some(Owner { user, group })
    }

    /// Returns the names of the users and groups that own entries, as far as this machine knows
    /// them.
    fn owner_names(&self) -> OwnerNames {
        let mut names = OwnerNames::default();
        let owners = self.entries.iter().filter_map(|entry| entry.owner);
        for Owner { user, group } in owners {
            let user_name = || sys::account::user_name(user).unwrap_or_default();
            names.users.entry(user).or_insert_with(user_name);
            let group_name = || sys::account::group_name(group).unwrap_or_default();
            names.groups.entry(group).or_insert_with(group_name);
        }
        names
    }

    /// Turns all names of each file but one into hard links. The name that comes first in the
    /// manifest's order stays a file.
    fn find_hard_links(&mut self) {
        for mut names in self.names.take().unwrap_or_default().into_values() {
            names.sort_by(|a, b| path_order(&self.entries[*a].path, &self.entries[*b].path));
            let Some((first, further)) = names.split_first() else {
                continue;
            };
            let target = self.entries[*first].path.clone();
            for &name in further {
                let entry = &mut self.entries[name];
                *entry = Entry {
                    kind: EntryKind::HardLink,
                    mode: 0,
                    mtime: Mtime::default(),
                    size_bytes: 0,
                    path: std::mem::take(&mut entry.path),
                    target: target.clone(),
                    owner: None,
                    attributes: None,
                };
            }
        }
    }

    fn leave_out(&mut self, path: &Path, why: fmt::Arguments<'_>) {
        let text = format!("{} is left out: {why}", path.display());
        self.notes.push(text);
    }

    fn unreadable(&mut self, path: &Path, error: &io::Error) {
        if self.unreadable.len() < UNREADABLE_NAMED_MAX {
            let cause = sys::with_usual_remedy(error);
            self.unreadable.push(format!("{}: {cause}", path.display()));
        }
        self.unreadable_count += 1;
        self.missing_count += usize::from(error.kind() == io::ErrorKind::NotFound);
    }
}

/// Returns true when both paths, which end in the same name, lead to the same place.
fn is_same(one: &Path, other: &Path) -> bool {
    let parent = |path: &Path| {
        let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
        fs::canonicalize(parent.unwrap_or(Path::new("."))).ok()
    };
    one == other || parent(one).is_some_and(|it| parent(other) == Some(it))
}

/// Makes the error of a source that cannot be opened or listed.
fn cannot_read_source(path: &Path, error: &io::Error) -> SystemError {
    let failed = SystemError::system("read", path.display(), error);
    match error.kind() {
        io::ErrorKind::NotFound => {
            failed.advise("check the path: a relative one starts at the current directory")
        }
        io::ErrorKind::PermissionDenied => {
            failed.advise("check that this user may read it, or leave it out")
        }
        io::ErrorKind::NotADirectory => {
            failed.advise("check the path: one that ends in / names the content of a directory")
        }
        _ => failed,
    }
}

/// Makes the error for `count` paths that could not be read. The error names those in `first`. Its
/// advice depends on whether none, some or all of the paths do not exist.
fn cannot_read(first: &[String], (count, missing_count): (usize, usize)) -> SystemError {
    let mut cause = first.join("; ");
    if count > first.len() {
        cause += &format!("; and {} more", count - first.len());
    }
    let target = format!("{count} of the paths to be sent");
    let advice = match missing_count {
        0 => "check that this user may read them, or leave them out",
        some if some == count => "check the paths: relative ones start at the current directory",
        _ => "check that they exist and that this user may read them, or leave them out",
    };
    SystemError::refused("read", target, cause).advise(advice)
}

/// Returns true for an attribute that is sent to receivers. Access lists (`system.*`) are not sent,
/// because they name users by numbers of this machine. File capabilities are not sent, because they
/// are privileges.
fn is_sent(name: &[u8], is_superuser: bool) -> bool {
    let is_other = !name.starts_with(b"system.") && name != b"security.capability";
    name.starts_with(b"user.") || (is_superuser && is_other)
}

fn mode_of(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or(0o644)
}

pub(crate) fn mtime_of(metadata: &fs::Metadata) -> Mtime {
    Mtime {
        seconds: metadata.mtime(),
        nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
    }
}

/// Makes this machine's identity for manifests. It stays the same while the machine keeps its id
/// and host name, so an unchanged tree makes the same manifest again.
fn identity() -> [u8; 16] {
    let machine = fs::read("/etc/machine-id").unwrap_or_default();
    let name = sys::host_name().unwrap_or_default();
    let hash = blake3::hash(&[&machine, name.as_bytes()].concat());
    let mut identity = [0; 16];
    identity.copy_from_slice(&hash.as_bytes()[..16]);
    identity
}

/// User id of the superuser, who may read attributes of every kind.
const SUPERUSER: u32 = 0;
/// What to do about a source that is named twice.
const ONCE: &str = "name it once (a directory with / at its end stands for all that is in it)";
/// How many unreadable paths an error names, at most.
const UNREADABLE_NAMED_MAX: usize = 10;
