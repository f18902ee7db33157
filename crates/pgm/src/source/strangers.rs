//! How much a source repairs for hosts that do not report, here called strangers.
//!
//! Anybody who heard one SPM can send NAKs, and each NAK can ask for 63 packets. So three bounds
//! hold for the repairs for strangers. A host that reports and has reached its own bound
//! (`reporters.rs`) shares the rate of strangers; the other two bounds do not hold for this host.
//!
//! - the rate: a share of the bytes of new data, plus a fixed rate (the floor). Strangers never get
//!   more at once than the rate gives in one second;
//! - the number of repairs: each packet is repaired for strangers up to [`REPAIRS_MAX`] times, at
//!   ever longer intervals ([`elimination_of`]). So all strangers together draw at most that many
//!   times the data, however often or slowly they ask;
//! - beyond that number, the length of NAKs: a stranger gets at most [`ASKED_FACTOR`] times the
//!   bytes of its NAKs in repairs. With the NCF, which is as long as the NAK, a NAK brings at most
//!   three times its bytes.
//!
//! Repairs go to the group, whoever asks, so no stranger can direct them at a victim. The module
//! does not know packets or queues. In: bytes of new data, and what each stranger asks for. Out:
//! whether to repair it. A stranger's part is the rate divided by one more than the number of
//! strangers that got repairs in about the last second.
//!
//! ```text
//!   new data --share--\
//!   time ----floor-----+--> credit, at most one second's  --> repair: the upper half for whoever
//!                                                             asks, the lower half for those that
//!                                                             have had at most their part
//! ```
//!
//! Plain PGM receivers (OpenPGM, ZeroMQ) are strangers too, and never report. A NAK of 64 bytes may
//! ask for a packet of 1400 bytes, 22 times its length. So the third bound alone would starve them.
//! The rate alone lets them repair what they lose, as long as they lose less than the share of the
//! data. When they lose more, they ask again until the rate allows the repair. If a tenth of all
//! packets is lost, all [`REPAIRS_MAX`] repairs of a packet get lost only once in 10^8 times.
//!
//! Invariant: over any interval, the bytes granted are at most this sum: the share of the new data
//! in the interval and in about the second before it; the floor for the same time; one packet.

use std::net::IpAddr;

use base::Instant;

use super::Duration;
use crate::Config;

/// The account of the bytes that the source repairs for strangers: hosts that do not report to it.
///
/// **Cost**: fixed size; a request costs one look at each of [`HOSTS`] entries.
#[derive(Debug)]
pub(super) struct Strangers {
    share_percent: u64,
    bytes_per_s_min: u64,
    /// The highest value of [`Host::earned`]: the bytes of a packet, plus what the longest NAK
    /// earns.
    earned_max: u64,
    /// Bytes of new data sent in about the last second, headers included.
    data: Recent,
    /// Bytes of repairs that strangers together may still be granted. What `bytes_per_s_min` adds
    /// to them was last added at `earned_at`.
    credit: u64,
    earned_at: Instant,
    hosts: [Host; HOSTS],
}

/// The account of one stranger: a host that asks for repairs and does not report.
#[derive(Clone, Copy, Debug, Default)]
struct Host {
    address: Option<IpAddr>,
    /// When the host last asked for repairs.
    asked_at: Instant,
    granted: Recent,
    /// Bytes of repairs that the host has earned with the bytes of its NAKs, and has not used yet.
    earned: u64,
}

impl Strangers {
    pub(super) fn new(config: &Config, now: Instant) -> Self {
        Self {
            share_percent: u64::from(config.stranger_repair_share()),
            bytes_per_s_min: config.stranger_repair_bytes_per_s_min(),
            earned_max: config.mtu() as u64 + ASKED_FACTOR * NAK_BYTES_MAX,
            data: Recent::default(),
            credit: config.stranger_repair_bytes_per_s_min(),
            earned_at: now,
            hosts: [Host::default(); HOSTS],
        }
    }

    /// Notes that `bytes` of new data have left.
    #[inline]
    pub(super) fn data_sent(&mut self, now: Instant, bytes: usize) {
        self.data.add(now, bytes as u64);
        self.credit = self.credit.saturating_add(self.share_of(bytes as u64));
    }

    /// Notes that a NAK of `bytes` bytes came from `host`.
    pub(super) fn asked(&mut self, now: Instant, host: IpAddr, bytes: usize) {
        let index = self.entry_of(now, host);
        let earned = &mut self.hosts[index].earned;
        *earned = (*earned + ASKED_FACTOR * bytes as u64).min(self.earned_max);
    }

