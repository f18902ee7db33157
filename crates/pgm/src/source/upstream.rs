//! The packets that receivers send to the source: NAKs, null NAKs, SPM requests, replies to polls.
//!
//! The module does not send; it queues confirmations, repairs and SPMs. Each packet counts as
//! handled, or as dropped for one reason. A NAK can name at most 63 packets or groups, which bounds
//! its cost.
//!
//! ```text
//!   NAK --> addresses and ports ours? --> each sqn: unsent? too old? queued? repaired? else queue
//!                                     \-> NCF, without unsent and refused sqns
//! ```
//!
//! Deviation: section 5.2 wants an NCF for any NAK. Here the NCF leaves out packets that were never
//! sent. A NAK for such packets is stray or forged, or the receiver that sent it was misled. A
//! confirmation would make receivers wait for data that does not exist, or extend their windows to
//! it. The source serves the rest of the NAK, because a receiver that heard of a false lead asks in
//! one list for packets that it misses and for packets that do not exist. A NAK for packets that
//! left the window is confirmed, and an SPM with the trail follows soon. The NCF also leaves out
//! packets that are not repaired because strangers have had their share: a receiver that needs them
//! asks again.
//!
//! **Spec**: RFC 3208 sections 5.2, 5.3, 8.3, 9.3.4, 13.4, 14.4.

use base::{Arrival, DropReason, Instant, Verdict};
use wire::pgm::{
    Body, ChecksumState, Flags, Header, Nak, NakList, Packet, PgmOption, emit_flagged,
    verify_checksum,
};

use super::{
    Closing, Source, Sqn,
    askers::{Asker, Service, Standing},
    strangers,
};

