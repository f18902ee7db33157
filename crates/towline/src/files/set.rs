//! The files that a sender sends: paths, spooled streams, and the rules that select among them.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fmt, fs,
    io::{self, Read, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use delivery::{Hash, SlabHashes, Unsent};
use net::{SystemError, Tree, TreeOptions, TreeSource};
use wire::object::{EntryKind, EntryRef};

use super::Selection;
use crate::{Error, session::random_u64};

/// A description of a [`FileSet`].
#[derive(Default)]
pub struct FileSetBuilder {
    sources: Vec<TreeSource>,
    selection: Selection,
    options: TreeOptions,
}

impl fmt::Debug for FileSetBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSetBuilder")
            .field("sources", &self.sources.len())
            .finish_non_exhaustive()
    }
}

impl FileSetBuilder {
    /// Adds a file or directory, delivered under the last component of `path`. If `path` ends with
    /// a slash, everything in the directory is delivered instead, each entry under its own name.
    #[must_use]
    pub fn path(mut self, path: impl Into<PathBuf>) -> Self {
        self.sources.push(TreeSource::Path(path.into()));
        self
    }

    /// Adds a spooled stream, delivered as a file called `name`.
    #[must_use]
    pub fn spooled(mut self, name: impl Into<OsString>, spool: Spool) -> Self {
        let name = name.into();
        let file = spool.0;
        self.sources.push(TreeSource::File { name, file });
        self
    }

    /// Takes only the paths that `selection` takes.
    #[must_use]
    pub fn select(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Skips files that cannot be read, unless the user named them. Later, also skips files that
    /// change or vanish before they are sent. [`FileSet::unsent`] and `TransferOutcome::unsent`
    /// name the skipped files. Default false: such files are errors.
    #[must_use]
    pub const fn skip_changed(mut self, may_skip: bool) -> Self {
        self.options.may_skip = may_skip;
        self
    }

    /// If a file has several names in the set, sends its content once; receivers create the other
    /// names as hard links. Receivers that are too old for this refuse the transfer. Default false:
    /// each name is a file of its own.
    #[must_use]
    pub const fn hard_links(mut self, are_kept: bool) -> Self {
        self.options.hard_links = are_kept;
        self
    }

    /// Asks receivers to leave holes in files where the content is only zeros, so that the zeros
    /// take no room on their disks. The zeros are sent all the same. Default false: zeros take room
    /// as all content does.
    #[must_use]
    pub const fn sparse(mut self, is_sparse: bool) -> Self {
        self.options.sparse = is_sparse;
        self
    }

    /// Tells receivers who owns files, directories and links, by number and by name. A receiver
    /// that takes owners ([`crate::FileReceiverBuilder::owner`]) sets them; a receiver that is too
    /// old to know owners refuses the transfer. Default false.
    #[must_use]
    pub const fn owner(mut self, is_told: bool) -> Self {
        self.options.owner = is_told;
        self
    }

    /// Tells receivers the extended attributes of files and directories. These are `user.*`; if the
    /// superuser sends, also the other kinds, except file capabilities and `system.*`. Receivers
    /// that take attributes ([`crate::FileReceiverBuilder::attributes`]) set them; receivers that
    /// are too old for this refuse the transfer. All attributes together may take at most 16 MiB;
    /// attributes that several entries share count once. Default false.
    #[must_use]
    pub const fn attributes(mut self, are_told: bool) -> Self {
        self.options.attributes = are_told;
        self
    }

    /// Walks all paths, and returns the set of what was found.
    ///
    /// # Errors
    /// When something cannot be read (the text names the first ten), when two sources have the same
    /// name, when a name cannot be delivered, or when there is nothing to send or no file matches.
    pub fn read(self) -> Result<FileSet, Error> {
        let selection = self.selection;
        let has_source = !self.sources.is_empty();
        let mut has_left_out = false;
        let may_skip = self.options.may_skip;
        let tree = Tree::select(self.sources, self.options, |path, is_directory| {
            let is_taken = selection.takes(path, is_directory);
            has_left_out |= !is_taken;
            is_taken
        })?;
        let unsent: BTreeSet<_> = tree.unsent.iter().map(|it| &it.path[..]).collect();
        let is_content = |entry: EntryRef<'_>| {
            entry.kind != EntryKind::Directory && !unsent.contains(entry.path)
        };
        let has_content = tree.manifest.entries().any(is_content);
        let entry_count = tree.manifest.entries().len();
        let name_one = "name at least one file";
        let (cause, remedy) = match entry_count {
            _ if has_content => return Ok(FileSet { tree, may_skip }),
            _ if let Some(first) = tree.unsent.first() => {
                let remedy = "name at least one file that this user may read";
                (first.text.clone(), remedy)
            }
            _ if has_left_out => {
                let cause = "the patterns leave out every file".to_owned();
                (cause, "change them so that at least one is sent")
            }
            0 if !has_source => ("no path is named".to_owned(), name_one),
            0 if tree.notes.is_empty() => ("the named paths hold nothing".to_owned(), name_one),
            0 => (tree.notes.join("; "), name_one),
            // The user may want a tree that has only directories.
            _ => return Ok(FileSet { tree, may_skip }),
        };
        let error = SystemError::refused("find", "a file to send", cause);
        Err(error.advise(remedy).into())
    }
}

