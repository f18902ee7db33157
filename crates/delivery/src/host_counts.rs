//! How many connections each host has.

use std::{collections::BTreeMap, net::IpAddr};

/// The hosts that have connections, each with their number. An IPv4 address counts as one host,
/// however it is written.
#[derive(Debug, Default)]
pub(crate) struct HostCounts(BTreeMap<IpAddr, u32>);

impl HostCounts {
    pub(crate) fn add(&mut self, host: IpAddr) {
        *self.0.entry(host.to_canonical()).or_default() += 1;
    }

    /// Takes one connection of a host away, if it has any.
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
