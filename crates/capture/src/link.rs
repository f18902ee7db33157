//! An interface by its name, and what it has counted since it was found.

use sys::{
    DriverCounters,
    netlink::{Link, LinkStatistics, NetlinkError, Rtnetlink},
};

use crate::CaptureError;

/// The counters of one interface, from now on.
#[derive(Debug)]
pub(crate) struct LinkCounters {
    index: u32,
    netlink: Rtnetlink,
    at_start: LinkStatistics,
    driver: Option<Driver>,
}

/// The driver's own counters of lost packets.
#[derive(Debug)]
struct Driver {
    counters: DriverCounters,
    at_start: Vec<u64>,
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
            driver: Driver::find(name),
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

    /// What was lost since, by the names that the kernel and the driver have for it; nothing of an
    /// interface that is gone. The driver's counters say where some of the kernel's come from: they
    /// do not add up.
    pub(crate) fn named_losses(&mut self) -> Vec<(String, u64)> {
        let kernel = self.since_start().unwrap_or_default();
        let kernel = [
            ("rx_dropped", kernel.rx_dropped),
            ("rx_missed_errors", kernel.rx_missed),
            ("rx_fifo_errors", kernel.rx_fifo),
            ("rx_errors", kernel.rx_errors),
        ];
        let kernel = kernel.map(|(name, count)| (name.to_owned(), count));
        let driver = self.driver.as_ref().map(Driver::losses);
        let all = kernel.into_iter().chain(driver.into_iter().flatten());
        all.filter(|(_, count)| *count > 0).collect()
    }
}

impl Driver {
    fn find(interface: &str) -> Option<Self> {
        // Many drivers have none.
        let counters = DriverCounters::open(interface).ok()?;
        let at_start = counters.read().ok()?;
        Some(Self { counters, at_start })
    }

    fn losses(&self) -> Vec<(String, u64)> {
        let now = self.counters.read().unwrap_or_default();
        let counts = now.iter().zip(&self.at_start);
        let grown = counts.map(|(now, before)| now.saturating_sub(*before));
        let named = self.counters.names().iter().zip(grown);
        named
            .filter(|(name, _)| is_of_loss(name))
            .map(|(name, count)| (format!("driver {name}"), count))
            .collect()
    }
}

/// Drivers have no common names, only common words; what is lost on its way out is not ours.
fn is_of_loss(name: &str) -> bool {
    let name = name.to_lowercase();
    let words = [
        "drop",
        "discard",
        "miss",
        "no_buf",
        "nobuf",
        "overrun",
        "fifo",
        "out_of_buffer",
    ];
    !name.starts_with("tx") && words.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::is_of_loss;

    #[test]
    fn losses_are_told_from_other_counters() {
        for name in [
            "rx_queue_0_drops",
            "rx_missed_errors",
            "port.rx_discards",
            "rx_out_of_buffer",
        ] {
            assert!(is_of_loss(name), "{name}");
        }
        for name in ["rx_packets", "tx_dropped", "tx_queue_0_xdp_xmit"] {
            assert!(!is_of_loss(name), "{name}");
        }
    }
}