/// Files, directories and links that were found and are readable: what a [`crate::FileSender`]
/// sends.
pub struct FileSet {
    tree: Tree,
    may_skip: bool,
}

/// A file, directory or link of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSetEntry<'a> {
    /// Whether it is a file, directory or link.
    pub kind: EntryKind,
    /// Bytes of a file; 0 for directories and links.
    pub bytes: u64,
    /// The path under which the file, directory or link is delivered.
    pub path: &'a Path,
}

impl<'a> FileSetEntry<'a> {
    pub(super) fn of(entry: EntryRef<'a>) -> Self {
        Self {
            kind: entry.kind,
            bytes: entry.size_bytes,
            path: Path::new(OsStr::from_bytes(entry.path)),
        }
    }
}

impl fmt::Debug for FileSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSet")
            .field("files", &self.file_count())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

impl FileSet {
    /// Starts to describe a set.
    #[must_use]
    pub fn builder() -> FileSetBuilder {
        FileSetBuilder::default()
    }

    /// Returns everything in the set except [`FileSet::unsent`], in depth-first order.
    pub fn entries(&self) -> impl Iterator<Item = FileSetEntry<'_>> {
        let unsent: BTreeSet<_> = self.unsent().iter().map(|it| &it.path[..]).collect();
        let entries = self.tree.manifest.entries();
        let sent = entries.filter(move |entry| !unsent.contains(entry.path));
        sent.map(FileSetEntry::of)
    }

    /// Returns the number of bytes of all files in [`FileSet::entries`].
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.entries().map(|entry| entry.bytes).sum()
    }

    /// Returns how many regular files are in [`FileSet::entries`]; a file with several names counts
    /// once for each name.
    #[must_use]
    pub fn file_count(&self) -> usize {
        let entries = self.entries();
        entries
            .filter(|entry| matches!(entry.kind, EntryKind::File | EntryKind::HardLink))
            .count()
    }

    /// Returns what could not be read and is skipped: see [`FileSetBuilder::skip_changed`].
    #[must_use]
    pub fn unsent(&self) -> &[Unsent] {
        &self.tree.unsent
    }

    /// Reads all files, and returns the checksums that receivers will prove.
    ///
    /// # Errors
    /// When a file cannot be read or has changed since it was found, unless such files are skipped.
    pub fn sums(&mut self) -> Result<FileSums, Error> {
        let manifest = Arc::clone(&self.tree.manifest);
        let mut hashes = SlabHashes::unknown(&manifest);
        let mut bytes = Vec::new();
        for index in 0..manifest.slab_count() {
            let slab = manifest.slab(index);
            bytes.resize(slab.len as usize, 0);
            match self
                .tree
                .content
                .read_now(&manifest, slab.start, &mut bytes)
            {
                Ok(()) => {
                    let mut hasher = slab.hasher();
                    hasher.update(&bytes);
                    hashes.set(&slab, &hasher.finish());
                }
                Err(error) if self.may_skip && error.file.is_some() => {
                    let unsent = &mut self.tree.unsent;
                    for path in manifest.paths_of(slab.file as usize) {
                        if !unsent.iter().any(|it| it.path == path) {
                            unsent.push(Unsent::new(path, &error.text[..]));
                        }
                    }
                }
                Err(error) => {
                    let target = "what is to be sent";
                    return Err(SystemError::refused("hash", target, error).into());
                }
            }
        }
        Ok(FileSums::new(manifest.file_roots(&hashes)))
    }

    /// Returns true when files that change are skipped.
    pub(super) const fn may_skip(&self) -> bool {
        self.may_skip
    }

    pub(super) fn into_tree(self) -> Tree {
        self.tree
    }
}

/// The BLAKE3 hash of each file, ordered by the bytes of the paths.
#[derive(Clone, PartialEq, Eq)]
pub struct FileSums(Vec<(Vec<u8>, Hash)>);

