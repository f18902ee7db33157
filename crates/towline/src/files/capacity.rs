//! How many transfers and connections the limit on a process's descriptors allows.

use delivery::{
    ObjectReceiverConfig, TransferReceiverConfig,
    parameters::{GREETINGS_MAX, SENDERS_WAITING_MAX},
};

/// The limits of a receiver that serves any number of transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capacity {
    pub(super) transfers: u32,
    /// The most senders that stay connected while they wait for their transfer to begin.
    pub(super) waiting: u32,
    /// The most connections at a time; more would take descriptors that transfers need for files.
    pub(super) links: usize,
}

impl Capacity {
    /// Computes the limits of a process that should serve `transfers` transfers at a time. If its
    /// descriptors are too few, it serves fewer transfers, but at least one. The process may have
    /// `descriptors` descriptors (`None`: any number) and `links_max` connections.
    pub(super) fn new(descriptors: Option<u64>, links_max: usize, transfers: u32) -> Self {
        let beside = CONNECTIONS_BESIDE;
        let left = descriptors.unwrap_or(u64::MAX);
        let left = left.saturating_sub(beside + DESCRIPTORS_OF_A_PROCESS);
        let held = left / (DESCRIPTORS_OF_A_TRANSFER + DESCRIPTORS_BESIDE_A_TRANSFER);
        let held = u32::try_from(held).unwrap_or(u32::MAX);
        let transfers = transfers.min(held).max(1);
        let asked = ObjectReceiverConfig::prospects_of(transfers as usize) as u64;
        let left = left.saturating_sub(u64::from(transfers) * DESCRIPTORS_OF_A_TRANSFER + asked);
        let served = u64::from(transfers) + asked + beside;
        let links = u64::try_from(links_max).unwrap_or(u64::MAX);
        let waiting = u64::from(SENDERS_WAITING_MAX).min(left);
        let waiting = waiting.min(links.saturating_sub(served));
        let links = links.min(served + waiting);
        Self {
            transfers,
            waiting: u32::try_from(waiting).unwrap_or(u32::MAX),
            links: usize::try_from(links).unwrap_or(usize::MAX),
        }
    }

    /// Makes the configuration of a receiver with these limits.
    pub(super) fn serve(&self, transfer: TransferReceiverConfig) -> ObjectReceiverConfig {
        let config = ObjectReceiverConfig::serving(transfer);
        let mut config = config.with_transfers(self.transfers as usize);
        config.waiting_max = self.waiting as usize;
        config
    }

    /// Returns a warning if the receiver takes fewer transfers at a time than `asked`.
    pub(super) fn warning(&self, asked: u32) -> Option<String> {
        let max = sys::open_files_max().filter(|_| self.transfers < asked)?;
        Some(format!(
            "this process may have only {max} descriptors, so the transfers at a time are {} at \
             most, not {asked}; raise its limit (ulimit -Hn)",
            self.transfers,
        ))
    }

    /// Returns how many bytes of each transfer may wait for the disk.
    pub(super) fn queue_bytes_max(&self) -> usize {
        let part = QUEUES_BYTES_MAX / self.transfers as usize;
        part.clamp(QUEUE_BYTES_MIN, QUEUE_BYTES_MAX)
    }
}

/// Descriptors of a transfer under way: its connection, its directory, its lock, its journal, and
/// a few of its files.
const DESCRIPTORS_OF_A_TRANSFER: u64 = 8;
/// Descriptors kept free: one half for connections whose peers have not said who they are, the
/// other half for connections that this end has closed and the peers still keep open.
const CONNECTIONS_BESIDE: u64 = 2 * GREETINGS_MAX as u64;
/// Descriptors kept free for each transfer, for connections of senders that are asked for their
/// offers or that wait for their transfer to begin.
const DESCRIPTORS_BESIDE_A_TRANSFER: u64 = 2;
/// Descriptors for everything except transfers and connections: standard streams, epoll, counters.
const DESCRIPTORS_OF_A_PROCESS: u64 = 32;
/// The most bytes of all transfers together that may wait for the disk. With more than 1,024
/// transfers, more bytes may wait, because each transfer may have [`QUEUE_BYTES_MIN`].
const QUEUES_BYTES_MAX: usize = 256 << 20;
const QUEUE_BYTES_MAX: usize = 6 << 20;
const QUEUE_BYTES_MIN: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_few_descriptors_takes_fewer_transfers_and_lets_others_wait() {
        let capacity = |descriptors, transfers| {
            let capacity = Capacity::new(descriptors, 32_768, transfers);
            (capacity.transfers, capacity.waiting)
        };
        assert_eq!(capacity(None, 16), (16, SENDERS_WAITING_MAX));
        assert_eq!(
            capacity(Some(131_072), 10_000),
            (10_000, SENDERS_WAITING_MAX)
        );
        assert_eq!(capacity(Some(1_024), 16), (16, 348));
        assert_eq!(capacity(Some(1_024), 100), (48, 84));
        assert_eq!(capacity(Some(65_536), 10_000), (6_499, SENDERS_WAITING_MAX));
        assert_eq!(capacity(Some(0), 16), (1, 0));
    }

    #[test]
    fn senders_that_wait_leave_connections_to_transfers() {
        assert_eq!(Capacity::new(None, 1_000, 100).waiting, 363);
        assert_eq!(Capacity::new(None, 0, 16).waiting, 0);
    }

    #[test]
    fn connections_leave_descriptors_to_the_files_of_transfers() {
        for (descriptors, transfers) in [(1_024, 16), (1_024, 100), (20_000, 1_000)] {
            let capacity = Capacity::new(Some(descriptors), 32_768, transfers);
            let files = u64::from(capacity.transfers) * (DESCRIPTORS_OF_A_TRANSFER - 1);
            let used = capacity.links as u64 + files + DESCRIPTORS_OF_A_PROCESS;
            assert!(used <= descriptors, "{used} of {descriptors}");
        }
        assert_eq!(Capacity::new(None, 100, 16).links, 100, "as asked");
    }
}
