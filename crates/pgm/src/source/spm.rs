//! The times of SPMs: at the start and the end, while data flows, after data, on request.
//!
//! The module does not build SPMs. In: the times of data packets, SPMs and SPMRs. Out: the time of
//! the next SPM. Below, `S` is an SPM, `F` an SPM that announces the end, `d` a data packet, and
//! `h` a wait of IHB_MIN.
//!
//! ```text
//!   start  S h S h S            three, IHB_MIN apart: one lost burst cannot hide the session
//!   data   d S d d d S d d S    at once after a pause, then every spm_active
//!   idle   d h S 2h S 4h S ...  IHB_MIN doubling to IHB_MAX; each data packet starts over
//!   always                      never more than spm_ambient apart
//!   SPMR                        at once, but at least IHB_MIN and at least 5 ms after the last SPM
//!   end    F h F h F h F 2h ...  as at the start, then doubling to at most an eighth of `linger`
//! ```
//!
//! Deviation: in section 5.1.6 of the RFC, SPMs are `spm_ambient` apart while data flows. Here they
//! are only `spm_active` apart, so that receivers find within milliseconds what was lost just
//! before the sender pauses. `spm_ambient` remains as the upper bound.
//!
//! **Spec**: RFC 3208 sections 5.1.4, 5.1.5, 5.1.6, 9.7.2, 13.4.

use std::time::Duration;

use base::Instant;
use wire::Sqn;

use crate::{Config, Intervals, Timer};

/// The SPM timers of one source.
#[derive(Clone, Debug)]
pub(super) struct SpmSchedule {
    /// The sequence number of the next SPM.
    pub(super) sqn: Sqn,
    active: Duration,
    ambient: Duration,
    heartbeat_set: Timer,
    heartbeat_min: Duration,
    heartbeat_max: Duration,
    explicit: Intervals,
    spacing: Duration,
    /// The longest time between two heartbeats once the end of the session is announced.
    end_max: Duration,
    last: Option<Instant>,
    heartbeat_step: usize,
    heartbeat_due: Instant,
    quick_left: u32,
    has_data_since: bool,
    requested: Option<Instant>,
}

impl SpmSchedule {
    /// Makes a schedule whose first SPM is due at `now`.
    pub(super) const fn new(config: &Config, now: Instant) -> Self {
        Self {
            sqn: Sqn(0),
            active: config.spm_active(),
            ambient: config.spm_ambient(),
            heartbeat_set: config.spm_heartbeat_min(),
            heartbeat_min: config.spm_heartbeat_min().or(HEARTBEAT_MAX),
            heartbeat_max: config.spm_heartbeat_max(),
            explicit: config.spm_heartbeat(),
            spacing: Duration::ZERO,
            end_max: Duration::MAX,
            last: None,
            heartbeat_step: 0,
            heartbeat_due: now,
            quick_left: QUICK_COUNT,
            has_data_since: false,
            requested: None,
        }
    }

    /// Sets the shortest time between two SPMs, so that SPMs stay a small part of a low rate. If
    /// `spm_ambient` is shorter than `spacing`, it holds instead.
    pub(super) const fn set_spacing(&mut self, spacing: Duration) {
        self.spacing = spacing;
    }

    /// Sets the time before the first heartbeat to the longest round trip of the group, within
    /// [`HEARTBEAT_MIN`] and [`HEARTBEAT_MAX`], unless the configuration sets that time.
    pub(super) fn set_round_trip(&mut self, round_trip: Duration) {
        let measured = round_trip.clamp(HEARTBEAT_MIN, HEARTBEAT_MAX);
        self.heartbeat_min = self.heartbeat_set.or(measured.min(self.heartbeat_max));
    }

    /// Notes that ODATA or RDATA has left.
    pub(super) fn data_sent(&mut self, now: Instant) {
        self.has_data_since = true;
        self.heartbeat_step = 0;
        self.heartbeat_due = now + self.heartbeat_interval();
    }

