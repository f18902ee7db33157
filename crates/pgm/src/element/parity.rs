//! Parity through a network element: for each group, how many packets receivers lack, whichever
//! packets these are.
//!
//! The element's NAK for a group is unconfirmed until an NCF confirms it. The element counts how
//! many packets of the group each way lacks (the RFC's known packet count). It also counts how many
//! the source was asked for (the largest known packet count). Each repair that passes lowers these
//! counts.
//!
//! **Spec**: RFC 3208 sections 11.3, 11.4, 11.6.

use std::time::Duration;

use base::{DropReason, Instant};
use wire::{
    Sqn,
    pgm::{Data, Flags, Mark, Nak, Packet, PgmOption, Tsi},
};

use super::{
    Element, ElementTimers, Session, WaySet,
    downstream::sqns_of,
    repair_time::Measure,
    timed::{Key, Timed},
};
use crate::{element::upstream::SqnList, fec::Numbering};

/// The repair state of all groups.
#[derive(Debug)]
pub(super) struct ParityRepairs {
    timers: ElementTimers,
    groups: Timed<Group>,
}

#[derive(Debug)]
struct Group {
    /// How many packets each way lacks.
    lacking: Vec<u32>,
    /// How many packets the source was asked for, by this element or (as NCFs show) by another
    /// host, minus the repairs that came since.
    asked: u32,
    /// The time until which an unconfirmed NAK is repeated; `None` when no NAK waits for a
    /// confirmation.
    pending_until: Option<Instant>,
    eliminated_until: Instant,
    measure: Measure,
}

/// The answer to a parity NAK for one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Answer {
    /// How many packets the NCF confirms.
    confirmed: u32,
    /// How many packets to ask for upstream; `None` when no NAK goes upstream.
    asked: Option<u32>,
}

impl ParityRepairs {
    pub(super) const fn new(timers: ElementTimers, groups_max: usize) -> Self {
        Self {
            timers,
            groups: Timed::new(groups_max),
        }
    }

    /// Takes a NAK that came by `way` (of `ways` ways), for `count` packets of a group. Returns
    /// `None` when there is no room for the group's state.
    fn nak(
        &mut self,
        now: Instant,
        key: Key,
        (way, ways): (usize, usize),
        count: u32,
    ) -> Option<Answer> {
        let group = self.groups.entry(now, key, || Group::new(now, ways))?;
        let confirmed = count.max(group.lacking[way]);
        group.lacking[way] = confirmed;
        // Until the element's own NAK is confirmed and the elimination interval is over, only a NAK
        // for more packets than `asked` is passed on.
        let is_over = group.pending_until.is_none() && now >= group.eliminated_until;
        let is_news = count > group.asked || is_over;
        group.asked = group.asked.max(count);
        let asked = is_news.then_some(group.asked);
        if is_news {
            group.measure.ask();
            group.pending_until = Some(now + self.timers.repeat_time);
            let due = now + self.timers.repeat_every;
            self.groups.set_due(key, due);
        }
        Some(Answer { confirmed, asked })
    }

    /// Takes an NCF for `count` packets of a group. It came from the neighbour upstream.
    fn ncf(&mut self, now: Instant, key: Key, ways: usize, count: u32, eliminated_until: Instant) {
        let Some(group) = self.groups.entry(now, key, || Group::new(now, ways)) else {
            return;
        };
        if count < group.asked {
            // The NCF confirms a smaller request of another host. It leaves this element's own NAK
            // unconfirmed.
            return;
        }
        group.asked = count;
        group.pending_until = None;
        group.eliminated_until = eliminated_until;
        group.measure.confirm(now);
        self.groups.set_due(key, now + self.timers.rdata_wait);
    }

    /// Takes a repair of a group that has `short_by` members fewer than a full group. Returns the
    /// ways by which the repair must go on, and how long it took, if that is known.
    fn rdata(&mut self, now: Instant, key: Key, short_by: u32) -> (WaySet, Option<Duration>) {
        let Some(group) = self.groups.get_mut(key) else {
            return (WaySet::NONE, None);
        };
        let time = group.measure.end(now);
        let mut ways = WaySet::NONE;
        for (way, lacking) in group.lacking.iter_mut().enumerate() {
            if *lacking > 0 {
                ways = ways.with(way);
                *lacking -= 1;
                if *lacking <= short_by {
                    *lacking = 0;
                }
            }
        }
        group.asked = group.asked.saturating_sub(1);
        if group.lacking.iter().all(|lacking| *lacking == 0) {
            self.groups.remove(key);
        }
        (ways, time)
    }

