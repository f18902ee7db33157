//! What one TCP connection with CUBIC would get on a path that somebody else keeps full.

use std::time::Duration;

use base::Instant;

use super::{RateReport, part, report::MARK_INTERVAL, window::CubicWindow};

/// What one TCP connection would get.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    window: CubicWindow,
    /// Positions missed, at the last report, and when that was.
    pub(super) missed: u64,
    pub(super) at: Instant,
    /// What is reported lost until then left before the window was cut.
    cut_until: Instant,
    round_trip: Duration,
    /// The most that arrived lately, in bytes a second.
    pub(super) carried: u64,
    /// Reports of an empty queue in a row.
    pub(super) empty: u32,
}

impl Share {
    /// The share of a connection that begins at `rate` with what `report` says of the path.
    pub(super) fn new(now: Instant, rate: u64, report: &RateReport, rate_min: u64) -> Self {
        let round_trip = report.answer.max(ANSWER_MIN);
        let segments = rate as f64 * round_trip.as_secs_f64() / SEGMENT_BYTES;
        Self {
            window: CubicWindow::new(segments),
            missed: report.missed,
            at: now,
            cut_until: now,
            round_trip,
            carried: report.delivery.max(rate_min),
            empty: 0,
        }
    }

    /// What a TCP connection would make of this report: `is_used` says whether all was sent that
    /// may be.
    pub(super) fn report(&mut self, now: Instant, report: &RateReport, is_used: bool) {
        if !report.answer.is_zero() {
            let answer = report.answer.max(ANSWER_MIN);
            // A queue that grows is believed at once, as by a connection whose window is full.
            self.round_trip = answer.max((self.round_trip * 3 + answer) / 4);
        }
        self.carried = part(self.carried, 98).max(report.delivery);
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

    /// In bytes a second: more than a little more than arrives only makes the queue longer.
    pub(super) fn rate(&self) -> u64 {
        let rate = self.window.segments() * SEGMENT_BYTES / self.round_trip.as_secs_f64();
        (rate as u64).min(part(self.carried, 125))
    }
}

/// Judgement: the answer of a process on the same LAN takes no less, and a shorter one would make
/// the window smaller than a segment.
const ANSWER_MIN: Duration = Duration::from_micros(200);
/// A full packet of TCP on Ethernet.
const SEGMENT_BYTES: f64 = 1514.0;
