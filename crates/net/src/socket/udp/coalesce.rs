//! Fewer wake-ups: under load a receiver sleeps a while instead of waking up for every burst.
//!
//! A wake-up costs as much as receiving ten packets. Every few hundred microseconds, a run of
//! packets from a sender comes as a burst. While many packets come, a wait sleeps without looking,
//! and the next receive takes what came during the sleep. Timers wait for the sleep's end, too, so
//! requests and reports go into one packet instead of several. When packets no longer come,
//! waits are as usual. A sleep is so short that, at the rate just seen, only a small part of the
//! socket's buffer fills.

use std::time::Duration;

use base::Instant;

use crate::socket::UdpCounters;

#[derive(Debug)]
pub(super) struct Coalescing {
    /// The longest sleep; zero switches sleeping off.
    at_most: Duration,
    buffer_bytes: u64,
    /// How many datagrams were received up to the last wait, which was at `waited_at`; `bytes` is
    /// the sum of their lengths.
    packets: u64,
    bytes: u64,
    waited_at: Instant,
}

impl Coalescing {
    /// Makes a coalescer that never sleeps until `at_most` is set.
    pub(super) const fn new(buffer_bytes: u64) -> Self {
        Self {
            at_most: Duration::ZERO,
            buffer_bytes,
            packets: 0,
            bytes: 0,
            waited_at: Instant::ZERO,
        }
    }

    pub(super) const fn set(&mut self, at_most: Duration) {
        self.at_most = at_most;
    }

    pub(super) const fn is_on(&self) -> bool {
        !self.at_most.is_zero()
    }

    /// Returns how long a wait that begins now may sleep before it looks at sockets and timers.
    /// Returns `None` when so little arrives that a sleep does not pay, or so much that only a very
    /// short sleep is safe.
    pub(super) fn rest(&mut self, now: Instant, counters: &UdpCounters) -> Option<Duration> {
        let packets = counters.received_datagrams - self.packets;
        let bytes = counters.received_bytes - self.bytes;
        let took = now.since(self.waited_at);
        (self.packets, self.bytes) = (counters.received_datagrams, counters.received_bytes);
        self.waited_at = now;
        if packets < PACKETS_MIN || bytes == 0 {
            return None;
        }
        let share = u128::from(self.buffer_bytes / BUFFER_SHARE);
        let fills = took.as_nanos() * share / u128::from(bytes);
        let fills = Duration::from_nanos(u64::try_from(fills).unwrap_or(u64::MAX));
        let rest = self.at_most.min(fills);
        (rest >= REST_MIN).then_some(rest)
    }
}

/// Packets count as a stream when at least this many came since the last wait; otherwise a wait
/// does not sleep.
const PACKETS_MIN: u64 = 8;
/// A sleep ends before packets, at the rate just seen, fill more than 1/16 of the buffer. The part
/// is small because the kernel counts about twice a packet's bytes against the buffer, and because
/// a burst may be faster.
const BUFFER_SHARE: u64 = 16;
/// The shortest sleep. A shorter one would cost as much as the wake-ups that it saves.
const REST_MIN: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_micros(1_500);

    /// How long a receiver with a buffer of 8 MiB sleeps after `packets` of 1,400 B that came
    /// within `took`.
    fn rest_after(packets: u64, took: Duration) -> Option<Duration> {
        rest_with(8 << 20, packets, took)
    }

    fn rest_with(buffer_bytes: u64, packets: u64, took: Duration) -> Option<Duration> {
        let mut coalescing = Coalescing::new(buffer_bytes);
        coalescing.set(MOST);
        let began = Instant::ZERO + Duration::from_secs(1);
        let mut counters = UdpCounters::default();
        assert_eq!(coalescing.rest(began, &counters), None);
        counters.received_datagrams = packets;
        counters.received_bytes = packets * 1_400;
        coalescing.rest(began + took, &counters)
    }

    #[test]
    fn a_stream_is_coalesced_and_single_packets_are_not() {
        let milli = Duration::from_millis(1);
        assert_eq!(rest_after(100, milli), Some(MOST));
        assert_eq!(rest_after(7, milli), None);
        assert_eq!(rest_after(0, milli), None);
    }

    #[test]
    fn no_sleep_fills_more_than_a_part_of_the_buffer() {
        // 1.4 GB/s: half a MiB comes in 374 us.
        let rest = rest_after(1_000, Duration::from_millis(1)).unwrap();
        assert!(rest.as_micros().abs_diff(374) <= 1, "{rest:?}");
        assert_eq!(rest_after(10_000, Duration::from_millis(1)), None);
        // What the kernel grants without privileges: 2 Gbit/s leave no time, 100 Mbit/s do.
        let milli = Duration::from_millis(1);
        assert_eq!(rest_with(212_992, 178, milli), None);
        let rest = rest_with(212_992, 9, milli).unwrap();
        assert!(rest.as_micros().abs_diff(1_056) <= 1, "{rest:?}");
    }
}