    /// Returns true when `bytes` may be repaired for `host`, and then counts them as repaired.
    /// `repairs` says how many times the packet was repaired for strangers before.
    pub(super) fn grant(&mut self, now: Instant, host: IpAddr, bytes: usize, repairs: u32) -> bool {
        let rate = self.rate(now);
        let passed = now.since(self.earned_at).min(SECOND);
        let earned = u128::from(self.bytes_per_s_min) * passed.as_nanos() / SECOND.as_nanos();
        // When a short time earns less than one byte, that time is kept for the next call.
        if earned > 0 {
            self.earned_at = now;
        }
        let earned = u64::try_from(earned).expect("a second earns what fits a rate");
        self.credit = self.credit.saturating_add(earned).min(rate);
        let index = self.entry_of(now, host);
        let is_scarce = self.credit <= rate / 2;
        if self.credit == 0 || is_scarce && !self.is_within_part(now, index, rate) {
            return false;
        }
        if repairs >= REPAIRS_MAX {
            let earned = &mut self.hosts[index].earned;
            let Some(left) = earned.checked_sub(bytes as u64) else {
                return false;
            };
            *earned = left;
        }
        self.credit = self.credit.saturating_sub(bytes as u64);
        self.hosts[index].granted.add(now, bytes as u64);
        true
    }

    /// Returns the bytes of repairs that strangers may get in a second. They may also get that many
    /// at once.
    fn rate(&self, now: Instant) -> u64 {
        let share = self.share_of(self.data.per_s(now));
        share.saturating_add(self.bytes_per_s_min)
    }

    fn share_of(&self, bytes: u64) -> u64 {
        let share = u128::from(bytes) * u128::from(self.share_percent) / 100;
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Returns the index of this host's entry. A new host takes an empty entry. If none is empty,
    /// it takes the entry of the host that was granted the fewest bytes in about the last second.
    /// Of several such hosts, it takes the entry of the host that has been silent longest.
    fn entry_of(&mut self, now: Instant, host: IpAddr) -> usize {
        let own = |entry: &Host| entry.address == Some(host);
        let worth = |entry: &Host| {
            let is_taken = entry.address.is_some();
            (is_taken, entry.granted.per_s(now), entry.asked_at)
        };
        let least = || (0..HOSTS).min_by_key(|&index| worth(&self.hosts[index]));
        let index = self.hosts.iter().position(own).or_else(least);
        let index = index.expect("there are entries");
        if self.hosts[index].address != Some(host) {
            self.hosts[index] = Host {
                address: Some(host),
                ..Host::default()
            };
        }
        self.hosts[index].asked_at = now;
        index
    }

    /// Returns true when the host was granted at most its part of `rate` in about the last second.
    /// The part is `rate` divided by one more than the number of hosts granted repairs in that
    /// time.
    fn is_within_part(&self, now: Instant, index: usize, rate: u64) -> bool {
        let granted = |entry: &Host| entry.granted.per_s(now);
        let others = self.hosts.iter().filter(|entry| granted(entry) > 0).count() as u64;
        granted(&self.hosts[index]) <= rate / (others + 1)
    }
}

/// A count of the bytes of about the last second. With each eighth of a second that passes, the
/// count loses an eighth.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    bytes: u64,
    /// The eighth of a second in which `bytes` was last brought up to date.
    step: u64,
}

