//! NAK, NNAK and NCF: requests for repairs and their confirmations share one body.
//!
//! ```text
//!  0        4     6      8                 n     n+2     n+4        n = 12 (IPv4) or 24 (IPv6)
//! +--------+-----+------+-----------------+-----+-------+---------------------+
//! |  sqn   | AFI | res. | source NLA 4/16 | AFI | res.  | group NLA 4 / 16    |
//! +--------+-----+------+-----------------+-----+-------+---------------------+
//! ```
//!
//! Further sequence numbers follow in an OPT_NAK_LIST.
//!
//! **Spec**: RFC 3208 section 8.3.

use std::{fmt, net::IpAddr};

use crate::{
    ParseError, Sqn,
    cursor::{Reader, Writer, nla_len},
};

/// The body of NAK, NNAK and NCF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nak {
    /// The missing packet. For parity, the first number of the transmission group; the low bits
    /// then hold the number of packets wanted, less one.
    pub sqn: Sqn,
    /// The data source's unicast address.
    pub source_nla: IpAddr,
    /// The multicast group of the session.
    pub group_nla: IpAddr,
}

impl Nak {
    pub(super) const fn len(&self) -> usize {
        4 + nla_len(self.source_nla) + nla_len(self.group_nla)
    }

    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(Self {
            sqn: reader.sqn()?,
            source_nla: reader.nla()?,
            group_nla: reader.nla()?,
        })
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) {
        writer.sqn(self.sqn);
        writer.nla(self.source_nla);
        writer.nla(self.group_nla);
    }
}

impl fmt::Display for Nak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sqn,
            source_nla,
            group_nla,
        } = self;
        write!(f, "sqn {sqn} source {source_nla} group {group_nla}")
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

    /// Number 0x0102, source 10.0.0.1, group 239.192.0.1.
    const NAK: [u8; 20] = [
        0, 0, 1, 2, 0, 1, 0, 0, 10, 0, 0, 1, 0, 1, 0, 0, 239, 192, 0, 1,
    ];

    fn nak() -> Nak {
        Nak {
            sqn: Sqn(0x0102),
            source_nla: [10, 0, 0, 1].into(),
            group_nla: [239, 192, 0, 1].into(),
        }
    }

    #[test]
    fn s8_3_naks_nnaks_and_ncfs_name_a_packet_its_source_and_its_group() {
        assert_bytes(&NAK, Body::Nak(nak()));
        assert_bytes(&NAK, Body::Nnak(nak()));
        assert_bytes(&NAK, Body::Ncf(nak()));
    }

    #[test]
    fn s8_3_each_address_has_its_own_family() {
        let group = [0xFF, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let bytes = [&NAK[..12], &[0, 2, 0, 0], &group].concat();
        let group_nla = IpAddr::from(group);
        assert_bytes(&bytes, Body::Nak(Nak { group_nla, ..nak() }));
    }

    #[test]
    fn s8_3_a_family_of_neither_address_may_be_another() {
        for (at, offset) in [(5, 20), (13, 28)] {
            let mut bytes = NAK;
            bytes[at] = 0;
            let error = read(PacketType::Nak, &bytes).unwrap_err();
            assert_eq!(
                (error.what, error.offset),
                (Fault::AddressFamily(0), offset)
            );
        }
    }
}
