//! Sorts the packets that arrive: checks each, reads its options, and gives it to its session.
//!
//! In: one packet. Out: a verdict, or the reason why the packet is dropped. `peer` decides what a
//! session makes of its packet; the parent module decides which sessions there are.

use std::net::IpAddr;

use base::{Arrival, DropReason, Instant, Verdict};
use wire::pgm::{
    Body, ChecksumState, Data, Flags, Header, NakList, Packet, PacketType, PgmOption, Spm,
    verify_checksum,
};

use super::{
    Receiver,
    peer::{BackOffNotes, Incoming, IncomingParity, SpmNotes},
};
use crate::{
    LateJoin,
    fec::{Parity, encoded_contents},
};

impl Receiver {
    /// Checks the packet itself, then gives it to the session it belongs to.
    #[inline]
    pub(super) fn sort(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        tpdu: &[u8],
    ) -> Result<Verdict, DropReason> {
        let packet = Packet::parse(tpdu).map_err(|error| error.reason())?;
        let header = packet.header();
        match verify_checksum(tpdu) {
            ChecksumState::Good => {}
            ChecksumState::Absent if self.shared.setup.is_protected => {}
            ChecksumState::Absent if !header.kind.is_data() => {}
            ChecksumState::Absent => return Err(DropReason::NoChecksum),
            ChecksumState::Bad => return Err(DropReason::BadChecksum),
        }
        self.check_destination(arrival, header)?;
        match packet.body() {
            Body::Odata(data) => self.data(now, arrival, &packet, data),
            Body::Rdata(data) => self.data(now, arrival, &packet, data),
            body => self.control(now, arrival, &packet, body),
        }
    }

    /// Fails when the packet is for another port or another group.
    #[inline]
    fn check_destination(&self, arrival: &Arrival, header: &Header) -> Result<(), DropReason> {
        let setup = &self.shared.setup;
        let port = if header.kind.is_upstream() {
            header.source_port
        } else {
            header.destination_port
        };
        let elsewhere =
            arrival.destination.is_multicast() && arrival.destination != setup.group.ip();
        if port != setup.destination_port || elsewhere {
            return Err(DropReason::NotForUs);
        }
        Ok(())
    }

    #[inline]
    fn data(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet<'_>,
        data: Data,
    ) -> Result<Verdict, DropReason> {
        let header = packet.header();
        if header.flags == Flags::NONE
            && let Some(session) = self.peers.find(header.tsi(), arrival.source.ip())
            && let Some(peer) = self.peers.get_mut(session)
        {
            let store = &mut self.shared.store;
            if let Some((position, is_due)) = peer.take_next(now, data, packet.tsdu(), store) {
                // A packet without options cannot hold several messages. If an earlier packet set
                // `is_packed`, that packet may have been forged.
                peer.is_packed = false;
                peer.count_data(header.kind, &mut self.shared.counters);
                let range = packet.tsdu_range();
                return Ok(if is_due {
                    Verdict::Payload {
                        session,
                        position,
                        range,
                    }
                } else {
                    Verdict::Held
                });
            }
        }
        self.data_at_length(now, arrival, packet, data)
    }

    /// Takes data that `take_next` did not take, for example because the packet has options or is
    /// out of order.
    #[inline(never)]
    fn data_at_length(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet<'_>,
        data: Data,
    ) -> Result<Verdict, DropReason> {
        let header = packet.header();
        if header.flags.contains(Flags::PARITY) {
            return self.parity(now, arrival, packet, data);
        }
        let mut incoming = Incoming {
            sqn: data.sqn,
            trail: data.trail,
            is_repair: header.kind == PacketType::Rdata,
            fragment: None,
            is_last: false,
            join_min: None,
            payload_at: packet.tsdu_range().start,
            payload: packet.tsdu(),
        };
        let mut is_packed = false;
        for option in packet.options() {
            match option {
                PgmOption::Packed(_) => is_packed = true,
                // Of several options of a kind, the first counts (section 11.2).
                PgmOption::Fragment(it) => _ = incoming.fragment.get_or_insert(it),
                PgmOption::Fin => incoming.is_last = true,
                PgmOption::Join(join) => _ = incoming.join_min.get_or_insert(join.min),
                _ => {}
            }
        }
        // An attacker may send an old data packet again, so a data packet alone cannot begin a
        // protected session.
        let session = if self.shared.setup.is_protected {
            let known = self.known_session(arrival, header.tsi());
            known.map_err(|reason| match reason {
                DropReason::UnknownSession => DropReason::Unproven,
                other => other,
            })?
        } else {
            self.session(now, arrival, header.tsi())?
        };
        let peer = self
            .peers
            .get_mut(session)
            .expect("the session was just found");
        if !peer.is_trusted() {
            return Err(DropReason::Unproven);
        }
        let was_proven = peer.is_proven();
        let verdict = peer.data(now, &incoming, &mut self.shared);
        #[cfg(feature = "planted-bugs")]
        let verdict = match verdict {
            Err(DropReason::Duplicate)
                if incoming.is_repair
                    && base::planted::is_planted(base::planted::Bug::RepairTakenTwice) =>
            {
                let position = data.sqn.extend(peer.window().next);
                let range = packet.tsdu_range();
                Ok(Verdict::Payload {
                    session,
                    position,
                    range,
                })
            }
            other => other,
        };
        if verdict.is_ok() {
            peer.count_data(header.kind, &mut self.shared.counters);
            peer.is_packed = is_packed;
        }
        if !was_proven {
            self.peers.touch(session);
        }
        self.settle(session);
        verdict
    }

