//! The identity of a sender: its global source identifier, and the identifier of its transport
//! session, which adds the source port.

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

impl Tsi {
    /// Returns the identifier of the session that carries the same frames, if their source sends
    /// them twice. It has the same source identifier, and a port that differs in the last bit. The
    /// partner of the partner is the session itself.
    ///
    /// **Spec**: `docs/src/protocol.md` section 14.
    #[must_use]
    pub const fn partner(self) -> Self {
        Self {
            gsi: self.gsi,
            port: self.port ^ 1,
        }
    }
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
    fn two_feeds_of_a_source_know_each_other() {
        let tsi = Tsi {
            gsi: Gsi([1, 2, 3, 4, 5, 6]),
            port: 4321,
        };
        let partner = tsi.partner();
        assert_eq!((partner.gsi, partner.port), (tsi.gsi, 4320));
        assert_eq!(partner.partner(), tsi);
    }

    #[test]
    fn a_session_prints_as_seven_decimals() {
        let tsi = Tsi {
            gsi: Gsi([1, 20, 0, 255, 7, 9]),
            port: 4321,
        };
        assert_eq!(tsi.to_string(), "1.20.0.255.7.9.4321");
    }
}