    pub(super) fn forget(&mut self, tsi: Tsi) {
        self.groups.forget(tsi);
    }

    /// Does what is due at `now`. Adds to `again` each group whose NAK must be repeated, with the
    /// number of packets to ask for.
    pub(super) fn expire(&mut self, now: Instant, again: &mut Vec<(Key, u32)>) {
        let every = self.timers.repeat_every;
        self.groups.expire(now, |key, group| {
            let until = group.pending_until.filter(|until| now < *until)?;
            again.push((key, group.asked));
            Some((now + every).min(until))
        });
    }

    pub(super) fn due(&self) -> Instant {
        self.groups.due()
    }

    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }
}

impl Group {
    fn new(now: Instant, ways: usize) -> Self {
        Self {
            lacking: vec![0; ways],
            asked: 0,
            pending_until: None,
            eliminated_until: now,
            measure: Measure::Idle,
        }
    }
}

impl Element {
    pub(super) fn take_parity_nak(
        &mut self,
        now: Instant,
        way: usize,
        packet: &Packet<'_>,
        nak: Nak,
        session: &Session,
    ) -> Result<(), DropReason> {
        // A source that answers no parity NAKs would drop this one, or abort (OpenPGM 5.3). The
        // receiver hears no NCF, and asks for the packets themselves.
        let numbering = session.numbering.filter(|_| session.answers_parity);
        let numbering = numbering.ok_or(DropReason::Unexpected)?;
        let tsi = packet.header().upstream_tsi();
        let ways = self.setup.ways.len();
        let (mut confirmed, mut asked, mut has_room) =
            (SqnList::default(), SqnList::default(), true);
        for sqn in sqns_of(packet, nak) {
            let group = numbering.first_of(sqn);
            if session.is_ahead(group) {
                continue;
            }
            let count = numbering.requested(sqn, numbering.group_size());
            let answer = self.parity.nak(now, (tsi, group.0), (way, ways), count);
            let Some(answer) = answer else {
                has_room = false;
                continue;
            };
            let request = |count| numbering.request(group, count).unwrap_or(sqn);
            confirmed.push(request(answer.confirmed));
            if let Some(count) = answer.asked {
                asked.push(request(count));
            }
        }
        let Some(&sqn) = confirmed.as_slice().first() else {
            return Err(if has_room {
                DropReason::BeyondWindow
            } else {
                DropReason::NoRoom
            });
        };
        self.counters.naks += 1;
        let nak = Nak { sqn, ..nak };
        self.confirm(way, tsi, Flags::PARITY, nak, confirmed.as_slice());
        if asked.as_slice().is_empty() {
            self.counters.naks_eliminated += 1;
        } else {
            let is_sent = self.ask(tsi, Flags::PARITY, asked.as_slice());
            self.counters.naks_forwarded += u64::from(is_sent);
        }
        if has_room {
            Ok(())
        } else {
            Err(DropReason::NoRoom)
        }
    }

    /// Repeats the parity NAKs that nobody has confirmed, one for each group.
    pub(super) fn ask_parity_again(&mut self, again: &[((Tsi, u32), u32)]) {
        for &((tsi, group), count) in again {
            let session = self.sessions.get(&tsi);
            let numbering = session.and_then(|session| session.numbering);
            let request = numbering.and_then(|numbering| numbering.request(Sqn(group), count));
            if let Some(sqn) = request {
                let is_sent = self.ask(tsi, Flags::PARITY, &[sqn]);
                self.counters.naks_repeated += u64::from(is_sent);
            }
        }
    }

    pub(super) fn take_parity_ncf(
        &mut self,
        now: Instant,
        tsi: Tsi,
        packet: &Packet<'_>,
        ncf: Nak,
        eliminated_until: Instant,
    ) -> Result<(), DropReason> {
        let numbering = self.numbering(tsi).ok_or(DropReason::Unexpected)?;
        let ways = self.setup.ways.len();
        self.counters.ncfs_heard += 1;
        for sqn in sqns_of(packet, ncf) {
            let count = numbering.requested(sqn, numbering.group_size());
            let key = (tsi, numbering.first_of(sqn).0);
            self.parity.ncf(now, key, ways, count, eliminated_until);
        }
        Ok(())
    }