    fn control(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet<'_>,
        body: Body,
    ) -> Result<Verdict, DropReason> {
        let header = packet.header();
        match body {
            Body::Spm(spm) => self.spm(now, arrival, packet, &spm)?,
            Body::Ncf(nak) => {
                let is_parity = self.count_parity(header);
                let session = self.known_session(arrival, header.tsi())?;
                let notes = NcfNotes::of(packet);
                let peer = self
                    .peers
                    .get_mut(session)
                    .expect("the session was just found");
                peer.follow_back_off(&notes.back_off);
                if notes.is_unreachable {
                    peer.cut_off(now, notes.path_nla, &self.shared)?;
                } else if is_parity {
                    peer.parity_ncf(now, &nak, notes.list)?;
                } else {
                    peer.ncf(now, &nak, notes.list, &mut self.shared)?;
                }
                self.shared.counters.ncf_packets += 1;
                self.settle(session);
            }
            Body::Poll(poll) => {
                let session = self.known_session(arrival, header.tsi())?;
                let peer = self
                    .peers
                    .get_mut(session)
                    .expect("the session was just found");
                peer.poll(now, &poll, &mut self.shared)?;
                self.settle(session);
            }
            Body::Polr(_) => self.heard_reply(packet)?,
            Body::Nak(_) | Body::Spmr => self.heard_request(now, arrival, packet, body)?,
            _ => return Err(DropReason::Unexpected),
        }
        Ok(Verdict::Control)
    }

    fn spm(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet<'_>,
        spm: &Spm,
    ) -> Result<(), DropReason> {
        let tsi = packet.header().tsi();
        let notes = SpmNotes::of(packet.options());
        // With `LateJoin::Now`, a receiver begins with the next packet, so it gets nothing from a
        // session that has ended.
        let joins_late = self.shared.limits.late_join != LateJoin::Now;
        let source = arrival.source.ip();
        if notes.is_fin && !joins_late && self.peers.find(tsi, source).is_none() {
            return Err(DropReason::Ended);
        }
        let session = self.session(now, arrival, tsi)?;
        let peer = self
            .peers
            .get_mut(session)
            .expect("the session was just found");
        let verdict = peer.spm(now, arrival, spm, &notes, &mut self.shared);
        self.shared.counters.spm_packets += u64::from(verdict.is_ok());
        self.peers.touch(session);
        self.settle(session);
        verdict
    }

    /// Takes a NAK or SPMR that another receiver multicast.
    fn heard_request(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet<'_>,
        body: Body,
    ) -> Result<(), DropReason> {
        let header = packet.header();
        let is_parity = self.count_parity(header);
        let mut asked = [None; SHARING_MAX];
        let sharing = self.peers.sharing(header.upstream_tsi());
        for (place, session) in asked.iter_mut().zip(sharing) {
            *place = Some(session);
        }
        if asked[0].is_none() {
            return Err(DropReason::UnknownSession);
        }
        if arrival.source.ip() == self.shared.setup.own_nla {
            return Err(DropReason::Looped);
        }
        for session in asked.into_iter().flatten() {
            let Some(peer) = self.peers.get_mut(session) else {
                continue;
            };
            match body {
                Body::Nak(nak) if is_parity => {
                    peer.heard_parity_nak(now, &nak, nak_list_of(packet));
                }
                Body::Nak(nak) => peer.heard_nak(now, &nak, nak_list_of(packet)),
                _ => peer.heard_spmr(now, &self.shared),
            }
        }
        match body {
            Body::Nak(_) => self.shared.counters.nak_packets_heard += 1,
            _ => self.shared.counters.spmr_packets_heard += 1,
        }
        Ok(())
    }

