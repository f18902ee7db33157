//! A rule that says which hosts a sender or receiver takes as its peers.

use std::{fmt, net::IpAddr, sync::Arc};

/// A rule that decides, by a host's address, whether to take that host as a peer. A receiver's
/// peers are senders, and a sender's peers are receivers.
#[derive(Clone)]
pub struct Admission(Arc<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl Admission {
    /// Makes a rule that takes a host if `admits` returns true for its address.
    #[must_use]
    pub fn new(admits: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(admits))
    }

    /// Returns true when the rule takes this host.
    #[must_use]
    pub fn admits(&self, host: IpAddr) -> bool {
        (self.0)(host)
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admission")
    }
}
