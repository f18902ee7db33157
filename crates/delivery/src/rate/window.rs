//! The congestion window of one TCP connection with CUBIC, in segments.
//!
//! [`CubicWindow`] sends nothing. In: what was acknowledged, and when something was lost. Out: how
//! much may be under way. [`super::RateControl`] uses it to get as much as such a connection would
//! get on the same path.
//!
//! **Spec**: RFC 9438 sections 4.1 to 4.7, without slow start.

use std::time::Duration;

use base::Instant;

/// A congestion window.
#[derive(Clone, Copy, Debug)]
pub(super) struct CubicWindow {
    segments: f64,
    /// The size in segments at which the next cut is expected.
    plateau: f64,
    /// When the window began to grow after the last cut; `None` until it grows.
    since: Option<Instant>,
    /// How many seconds the window takes to reach the plateau.
    climb_s: f64,
    /// The window that Reno would have, in segments; CUBIC's is never smaller.
    reno: f64,
}

impl CubicWindow {
    /// Makes a window of `segments` segments that was never cut.
    pub(super) const fn new(segments: f64) -> Self {
        Self {
            segments,
            plateau: 0.0,
            since: None,
            climb_s: 0.0,
            reno: segments,
        }
    }

    /// Cuts the window after a loss. Call it at most once in a round trip.
    pub(super) fn lose(&mut self) {
        self.plateau = if self.segments < self.plateau {
            // The window is cut before it reached its plateau again: another connection needs room.
            self.segments * (1.0 + BETA) / 2.0
        } else {
            self.segments
        };
        self.segments = (self.segments * BETA).max(SEGMENTS_MIN);
        self.reno = self.segments;
        self.since = None;
    }

    /// Grows the window after `segments` segments were acknowledged.
    pub(super) fn acknowledge(&mut self, now: Instant, round_trip: Duration, segments: f64) {
        let since = *self.since.get_or_insert_with(|| {
            let climb = (self.plateau - self.segments).max(0.0);
            self.climb_s = (climb / CUBIC).cbrt();
            self.plateau = self.plateau.max(self.segments);
            now
        });
        let t = (now.since(since) + round_trip).as_secs_f64() - self.climb_s;
        let cubic = self.plateau + CUBIC * t * t * t;
        self.reno += RENO * segments / self.segments;
        let target = cubic.clamp(self.segments, self.segments * 1.5);
        self.segments += (target - self.segments) * segments / self.segments;
        self.segments = self.segments.max(self.reno);
    }

    /// Returns how many segments may be under way.
    pub(super) const fn segments(&self) -> f64 {
        self.segments
    }
}

const BETA: f64 = 0.7;
const CUBIC: f64 = 0.4;
/// Segments by which Reno's window grows in a round trip. A window that is cut to [`BETA`] of its
/// size and grows by this gets as much as a window that is cut to a half and grows by 1.
const RENO: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
const SEGMENTS_MIN: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Grows the window from second `from` on for `seconds` seconds, in round trips of 20 ms.
    /// Returns its size in segments.
    fn grow(window: &mut CubicWindow, from: u64, seconds: u64) -> u64 {
        let round_trip = Duration::from_millis(20);
        for n in 0..seconds * 50 {
            let now = Instant::from_nanos(from * 1_000_000_000 + n * 20_000_000);
            window.acknowledge(now, round_trip, window.segments());
        }
        window.segments().round() as u64
    }

    #[test]
    fn a_large_window_comes_back_to_its_plateau_on_the_curve_and_leaves_it() {
        let mut window = CubicWindow::new(10_000.0);
        window.lose();
        assert_eq!(window.segments().round() as u64, 7_000);
        // The cube root of 3,000 / 0.4 is 19.6 s.
        let middle = grow(&mut window, 0, 10);
        assert!((9_600..9_700).contains(&middle), "{middle}");
        let plateau = grow(&mut window, 10, 10);
        assert!((9_990..10_030).contains(&plateau), "{plateau}");
        assert!(grow(&mut window, 20, 20) > 12_500);
    }

    #[test]
    fn a_small_window_grows_as_renos_would() {
        let mut window = CubicWindow::new(100.0);
        window.lose();
        // 0.53 segments in each of 50 round trips.
        let after = grow(&mut window, 0, 1);
        assert!((95..98).contains(&after), "{after}");
    }
}
