//! Who owns the entries of a manifest: a section behind the entries, in version 2.
//!
//! ```text
//! section:  kind u8 = 1 | length u32 | body
//! body:     count of users u16 | count of groups u16
//!           | users, then groups, each: number u32 | name length u8 | name
//!           | for each entry: index of its user u16 | index of its group u16
//! ```
//!
//! Numbers ascend, so that each list has one way to be written. An empty name means that the sender
//! knows no name for the number.

use super::reader::Reader;
use crate::{Fault, ParseError};

/// The checked body of the section of owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnersRef<'a> {
    body: &'a [u8],
    users: Accounts<'a>,
    groups: Accounts<'a>,
    of: &'a [u8],
}

/// A user or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account<'a> {
    /// Its number at the sender; never 2^32 - 1, which means "none" to the system.
    pub number: u32,
    /// Its name there, at most 255 bytes without control characters and colons; empty for none.
    pub name: &'a [u8],
}

/// A list of users or groups, their numbers ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accounts<'a>(&'a [u8]);

impl<'a> OwnersRef<'a> {
    /// Checks the section's body; the manifest has `entries` entries.
    ///
    /// # Errors
    /// When a length, a number, a name or an index is not what the layout allows.
    pub fn parse(body: &'a [u8], entries: u32) -> Result<Self, ParseError> {
        let mut reader = Reader::new(body, "the section's end");
        let [users, groups] = [reader.u16("users")?, reader.u16("groups")?];
        let mut lists = [&[][..]; 2];
        for (list, count) in lists.iter_mut().zip([users, groups]) {
            let start = reader.offset();
            let mut previous = None;
            for _ in 0..count {
                let at = reader.offset();
                let account = read_account(&mut reader)?;
                if previous >= Some(account.number) {
                    return Err(reader.forbidden("order of owners", at, account.number.into()));
                }
                previous = Some(account.number);
            }
            *list = &body[start..reader.offset()];
        }
        let start = reader.offset();
        for _ in 0..entries {
            for count in [users, groups] {
                let at = reader.offset();
                let index = reader.u16("owner of an entry")?;
                if index >= count {
                    return Err(reader.forbidden("owner of an entry", at, index.into()));
                }
            }
        }
        if reader.remaining() != 0 {
            return Err(ParseError {
                limited_by: "the last entry",
                ..reader.fault("owners", reader.offset(), Fault::Surplus)
            });
        }
        let [users, groups] = lists.map(Accounts);
        let of = &body[start..];
        Ok(Self {
            body,
            users,
            groups,
            of,
        })
    }

    /// Appends a body. `of` gives the indices of each entry's user and group.
    ///
    /// **Panics** (bug): when a list has more than 65,535 accounts, or a name more than 255 bytes.
    pub fn emit<'e>(
        out: &mut Vec<u8>,
        users: &[Account<'e>],
        groups: &[Account<'e>],
        of: impl Iterator<Item = (u16, u16)>,
    ) {
        for list in [users, groups] {
            let count = u16::try_from(list.len()).expect("lists are checked before");
            out.extend_from_slice(&count.to_be_bytes());
        }
        for Account { number, name } in users.iter().chain(groups) {
            out.extend_from_slice(&number.to_be_bytes());
            out.push(u8::try_from(name.len()).expect("names are checked before"));
            out.extend_from_slice(name);
        }
        for (user, group) in of {
            out.extend_from_slice(&user.to_be_bytes());
            out.extend_from_slice(&group.to_be_bytes());
        }
    }

    /// Returns the users, by index.
    #[must_use]
    pub const fn users(&self) -> Accounts<'a> {
        self.users
    }

    /// Returns the groups, by index.
    #[must_use]
    pub const fn groups(&self) -> Accounts<'a> {
        self.groups
    }

    /// Returns the indices of an entry's user and group.
    ///
    /// **Panics** (bug): when the manifest has no such entry.
    #[must_use]
    pub fn of(&self, entry: usize) -> (u16, u16) {
        let pair = &self.of[4 * entry..4 * entry + 4];
        let [a, b, c, d] = pair.try_into().expect("four bytes");
        (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
    }

    /// Returns the bytes of the section's body.
    #[must_use]
    pub const fn body(&self) -> &'a [u8] {
        self.body
    }
}

impl<'a> Iterator for Accounts<'a> {
    type Item = Account<'a>;

    fn next(&mut self) -> Option<Account<'a>> {
        if self.0.is_empty() {
            return None;
        }
        let mut reader = Reader::new(self.0, "the list's end");
        let account = read_account(&mut reader).expect("parse read every one");
        self.0 = &self.0[reader.offset()..];
        Some(account)
    }
}

/// Returns true for a name that a manifest may hold.
#[must_use]
pub fn is_account_name(name: &[u8]) -> bool {
    name.len() <= 255
        && name
            .iter()
            .all(|&byte| byte >= b' ' && byte != 0x7F && byte != b':')
}

fn read_account<'a>(reader: &mut Reader<'a>) -> Result<Account<'a>, ParseError> {
    let at = reader.offset();
    let number = reader.u32("number of an owner")?;
    if number == u32::MAX {
        return Err(reader.forbidden("number of an owner", at, number.into()));
    }
    let len = usize::from(reader.u8("length of an owner's name")?);
    let name = reader.take("owner's name", len)?;
    if !is_account_name(name) {
        return Err(reader.forbidden("owner's name", at + 5, 0));
    }
    Ok(Account { number, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> Vec<u8> {
        let account = |number, name: &'static [u8]| Account { number, name };
        let users = [account(0, b"root"), account(1000, b"ann")];
        let groups = [account(50, b"")];
        let mut out = Vec::new();
        OwnersRef::emit(&mut out, &users, &groups, [(1, 0), (0, 0)].into_iter());
        out
    }

    #[test]
    fn owners_read_back_what_was_written() {
        let golden = [
            &[0, 2, 0, 1][..],
            &[0, 0, 0, 0, 4],
            b"root",
            &[0, 0, 3, 0xE8, 3],
            b"ann",
            &[0, 0, 0, 50, 0],
            &[0, 1, 0, 0, 0, 0, 0, 0],
        ];
        let body = body();
        assert_eq!(body, golden.concat());
        let owners = OwnersRef::parse(&body, 2).unwrap();
        let users: Vec<_> = owners
            .users()
            .map(|user| (user.number, user.name))
            .collect();
        assert_eq!(users, [(0, &b"root"[..]), (1000, b"ann")]);
        assert_eq!(owners.groups().next().unwrap().number, 50);
        assert_eq!([owners.of(0), owners.of(1)], [(1, 0), (0, 0)]);
    }

    #[test]
    fn what_is_not_whole_or_not_as_it_must_be_is_refused() {
        let body = body();
        for len in 0..body.len() {
            assert!(OwnersRef::parse(&body[..len], 2).is_err(), "{len}");
        }
        for entries in [0, 1, 3, u32::MAX] {
            assert!(OwnersRef::parse(&body, entries).is_err(), "{entries}");
        }
        // A colon, a number that is none, numbers out of order, an index too far.
        for (at, value) in [(9, b':'), (7, 255), (12, 4), (28, 1)] {
            let mut body = body.clone();
            body[at] = value;
            if at == 7 {
                body[4..8].fill(255);
            }
            if at == 12 {
                body[13..17].fill(0);
            }
            assert!(OwnersRef::parse(&body, 2).is_err(), "{at}");
        }
    }
}
