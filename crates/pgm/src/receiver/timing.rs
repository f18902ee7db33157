//! The timers of one session's NAKs, and how they follow the network and the number of receivers.
//!
//! The timers begin as on a LAN and follow measurements, except those that the configuration sets.
//! In: times from this receiver's NAKs to their confirmations and on to the repairs, and how many
//! receivers the sender counts. Out: the timers.
//!
//! ```text
//!   missed ........ NAK ............ NCF ............. RDATA
//!          back-off     round trip,      data, its
//!                       its lateness     lateness
//!
//!   back_off_min  1/16 round trip, within 200 us to 2 ms: packets may arrive reordered
//!   back_off_max  back_off_min and, in a large group, up to four round trips
//!   wait_ncf      1.25 round trips, and four times the mean lateness of confirmations
//!   wait_data     1/8 round trip, the mean time of repairs, and four times their mean lateness
//!
//!   density of the back-off, group of 1:   |              group of 1,000:            __/
//!                                         min                            min ______--  max
//! ```
//!
//! In a large group only a few receivers draw a short back-off, and the first NAK silences the
//! rest. So the number of NAKs for a packet that all receivers lost grows only with the logarithm
//! of the group's size. A lone receiver has no other receiver to wait for.
//!
//! **Spec**: RFC 3208 section 6.3 (NAK_RB_IVL, NAK_RPT_IVL, NAK_RDATA_IVL) and 15.2.2. The
//! truncated exponential back-off and its bound of four round trips are those of RFC 5401 section
//! 3.2.3. The smoothing is that of RFC 6298. Deviation: RFC 3208 draws the back-off uniformly.

use std::time::Duration;

use base::Rng;

use crate::{Config, Timer};

/// The present timers of one session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// The shortest and the longest back-off (NAK_BO_IVL), the random wait before a NAK.
    pub(super) back_off_min: Duration,
    pub(super) back_off_max: Duration,
    /// How long a NAK waits for its confirmation (NAK_RPT_IVL).
    pub(super) wait_ncf: Duration,
    /// How long a confirmed NAK waits for its repair (NAK_RDATA_IVL).
    pub(super) wait_data: Duration,
    /// The most NAKs for a packet without a confirmation (NAK_NCF_RETRIES), and with a confirmation
    /// but without a repair (NAK_DATA_RETRIES), once `repair_time_max` has passed.
    pub(super) ncf_tries_max: u16,
    pub(super) data_tries_max: u16,
    /// The shortest time before a missing packet counts as lost, however many NAKs were sent.
    pub(super) repair_time_max: Duration,
    /// The pause between two scans of all gaps. It bounds the work when there are very many gaps.
    pub(super) scan_interval: Duration,
    /// The timers as configured.
    set: TimersSet,
    told: BackOffTold,
    /// Number of receivers: as counted by the sender, or as assumed.
    group_size: u32,
    /// The round trip: the shortest recent time from a NAK to its confirmation; zero before a
    /// round trip is known.
    round_trip: Duration,
    /// How much longer than the round trip a confirmation takes on average.
    confirmation_late: Duration,
    /// The shortest time from a NAK to its confirmation among the samples counted so far, and the
    /// number of these samples; both begin anew after [`SAMPLES`] samples.
    least: Duration,
    samples: u8,
    /// Mean time from a confirmation to its repair, and by how much repairs exceed this mean on
    /// average; `None` before they are known.
    data: Option<(Duration, Duration)>,
    /// The number of repairs in a row that came after the wait for them had ended, and the shortest
    /// time that one of these repairs took after its confirmation.
    late_repairs: u8,
    late_repair: Duration,
}

/// The timers as configured; those that are [`Timer::Auto`] follow measurements.
#[derive(Clone, Copy, Debug)]
struct TimersSet {
    back_off_min: Timer,
    back_off_max: Timer,
    wait_ncf: Timer,
    wait_data: Timer,
}

/// What the sender or a network element says of the longest back-off (NAK_BO_IVL).
#[derive(Clone, Copy, Debug, Default)]
struct BackOffTold {
    interval: Option<Duration>,
    /// The shortest and the longest value that the longest back-off may have.
    range: Option<(Duration, Duration)>,
}

