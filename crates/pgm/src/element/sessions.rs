//! The sessions of an element: which may begin or go on, and what goes when one begins anew.

use std::net::{IpAddr, SocketAddr};

use base::{DropReason, Instant};
use wire::pgm::Tsi;

use super::{Element, Session};

impl Element {
    /// Checks that an SPM may begin a session or continue one. A known session continues only by
    /// the way of its first SPM. It continues only from the same neighbour, unless that neighbour
    /// has been silent for `neighbour_expiry`. No other session may have the same session number
    /// (the number in the mark).
    pub(super) fn check_session(
        &self,
        now: Instant,
        way: usize,
        source: IpAddr,
        tsi: Tsi,
        control: Option<(u64, SocketAddr)>,
    ) -> Result<(), DropReason> {
        let known = self.sessions.get(&tsi);
        let patience = self.setup.timers.neighbour_expiry;
        let is_anothers = |it: &Session| it.upstream.ip() != source && now < it.heard + patience;
        if known.is_some_and(|it| it.way != way || is_anothers(it)) {
            return Err(DropReason::WrongSource);
        }
        let number = control.map(|(number, _)| number);
        let holds = |it: &Session| it.control.map(|(number, _)| number) == number;
        let mut others = self.sessions.iter().filter(|(other, _)| **other != tsi);
        if number.is_some() && others.any(|(_, other)| holds(other)) {
            return Err(DropReason::WrongSource);
        }
        Ok(())
    }

    /// Notes that a source began anew with the TSI that it had: what the element keeps and knows of
    /// its packets no longer holds.
    pub(super) fn begin_anew(&mut self, tsi: Tsi) {
        self.forget_repairs(tsi);
        if let Some(session) = self.sessions.get_mut(&tsi) {
            session.kept_since = self.kept.position();
            (session.polls, session.repair_time) = Default::default();
        }
        self.counters.sessions_restarted += 1;
    }

    /// Forgets who asked for packets of a session.
    pub(super) fn forget_repairs(&mut self, tsi: Tsi) {
        self.repairs.forget(tsi);
        self.parity.forget(tsi);
    }

    /// Fails when there is no room for a new session.
    pub(super) fn make_room(&self) -> Result<(), DropReason> {
        if self.sessions.len() < self.setup.sessions_max {
            Ok(())
        } else {
            Err(DropReason::PeerLimit)
        }
    }
}

#[cfg(test)]
mod tests {
    use base::Verdict;
    use wire::{
        Sqn,
        pgm::{
            Body, Data,
            PacketType::{Nak as NAK, Ncf as NCF, Rdata as RDATA, Spm as SPM},
            Spm,
        },
    };

    use super::*;
    use crate::element::tests::{Bench, SOURCE, down, ms};

    const STALE: Verdict = Verdict::Drop(DropReason::Stale);

    fn spm(bench: &mut Bench, sqn: u32, trail: u32, lead: u32) -> Verdict {
        let body = Body::Spm(Spm {
            sqn: Sqn(sqn),
            trail: Sqn(trail),
            lead: Sqn(lead),
            path_nla: SOURCE,
        });
        bench.hand(0, SOURCE, &down(&body, &[], &[]))
    }

    fn data(bench: &mut Bench, sqn: u32, content: &[u8]) -> Verdict {
        let body = Body::Odata(Data {
            sqn: Sqn(sqn),
            trail: Sqn(0),
        });
        bench.hand(0, SOURCE, &down(&body, &[], content))
    }

    /// Makes a bench that keeps packets 0 to 9 of a source, which has sent SPM 900.
    fn before_the_restart() -> Bench {
        let mut bench = Bench::keeping(1 << 20);
        spm(&mut bench, 900, 0, 9);
        for sqn in 0..10 {
            data(&mut bench, sqn, b"old");
        }
        bench.take();
        bench.nak(1, &[5]);
        assert_eq!(bench.told(), [(1, NCF, vec![5]), (1, RDATA, vec![5])]);
        bench.pass(ms(25));
        bench
    }

