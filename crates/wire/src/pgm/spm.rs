//! Source path messages: the state of the transmit window, and the address that NAKs go to.
//!
//! ```text
//!  0          4          8         12      14       16
//! +----------+----------+---------+-------+--------+-----------------+
//! | SPM sqn  | trail    | lead    |  AFI  | resvd. | path NLA 4 / 16 |
//! +----------+----------+---------+-------+--------+-----------------+
//! ```
//!
//! **Spec**: RFC 3208 section 8.1.

use std::{fmt, net::IpAddr};

use crate::{
    ParseError, Sqn,
    cursor::{Reader, Writer, nla_len},
};

/// The body of an SPM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spm {
    /// The SPM's own number, counted apart from the numbers of data packets.
    pub sqn: Sqn,
    /// The oldest data that can still be repaired.
    pub trail: Sqn,
    /// The newest data sent; `trail - 1` when the window is empty.
    pub lead: Sqn,
    /// The address that NAKs go to: the source, or the last network element on the way.
    pub path_nla: IpAddr,
}

impl Spm {
    /// Returns true when the SPM says nothing about the window (trail 0 and lead 0x80000000).
    #[must_use]
    pub const fn is_without_window(&self) -> bool {
        self.trail.0 == 0 && self.lead.0 == 0x8000_0000
    }

    pub(super) const fn len(&self) -> usize {
        12 + nla_len(self.path_nla)
    }

    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(Self {
            sqn: reader.sqn()?,
            trail: reader.sqn()?,
            lead: reader.sqn()?,
            path_nla: reader.nla()?,
        })
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) {
        writer.sqn(self.sqn);
        writer.sqn(self.trail);
        writer.sqn(self.lead);
        writer.nla(self.path_nla);
    }
}

impl fmt::Display for Spm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sqn,
            trail,
            lead,
            path_nla,
        } = self;
        write!(f, "sqn {sqn} trail {trail} lead {lead} path {path_nla}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Fault,
        pgm::{
            Body, PacketType,
            body_kit::{assert_bytes, read},
        },
    };

    /// Sequence number 5, trail 0x100, lead 0x1FF, path NLA 192.168.1.10.
    const SPM: [u8; 20] = [
        0, 0, 0, 5, 0, 0, 1, 0, 0, 0, 1, 0xFF, 0, 1, 0, 0, 192, 168, 1, 10,
    ];

    #[test]
    fn s8_1_an_spm_tells_the_window_and_where_naks_go() {
        let spm = Spm {
            sqn: Sqn(5),
            trail: Sqn(0x100),
            lead: Sqn(0x1FF),
            path_nla: [192, 168, 1, 10].into(),
        };
        assert_bytes(&SPM, Body::Spm(spm));
        let mut bytes = SPM[..12].to_vec();
        bytes.extend([
            0, 2, 0, 0, 0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7,
        ]);
        let path_nla = IpAddr::V6("fd00::7".parse().expect("an address"));
        assert_bytes(&bytes, Body::Spm(Spm { path_nla, ..spm }));
    }

    #[test]
    fn s8_1_the_reserved_field_is_ignored() {
        let mut bytes = SPM;
        bytes[14..16].fill(0xFF);
        assert_eq!(read(PacketType::Spm, &bytes), read(PacketType::Spm, &SPM));
    }

    #[test]
    fn s8_1_an_address_of_another_family_is_refused_where_its_family_stands() {
        let mut bytes = SPM;
        bytes[13] = 3;
        let error = read(PacketType::Spm, &bytes).unwrap_err();
        assert_eq!((error.what, error.offset), (Fault::AddressFamily(3), 28));
    }

    #[test]
    fn only_trail_0_with_lead_80000000_says_nothing_about_the_window() {
        let of = |trail, lead| Spm {
            sqn: Sqn(1),
            trail: Sqn(trail),
            lead: Sqn(lead),
            path_nla: [10, 0, 0, 1].into(),
        };
        assert!(of(0, 0x8000_0000).is_without_window());
        // An empty window that begins at 0.
        assert!(!of(0, u32::MAX).is_without_window());
        assert!(!of(1, 0x8000_0000).is_without_window());
    }
}