impl BackOffTold {
    /// Returns the longest back-off: the value named in packets, or `own` if no packet named one.
    /// The result stays within the range named in packets, if there is one.
    fn apply(&self, own: Duration) -> Duration {
        let told = self.interval.unwrap_or(own);
        match self.range {
            Some((min, max)) => told.clamp(min, max),
            None => told,
        }
    }
}

impl Timing {
    pub(super) fn new(config: &Config) -> Self {
        let set = TimersSet {
            back_off_min: config.nak_backoff_min(),
            back_off_max: config.nak_backoff_max(),
            wait_ncf: config.nak_repeat_interval(),
            wait_data: config.nak_rdata_interval(),
        };
        let mut timing = Self {
            back_off_min: Duration::ZERO,
            back_off_max: Duration::ZERO,
            wait_ncf: set.wait_ncf.or(WAIT_NCF_START),
            wait_data: set.wait_data.or(WAIT_DATA_START),
            ncf_tries_max: u16::try_from(config.nak_ncf_retries()).unwrap_or(u16::MAX),
            data_tries_max: u16::try_from(config.nak_data_retries()).unwrap_or(u16::MAX),
            repair_time_max: config.repair_time_max(),
            scan_interval: SCAN_INTERVAL_MAX,
            set,
            told: BackOffTold::default(),
            group_size: GROUP_SIZE_ASSUMED,
            round_trip: Duration::ZERO,
            confirmation_late: Duration::ZERO,
            least: ROUND_TRIP_MAX,
            samples: 0,
            data: None,
            late_repairs: 0,
            late_repair: ROUND_TRIP_MAX,
        };
        timing.set_back_off(BACK_OFF_MIN, SPREAD_START);
        timing.scan_interval = (timing.back_off_max / 16).min(SCAN_INTERVAL_MAX);
        timing
    }

    /// Takes the number of receivers that the sender counts; 0 when the sender does not know it.
    pub(super) fn count_group(&mut self, receivers: u32) {
        self.group_size = match receivers {
            0 => GROUP_SIZE_ASSUMED,
            count => count.min(GROUP_SIZE_MAX),
        };
        self.follow();
    }

    /// Takes the value that a packet sets for the longest back-off (OPT_NAK_BO_IVL).
    pub(super) fn tell_interval(&mut self, interval: Duration) {
        self.told.interval = Some(interval.clamp(BACK_OFF_MIN, BACK_OFF_TOLD_MAX));
        self.follow();
    }

    /// Takes the range that a packet sets for the longest back-off (OPT_NAK_BO_RNG). Ignores an
    /// empty range.
    pub(super) fn tell_range(&mut self, min: Duration, max: Duration) {
        if min <= max && !max.is_zero() {
            let range = [min, max].map(|it| it.min(BACK_OFF_TOLD_MAX));
            self.told.range = Some((range[0], range[1]));
            self.follow();
        }
    }

    /// Notes that a confirmation came `sample` after the first NAK for its packet.
    ///
    /// A loss on the way only makes a sample longer, so the shortest of several samples is the
    /// round trip. If the NAK was repeated before the confirmation came, this sample alone is not
    /// taken as the round trip (Karn's algorithm), but it makes the next wait longer.
    pub(super) fn confirmed_after(&mut self, sample: Duration) {
        let sample = sample.min(ROUND_TRIP_MAX);
        let is_repeated = sample > self.wait_ncf;
        self.least = self.least.min(sample);
        self.samples += 1;
        if self.samples == SAMPLES {
            self.round_trip = self.least;
            (self.least, self.samples) = (ROUND_TRIP_MAX, 0);
        } else if !is_repeated && (self.round_trip.is_zero() || sample < self.round_trip) {
            self.round_trip = sample;
        }
        if self.round_trip.is_zero() {
            let longer = (self.wait_ncf * 2).min(sample * 3 / 2);
            self.wait_ncf = self.set.wait_ncf.or(longer);
            return;
        }
        let late = sample.saturating_sub(self.round_trip);
        self.confirmation_late = (self.confirmation_late * 7 + late.min(self.wait_ncf / 2)) / 8;
        self.follow();
    }

