//! An interface by its name, and what it has counted since it was found.

use sys::netlink::{Link, LinkStatistics, NetlinkError, Rtnetlink};

use crate::CaptureError;

/// The counters of one interface, from now on.
#[derive(Debug)]
pub(crate) struct LinkCounters {
    index: u32,
    netlink: Rtnetlink,
    at_start: LinkStatistics,
}

impl LinkCounters {
    /// Finds the interface called `name`.
    ///
    /// # Errors
    /// No such interface, with the names there are, or what the kernel refused.
    pub(crate) fn find(name: &str) -> Result<(Self, Link), CaptureError> {
        let mut netlink = Rtnetlink::open().map_err(|error| CaptureError::netlink(&error))?;
        let mut links = netlink
            .links()
            .map_err(|error| CaptureError::netlink(&error))?;
        let Some(at) = links.iter().position(|link| link.name == name) else {
            let known: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
            return Err(CaptureError::NoInterface {
                name: name.to_owned(),
                known: known.join(", "),
            });
        };
        let link = links.swap_remove(at);
        let at_start = netlink.statistics(link.index);
        let counters = Self {
            index: link.index,
            at_start: at_start.map_err(|error| CaptureError::netlink(&error))?,
            netlink,
        };
        Ok((counters, link))
    }

    /// What was counted since.
    ///
    /// # Errors
    /// When the interface is gone.
    pub(crate) fn since_start(&mut self) -> Result<LinkStatistics, NetlinkError> {
        let now = self.netlink.statistics(self.index)?;
        Ok(now.since(&self.at_start))
    }
}
