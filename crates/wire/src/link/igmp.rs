//! IGMP: how hosts tell routers and switches which IPv4 groups they belong to.
//!
//! ```text
//!  all versions
//!  0        1            2                  4
//! +--------+------------+------------------+
//! | type   | time code  | checksum         |
//! +--------+------------+------------------+
//! | group; 0 asks for all                  |
//! +----------------------------------------+
//!
//!  the newest report, of IGMPv3; that of MLDv2 has the same shape
//!  0        1            2                  4                    6                 8
//! +--------+------------+------------------+--------------------+-----------------+---- ...
//! | type   | 0          | checksum         | 0                  | count of records| records
//! +--------+------------+------------------+--------------------+-----------------+---- ...
//!
//!  record: the group has 4 bytes, in MLD 16
//! +--------+------------+------------------+-------+------------------+-----------------+
//! | kind   | words      | count of sources | group | sources          | words * 4 bytes |
//! +--------+------------+------------------+-------+------------------+-----------------+
//! ```
//!
//! **Spec**: RFC 2236, RFC 3376 section 4.

use std::{fmt, net::Ipv4Addr};

use crate::{
    checksum,
    cursor::{array_at, u16_at},
};

/// A view of an IGMP message: its first 8 bytes are whole, its records may be cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Igmp<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Igmp<T> {
    /// Views the message in `bytes`, which may be longer (a short frame is padded); `None` when
    /// `bytes` end within the first 8 of the message.
    #[inline]
    pub fn of(bytes: T) -> Option<Self> {
        (bytes.as_ref().len() >= LEN).then_some(Self { bytes })
    }

    /// Returns what kind of message it is, such as [`IGMP_QUERY`].
    #[inline]
    pub fn kind(&self) -> u8 {
        self.bytes.as_ref()[KIND]
    }

    /// Returns how long an answer may take; 0 in messages of version 1. A value below 128 is in
    /// tenths of a second, a higher one is a code.
    #[inline]
    pub fn time_code(&self) -> u8 {
        self.bytes.as_ref()[TIME_CODE]
    }

    /// Returns the group; 0.0.0.0 in a query for all. Reports of version 3 have no group in this
    /// place.
    #[inline]
    pub fn group(&self) -> Ipv4Addr {
        array_at::<4>(self.bytes.as_ref(), GROUP).into()
    }

    /// Returns the first 8 bytes as a value.
    pub fn message(&self) -> IgmpMessage {
        IgmpMessage {
            kind: self.kind(),
            time_code: self.time_code(),
            group: self.group(),
        }
    }

    /// Returns the version of a query, 1 to 3; `None` for other messages. `len` is the message's
    /// length in bytes by the IP header, because a frame may be padded.
    pub fn query_version(&self, len: usize) -> Option<u8> {
        let version = match (len, self.time_code()) {
            (QUERY_V3_LEN_MIN.., _) => 3,
            (_, 0) => 1,
            _ => 2,
        };
        (self.kind() == IGMP_QUERY).then_some(version)
    }

    /// Returns true for a report, of any version, that names `group`.
    pub fn reports(&self, group: Ipv4Addr) -> bool {
        match self.kind() {
            IGMP_REPORT_V1 | IGMP_REPORT_V2 => self.group() == group,
            IGMP_REPORT_V3 => groups::<4>(self.bytes.as_ref()).any(|it| it == group.octets()),
            _ => false,
        }
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Igmp<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            IGMP_QUERY => write!(f, "IGMP query for {}", self.group()),
            IGMP_REPORT_V1 | IGMP_REPORT_V2 => write!(f, "IGMP report of {}", self.group()),
            IGMP_REPORT_V3 => {
                f.write_str("IGMPv3 report of")?;
                let mut groups = groups::<4>(self.bytes.as_ref());
                groups.try_for_each(|group| write!(f, " {}", Ipv4Addr::from(group)))
            }
            kind => write!(f, "IGMP type 0x{kind:02x}"),
        }
    }
}

/// The fields of an IGMP message of 8 bytes: a query, a report or a leave of versions 1 and 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IgmpMessage {
    /// What kind of message it is, such as [`IGMP_QUERY`].
    pub kind: u8,
    /// How long an answer may take: in tenths of a second when below 128, otherwise a code.
    pub time_code: u8,
    /// The group; 0.0.0.0 in a query for all.
    pub group: Ipv4Addr,
}

impl IgmpMessage {
    /// Appends the message with its checksum: 8 bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend([self.kind, self.time_code, 0, 0]);
        out.extend(self.group.octets());
        let check = !checksum::fold(checksum::sum(&out[at..]));
        out[at + CHECKSUM..at + CHECKSUM + 2].copy_from_slice(&check.to_be_bytes());
    }
}

