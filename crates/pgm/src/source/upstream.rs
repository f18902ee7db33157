//! The packets that receivers send to the source: NAKs, null NAKs, SPM requests.
//!
//! The module does not send; it queues confirmations, repairs and SPMs. Each packet ends as handled
//! or as dropped for one reason. A NAK costs at most 63 look-ups, whatever it asks for.
//!
//! ```text
//!   NAK --> addresses and ports ours? --> each sqn: beyond, behind, queued, eliminated, queue it
//!                                     \-> NCF with the same list
//! ```
//!
//! Deviation: section 5.2 wants an NCF for any NAK. Here the NCF leaves out packets that were never
//! sent. A NAK for such packets is stray or forged, or its receiver was misled; a confirmation
//! would make receivers wait for data that does not exist, or extend their windows to it. The
//! source serves the rest of the NAK: a receiver that heard of a false lead asks in one list for
//! packets that it misses and for packets that do not exist. A NAK for packets that left the window
//! is confirmed, and an SPM with the trail follows at once.
//!
//! **Spec**: RFC 3208 sections 5.2, 5.3, 8.3, 9.3.4, 13.4.

use std::net::SocketAddr;

use base::{Arrival, DropReason, Instant, Verdict};
use wire::pgm::{
    Body, ChecksumState, Flags, Header, Nak, NakList, Packet, PgmOption, emit_flagged,
    verify_checksum,
};

use super::{Closing, Source, Sqn, repair::LineId};

