//! The hosts that an end takes as its peers, written as addresses and prefixes.

use std::{fmt, net::IpAddr, str::FromStr};

use driver::Admission;

/// The hosts that an end takes as its peers: all, those of one network, or a single host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Every host that reaches this machine.
    Any,
    /// The hosts whose addresses begin with the first `bits` bits of `ip`.
    Network {
        /// An address of the network.
        ip: IpAddr,
        /// How many leading bits of `ip` count: 32 (IPv4) or 128 (IPv6) for a single host.
        bits: u8,
    },
}

impl Allowed {
    /// Makes the network that holds only `ip`.
    #[cfg(feature = "files")]
    pub(crate) const fn host(ip: IpAddr) -> Self {
        Self::Network {
            ip,
            bits: bits_of(ip),
        }
    }

    /// Makes the rule that admits only the hosts of `list`; `None` for an empty list.
    pub(crate) fn admission(list: impl IntoIterator<Item = Self>) -> Option<Admission> {
        let list: Vec<Self> = list.into_iter().collect();
        let is_some = !list.is_empty();
        is_some.then(|| Admission::new(move |ip| list.iter().any(|allowed| allowed.admits(ip))))
    }

    /// Returns true when a peer at `ip` may be taken.
    #[must_use]
    pub fn admits(&self, ip: IpAddr) -> bool {
        match (self, ip.to_canonical()) {
            (Self::Any, _) => true,
            (
                Self::Network {
                    ip: IpAddr::V4(own),
                    bits,
                },
                IpAddr::V4(ip),
            ) => {
                let apart = own.to_bits() ^ ip.to_bits();
                apart.leading_zeros() >= u32::from(*bits)
            }
            (
                Self::Network {
                    ip: IpAddr::V6(own),
                    bits,
                },
                IpAddr::V6(ip),
            ) => {
                let apart = own.to_bits() ^ ip.to_bits();
                apart.leading_zeros() >= u32::from(*bits)
            }
            _ => false,
        }
    }
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "any" {
            return Ok(Self::Any);
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let wrong =
            || format!("{text:?} is not an address or prefix; write 10.0.0.7, 10.0.0.0/8, or any");
        let ip: IpAddr = address.parse().map_err(|_| wrong())?;
        let ip = ip.to_canonical();
        let bits_max = bits_of(ip);
        let bits = match bits {
            None => bits_max,
            Some(bits) => bits.parse().map_err(|_| wrong())?,
        };
        if bits > bits_max {
            return Err(format!(
                "{text:?}: a prefix of {ip} has at most {bits_max} bits"
            ));
        }
        Ok(Self::Network { ip, bits })
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Network { ip, bits } if *bits == bits_of(*ip) => ip.fmt(f),
            Self::Network { ip, bits } => write!(f, "{ip}/{bits}"),
        }
    }
}

/// Returns the length of an address in bits.
const fn bits_of(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(text: &str) -> Allowed {
        text.parse().expect("it is well formed")
    }

    #[test]
    fn a_prefix_admits_its_network_and_nobody_else() {
        let cases = [
            ("10.0.0.0/8", "10.9.8.7", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.7", "10.0.0.7", true),
            ("10.0.0.7", "10.0.0.6", false),
            ("10.0.0.7", "::ffff:10.0.0.7", true),
            ("0.0.0.0/0", "::1", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("any", "2001:db8::1", true),
        ];
        for (text, ip, is_admitted) in cases {
            let ip = ip.parse().expect("an address");
            assert_eq!(allowed(text).admits(ip), is_admitted, "{text} and {ip}");
        }
    }

    #[test]
    fn a_text_and_its_meaning_go_together() {
        for text in ["any", "10.0.0.7", "10.0.0.0/8", "fd00::/8", "2001:db8::1"] {
            assert_eq!(allowed(text).to_string(), text);
        }
        for text in [
            "",
            "all",
            "10.0.0.0/33",
            "10.0.0/8",
            "fd00::/129",
            "10.0.0.0/-1",
        ] {
            let error = text.parse::<Allowed>().expect_err(text);
            assert!(error.contains(text), "{error}");
        }
    }
}