    /// Returns the ways by which a parity packet must go on: the ways that lack packets of its
    /// group. And how long the repair took, if that is known.
    pub(super) fn ways_of_parity(
        &mut self,
        now: Instant,
        tsi: Tsi,
        packet: &Packet<'_>,
        data: Data,
    ) -> Result<(WaySet, Option<Duration>), DropReason> {
        let numbering = self.numbering(tsi).ok_or(DropReason::Unexpected)?;
        let size = packet.options().find_map(|option| match option {
            PgmOption::CurrTgsize(size) => Some(size.packet_count),
            _ => None,
        });
        let full = numbering.group_size();
        let short_by = full.saturating_sub(size.unwrap_or(full));
        let group = numbering.first_of(data.sqn);
        Ok(self.parity.rdata(now, (tsi, group.0), short_by))
    }

    fn numbering(&self, tsi: Tsi) -> Option<Numbering> {
        self.sessions.get(&tsi)?.numbering
    }
}

/// Reads a source's offer of parity from an SPM: how the source numbers its groups, and whether it
/// answers parity NAKs. No numbering when the source offers no parity, or names a group size that
/// the erasure code does not support.
pub(super) fn offer_of(packet: &Packet<'_>, mark: Option<&Mark>) -> (Option<Numbering>, bool) {
    let offer = packet.options().find_map(|option| match option {
        PgmOption::ParityPrm(offer) => Some(offer),
        _ => None,
    });
    let reading = Mark::parity_reading(mark);
    let numbering = offer.and_then(|offer| Numbering::new(offer.group_size));
    (numbering, offer.is_some_and(|it| it.is_on_demand(reading)))
}

#[cfg(test)]
mod tests {
    use base::Verdict;
    use wire::pgm::{
        Addressing, Body, CurrTgsize, PacketType, ParityPrm, ParityReading, Profile, emit_flagged,
    };

    use super::*;
    use crate::element::tests::{Bench, PORT, SOURCE, TSI, group, own};

    const K: u32 = 8;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Makes an element that knows a source with groups of eight packets.
    fn joined() -> Bench {
        let mut bench = Bench::new();
        let parity = ParityPrm::new(false, true, K, ParityReading::Lax);
        bench.spm(0, SOURCE, &[PgmOption::ParityPrm(parity)]);
        bench.take();
        bench
    }

