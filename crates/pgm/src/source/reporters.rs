//! How much a source repairs for each host that reports, in a session without a key.
//!
//! A host that reports has opened a control connection from its address, and anybody can do that.
//! So each such host has a bound: the bytes repaired for it are at most the bytes of new data that
//! the source has sent, plus [`FREE_BYTES`]. All addresses of a network (an IPv6 /64) together have
//! [`NETWORK_FACTOR`] times that bound. Beyond its bound, a host shares the repair rate of the
//! hosts that do not report (`strangers.rs`). The module does not know packets or queues. In: bytes
//! of new data, and bytes repaired for each host. Out: whether a host has full service.
//!
//! ```text
//!   new data -----------|==== window ====|   what may be repaired grows with the data
//!   host's meter        ^ at least here  ^ no further than this with full service
//! ```
//!
//! A receiver that loses less than half of all packets, repairs included, stays below its bound. A
//! receiver that drops repairs because it has no room for them may reach the bound. An unused part
//! of the bound, up to one window, stays available: a receiver may lose a whole window at once.
//! [`FREE_BYTES`] are for sessions with little data, in which one packet may be lost several times.
//!
//! Invariant: over any time, the bytes repaired with full service for one host are at most the sum
//! of the new data in that time, one window, [`FREE_BYTES`] and one packet.

use std::{collections::BTreeMap, net::IpAddr};

use base::Party;

/// The bytes repaired lately for each host that reports.
///
/// **Cost**: an entry for each host and each network for which something was repaired, at most
/// [`PARTIES_MAX`] of them.
#[derive(Debug)]
pub(super) struct Reporters {
    /// Bytes of new data so far. All bytes in this module are without IP and UDP headers.
    data: u64,
    window: u64,
    /// The meter of each host and network, in bytes. It grows with each repair, and is at least
    /// what the bound was one window of data ago. Without an entry, it is exactly this minimum.
    meters: BTreeMap<Party, u64>,
}

impl Reporters {
    pub(super) const fn new(window_bytes: usize) -> Self {
        Self {
            data: 0,
            window: window_bytes as u64,
            meters: BTreeMap::new(),
        }
    }

    /// Notes that `bytes` of new data have left.
    #[inline]
    pub(super) const fn data_sent(&mut self, bytes: usize) {
        self.data = self.data.saturating_add(bytes as u64);
    }

    /// Returns true when this host has full service: the host and its network are below their
    /// bounds.
    pub(super) fn has_full_service(&self, host: IpAddr) -> bool {
        Party::all_of(host).all(|party| self.meter(party) < bound(party, self.data + FREE_BYTES))
    }

    /// Notes that `bytes` bytes are repaired for this host, which has full service.
    pub(super) fn repaired(&mut self, host: IpAddr, bytes: usize) {
        for party in Party::all_of(host) {
            let meter = self.meter(party).saturating_add(bytes as u64);
            if !self.meters.contains_key(&party) {
                self.make_room();
            }
            self.meters.insert(party, meter);
        }
    }

    fn meter(&self, party: Party) -> u64 {
        let meter = self.meters.get(&party).copied().unwrap_or(0);
        meter.max(self.start(party))
    }

    /// Returns the minimum of a party's meter: the party's bound as it was one window of data ago.
    fn start(&self, party: Party) -> u64 {
        bound(party, self.data.saturating_sub(self.window))
    }

    /// If the table is full, forgets each host and network that has used nothing of its bound. If
    /// all have used some, forgets the one that used least.
    fn make_room(&mut self) {
        if self.meters.len() < PARTIES_MAX {
            return;
        }
        let (data, window) = (self.data, self.window);
        let used = |party: Party, meter: u64| {
            meter.saturating_sub(bound(party, data.saturating_sub(window)))
        };
        self.meters
            .retain(|&party, &mut meter| used(party, meter) > 0);
        if self.meters.len() >= PARTIES_MAX {
            let all = self.meters.iter();
            let least = all.min_by_key(|&(&party, &meter)| used(party, meter));
            if let Some((&party, _)) = least {
                self.meters.remove(&party);
            }
        }
    }
}

