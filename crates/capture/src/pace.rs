//! When each replayed packet is due, and how exactly it left.
//!
//! Deadlines are computed from the beginning, so that no error adds up. The wait sleeps until
//! shortly before the deadline and then looks at the clock without pause: the kernel wakes sleepers
//! tens of microseconds late. Packets may be late, for example because another process had the
//! processor. Then each gap is shortened by a sixteenth until they are on time, or by half while
//! they are more than a millisecond late. Packets without gaps would overrun the receiver. Packets
//! that leave in bursts have one deadline for each burst. The wait for it only sleeps, so that
//! others can use the processor. So the bursts are a little late.

use std::time::Duration;

use base::Instant;
use sys::clock;

use crate::Packet;

/// What decides when a replay's packets leave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum ReplayTiming {
    /// Nothing: they leave as fast as the sink takes them.
    #[default]
    TopSpeed,
    /// This many packets a second, evenly spaced.
    Packets(u64),
    /// This many bits of frames a second, without preamble and gap.
    Bits(u64),
    /// The packets' own time stamps, this many times as fast.
    Stamps(f64),
}

/// A pacer, which tells when packets are due, and records when they left.
#[derive(Debug)]
pub struct Pacer {
    pace: ReplayTiming,
    burst_packets: u64,
    started: Option<Instant>,
    packets: u64,
    bits: u128,
    first_stamp_ns: u64,
    last: Option<(Instant, Instant)>,
    errors: GapErrors,
    sleep_margin: Duration,
}

impl Pacer {
    /// Makes a pacer that stands before the first packet; `burst` packets, at least 1, leave
    /// together.
    #[must_use]
    pub fn new(pace: ReplayTiming, burst: u64) -> Self {
        // Without this, the kernel may wake this thread 50 us later than it could.
        let _comfort = clock::set_timer_slack(Duration::from_nanos(1));
        Self {
            pace,
            burst_packets: burst.max(1),
            started: None,
            packets: 0,
            bits: 0,
            first_stamp_ns: 0,
            last: None,
            errors: GapErrors::default(),
            sleep_margin: if burst > 1 {
                Duration::ZERO
            } else {
                SLEEP_MARGIN
            },
        }
    }

    /// Returns when the packet is due; `None` when it leaves at once, as all packets of a burst
    /// except the first do. Call it once for each packet.
    pub fn due(&mut self, packet: &Packet<'_>) -> Option<Instant> {
        if self.pace == ReplayTiming::TopSpeed {
            return None;
        }
        let started = *self.started.get_or_insert_with(|| {
            self.first_stamp_ns = packet.stamp_ns;
            clock::monotonic()
        });
        let offset_ns = match self.pace {
            ReplayTiming::TopSpeed => 0,
            ReplayTiming::Packets(rate) => {
                u128::from(self.packets) * NANOS / u128::from(rate.max(1))
            }
            ReplayTiming::Bits(rate) => self.bits * NANOS / u128::from(rate.max(1)),
            ReplayTiming::Stamps(speed) => {
                let since = packet.stamp_ns.saturating_sub(self.first_stamp_ns);
                (since as f64 / speed.max(f64::MIN_POSITIVE)) as u128
            }
        };
        let is_first = self.packets.is_multiple_of(self.burst_packets);
        self.packets += 1;
        let offset_ns = u64::try_from(offset_ns).unwrap_or(u64::MAX);
        is_first.then(|| started + Duration::from_nanos(offset_ns))
    }

    /// Returns true when the packet of the last call of [`Pacer::due`] ends its burst.
    #[must_use]
    pub const fn ends_burst(&self) -> bool {
        self.packets.is_multiple_of(self.burst_packets)
    }

