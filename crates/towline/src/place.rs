//! Where a session is: a group, or TCP connections between hosts.

use std::{fmt, net::SocketAddr};

use net::{Group, SystemError};

/// Where a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// A multicast group, or one host, to which packets go.
    Group(Group),
    /// The hosts of the receivers, `HOST[:PORT]` each. A sender of files dials them. Everything
    /// goes over these TCP connections; there are no PGM packets. The default port is 7500.
    Hosts(Vec<String>),
    /// TCP connections that senders of files open to this address.
    Listen(SocketAddr),
}

impl Place {
    /// Returns the group; `None` for TCP connections, on which there are no PGM packets.
    #[must_use]
    pub const fn group(&self) -> Option<&Group> {
        match self {
            Self::Group(group) => Some(group),
            Self::Hosts(_) | Self::Listen(_) => None,
        }
    }

    /// Returns the addresses of the hosts to dial. Looks names up, which may take seconds.
    #[cfg(feature = "files")]
    pub(crate) fn peers(hosts: &[String]) -> Result<Vec<SocketAddr>, SystemError> {
        let mut peers: Vec<SocketAddr> = Vec::with_capacity(hosts.len());
        let mut named = std::collections::BTreeMap::new();
        for host in hosts {
            let peer = net::resolve(host, Group::PORT)?;
            if let Some(earlier) = named.insert(peer, host) {
                let cause = if earlier == host {
                    "it is named twice".to_owned()
                } else {
                    format!("its address {peer} is also that of {earlier}")
                };
                return Err(
                    SystemError::refused("send to", host, cause).advise("name each receiver once")
                );
            }
            peers.push(peer);
        }
        Ok(peers)
    }

    /// Makes the error for a request that needs PGM packets when this place has only TCP
    /// connections.
    pub(crate) fn no_packets(&self) -> SystemError {
        let cause = "TCP connections were asked for, and they carry only files, no packets";
        SystemError::refused("exchange packets with", self, cause).advise("name a group")
    }
}

impl From<Group> for Place {
    fn from(group: Group) -> Self {
        Self::Group(group)
    }
}

/// Writes the group, the hosts separated by commas, or the address.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(group) => group.fmt(f),
            Self::Hosts(hosts) => f.write_str(&hosts.join(", ")),
            Self::Listen(address) => address.fmt(f),
        }
    }
}