/// Returns how many bytes may be repaired for `party` with full service once `data` bytes of new
/// data have been sent.
const fn bound(party: Party, data: u64) -> u64 {
    match party {
        Party::Host(_) => data,
        Party::Network(_) => data.saturating_mul(NETWORK_FACTOR),
    }
}

/// The bytes repaired for a host may exceed the bytes of new data by this much. Judgement: hosts
/// that do not report may get about as many bytes repaired in one second of an idle session
/// (`strangers.rs`).
const FREE_BYTES: u64 = 1_000_000;
/// The bound of a network, as a multiple of a host's bound. Judgement: if each of a thousand
/// receivers in one LAN loses a tenth of all packets, each packet takes about three repairs until
/// all of them have it.
const NETWORK_FACTOR: u64 = 4;
/// The most hosts and networks that have a meter. Judgement: for each of 4096 receivers that
/// report, one host and one network.
const PARTIES_MAX: usize = 2 * 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: usize = 1_000_000;
    const PACKET: usize = 1000;

    fn host(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// Packets that are repaired for a host with full service before it has none.
    fn drawn(reporters: &mut Reporters, host: IpAddr) -> usize {
        let mut count = 0;
        while reporters.has_full_service(host) {
            reporters.repaired(host, PACKET);
            count += 1;
        }
        count
    }

    #[test]
    fn a_host_has_as_much_repaired_as_data_was_sent_and_what_is_left_is_at_most_a_window() {
        let mut reporters = Reporters::new(WINDOW);
        let (one, other) = (host("10.0.0.1"), host("10.0.0.2"));
        assert_eq!(drawn(&mut reporters, one), 1000, "nothing was sent");
        reporters.data_sent(WINDOW / 2);
        assert_eq!(drawn(&mut reporters, one), 500);
        reporters.data_sent(WINDOW / 10);
        assert_eq!(drawn(&mut reporters, one), 100);
        assert_eq!(drawn(&mut reporters, other), 1600, "each for itself");
        reporters.data_sent(50 * WINDOW);
        let at_most = (WINDOW + FREE_BYTES as usize) / PACKET;
        assert_eq!(drawn(&mut reporters, one), at_most, "no more than a window");
        assert_eq!(drawn(&mut reporters, one), 0, "an idle source owes nothing");
    }

    #[test]
    fn all_addresses_of_a_network_have_four_times_as_much() {
        let mut reporters = Reporters::new(WINDOW);
        reporters.data_sent(WINDOW);
        let near = (1..100).map(|number| host(&format!("fd00::{number:x}")));
        let counts: Vec<usize> = near.map(|near| drawn(&mut reporters, near)).collect();
        assert_eq!(counts[..6], [2000, 2000, 2000, 2000, 0, 0]);
        assert_eq!(counts.iter().sum::<usize>(), 8000);
        assert_eq!(drawn(&mut reporters, host("fd00:0:0:1::1")), 2000);
    }

    #[test]
    fn when_too_many_are_known_who_used_least_is_forgotten() {
        let mut reporters = Reporters::new(WINDOW);
        reporters.data_sent(WINDOW);
        let greedy = host("10.255.0.1");
        drawn(&mut reporters, greedy);
        for number in 0..PARTIES_MAX as u32 + 100 {
            let many = IpAddr::from(std::net::Ipv4Addr::from(0x0A00_0000 + number));
            reporters.repaired(many, 1);
        }
        assert!(reporters.meters.len() <= PARTIES_MAX);
        assert!(!reporters.has_full_service(greedy));
        reporters.data_sent(2 * WINDOW);
        reporters.repaired(host("10.255.0.2"), 1);
        assert_eq!(reporters.meters.len(), 1, "all others have everything left");
    }
}
