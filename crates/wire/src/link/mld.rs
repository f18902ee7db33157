//! MLD: how hosts tell routers and switches which IPv6 groups they belong to.
//!
//! ```text
//!  both versions
//!  0        1            2                  4                    6                 8
//! +--------+------------+------------------+--------------------+-----------------+
//! | type   | 0          | checksum         | time code          | 0               |
//! +--------+------------+------------------+--------------------+-----------------+
//! | group, 16 bytes; 0 asks for all                                               |
//! +-------------------------------------------------------------------------------+
//! ```
//! The newest report, of MLDv2, has the shape of IGMPv3's: see [`Igmp`](super::Igmp). All MLD
//! messages are messages of ICMPv6.
//!
//! **Spec**: RFC 2710, RFC 3810 section 5.

use std::{fmt, net::Ipv6Addr};

use super::igmp::{RECORDS, groups};
use crate::{
    checksum,
    cursor::{array_at, put_u16, u16_at},
};

/// A view of an MLD message, which is a message of ICMPv6. Its first 24 bytes are whole, in a
/// report of version 2 its first 8; the rest may be cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mld<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Mld<T> {
    /// Views the message in `bytes`; `None` when they end within its fixed part, or hold another
    /// message of ICMPv6.
    #[inline]
    pub fn of(bytes: T) -> Option<Self> {
        let len_min = match *bytes.as_ref().first()? {
            MLD_QUERY | MLD_REPORT | MLD_DONE => LEN,
            MLD_REPORT_V2 => RECORDS,
            _ => return None,
        };
        (bytes.as_ref().len() >= len_min).then_some(Self { bytes })
    }

    /// Returns what kind of message it is, such as [`MLD_QUERY`].
    #[inline]
    pub fn kind(&self) -> u8 {
        self.bytes.as_ref()[KIND]
    }

    /// Returns the group, :: in a query for all; `None` in the newest reports.
    #[inline]
    pub fn group(&self) -> Option<Ipv6Addr> {
        let has_group = self.kind() != MLD_REPORT_V2;
        has_group.then(|| array_at::<16>(self.bytes.as_ref(), GROUP).into())
    }

    /// Returns how long an answer may take; `None` in the newest reports. A value below 32,768 is
    /// in milliseconds, a higher one is a code.
    #[inline]
    pub fn time_code(&self) -> Option<u16> {
        let has_group = self.kind() != MLD_REPORT_V2;
        has_group.then(|| u16_at(self.bytes.as_ref(), TIME_CODE))
    }

    /// Returns the first 24 bytes as a value; `None` for the newest reports, which have records.
    pub fn message(&self) -> Option<MldMessage> {
        Some(MldMessage {
            kind: self.kind(),
            time_code: self.time_code()?,
            group: self.group()?,
        })
    }

    /// Returns true for a report, of any version, that names `group`.
    pub fn reports(&self, group: Ipv6Addr) -> bool {
        match self.kind() {
            MLD_REPORT => self.group() == Some(group),
            MLD_REPORT_V2 => groups::<16>(self.bytes.as_ref()).any(|it| it == group.octets()),
            _ => false,
        }
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Mld<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.kind() {
            MLD_QUERY => "MLD query for",
            MLD_REPORT => "MLD report of",
            MLD_DONE => "MLD end of",
            _ => "MLDv2 report of",
        };
        f.write_str(name)?;
        match self.group() {
            Some(group) => write!(f, " {group}"),
            None => groups::<16>(self.bytes.as_ref())
                .try_for_each(|group| write!(f, " {}", Ipv6Addr::from(group))),
        }
    }
}

/// The fields of an MLD message of 24 bytes: a query, a report or the end of a membership of
/// version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MldMessage {
    /// What kind of message it is, such as [`MLD_QUERY`].
    pub kind: u8,
    /// How long an answer may take: in milliseconds when below 32,768, otherwise a code.
    pub time_code: u16,
    /// The group; :: in a query for all.
    pub group: Ipv6Addr,
}

impl MldMessage {
    /// Appends the message with its checksum: 24 bytes. `pseudo` is the partial sum of the pseudo
    /// header for 24 bytes.
    pub fn emit(&self, out: &mut Vec<u8>, pseudo: u64) {
        let at = out.len();
        out.extend([self.kind, 0, 0, 0]);
        out.extend(self.time_code.to_be_bytes());
        out.extend([0, 0]);
        out.extend(self.group.octets());
        let check = !checksum::fold(pseudo + checksum::sum(&out[at..]));
        put_u16(&mut out[at..], CHECKSUM, check);
    }
}

/// The type of an MLD query. Like the other types of MLD messages, it is a type of ICMPv6.
pub const MLD_QUERY: u8 = 130;
/// The type of a report of version 1.
pub const MLD_REPORT: u8 = 131;
/// The type of the end of a membership, of version 1.
pub const MLD_DONE: u8 = 132;
/// The type of a report of version 2.
pub const MLD_REPORT_V2: u8 = 143;

/// Length in bytes of a message with a group.
const LEN: usize = 24;

/// Offsets of fields.
const KIND: usize = 0;
const CHECKSUM: usize = 2;
const TIME_CODE: usize = 4;
const GROUP: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_emitted_is_read_and_its_sum_is_right() {
        let message = MldMessage {
            kind: MLD_QUERY,
            time_code: 0x0102,
            group: "ff15::9".parse().unwrap(),
        };
        let mut bytes = vec![0xEE];
        let pseudo = checksum::of_words(58 + 24);
        message.emit(&mut bytes, pseudo);
        assert_eq!(bytes[1..3], [130, 0]);
        assert_eq!(bytes[5..9], [1, 2, 0, 0]);
        assert_eq!(bytes[9..11], [0xFF, 0x15]);
        assert_eq!(checksum::fold(pseudo + checksum::sum(&bytes[1..])), 0xFFFF);
        let mld = Mld::of(&bytes[1..]).unwrap();
        assert_eq!(mld.message(), Some(message));
        assert_eq!(mld.to_string(), "MLD query for ff15::9");
    }

    #[test]
    fn messages_have_their_group_or_records_and_others_are_none() {
        let group: Ipv6Addr = "ff15::9".parse().unwrap();
        let older = [&[MLD_REPORT, 0, 0, 0, 0, 0, 0, 0], &group.octets()[..]].concat();
        let newer = [
            &[MLD_REPORT_V2, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0],
            &group.octets()[..],
        ];
        let newer = newer.concat();
        for (bytes, len_min, name) in [
            (older, LEN, "MLD report of ff15::9"),
            (newer, RECORDS, "MLDv2 report of ff15::9"),
        ] {
            let mld = Mld::of(&bytes).unwrap();
            assert_eq!(mld.to_string(), name);
            assert!(mld.reports(group) && !mld.reports(Ipv6Addr::LOCALHOST));
            assert_eq!(mld.message().is_some(), len_min == LEN);
            for len in 0..bytes.len() {
                let cut = Mld::of(&bytes[..len]);
                assert_eq!(cut.is_some(), len >= len_min, "{len}");
                assert!(!cut.is_some_and(|mld| mld.reports(group)), "{len}");
            }
        }
        assert_eq!(Mld::of([128; 24]), None);
    }
}
