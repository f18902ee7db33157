//! OPT_REDIRECT and OPT_PATH_NLA: addresses that NAKs may go to.
//!
//! ```text
//!  0      1     2     3   4     6          8              12 / 24
//!  +------+-----+-----+---+-----+----------+--------------+
//!  | 0x07 | len | OPX | 0 | AFI | reserved | NLA 4 / 16   |   OPT_REDIRECT
//!  +------+-----+-----+---+-----+----------+--------------+
//!  | 0x0C | len | OPX | 0 | NLA 4 / 16     |                  OPT_PATH_NLA
//!  +------+-----+-----+---+----------------+
//! ```
//!
//! Deviation: the RFC's text gives OPT_REDIRECT 4 + NLA bytes; its diagram, which this code
//! follows, adds the address family. OPT_PATH_NLA has no family field: the family follows from its
//! length.
//!
//! **Spec**: RFC 3208 sections 9.5 and 15.4.4.

use std::{fmt, net::IpAddr};

use super::Contents;
use crate::{
    ParseError,
    cursor::{AFI_IPV4, AFI_IPV6, Reader, Writer, address_len, nla_len},
};

/// A designated local repairer that takes NAKs in the source's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The repairer's unicast address.
    pub dlr_nla: IpAddr,
}

impl<'a> Contents<'a> for Redirect {
    const NAME: &'static str = "OPT_REDIRECT";
    const KIND: u8 = 0x07;

    fn parse(reader: &mut Reader<'a>, _specific: u8) -> Result<Self, ParseError> {
        let dlr_nla = reader.nla()?;
        Ok(Self { dlr_nla })
    }

    fn value_len(&self) -> usize {
        nla_len(self.dlr_nla)
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.nla(self.dlr_nla);
    }
}

impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "redirect {}", self.dlr_nla)
    }
}

/// The interface by which SPMs leave a network element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathNla {
    /// The interface's address.
    pub nla: IpAddr,
}

impl<'a> Contents<'a> for PathNla {
    const NAME: &'static str = "OPT_PATH_NLA";
    const KIND: u8 = 0x0C;

    fn parse(reader: &mut Reader<'a>, _specific: u8) -> Result<Self, ParseError> {
        let is_ipv4 = reader.rest().len() <= 4;
        let nla = reader.address(if is_ipv4 { AFI_IPV4 } else { AFI_IPV6 })?;
        Ok(Self { nla })
    }

    fn value_len(&self) -> usize {
        address_len(self.nla)
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.address(self.nla);
    }
}

impl fmt::Display for PathNla {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "path-nla {}", self.nla)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::kit::{assert_bytes, read},
        *,
    };

    const IPV6: [u8; 16] = [0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];

    #[test]
    fn s9_5_a_redirect_names_the_repairer_with_its_family() {
        let dlr_nla = [10, 0, 0, 9].into();
        assert_bytes(&[0, 1, 0, 0, 10, 0, 0, 9], 0, &Redirect { dlr_nla });
        let dlr_nla = IPV6.into();
        let value = [&[0, 2, 0, 0][..], &IPV6].concat();
        assert_bytes(&value, 0, &Redirect { dlr_nla });
        let error = read::<Redirect>(&[0, 3, 0, 0, 10, 0, 0, 9], 0).unwrap_err();
        assert!(error.to_string().contains("address family 3"), "{error}");
    }

    #[test]
    fn s15_4_4_the_length_of_a_path_nla_tells_its_family() {
        let nla = [10, 0, 0, 9].into();
        assert_eq!(read(&[10, 0, 0, 9], 0), Ok(PathNla { nla }));
        let nla = IPV6.into();
        assert_eq!(read(&IPV6, 0), Ok(PathNla { nla }));
        for len in [0, 3, 5, 15] {
            assert!(read::<PathNla>(&IPV6[..len], 0).is_err(), "{len} bytes");
        }
    }
}