impl fmt::Debug for FileSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSums")
            .field("files", &self.0.len())
            .finish_non_exhaustive()
    }
}

impl FileSums {
    pub(super) fn new<'a>(roots: impl Iterator<Item = (&'a [u8], Hash)>) -> Self {
        let mut sums: Vec<_> = roots.map(|(path, root)| (path.to_vec(), root)).collect();
        sums.sort_unstable();
        Self(sums)
    }

    /// Returns each file's path and its hash.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &Hash)> {
        let sums = self.0.iter();
        sums.map(|(path, root)| (Path::new(OsStr::from_bytes(path)), root))
    }

    /// Returns the lines that `b3sum` prints for the files when it runs where they are delivered.
    #[must_use]
    pub fn lines(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        for (path, root) in &self.0 {
            delivery::write_sum_line(&mut lines, root, path);
        }
        lines
    }
}

/// A stream that was written to a file without a name, so that its length is known before it is
/// sent. The file's disk space is freed when the spool is dropped, or the process ends in any way.
#[derive(Debug)]
pub struct Spool(fs::File);

impl Spool {
    /// Makes an empty spool in the system's directory for temporary files (`$TMPDIR`).
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn new() -> Result<Self, Error> {
        Self::below(&std::env::temp_dir())
    }

    /// Makes an empty spool in `directory`.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn below(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(format!("towline-spool-{:016x}", random_u64()?));
        let made = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        let failed = |error: &io::Error| {
            let fault = SystemError::system("make a file in", directory.display(), error);
            let is_wrong_place = matches!(
                error.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::PermissionDenied
            );
            if !is_wrong_place {
                return fault;
            }
            fault.advise(if directory == std::env::temp_dir() {
                "set TMPDIR to a directory that exists and that this user may write"
            } else {
                "name a directory that exists and that this user may write"
            })
        };
        let file = made.map_err(|error| failed(&error))?;
        fs::remove_file(&path).map_err(|error| failed(&error))?;
        Ok(Self(file))
    }

    /// Returns the file itself.
    pub(crate) fn into_file(self) -> fs::File {
        self.0
    }

    /// Appends everything that `from` gives.
    ///
    /// # Errors
    /// When reading or writing fails.
    pub fn fill(&mut self, from: &mut impl Read) -> io::Result<u64> {
        let bytes = io::copy(from, &mut self.0)?;
        self.0.flush()?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spooled_stream_is_a_file_of_its_length_and_leaves_no_name_behind() {
        let mut spool = Spool::new().expect("a temporary file");
        let content = vec![5; 3_000_000];
        assert_eq!(spool.fill(&mut &content[..]).expect("room"), 3_000_000);
        let mut set = FileSet::builder()
            .spooled("stream", spool)
            .read()
            .expect("it is readable");
        assert_eq!((set.bytes(), set.file_count()), (3_000_000, 1));
        let expected = format!("{}  stream\n", blake3_hex(&content));
        assert_eq!(
            set.sums().expect("it is readable").lines(),
            expected.as_bytes()
        );
    }

    fn blake3_hex(bytes: &[u8]) -> String {
        let hash = delivery::hash_bytes(bytes);
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn what_cannot_be_read_is_named_up_to_ten() {
        let mut builder = FileSet::builder();
        for number in 0..12 {
            builder = builder.path(format!("/proc/nonexistent/file-{number}"));
        }
        let text = builder.read().expect_err("nothing is there").to_string();
        assert!(text.contains("12 of") && text.contains("file-9:"), "{text}");
        assert!(
            text.contains("and 2 more") && !text.contains("file-10"),
            "{text}"
        );
    }

    #[test]
    fn rules_choose_what_is_found_below() {
        let root = std::env::temp_dir().join(format!("towline-set-{}", std::process::id()));
        drop(fs::remove_dir_all(&root));
        fs::create_dir_all(root.join("tree/build")).expect("room");
        for name in ["tree/a.c", "tree/a.o", "tree/keep.o", "tree/build/x"] {
            fs::write(root.join(name), name).expect("room");
        }
        let mut selection = Selection::default();
        selection.include("keep.o").expect("a pattern");
        selection.exclude("*.o").expect("a pattern");
        selection.exclude("build/").expect("a pattern");
        let set = FileSet::builder()
            .path(root.join("tree"))
            .select(selection)
            .read()
            .expect("all is readable");
        let paths: Vec<_> = set
            .entries()
            .map(|entry| entry.path.to_path_buf())
            .collect();
        assert_eq!(
            paths,
            ["tree", "tree/a.c", "tree/keep.o"].map(PathBuf::from)
        );
        fs::remove_dir_all(&root).expect("it is ours");
    }
}
