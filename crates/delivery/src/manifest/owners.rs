//! What a sender says of the owners of its files.
//!
//! **Spec**: `docs/src/protocol.md` section 4 (*owners*).

use std::collections::BTreeMap;

use wire::object::{Account, EntryKind, OwnersRef, is_account_name};

use super::{Entry, ManifestError};

/// The names of users and groups at the sender, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerNames {
    /// The name of each user, by user number.
    pub users: BTreeMap<u32, Vec<u8>>,
    /// The name of each group, by group number.
    pub groups: BTreeMap<u32, Vec<u8>>,
}

impl OwnerNames {
    /// Makes the manifest section that says who owns `entries`; `None` when no entry has an
    /// owner. Hard links do not count: their owner is that of their file.
    pub(super) fn section(&self, entries: &[Entry]) -> Result<Option<Vec<u8>>, ManifestError> {
        let owned = || entries.iter().filter(|it| it.kind != EntryKind::HardLink);
        let count = owned().filter(|entry| entry.owner.is_some()).count();
        if count == 0 {
            return Ok(None);
        }
        if count != owned().count() {
            return Err(ManifestError::Owners(
                "some entries have an owner and others have none; give an owner to all, or to none",
            ));
        }
        let owners = || owned().filter_map(|entry| entry.owner);
        let users = accounts(owners().map(|owner| owner.user), &self.users);
        let groups = accounts(owners().map(|owner| owner.group), &self.groups);
        let is_many = |accounts: &[Account<'_>]| accounts.len() > usize::from(u16::MAX);
        if is_many(&users) {
            return Err(ManifestError::Owners(
                "there are more than 65,535 users among them; send without owners",
            ));
        }
        if is_many(&groups) {
            return Err(ManifestError::Owners(
                "there are more than 65,535 groups among them; send without owners",
            ));
        }
        let index = |list: &[Account<'_>], number| {
            let at = list.partition_point(|account| account.number < number);
            u16::try_from(at).expect("checked against the limit")
        };
        let of = entries.iter().map(|entry| match entry.owner {
            Some(owner) => (index(&users, owner.user), index(&groups, owner.group)),
            None => (0, 0),
        });
        let mut body = Vec::new();
        OwnersRef::emit(&mut body, &users, &groups, of);
        Ok(Some(body))
    }
}

fn accounts(
    numbers: impl Iterator<Item = u32>,
    names: &BTreeMap<u32, Vec<u8>>,
) -> Vec<Account<'_>> {
    let list: BTreeMap<u32, &[u8]> = numbers
        .map(|number| {
            let name = names.get(&number).filter(|name| is_account_name(name));
            (number, name.map_or(&[][..], |name| name))
        })
        .collect();
    let list = list.into_iter();
    list.map(|(number, name)| Account { number, name })
        .collect()
}
