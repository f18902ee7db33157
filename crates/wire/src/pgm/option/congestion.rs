//! OPT_CR and OPT_CRQST: load reports of network elements and receivers.
//!
//! ```text
//!  0      1     2     3     4           8      10     12          14         16
//!  +------+-----+-----+-----+-----------+------+------+-----------+----------+----------------+
//!  | 0x10 | len | OPX | LPR | reference | link | path | receivers | reserved | NLA of a       |
//!  |      |     |     |     | sqn       |      |      |           |          | receiver, 8/20 |
//!  +------+-----+-----+-----+-----------+------+------+-----------+----------+----------------+
//!  | 0x11 |  4  | OPX | LPR |   OPT_CRQST; the one above is OPT_CR
//!  +------+-----+-----+-----+
//! ```
//!
//! **Spec**: RFC 3208 section 12.7.

use std::{fmt, net::IpAddr};

use super::Contents;
use crate::{
    ParseError, Sqn,
    cursor::{Reader, Writer, nla_len},
};

/// The loads that are reported or asked for: L, P and R in the option's fourth byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// L: the worst link that network elements measure.
    pub link: bool,
    /// P: the worst path that network elements measure.
    pub path: bool,
    /// R: the worst path that receivers measure.
    pub receiver: bool,
}

impl Loads {
    const fn of(specific: u8) -> Self {
        Self {
            link: specific & 4 != 0,
            path: specific & 2 != 0,
            receiver: specific & 1 != 0,
        }
    }

    const fn specific(self) -> u8 {
        (self.link as u8) << 2 | (self.path as u8) << 1 | self.receiver as u8
    }
}

impl fmt::Display for Loads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = [
            (self.link, " link"),
            (self.path, " path"),
            (self.receiver, " receiver"),
        ];
        for (_, name) in bits.iter().filter(|(is_set, _)| *is_set) {
            f.write_str(name)?;
        }
        Ok(())
    }
}

/// A congestion report. Only NAKs carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cr {
    /// The loads that this report contains.
    pub loads: Loads,
    /// The point in the data to which the report refers.
    pub reference: Sqn,
    /// The worst link, as network elements measure it.
    pub worst_link: u16,
    /// The worst path, as network elements measure it.
    pub worst_path: u16,
    /// The worst path, as receivers measure it.
    pub worst_receiver_path: u16,
    /// The receiver that reported the worst path.
    pub worst_receiver: IpAddr,
}

impl<'a> Contents<'a> for Cr {
    const NAME: &'static str = "OPT_CR";
    const KIND: u8 = 0x10;

    fn parse(reader: &mut Reader<'a>, specific: u8) -> Result<Self, ParseError> {
        let reference = reader.sqn()?;
        let worst_link = reader.u16()?;
        let worst_path = reader.u16()?;
        let worst_receiver_path = reader.u16()?;
        reader.u16()?;
        Ok(Self {
            loads: Loads::of(specific),
            reference,
            worst_link,
            worst_path,
            worst_receiver_path,
            worst_receiver: reader.nla()?,
        })
    }

    fn value_len(&self) -> usize {
        12 + nla_len(self.worst_receiver)
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.sqn(self.reference);
        writer.u16(self.worst_link);
        writer.u16(self.worst_path);
        writer.u16(self.worst_receiver_path);
        writer.u16(0);
        writer.nla(self.worst_receiver);
    }

    fn specific(&self) -> u8 {
        self.loads.specific()
    }
}

impl fmt::Display for Cr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            loads,
            reference,
            worst_link,
            worst_path,
            worst_receiver_path,
            worst_receiver,
        } = self;
        write!(
            f,
            "cr{loads} at {reference} link {worst_link} path {worst_path} "
        )?;
        write!(f, "receiver {worst_receiver_path} {worst_receiver}")
    }
}

/// A request for congestion reports. Only SPMs carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crqst {
    /// The loads that the source asks for.
    pub loads: Loads,
}

impl<'a> Contents<'a> for Crqst {
    const NAME: &'static str = "OPT_CRQST";
    const KIND: u8 = 0x11;

    fn parse(_reader: &mut Reader<'a>, specific: u8) -> Result<Self, ParseError> {
        let loads = Loads::of(specific);
        Ok(Self { loads })
    }

    fn value_len(&self) -> usize {
        0
    }

    fn emit(&self, _writer: &mut Writer<'_>) {}

    fn specific(&self) -> u8 {
        self.loads.specific()
    }
}

impl fmt::Display for Crqst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "crqst{}", self.loads)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::kit::{assert_bytes, read},
        *,
    };

    const PATH_AND_RECEIVER: Loads = Loads {
        link: false,
        path: true,
        receiver: true,
    };

    #[test]
    fn s12_7_a_report_has_three_loads_and_the_receiver_of_the_worst() {
        let report = Cr {
            loads: PATH_AND_RECEIVER,
            reference: Sqn(0xFF),
            worst_link: 1,
            worst_path: 2,
            worst_receiver_path: 0xFFFF,
            worst_receiver: [10, 0, 0, 9].into(),
        };
        let mut value = [
            0, 0, 0, 0xFF, 0, 1, 0, 2, 0xFF, 0xFF, 0, 0, 0, 1, 0, 0, 10, 0, 0, 9,
        ];
        assert_bytes(&value.clone(), 0x03, &report);
        value[10..12].fill(0xFF);
        assert_eq!(read(&value, 0x03), Ok(report), "a reserved field");
    }

    #[test]
    fn s12_7_a_request_is_three_bits() {
        let loads = PATH_AND_RECEIVER;
        assert_bytes(&[], 0x03, &Crqst { loads });
        let link = Loads {
            link: true,
            ..Loads::default()
        };
        assert_bytes(&[], 0x04, &Crqst { loads: link });
        assert_eq!(read(&[], 0x7B), Ok(Crqst { loads }), "reserved bits");
    }
}
