//! How many transfers, and senders that wait, a process has descriptors for.

use delivery::{
    ObjectReceiverConfig,
    parameters::{GREETINGS_MAX, SENDERS_WAITING_MAX},
};

/// What a receiver that serves any number of transfers takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capacity {
    pub(super) transfers: u32,
    /// The most senders that wait, connected, for a place.
    pub(super) waiting: u32,
}

impl Capacity {
    /// Makes the capacity of a process that may have so many descriptors (`None`: any number) and
    /// so many connections, and is asked for so many transfers, at least 1.
    pub(super) fn new(descriptors: Option<u64>, links_max: usize, transfers: u32) -> Self {
        let beside = u64::from(GREETINGS_MAX);
        let left = descriptors.unwrap_or(u64::MAX);
        let left = left.saturating_sub(beside + DESCRIPTORS_OF_A_PROCESS);
        let held = left / (DESCRIPTORS_OF_A_TRANSFER + DESCRIPTORS_BESIDE_A_TRANSFER);
        let held = u32::try_from(held).unwrap_or(u32::MAX);
        let transfers = transfers.min(held).max(1);
        let asked = ObjectReceiverConfig::prospects_of(transfers as usize) as u64;
        let left = left.saturating_sub(u64::from(transfers) * DESCRIPTORS_OF_A_TRANSFER + asked);
        let links = u64::try_from(links_max).unwrap_or(u64::MAX);
        let links = links.saturating_sub(u64::from(transfers) + asked + beside);
        let waiting = u64::from(SENDERS_WAITING_MAX).min(left).min(links);
        Self {
            transfers,
            waiting: u32::try_from(waiting).unwrap_or(u32::MAX),
        }
    }
}

/// Descriptors of a transfer under way: its connection, its directory, its lock, its journal, and
/// a few of its files.
const DESCRIPTORS_OF_A_TRANSFER: u64 = 8;
/// Descriptors that each transfer leaves to senders that are asked and that wait.
const DESCRIPTORS_BESIDE_A_TRANSFER: u64 = 2;
/// Descriptors of everything else: standard streams, epoll, counters.
const DESCRIPTORS_OF_A_PROCESS: u64 = 32;

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
        assert_eq!(capacity(Some(1_024), 16), (16, 604));
        assert_eq!(capacity(Some(1_024), 100), (73, 134));
        assert_eq!(capacity(Some(65_536), 10_000), (6_524, SENDERS_WAITING_MAX));
        assert_eq!(capacity(Some(0), 16), (1, 0));
    }

    #[test]
    fn senders_that_wait_leave_connections_to_transfers() {
        assert_eq!(Capacity::new(None, 1_000, 100).waiting, 619);
        assert_eq!(Capacity::new(None, 0, 16).waiting, 0);
    }
}
