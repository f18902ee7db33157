//! Decides whether bytes may become a manifest. The bytes may be hostile.
//!
//! The target of a symbolic link must be relative. It may have `..` only at its beginning, and at
//! most as often as there are directories above the link. The manifest's directories are never
//! links, so such a target lies inside the tree, even when it leads through further links.
//!
//! **Spec**: `docs/src/protocol.md` section 4.

use std::cmp::Ordering;

use wire::{
    ParseError,
    object::{
        EntryKind, EntryRef, MANIFEST_HEADER_LEN, MANIFEST_VERSION_MAX, ManifestHeader,
        ManifestRef, Mtime, Sections,
    },
};

use super::{File, HardLink, Manifest, file_called};
use crate::parameters::{ENTRIES_MAX, MANIFEST_BYTES_MAX, SLABS_MAX};

/// The limits of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestLimits {
    /// The most bytes of the manifest.
    pub manifest_bytes_max: u64,
    /// The most entries.
    pub entries_max: u32,
    /// The most slabs; each costs 72 bytes of memory at the receiver.
    pub slabs_max: u32,
}

impl Default for ManifestLimits {
    fn default() -> Self {
        Self {
            manifest_bytes_max: MANIFEST_BYTES_MAX as u64,
            entries_max: ENTRIES_MAX,
            slabs_max: SLABS_MAX,
        }
    }
}

/// Why bytes or entries do not become a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The bytes are not a manifest.
    #[error("the manifest cannot be read: {0}")]
    Format(#[from] ParseError),
    /// The sender uses an option that this receiver is too old for.
    #[error(
        "the manifest has version {version}, and the receiver knows versions 1 to {known}; update \
         the receiver, or send without the options that need that version"
    )]
    Version {
        /// The manifest's version.
        version: u8,
        /// The newest version that this receiver knows.
        known: u8,
    },
    /// The list of owners cannot be written.
    #[error("the owners of the entries cannot be sent: {0}")]
    Owners(&'static str),
    /// The extended attributes cannot be written.
    #[error(
        "the extended attributes of the entries cannot be sent: {0}; send without extended \
         attributes"
    )]
    Attributes(&'static str),
    /// The manifest is longer than allowed: raise the limit or send less.
    #[error("the manifest has {bytes} bytes where {max} are allowed; send fewer files at a time")]
    ManifestTooLong {
        /// The manifest's length in bytes.
        bytes: u64,
        /// The greatest length allowed, in bytes.
        max: u64,
    },
    /// There are more entries than allowed: raise the limit or send less.
    #[error(
        "the manifest has {entries} entries where {max} are allowed; send fewer files at a time"
    )]
    TooManyEntries {
        /// The number of entries.
        entries: u32,
        /// The most entries allowed.
        max: u32,
    },
    /// There are more slabs than allowed. A sender has then tried the largest size of
    /// slabs already.
    #[error("the content is too long: it has more than {max} slabs; send less at a time")]
    TooManySlabs {
        /// The most slabs allowed.
        max: u32,
    },
    /// All files together are longer than 2^63 - 1 bytes.
    #[error("the files together are longer than 2^63 - 1 bytes; send less at a time")]
    ContentTooLong,
    /// The sum of the files' sizes differs from that in the header.
    #[error("the manifest's files have {files} bytes together, and its header says {header}")]
    ContentMismatch {
        /// Sum of the files' sizes in bytes.
        files: u64,
        /// The content's size in bytes, as the header says.
        header: u64,
    },
    /// An entry that a receiver must not create.
    #[error("entry \"{path}\": {fault}")]
    Path {
        /// The entry's path with all but printable ASCII escaped, cut to 200 characters.
        path: String,
        /// What is wrong with the entry.
        fault: PathFault,
    },
}

