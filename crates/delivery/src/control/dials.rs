//! Limits on dialling senders that have not answered yet: how often one host is dialled, and how
//! many senders are asked at a time.
//!
//! Anybody can announce sessions. With a forged source address, they can make each receiver of a
//! group dial a host and port of their choice. So a sender that has not answered is dialled only
//! within the limits of its host, of its network and of all hosts together. It also needs one of a
//! bounded number of *seats*. It loses its seat when its port refuses, or when `ANSWER_PATIENCE` is
//! over. After `ANSWER_EXPECTED`, it may lose its seat to another sender for which no seat is free.
//! No host has more than half of the seats, and no network more than three quarters
//! ([`base::share`]), so that seats are left for others.
//!
//! A sender that has admitted this receiver before is not limited here.
//!
//! **Spec**: `docs/src/protocol.md` section 9.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use base::{Instant, Party, Rng, Share, network_of, parameters::NETWORK_PATIENCE, share};

use crate::parameters::{
    ANSWER_EXPECTED, DIAL_INTERVAL, DIALS_AT_ONCE, HOST_DIAL_INTERVAL, HOST_DIALS_AT_ONCE,
};

/// The limits on dials to hosts that have not answered.
#[derive(Debug)]
pub(crate) struct Dials {
    all: Meter,
    /// The meters of hosts and networks that were dialled lately. The limit of all hosts together
    /// also bounds the number of these meters.
    parties: BTreeMap<Party, Meter>,
}

/// Whether one more sender may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat<K> {
    Free,
    /// The new sender takes the seat of the sender with this key, which is late with its answer.
    InsteadOf(K),
    /// No further sender may be asked at present.
    None,
}

impl Dials {
    pub(crate) const fn new() -> Self {
        Self {
            all: Meter::new(DIAL_INTERVAL, DIALS_AT_ONCE),
            parties: BTreeMap::new(),
        }
    }

    /// Counts a dial to `host` and returns true, if the limits allow the dial. A repeated dial to a
    /// sender is allowed only while less than half of the dials allowed at once are used up, so
    /// that first dials find room.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        host: IpAddr,
        is_first: bool,
        rng: &mut Rng,
    ) -> bool {
        self.parties.retain(|_, meter| !meter.is_unused(now));
        let own = Meter::new(HOST_DIAL_INTERVAL, HOST_DIALS_AT_ONCE);
        let near = Meter::new(
            HOST_DIAL_INTERVAL * 100 / NETWORK_PATIENCE,
            HOST_DIALS_AT_ONCE * NETWORK_PATIENCE / 100,
        );
        let mut meters = vec![(Party::host(host), own)];
        meters.extend(Party::network(host).map(|network| (network, near)));
        for (who, meter) in &mut meters {
            *meter = self.parties.get(who).copied().unwrap_or(*meter);
            if !meter.has_room(now, is_first) {
                return false;
            }
        }
        if !self.all.has_room(now, is_first) {
            return false;
        }
        for (who, mut meter) in meters {
            meter.count(now, rng);
            self.parties.insert(who, meter);
        }
        self.all.count(now, rng);
        true
    }

    /// Stops counting one dial to `host`, because a sender there has answered.
    pub(crate) fn answered(&mut self, host: IpAddr) {
        for party in Party::all_of(host) {
            if let Some(meter) = self.parties.get_mut(&party) {
                meter.give_back();
            }
        }
        self.all.give_back();
    }
}

