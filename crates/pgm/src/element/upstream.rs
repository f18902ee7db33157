//! Packets that come from receivers: NAKs, and requests for SPMs.
//!
//! **Spec**: RFC 3208 sections 7.2, 7.3, 7.4, 7.7, 9.3.3. The module `parity` takes NAKs for
//! parity.

use std::time::Duration;

use base::{DropReason, Instant};
use wire::{
    Sqn,
    pgm::{Addressing, Body, Flags, Nak, NakList, Packet, PgmOption, Tsi, emit_flagged},
};

use super::{
    Element, Session,
    downstream::sqns_of,
    repairs::{Answer, Reply, key},
    timed::Key,
};
use crate::{queue::Destination, rdata::turn_into_rdata};

impl Element {
    pub(super) fn take_nak(
        &mut self,
        now: Instant,
        way: usize,
        packet: &Packet<'_>,
        nak: Nak,
    ) -> Result<(), DropReason> {
        let tsi = packet.header().upstream_tsi();
        let session = self.session_below(way, tsi)?;
        let here = self.setup.ways[way];
        if nak.group_nla != here.group.ip() || nak.source_nla != here.nla {
            return Err(DropReason::NotForUs);
        }
        // A NAK for a cut-off session does not go upstream, so the element must not confirm it.
        if session.is_cut_off {
            return Err(DropReason::Unexpected);
        }
        if packet.header().flags.contains(Flags::PARITY) {
            return self.take_parity_nak(now, way, packet, nak, &session);
        }
        let mut sqns = SqnList::default();
        let known = sqns_of(packet, nak).filter(|sqn| !session.is_ahead(*sqn));
        known.for_each(|sqn| sqns.push(sqn));
        let Some(&sqn) = sqns.as_slice().first() else {
            return Err(DropReason::BeyondWindow);
        };
        self.counters.naks += 1;
        let sorted = self.sort_nak(now, way, tsi, &session, &sqns);
        if sorted.has_room {
            let nak = Nak { sqn, ..nak };
            self.confirm(way, tsi, Flags::NONE, nak, sqns.as_slice());
        }
        for &sqn in sorted.kept.as_slice() {
            self.repair(way, key(tsi, sqn), &session);
        }
        if sorted.is_news {
            // If one of the lacking numbers must go upstream, all of them do (section 9.3.3).
            let is_sent = self.ask(tsi, Flags::NONE, sorted.lacking.as_slice());
            self.counters.naks_forwarded += u64::from(is_sent);
        } else if sorted.kept.as_slice().is_empty() {
            self.counters.naks_eliminated += 1;
        }
        if sorted.has_room {
            Ok(())
        } else {
            Err(DropReason::NoRoom)
        }
    }

    /// Splits the sequence numbers of a NAK into those that this element repairs now and those that
    /// the neighbour upstream must repair. Leaves out the numbers that this element has just
    /// repaired on `way`, by which the NAK came.
    fn sort_nak(
        &mut self,
        now: Instant,
        way: usize,
        tsi: Tsi,
        session: &Session,
        sqns: &SqnList,
    ) -> SortedNak {
        let mut sorted = SortedNak {
            has_room: true,
            ..SortedNak::default()
        };
        for &sqn in sqns.as_slice() {
            let key = key(tsi, sqn);
            // A repair before the trail would tell receivers that it is too late for its packet.
            // The trail may also be an earlier session's: whether it is, the source knows.
            let kept = self.kept.find(key, session.kept_since).map(<[u8]>::len);
            let kept = kept.filter(|_| !session.trail.is_after(sqn));
            let len = kept.filter(|&len| self.kept.has_share(way, len));
            let Some(len) = len else {
                let reply = self.repairs.nak(now, key, way);
                if reply == Reply::Repaired {
                    continue;
                }
                let is_news = reply == Reply::PassedOn;
                self.counters.rdata_beyond_share += u64::from(is_news && kept.is_some());
                sorted.lacking.push(sqn);
                sorted.is_news |= is_news;
                sorted.has_room &= reply != Reply::NoRoom;
                continue;
            };
            match self.repairs.answer(now, key, way) {
                Answer::Repair => {
                    self.kept.take_share(way, len);
                    sorted.kept.push(sqn);
                }
                Answer::Eliminated => {}
                Answer::NoRoom => sorted.has_room = false,
            }
        }
        sorted
    }

    /// Sends a repair of a packet that the element keeps.
    fn repair(&mut self, way: usize, key: Key, session: &Session) {
        let here = self.setup.ways[way];
        let destination = Destination {
            to: here.group,
            path: here.path,
            hops: None,
        };
        let Some(tpdu) = self.kept.find(key, session.kept_since) else {
            return;
        };
        let queue = &mut self.queues[way];
        if queue.room_bytes() < tpdu.len() {
            self.counters.overflowed += 1;
            return;
        }
        queue.push(destination, |out| {
            let start = out.len();
            out.extend_from_slice(tpdu);
            if let Some(head) = out[start..].first_chunk_mut() {
                turn_into_rdata(head, session.trail);
            }
        });
        self.counters.rdata_kept += 1;
    }