/// What is wrong with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// The path is empty, or has an empty component.
    #[error("a name in the path is empty")]
    Empty,
    /// The path begins with `/`.
    #[error("the path is absolute")]
    Absolute,
    /// A component of the path is `.` or `..`.
    #[error("a name in the path is \".\" or \"..\"")]
    Dots,
    /// The path holds a NUL byte.
    #[error("the path holds a NUL byte")]
    Nul,
    /// The link's target holds a NUL byte.
    #[error("the link's target holds a NUL byte")]
    TargetNul,
    /// A component of the path is longer than 255 bytes.
    #[error("a name in the path is longer than 255 bytes")]
    NameTooLong,
    /// The path is longer than 4095 bytes.
    #[error("the path is longer than 4095 bytes; leave it out, or shorten it")]
    TooLong,
    /// The path has more than 255 levels.
    #[error("the path has more than 255 levels; leave it out, or move it up")]
    TooDeep,
    /// The link's target is longer than 4095 bytes.
    #[error("the link's target is longer than 4095 bytes")]
    TargetTooLong,
    /// The path is in the directory in which receivers keep unfinished files, or is that directory.
    #[error(
        "the name .towline is reserved for what receivers keep of unfinished transfers; leave it \
         out, or rename it"
    )]
    Reserved,
    /// The link leads to the directory in which receivers keep unfinished files.
    #[error("the symbolic link leads to .towline, where receivers keep unfinished transfers")]
    LinkReserved,
    /// An earlier entry has the same path.
    #[error("the path comes twice")]
    Duplicate,
    /// The entries are not in depth-first order.
    #[error("the manifest does not list it in depth-first order")]
    Order,
    /// The entry's parent is not a directory of the manifest.
    #[error("the manifest does not list its parent as a directory")]
    Parent,
    /// The entry is no file, and has a size.
    #[error("it has a size, but is not a file")]
    Size,
    /// A link has no target.
    #[error("the link has no target")]
    NoTarget,
    /// An entry that is no link has a target.
    #[error("it has a link's target, but is not a link")]
    Target,
    /// The link leads out of the tree.
    #[error("the symbolic link leads out of the tree")]
    LinkOut,
    /// A hard link's target is not a file that the manifest lists before the link.
    #[error("a hard link must name a file that the manifest lists before the link")]
    HardLink,
    /// A hard link has a mode or time of its own.
    #[error("a hard link must not have a mode or time of its own")]
    Attributes,
    /// A hard link has an owner of its own.
    #[error("a hard link must not have an owner of its own")]
    HardLinkOwner,
    /// A link has extended attributes.
    #[error(
        "a link must not have extended attributes of its own; send without extended attributes"
    )]
    ExtendedAttributes,
    /// The name of an extended attribute is empty, longer than 255 bytes or holds a NUL byte.
    #[error(
        "the name of an extended attribute must have 1 to 255 bytes and no NUL; send without \
         extended attributes"
    )]
    AttributeForm,
    /// The value of an extended attribute is longer than 65,536 bytes.
    #[error(
        "the value of an extended attribute is longer than 65,536 bytes; send without extended \
         attributes"
    )]
    AttributeTooLong,
    /// Two extended attributes have the same name.
    #[error("two of its extended attributes have the same name; send without extended attributes")]
    AttributeTwice,
    /// There are more than 65,535 extended attributes.
    #[error("it has more than 65,535 extended attributes; send without extended attributes")]
    AttributeCount,
}

impl ManifestError {
    pub(super) fn path(path: &[u8], fault: PathFault) -> Self {
        let mut text = path.escape_ascii().to_string();
        text.truncate(200);
        Self::Path { path: text, fault }
    }
}

/// Checks `bytes` and makes the manifest of them. An error comes with `bytes`.
pub(super) fn check(
    bytes: Vec<u8>,
    limits: &ManifestLimits,
) -> Result<Manifest, (ManifestError, Vec<u8>)> {
    match read(&bytes, limits) {
        Ok(Parts {
            entries,
            files,
            mut hard_links,
            slab_count,
        }) => {
            hard_links.sort_unstable();
            let parsed = ManifestRef::parse(&bytes).expect("it was read");
            let header = *parsed.header();
            Ok(Manifest {
                id: Manifest::id_of(&bytes),
                header,
                bytes,
                entries,
                files,
                hard_links,
                slab_count,
            })
        }
        Err(error) => Err((error, bytes)),
    }
}

struct Parts {
    entries: Vec<u32>,
    files: Vec<File>,
    hard_links: Vec<HardLink>,
    slab_count: u32,
}