    /// Asserts that a NAK for a packet of the earlier session is answered by the source alone.
    fn assert_asks_for(bench: &mut Bench, sqn: u32) {
        bench.take();
        bench.nak(1, &[sqn]);
        assert_eq!(bench.told(), [(0, NAK, vec![sqn]), (1, NCF, vec![sqn])]);
    }

    #[test]
    fn s7_1_a_source_that_restarts_is_followed_after_eight_spms() {
        let mut bench = before_the_restart();
        bench.nak(1, &[30]);
        bench.take();
        for sqn in 0..7 {
            assert_eq!(spm(&mut bench, sqn, 0, 6), STALE);
            assert_eq!(
                data(&mut bench, 100 + sqn, b"it is alive"),
                Verdict::Control
            );
        }
        bench.take();
        assert_eq!(spm(&mut bench, 7, 0, 6), Verdict::Control);
        let told = bench.told();
        assert!(told.len() == 2 && told.iter().all(|(_, kind, _)| *kind == SPM));
        assert_eq!(bench.element.repair_count(), 0, "30 was the old session's");
        assert_asks_for(&mut bench, 5);
        assert_eq!(spm(&mut bench, 7, 0, 6), STALE);
        assert_eq!(spm(&mut bench, 8, 0, 6), Verdict::Control);
        assert_eq!(bench.element.counters().sessions_restarted, 1);
    }

    #[test]
    fn old_spms_out_of_sequence_among_themselves_show_no_restart() {
        let mut bench = before_the_restart();
        for sqn in [1, 2, 3, 4, 5, 6, 7, 7, 6, 5] {
            assert_eq!(spm(&mut bench, sqn, 0, 9), STALE);
        }
        assert_eq!(spm(&mut bench, 901, 0, 9), Verdict::Control);
        for sqn in 894..901 {
            assert_eq!(spm(&mut bench, sqn, 0, 9), STALE);
        }
        assert_eq!(bench.element.counters().sessions_restarted, 0);
    }

    #[test]
    fn a_restart_that_data_show_brings_no_repair_from_the_earlier_session() {
        let mut bench = before_the_restart();
        for sqn in (0..5).chain(6..8) {
            data(&mut bench, sqn, b"new");
        }
        assert_asks_for(&mut bench, 5);
        data(&mut bench, 7, b"new");
        bench.take();
        bench.nak(1, &[6]);
        let sent = bench.take();
        assert!(sent.iter().any(|(.., bytes)| bytes.ends_with(b"new")));
        assert_eq!(bench.element.counters().sessions_restarted, 1);
    }

    #[test]
    fn a_restart_that_a_repair_shows_brings_that_repair() {
        let mut bench = before_the_restart();
        bench.ncf(0, &[4]);
        bench.nak(1, &[12]);
        bench.take();
        let body = Body::Rdata(Data {
            sqn: Sqn(4),
            trail: Sqn(0),
        });
        bench.hand(0, SOURCE, &down(&body, &[], b"new"));
        assert_asks_for(&mut bench, 5);
        bench.nak(1, &[4]);
        assert_eq!(bench.told(), [(1, NCF, vec![4]), (1, RDATA, vec![4])]);
    }

    #[test]
    fn a_newer_spm_whose_window_goes_back_shows_a_restart() {
        let mut bench = before_the_restart();
        spm(&mut bench, 901, 3, 9);
        spm(&mut bench, 902, 0, 8);
        assert_asks_for(&mut bench, 5);
        assert_eq!(bench.element.counters().sessions_restarted, 1);
    }

    #[test]
    fn what_was_kept_of_an_expired_session_repairs_no_later_one() {
        let mut bench = before_the_restart();
        bench.pass(ms(60_000));
        assert_eq!(bench.element.session_count(), 0);
        spm(&mut bench, 0, 0, 9);
        assert_asks_for(&mut bench, 5);
    }

    #[test]
    fn what_is_before_the_trail_only_the_source_repairs() {
        let mut bench = before_the_restart();
        spm(&mut bench, 901, 6, 9);
        assert_asks_for(&mut bench, 5);
        bench.nak(1, &[6]);
        assert_eq!(bench.told(), [(1, NCF, vec![6]), (1, RDATA, vec![6])]);
    }
}