    /// Notes that an SPM has left.
    pub(super) fn spm_sent(&mut self, now: Instant) {
        if self.quick_left > 0 {
            self.quick_left -= 1;
        } else if now >= self.heartbeat_due {
            self.heartbeat_step += 1;
        }
        self.heartbeat_due = now + self.heartbeat_interval();
        self.last = Some(now);
        self.sqn = self.sqn.next();
        self.has_data_since = false;
        self.requested = None;
    }

    /// Notes that an SPMR asks for an SPM. Returns false when a receiver had already asked for this
    /// SPM.
    pub(super) fn request(&mut self, now: Instant) -> bool {
        if self.requested.is_some() {
            return false;
        }
        let spacing = self.heartbeat_min.max(ANSWER_SPACING);
        let earliest = self.last.map_or(now, |last| last + spacing);
        self.requested = Some(earliest.max(now));
        true
    }

    /// Starts again with a few quick SPMs, the first at `now`, to announce the session's end. SPMs
    /// then announce it at least every eighth of `linger`, so that a receiver that was cut off for
    /// a while hears of it.
    pub(super) fn quicken(&mut self, now: Instant, linger: Duration) {
        self.end_max = (linger / 8).max(self.heartbeat_min);
        self.quick_left = QUICK_COUNT;
        self.heartbeat_step = 0;
        self.heartbeat_due = now;
    }

    /// Returns the time when the next SPM is due.
    pub(super) fn due(&self) -> Instant {
        let Some(last) = self.last else {
            return self.heartbeat_due;
        };
        let active = if self.has_data_since {
            last + self.active
        } else {
            Instant::NEVER
        };
        let requested = self.requested.unwrap_or(Instant::NEVER);
        let soonest = self.heartbeat_due.min(active).min(requested);
        soonest.max(last + self.spacing).min(last + self.ambient)
    }

    fn heartbeat_interval(&self) -> Duration {
        if self.quick_left > 0 {
            return self.heartbeat_min;
        }
        let interval = match self.explicit.as_slice() {
            [] => {
                let doublings = u32::try_from(self.heartbeat_step.min(31)).unwrap_or(31);
                let grown = self.heartbeat_min.saturating_mul(1 << doublings);
                grown.min(self.heartbeat_max)
            }
            list => list
                .get(self.heartbeat_step)
                .copied()
                .unwrap_or(self.ambient),
        };
        interval.min(self.end_max)
    }
}

