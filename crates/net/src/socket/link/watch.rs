//! What held connections back while data moved on them, by the kernel's counts.
//!
//! ```text
//!   look:      |----moved----|----moved----|---still---|----moved----|---still---
//!   counted:   |<------------------------------------------------->| the last rest is not
//! ```
//!
//! When nothing moves at the end, the peer is at work with what it has received, so the connection
//! delays nobody. A pause between data counts, because something caused it.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use base::Instant;
use sys::{SocketBuffers, TcpInfo};

use crate::{NetworkSigns, TcpShares};

/// What held the connections to one peer back, all of them together.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeldBack {
    /// The time by cause.
    pub shares: TcpShares,
    /// What the kernel counted of the network meanwhile.
    pub signs: NetworkSigns,
}

impl HeldBack {
    /// Returns the time and counts that were added since `earlier`, an earlier state for this peer.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            shares: self.shares.since(&earlier.shares),
            signs: self.signs.since(&earlier.signs),
        }
    }
}

/// The counts of all peers.
#[derive(Debug, Default)]
pub(super) struct Watch(BTreeMap<SocketAddr, Watched>);

#[derive(Debug, Default)]
struct Watched {
    /// The connection that was looked at last, the time of that look, and the kernel's counts then.
    last: Option<(u32, Instant, TcpInfo)>,
    counted: HeldBack,
    /// The shares of the time since data last moved, which count only once data moves again.
    still: TcpShares,
}

impl Watch {
    /// Returns true when no look is due: a look costs three system calls for each connection.
    pub(super) fn rests(&self, now: Instant) -> bool {
        let mut watched = self.0.values().filter_map(|it| it.last);
        watched.any(|(_, at, _)| now.since(at) < LOOK_INTERVAL)
    }

    /// Takes what the kernel says of a connection.
    pub(super) fn look(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        id: u32,
        (info, buffers): (TcpInfo, SocketBuffers),
    ) {
        let watched = self.0.entry(peer).or_default();
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
        self.0.iter().map(|(&peer, it)| (peer, it.counted))
    }
}

/// Time between two looks; the kernel counts in ticks of up to 10 ms.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// When fewer bytes moved between two looks, they were control messages and no content.
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
        assert!(watch.rests(at(750)) && !watch.rests(at(800)));
    }
}