    pub(super) fn take_spmr(
        &mut self,
        now: Instant,
        way: usize,
        tsi: Tsi,
    ) -> Result<(), DropReason> {
        let session = self.session_below(way, tsi)?;
        let last = session.requested;
        if last.is_some_and(|last| now.since(last) < SPMR_SPACING) {
            return Ok(());
        }
        if let Some(session) = self.sessions.get_mut(&tsi) {
            session.requested = Some(now);
        }
        let is_sent = self.send_up(&session, tsi, Flags::NONE, &Body::Spmr, &[]);
        self.counters.spmrs_forwarded += u64::from(is_sent);
        Ok(())
    }

    /// Repeats the NAKs that nobody has confirmed.
    pub(super) fn ask_again(&mut self, mut keys: Vec<Key>) {
        keys.sort_unstable();
        for keys in keys.chunk_by(|one, next| one.0 == next.0) {
            for part in keys.chunks(1 + NakList::SQNS_MAX) {
                let mut sqns = SqnList::default();
                part.iter().for_each(|(_, sqn)| sqns.push(Sqn(*sqn)));
                let is_sent = self.ask(part[0].0, Flags::NONE, sqns.as_slice());
                self.counters.naks_repeated += u64::from(is_sent);
            }
        }
    }

    /// Sends a NAK to the neighbour upstream. Returns false when it cannot be sent.
    pub(super) fn ask(&mut self, tsi: Tsi, flags: Flags, sqns: &[Sqn]) -> bool {
        let Some(&session) = self.sessions.get(&tsi).filter(|it| !it.is_cut_off) else {
            return false;
        };
        let nak = Nak {
            sqn: sqns[0],
            source_nla: session.upstream.ip(),
            // If the neighbour upstream sends by unicast, this is the element's own address, to
            // which the neighbour sends the data; otherwise the multicast group.
            group_nla: self.setup.ways[session.way].group_here(),
        };
        self.send_up(&session, tsi, flags, &Body::Nak(nak), &sqns[1..])
    }

    /// Confirms a NAK: sends an NCF on `way`, by which the NAK came.
    pub(super) fn confirm(&mut self, way: usize, tsi: Tsi, flags: Flags, nak: Nak, sqns: &[Sqn]) {
        let addressing = Addressing::downstream(tsi, self.setup.destination_port);
        let body = Body::Ncf(nak);
        let is_sent = self.send_down(way, NAK_BYTES_MAX, |out| {
            emit_list(out, &addressing, flags, &body, &sqns[1..]);
        });
        self.counters.ncfs += u64::from(is_sent);
    }

    /// Queues a packet for the neighbour upstream. Returns false when there is no room for it.
    pub(super) fn send_up(
        &mut self,
        session: &Session,
        tsi: Tsi,
        flags: Flags,
        body: &Body,
        list: &[Sqn],
    ) -> bool {
        let addressing = Addressing::upstream(tsi, self.setup.destination_port);
        let destination = Destination {
            to: session.upstream,
            path: self.setup.ways[session.way].path,
            hops: None,
        };
        self.queue(session.way, destination, NAK_BYTES_MAX, |out| {
            emit_list(out, &addressing, flags, body, list);
        })
    }

    /// Returns the session that a packet from a receiver names.
    fn session_below(&self, way: usize, tsi: Tsi) -> Result<Session, DropReason> {
        let session = self.sessions.get(&tsi).ok_or(DropReason::UnknownSession)?;
        if session.way == way {
            // A receiver on the source's side of this element asks the source itself.
            return Err(DropReason::NotForUs);
        }
        Ok(*session)
    }
}

/// The sequence numbers of one NAK.
#[derive(Clone, Copy, Debug)]
pub(super) struct SqnList {
    sqns: [Sqn; 1 + NakList::SQNS_MAX],
    count: usize,
}

impl Default for SqnList {
    fn default() -> Self {
        Self {
            sqns: [Sqn(0); 1 + NakList::SQNS_MAX],
            count: 0,
        }
    }
}

impl SqnList {
    /// Adds a sequence number; does nothing when the list is full.
    pub(super) fn push(&mut self, sqn: Sqn) {
        if let Some(place) = self.sqns.get_mut(self.count) {
            *place = sqn;
            self.count += 1;
        }
    }

    pub(super) fn as_slice(&self) -> &[Sqn] {
        &self.sqns[..self.count]
    }
}

/// The sequence numbers of a NAK, split by who repairs them: this element or its neighbour
/// upstream.
#[derive(Clone, Copy, Debug, Default)]
struct SortedNak {
    /// The numbers that this element repairs.
    kept: SqnList,
    /// The numbers that the neighbour upstream must repair.
    lacking: SqnList,
    /// True when a NAK for at least one of `lacking` must go upstream now.
    is_news: bool,
    has_room: bool,
}

fn emit_list(out: &mut Vec<u8>, addressing: &Addressing, flags: Flags, body: &Body, list: &[Sqn]) {
    let option = [PgmOption::NakList(NakList::new(list))];
    let options = if list.is_empty() { &[][..] } else { &option };
    emit_flagged(out, addressing, flags, body, options, &[]);
}

/// Length of a full NAK over IPv6, in bytes.
const NAK_BYTES_MAX: usize = 16 + 4 + 2 * 20 + 4 + 4 + 4 * NakList::SQNS_MAX;
/// The shortest time between two SPMRs that the element forwards for one session. Judgement:
/// receivers of one network that ask at about the same time need only one SPM.
const SPMR_SPACING: Duration = Duration::from_millis(100);