impl Source {
    /// Takes one packet from the group socket or the upstream socket. In a session without a key,
    /// its sender counts as a stranger: the source repairs for strangers only up to a limit
    /// (`stranger_repair_share`). With a key, only packets of hosts that have the key come this
    /// far, and no such limit applies.
    ///
    /// **Cost**: at most 63 index look-ups (a NAK can name 63 packets) and one copy of a control
    /// packet; no allocation.
    pub fn handle(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8]) -> Verdict {
        self.take(now, arrival, Standing::Nothing, tpdu)
    }

    /// Takes one packet from a host that has shown its address by a control connection. In a
    /// session without a key, the repairs for this host have a bound that grows with the new data.
    /// Beyond the bound, the host shares the rate of strangers ([`Source::handle`]).
    ///
    /// **Cost**: as for [`Source::handle`]. In addition, each packet that the host asks for costs a
    /// few look-ups in a map of all such hosts.
    pub fn handle_reporter(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8]) -> Verdict {
        self.take(now, arrival, Standing::Address, tpdu)
    }

    fn take(&mut self, now: Instant, arrival: &Arrival, shown: Standing, tpdu: &[u8]) -> Verdict {
        self.tell_time(now);
        self.counters.upstream_packets += 1;
        let from = Asker {
            address: arrival.source,
            standing: if self.setup.is_protected() {
                Standing::Key
            } else {
                shown
            },
        };
        match self.take_upstream(now, from, tpdu) {
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

    fn take_upstream(&mut self, now: Instant, from: Asker, tpdu: &[u8]) -> Result<(), DropReason> {
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
        if matches!(self.ending.closing, Closing::Over) {
            return Err(DropReason::Ended);
        }
        match packet.body() {
            Body::Nak(nak) => {
                self.check_addresses(nak)?;
                self.askers.asked(now, from, self.on_wire(tpdu.len()));
                self.take_nak(now, from, &packet, nak)
            }
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
            Body::Polr(polr) => {
                self.polling.reply(now, from.address, polr)?;
                self.counters.poll_replies += 1;
                Ok(())
            }
            // All these packets except ACKs go to receivers. ACKs belong to PGMCC congestion
            // control, which this source does not use: it elects no receiver to send them.
            Body::Spm(_)
            | Body::Poll(_)
            | Body::Odata(_)
            | Body::Rdata(_)
            | Body::Ncf(_)
            | Body::Ack(_) => Err(DropReason::Unexpected),
        }
    }

    fn take_nak(
        &mut self,
        now: Instant,
        from: Asker,
        packet: &Packet<'_>,
        nak: Nak,
    ) -> Result<(), DropReason> {
        if self.ending.reset.is_some_and(|reset| reset.is_deaf) {
            return Err(DropReason::Ended);
        }
        let mut sqns = [Sqn(0); 1 + NakList::SQNS_MAX];
        let count = list_sqns(packet, nak, &mut sqns)?;
        let is_report = |option: PgmOption<'_>| matches!(option, PgmOption::Cr(_));
        self.counters.congestion_reports += u64::from(packet.options().any(is_report));
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
        self.counters.naks += 1;
        self.counters.nak_sqns += count as u64;
        let mut is_news = false;
        let count = keep(&mut sqns[..count], |sqn| {
            let reply = self.ask_repair(now, from, sqn.extend(near));
            is_news |= reply == Reply::Queued;
            reply.is_confirmed()
        });
        if count > 0 {
            self.confirm(nak, Flags::NONE, &sqns[..count], is_news);
        }
        Ok(())
    }

    /// Takes a NAK that asks for parity: it names groups, and how many packets the receiver lacks
    /// in each.
    fn take_parity_nak(
        &mut self,
        now: Instant,
        from: Asker,
        nak: Nak,
        sqns: &mut [Sqn],
    ) -> Result<(), DropReason> {
        if !self.config.fec_on_demand() || self.parity.is_none() {
            return Err(DropReason::Unexpected);
        }
        let asked = sqns.len();
        let (mut beyond, mut is_news) = (0, false);
        let count = keep(sqns, |sqn| {
            let reply = self.ask_parity(now, from, sqn);
            beyond += usize::from(reply == Reply::Beyond);
            is_news |= reply == Reply::Queued;
            reply.is_confirmed()
        });
        self.counters.nak_beyond += beyond as u64;
        if beyond == asked {
            return Err(DropReason::BeyondWindow);
        }
        self.counters.parity_naks += 1;
        if count > 0 {
            self.confirm(nak, Flags::PARITY, &sqns[..count], is_news);
        }
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

    /// Queues a repair, unless it is queued already, was sent just now or cannot be made. A host
    /// without full service gets a repair only within the limits of strangers.
    fn ask_repair(&mut self, now: Instant, from: Asker, position: u64) -> Reply {
        if position < self.log.trail() {
            self.counters.nak_behind += 1;
            self.spm.request(now);
            return Reply::Known;
        }
        if self.repairs.contains(position) {
            let line = self.repairs.line_of(from.address);
            self.repairs.insert(line, position);
            self.counters.nak_merged += 1;
            return Reply::Known;
        }
        let service = self.service_of(from);
        if self.is_eliminated(now, service, position) {
            self.counters.nak_eliminated += 1;
            return Reply::Known;
        }
        let bytes = self.log.range(position).len();
        let repairs = match service {
            Service::Full | Service::Rate => 0,
            Service::Few => self.log.grants(position),
        };
        if service == Service::Full {
            self.askers.served(from, bytes);
        } else if !self.askers.grant(now, from, self.on_wire(bytes), repairs) {
            self.counters.nak_refused += 1;
            return Reply::Refused;
        }
        if service == Service::Few {
            self.log.note_grant(position);
        }
        self.counters.nak_queued += 1;
        let line = self.repairs.line_of(from.address);
        self.repairs.insert(line, position);
        Reply::Queued
    }

    /// Returns how this host is served. Counts the request when the host reports but has used up
    /// its bound of repairs.
    pub(super) fn service_of(&mut self, from: Asker) -> Service {
        let service = self.askers.service_of(from);
        self.counters.nak_overdrawn += u64::from(service == Service::Rate);
        service
    }

    /// Returns true when the packet was last repaired less than the elimination interval ago. For
    /// `Service::Few`, the interval also depends on the number of repairs granted for the packet.
    fn is_eliminated(&self, now: Instant, service: Service, position: u64) -> bool {
        let Some(at) = self.log.repaired(position) else {
            return false;
        };
        #[cfg(feature = "planted-bugs")]
        if base::planted::is_planted(base::planted::Bug::RepairedOnce) {
            return true;
        }
        let elimination = self.reports.elimination;
        let elimination = match service {
            Service::Full | Service::Rate => elimination,
            Service::Few => strangers::elimination_of(elimination, self.log.grants(position)),
        };
        now.since(at) < elimination
    }

    /// Queues the NCF for the receivers: a copy of the NAK, with the numbers `sqns`. In a storm of
    /// NAKs, the source confirms only NAKs with new requests.
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

/// What becomes of a request for one packet, or for parity of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The requested packet or group was never sent.
    Beyond,
    /// The host that asked has no full service, and the repairs for strangers that it may have are
    /// used up.
    Refused,
    /// The repair is on its way, or will never be made.
    Known,
    /// The source has queued a repair, or more parity than before.
    Queued,
}

impl Reply {
    const fn is_confirmed(self) -> bool {
        matches!(self, Self::Known | Self::Queued)
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

/// Moves to the front, in order, all entries for which `is_kept` is true; returns their number.
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