/// Number of SPMs in quick succession at the start and at the end of a session.
const QUICK_COUNT: u32 = 3;
/// Bounds of the time before the first heartbeat. Within them, this time is the round trip. The
/// lower bound is the shortest time that a timer of a busy host can keep. The upper bound is used
/// while the round trip is unknown.
const HEARTBEAT_MIN: Duration = Duration::from_millis(1);
const HEARTBEAT_MAX: Duration = Duration::from_millis(5);
/// The shortest time between an SPM and the next SPM that answers an SPMR. It holds even when the
/// round trip is shorter, because any host can send SPMRs.
const ANSWER_SPACING: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    /// Sends every SPM when it is due until `end`. Returns the times in milliseconds.
    fn play(schedule: &mut SpmSchedule, end: Instant) -> Vec<u64> {
        let mut times = Vec::new();
        while schedule.due() <= end {
            let now = schedule.due();
            schedule.spm_sent(now);
            times.push(now.as_nanos() / 1_000_000);
        }
        times
    }

    fn config() -> Config {
        let text = [
            ("spm_heartbeat_min", "100ms"),
            ("spm_heartbeat_max", "1s"),
            ("spm_ambient", "10s"),
        ];
        let mut builder = Config::builder();
        for (name, value) in text {
            builder.set(name, value).unwrap();
        }
        builder.build().unwrap()
    }

    #[test]
    fn three_at_the_start_then_doubling_to_the_maximum() {
        let mut schedule = SpmSchedule::new(&config(), ms(0));
        let times = play(&mut schedule, ms(4500));
        assert_eq!(times, [0, 100, 200, 300, 500, 900, 1700, 2700, 3700]);
    }

    #[test]
    fn data_brings_the_active_interval_and_then_the_heartbeat_again() {
        let mut schedule = SpmSchedule::new(&config(), ms(0));
        play(&mut schedule, ms(2700));
        schedule.data_sent(ms(2800));
        assert!(
            schedule.due() <= ms(2800),
            "data after a pause brings an SPM with it"
        );
        schedule.spm_sent(ms(2800));
        schedule.data_sent(ms(2801));
        assert_eq!(schedule.due(), ms(2810));
        schedule.spm_sent(ms(2810));
        assert_eq!(play(&mut schedule, ms(3700)), [2910, 3110, 3510]);
    }

    #[test]
    fn an_explicit_list_is_followed_to_its_end() {
        let list = [100, 100, 1300].map(Duration::from_millis);
        let config = config()
            .to_builder()
            .spm_heartbeat(Intervals::new(&list).unwrap())
            .build()
            .unwrap();
        let mut schedule = SpmSchedule::new(&config, ms(0));
        let times = play(&mut schedule, ms(20_000));
        assert_eq!(times, [0, 100, 200, 300, 400, 1700, 11_700]);
    }

    #[test]
    fn the_end_is_repeated_as_long_as_the_source_lingers() {
        let mut schedule = SpmSchedule::new(&config(), ms(0));
        play(&mut schedule, ms(2700));
        schedule.quicken(ms(2800), Duration::from_millis(2400));
        let times = play(&mut schedule, ms(5200));
        assert_eq!(
            times,
            [
                2800, 2900, 3000, 3100, 3300, 3600, 3900, 4200, 4500, 4800, 5100
            ]
        );
    }

    #[test]
    fn the_first_heartbeat_follows_the_round_trip_unless_it_was_set() {
        let first = |config: &Config, round_trip| {
            let mut schedule = SpmSchedule::new(config, ms(0));
            play(&mut schedule, ms(100));
            schedule.data_sent(ms(200));
            schedule.spm_sent(ms(200));
            schedule.set_round_trip(round_trip);
            schedule.data_sent(ms(201));
            schedule.due().since(ms(201))
        };
        let (us, ms) = (Duration::from_micros, Duration::from_millis);
        let auto = Config::default();
        assert_eq!(
            [us(50), ms(3), ms(90)].map(|at| first(&auto, at)),
            [ms(1), ms(3), ms(5)]
        );
        assert_eq!(
            first(&config(), us(50)),
            ms(9),
            "the active interval comes first"
        );
    }

    #[test]
    fn requests_are_answered_once_an_interval() {
        let mut schedule = SpmSchedule::new(&config(), ms(0));
        play(&mut schedule, ms(1000));
        assert!(schedule.request(ms(1200)));
        assert!(!schedule.request(ms(1200)));
        assert_eq!(schedule.due(), ms(1200));
        schedule.spm_sent(ms(1200));
        assert!(schedule.request(ms(1201)));
        assert_eq!(schedule.due(), ms(1300));
    }

    #[test]
    fn requests_on_a_lan_are_not_answered_every_millisecond() {
        let mut schedule = SpmSchedule::new(&Config::default(), ms(0));
        play(&mut schedule, ms(1000));
        schedule.set_round_trip(Duration::from_micros(50));
        schedule.data_sent(ms(2000));
        schedule.spm_sent(ms(2000));
        schedule.heartbeat_due = Instant::NEVER;
        assert!(schedule.request(ms(2001)));
        assert_eq!(schedule.due(), ms(2005));
    }

    #[test]
    fn spacing_and_ambient_bound_every_interval() {
        let mut schedule = SpmSchedule::new(&config(), ms(0));
        schedule.set_spacing(Duration::from_millis(400));
        assert_eq!(play(&mut schedule, ms(1300)), [0, 400, 800, 1200]);
        schedule.set_spacing(Duration::from_secs(60));
        assert_eq!(schedule.due(), ms(11_200));
    }
}
