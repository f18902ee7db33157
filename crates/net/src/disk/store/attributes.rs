//! Sets the extended attributes of the files and directories that have arrived, if the receiver was
//! told to.
//!
//! Files and directories get their attributes through descriptors, before they get a mode that may
//! forbid opening them. A file that is already in place gets attributes only if all its names (hard
//! links) are the transfer's; otherwise a copy replaces it.
//!
//! The user attributes (`user.*`) become the same as at the sender: those that the sender's file
//! does not have are removed. Attributes of other kinds are set as far as the system lets this
//! process, and none of them is removed. Two kinds are never set. One is file capabilities: nobody
//! may get a privileged program from the network. The other is attributes of the system
//! (`system.*`, access lists): they hold user numbers of the sender's machine.
//!
//! Invariant: an attribute that cannot be set, for want of rights, support or room, is counted, and
//! is no reason to fail. The first 16 names of such attributes are reported.

use std::{collections::BTreeMap, io, os::fd::AsFd};

use delivery::{Attribute, Manifest, Unset};
use sys::file::{Status, attribute, attribute_names, remove_attribute, set_attribute, set_mode};

/// The attributes of a manifest's entries.
#[derive(Debug)]
pub(super) struct Attributes {
    /// The different sets of attributes. Set 0 is empty.
    sets: Vec<Vec<Attribute>>,
    /// For each entry of the manifest, an index into `sets`: the entry's set of attributes.
    of: Vec<u32>,
    /// By name, for the first 16 names: how often such an attribute was not set, and why at first.
    refused: BTreeMap<Vec<u8>, (u64, String)>,
    /// How often an attribute whose name is not in `refused` could not be set.
    refused_unlisted: u64,
}

impl Attributes {
    /// Reads the attributes of a manifest's entries; `None` when nothing is to be set.
    pub(super) fn of(manifest: &Manifest, are_wanted: bool) -> Option<Self> {
        let said = manifest.sections().attributes.filter(|_| are_wanted)?;
        let sets = said.sets().map(|set| {
            let attributes = set.map(|it| Attribute {
                name: it.name.to_vec(),
                value: it.value.to_vec(),
            });
            attributes.collect()
        });
        Some(Self {
            sets: std::iter::once(Vec::new()).chain(sets).collect(),
            of: (0..manifest.entry_count())
                .map(|entry| said.of(entry))
                .collect(),
            refused: BTreeMap::new(),
            refused_unlisted: 0,
        })
    }

    /// Returns true when an open file has its entry's attributes, as far as receivers may set them.
    pub(super) fn are_set(&self, entry: usize, open: &impl AsFd) -> io::Result<bool> {
        let set = &self.sets[self.of[entry] as usize];
        for wanted in set.iter().filter(|wanted| is_allowed(&wanted.name)) {
            if value_of(open, &wanted.name)?.as_deref() != Some(&wanted.value[..]) {
                return Ok(false);
            }
        }
        Ok(surplus(set, open)?.is_empty())
    }

    /// Gives an open file or directory the attributes of its entry.
    pub(super) fn set(&mut self, entry: usize, open: &impl AsFd) -> io::Result<()> {
        let set = std::mem::take(&mut self.sets[self.of[entry] as usize]);
        let done = self.set_all(&set, open);
        self.sets[self.of[entry] as usize] = set;
        done
    }

    fn set_all(&mut self, set: &[Attribute], open: &impl AsFd) -> io::Result<()> {
        for Attribute { name, value } in set {
            if !is_allowed(name) {
                self.refuse(name, NEVER);
                continue;
            }
            if value_of(open, name)?.as_deref() == Some(&value[..]) {
                continue;
            }
            let set = while_writable(open, || set_attribute(open, name, value));
            self.settle(name, set)?;
        }
        for name in surplus(set, open)? {
            let removed = while_writable(open, || remove_attribute(open, &name));
            self.settle(&name, removed)?;
        }
        Ok(())
    }

    /// Counts an attribute that the system does not let this process set or remove; returns any
    /// other error.
    fn settle(&mut self, name: &[u8], done: io::Result<()>) -> io::Result<()> {
        let Err(error) = done else { return Ok(()) };
        match error.kind() {
            io::ErrorKind::StorageFull => {
                // Some filesystems keep all attributes of a file in one block, which may be full
                // while the disk has room.
                self.refuse(name, NO_ROOM);
                Ok(())
            }
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::Unsupported
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::ArgumentListTooLong => {
                self.refuse(name, &error.to_string());
                Ok(())
            }
            _ => Err(error),
        }
    }

    fn refuse(&mut self, name: &[u8], why: &str) {
        if self.refused.len() >= NAMED_MAX && !self.refused.contains_key(name) {
            self.refused_unlisted += 1;
            return;
        }
        let refused = self.refused.entry(name.to_vec());
        refused.or_insert_with(|| (0, why.to_owned())).0 += 1;
    }

    /// Returns the attributes that could not be set: one item for each name in `refused`, and one
    /// item for all other names.
    pub(super) fn into_unset(self) -> Vec<Unset> {
        let named = self.refused.into_iter().map(|(name, (count, why))| {
            let name = String::from_utf8_lossy(&name);
            Unset::new(format!("attribute {name}: {why}"), count)
        });
        let others = (self.refused_unlisted > 0).then(|| {
            Unset::new(
                "attributes of other names".to_owned(),
                self.refused_unlisted,
            )
        });
        named.chain(others).collect()
    }
}

/// Returns true for an attribute that a receiver may take from the network.
fn is_allowed(name: &[u8]) -> bool {
    !name.starts_with(b"system.") && name != b"security.capability"
}

/// Returns the value of an attribute; `None` when there is none, or this process may not read it.
fn value_of(open: &impl AsFd, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    match attribute(open, name) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        read => read,
    }
}

/// Returns the names of the `user.*` attributes that the open file has and `set` has not.
fn surplus(set: &[Attribute], open: &impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = attribute_names(open)?;
    let is_known = |name: &[u8]| set.iter().any(|attribute| attribute.name == name);
    names.retain(|name| name.starts_with(b"user.") && !is_known(name));
    Ok(names)
}

/// Calls `act`, which needs the right to write. When the mode of this user's own file or directory
/// forbids that, changes the mode for the call.
fn while_writable(open: &impl AsFd, act: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let done = act();
    if !done
        .as_ref()
        .is_err_and(|error| error.raw_os_error() == Some(EACCES))
    {
        return done;
    }
    let mode = Status::of(open)?.mode;
    if mode & OWNER_WRITES != 0 || set_mode(open, mode | OWNER_WRITES).is_err() {
        return done;
    }
    let done = act();
    set_mode(open, mode)?;
    done
}

/// Why some attributes are not set.
const NEVER: &str = "receivers never take these from the network";
const NO_ROOM: &str = "no room is left for it on the disk, or among the file's attributes";
/// The most names that are listed when attributes cannot be set.
const NAMED_MAX: usize = 16;
const OWNER_WRITES: u32 = 0o200;
/// The errno of a call that the file's mode forbids. EPERM has causes that no mode can remove.
const EACCES: i32 = 13;
