//! The two options of PGMCC congestion control, laid out as OpenPGM and Wireshark have them.
//!
//! ```text
//! on data   0           4     6          8                    on ACK   0           4     6       8
//!          +-----------+-----+----------+-----------+         +-----------+-----+------+---------+
//!          | stamp ms  | AFI | reserved | ACKer NLA |         | echo ms   | AFI | loss | own NLA |
//!          +-----------+-----+----------+-----------+         +-----------+-----+------+---------+
//! ```
//!
//! **Spec**: draft-ietf-rmt-bb-pgmcc; the option numbers are not in the RFC.

use std::{fmt, net::IpAddr};

use super::Contents;
use crate::{
    ParseError,
    cursor::{Reader, Writer, afi, nla_len},
};

/// The PGMCC option on ODATA: the receiver that shall acknowledge, and the sender's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgmccData {
    /// The sender's clock, in milliseconds.
    pub stamp_ms: u32,
    /// The receiver elected to acknowledge; the zero address asks for an election.
    pub acker_nla: IpAddr,
}

impl<'a> Contents<'a> for PgmccData {
    const NAME: &'static str = "OPT_PGMCC_DATA";
    const KIND: u8 = 0x12;

    fn parse(reader: &mut Reader<'a>, _specific: u8) -> Result<Self, ParseError> {
        Ok(Self {
            stamp_ms: reader.u32()?,
            acker_nla: reader.nla()?,
        })
    }

    fn value_len(&self) -> usize {
        4 + nla_len(self.acker_nla)
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.u32(self.stamp_ms);
        writer.nla(self.acker_nla);
    }
}

impl fmt::Display for PgmccData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "pgmcc stamp {} ms acker {}",
            self.stamp_ms, self.acker_nla
        )
    }
}

/// The PGMCC option on ACK: the report of the elected receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// The sender's time stamp, sent back; in milliseconds of the sender's clock.
    pub echo_ms: u32,
    /// The smoothed loss rate; 0xFFFF means that all packets are lost.
    pub loss: u16,
    /// The reporting receiver's address.
    pub own_nla: IpAddr,
}

impl<'a> Contents<'a> for Feedback {
    const NAME: &'static str = "OPT_PGMCC_FEEDBACK";
    const KIND: u8 = 0x13;

    fn parse(reader: &mut Reader<'a>, _specific: u8) -> Result<Self, ParseError> {
        let echo_ms = reader.u32()?;
        let afi = reader.u16()?;
        let loss = reader.u16()?;
        let own_nla = reader.address(afi)?;
        Ok(Self {
            echo_ms,
            loss,
            own_nla,
        })
    }

    fn value_len(&self) -> usize {
        4 + nla_len(self.own_nla)
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.u32(self.echo_ms);
        writer.u16(afi(self.own_nla));
        writer.u16(self.loss);
        writer.address(self.own_nla);
    }
}

impl fmt::Display for Feedback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            echo_ms,
            loss,
            own_nla,
        } = self;
        write!(
            f,
            "pgmcc echo {echo_ms} ms loss {loss}/65535 from {own_nla}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{super::kit::assert_bytes, *};

    #[test]
    fn data_names_the_receiver_that_is_to_acknowledge() {
        let data = PgmccData {
            stamp_ms: 0x0102_0304,
            acker_nla: [10, 0, 0, 9].into(),
        };
        assert_bytes(&[1, 2, 3, 4, 0, 1, 0, 0, 10, 0, 0, 9], 0, &data);
    }

    /// The loss stands where addresses elsewhere have their reserved field.
    #[test]
    fn feedback_has_the_loss_between_family_and_address() {
        let feedback = Feedback {
            echo_ms: 0x0102_0304,
            loss: 0x8000,
            own_nla: [10, 0, 0, 9].into(),
        };
        assert_bytes(&[1, 2, 3, 4, 0, 1, 0x80, 0, 10, 0, 0, 9], 0, &feedback);
    }
}