impl Recent {
    #[inline]
    fn add(&mut self, now: Instant, bytes: u64) {
        let step = step_of(now);
        if step != self.step {
            *self = Self {
                bytes: self.per_s(now),
                step,
            };
        }
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Returns the number of bytes that were added in about the last second.
    fn per_s(&self, now: Instant) -> u64 {
        let steps = step_of(now).saturating_sub(self.step);
        let mut bytes = self.bytes;
        for _ in 0..steps {
            if bytes == 0 {
                break;
            }
            bytes -= bytes.div_ceil(8);
        }
        bytes
    }
}

const fn step_of(now: Instant) -> u64 {
    now.as_nanos() / (SECOND.as_nanos() as u64 / 8)
}

/// Returns how long the source waits before it repairs a packet for strangers again. After the
/// first repair, this is the elimination interval. Each further repair makes the time four times as
/// long, up to [`ELIMINATION_MAX`], or up to the elimination interval if that is longer.
pub(super) fn elimination_of(elimination: Duration, repairs: u32) -> Duration {
    let steps = repairs.saturating_sub(1).min(REPAIRS_MAX);
    let longer = elimination.saturating_mul(4_u32.pow(steps));
    longer.min(ELIMINATION_MAX).max(elimination)
}

/// How many times a packet is repaired for strangers before further repairs must be earned by NAKs.
/// A judgement: when the elimination interval is 4 ms, a packet's first and eighth repair are at
/// least 3.3 seconds apart. So even if others ask all the time, a receiver that hears nothing for
/// less than that can still get a repair.
pub(super) const REPAIRS_MAX: u32 = 8;
/// The bytes of repairs that a stranger earns with each byte of its NAKs. With the NCF, which is
/// as long as the NAK, a NAK brings three times its bytes.
const ASKED_FACTOR: u64 = 2;
/// An upper bound for the length of a NAK in bytes. The longest NAK asks for 63 packets, over IPv6;
/// all headers are included.
const NAK_BYTES_MAX: u64 = 400;
const SECOND: Duration = Duration::from_secs(1);
/// How many strangers can have an entry at the same time. A further stranger takes over the entry
/// of the host that was granted the fewest bytes in about the last second. The number is a
/// judgement.
const HOSTS: usize = 16;
/// The longest wait between two repairs of a packet for strangers, unless the elimination interval
/// is longer. A judgement: a receiver repeats its request for at least ten seconds. With a wait of
/// one second, it can have all [`REPAIRS_MAX`] repairs of the packet in that time.
const ELIMINATION_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 8));

    fn at(ms: u64) -> Instant {
        Instant::from_nanos((1_000_000 + ms) * 1_000_000)
    }

    fn strangers() -> Strangers {
        Strangers::new(&Config::default(), at(0))
    }

    /// Bytes that `host` gets in `ms` milliseconds from `from` on, asking for 63 packets of 1500
    /// bytes in each.
    fn granted(strangers: &mut Strangers, host: IpAddr, from: u64, ms: u64) -> usize {
        let asked = (from..from + ms).flat_map(|ms| [at(ms); 63]);
        1500 * asked
            .filter(|&now| strangers.grant(now, host, 1500, 0))
            .count()
    }

    #[test]
    fn an_idle_source_repairs_at_the_floor() {
        let got = granted(&mut strangers(), A, 0, 4000);
        assert!((5_000_000..6_500_000).contains(&got), "{got}");
    }

    #[test]
    fn a_busy_source_repairs_a_quarter_of_its_data_and_less_when_it_rests() {
        let mut strangers = strangers();
        for ms in 0..3000 {
            strangers.data_sent(at(ms), 40_000);
        }
        let mut got = 0;
        for ms in 3000..5000 {
            strangers.data_sent(at(ms), 40_000);
            got += granted(&mut strangers, A, ms, 1);
        }
        let share = 2 * 40_000_000 / 4;
        assert!((share..share * 7 / 4).contains(&got), "{got}");
        let rest = granted(&mut strangers, A, 5001, 10_000);
        let floor = 10 * 1_250_000;
        assert!((floor..floor + share / 2).contains(&rest), "{rest}");
    }

    #[test]
    fn one_that_asks_without_end_leaves_another_its_part() {
        let mut strangers = strangers();
        granted(&mut strangers, A, 0, 3000);
        let (mut got, mut refused) = (0, 0);
        for ms in 3000..5000 {
            granted(&mut strangers, A, ms, 1);
            // 100 packets a second: 150 kB/s.
            if ms % 10 == 0 {
                let is_granted = strangers.grant(at(ms), B, 1500, 0);
                *(if is_granted { &mut got } else { &mut refused }) += 1;
            }
        }
        assert_eq!((got, refused), (200, 0));
    }

    #[test]
    fn beyond_a_packets_eight_repairs_a_host_has_twice_the_bytes_that_it_asked_with() {
        let mut strangers = strangers();
        let mut got = 0;
        for ms in 0..20_000 {
            strangers.asked(at(ms), A, 64);
            got += usize::from(strangers.grant(at(ms), A, 1500, REPAIRS_MAX));
        }
        assert_eq!(got, 2 * 64 * 20_000 / 1500);
        assert!(
            !strangers.grant(at(20_000), B, 1500, REPAIRS_MAX),
            "each for itself"
        );
        assert!(strangers.grant(at(20_000), B, 1500, REPAIRS_MAX - 1));
        // No more than one packet is saved up.
        (0..100_000).for_each(|_| strangers.asked(at(30_000), B, 64));
        let at_once = (0..100).filter(|_| strangers.grant(at(30_000), B, 1500, REPAIRS_MAX));
        assert_eq!(at_once.count(), 1);
    }

    #[test]
    fn the_time_grows_fourfold_with_each_repair_within_bounds() {
        let ms = Duration::from_millis;
        let times: Vec<_> = [0, 1, 2, 3, 4, 5, 8, 200]
            .iter()
            .map(|&repairs| elimination_of(ms(4), repairs))
            .collect();
        assert_eq!(times, [4, 4, 16, 64, 256, 1000, 1000, 1000].map(ms));
        assert_eq!(elimination_of(ms(1900), 7), ms(1900), "what is set is kept");
    }
}
