//! How accurate this host's clocks are: where their time comes from, which daemon corrects them,
//! how far they may be wrong, and whether they are good enough to measure one-way delays.

use std::{fs, io, path::Path};

use measure::ClockState;
use serde::Serialize;
use sys::phc::{self, PhcMethod};

use crate::Error;

mod between;
pub use between::{Between, BetweenSpec, between};

mod keeper;
pub use keeper::{Keeper, KeeperState};

/// This host's clocks.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClockReport {
    /// The hardware counter that the kernel's clocks use now, such as `tsc`.
    pub source: String,
    /// The hardware counters that the kernel's clocks could use.
    pub sources: Vec<String>,
    /// PTP hardware clocks.
    pub ptp: Vec<PtpClock>,
    /// Daemons that keep the wall clock right, and their state.
    pub keepers: Vec<Keeper>,
    /// A daemon says that the wall clock is synchronised.
    pub is_synchronised: bool,
    /// The most by which the wall clock may be wrong, as the daemon states it, in nanoseconds.
    pub error_ns_max: u64,
    /// The daemon's estimate of the error, in nanoseconds.
    pub error_ns_estimated: u64,
    /// The correction that the kernel has still to make, in nanoseconds.
    pub offset_ns: i64,
    /// How much faster the kernel makes the clock run, in parts per billion.
    pub frequency_ppb: i64,
    /// International atomic time minus UTC, in seconds; 0 when it was never set.
    pub tai_offset_s: i32,
    /// A leap second is announced.
    pub has_leap: bool,
    /// The smallest difference between two readings of the monotonic clock, in nanoseconds.
    pub step_ns: u64,
    /// How long one reading takes, in nanoseconds.
    pub reading_ns: u64,
    /// Whether this clock is good enough to measure one-way delays, and how exactly, in words.
    pub one_way: String,
    /// True when this clock is good enough to measure one-way delays.
    pub has_one_way: bool,
}

/// A clock in a network adapter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PtpClock {
    /// The device file: `/dev/ptp0`.
    pub device: String,
    /// The driver's name for the clock.
    pub name: String,
    /// The largest change of its rate that the clock accepts, in parts per billion; 0 when unknown.
    pub adjustment_ppb_max: u64,
    /// How far the clock is from the wall clock; none when this could not be read.
    pub offset: Option<PtpOffset>,
    /// Why `offset` is missing.
    pub remark: Option<String>,
}

/// How far a clock in an adapter is from the wall clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PtpOffset {
    /// The adapter's clock minus the wall clock, in nanoseconds.
    pub offset_ns: i64,
    /// The most by which the offset may be wrong, in nanoseconds.
    pub error_ns_max: u64,
    /// The adapter's clock minus UTC: `offset_ns` without the whole seconds by which atomic time is
    /// ahead of UTC. Given when the adapter keeps atomic time and the kernel knows these seconds.
    pub from_utc_ns: Option<i64>,
    /// How the two clocks were read: `precise`, `extended` or `basic`.
    pub method: &'static str,
}

/// Looks at this host's clocks. It changes nothing and needs no privileges.
///
/// # Errors
/// When the kernel does not report the state of its wall clock.
pub fn clock() -> Result<ClockReport, Error> {
    let found = sys::discipline::read()
        .map_err(|error| net::SystemError::system("read the state of", "the wall clock", &error))?;
    let home = Path::new("/sys/devices/system/clocksource/clocksource0");
    let (step_ns, reading_ns) = resolution();
    let sources = text(&home.join("available_clocksource"));
    let (has_one_way, one_way) = one_way(found.is_synchronised, found.error_ns_max);
    Ok(ClockReport {
        source: text(&home.join("current_clocksource")),
        sources: sources.split_whitespace().map(str::to_owned).collect(),
        ptp: ptp_clocks(Path::new("/sys/class/ptp"), found.tai_offset_s),
        keepers: keeper::keepers(),
        is_synchronised: found.is_synchronised,
        error_ns_max: found.error_ns_max,
        error_ns_estimated: found.error_ns_estimated,
        offset_ns: found.offset_ns,
        frequency_ppb: found.frequency_ppb,
        tai_offset_s: found.tai_offset_s,
        has_leap: found.has_leap,
        step_ns,
        reading_ns,
        one_way,
        has_one_way,
    })
}

impl ClockReport {
    /// Replaces the wall clock's state with a later reading. The kernel's error bound grows until
    /// the daemon resets it. So a report that shows two bounds takes both from the same reading.
    pub fn set_state(&mut self, state: ClockState) {
        (self.is_synchronised, self.error_ns_max) = (state.is_synchronised, state.error_ns_max);
        (self.has_one_way, self.one_way) = one_way(state.is_synchronised, state.error_ns_max);
    }
}

/// Says whether one-way delays can be measured with this clock, and why. The error of a delay is
/// the sum of both ends' bounds.
fn one_way(is_synchronised: bool, error_ns_max: u64) -> (bool, String) {
    let bound_us = error_ns_max.div_ceil(1_000);
    if !is_synchronised {
        let text = "refused: no daemon keeps this clock synchronised (start chrony, ntpd or ptp4l \
                    with phc2sys, and wait until it has set the clock); round trips need no such \
                    clock";
        return (false, text.to_owned());
    }
    if error_ns_max > ERROR_NS_MAX {
        let text = format!(
            "refused: this clock may be wrong by {bound_us} us, which is more than the delays of \
             a local network; use round trips instead"
        );
        return (false, text);
    }
    let text = format!(
        "this end adds at most {bound_us} us to the error of a one-way delay; the other end adds \
         its own"
    );
    (true, text)
}

