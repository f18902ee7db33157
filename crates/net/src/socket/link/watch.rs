//! Finds out what held connections back while data moved on them, by the kernel's counts.
//!
//! ```text
//!   look:      |----moved----|----moved----|---still---|----moved----|---still---
//!   counted:   |<------------------------------------------------->| the last still time is not
//! ```
//!
//! When nothing moves at the end, the peer is at work with the data that it has received, so the
//! connection delays nobody. A pause between data counts, because something held the data back.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use base::Instant;
use sys::{SocketBuffers, TcpInfo};

use crate::{NetworkSigns, TcpShares};

/// For all connections to one peer together: how long each cause held them back.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeldBack {
    /// For each cause, the time for which it held the connections back.
    pub shares: TcpShares,
    /// The bytes sent, the bytes sent again and the timeouts while data moved, and the round-trip
    /// times, all as the kernel counts them.
    pub signs: NetworkSigns,
}

impl HeldBack {
    /// Returns the time and counts that were added since `earlier`, an older value for this peer.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            shares: self.shares.since(&earlier.shares),
            signs: self.signs.since(&earlier.signs),
        }
    }
}

/// What held back the connections to each peer, by the kernel's counts.
#[derive(Debug, Default)]
pub(super) struct Watch {
    peers: BTreeMap<SocketAddr, Watched>,
    looked_at: Option<Instant>,
}

#[derive(Debug, Default)]
struct Watched {
    /// The connection that was looked at last, the time of that look, and the kernel's counts then.
    last: Option<(u32, Instant, TcpInfo)>,
    counted: HeldBack,
    /// For each cause, the time that it held the connections back since data last moved. The times
    /// are added to `counted` when data moves again.
    still: TcpShares,
}

impl Watch {
    /// Returns true when it is time to look at all `count` connections. Each look costs system
    /// calls, so many connections are looked at less often than few. Until a first connection is
    /// open and looked at, it is always time.
    pub(super) fn is_due(&self, now: Instant, count: usize) -> bool {
        let times = u32::try_from(count.div_ceil(LOOKED_AT_ONCE)).unwrap_or(u32::MAX);
        let interval = LOOK_INTERVAL.saturating_mul(times.max(1));
        self.looked_at.is_none_or(|at| now.since(at) >= interval)
    }

    /// Takes the kernel's counts for the connection `id` to `peer`, and the state of the
    /// connection's buffers.
    pub(super) fn look(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        id: u32,
        (info, buffers): (TcpInfo, SocketBuffers),
    ) {
        self.looked_at = Some(now);
        let watched = self.peers.entry(peer).or_default();
        let last = watched.last.replace((id, now, info));
        let Some((_, at, before)) = last.filter(|(whose, ..)| *whose == id) else {
            return;
        };
        let Some(shares) = TcpShares::between(&before, &info, now.since(at)) else {
            return;
        };
        watched.still += shares.with_buffers(&info, &buffers);
        let acked = |info: &TcpInfo| info.bytes_acked().unwrap_or(0);
        if acked(&info).saturating_sub(acked(&before)) >= MOVED_BYTES_MIN {
            watched.counted.shares += std::mem::take(&mut watched.still);
            watched.counted.signs += NetworkSigns::between(&before, &info);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SocketAddr, HeldBack)> + '_ {
        self.peers.iter().map(|(&peer, it)| (peer, it.counted))
    }
}

/// Time between two looks at all connections, when there are at most [`LOOKED_AT_ONCE`]. The kernel
/// counts in ticks of up to 10 ms. With 10,000 connections, a look is due every 4 s and takes about
/// 20 ms.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
const LOOKED_AT_ONCE: usize = 256;
/// Fewer bytes than this between two looks count as control messages, not as content.
const MOVED_BYTES_MIN: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn info(acked: u64, busy_us: u64) -> (TcpInfo, SocketBuffers) {
        let mut bytes = [0; 232];
        bytes[120..128].copy_from_slice(&acked.to_ne_bytes());
        bytes[168..176].copy_from_slice(&busy_us.to_ne_bytes());
        (TcpInfo::from_bytes(&bytes), SocketBuffers::default())
    }

    #[test]
    fn a_rest_between_data_counts_and_one_at_the_end_does_not() {
        let peer = SocketAddr::from(([10, 0, 0, 1], 7_500));
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let mut watch = Watch::default();
        assert!(watch.is_due(at(0), 1) && watch.is_due(at(0), 1), "no look");
        // It moves for 100 ms, rests for 200, moves for 100, and rests.
        let looks = [
            (0, 0, 0),
            (100, 50_000, 100_000),
            (200, 50_000, 100_000),
            (300, 50_100, 100_000),
            (400, 90_000, 200_000),
            (500, 90_000, 200_000),
        ];
        for (ms, acked, busy_us) in looks {
            watch.look(at(ms), peer, 1, info(acked, busy_us));
        }
        let (_, held) = watch.iter().next().unwrap();
        let ms = Duration::from_millis;
        assert_eq!(
            (held.shares.application, held.shares.network),
            (ms(200), ms(200))
        );
        let before = held;
        // Another connection to the peer begins anew, and adds to the sum.
        watch.look(at(600), peer, 2, info(0, 0));
        watch.look(at(700), peer, 2, info(5_000, 100_000));
        let (_, held) = watch.iter().next().unwrap();
        assert_eq!(held.shares.network, ms(300));
        let lately = held.since(&before).shares;
        // The rest before it was one between data after all.
        assert_eq!((lately.application, lately.network), (ms(100), ms(100)));
        assert!(!watch.is_due(at(799), 1) && watch.is_due(at(800), 256));
        assert!(!watch.is_due(at(899), 257) && watch.is_due(at(900), 257));
    }
}
