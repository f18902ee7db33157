//! The sessions of an element: which may begin or go on, and what goes when one begins anew or
//! makes room for another.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use base::{DropReason, Instant, Party, Share, counted_share, network_share};
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

    /// Makes room for a new session of the host `source`, if there is none.
    ///
    /// Anybody can forge SPMs. So the session that was heard least recently goes, of those that
    /// have had only SPMs. A host, or network, that has its share displaces only its own. When all
    /// have had data, the session goes that is longest without, of a host or network with more than
    /// its share.
    pub(super) fn make_room(&mut self, source: IpAddr) -> Result<(), DropReason> {
        let places_max = self.setup.sessions_max;
        if self.sessions.len() < places_max {
            return Ok(());
        }
        let mut taken = BTreeMap::<Party, usize>::new();
        let hosts = self.sessions.values().map(|it| it.upstream.ip());
        for party in hosts.flat_map(Party::all_of) {
            *taken.entry(party).or_default() += 1;
        }
        let places_of = |party| taken.get(&party).copied().unwrap_or(0);
        let own_max = places_max.div_ceil(HOST_PART);
        let own = places_of(Party::host(source));
        let near = Party::network(source).map_or(own, places_of);
        let share = counted_share(own_max, places_max, own, near);
        let is_greedy = |host: IpAddr| {
            Party::all_of(host).any(|party| {
                let party_max = match party {
                    Party::Host(_) => own_max,
                    Party::Network(_) => network_share(own_max, places_max),
                };
                places_of(party) > party_max
            })
        };
        let goes = |it: &Session| {
            let host = it.upstream.ip();
            share.may_displace(source, host)
                && (it.data.is_none() || (share == Share::Free && is_greedy(host)))
        };
        let candidates = self.sessions.iter().filter(|(_, it)| goes(it));
        let tsi = candidates.min_by_key(|(_, it)| (it.data, it.heard));
        let tsi = *tsi.ok_or(DropReason::PeerLimit)?.0;
        self.sessions.remove(&tsi);
        self.forget_repairs(tsi);
        self.counters.sessions_evicted += 1;
        Ok(())
    }
}

/// A host's share is a quarter of the sessions, as at a receiver. Judgement.
const HOST_PART: usize = 4;

#[cfg(test)]
mod tests {
    use base::Verdict;
    use wire::{
        Sqn,
        pgm::{
            Addressing, Body, Data,
            PacketType::{Nak as NAK, Ncf as NCF, Rdata as RDATA, Spm as SPM},
            Spm, emit,
        },
    };

    use super::*;
    use crate::element::tests::{Bench, PORT, SOURCE, TSI, down, ip, ms};

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

    /// Hands the element an SPM of the session `number` of `host`, and a data packet if `has_data`.
    fn begin(bench: &mut Bench, host: u8, number: u16, has_data: bool) -> Verdict {
        let (host, tsi) = (
            ip(0, host),
            Tsi {
                port: number,
                ..TSI
            },
        );
        let body = Body::Spm(Spm {
            sqn: Sqn(1),
            trail: Sqn(0),
            lead: Sqn(9),
            path_nla: host,
        });
        let mut out = Vec::new();
        let addressing = Addressing::downstream(tsi, PORT);
        emit(&mut out, &addressing, &body, &[], &[]);
        let verdict = bench.hand(0, host, &out);
        if has_data {
            out.clear();
            let body = Body::Odata(Data {
                sqn: Sqn(1),
                trail: Sqn(0),
            });
            emit(&mut out, &addressing, &body, &[], b"data");
            assert_eq!(bench.hand(0, host, &out), Verdict::Control);
        }
        bench.take();
        bench.pass(ms(1));
        verdict
    }

    fn numbers(bench: &Bench) -> Vec<u16> {
        bench.element.sessions.keys().map(|tsi| tsi.port).collect()
    }

    const FULL: Verdict = Verdict::Drop(DropReason::PeerLimit);

    /// There are four places, so a host's share is one.
    #[test]
    fn forged_sessions_keep_no_new_sender_out() {
        let mut bench = Bench::new();
        assert_eq!(begin(&mut bench, 1, 1, true), Verdict::Control);
        for number in 2..100 {
            begin(&mut bench, 66, number, false);
        }
        assert_eq!(bench.element.session_count(), 4);
        assert_eq!(begin(&mut bench, 2, 100, true), Verdict::Control);
        assert_eq!(numbers(&bench), [1, 98, 99, 100]);
        assert_eq!(bench.element.counters().sessions_evicted, 98 - 3 + 1);
    }

    #[test]
    fn a_host_with_its_share_displaces_no_other() {
        let mut bench = Bench::new();
        for (host, number) in [(1, 1), (66, 2), (66, 3), (66, 4)] {
            assert_eq!(begin(&mut bench, host, number, true), Verdict::Control);
        }
        assert_eq!(begin(&mut bench, 66, 5, false), FULL);
        // Its own session that has been without data longest goes for another host's.
        assert_eq!(begin(&mut bench, 2, 6, true), Verdict::Control);
        assert_eq!(begin(&mut bench, 3, 7, false), Verdict::Control);
        assert_eq!(numbers(&bench), [1, 4, 6, 7]);
        assert_eq!(begin(&mut bench, 66, 8, false), FULL);
        assert_eq!(begin(&mut bench, 4, 9, true), Verdict::Control);
        assert_eq!(numbers(&bench), [1, 4, 6, 9]);
        assert_eq!(begin(&mut bench, 5, 10, false), FULL, "nobody is greedy");
    }

    #[test]
    fn a_session_that_is_displaced_leaves_no_repair_state() {
        let mut bench = Bench::joined();
        bench.nak(1, &[5, 6]);
        bench.pass(ms(1));
        for host in 2..6 {
            begin(&mut bench, host, u16::from(host), false);
        }
        assert_eq!(
            (numbers(&bench), bench.element.repair_count()),
            (vec![2, 3, 4, 5], 0)
        );
    }
}
