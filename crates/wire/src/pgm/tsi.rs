//! The identity of a sender: the global source identifier and, with the source port, the transport
//! session.

use std::fmt;

/// A global source identifier: six bytes that stay the same while the session lives.
///
/// **Spec**: RFC 3208 section 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gsi(pub [u8; 6]);

/// A transport session identifier: it names one stream of one source.
///
/// **Spec**: RFC 3208 section 3.1. Printed as six decimals and the port, separated by dots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tsi {
    /// The source's identifier.
    pub gsi: Gsi,
    /// The data-source port.
    pub port: u16,
}

impl fmt::Display for Gsi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a}.{b}.{c}.{d}.{e}.{g}")
    }
}

impl fmt::Display for Tsi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.gsi, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_prints_as_seven_decimals() {
        let tsi = Tsi {
            gsi: Gsi([1, 20, 0, 255, 7, 9]),
            port: 4321,
        };
        assert_eq!(tsi.to_string(), "1.20.0.255.7.9.4321");
    }
}