fn read(bytes: &[u8], limits: &ManifestLimits) -> Result<Parts, ManifestError> {
    let len = bytes.len() as u64;
    let max = limits.manifest_bytes_max.min(u64::from(u32::MAX));
    if len > max {
        return Err(ManifestError::ManifestTooLong { bytes: len, max });
    }
    let known = MANIFEST_VERSION_MAX;
    if let Some(version) = ManifestHeader::version_of(bytes).filter(|it| *it > known) {
        return Err(ManifestError::Version { version, known });
    }
    let manifest = ManifestRef::parse(bytes)?;
    let header = manifest.header();
    if header.entry_count > limits.entries_max {
        return Err(ManifestError::TooManyEntries {
            entries: header.entry_count,
            max: limits.entries_max,
        });
    }
    // The parser has read every entry, so `entry_count` is right and safe to allocate for.
    let mut parts = Parts {
        entries: Vec::with_capacity(header.entry_count as usize),
        files: Vec::new(),
        hard_links: Vec::new(),
        slab_count: 0,
    };
    let sections = manifest.sections();
    let mut walk = Walk::default();
    let (mut at, mut content) = (MANIFEST_HEADER_LEN, 0_u64);
    for entry in manifest.entries() {
        walk.step(&entry)?;
        let index = u32::try_from(parts.entries.len()).expect("entries are counted in 32 bits");
        parts
            .entries
            .push(u32::try_from(at).expect("checked against the limit"));
        at += entry.encoded_len();
        check_attributes(&sections, &entry, index)?;
        if entry.kind == EntryKind::HardLink {
            let owner = sections.owners.map(|owners| owners.of(index as usize));
            parts.add_hard_link(bytes, &entry, index, owner)?;
        }
        if entry.kind != EntryKind::File {
            continue;
        }
        parts.files.push(File {
            entry: index,
            start: content,
            size_bytes: entry.size_bytes,
            first_slab: parts.slab_count,
        });
        let end = content
            .checked_add(entry.size_bytes)
            .filter(|&end| end <= i64::MAX as u64);
        content = end.ok_or(ManifestError::ContentTooLong)?;
        let slabs = entry.size_bytes.div_ceil(1 << header.slab_shift);
        let total = slabs.saturating_add(parts.slab_count.into());
        if total > limits.slabs_max.into() {
            return Err(ManifestError::TooManySlabs {
                max: limits.slabs_max,
            });
        }
        parts.slab_count = u32::try_from(total).expect("checked against the limit");
    }
    if content != header.content_bytes {
        return Err(ManifestError::ContentMismatch {
            files: content,
            header: header.content_bytes,
        });
    }
    Ok(parts)
}

/// Checks that the entry has no extended attributes if it is a symbolic or a hard link.
fn check_attributes(
    sections: &Sections<'_>,
    entry: &EntryRef<'_>,
    index: u32,
) -> Result<(), ManifestError> {
    let is_link = matches!(entry.kind, EntryKind::Symlink | EntryKind::HardLink);
    let set = sections.attributes.map_or(0, |it| it.of(index as usize));
    if is_link && set != 0 {
        let fault = PathFault::ExtendedAttributes;
        return Err(ManifestError::path(entry.path, fault));
    }
    Ok(())
}

impl Parts {
    fn add_hard_link(
        &mut self,
        bytes: &[u8],
        link: &EntryRef<'_>,
        entry: u32,
        owner: Option<(u16, u16)>,
    ) -> Result<(), ManifestError> {
        let file = file_called(bytes, &self.entries, &self.files, link.target);
        let file = file.and_then(|file| u32::try_from(file).ok());
        let file = file.ok_or_else(|| ManifestError::path(link.path, PathFault::HardLink))?;
        if owner.is_some_and(|owner| owner != (0, 0)) {
            return Err(ManifestError::path(link.path, PathFault::HardLinkOwner));
        }
        self.hard_links.push(HardLink { file, entry });
        Ok(())
    }
}

/// The current place in the tree: the directories that the next entry may be in.
#[derive(Default)]
struct Walk<'a> {
    above: Vec<&'a [u8]>,
    previous: Option<&'a [u8]>,
}

