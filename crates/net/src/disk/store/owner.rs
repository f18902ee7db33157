//! Sets the owners of what has arrived, if the receiver was told to.
//!
//! The manifest names users and groups by the sender's numbers and names. For each of them, the
//! receiver decides once which of its own users or groups is meant. Staged files and links get
//! their owner while they are in the store's own directory. A file that is already in place gets
//! its owner through a descriptor, and only if all its names (hard links) belong to the transfer.
//! Otherwise somebody who may write in the directory could put a hard link to another user's file
//! there, and that file would change owner.
//!
//! Invariant: an owner that cannot be set, for want of rights or support, is counted and named
//! once. It is no reason to fail.

use std::{collections::BTreeMap, io};

use delivery::{Manifest, Unset};
use sys::file::Status;
use wire::object::Account;

/// The owners that arriving files get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    /// The user that runs the receiver.
    #[default]
    Receiver,
    /// The user and the group with the same names as at the sender. When the sender gives no name,
    /// or the receiver does not know the name, the user or group with the same number.
    Names,
    /// The user and the group with the same numbers as at the sender.
    Numbers,
}

/// The local users and groups that the entries of a manifest get as owners.
#[derive(Debug)]
pub(super) struct Ownership {
    users: Vec<Local>,
    groups: Vec<Local>,
    /// For each entry, the index of its user in `users` and of its group in `groups`.
    of: Vec<(u16, u16)>,
    /// The groups (true) and users (false) that could not be set, by their indexes: for how many
    /// entries, and why.
    refused: BTreeMap<(bool, u16), (u64, String)>,
}

#[derive(Debug)]
struct Local {
    number: u32,
    /// The user's or group's name or number at the sender, for messages.
    shown: String,
}

impl Ownership {
    /// Finds the owners of a manifest's entries; `None` when nothing is to be set.
    pub(super) fn of(manifest: &Manifest, owners: Owners) -> Option<Self> {
        if owners == Owners::Receiver {
            return None;
        }
        let said = manifest.sections().owners?;
        let by_name = owners == Owners::Names;
        let users = said.users();
        let users = users.map(|it| local(&it, by_name, "user", sys::account::user_number));
        let groups = said.groups();
        let groups = groups.map(|it| local(&it, by_name, "group", sys::account::group_number));
        Some(Self {
            users: users.collect(),
            groups: groups.collect(),
            of: (0..manifest.entry_count())
                .map(|entry| said.of(entry))
                .collect(),
            refused: BTreeMap::new(),
        })
    }

    /// Returns true when an entry has its owner already.
    pub(super) fn is_set(&self, entry: usize, status: &Status) -> bool {
        let (user, group) = self.of[entry];
        self.users[usize::from(user)].number == status.owner
            && self.groups[usize::from(group)].number == status.group
    }

    /// Sets the owner of an entry: calls `set` with the user and group numbers that differ from
    /// those in `status`.
    pub(super) fn set(
        &mut self,
        entry: usize,
        status: &Status,
        set: impl Fn(Option<u32>, Option<u32>) -> io::Result<()>,
    ) -> io::Result<()> {
        let (user, group) = self.of[entry];
        let new = |number: u32, old| (number != old).then_some(number);
        let new_user = new(self.users[usize::from(user)].number, status.owner);
        let new_group = new(self.groups[usize::from(group)].number, status.group);
        if new_user.is_none() && new_group.is_none() {
            return Ok(());
        }
        // One call sets user and group if both may be set; otherwise each is tried alone.
        if set(new_user, new_group).is_ok() {
            return Ok(());
        }
        if new_group.is_some()
            && let Err(error) = set(None, new_group)
        {
            self.refuse((true, group), error)?;
        }
        if new_user.is_some()
            && let Err(error) = set(new_user, None)
        {
            self.refuse((false, user), error)?;
        }
        Ok(())
    }

    /// Counts an owner that this process may not set; returns any other error.
    fn refuse(&mut self, what: (bool, u16), error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::Unsupported => {
                let refused = self.refused.entry(what);
                refused.or_insert_with(|| (0, error.to_string())).0 += 1;
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Returns the users and groups that could not be set, each once.
    pub(super) fn into_unset(self) -> Vec<Unset> {
        let Self {
            users,
            groups,
            refused,
            ..
        } = self;
        let unset = refused
            .into_iter()
            .map(|((is_group, index), (count, why))| {
                let list = if is_group { &groups } else { &users };
                let what = format!("{}: {why}", list[usize::from(index)].shown);
                Unset::new(what, count)
            });
        unset.collect()
    }
}

fn local(
    account: &Account<'_>,
    by_name: bool,
    kind: &str,
    number_of: impl Fn(&[u8]) -> Option<u32>,
) -> Local {
    let Account { number, name } = *account;
    let shown = match name {
        b"" => format!("{kind} {number}"),
        name => format!("{kind} {} ({number})", String::from_utf8_lossy(name)),
    };
    let known = (by_name && !name.is_empty())
        .then(|| number_of(name))
        .flatten();
    Local {
        number: known.unwrap_or(number),
        shown,
    }
}
