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
    /// The poll's number; polls are counted apart from other packets.
    pub sqn: Sqn,
    /// The round within this poll.
    pub round: u16,
    /// The kind of nodes that should answer: [`Poll::GENERAL`] or [`Poll::DLR`].
    pub sub_type: u16,
    /// The address that replies go to. It is the address of the interface by which the POLL left.
    pub path_nla: IpAddr,
    /// The longest random delay of a reply, in microseconds.
    pub back_off_us: u32,
    /// Random bits: a receiver replies when its own random bits match them under `mask`.
    pub random: u32,
    /// The bits of `random` that count.
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
    /// Length of the body in bytes.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pgm::{
        Body, PacketType,
        body_kit::{assert_bytes, read},
    };

    const POLL: [u8; 28] = [
        0, 0, 0, 7, 0, 2, 0, 1, 0, 1, 0, 0, 192, 168, 1, 10, // number, round, DLRs, path NLA
        0, 1, 0x86, 0xA0, 0xA5, 0xA5, 0xA5, 0xA5, 0, 0, 0, 0x0F, // back-off, random, mask
    ];

    #[test]
    fn s14_7_a_poll_says_who_replies_where_to_and_within_which_time() {
        let poll = Poll {
            sqn: Sqn(7),
            round: 2,
            sub_type: Poll::DLR,
            path_nla: [192, 168, 1, 10].into(),
            back_off_us: 100_000,
            random: 0xA5A5_A5A5,
            mask: 0x0F,
        };
        assert_bytes(&POLL, Body::Poll(poll));
    }

    #[test]
    fn s14_7_a_reply_names_the_poll_and_its_round() {
        let polr = Polr {
            sqn: Sqn(7),
            round: 2,
        };
        assert_bytes(&[0, 0, 0, 7, 0, 2, 0, 0], Body::Polr(polr));
        let reserved_set = [0, 0, 0, 7, 0, 2, 0xFF, 0xFF];
        assert_eq!(read(PacketType::Polr, &reserved_set), Ok(Body::Polr(polr)));
    }
}
