//! Finds an interface by its name, and reads what it has counted since.

use sys::{
    DriverCounters,
    netlink::{Ethtool, Link, LinkStatistics, NetlinkError, Rtnetlink},
};

use crate::CaptureError;

/// The counters of one interface, counted from the time when it was found.
#[derive(Debug)]
pub(crate) struct LinkCounters {
    index: u32,
    netlink: Rtnetlink,
    at_start: LinkStatistics,
    driver: Option<Driver>,
}

/// The speed of an Ethernet link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSpeed {
    /// Bits a second, including those between frames.
    pub bits: u64,
}

impl LinkSpeed {
    /// Reads the speed of the interface `name` from its driver; `None` where the driver does not
    /// say. Virtual interfaces do not keep to the speed that their drivers name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        let links = Rtnetlink::open().and_then(|mut netlink| netlink.links());
        let link = links.ok()?.into_iter().find(|link| link.name == name)?;
        let bits = Ethtool::open().and_then(|mut ethtool| ethtool.speed_bits(link.index));
        bits.ok()?.map(|bits| Self { bits })
    }

    /// Returns how many frames of `frame_bytes` (without check sequence, as captures count) the
    /// link carries a second. On the wire each frame also has check sequence, preamble and gap, and
    /// a short frame is padded.
    #[must_use]
    pub fn frames(&self, frame_bytes: f64) -> f64 {
        self.bits as f64 / 8.0 / (frame_bytes.max(FRAME_BYTES_LEAST) + BETWEEN_BYTES)
    }
}

/// The driver's own counters of lost packets.
#[derive(Debug)]
struct Driver {
    counters: DriverCounters,
    at_start: Vec<u64>,
}

impl LinkCounters {
    /// Finds the interface called `name`. `can_be_file` says whether a file could be named in its
    /// place.
    ///
    /// # Errors
    /// When there is no such interface (the error names those that exist), or when the kernel
    /// refuses.
    pub(crate) fn find(name: &str, can_be_file: bool) -> Result<(Self, Link), CaptureError> {
        let mut netlink = Rtnetlink::open().map_err(|error| CaptureError::netlink(&error))?;
        let mut links = netlink
            .links()
            .map_err(|error| CaptureError::netlink(&error))?;
        let Some(at) = links.iter().position(|link| link.name == name) else {
            let known: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
            return Err(CaptureError::NoInterface {
                name: name.to_owned(),
                known: known.join(", "),
                hint: match can_be_file {
                    true => format!("; if {name} is a file, write pcapng:{name}"),
                    false => String::new(),
                },
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

    /// Returns what the interface has counted since it was found.
    ///
    /// # Errors
    /// When the interface is gone.
    pub(crate) fn since_start(&mut self) -> Result<LinkStatistics, NetlinkError> {
        let now = self.netlink.statistics(self.index)?;
        Ok(now.since(&self.at_start))
    }

    /// Returns whether the interface is switched on, and whether it has a carrier; `None` when it
    /// is gone.
    pub(crate) fn state(&mut self) -> Option<(bool, bool)> {
        let link = self.netlink.links().ok()?;
        let link = link.into_iter().find(|link| link.index == self.index)?;
        Some((link.flags.is_up(), link.flags.is_running()))
    }

    /// Returns the losses since the interface was found, by the kernel's and the driver's names;
    /// none for an interface that is gone. The driver's counters explain parts of the kernel's, so
    /// the two must not be added up.
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
        // Many drivers have no counters.
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

/// Returns true for the name of a counter of lost packets. Drivers use no common names, only common
/// words. Names of counters of sent packets are left out.
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

/// Bytes of the shortest frame, without check sequence.
const FRAME_BYTES_LEAST: f64 = 60.0;
/// Bytes of check sequence (4), preamble and delimiter (8) and gap (12).
const BETWEEN_BYTES: f64 = 24.0;

#[cfg(test)]
mod tests {
    use super::{LinkSpeed, is_of_loss};

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

    #[test]
    fn the_most_that_a_link_carries_is_that_of_the_tables() {
        let gigabit = LinkSpeed {
            bits: 1_000_000_000,
        };
        assert_eq!(gigabit.frames(60.0) as u64, 1_488_095);
        assert_eq!(gigabit.frames(1514.0) as u64, 81_274);
        assert_eq!(gigabit.frames(20.0), gigabit.frames(60.0), "filled up");
    }
}