impl Source {
    /// Takes one packet that arrived on either socket.
    ///
    /// **Cost**: at most 63 index look-ups and one copy of a control packet; no allocation.
    pub fn handle(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8]) -> Verdict {
        self.tell_time(now);
        self.counters.upstream_packets += 1;
        match self.take_upstream(now, arrival.source, tpdu) {
            Ok(()) => {
                self.counters.upstream_handled += 1;
                Verdict::Control
            }
            Err(reason) => {
                self.drops.count(reason);
                Verdict::Drop(reason)
            }
        }
    }

    fn take_upstream(
        &mut self,
        now: Instant,
        from: SocketAddr,
        tpdu: &[u8],
    ) -> Result<(), DropReason> {
        let header = Header::parse(tpdu)?;
        if !header.kind.is_upstream() {
            let is_ours = header.tsi() == self.setup.tsi;
            return Err(if is_ours {
                DropReason::Looped
            } else {
                DropReason::NotForUs
            });
        }
        if header.upstream_tsi() != self.setup.tsi
            || header.source_port != self.setup.destination_port
        {
            return Err(DropReason::NotForUs);
        }
        let packet = Packet::parse(tpdu)?;
        if verify_checksum(tpdu) == ChecksumState::Bad {
            return Err(DropReason::BadChecksum);
        }
        if matches!(self.closing, Closing::Over) {
            return Err(DropReason::Ended);
        }
        match packet.body() {
            Body::Nak(nak) => self.take_nak(now, from, &packet, nak),
            Body::Nnak(nak) => {
                self.check_addresses(nak)?;
                self.counters.nnaks += 1;
                Ok(())
            }
            Body::Spmr => {
                self.counters.spmrs += 1;
                self.spm.request(now);
                Ok(())
            }
            // This source sends no POLL and elects no PGMCC receiver, so none of these packets can
            // be meant for it.
            Body::Spm(_)
            | Body::Poll(_)
            | Body::Polr(_)
            | Body::Odata(_)
            | Body::Rdata(_)
            | Body::Ncf(_)
            | Body::Ack(_) => Err(DropReason::Unexpected),
        }
    }

    fn take_nak(
        &mut self,
        now: Instant,
        from: SocketAddr,
        packet: &Packet<'_>,
        nak: Nak,
    ) -> Result<(), DropReason> {
        self.check_addresses(nak)?;
        if self.reset.is_some_and(|reset| reset.is_deaf) {
            return Err(DropReason::Ended);
        }
        let mut sqns = [Sqn(0); 1 + NakList::SQNS_MAX];
        let count = list_sqns(packet, nak, &mut sqns)?;
        if packet.header().flags.contains(Flags::PARITY) {
            return self.take_parity_nak(now, from, nak, &mut sqns[..count]);
        }
        let near = self.log.unsent();
        let asked = count;
        let count = keep(&mut sqns[..asked], |sqn| sqn.extend(near) < near);
        self.counters.nak_beyond += (asked - count) as u64;
        if count == 0 {
            return Err(DropReason::BeyondWindow);
        }
        let sqns = &sqns[..count];
        self.counters.naks += 1;
        self.counters.nak_sqns += count as u64;
        let line = self.repairs.line_of(from);
        let mut is_news = false;
        for sqn in sqns {
            is_news |= self.ask_repair(now, line, sqn.extend(near));
        }
        self.confirm(nak, Flags::NONE, sqns, is_news);
        Ok(())
    }

    /// Takes a NAK that names groups and the number of packets that each lacks.
    fn take_parity_nak(
        &mut self,
        now: Instant,
        from: SocketAddr,
        nak: Nak,
        sqns: &mut [Sqn],
    ) -> Result<(), DropReason> {
        if !self.config.fec_on_demand() || self.parity.is_none() {
            return Err(DropReason::Unexpected);
        }
        let asked = sqns.len();
        let mut is_news = false;
        let count = keep(sqns, |sqn| {
            let queued = self.ask_parity(now, from, sqn);
            is_news |= queued == Some(true);
            queued.is_some()
        });
        self.counters.nak_beyond += (asked - count) as u64;
        if count == 0 {
            return Err(DropReason::BeyondWindow);
        }
        self.counters.parity_naks += 1;
        self.confirm(nak, Flags::PARITY, &sqns[..count], is_news);
        Ok(())
    }

    /// Checks that the source NLA and the group NLA of a NAK are this source's. Otherwise the NAK
    /// is meant for another session with the same identifier, or its sender never saw this source's
    /// SPMs.
    fn check_addresses(&self, nak: Nak) -> Result<(), DropReason> {
        if nak.source_nla == self.setup.nla && nak.group_nla == self.setup.group.ip() {
            Ok(())
        } else {
            Err(DropReason::NotForUs)
        }
    }

    /// Queues a repair. Returns false when the repair is queued already, was sent just now, or
    /// cannot be made.
    fn ask_repair(&mut self, now: Instant, line: LineId, position: u64) -> bool {
        if position < self.log.trail() {
            self.counters.nak_behind += 1;
            self.spm.request(now);
            return false;
        }
        if self.repairs.contains(position) {
            self.repairs.insert(line, position);
            self.counters.nak_merged += 1;
            return false;
        }
        let repaired_at = self.log.repaired_at(position);
        #[cfg(feature = "planted-bugs")]
        if repaired_at.is_some() && base::planted::is_planted(base::planted::Bug::RepairedOnce) {
            self.counters.nak_eliminated += 1;
            return false;
        }
        if repaired_at.is_some_and(|at| now.since(at) < self.reports.elimination) {
            self.counters.nak_eliminated += 1;
            return false;
        }
        self.counters.nak_queued += 1;
        self.repairs.insert(line, position);
        true
    }

    /// Queues the NCF for the receivers: a copy of the NAK with its list. In a storm of NAKs, the
    /// source confirms only NAKs with new requests.
    fn confirm(&mut self, nak: Nak, flags: Flags, sqns: &[Sqn], is_news: bool) {
        if self.ncfs.is_storm() && !is_news {
            self.counters.ncf_suppressed += 1;
            return;
        }
        let (sqn, list) = (sqns[0], &sqns[1..]);
        let ncf = Body::Ncf(Nak { sqn, ..nak });
        let options = [PgmOption::NakList(NakList::new(list))];
        let options = if list.is_empty() { &[][..] } else { &options };
        self.out.control.clear();
        let addressing = &self.addressing;
        emit_flagged(&mut self.out.control, addressing, flags, &ncf, options, &[]);
        if !self.ncfs.push(&self.out.control) {
            self.counters.ncf_suppressed += 1;
        }
    }
}

/// Collects all sequence numbers that a NAK asks for, and returns their number.
fn list_sqns(packet: &Packet<'_>, nak: Nak, sqns: &mut [Sqn]) -> Result<usize, DropReason> {
    let listed = packet.options().find_map(|option| match option {
        PgmOption::NakList(list) => Some(list),
        _ => None,
    });
    sqns[0] = nak.sqn;
    let mut count = 1;
    for sqn in listed.iter().flat_map(NakList::iter) {
        *sqns.get_mut(count).ok_or(DropReason::Malformed)? = sqn;
        count += 1;
    }
    Ok(count)
}

/// Moves the entries that `is_kept` selects to the front, in their order, and returns their number.
fn keep(sqns: &mut [Sqn], mut is_kept: impl FnMut(Sqn) -> bool) -> usize {
    let mut kept = 0;
    for index in 0..sqns.len() {
        if is_kept(sqns[index]) {
            sqns[kept] = sqns[index];
            kept += 1;
        }
    }
    kept
}
