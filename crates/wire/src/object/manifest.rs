//! The manifest: what a transfer delivers, as the bytes of object 0.
//!
//! This file knows only the layout. The code that makes and accepts manifests decides whether
//! entries are safe to create on a disk (`..`, links out of the tree, a file used as a directory).
//!
//! ```text
//! header, 40 bytes:  "TWLM" | version | slab shift | flags u16 | entries u32 | reserved u32
//!                    | content bytes u64 | sender identity [16]
//! entry, 27 bytes + names:  kind u8 | mode u16 | path length u16 | target length u16
//!                    | mtime seconds i64 | mtime nanoseconds u32 | size u64 | path | target
//! ```
//!
//! Version 2 adds hard links among the entries, and sections behind the entries. There are two
//! sections, each at most once and in this order: who owns the entries ([`OwnersRef`]), and their
//! extended attributes ([`AttributesRef`]). A manifest with none of these is always of version 1,
//! which older receivers read too.
//!
//! Invariant: `parse` reads every entry and section once and checks that they end exactly at the
//! last byte. So iterating over the entries afterwards cannot fail.

use std::iter::FusedIterator;

use super::{AttributesRef, OwnersRef, reader::Reader};
use crate::{Fault, ParseError};

/// The checked bytes of a manifest.
#[derive(Clone, Copy, Debug)]
pub struct ManifestRef<'a> {
    header: ManifestHeader,
    entries: &'a [u8],
    sections: Sections<'a>,
}

/// What stands behind the entries of a manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sections<'a> {
    /// Who owns the entries.
    pub owners: Option<OwnersRef<'a>>,
    /// The extended attributes of the entries.
    pub attributes: Option<AttributesRef<'a>>,
}

impl<'a> ManifestRef<'a> {
    /// Checks the layout of a whole manifest.
    ///
    /// # Errors
    /// When a length, a kind or a field's range is not what the layout allows.
    ///
    /// **Cost**: one pass over the bytes, no allocation.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(bytes, LIMIT);
        let (version, header) = ManifestHeader::read(&mut reader)?;
        let entries = &bytes[reader.offset()..];
        let mut needed = 1;
        for _ in 0..header.entry_count {
            let entry = EntryRef::read(&mut reader)?;
            needed = needed.max(entry.kind.version());
        }
        let sections = match version {
            2 => Sections::read(&mut reader, header.entry_count)?,
            _ => Sections::default(),
        };
        if sections != Sections::default() {
            needed = 2;
        }
        // A manifest has the oldest version that can hold it, so that there is one way to write it.
        if version != needed {
            return Err(reader.forbidden("manifest version", VERSION_AT, u64::from(version)));
        }
        if reader.remaining() != 0 {
            return Err(ParseError {
                limited_by: "its last entry",
                ..reader.fault("manifest", reader.offset(), Fault::Surplus)
            });
        }
        Ok(Self {
            header,
            entries,
            sections,
        })
    }

    /// Returns the header.
    #[must_use]
    pub const fn header(&self) -> &ManifestHeader {
        &self.header
    }

    /// Returns the entries in the order of the bytes.
    #[must_use]
    pub const fn entries(&self) -> ManifestEntries<'a> {
        ManifestEntries {
            reader: Reader::new(self.entries, LIMIT),
            left: self.header.entry_count,
        }
    }

    /// Returns what stands behind the entries.
    #[must_use]
    pub const fn sections(&self) -> Sections<'a> {
        self.sections
    }

    /// Reads the entry that begins `at` bytes into a manifest, for callers that remember where
    /// entries begin.
    ///
    /// # Errors
    /// When no whole entry begins there.
    pub fn entry_at(bytes: &'a [u8], at: usize) -> Result<EntryRef<'a>, ParseError> {
        EntryRef::read(&mut Reader::new(bytes.get(at..).unwrap_or_default(), LIMIT))
            .map_err(|error| error.within(at))
    }

    /// Appends a whole manifest. The entry count written is the number of `entries`, whatever the
    /// header says; the version written is the oldest that can hold everything in this manifest.
    ///
    /// **Panics** (bug): when a path or target is longer than 65,535 bytes, a mode is above 0o7777,
    /// or nanoseconds are not below 1,000,000,000. Also when there are more than 2^32 - 1 entries,
    /// or a section has more bytes than that. Callers check manifests first.
    pub fn emit<'e>(
        out: &mut Vec<u8>,
        header: &ManifestHeader,
        entries: impl Iterator<Item = EntryRef<'e>>,
        sections: Sections<'_>,
    ) {
        let start = out.len();
        header.emit(out);
        let mut count: u32 = 0;
        for entry in entries {
            out[start + VERSION_AT] = out[start + VERSION_AT].max(entry.kind.version());
            entry.emit(out);
            count = count
                .checked_add(1)
                .expect("a manifest has fewer than 2^32 entries");
        }
        out[start + COUNT_AT..start + COUNT_AT + 4].copy_from_slice(&count.to_be_bytes());
        let bodies = [
            (OWNERS, sections.owners.map(|owners| owners.body())),
            (ATTRIBUTES, sections.attributes.map(|it| it.body())),
        ];
        for (kind, body) in bodies {
            let Some(body) = body else { continue };
            out[start + VERSION_AT] = 2;
            let len = u32::try_from(body.len()).expect("manifests are checked before");
            out.push(kind);
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(body);
        }
    }
}

