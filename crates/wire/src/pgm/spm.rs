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
    /// Where NAKs go: the source, or the last network element on the way.
    pub path_nla: IpAddr,
}

impl Spm {
    /// True when the SPM says nothing about the window (trail 0 and lead 0x80000000).
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
