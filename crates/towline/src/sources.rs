//! Decides from which senders files are taken, by one rule for every receiver of files.
//!
//! Any host that reaches a receiver's port could fill the receiver's disk. So a receiver that other
//! machines can reach must name the senders that it takes files from, or share a key with them. In
//! a group with a source, that source counts as named. Link-local addresses are no exception,
//! because all neighbours can reach them. Only on loopback, which no other machine can reach, does
//! a receiver need neither a named sender nor a key.

use std::net::{IpAddr, SocketAddr};

use net::{Group, Interface, Remedy, SystemError};

use crate::{Allowed, Error};

/// The senders that a session accepts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    allowed: Vec<Allowed>,
    has_key: bool,
    /// Other hosts can reach this one.
    is_reached: bool,
}

impl Sources {
    /// Decides which senders are accepted in a session of `group` on `interface`, whose local
    /// address is `local`.
    pub(crate) fn new(
        allowed: &[Allowed],
        has_key: bool,
        group: &Group,
        interface: &Interface,
        local: IpAddr,
    ) -> Result<Self, Error> {
        let mut allowed = allowed.to_vec();
        if let Some(ip) = group.source() {
            allowed.push(Allowed::host(ip));
        }
        let reached = if group.is_multicast() {
            let mut addresses = interface.addresses.iter().map(|address| address.ip);
            addresses.find(|ip| !interface.flags.loopback && is_reached(*ip))
        } else {
            // Unicast packets may arrive through any interface, so only the local address counts.
            Some(local).filter(|ip| is_reached(*ip))
        };
        let target = reached.map(|ip| format!("files by {} ({ip})", interface.name));
        Self::checked(allowed, has_key, target)
    }

    /// Decides which senders a receiver accepts when they dial it at `address`.
    pub(crate) fn listening(
        allowed: &[Allowed],
        has_key: bool,
        address: SocketAddr,
    ) -> Result<Self, Error> {
        let target = is_reached(address.ip()).then(|| format!("files at {address}"));
        Self::checked(allowed.to_vec(), has_key, target)
    }

    /// Decides which senders are accepted. Returns an error when other hosts reach this one, and
    /// neither a list of senders nor a key is given. `target` says where other hosts reach this
    /// one; `None` if they cannot.
    fn checked(
        allowed: Vec<Allowed>,
        has_key: bool,
        target: Option<String>,
    ) -> Result<Self, Error> {
        let is_reached = target.is_some();
        if let (Some(target), true, false) = (target, allowed.is_empty(), has_key) {
            let cause = "other hosts can reach it, and no sender is named whose files it accepts";
            return Err(SystemError::refused("receive", target, cause)
                .advise(Remedy::NameSenders)
                .into());
        }
        Ok(Self {
            allowed,
            has_key,
            is_reached,
        })
    }

    /// Returns true when every admitted sender was named, has the key or is on this machine: such a
    /// sender is told why something fails here.
    pub(crate) fn are_known(&self) -> bool {
        self.has_key || !self.is_reached || !self.allowed.contains(&Allowed::Any)
    }

    /// Returns an error unless files from `ip` are taken.
    pub(crate) fn admit(&self, ip: IpAddr) -> Result<(), String> {
        // Without a list, every holder of the key is allowed. Without a key either, no other host
        // can reach this one, and every process on this machine is allowed.
        if self.allowed.is_empty() || self.allowed.iter().any(|allowed| allowed.admits(ip)) {
            return Ok(());
        }
        let names: Vec<String> = self.allowed.iter().map(ToString::to_string).collect();
        let key = if self.has_key {
            " (which must also have the key)"
        } else {
            ""
        };
        Err(format!(
            "{ip} is not among the senders whose files are accepted: {}{key}",
            names.join(", ")
        ))
    }
}

fn is_reached(ip: IpAddr) -> bool {
    !ip.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_reach_needs_a_rule_on_a_link_too_and_loopback_does_not() {
        for (ip, is_far) in [
            ("127.0.0.1", false),
            ("169.254.1.1", true),
            ("fe80::1", true),
            ("::ffff:127.0.0.1", false),
            ("::1", false),
            ("10.0.0.1", true),
            ("fd00::1", true),
        ] {
            let ip = ip.parse().expect("an address");
            assert_eq!(is_reached(ip), is_far, "{ip}");
        }
    }

    #[test]
    fn who_is_admitted_by_any_alone_is_not_known() {
        let sources = |allowed: &[&str], has_key, is_reached| Sources {
            allowed: allowed.iter().map(|it| it.parse().expect("good")).collect(),
            has_key,
            is_reached,
        };
        assert!(!sources(&["10.0.0.1", "any"], false, true).are_known());
        assert!(sources(&["any"], true, true).are_known());
        assert!(sources(&["10.0.0.1"], false, true).are_known());
        assert!(
            sources(&["any"], false, false).are_known() && sources(&[], true, true).are_known()
        );
    }
}
