//! How long the repairs of a session take, and for how long confirmed NAKs are eliminated.
//!
//! The element measures from the confirmation of its NAK to the repair. Only a packet or group
//! whose NAK it passed on once counts: otherwise the repair may answer either NAK.

use std::time::Duration;

use base::Instant;

use super::ElementTimers;

/// The average time of a session's repairs; `None` before the first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RepairTime(Option<Duration>);

impl RepairTime {
    /// Adds the time that one repair took, if it is known.
    pub(super) fn add(&mut self, time: Option<Duration>) {
        if let Some(time) = time {
            self.0 = Some(self.0.map_or(time, |known| (known * 7 + time) / 8));
        }
    }

    /// Returns the time after a confirmation in which no further NAK for the packet or group is
    /// passed on (NAK_ELIM_IVL).
    pub(super) fn elimination(self, timers: &ElementTimers) -> Duration {
        let long = (self.0.unwrap_or_default() * 2).min(timers.rdata_wait / 4);
        timers.elimination.max(long)
    }
}

/// The measurement of one repair.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Measure {
    /// The element has not asked.
    #[default]
    Idle,
    /// The element has passed on one NAK, which is not confirmed.
    Asked,
    Confirmed(Instant),
    /// The time cannot be measured: the element has asked twice, or another host has.
    Void,
}

impl Measure {
    /// Notes that a NAK is passed on.
    pub(super) const fn ask(&mut self) {
        *self = match self {
            Self::Idle => Self::Asked,
            _ => Self::Void,
        };
    }

    /// Notes that an NCF has come.
    pub(super) const fn confirm(&mut self, now: Instant) {
        *self = match *self {
            Self::Idle => Self::Void,
            Self::Asked => Self::Confirmed(now),
            other => other,
        };
    }

    /// Returns how long the repair took that has come at `now`, and measures no further repair.
    pub(super) fn end(&mut self, now: Instant) -> Option<Duration> {
        match std::mem::replace(self, Self::Void) {
            Self::Confirmed(from) => Some(now.since(from)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::tests::{Bench, LEAD, SOURCE, ip, ms, passed_on};

    /// Lets each of 40 packets be asked for, confirmed, and repaired after `time`.
    fn repair_40_in(bench: &mut Bench, time: Duration) {
        for sqn in 0..40 {
            bench.nak(1, &[sqn]);
            bench.ncf(0, &[sqn]);
            bench.pass(time);
            bench.data(0, true, sqn);
        }
    }

    #[test]
    fn s7_4_the_elimination_interval_grows_with_the_time_that_repairs_take() {
        let mut bench = Bench::joined();
        // Repairs take 60 ms; the source would repair twice what it is asked for again before that.
        repair_40_in(&mut bench, ms(60));
        bench.nak(1, &[90]);
        bench.ncf(0, &[90]);
        for (wait, goes_on) in [(90, false), (20, false), (20, true)] {
            bench.pass(ms(wait));
            bench.take();
            bench.nak(1, &[90]);
            assert_eq!(!passed_on(&mut bench).is_empty(), goes_on);
        }
        // However long repairs take, half a second is the most.
        let mut bench = Bench::joined();
        repair_40_in(&mut bench, ms(1900));
        bench.nak(1, &[90]);
        bench.ncf(0, &[90]);
        bench.pass(ms(501));
        bench.take();
        bench.nak(1, &[90]);
        assert_eq!(passed_on(&mut bench), [[90]]);
    }

    /// Returns true when a second NAK for a packet is eliminated for `wait` after its confirmation.
    fn is_eliminated_after(bench: &mut Bench, sqn: u32, wait: Duration) -> bool {
        bench.nak(1, &[sqn]);
        bench.ncf(0, &[sqn]);
        bench.pass(wait);
        bench.take();
        bench.nak(1, &[sqn]);
        passed_on(bench).is_empty()
    }

    #[test]
    fn s7_4_what_repairs_take_is_measured_only_where_the_nak_went_once_and_per_session() {
        // The NAK is passed on a second time, and only that brings a repair.
        let mut bench = Bench::joined();
        for sqn in 0..40 {
            assert!(!is_eliminated_after(&mut bench, sqn, ms(300)), "{sqn}");
            bench.ncf(0, &[sqn]);
            bench.pass(ms(300));
            bench.data(0, true, sqn);
        }
        assert!(!is_eliminated_after(&mut bench, 90, ms(21)));
        // Another host asked first.
        for sqn in 0..40 {
            bench.ncf(0, &[sqn]);
            bench.nak(1, &[sqn]);
            bench.pass(ms(300));
            bench.data(0, true, sqn);
        }
        assert!(!is_eliminated_after(&mut bench, 91, ms(21)));
        // A NAK that is repeated until the first confirmation says nothing of the repair.
        for sqn in 0..40 {
            bench.nak(1, &[sqn]);
            bench.pass(ms(300));
            bench.ncf(0, &[sqn]);
            bench.pass(ms(30));
            bench.data(0, true, sqn);
        }
        assert!(is_eliminated_after(&mut bench, 92, ms(59)));
        assert!(!is_eliminated_after(&mut bench, 93, ms(61)));
        // The new neighbour of a session has times of its own.
        bench.pass(ms(5001));
        bench.spm(0, SOURCE, &[]);
        assert!(is_eliminated_after(&mut bench, 94, ms(59)));
        bench.pass(ms(5001));
        bench.spm(0, ip(0, 9), &[]);
        let session = bench.element.sessions.values().next().unwrap();
        let elimination = session.repair_time.elimination(&bench.element.setup.timers);
        assert_eq!(elimination, ElementTimers::default().elimination);
    }

    #[test]
    fn a_packet_that_goes_on_by_all_ways_is_asked_for_no_longer() {
        let mut bench = Bench::joined();
        let next = LEAD + 1;
        bench.nak(1, &[next]);
        assert_eq!(passed_on(&mut bench), [[next]]);
        bench.data(0, false, next);
        assert_eq!(bench.element.repair_count(), 0);
        bench.take();
        bench.pass(ms(2000));
        assert!(bench.told().is_empty(), "no NAK is repeated");
        bench.data(0, true, next);
        assert!(bench.told().is_empty(), "nobody waits for a repair");
    }
}