    /// Takes another host's POLR, by which a local repairer may offer itself to the group.
    ///
    /// The offer is not followed (RFC 3208 section 9.5.4 allows that): anybody can send an offer
    /// that names a victim's address.
    fn heard_reply(&mut self, packet: &Packet<'_>) -> Result<(), DropReason> {
        let tsi = packet.header().upstream_tsi();
        if self.peers.sharing(tsi).next().is_none() {
            return Err(DropReason::UnknownSession);
        }
        let is_redirect = |option: PgmOption<'_>| matches!(option, PgmOption::Redirect(_));
        if !packet.options().any(is_redirect) {
            return Err(DropReason::Unexpected);
        }
        self.shared.counters.redirects_heard += 1;
        Ok(())
    }

    /// Returns true for a NAK or NCF about parity, and then counts it. Such a packet says how many
    /// packets of a transmission group are missing, not which.
    fn count_parity(&mut self, header: &Header) -> bool {
        let is_parity = header.flags.contains(Flags::PARITY);
        self.shared.counters.parity_packets += u64::from(is_parity);
        is_parity
    }

    /// Takes a parity packet. A parity packet never begins a session.
    fn parity(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet<'_>,
        data: Data,
    ) -> Result<Verdict, DropReason> {
        let header = packet.header();
        self.shared.counters.parity_packets += 1;
        let mut incoming = IncomingParity {
            sqn: data.sqn,
            trail: data.trail,
            is_repair: header.kind == PacketType::Rdata,
            group: None,
            parity: Parity {
                index: 0,
                payload: packet.tsdu(),
                is_variable: header.flags.contains(Flags::VAR_PKTLEN),
                fragment: None,
                packet_count: None,
            },
        };
        for option in packet.options() {
            match option {
                // Of several options of a kind, the first counts (section 11.2).
                PgmOption::ParityGrp(group) => _ = incoming.group.get_or_insert(group),
                PgmOption::CurrTgsize(last) => {
                    let size = last.packet_count as usize;
                    incoming.parity.packet_count.get_or_insert(size);
                }
                PgmOption::Encoded(raw) => {
                    let known = incoming.parity.fragment;
                    incoming.parity.fragment = known.or_else(|| encoded_contents(&raw));
                }
                _ => {}
            }
        }
        let session = self.known_session(arrival, header.tsi())?;
        let peer = self
            .peers
            .get_mut(session)
            .expect("the session was just found");
        if !peer.is_trusted() {
            return Err(DropReason::Unproven);
        }
        peer.note_heard();
        let verdict = peer.parity(now, &incoming, &mut self.shared);
        self.settle(session);
        verdict
    }
}

/// Another receiver's request is applied to at most this many senders with the same TSI. Further
/// such senders are most likely forged. If a request is ignored for a sender, this receiver only
/// sends its own request there.
const SHARING_MAX: usize = 4;

/// What the options of an NCF say.
#[derive(Clone, Copy, Debug, Default)]
struct NcfNotes<'a> {
    list: Option<NakList<'a>>,
    /// True when the NCF's sender cannot reach its children (OPT_NBR_UNREACH).
    is_unreachable: bool,
    /// The address of the NCF's sender (OPT_PATH_NLA).
    path_nla: Option<IpAddr>,
    back_off: BackOffNotes,
}

impl<'a> NcfNotes<'a> {
    fn of(packet: &Packet<'a>) -> Self {
        let mut notes = Self::default();
        for option in packet.options() {
            match option {
                PgmOption::NakList(list) => notes.list = Some(list),
                PgmOption::NbrUnreach => notes.is_unreachable = true,
                PgmOption::PathNla(path) => notes.path_nla = Some(path.nla),
                PgmOption::NakBackOffInterval(told) => notes.back_off.interval = Some(told),
                _ => {}
            }
        }
        notes
    }
}

/// Finds the list of further sequence numbers in a NAK.
fn nak_list_of<'a>(packet: &Packet<'a>) -> Option<NakList<'a>> {
    packet.options().find_map(|option| match option {
        PgmOption::NakList(list) => Some(list),
        _ => None,
    })
}
