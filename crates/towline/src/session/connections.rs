//! How many control connections a sender takes, given how many descriptors its process may have.
//!
//! A host that opens connections and leaves them open must not use up the descriptors that a sender
//! needs for its receivers and its files. So the limit of connections keeps some descriptors for
//! everything else. The limit of receivers keeps some connections for peers that have yet to greet.

use delivery::parameters::GREETINGS_MAX;

/// Returns the most control connections that a process may have when it may open `descriptors`
/// descriptors (`None`: any number).
pub(super) fn links_max(descriptors: Option<u64>) -> usize {
    let left = descriptors.map(|max| max.saturating_sub(DESCRIPTORS_BESIDE_LINKS).max(LINKS_MIN));
    left.map_or(usize::MAX, |left| {
        usize::try_from(left).unwrap_or(usize::MAX)
    })
}

/// Returns the most receivers that a process with this many `descriptors` admits: at least one.
/// [`GREETINGS_MAX`] connections stay free for peers that have yet to greet, and the same number
/// for closed connections whose peers have not seen the end yet.
pub(crate) fn receivers_max(descriptors: Option<u64>) -> u32 {
    let left = links_max(descriptors).saturating_sub(2 * GREETINGS_MAX as usize);
    u32::try_from(left.max(1)).unwrap_or(u32::MAX)
}

/// Number of descriptors that the limit on connections leaves for everything else: sockets,
/// streams, and the files that a sender has open.
const DESCRIPTORS_BESIDE_LINKS: u64 = 64;
/// The lowest limit on connections, even for a process with hardly any descriptors.
const LINKS_MIN: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_to_files_and_receivers_leave_some_to_who_greets() {
        assert_eq!(
            (links_max(None), receivers_max(None)),
            (usize::MAX, u32::MAX)
        );
        assert_eq!(
            (links_max(Some(1_024)), receivers_max(Some(1_024))),
            (960, 448)
        );
        assert_eq!((links_max(Some(100)), receivers_max(Some(100))), (36, 1));
        assert_eq!((links_max(Some(10)), receivers_max(Some(10))), (16, 1));
        for descriptors in 600..40_000 {
            let (links, receivers) = (
                links_max(Some(descriptors)),
                receivers_max(Some(descriptors)) as usize,
            );
            // Before the sockets refuse new connections, the session closes the oldest ones that
            // have not greeted.
            assert!(receivers + GREETINGS_MAX as usize <= links);
            assert!(links < descriptors as usize);
        }
    }
}