/// Returns the group of each record of a report of IGMPv3 or MLDv2. The list ends at the first
/// record that is cut short; the group of this record still counts when the group itself is whole.
pub(super) fn groups<const N: usize>(report: &[u8]) -> impl Iterator<Item = [u8; N]> {
    let mut rest = &report[RECORDS..];
    let count = usize::from(u16_at(report, RECORD_COUNT));
    let records = std::iter::from_fn(move || {
        let &[_, words, high, low] = rest.first_chunk()?;
        let group = *rest.get(4..)?.first_chunk()?;
        let sources = usize::from(u16::from_be_bytes([high, low]));
        let len = 4 + N * (1 + sources) + 4 * usize::from(words);
        rest = rest.get(len..).unwrap_or_default();
        Some(group)
    });
    records.take(count)
}

/// The type of an IGMP query.
pub const IGMP_QUERY: u8 = 0x11;
/// The type of a report of version 1.
pub const IGMP_REPORT_V1: u8 = 0x12;
/// The type of a report of version 2.
pub const IGMP_REPORT_V2: u8 = 0x16;
/// The type of a report of version 3.
pub const IGMP_REPORT_V3: u8 = 0x22;

/// Lengths in bytes of a message without records, and of the shortest query of version 3.
const LEN: usize = 8;
const QUERY_V3_LEN_MIN: usize = 12;

/// Offsets of fields.
const KIND: usize = 0;
const TIME_CODE: usize = 1;
const CHECKSUM: usize = 2;
const GROUP: usize = 4;
const RECORD_COUNT: usize = 6;
pub(super) const RECORDS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const CAMERAS: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);

    fn message(kind: u8, time_code: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        let message = IgmpMessage {
            kind,
            time_code,
            group: CAMERAS,
        };
        message.emit(&mut bytes);
        assert_eq!(Igmp::of(&bytes).unwrap().message(), message);
        bytes
    }

    /// A report with two records: one with a source and a word of auxiliary data, one without.
    fn report_v3() -> Vec<u8> {
        let mut bytes = vec![IGMP_REPORT_V3, 0, 0, 0, 0, 0, 0, 2];
        bytes.extend([4, 1, 0, 1, 239, 9, 9, 9, 10, 0, 0, 1, 7, 7, 7, 7]);
        bytes.extend([4, 0, 0, 0, 239, 1, 1, 1]);
        bytes
    }

    #[test]
    fn what_is_emitted_is_read_and_its_sum_is_right() {
        let bytes = message(IGMP_REPORT_V2, 9);
        assert_eq!(bytes[..2], [0x16, 9]);
        assert_eq!(bytes[4..], CAMERAS.octets());
        assert_eq!(checksum::fold(checksum::sum(&bytes)), 0xFFFF);
        let igmp = Igmp::of(&bytes).unwrap();
        assert_eq!((igmp.kind(), igmp.time_code()), (IGMP_REPORT_V2, 9));
        assert_eq!(igmp.to_string(), "IGMP report of 239.1.1.1");
        assert!(igmp.reports(CAMERAS) && !igmp.reports([239, 1, 1, 2].into()));
    }

    #[test]
    fn the_version_of_a_query_follows_from_its_length_and_time() {
        let version = |time_code, len| {
            let bytes = message(IGMP_QUERY, time_code);
            Igmp::of(bytes).unwrap().query_version(len)
        };
        assert_eq!(version(0, 8), Some(1));
        assert_eq!(version(9, 8), Some(2));
        assert_eq!(version(9, 12), Some(3));
        let report = message(IGMP_REPORT_V2, 0);
        let igmp = Igmp::of(&report).unwrap();
        assert_eq!(igmp.query_version(8), None);
        assert!(!Igmp::of(message(IGMP_QUERY, 9)).unwrap().reports(CAMERAS));
    }

    #[test]
    fn records_behind_sources_and_auxiliary_words_are_found_as_far_as_they_are_whole() {
        let whole = report_v3();
        let igmp = Igmp::of(&whole).unwrap();
        assert_eq!(igmp.to_string(), "IGMPv3 report of 239.9.9.9 239.1.1.1");
        for len in 0..=whole.len() {
            let cut = Igmp::of(&whole[..len]);
            assert_eq!(cut.is_some(), len >= LEN, "{len}");
            let is_found = cut.is_some_and(|igmp| igmp.reports(CAMERAS));
            assert_eq!(is_found, len == whole.len(), "{len}");
        }
        let mut one = whole;
        one[RECORD_COUNT + 1] = 1;
        let igmp = Igmp::of(&one).unwrap();
        assert!(!igmp.reports(CAMERAS) && igmp.reports([239, 9, 9, 9].into()));
    }
}