impl<'a> Sections<'a> {
    /// Reads all that is left as sections. Their kinds must ascend.
    fn read(reader: &mut Reader<'a>, entries: u32) -> Result<Self, ParseError> {
        let (mut sections, mut last) = (Self::default(), 0);
        while reader.remaining() > 0 {
            let at = reader.offset();
            let kind = reader.u8("manifest section")?;
            if kind <= last {
                return Err(reader.forbidden("order of sections", at, u64::from(kind)));
            }
            last = kind;
            let len = reader.u32("length of a section")?;
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            let start = reader.offset();
            let body = reader.take("manifest section", len)?;
            let read = match kind {
                OWNERS => OwnersRef::parse(body, entries).map(|it| sections.owners = Some(it)),
                ATTRIBUTES => {
                    let read = AttributesRef::parse(body, entries);
                    read.map(|it| sections.attributes = Some(it))
                }
                _ => return Err(reader.forbidden("manifest section", at, u64::from(kind))),
            };
            read.map_err(|error| ParseError {
                offset: start + error.offset,
                ..error
            })?;
        }
        Ok(sections)
    }
}

/// The header of a manifest, which precedes the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestHeader {
    /// Shift of the slab size, 20 to 30: a slab, the unit of hashing, has 2^`slab_shift` bytes.
    pub slab_shift: u8,
    /// Bits for receivers. [`ManifestHeader::INCOMPLETE`], `SELECTED` and `CONTENTS` help them to
    /// tell which of their other files are surplus; [`ManifestHeader::SPARSE`] is about zeros in
    /// files. Receivers ignore unknown bits.
    pub flags: u16,
    /// Number of entries that follow.
    pub entry_count: u32,
    /// Bytes of all regular files together.
    pub content_bytes: u64,
    /// The sender's identity. It stays the same over restarts, so that an unchanged tree keeps its
    /// manifest.
    pub identity: [u8; 16],
}

/// Length of the manifest header in bytes.
pub const MANIFEST_HEADER_LEN: usize = 40;

impl ManifestHeader {
    /// A flag: the sender could not read everything that should have been in the manifest.
    pub const INCOMPLETE: u16 = 1;
    /// A flag: the sender's rules have left something out.
    pub const SELECTED: u16 = 2;
    /// A flag: the manifest has everything in one directory, but not that directory itself.
    pub const CONTENTS: u16 = 4;
    /// A flag: the sender asks that runs of zeros in files take no room at receivers.
    pub const SPARSE: u16 = 8;

    /// Returns the version of what may be a manifest; `None` when `bytes` do not begin as a
    /// manifest does.
    #[must_use]
    pub fn version_of(bytes: &[u8]) -> Option<u8> {
        let version = *bytes.get(VERSION_AT)?;
        bytes.starts_with(&MAGIC).then_some(version)
    }

