//! Decides from which senders a receive directory takes data, by one rule for every receiver of
//! files.
//!
//! Any host that reaches a receiver's port could fill its disk. So a receiver on an interface that
//! other machines can reach must name the senders that it takes files from, or share a key with
//! them; a group with a source names the sender already. On loopback and link-local addresses,
//! which only this machine or its link can reach, a receiver needs neither.

use std::net::IpAddr;

use net::{Group, Interface, Remedy, SystemError};

use crate::{Allowed, Error};

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
            allowed.push(Allowed::host(ip));
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