    /// Waits for a deadline. Returns false when `is_stopped` ended the wait.
    pub fn wait(&self, due: Instant, is_stopped: &dyn Fn() -> bool) -> bool {
        let leave_at = self.leave_at(due);
        loop {
            let left = leave_at.since(clock::monotonic());
            if left.is_zero() {
                return true;
            }
            if left > self.sleep_margin {
                let nap = (left - self.sleep_margin).min(NAP_MAX);
                std::thread::sleep(nap);
                if is_stopped() {
                    return false;
                }
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Notes that the packet that was due at `due` has left. `wire_bytes` are those of the frame
    /// that left, which may be longer or shorter than the frame that was read.
    pub fn left(&mut self, due: Option<Instant>, wire_bytes: u64) {
        self.bits += u128::from(wire_bytes) * 8;
        let Some(due) = due else {
            return;
        };
        let now = clock::monotonic();
        if let Some((last_due, last_left)) = self.last {
            let wanted = due.since(last_due).as_nanos();
            let achieved = now.since(last_left).as_nanos();
            let error = wanted.abs_diff(achieved);
            self.errors.add(u64::try_from(error).unwrap_or(u64::MAX));
        }
        self.last = Some((due, now));
    }

    /// Returns when to send the packet that is due at `due`. When the last packet was late, this is
    /// later than `due`, so that the gap between the two packets is nearly kept.
    fn leave_at(&self, due: Instant) -> Instant {
        match self.last {
            Some((last_due, last_left)) if self.burst_packets == 1 => {
                let gap = due.since(last_due);
                let regained = if last_left.since(last_due) > LATE {
                    gap / 2
                } else {
                    gap / GAPS_TO_CATCH_UP
                };
                due.max(last_left + (gap - regained))
            }
            _ => due,
        }
    }

    /// Returns the rate from the first deadline to the last, as a share of the wanted rate; `None`
    /// when the two deadlines are less than 10 ms apart.
    #[must_use]
    pub fn attained(&self) -> Option<f64> {
        let (due, left) = self.last?;
        let started = self.started?;
        let wanted = due.since(started);
        (wanted >= ATTAINED_SPAN)
            .then(|| wanted.as_secs_f64() / left.since(started).max(wanted).as_secs_f64())
    }

    /// Returns the errors of the gaps between packets.
    #[must_use]
    pub const fn errors(&self) -> &GapErrors {
        &self.errors
    }
}

/// Errors of gaps in nanoseconds, in buckets of 3 % width.
#[derive(Clone, Debug)]
pub struct GapErrors {
    buckets: Vec<u64>,
    count: u64,
    max_ns: u64,
}

impl Default for GapErrors {
    fn default() -> Self {
        Self {
            buckets: vec![0; (64 - FINE_BITS as usize + 1) << FINE_BITS],
            count: 0,
            max_ns: 0,
        }
    }
}

impl GapErrors {
    fn add(&mut self, ns: u64) {
        self.buckets[bucket(ns)] += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Returns the error that a share (0 to 1) of the gaps does not exceed; 0 when there are no
    /// gaps.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return upper_end(at).min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// Returns the number of gaps measured.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the largest error, in nanoseconds.
    #[must_use]
    pub const fn max_ns(&self) -> u64 {
        self.max_ns
    }
}

/// Returns the bucket of a value. The value's power of two and the [`FINE_BITS`] bits after its
/// first bit decide it.
fn bucket(value: u64) -> usize {
    let fine = 1 << FINE_BITS;
    if value < fine {
        return value as usize;
    }
    let power = value.ilog2() - FINE_BITS;
    ((power as usize + 1) << FINE_BITS) + ((value >> power) - fine) as usize
}

/// Returns the largest value of a bucket.
fn upper_end(at: usize) -> u64 {
    let fine = 1_usize << FINE_BITS;
    if at < fine {
        return at as u64;
    }
    let power = (at >> FINE_BITS) - 1;
    let first = ((fine + at % fine) as u128) << power;
    u64::try_from(first + (1 << power) - 1).unwrap_or(u64::MAX)
}

const NANOS: u128 = 1_000_000_000;
/// 32 buckets for each power of two.
const FINE_BITS: u32 = 5;
/// The delay within which the kernel nearly always wakes a sleeper.
const SLEEP_MARGIN: Duration = Duration::from_micros(120);
/// When a packet was later than this, the next gap is shortened by half.
const LATE: Duration = Duration::from_millis(1);
/// A sender that is one gap late has caught up after this many packets.
const GAPS_TO_CATCH_UP: u32 = 16;
/// A rate over a shorter time would mostly measure the first packet.
const ATTAINED_SPAN: Duration = Duration::from_millis(10);
/// The longest sleep, so that a stop is noticed in time.
const NAP_MAX: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::packet;

    #[test]
    fn deadlines_do_not_drift() {
        let frame = [0; 125];
        let mut even = Pacer::new(ReplayTiming::Packets(3), 1);
        let first = even.due(&packet(&frame, 5)).unwrap();
        for _ in 1..3_000_000 {
            even.due(&packet(&frame, 5)).unwrap();
        }
        let last = even.due(&packet(&frame, 5)).unwrap();
        assert_eq!(last.since(first), Duration::from_secs(1_000_000));
        let mut bits = Pacer::new(ReplayTiming::Bits(1_000_000), 1);
        let first = bits.due(&packet(&frame, 5)).unwrap();
        bits.left(Some(first), 125);
        assert_eq!(
            bits.due(&packet(&frame, 5)).unwrap().since(first),
            Duration::from_millis(1)
        );
        let mut stamps = Pacer::new(ReplayTiming::Stamps(2.0), 1);
        let first = stamps.due(&packet(&frame, 1_000)).unwrap();
        let second = stamps.due(&packet(&frame, 5_000)).unwrap();
        assert_eq!(second.since(first), Duration::from_micros(2));
        assert!(
            Pacer::new(ReplayTiming::TopSpeed, 1)
                .due(&packet(&frame, 5))
                .is_none()
        );
    }

    #[test]
    fn a_burst_has_one_deadline() {
        let frame = [0; 60];
        let mut pacer = Pacer::new(ReplayTiming::Packets(1000), 4);
        let dues: Vec<_> = (0..9)
            .map(|_| (pacer.due(&packet(&frame, 5)), pacer.ends_burst()))
            .collect();
        let first = dues[0].0.unwrap();
        for (number, (due, ends)) in dues.iter().enumerate() {
            let wanted = (number % 4 == 0).then(|| first + Duration::from_millis(number as u64));
            assert_eq!((*due, *ends), (wanted, number % 4 == 3), "{number}");
        }
    }

    #[test]
    fn lost_time_is_regained_slowly() {
        let micros = Duration::from_micros;
        let mut pacer = Pacer::new(ReplayTiming::Packets(10_000), 1);
        let start = Instant::ZERO + micros(1_000_000);
        let (mut due, mut left) = (start, start + micros(1_600));
        let mut packets = 0;
        while left > due {
            pacer.last = Some((due, left));
            due += micros(100);
            let last_left = std::mem::replace(&mut left, pacer.leave_at(due));
            let error = micros(100) - left.since(last_left);
            assert!(error <= micros(100) / 2, "{error:?}");
            assert!(error <= micros(100) / 16 || left.since(due) >= LATE - micros(50));
            packets += 1;
        }
        assert_eq!(packets, 12 + 160, "6 gaps by halves, then 10 by sixteenths");
        let mut burst = Pacer::new(ReplayTiming::Packets(10_000), 4);
        burst.last = Some((start, left));
        assert_eq!(burst.leave_at(due), due);
    }

    #[test]
    fn the_attained_rate_is_a_share_of_the_wanted_one() {
        let millis = Duration::from_millis;
        let start = Instant::ZERO + millis(1_000);
        let mut pacer = Pacer::new(ReplayTiming::Packets(10_000), 1);
        assert_eq!(pacer.attained(), None);
        pacer.started = Some(start);
        pacer.last = Some((start + millis(9), start + millis(20)));
        assert_eq!(pacer.attained(), None, "too short to tell");
        pacer.last = Some((start + millis(500), start + millis(2_000)));
        assert_eq!(pacer.attained(), Some(0.25));
        pacer.last = Some((start + millis(500), start + millis(500)));
        assert_eq!(pacer.attained(), Some(1.0));
    }

    #[test]
    fn quantiles_are_right_to_three_per_cent() {
        let mut errors = GapErrors::default();
        (1..=10_000).for_each(|ns| errors.add(ns * 100));
        for (share, right) in [(0.5, 500_000.0), (0.99, 990_000.0)] {
            let found = errors.quantile_ns(share) as f64;
            assert!((found / right - 1.0).abs() < 0.032, "{found} for {right}");
        }
        assert_eq!(
            (errors.quantile_ns(1.0), errors.max_ns()),
            (1_000_000, 1_000_000)
        );
        for value in [0, 31, 32, 33, 1 << 40, u64::MAX] {
            assert!(upper_end(bucket(value)) >= value);
        }
    }
}