    /// Reads a header. Returns its version, and the other fields.
    fn read(reader: &mut Reader<'_>) -> Result<(u8, Self), ParseError> {
        let magic = reader.u32("manifest magic")?;
        if magic.to_be_bytes() != MAGIC {
            return Err(reader.forbidden("manifest magic", 0, u64::from(magic)));
        }
        let version = reader.u8("manifest version")?;
        if !(1..=MANIFEST_VERSION_MAX).contains(&version) {
            return Err(reader.forbidden("manifest version", VERSION_AT, u64::from(version)));
        }
        let slab_shift = reader.u8("slab shift")?;
        if !(20..=30).contains(&slab_shift) {
            return Err(reader.forbidden("slab shift", 5, u64::from(slab_shift)));
        }
        let flags = reader.u16("manifest flags")?;
        let entry_count = reader.u32("entry count")?;
        reader.u32("reserved field")?;
        let header = Self {
            slab_shift,
            flags,
            entry_count,
            content_bytes: reader.u64("content bytes")?,
            identity: reader.array("sender identity")?,
        };
        Ok((version, header))
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[1, self.slab_shift]);
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&self.entry_count.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.content_bytes.to_be_bytes());
        out.extend_from_slice(&self.identity);
    }
}

/// One entry, borrowed from the manifest's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// File, directory or link.
    pub kind: EntryKind,
    /// Permission bits as `chmod` takes them; 0 to 0o7777.
    pub mode: u16,
    /// When the contents were last modified.
    pub mtime: Mtime,
    /// Bytes of a file; 0 for directories and links.
    pub size_bytes: u64,
    /// Path below the tree's root, components separated by `/`; any bytes except NUL.
    pub path: &'a [u8],
    /// For a symbolic link, where it points. For a hard link, the path of the entry whose file it
    /// shares. Empty for files and directories.
    pub target: &'a [u8],
}

impl<'a> EntryRef<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, ParseError> {
        let at = reader.offset();
        let kind = match reader.u8("entry kind")? {
            1 => EntryKind::File,
            2 => EntryKind::Directory,
            3 => EntryKind::Symlink,
            4 => EntryKind::HardLink,
            other => return Err(reader.forbidden("entry kind", at, u64::from(other))),
        };
        let mode = reader.u16("entry mode")?;
        if mode > 0o7777 {
            return Err(reader.forbidden("entry mode", at + 1, u64::from(mode)));
        }
        let path_len = usize::from(reader.u16("path length")?);
        let target_len = usize::from(reader.u16("target length")?);
        let seconds = i64::from_be_bytes(reader.array("modification time")?);
        let nanoseconds = reader.u32("modification time")?;
        if nanoseconds >= 1_000_000_000 {
            return Err(reader.forbidden("nanoseconds", at + 15, u64::from(nanoseconds)));
        }
        Ok(Self {
            kind,
            mode,
            mtime: Mtime {
                seconds,
                nanoseconds,
            },
            size_bytes: reader.u64("entry size")?,
            path: reader.take("entry path", path_len)?,
            target: reader.take("link target", target_len)?,
        })
    }

    /// Returns the length of the entry in a manifest, in bytes.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        ENTRY_LEN + self.path.len() + self.target.len()
    }

    fn emit(&self, out: &mut Vec<u8>) {
        let len16 = |name: &[u8]| u16::try_from(name.len()).expect("names are checked before");
        assert!(self.mtime.nanoseconds < 1_000_000_000 && self.mode <= 0o7777);
        out.push(match self.kind {
            EntryKind::File => 1,
            EntryKind::Directory => 2,
            EntryKind::Symlink => 3,
            EntryKind::HardLink => 4,
        });
        out.extend_from_slice(&self.mode.to_be_bytes());
        out.extend_from_slice(&len16(self.path).to_be_bytes());
        out.extend_from_slice(&len16(self.target).to_be_bytes());
        out.extend_from_slice(&self.mtime.seconds.to_be_bytes());
        out.extend_from_slice(&self.mtime.nanoseconds.to_be_bytes());
        out.extend_from_slice(&self.size_bytes.to_be_bytes());
        out.extend_from_slice(self.path);
        out.extend_from_slice(self.target);
    }
}

/// The kind of file that an entry creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Another name of a file of the manifest. Only version 2 has this kind.
    HardLink,
}

impl EntryKind {
    /// Returns the first version of the manifest that has this kind.
    const fn version(self) -> u8 {
        match self {
            Self::File | Self::Directory | Self::Symlink => 1,
            Self::HardLink => 2,
        }
    }
}

/// A modification time: seconds since 1970, which may be negative, and nanoseconds on top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtime {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds on top, 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// An iterator over the entries of a checked manifest.
#[derive(Clone, Debug)]
pub struct ManifestEntries<'a> {
    reader: Reader<'a>,
    left: u32,
}

