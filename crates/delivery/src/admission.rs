//! A rule for the hosts that an end takes as its peers.

use std::{fmt, net::IpAddr, sync::Arc};

/// Decides by a host's address whether an end takes that host as its peer: as a sender, or as a
/// receiver.
#[derive(Clone)]
pub struct Admission(Arc<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl Admission {
    /// Makes a rule that takes a host if `admits` returns true for its address.
    #[must_use]
    pub fn new(admits: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(admits))
    }

    /// Returns true for a host that is taken.
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
