//! The counts of an interface since it was made: `struct rtnl_link_stats64`.

use super::{
    Attributes, Malformed, NetlinkError, Request, Rtnetlink,
    message::{fixed, u32_at},
};

/// Packets and bytes of one interface, and its losses, 64 bits each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatistics {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received packets that were damaged.
    pub rx_errors: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Received packets that the kernel dropped.
    pub rx_dropped: u64,
    /// Packets that were to be sent and were dropped.
    pub tx_dropped: u64,
    /// Packets for which the adapter's queue had no room (part of `rx_errors` for some drivers).
    pub rx_fifo: u64,
    /// Packets for which the adapter had no room (not part of `rx_packets`).
    pub rx_missed: u64,
}

impl LinkStatistics {
    /// Returns the number of packets that arrived at the interface and that the kernel or the
    /// adapter dropped there.
    #[must_use]
    pub const fn rx_lost(&self) -> u64 {
        self.rx_dropped + self.rx_missed + self.rx_fifo
    }

    /// Returns the counts since `earlier`. A counter that was reset and is now below its earlier
    /// value gives zero.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            rx_packets: self.rx_packets.saturating_sub(earlier.rx_packets),
            tx_packets: self.tx_packets.saturating_sub(earlier.tx_packets),
            rx_bytes: self.rx_bytes.saturating_sub(earlier.rx_bytes),
            tx_bytes: self.tx_bytes.saturating_sub(earlier.tx_bytes),
            rx_errors: self.rx_errors.saturating_sub(earlier.rx_errors),
            tx_errors: self.tx_errors.saturating_sub(earlier.tx_errors),
            rx_dropped: self.rx_dropped.saturating_sub(earlier.rx_dropped),
            tx_dropped: self.tx_dropped.saturating_sub(earlier.tx_dropped),
            rx_fifo: self.rx_fifo.saturating_sub(earlier.rx_fifo),
            rx_missed: self.rx_missed.saturating_sub(earlier.rx_missed),
        }
    }

    /// Reads the counters of an `RTM_NEWLINK` payload.
    fn parse(payload: &[u8]) -> Result<(u32, Self), Malformed> {
        let (header, rest) = fixed::<HEADER_LEN>(payload, "link header")?;
        let mut statistics = Self::default();
        for attribute in Attributes::parse(rest)? {
            if attribute.kind == libc::IFLA_STATS64 {
                let (words, _) = attribute.payload.as_chunks::<8>();
                let at =
                    |index: usize| words.get(index).map_or(0, |word| u64::from_ne_bytes(*word));
                statistics = Self {
                    rx_packets: at(0),
                    tx_packets: at(1),
                    rx_bytes: at(2),
                    tx_bytes: at(3),
                    rx_errors: at(4),
                    tx_errors: at(5),
                    rx_dropped: at(6),
                    tx_dropped: at(7),
                    rx_fifo: at(14),
                    rx_missed: at(15),
                };
            }
        }
        Ok((u32_at(header, 4), statistics))
    }
}

impl Rtnetlink {
    /// Returns the counters of interface `index`.
    ///
    /// # Errors
    /// When the interface does not exist any more.
    pub fn statistics(&mut self, index: u32) -> Result<LinkStatistics, NetlinkError> {
        let mut request = Request::new(libc::RTM_GETLINK, 0);
        request.fixed(&[0; HEADER_LEN]);
        let what = "read the counters of the interfaces";
        self.list(&request, libc::RTM_NEWLINK, what, LinkStatistics::parse)?
            .into_iter()
            .find_map(|(found, statistics)| (found == index).then_some(statistics))
            .ok_or_else(|| NetlinkError::missing(format!("read the counters of interface {index}")))
    }
}

const HEADER_LEN: usize = 16;