    fn packet(is_upstream: bool, body: &Body, options: &[PgmOption<'_>]) -> Vec<u8> {
        let addressing = if is_upstream {
            Addressing::upstream(TSI, PORT)
        } else {
            Addressing::downstream(TSI, PORT)
        };
        let mut out = Vec::new();
        emit_flagged(&mut out, &addressing, Flags::PARITY, body, options, &[]);
        out
    }

    /// Hands the element a parity NAK of a receiver on `way`, for `count` packets of group `first`.
    fn nak(bench: &mut Bench, way: usize, first: u32, count: u32) -> Verdict {
        let body = Body::Nak(Nak {
            sqn: Sqn(first + count - 1),
            source_nla: own(way),
            group_nla: group(way).ip(),
        });
        bench.hand(
            way,
            super::super::tests::ip(way as u8, 7),
            &packet(true, &body, &[]),
        )
    }

    fn ncf(bench: &mut Bench, first: u32, count: u32) {
        let body = Body::Ncf(Nak {
            sqn: Sqn(first + count - 1),
            source_nla: SOURCE,
            group_nla: group(0).ip(),
        });
        bench.hand(0, SOURCE, &packet(false, &body, &[]));
    }

    /// Hands the element a parity packet of group `first`. Returns the ways by which it went on.
    fn rdata(bench: &mut Bench, first: u32, options: &[PgmOption<'_>]) -> Vec<usize> {
        let body = Body::Rdata(Data {
            sqn: Sqn(first),
            trail: Sqn(0),
        });
        bench.hand(0, SOURCE, &packet(false, &body, options));
        let mut ways: Vec<usize> = bench.take().iter().map(|(way, ..)| *way).collect();
        // The ways take turns.
        ways.sort_unstable();
        ways
    }

    /// Returns what the element has sent: way, kind, group and count.
    fn told(bench: &mut Bench) -> Vec<(usize, PacketType, u32, u32)> {
        let sent = bench.take();
        let told = sent.iter().map(|(way, _, bytes)| {
            let packet = Packet::parse(bytes).unwrap();
            assert!(packet.header().flags.contains(Flags::PARITY));
            let (Body::Nak(nak) | Body::Ncf(nak)) = packet.body() else {
                panic!("{packet}")
            };
            let sqn = nak.sqn.0;
            (
                *way,
                packet.header().kind,
                sqn & !(K - 1),
                (sqn & (K - 1)) + 1,
            )
        });
        let mut told: Vec<_> = told.collect();
        told.sort_unstable();
        told
    }

    use PacketType::{Nak as NAK, Ncf as NCF};

    #[test]
    fn s11_6_a_parity_nak_is_confirmed_and_goes_on_when_it_asks_for_more() {
        let mut bench = joined();
        nak(&mut bench, 1, 16, 2);
        assert_eq!(told(&mut bench), [(0, NAK, 16, 2), (1, NCF, 16, 2)]);
        // NAKs for fewer packets than the source was asked for do not go on. The NCF of each
        // confirms the number of packets that its own way lacks.
        nak(&mut bench, 1, 16, 1);
        nak(&mut bench, 2, 16, 1);
        assert_eq!(told(&mut bench), [(1, NCF, 16, 2), (2, NCF, 16, 1)]);
        // A NAK for more packets than the source was asked for goes on. A NAK for three does not,
        // because the source was already asked for four.
        nak(&mut bench, 2, 16, 4);
        assert_eq!(told(&mut bench), [(0, NAK, 16, 4), (2, NCF, 16, 4)]);
        nak(&mut bench, 1, 16, 3);
        assert_eq!(told(&mut bench), [(1, NCF, 16, 3)]);
        // When the elimination interval is over, a NAK from any way goes on, with the largest
        // count.
        ncf(&mut bench, 16, 4);
        bench.pass(ms(21));
        nak(&mut bench, 1, 16, 1);
        assert_eq!(told(&mut bench), [(0, NAK, 16, 4), (1, NCF, 16, 3)]);
        assert_eq!(bench.element.repair_count(), 1);
    }

    #[test]
    fn s11_6_each_parity_packet_lowers_the_counts_until_nobody_lacks_any() {
        let mut bench = joined();
        assert!(rdata(&mut bench, 16, &[]).is_empty(), "nobody asked");
        nak(&mut bench, 1, 16, 1);
        nak(&mut bench, 2, 16, 3);
        bench.take();
        assert_eq!(rdata(&mut bench, 16, &[]), [1, 2]);
        assert_eq!(rdata(&mut bench, 17, &[]), [2]);
        // Two repairs came, so the source still has one packet to send, of the three that it was
        // asked for. A NAK for two packets is therefore new and goes on.
        nak(&mut bench, 1, 16, 2);
        assert_eq!(told(&mut bench), [(0, NAK, 16, 2), (1, NCF, 16, 2)]);
        assert_eq!(rdata(&mut bench, 18, &[]), [1, 2]);
        assert_eq!(rdata(&mut bench, 19, &[]), [1]);
        assert!(rdata(&mut bench, 20, &[]).is_empty());
        assert_eq!(bench.element.repair_count(), 0);
    }

    #[test]
    fn s11_6_of_a_short_group_fewer_packets_are_enough() {
        let mut bench = joined();
        // The receiver counts from a full group, of which five members do not exist.
        nak(&mut bench, 1, 16, 7);
        bench.take();
        let size = [PgmOption::CurrTgsize(CurrTgsize { packet_count: 3 })];
        assert_eq!(rdata(&mut bench, 16, &size), [1]);
        assert_eq!(rdata(&mut bench, 17, &size), [1]);
        assert!(rdata(&mut bench, 18, &size).is_empty());
        assert_eq!(bench.element.repair_count(), 0);
    }

    #[test]
    fn s11_6_a_confirmation_counts_if_it_is_for_as_many() {
        let mut bench = joined();
        nak(&mut bench, 1, 16, 3);
        ncf(&mut bench, 16, 2);
        bench.take();
        bench.pass(ms(55));
        assert_eq!(told(&mut bench), [(0, NAK, 16, 3)], "it is repeated");
        ncf(&mut bench, 16, 3);
        bench.pass(ms(200));
        assert!(told(&mut bench).is_empty());
        bench.pass(ms(2000));
        assert_eq!(bench.element.repair_count(), 0, "no repair came");
    }

    #[test]
    fn s11_6_confirmations_of_others_requests_anticipate_as_many() {
        let mut bench = joined();
        ncf(&mut bench, 16, 3);
        assert!(bench.take().is_empty(), "it goes no further");
        nak(&mut bench, 1, 16, 3);
        assert_eq!(told(&mut bench), [(1, NCF, 16, 3)]);
        nak(&mut bench, 1, 16, 4);
        assert_eq!(told(&mut bench), [(0, NAK, 16, 4), (1, NCF, 16, 4)]);
        // An NCF for more packets raises the number of packets that the source was asked for.
        ncf(&mut bench, 16, 6);
        nak(&mut bench, 2, 16, 6);
        assert_eq!(told(&mut bench), [(2, NCF, 16, 6)]);
        // Nobody behind the element asked for packets of group 32, so its repair is not passed on.
        ncf(&mut bench, 32, 1);
        assert!(rdata(&mut bench, 32, &[]).is_empty());
    }

    #[test]
    fn s11_6_where_repairs_take_long_parity_is_not_asked_for_twice() {
        let mut bench = joined();
        for first in (0..20).map(|group| group * K) {
            nak(&mut bench, 1, first, 1);
            ncf(&mut bench, first, 1);
            bench.pass(ms(60));
            bench.take();
            assert_eq!(rdata(&mut bench, first, &[]), [1]);
        }
        nak(&mut bench, 1, 800, 1);
        ncf(&mut bench, 800, 1);
        for (wait, goes_on) in [(90, false), (20, false), (20, true)] {
            bench.pass(ms(wait));
            bench.take();
            nak(&mut bench, 2, 800, 1);
            let naks = told(&mut bench).iter().filter(|it| it.1 == NAK).count();
            assert_eq!(naks, usize::from(goes_on), "{wait}");
        }
    }

    #[test]
    fn s11_6_parity_that_nobody_asked_for_goes_to_all() {
        let mut bench = joined();
        let body = Body::Odata(Data {
            sqn: Sqn(16),
            trail: Sqn(0),
        });
        bench.hand(0, SOURCE, &packet(false, &body, &[]));
        let mut ways: Vec<usize> = bench.take().iter().map(|(way, ..)| *way).collect();
        ways.sort_unstable();
        assert_eq!(ways, [1, 2]);
    }

    #[test]
    fn s11_6_a_parity_nak_goes_on_only_where_the_offer_has_parity_on_demand() {
        let mark = Mark::new(Profile::Messages, 1);
        let in_openpgms_form = mark.with_parity(ParityReading::OpenPgm);
        let one = ParityPrm::new(false, true, K, ParityReading::OpenPgm);
        for (mark, is_answered) in [
            (None, false),
            (Some(mark), false),
            (Some(in_openpgms_form), true),
        ] {
            let mut options = vec![PgmOption::ParityPrm(one)];
            options.extend(mark.map(PgmOption::Mark));
            let mut bench = Bench::new();
            bench.spm(0, SOURCE, &options);
            bench.take();
            let verdict = nak(&mut bench, 1, 16, 2);
            if is_answered {
                assert_eq!(verdict, Verdict::Control);
                assert_eq!(told(&mut bench), [(0, NAK, 16, 2), (1, NCF, 16, 2)]);
            } else {
                assert_eq!(verdict, Verdict::Drop(DropReason::Unexpected), "{mark:?}");
                assert_eq!(told(&mut bench), []);
                assert_eq!(bench.element.repair_count(), 0);
            }
        }
    }

    #[test]
    fn the_state_of_groups_is_bounded_and_goes_with_its_session() {
        let mut bench = joined();
        let naks = (0..1000).map(|number| nak(&mut bench, 1, number * K, 1));
        let refused = naks.filter(|it| *it == Verdict::Drop(DropReason::NoRoom));
        assert_eq!(refused.count(), 800);
        assert_eq!(bench.element.repair_count(), 200);
        bench.pass(Duration::from_secs(61));
        assert_eq!(bench.element.repair_count(), 0);
        let mut bench = Bench::joined();
        let verdict = nak(&mut bench, 1, 16, 1);
        assert_eq!(
            verdict,
            Verdict::Drop(DropReason::Unexpected),
            "it has no parity"
        );
    }
}