    /// Notes that a repair came `sample` after its confirmation. A repair later than `wait_data` is
    /// late and does not count: usually the first repair was lost, or a host stood still. But after
    /// [`LATE_REPAIRS`] late repairs in a row the source is probably slow, and the shortest of
    /// their times counts.
    pub(super) fn repaired_after(&mut self, sample: Duration) {
        let sample = sample.min(ROUND_TRIP_MAX);
        let is_late = sample > self.wait_data;
        if is_late {
            self.late_repairs += 1;
            self.late_repair = self.late_repair.min(sample);
            if self.late_repairs < LATE_REPAIRS {
                return;
            }
        }
        self.data = match self.data {
            Some((mean, late)) if !is_late => {
                let late = (late * 3 + sample.saturating_sub(mean)) / 4;
                Some(((mean * 7 + sample) / 8, late))
            }
            _ => {
                let sample = sample.min(self.late_repair);
                Some((sample, sample / 4))
            }
        };
        (self.late_repairs, self.late_repair) = (0, ROUND_TRIP_MAX);
        self.follow();
    }

    fn follow(&mut self) {
        let round_trip = self.round_trip;
        // A lone receiver has no other receiver to wait for. A few receivers cannot send many NAKs:
        // even on a long path they wait no longer than on a LAN, so that repairs come sooner.
        let doublings = self.group_size.ilog2();
        let many = doublings.saturating_sub(FEW_DOUBLINGS).min(MANY_DOUBLINGS);
        let nearby = LISTENING_FEW * doublings.min(FEW_DOUBLINGS) + LISTENING_MANY * many;
        if round_trip.is_zero() {
            self.set_back_off(BACK_OFF_MIN, SPREAD_START * doublings.min(4) / 4);
            return;
        }
        let wait = round_trip * 5 / 4 + self.confirmation_late * 4;
        self.wait_ncf = self.set.wait_ncf.or(wait.max(WAIT_MIN));
        if let Some((mean, late)) = self.data {
            let wait = round_trip / 8 + mean + late * 4;
            self.wait_data = self.set.wait_data.or(wait.max(WAIT_MIN));
        }
        let factor = doublings.saturating_sub(FEW_DOUBLINGS).min(4);
        let listening = (round_trip + self.confirmation_late) * factor;
        let reordering = (round_trip / 16).clamp(BACK_OFF_MIN, REORDERING_MAX);
        self.set_back_off(reordering, listening.max(nearby));
    }

    /// Sets the shortest back-off to `min` and the longest to `min + spread`, unless the
    /// configuration or packets set other values.
    fn set_back_off(&mut self, min: Duration, spread: Duration) {
        let min = self.set.back_off_min.or(min);
        self.back_off_max = self.set.back_off_max.or(self.told.apply(min + spread));
        self.back_off_min = min.min(self.back_off_max);
    }

    /// Draws the back-off, the random wait before a NAK. It is never zero, because the
    /// missing packet may only be out of order.
    #[doc(alias = "NAK_BO_IVL")]
    pub(super) fn draw_back_off(&self, rng: &mut Rng) -> Duration {
        let spread = self.back_off_max.saturating_sub(self.back_off_min);
        let spread_ns = u64::try_from(spread.as_nanos()).unwrap_or(u64::MAX);
        // With x uniform in 1..=top, log(x) / log(top) has an exponential density over 0..=1.
        let top = E * u64::from(self.group_size.max(1));
        let part = u128::from(log2(rng.between(ONE, top)));
        let wait_ns = u128::from(spread_ns) * part / u128::from(log2(top));
        let wait = Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(spread_ns));
        (self.back_off_min + wait).max(Duration::from_nanos(1))
    }

    /// Returns how long a NAK waits for its confirmation. If the configuration sets a time, every
    /// NAK waits that long. Otherwise a NAK with `is_patient` waits for more than a round trip, and
    /// any other NAK for at most [`WAIT_AGAIN_MAX`], even where a round trip is longer: so a packet
    /// whose first NAK or repair was lost does not wait a round trip more for each further NAK.
    pub(super) fn wait_confirmed(&self, is_patient: bool) -> Duration {
        if is_patient || self.set.wait_ncf != Timer::Auto {
            return self.wait_ncf;
        }
        self.wait_ncf.min(WAIT_AGAIN_MAX)
    }

    /// Returns the time to add to the back-off after `tries` requests without an answer. It is 0
    /// after the first try and about doubles with each further try: NAKs must not flood a source
    /// that cannot answer yet.
    pub(super) fn patience(&self, tries: u16) -> Duration {
        let doublings = u32::from(tries.saturating_sub(1)).min(PATIENCE_DOUBLINGS_MAX);
        // On a long path the wait for a confirmation is long already: no more time is added than on
        // a LAN.
        let step = self.wait_ncf.min(self.set.wait_ncf.or(WAIT_NCF_START));
        (step * ((1 << doublings) - 1)).min(step.max(PATIENCE_MAX))
    }

    /// Returns how long another receiver's NAK keeps this receiver from asking for the same packet.
    pub(super) fn wait_silenced(&self) -> Duration {
        self.wait_ncf.max(self.wait_data)
    }
}

