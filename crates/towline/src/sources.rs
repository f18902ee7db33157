//! Decides from which senders a receive directory takes data, by one rule for every receiver of
//! files.
//!
//! Any host that reaches a receiver's port could fill its disk. So a receiver on an interface that
//! other machines can reach must name the senders that it takes files from, or share a key with
//! them; a group with a source names the sender already. On loopback and link-local addresses,
//! which only this machine or its link can reach, a receiver needs neither.

use std::{fmt, net::IpAddr, str::FromStr};

use net::{Group, Interface, Remedy, SystemError};

use crate::Error;

/// One sender, or a network of senders, from which files are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Every host that reaches this machine.
    Any,
    /// The hosts whose addresses begin with the first `bits` bits of `ip`.
    Network {
        /// An address of the network.
        ip: IpAddr,
        /// How many bits count: 32 or 128 for a single host.
        bits: u8,
    },
}

impl Allowed {
    /// Returns true when files from `ip` are allowed.
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
        let wrong = || format!("{text:?} is not a sender; write 10.0.0.7, 10.0.0.0/8, or any");
        let ip: IpAddr = address.parse().map_err(|_| wrong())?;
        let ip = ip.to_canonical();
        let bits_max = if ip.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => bits_max,
            Some(bits) => bits.parse().map_err(|_| wrong())?,
        };
        if bits > bits_max {
            return Err(wrong());
        }
        Ok(Self::Network { ip, bits })
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Network { ip, bits } if *bits == if ip.is_ipv4() { 32 } else { 128 } => ip.fmt(f),
            Self::Network { ip, bits } => write!(f, "{ip}/{bits}"),
        }
    }
}

/// The senders that a session accepts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    allowed: Vec<Allowed>,
    has_key: bool,
}

impl Sources {
    /// Makes the rule for a session of `group` on `interface`, whose local address is `local`.
    pub(crate) fn new(
        allowed: &[Allowed],
        has_key: bool,
        group: &Group,
        interface: &Interface,
        local: IpAddr,
    ) -> Result<Self, Error> {
        let mut allowed = allowed.to_vec();
        if let Some(ip) = group.source() {
            let bits = if ip.is_ipv4() { 32 } else { 128 };
            allowed.push(Allowed::Network { ip, bits });
        }
        let reached = if group.is_multicast() {
            let mut addresses = interface.addresses.iter().map(|address| address.ip);
            addresses.find(|ip| !interface.flags.loopback && is_routable(*ip))
        } else {
            // Unicast packets may arrive through any interface.
            Some(local).filter(|ip| is_routable(*ip))
        };
        if let (Some(ip), true, false) = (reached, allowed.is_empty(), has_key) {
            let target = format!("files by {} ({ip})", interface.name);
            let cause = "other hosts can reach it, and no sender is named to take files from";
            return Err(SystemError::refused("receive", target, cause)
                .advise(Remedy::NameSenders)
                .into());
        }
        Ok(Self { allowed, has_key })
    }

    /// Returns an error unless a sender at `ip` may be dialled.
    pub(crate) fn admit(&self, ip: IpAddr) -> Result<(), String> {
        // With a key and no list, every holder of the key is allowed.
        if self.allowed.is_empty() || self.allowed.iter().any(|allowed| allowed.admits(ip)) {
            return Ok(());
        }
        let names: Vec<String> = self.allowed.iter().map(ToString::to_string).collect();
        let key = if self.has_key {
            ", and have the key"
        } else {
            ""
        };
        Err(format!(
            "{ip} is not among the senders whose files are accepted: {}{key}",
            names.join(", ")
        ))
    }
}

fn is_routable(ip: IpAddr) -> bool {
    let is_near = match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local(),
    };
    !is_near
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
            assert!(error.contains(text) && error.contains("any"), "{error}");
        }
    }

    #[test]
    fn what_others_reach_needs_a_rule_and_the_near_does_not() {
        for (ip, is_far) in [
            ("127.0.0.1", false),
            ("169.254.1.1", false),
            ("fe80::1", false),
            ("::1", false),
            ("10.0.0.1", true),
            ("fd00::1", true),
        ] {
            let ip = ip.parse().expect("an address");
            assert_eq!(is_routable(ip), is_far, "{ip}");
        }
    }
}
