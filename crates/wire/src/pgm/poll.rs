//! POLL and POLR: how a parent estimates the number of its children.
//!
//! ```text
//! POLL  0        4        6          8     10     12               n          n+4      n+8    n+12
//!      +--------+--------+----------+-----+------+----------------+----------+--------+------+
//!      |  sqn   | round  | sub-type | AFI | res. | path NLA 4/16  | back-off | random | mask |
//!      +--------+--------+----------+-----+------+----------------+----------+--------+------+
//! POLR  0        4        6          8
//!      +--------+--------+----------+
//!      |  sqn   | round  | reserved |
//!      +--------+--------+----------+
//! ```
//!
//! **Spec**: RFC 3208 section 14.7.

use std::{fmt, net::IpAddr};

use crate::{
    ParseError, Sqn,
    cursor::{Reader, Writer, nla_len},
};

/// The body of a POLL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The poll's number, in a space of its own.
    pub sqn: Sqn,
    /// The round within this poll.
    pub round: u16,
    /// The kind of nodes that should answer: [`Poll::GENERAL`] or [`Poll::DLR`].
    pub sub_type: u16,
    /// Where replies go: the interface that the POLL left by.
    pub path_nla: IpAddr,
    /// Receivers delay their replies at random by up to this many microseconds.
    pub back_off_us: u32,
    /// Random bits: receivers whose own random bits match them under `mask` reply.
    pub random: u32,
    /// Which bits of `random` count.
    pub mask: u32,
}

impl Poll {
    /// Sub-type: every child may reply.
    pub const GENERAL: u16 = 0;
    /// Sub-type: designated local repairers reply.
    pub const DLR: u16 = 1;

    pub(super) const fn len(&self) -> usize {
        20 + nla_len(self.path_nla)
    }

    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(Self {
            sqn: reader.sqn()?,
            round: reader.u16()?,
            sub_type: reader.u16()?,
            path_nla: reader.nla()?,
            back_off_us: reader.u32()?,
            random: reader.u32()?,
            mask: reader.u32()?,
        })
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) {
        writer.sqn(self.sqn);
        writer.u16(self.round);
        writer.u16(self.sub_type);
        writer.nla(self.path_nla);
        writer.u32(self.back_off_us);
        writer.u32(self.random);
        writer.u32(self.mask);
    }
}

impl fmt::Display for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sqn,
            round,
            sub_type,
            path_nla,
            back_off_us,
            random,
            mask,
        } = self;
        write!(
            f,
            "sqn {sqn} round {round} sub-type {sub_type} path {path_nla} "
        )?;
        write!(
            f,
            "back-off {back_off_us} us random {random:#010x} mask {mask:#010x}"
        )
    }
}

/// The body of a POLR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polr {
    /// The number of the poll that this answers.
    pub sqn: Sqn,
    /// The round that this answers.
    pub round: u16,
}

impl Polr {
    /// Bytes of the body.
    pub const LEN: usize = 8;

    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let polr = Self {
            sqn: reader.sqn()?,
            round: reader.u16()?,
        };
        reader.u16()?;
        Ok(polr)
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) {
        writer.sqn(self.sqn);
        writer.u16(self.round);
        writer.u16(0);
    }
}

impl fmt::Display for Polr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sqn {} round {}", self.sqn, self.round)
    }
}