impl<'a> Walk<'a> {
    fn step(&mut self, entry: &EntryRef<'a>) -> Result<(), ManifestError> {
        let fail = |fault| Err(ManifestError::path(entry.path, fault));
        if let Err(fault) = check_path(entry.path) {
            return fail(fault);
        }
        match self
            .previous
            .map(|previous| path_order(previous, entry.path))
        {
            Some(Ordering::Equal) => return fail(PathFault::Duplicate),
            Some(Ordering::Greater) => return fail(PathFault::Order),
            Some(Ordering::Less) | None => self.previous = Some(entry.path),
        }
        let parent = match entry.path.iter().rposition(|&byte| byte == b'/') {
            Some(at) => &entry.path[..at],
            None => &[],
        };
        while self.above.last().is_some_and(|above| *above != parent) {
            self.above.pop();
        }
        if self.above.last().copied().unwrap_or_default() != parent {
            return fail(PathFault::Parent);
        }
        if entry.kind != EntryKind::File && entry.size_bytes != 0 {
            return fail(PathFault::Size);
        }
        let is_link = matches!(entry.kind, EntryKind::Symlink | EntryKind::HardLink);
        match (is_link, entry.target.is_empty()) {
            (true, true) => return fail(PathFault::NoTarget),
            (false, false) => return fail(PathFault::Target),
            _ => {}
        }
        match entry.kind {
            EntryKind::Directory => self.above.push(entry.path),
            EntryKind::Symlink => {
                if let Err(fault) = check_link(entry.target, self.above.len()) {
                    return fail(fault);
                }
            }
            EntryKind::HardLink if entry.mode != 0 || entry.mtime != Mtime::default() => {
                return fail(PathFault::Attributes);
            }
            EntryKind::File | EntryKind::HardLink => {}
        }
        Ok(())
    }
}

fn check_path(path: &[u8]) -> Result<(), PathFault> {
    if path.first() == Some(&b'/') {
        return Err(PathFault::Absolute);
    }
    if path.len() > PATH_LEN_MAX {
        return Err(PathFault::TooLong);
    }
    let mut depth = 0;
    for name in path.split(|&byte| byte == b'/') {
        depth += 1;
        match name {
            b"" => return Err(PathFault::Empty),
            b"." | b".." => return Err(PathFault::Dots),
            RESERVED if depth == 1 => return Err(PathFault::Reserved),
            _ if name.contains(&0) => return Err(PathFault::Nul),
            _ if name.len() > NAME_LEN_MAX => return Err(PathFault::NameTooLong),
            _ if depth > DEPTH_MAX => return Err(PathFault::TooDeep),
            _ => {}
        }
    }
    Ok(())
}

/// Checks the target of a symbolic link: it must stay in the tree, and outside `.towline`, the
/// receiver's directory there. `depth` is the number of the tree's directories above the link.
///
/// # Errors
/// What is wrong with the target: usually [`PathFault::LinkOut`].
pub fn check_link(target: &[u8], depth: usize) -> Result<(), PathFault> {
    if target.len() > PATH_LEN_MAX {
        return Err(PathFault::TargetTooLong);
    }
    if target.contains(&0) {
        return Err(PathFault::TargetNul);
    }
    if target.first() == Some(&b'/') {
        return Err(PathFault::LinkOut);
    }
    let (mut ups, mut has_name) = (0, false);
    for name in target.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." if has_name || ups == depth => return Err(PathFault::LinkOut),
            b".." => ups += 1,
            RESERVED if !has_name && ups == depth => return Err(PathFault::LinkReserved),
            _ => has_name = true,
        }
    }
    Ok(())
}

/// Compares two paths in the order of a manifest, depth first: byte order, except that `/` sorts
/// before every other byte of a path.
#[must_use]
pub fn path_order(a: &[u8], b: &[u8]) -> Ordering {
    let key = |&byte: &u8| if byte == b'/' { 0 } else { byte };
    a.iter().map(key).cmp(b.iter().map(key))
}

/// The most bytes that a path or a link's target may have.
pub(super) const PATH_LEN_MAX: usize = 4095;
const NAME_LEN_MAX: usize = 255;
const DEPTH_MAX: usize = 255;
const RESERVED: &[u8] = b".towline";