/// Returns the binary logarithm of a number of at least 1. Argument and result are fixed-point
/// numbers with 16 binary places. Between powers of two the result is linear, which is close enough
/// for drawing a back-off.
const fn log2(number: u64) -> u64 {
    let power = 63 - number.leading_zeros() as u64;
    let fraction = (number << (63 - power) << 1) >> 48;
    ((power - 16) << 16) + fraction
}

/// The longest back-off that packets from the network can set. A judgement.
const BACK_OFF_TOLD_MAX: Duration = Duration::from_secs(1);
/// The numbers 1 and e, as fixed-point numbers with 16 binary places.
const ONE: u64 = 1 << 16;
const E: u64 = 178_145;
/// The assumed number of receivers, used while the sender does not know the number. A judgement:
/// too large a number makes a lone receiver wait needlessly, too small a number lets a large group
/// send a storm of NAKs.
const GROUP_SIZE_ASSUMED: u32 = 128;
/// The largest group size that is taken into account: a sender that claims more receivers cannot
/// make them wait longer.
const GROUP_SIZE_MAX: u32 = 100_000;
/// Bounds of the time that [`Timing::patience`] adds: at most 8 doublings, and at most
/// [`PATIENCE_MAX`] or one wait for a confirmation, whichever is longer.
const PATIENCE_DOUBLINGS_MAX: u32 = 8;
const PATIENCE_MAX: Duration = Duration::from_millis(150);
/// How long reordering may delay a packet on a LAN, and the longest such delay on other paths: the
/// bounds of the shortest back-off. A judgement.
const BACK_OFF_MIN: Duration = Duration::from_micros(200);
const REORDERING_MAX: Duration = Duration::from_millis(2);
/// The largest `ilog2` of a small group's size: a group of fewer than 16 receivers is small.
const FEW_DOUBLINGS: u32 = 3;
/// Used until something is measured, and right for a LAN with busy hosts: the random part of the
/// back-off, and the waits for a confirmation and for a repair.
const SPREAD_START: Duration = Duration::from_micros(1800);
const WAIT_NCF_START: Duration = Duration::from_millis(10);
const WAIT_DATA_START: Duration = Duration::from_millis(20);
/// The shortest wait for a confirmation or a repair. A judgement: a busy host may need 1 ms to
/// answer although nothing is lost.
const WAIT_MIN: Duration = Duration::from_millis(1);
/// Steps that add up to the random part of the back-off on a LAN: the first for each of the first
/// `FEW_DOUBLINGS` doublings of the group's size, the second for each of the next `MANY_DOUBLINGS`.
/// All steps together are `SPREAD_START`.
const LISTENING_FEW: Duration = Duration::from_micros(100);
const LISTENING_MANY: Duration = Duration::from_micros(500);
const MANY_DOUBLINGS: u32 = 3;
/// The longest that a NAK without `is_patient` waits for its confirmation: see
/// [`Timing::wait_confirmed`]. A source ignores repeats of a NAK for its elimination interval; this
/// is a little more than the longest that a source has by default.
const WAIT_AGAIN_MAX: Duration = Duration::from_millis(60);
/// After this many late repairs in a row, the wait for repairs follows the one that took least.
const LATE_REPAIRS: u8 = 4;
/// After this many samples, the shortest of them becomes the round trip, even if the round trip so
/// far was shorter.
const SAMPLES: u8 = 8;
const ROUND_TRIP_MAX: Duration = Duration::from_secs(1);
/// The longest pause between two scans of all gaps: a host's timers are that late anyway.
const SCAN_INTERVAL_MAX: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the mean back-off, and the mean of the earliest of `group_size` back-offs, in per
    /// cent of the longest.
    fn draws(group_size: u32) -> (u128, u128) {
        let mut timing = Timing::new(&Config::default());
        timing.back_off_min = Duration::ZERO;
        timing.group_size = group_size;
        let (mut rng, max) = (Rng::new(5), timing.back_off_max.as_nanos());
        let (mut sum, mut firsts) = (0, 0);
        for _ in 0..100 {
            let mut draw = || timing.draw_back_off(&mut rng).as_nanos();
            let all: Vec<u128> = (0..group_size).map(|_| draw()).collect();
            assert!(all.iter().all(|&wait| (1..=max).contains(&wait)));
            sum += all.iter().sum::<u128>() / u128::from(group_size);
            firsts += all.iter().min().unwrap();
        }
        (sum / max, firsts / max)
    }

    #[test]
    fn a_large_group_draws_late_and_its_earliest_not_at_once() {
        let (alone, first_alone) = draws(1);
        assert!((45..70).contains(&alone) && alone == first_alone, "{alone}");
        let (mean, first) = draws(1000);
        assert!((80..95).contains(&mean), "{mean}");
        assert!((3..25).contains(&first), "{first}");
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Lets the timers follow 20 repairs. Each is confirmed after `round_trip`, and arrives `data`
    /// after its confirmation.
    fn measured(timing: &mut Timing, round_trip: Duration, data: Duration) {
        for _ in 0..20 {
            timing.confirmed_after(round_trip);
            timing.repaired_after(data);
        }
    }

    #[test]
    fn the_timers_follow_the_round_trip_both_ways() {
        let mut timing = Timing::new(&Config::default());
        assert_eq!((timing.wait_ncf, timing.wait_data), (ms(10), ms(20)));
        measured(&mut timing, ms(100), ms(4));
        assert!((ms(125)..ms(150)).contains(&timing.wait_ncf), "{timing:?}");
        assert!((ms(16)..ms(20)).contains(&timing.wait_data), "{timing:?}");
        assert!(
            (ms(400)..ms(430)).contains(&timing.back_off_max),
            "{timing:?}"
        );
        measured(&mut timing, Duration::from_micros(50), Duration::ZERO);
        assert!(timing.wait_ncf < ms(5), "{timing:?}");
        for _ in 0..5 {
            measured(&mut timing, Duration::from_micros(50), Duration::ZERO);
        }
        assert_eq!((timing.wait_ncf, timing.wait_data), (ms(1), ms(1)));
        assert_eq!(timing.back_off_max, ms(2));
    }

    #[test]
    fn who_is_alone_asks_at_once_and_few_do_not_wait_as_long_as_many() {
        let mut timing = Timing::new(&Config::default());
        measured(&mut timing, ms(16), ms(0));
        let mut longest = |group| {
            timing.count_group(group);
            (timing.back_off_max - timing.back_off_min).as_millis()
        };
        assert_eq!(
            [1, 8, 16, 32, 1000, 0].map(&mut longest),
            [0, 0, 16, 32, 64, 64]
        );
    }

    #[test]
    fn on_a_lan_many_listen_as_long_as_before_anything_is_measured() {
        let mut timing = Timing::new(&Config::default());
        measured(&mut timing, Duration::from_micros(50), ms(0));
        let mut longest = |group| {
            timing.count_group(group);
            (timing.back_off_max - timing.back_off_min).as_micros()
        };
        assert_eq!(
            [1, 2, 8, 16, 32, 64, 1000, 0].map(&mut longest),
            [0, 100, 300, 800, 1300, 1800, 1800, 1800]
        );
    }

    #[test]
    fn a_first_confirmation_of_a_repeated_nak_is_no_round_trip() {
        let mut timing = Timing::new(&Config::default());
        timing.confirmed_after(ms(13));
        assert!(timing.round_trip.is_zero(), "{timing:?}");
        assert_eq!(timing.wait_ncf, Duration::from_micros(19_500));
        timing.confirmed_after(ms(2));
        assert_eq!(timing.round_trip, ms(2));
        // The wait grows until it covers a long round trip: samples longer than the wait are not
        // believed.
        let mut timing = Timing::new(&Config::default());
        let samples = (0..20).find(|_| {
            timing.confirmed_after(ms(200));
            !timing.round_trip.is_zero()
        });
        assert_eq!((samples, timing.round_trip), (Some(5), ms(200)));
    }

    #[test]
    fn a_first_repair_that_was_late_is_not_believed_alone() {
        let mut timing = Timing::new(&Config::default());
        timing.confirmed_after(ms(1));
        for _ in 1..LATE_REPAIRS {
            timing.repaired_after(ms(900));
            assert_eq!(timing.wait_data, ms(20));
        }
        timing.repaired_after(ms(30));
        assert!((ms(30)..ms(70)).contains(&timing.wait_data), "{timing:?}");
        let mut timing = Timing::new(&Config::default());
        timing.confirmed_after(ms(1));
        timing.repaired_after(ms(900));
        timing.repaired_after(ms(2));
        assert!(timing.wait_data < ms(5), "{timing:?}");
    }

    #[test]
    fn repairs_that_come_sooner_are_not_late() {
        let mut timing = Timing::new(&Config::default());
        measured(&mut timing, ms(1), ms(16));
        let before = timing.wait_data;
        for _ in 0..4 {
            timing.repaired_after(ms(0));
            assert!(timing.wait_data < before, "{before:?} {timing:?}");
        }
    }

    #[test]
    fn confirmations_later_than_the_wait_make_it_longer_and_not_without_bound() {
        let mut timing = Timing::new(&Config::default());
        measured(&mut timing, ms(1), ms(0));
        let before = timing.wait_ncf;
        timing.confirmed_after(ms(900));
        assert!(timing.wait_ncf > before, "{timing:?}");
        assert!(timing.wait_ncf < before * 3 / 2, "{timing:?}");
        // Over a long time, one NAK in ten is lost.
        for n in 0..1000 {
            let repeated = timing.wait_ncf + ms(2);
            timing.confirmed_after(if n % 10 == 0 { repeated } else { ms(1) });
        }
        assert!(timing.wait_ncf < ms(4), "{timing:?}");
    }

    #[test]
    fn on_a_long_way_only_the_first_nak_waits_a_round_trip() {
        let mut timing = Timing::new(&Config::default());
        measured(&mut timing, ms(1), ms(0));
        assert_eq!(timing.wait_confirmed(false), timing.wait_confirmed(true));
        measured(&mut timing, ms(200), ms(0));
        assert!(timing.wait_confirmed(true) > ms(200));
        assert_eq!(timing.wait_confirmed(false), ms(60));
        assert_eq!(
            [1, 2, 3, 9].map(|tries| timing.patience(tries)),
            [0, 10, 30, 150].map(ms)
        );
    }

    #[test]
    fn repairs_that_take_long_make_the_wait_longer() {
        let mut timing = Timing::new(&Config::default());
        measured(&mut timing, ms(1), ms(0));
        let before = timing.wait_data;
        measured(&mut timing, ms(1), ms(300));
        assert!(timing.wait_data > ms(300), "{before:?} {timing:?}");
    }

    #[test]
    fn what_somebody_set_stays() {
        let mut builder = Config::builder();
        for (name, text) in [
            ("nak_backoff_max", "3ms"),
            ("nak_repeat_interval", "7ms"),
            ("nak_rdata_interval", "8ms"),
        ] {
            builder.set(name, text).unwrap();
        }
        let mut timing = Timing::new(&builder.build().unwrap());
        measured(&mut timing, ms(100), ms(50));
        assert_eq!((timing.wait_ncf, timing.wait_data), (ms(7), ms(8)));
        assert_eq!((timing.back_off_min, timing.back_off_max), (ms(2), ms(3)));
    }
}
