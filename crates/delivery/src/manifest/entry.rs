//! An entry as the walk over the sender's files gives it.

use wire::object::{EntryKind, EntryRef, Mtime};

use super::Attribute;

/// Something that the receivers create: a file, directory or link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whether it is a file, directory or link.
    pub kind: EntryKind,
    /// Permission bits, 0 to 0o7777.
    pub mode: u16,
    /// When the contents were last modified.
    pub mtime: Mtime,
    /// Bytes of a file; 0 for directories and links.
    pub size_bytes: u64,
    /// Path below the tree's root.
    pub path: Vec<u8>,
    /// Where a symbolic link points, or the path of a hard link's file; empty for other entries.
    pub target: Vec<u8>,
    /// Who owns the entry. Either all entries except hard links have an owner, or none has.
    pub owner: Option<Owner>,
    /// The extended attributes of a file or directory. Once any entry of a manifest has `Some`,
    /// even an empty list, receivers take an entry with `None` as having no attributes.
    pub attributes: Option<Vec<Attribute>>,
}

/// The numbers of a user and a group at the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user's number.
    pub user: u32,
    /// The group's number.
    pub group: u32,
}

impl Entry {
    /// Makes a file of `size_bytes` bytes with mode 0o644.
    #[must_use]
    pub fn file(path: &str, size_bytes: u64) -> Self {
        Self {
            kind: EntryKind::File,
            mode: 0o644,
            mtime: Mtime::default(),
            size_bytes,
            path: path.into(),
            target: Vec::new(),
            owner: None,
            attributes: None,
        }
    }

    /// Makes a directory with mode 0o755.
    #[must_use]
    pub fn directory(path: &str) -> Self {
        Self {
            kind: EntryKind::Directory,
            mode: 0o755,
            ..Self::file(path, 0)
        }
    }

    /// Makes a symbolic link.
    #[must_use]
    pub fn symlink(path: &str, target: &str) -> Self {
        Self {
            kind: EntryKind::Symlink,
            mode: 0o777,
            target: target.into(),
            ..Self::file(path, 0)
        }
    }

    /// Makes a hard link: another name of the file at `target`, which comes before `path` in
    /// [`path_order`].
    ///
    /// [`path_order`]: crate::path_order
    #[must_use]
    pub fn hard_link(path: &str, target: &str) -> Self {
        Self {
            kind: EntryKind::HardLink,
            mode: 0,
            target: target.into(),
            ..Self::file(path, 0)
        }
    }

    /// Returns the entry as the manifest holds it.
    #[must_use]
    pub fn as_ref(&self) -> EntryRef<'_> {
        EntryRef {
            kind: self.kind,
            mode: self.mode & 0o7777,
            mtime: self.mtime,
            size_bytes: self.size_bytes,
            path: &self.path,
            target: &self.target,
        }
    }
}
