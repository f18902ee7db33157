//! The number of connections of each host.

use std::{collections::BTreeMap, net::IpAddr};

/// The hosts that have connections, each with the number of its connections. An IPv4 address and
/// the IPv6 address that it is mapped to count as one host.
#[derive(Debug, Default)]
pub(crate) struct HostCounts(BTreeMap<IpAddr, u32>);

impl HostCounts {
    pub(crate) fn add(&mut self, host: IpAddr) {
        *self.0.entry(host.to_canonical()).or_default() += 1;
    }

    /// Subtracts one connection of a host, if the host has any.
    pub(crate) fn remove(&mut self, host: IpAddr) {
        let host = host.to_canonical();
        if let Some(count) = self.0.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&host);
            }
        }
    }

    pub(crate) fn contains(&self, host: IpAddr) -> bool {
        self.0.contains_key(&host.to_canonical())
    }

    /// Returns the number of hosts.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