/// Says whether one more sender, at `host`, may be asked for its offer. There are `seats_max`
/// seats, and the senders in `asked` have one each. For each of them, `asked` gives its key, its
/// host and the time when it was asked.
pub(crate) fn seat<K: Copy>(
    now: Instant,
    host: IpAddr,
    seats_max: usize,
    asked: impl Iterator<Item = (K, IpAddr, Instant)>,
    rng: &mut Rng,
) -> Seat<K> {
    let asked: Vec<_> = asked.collect();
    let hosts = asked.iter().map(|&(_, whose, _)| whose);
    let own = share(seats_max.div_ceil(2), seats_max, hosts, host);
    if own == Share::HostFull {
        return Seat::None;
    }
    if own == Share::Free && asked.len() < seats_max {
        return Seat::Free;
    }
    // When the network of `host` has its full share of the seats, only a sender of that network may
    // lose its seat to the new sender.
    let may_go = |whose| own == Share::Free || network_of(whose) == network_of(host);
    let is_late = |since| now.since(since) >= ANSWER_EXPECTED;
    let late = asked.iter().filter(|it| may_go(it.1) && is_late(it.2));
    let late: Vec<K> = late.map(|&(key, ..)| key).collect();
    match late.len() as u64 {
        0 => Seat::None,
        count => Seat::InsteadOf(late[rng.below(count) as usize]),
    }
}

/// A limit on how often something is done: a number of times at once, then once in each interval,
/// at a random time in the interval. A host that forges marks cannot predict that time, so it
/// cannot always be first when a dial is allowed again.
#[derive(Clone, Copy, Debug)]
struct Meter {
    interval: Duration,
    at_once: u32,
    /// The time from which `at_once` actions at once are allowed again, if none is done before
    /// then.
    even_at: Instant,
    /// The random time by which the next dial is delayed within its interval.
    delay: Duration,
}

impl Meter {
    const fn new(interval: Duration, at_once: u32) -> Self {
        Self {
            interval,
            at_once,
            even_at: Instant::ZERO,
            delay: Duration::ZERO,
        }
    }

    fn has_room(&self, now: Instant, is_first: bool) -> bool {
        let at_once = if is_first {
            self.at_once
        } else {
            self.at_once / 2
        };
        self.even_at.max(now).since(now) + self.delay < self.interval * at_once
    }

    fn count(&mut self, now: Instant, rng: &mut Rng) {
        self.even_at = self.even_at.max(now) + self.interval;
        self.delay = rng.duration_up_to(self.interval);
    }

