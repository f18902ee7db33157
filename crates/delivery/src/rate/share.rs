//! The share that one TCP connection with CUBIC would get on a path that another sender keeps full.

use std::time::Duration;

use base::Instant;

use super::{RateReport, part, report::MARK_INTERVAL, window::CubicWindow};

/// The share of a path that one TCP connection with CUBIC would get.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    window: CubicWindow,
    /// How many packets the receiver had missed when it last reported. That report came at the time
    /// `at`.
    pub(super) missed: u64,
    pub(super) at: Instant,
    /// Losses reported before this time do not cut the window again, because the lost packets were
    /// sent before the last cut.
    cut_until: Instant,
    round_trip: Duration,
    /// The highest recent delivery rate, in bytes a second.
    pub(super) carried: u64,
    /// How many reports in a row showed an empty queue.
    pub(super) empty: u32,
}

impl Share {
    /// Makes the share of a TCP connection that starts with the rate `bytes_per_s`, on the path
    /// that `report` describes. `carried` begins at the report's delivery rate, or at `least` if
    /// that is higher.
    pub(super) fn new(now: Instant, bytes_per_s: u64, report: &RateReport, least: u64) -> Self {
        let round_trip = report.answer.max(ANSWER_MIN);
        let segments = bytes_per_s as f64 * round_trip.as_secs_f64() / SEGMENT_BYTES;
        Self {
            window: CubicWindow::new(segments),
            missed: report.missed,
            at: now,
            cut_until: now,
            round_trip,
            carried: report.delivery_bytes_per_s.max(least),
            empty: 0,
        }
    }

    /// Changes the window as a TCP connection would after this report. `is_used` says whether the
    /// source sent as much as it may.
    pub(super) fn report(&mut self, now: Instant, report: &RateReport, is_used: bool) {
        if !report.answer.is_zero() {
            let answer = report.answer.max(ANSWER_MIN);
            // A longer answer time counts at once, because a growing queue slows a TCP connection
            // down at once. A shorter answer time counts by a quarter.
            self.round_trip = answer.max((self.round_trip * 3 + answer) / 4);
        }
        self.carried = part(self.carried, 98).max(report.delivery_bytes_per_s);
        let has_lost = report.missed > self.missed;
        self.missed = report.missed;
        let round_trips = now.since(self.at).as_secs_f64() / self.round_trip.as_secs_f64();
        self.at = now;
        if now < self.cut_until {
            return;
        }
        if has_lost {
            self.window.lose();
            self.cut_until = now + self.round_trip + MARK_INTERVAL;
        } else if is_used {
            let segments = self.window.segments() * round_trips.min(1.0);
            self.window.acknowledge(now, self.round_trip, segments);
        }
    }

    /// Returns the rate in bytes a second: at most a quarter above what arrives, because more would
    /// only make the queue longer.
    pub(super) fn bytes_per_s(&self) -> u64 {
        let rate = self.window.segments() * SEGMENT_BYTES / self.round_trip.as_secs_f64();
        (rate as u64).min(part(self.carried, 125))
    }
}

/// A judgement: the shortest time in which a process on the same LAN answers. A shorter time would
/// make the window very small, so it counts as this long.
const ANSWER_MIN: Duration = Duration::from_micros(200);
/// Bytes of a full TCP packet on Ethernet.
const SEGMENT_BYTES: f64 = 1514.0;