fn ptp_clocks(home: &Path, tai_offset_s: i32) -> Vec<PtpClock> {
    let entries = fs::read_dir(home).into_iter().flatten().flatten();
    let mut clocks: Vec<PtpClock> = entries
        .map(|entry| {
            let device = format!("/dev/{}", entry.file_name().to_string_lossy());
            let offset = phc::offset(Path::new(&device));
            let remark = offset.as_ref().err().map(|error| {
                let remedy = match error.kind() {
                    io::ErrorKind::PermissionDenied => "; let this user read it, or run as root",
                    _ => "",
                };
                format!("{device}: {}{remedy}", sys::with_usual_remedy(error))
            });
            PtpClock {
                name: text(&entry.path().join("clock_name")),
                adjustment_ppb_max: text(&entry.path().join("max_adjustment"))
                    .parse()
                    .unwrap_or(0),
                offset: offset.ok().map(|found| ptp_offset(found, tai_offset_s)),
                remark,
                device,
            }
        })
        .collect();
    clocks.sort_by(|a, b| a.device.cmp(&b.device));
    clocks
}

fn ptp_offset(found: phc::PhcOffset, tai_offset_s: i32) -> PtpOffset {
    let tai_ns = i64::from(tai_offset_s) * 1_000_000_000;
    let from_utc_ns = found.offset_ns.saturating_sub(tai_ns);
    // A clock within half a second of atomic time keeps atomic time, not UTC.
    let is_tai = tai_offset_s > 0 && from_utc_ns.unsigned_abs() < 500_000_000;
    PtpOffset {
        offset_ns: found.offset_ns,
        error_ns_max: found.error_ns_max,
        from_utc_ns: is_tai.then_some(from_utc_ns),
        method: match found.method {
            PhcMethod::Precise => "precise",
            PhcMethod::Extended => "extended",
            PhcMethod::Basic => "basic",
        },
    }
}

/// Measures the smallest step between two readings, and how long one reading takes, in nanoseconds.
fn resolution() -> (u64, u64) {
    let now = || sys::clock::monotonic().as_nanos();
    let (start, mut last, mut step) = (now(), now(), u64::MAX);
    for _ in 0..READINGS {
        let next = now();
        if next > last {
            step = step.min(next - last);
        }
        last = next;
    }
    (step, (last - start) / READINGS)
}

fn text(path: &Path) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The largest error, in nanoseconds, of a clock that is good enough. A clock that may be wrong by
/// more than 1 ms cannot measure delays of microseconds.
const ERROR_NS_MAX: u64 = 1_000_000;
const READINGS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_way_delays_are_refused_with_the_reason() {
        let (has, text) = one_way(false, 10);
        assert!(!has && text.contains("chrony"), "{text}");
        let (has, text) = one_way(true, 16_000_000);
        assert!(!has && text.contains("16000 us"), "{text}");
        let (has, text) = one_way(true, 2_500);
        assert!(has && text.contains("at most 3 us"), "{text}");
    }

    #[test]
    fn a_later_reading_replaces_the_bound_and_what_follows() {
        let mut report = clock().unwrap();
        report.set_state(ClockState {
            is_synchronised: true,
            error_ns_max: 2_500,
        });
        assert!(report.is_synchronised && report.has_one_way);
        assert_eq!(report.error_ns_max, 2_500);
        assert!(report.one_way.contains("at most 3 us"), "{report:?}");
    }

    #[test]
    fn an_adapter_that_keeps_atomic_time_is_compared_without_its_whole_seconds() {
        let found = |offset_ns, tai_offset_s| {
            let (error_ns_max, method) = (250, PhcMethod::Extended);
            let found = phc::PhcOffset {
                offset_ns,
                error_ns_max,
                method,
            };
            ptp_offset(found, tai_offset_s).from_utc_ns
        };
        assert_eq!(found(37_000_000_120, 37), Some(120));
        assert_eq!(found(-80, 37), None);
        assert_eq!(found(120, 0), None);
    }

    #[test]
    fn a_clock_that_cannot_be_read_is_named_with_the_reason() {
        let home = std::env::temp_dir().join(format!("towline-ptp-{}", std::process::id()));
        fs::create_dir_all(home.join("no-such-ptp")).unwrap();
        fs::write(home.join("no-such-ptp/clock_name"), "a driver\n").unwrap();
        let clocks = ptp_clocks(&home, 37);
        fs::remove_dir_all(&home).unwrap();
        assert_eq!(
            (clocks[0].name.as_str(), &clocks[0].offset),
            ("a driver", &None)
        );
        let remark = clocks[0].remark.as_ref().unwrap();
        assert!(remark.starts_with("/dev/no-such-ptp: "), "{remark}");
    }

    #[test]
    fn this_host_has_a_clock_that_advances() {
        let found = clock().unwrap();
        assert!(
            found.step_ns > 0 && found.step_ns < 1_000_000_000,
            "{found:?}"
        );
    }
}