impl<'a> Iterator for ManifestEntries<'a> {
    type Item = EntryRef<'a>;

    fn next(&mut self) -> Option<EntryRef<'a>> {
        self.left = self.left.checked_sub(1)?;
        Some(EntryRef::read(&mut self.reader).expect("parse walked every entry"))
    }
}

impl FusedIterator for ManifestEntries<'_> {}

/// What limits a manifest's fields, in the words of an error.
const LIMIT: &str = "the manifest's end";
const MAGIC: [u8; 4] = *b"TWLM";
/// The newest version of the manifest that this code reads. It writes the oldest version that has
/// all that a manifest needs.
pub const MANIFEST_VERSION_MAX: u8 = 2;
const VERSION_AT: usize = 4;
const COUNT_AT: usize = 8;
/// The kind of the section that says who owns the entries.
const OWNERS: u8 = 1;
/// The kind of the section with the extended attributes of the entries.
const ATTRIBUTES: u8 = 2;
const ENTRY_LEN: usize = 27;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Account, AttributeRef};

    fn sample() -> Vec<u8> {
        let header = ManifestHeader {
            slab_shift: 20,
            flags: 0x8004,
            entry_count: 0,
            content_bytes: 5,
            identity: [7; 16],
        };
        let directory = EntryRef {
            kind: EntryKind::Directory,
            mode: 0o755,
            mtime: Mtime {
                seconds: -1,
                nanoseconds: 5,
            },
            size_bytes: 0,
            path: b"d",
            target: b"",
        };
        let file = EntryRef {
            kind: EntryKind::File,
            size_bytes: 5,
            path: b"d/f",
            ..directory
        };
        let link = EntryRef {
            kind: EntryKind::Symlink,
            path: b"d/l",
            target: b"f",
            ..directory
        };
        let mut out = Vec::new();
        let entries = [directory, file, link];
        ManifestRef::emit(&mut out, &header, entries.into_iter(), Sections::default());
        out
    }

    #[test]
    fn a_manifest_reads_back_what_was_written() {
        let bytes = sample();
        let manifest = ManifestRef::parse(&bytes).unwrap();
        assert_eq!(manifest.header().entry_count, 3);
        assert_eq!(manifest.header().flags, 0x8000 | ManifestHeader::CONTENTS);
        let entries: Vec<_> = manifest.entries().collect();
        assert_eq!(entries[1].path, b"d/f");
        assert_eq!(
            (entries[2].kind, entries[2].target),
            (EntryKind::Symlink, &b"f"[..])
        );
        assert_eq!(entries[0].mtime.seconds, -1);
        let mut again = Vec::new();
        let sections = manifest.sections();
        ManifestRef::emit(&mut again, manifest.header(), manifest.entries(), sections);
        assert_eq!(again, bytes);
    }

    /// The sample with another name of its file at the end.
    fn linked() -> Vec<u8> {
        let bytes = sample();
        let manifest = ManifestRef::parse(&bytes).unwrap();
        let link = EntryRef {
            kind: EntryKind::HardLink,
            mode: 0,
            mtime: Mtime::default(),
            size_bytes: 0,
            path: b"e",
            target: b"d/f",
        };
        let mut out = Vec::new();
        let entries = manifest.entries().chain([link]);
        ManifestRef::emit(&mut out, manifest.header(), entries, Sections::default());
        out
    }

    /// The vector of version 2: the bytes that stand in `docs/src/protocol.md`, section 4.
    #[test]
    fn a_hard_link_makes_it_version_2_and_nothing_else_does() {
        let bytes = linked();
        assert_eq!((sample()[VERSION_AT], bytes[VERSION_AT]), (1, 2));
        let manifest = ManifestRef::parse(&bytes).unwrap();
        let last = manifest.entries().last().unwrap();
        assert_eq!((last.kind, last.target), (EntryKind::HardLink, &b"d/f"[..]));
        let golden = [
            &[4, 0, 0, 0, 1, 0, 3][..], // kind, mode, path length, target length
            &[0; 20],                   // neither time nor size of its own
            b"ed/f",
        ];
        assert!(bytes.ends_with(&golden.concat()));
        for (mut bytes, version) in [(sample(), 2), (linked(), 1), (linked(), 3)] {
            bytes[VERSION_AT] = version;
            let error = ManifestRef::parse(&bytes).unwrap_err();
            assert!(error.to_string().contains("version"), "{error}");
        }
        for len in 0..bytes.len() {
            assert!(ManifestRef::parse(&bytes[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn sections_make_it_version_2_and_stand_behind_the_entries_in_their_order() {
        let (mut owners, mut attributes) = (Vec::new(), Vec::new());
        let accounts = [Account {
            number: 7,
            name: b"ann",
        }];
        OwnersRef::emit(&mut owners, &accounts, &accounts, [(0, 0); 3].into_iter());
        let set = [AttributeRef {
            name: b"user.a",
            value: b"x",
        }];
        AttributesRef::emit(&mut attributes, &[set], [0, 1, 0].into_iter());
        let owners = Some(OwnersRef::parse(&owners, 3).unwrap());
        let attributes = Some(AttributesRef::parse(&attributes, 3).unwrap());
        let bytes = sample();
        let plain = ManifestRef::parse(&bytes).unwrap();
        assert_eq!(plain.sections(), Sections::default());
        let both = Sections { owners, attributes };
        let alone = |owners, attributes| Sections { owners, attributes };
        let emitted = |sections| {
            let mut out = Vec::new();
            ManifestRef::emit(&mut out, plain.header(), plain.entries(), sections);
            out
        };
        for sections in [both, alone(owners, None), alone(None, attributes)] {
            let mut out = emitted(sections);
            assert_eq!(out[VERSION_AT], 2);
            let manifest = ManifestRef::parse(&out).unwrap();
            assert_eq!(manifest.sections(), sections);
            assert!(manifest.entries().eq(plain.entries()));
            let first = 5 + sections.owners.map_or(0, |owners| owners.body().len());
            for len in 0..out.len() {
                // Without its second section it is whole, too.
                let is_whole = sections == both && len == bytes.len() + first;
                let read = ManifestRef::parse(&out[..len]);
                assert_eq!(read.is_ok(), is_whole, "{len}");
            }
            // Another section, a version without sections, one more byte.
            for (at, value) in [(bytes.len(), 3), (bytes.len(), 0), (VERSION_AT, 1)] {
                let mut out = out.clone();
                out[at] = value;
                assert!(ManifestRef::parse(&out).is_err(), "{at}");
            }
            out.push(0);
            assert!(ManifestRef::parse(&out).is_err());
        }
        // Twice, and in the wrong order.
        let owners_alone = emitted(alone(owners, None));
        let attributes_alone = emitted(alone(None, attributes));
        let [owners, attributes] =
            [owners_alone, attributes_alone].map(|mut it| it.split_off(bytes.len()));
        for sections in [[&owners, &owners], [&attributes, &owners]] {
            let mut out = bytes.clone();
            out[VERSION_AT] = 2;
            sections
                .iter()
                .for_each(|section| out.extend_from_slice(section));
            let error = ManifestRef::parse(&out).unwrap_err();
            assert!(error.to_string().contains("order of sections"), "{error}");
        }
    }

    #[test]
    fn every_truncation_and_a_surplus_byte_are_refused() {
        let mut bytes = sample();
        for len in 0..bytes.len() {
            assert!(ManifestRef::parse(&bytes[..len]).is_err(), "{len}");
        }
        let len = bytes.len();
        bytes.push(0);
        let error = ManifestRef::parse(&bytes).unwrap_err();
        assert_eq!((error.offset, error.needed, error.available), (len, 0, 1));
        assert_eq!(
            error.to_string(),
            format!("manifest at offset {len}: 1 bytes, but its last entry accounts for 0")
        );
    }

    #[test]
    fn the_error_of_one_entry_counts_from_the_manifests_start() {
        let bytes = sample();
        let at = MANIFEST_HEADER_LEN;
        for len in at..at + ENTRY_LEN {
            let error = ManifestRef::entry_at(&bytes[..len], at).unwrap_err();
            assert_eq!(error.offset + error.available, len);
        }
    }

    #[test]
    fn a_claimed_count_allocates_nothing() {
        let mut bytes = sample();
        bytes[COUNT_AT..COUNT_AT + 4].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(ManifestRef::parse(&bytes).is_err());
    }
}