    fn give_back(&mut self) {
        let interval = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX);
        self.even_at = Instant::from_nanos(self.even_at.as_nanos().saturating_sub(interval));
    }

    fn is_unused(&self, now: Instant) -> bool {
        self.even_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
    }

    fn host(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn taken(dials: &mut Dials, now: Instant, host: IpAddr, tries: u32) -> u32 {
        let rng = &mut Rng::new(now.as_nanos());
        (0..tries)
            .map(|_| u32::from(dials.take(now, host, true, rng)))
            .sum()
    }

    #[test]
    fn a_host_is_dialled_so_often_at_once_and_then_at_a_rate() {
        for host in [host(1), "fd00::1".parse().unwrap()] {
            let mut dials = Dials::new();
            assert_eq!(taken(&mut dials, at(0), host, 1000), HOST_DIALS_AT_ONCE);
            let later: u32 = (1..=10_000)
                .map(|ms| taken(&mut dials, at(ms), host, 3))
                .sum();
            assert!((39..=41).contains(&later), "{later}, not four a second");
        }
    }

    #[test]
    fn all_hosts_together_are_dialled_so_often_and_others_wait_for_a_host_only_then() {
        let mut dials = Dials::new();
        assert_eq!(taken(&mut dials, at(0), host(1), 1000), 16);
        assert_eq!(taken(&mut dials, at(0), host(2), 1), 1);
        let rest: u32 = (3..=200)
            .map(|n| taken(&mut dials, at(0), host(n), 1))
            .sum();
        assert_eq!(rest, DIALS_AT_ONCE - 17);
        assert!(dials.parties.len() <= DIALS_AT_ONCE as usize);
        let later: u32 = (1..=10_000)
            .map(|ms| taken(&mut dials, at(ms), host(ms as u8), 1))
            .sum();
        assert!(
            (159..=161).contains(&later),
            "{later}, not sixteen a second"
        );
        assert!(dials.parties.len() <= DIALS_AT_ONCE as usize);
    }

    #[test]
    fn a_network_of_many_addresses_is_dialled_one_and_a_half_times_as_often() {
        let address = |network: u8, host: u64| -> IpAddr {
            let text = format!("fd00:0:0:{network:x}::{host:x}");
            text.parse().unwrap()
        };
        let mut dials = Dials::new();
        // A host may have the address that stands for its network.
        assert_eq!(taken(&mut dials, at(0), address(1, 0), 1000), 16);
        let near: u32 = (1..1000)
            .map(|n| taken(&mut dials, at(0), address(1, n), 1))
            .sum();
        assert_eq!(near, 8);
        assert_eq!(taken(&mut dials, at(0), address(2, 1), 1), 1);
        let later: u32 = (1..=10_000)
            .map(|ms| taken(&mut dials, at(ms), address(1, ms), 1))
            .sum();
        assert!((59..=61).contains(&later), "{later}, not six a second");
    }

    #[test]
    fn who_answers_is_no_burden_and_who_does_not_is_one_still() {
        let mut dials = Dials::new();
        for _ in 0..1_000 {
            assert_eq!(taken(&mut dials, at(0), host(1), 1), 1);
            dials.answered(host(1));
        }
        assert_eq!(taken(&mut dials, at(0), host(1), 1000), HOST_DIALS_AT_ONCE);
        // A dial that is given back twice is no credit for later.
        for _ in 0..1_000 {
            dials.answered(host(1));
        }
        assert!(taken(&mut dials, at(0), host(1), 1000) <= HOST_DIALS_AT_ONCE);
    }

    #[test]
    fn a_network_makes_room_within_three_quarters_of_the_seats() {
        let address = |text: &str| -> IpAddr { text.parse().unwrap() };
        let rng = &mut Rng::new(1);
        let near = ["fd00::1", "fd00::2", "fd00::3"].map(address);
        let asked = near.map(|host| (host, host, at(0)));
        let mut seat_of = |ms, text| seat(at(ms), address(text), 4, asked.into_iter(), rng);
        assert_eq!(seat_of(0, "fd00:0:0:1::1"), Seat::Free);
        assert_eq!(seat_of(0, "fd00::4"), Seat::None);
        let chosen = seat_of(500, "fd00::4");
        assert!(matches!(chosen, Seat::InsteadOf(_)), "{chosen:?}");
    }

    #[test]
    fn what_was_tried_before_leaves_half_for_who_was_not() {
        let mut dials = Dials::new();
        let rng = &mut Rng::new(1);
        let again = (0..1000)
            .filter(|_| dials.take(at(0), host(1), false, rng))
            .count();
        assert_eq!(again, 8);
        assert_eq!(taken(&mut dials, at(0), host(1), 1000), 8);
    }

    #[test]
    fn a_host_has_half_of_the_seats_and_a_late_one_makes_room_for_another_host() {
        let rng = &mut Rng::new(1);
        let of_one = [(1, host(1), at(0)), (2, host(1), at(0))];
        assert_eq!(seat(at(0), host(1), 4, of_one.into_iter(), rng), Seat::None);
        assert_eq!(seat(at(0), host(2), 4, of_one.into_iter(), rng), Seat::Free);
        let full = [
            (1, host(1), at(0)),
            (2, host(1), at(400)),
            (3, host(2), at(0)),
        ];
        let full = full.into_iter().chain([(4, host(3), at(400))]);
        assert_eq!(seat(at(499), host(4), 4, full.clone(), rng), Seat::None);
        let chosen: Vec<_> = (0..20)
            .map(|_| seat(at(500), host(4), 4, full.clone(), rng))
            .collect();
        assert!(
            chosen
                .iter()
                .all(|seat| [Seat::InsteadOf(1), Seat::InsteadOf(3)].contains(seat))
        );
        assert!(chosen.contains(&Seat::InsteadOf(1)) && chosen.contains(&Seat::InsteadOf(3)));
    }
}
