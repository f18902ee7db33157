//! Packets that come from upstream: SPMs, data, repairs, confirmations.
//!
//! **Spec**: RFC 3208 sections 7.1, 7.5, 7.8, 15.3.2.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use base::{DropReason, Instant};
use wire::{
    Sqn,
    pgm::{
        Addressing, Body, Data, Flags, Mark, Nak, OPTIONS_MAX, Packet, PgmOption, Spm, Tsi,
        emit_flagged,
    },
};

use super::{Element, Session, WaySet, parity::offer_of, repairs::key};
use crate::{
    poll::Polls,
    queue::Destination,
    spm_sequence::{SpmOrder, SpmSequence},
};

impl Element {
    pub(super) fn take_spm(
        &mut self,
        now: Instant,
        way: usize,
        source: SocketAddr,
        packet: &Packet<'_>,
        spm: Spm,
    ) -> Result<(), DropReason> {
        let tsi = packet.header().tsi();
        let is_neighbours = spm.path_nla == source.ip();
        if packet.options().any(|it| it == PgmOption::NbrUnreach) {
            self.cut_off(way, tsi, Some(spm.path_nla))?;
            self.forward_spm(way, packet, spm);
            return Ok(());
        }
        if !is_neighbours {
            return Err(DropReason::WrongSource);
        }
        let mark = mark_of(packet);
        // To pass an SPM on, the element must change it. It cannot change an SPM whose mark has an
        // unknown version, or whose mark requires a feature, such as a tag.
        if mark.is_some_and(|mark| !mark.is_known() || mark.required != 0) {
            return Err(DropReason::Incompatible);
        }
        let group_port = self.setup.ways[way].group.port();
        let port = mark.map(|mark| mark.upstream_port).filter(|&port| port > 0);
        let mut upstream = source;
        upstream.set_port(port.unwrap_or(group_port));
        let control = mark.filter(|mark| mark.control_port > 0).map(|mark| {
            let mut address = source;
            address.set_port(mark.control_port);
            (mark.session_id, address)
        });
        self.check_session(now, way, source.ip(), tsi, control)?;
        let spms = match self.sessions.get_mut(&tsi) {
            None => {
                self.make_room(source.ip())?;
                SpmSequence::new(spm.sqn)
            }
            Some(known) => {
                let is_anew = known.spms.take(spm.sqn)? == SpmOrder::Anew;
                let spms = known.spms;
                // The window of a session never goes back.
                if is_anew || known.trail.is_after(spm.trail) {
                    self.begin_anew(tsi);
                }
                spms
            }
        };
        let known = self.sessions.get(&tsi);
        // Polls and the time of repairs are the neighbour's.
        let same = known.filter(|known| known.upstream.ip() == source.ip());
        let (numbering, answers_parity) = offer_of(packet, mark.as_ref());
        let session = Session {
            way,
            upstream,
            spms,
            trail: spm.trail,
            lead: spm.lead,
            numbering,
            answers_parity,
            control,
            heard: now,
            data: known.and_then(|known| known.data),
            kept_since: known.map_or(self.kept.position(), |known| known.kept_since),
            is_cut_off: false,
            requested: known.and_then(|known| known.requested),
            polls: same.map_or_else(Polls::default, |same| same.polls),
            repair_time: same.map(|same| same.repair_time).unwrap_or_default(),
        };
        self.counters.sessions_found += u64::from(known.is_none());
        self.sessions.insert(tsi, session);
        self.forward_spm(way, packet, spm);
        Ok(())
    }

    /// Takes a message that says: the neighbour at `path_nla` cannot reach this element. The
    /// message counts only when this element sends its NAKs to `path_nla`.
    fn cut_off(
        &mut self,
        way: usize,
        tsi: Tsi,
        path_nla: Option<IpAddr>,
    ) -> Result<&Session, DropReason> {
        let session = self.sessions.get_mut(&tsi);
        let session = session.ok_or(DropReason::UnknownSession)?;
        if session.way != way || Some(session.upstream.ip()) != path_nla {
            return Err(DropReason::Unexpected);
        }
        session.is_cut_off = true;
        Ok(session)
    }

    /// Takes an NCF by which the neighbour upstream says that it cannot reach this element.
    /// Receivers do not hear this NCF, so the element tells them with an SPM.
    fn take_unreachable_ncf(&mut self, way: usize, packet: &Packet<'_>) -> Result<(), DropReason> {
        let tsi = packet.header().tsi();
        let path_nla = packet.options().find_map(|option| match option {
            PgmOption::PathNla(path) => Some(path.nla),
            _ => None,
        });
        let sqn = self.cut_off(way, tsi, path_nla)?.spms.last();
        let addressing = Addressing::downstream(tsi, self.setup.destination_port);
        for other in (0..self.setup.ways.len()).filter(|&other| other != way) {
            let special = Body::Spm(Spm {
                sqn,
                trail: Sqn(0),
                lead: Sqn(0x8000_0000),
                path_nla: self.setup.ways[other].nla,
            });
            let options = [PgmOption::NbrUnreach];
            let is_sent = self.send_down(other, SPM_BYTES_MAX, |out| {
                emit_flagged(out, &addressing, Flags::NONE, &special, &options, &[]);
            });
            self.counters.spms_forwarded += u64::from(is_sent);
        }
        Ok(())
    }

    /// Forwards an SPM by every way except `from`, in the element's own name.
    fn forward_spm(&mut self, from: usize, packet: &Packet<'_>, spm: Spm) {
        let header = packet.header();
        let addressing = Addressing::downstream(header.tsi(), header.destination_port);
        for way in (0..self.setup.ways.len()).filter(|&way| way != from) {
            let here = self.setup.ways[way];
            let body = Body::Spm(Spm {
                path_nla: here.nla,
                ..spm
            });
            let mut options = [PgmOption::Syn; OPTIONS_MAX];
            let mut count = 0;
            // A back-off holds for one network: receivers on the next network measure their own.
            // The element reports no loads, so nobody could see the reports of those receivers.
            let is_kept = |it: &PgmOption<'_>| {
                !matches!(it, PgmOption::NakBackOffInterval(_) | PgmOption::Crqst(_))
            };
            let kept = packet.options().filter(is_kept);
            for (place, option) in options.iter_mut().zip(kept) {
                *place = match option {
                    // Receivers send their reports to this element, and NAKs to the group's port.
                    // The mark names no partner: the partner's packets may come by another element.
                    PgmOption::Mark(mark) => PgmOption::Mark(Mark {
                        upstream_port: 0,
                        control_port: here.control_port * u16::from(mark.control_port > 0),
                        ..mark.with_partner(None)
                    }),
                    other => other,
                };
                count += 1;
            }
            let options = &options[..count];
            let write = |out: &mut Vec<u8>| {
                emit_flagged(out, &addressing, Flags::NONE, &body, options, &[]);
            };
            if self.send_down(way, SPM_BYTES_MAX, write) {
                self.counters.spms_forwarded += 1;
            }
        }
    }

    pub(super) fn take_odata(
        &mut self,
        now: Instant,
        (way, source): (usize, SocketAddr),
        tpdu: &[u8],
        packet: &Packet<'_>,
        data: Data,
    ) -> Result<(), DropReason> {
        let header = packet.header();
        let tsi = header.tsi();
        self.hear(now, way, source, tsi)?.see_data(now, data.sqn);
        let mut is_sent_to_all = true;
        for other in (0..self.setup.ways.len()).filter(|&other| other != way) {
            if self.send_down(other, tpdu.len(), |out| out.extend_from_slice(tpdu)) {
                self.counters.odata_forwarded += 1;
                self.kept.add_share(other, tpdu.len());
            } else {
                is_sent_to_all = false;
            }
        }
        if !header.flags.contains(Flags::PARITY) {
            self.keep(tsi, data, tpdu);
            if is_sent_to_all {
                self.repairs.odata(key(tsi, data.sqn));
            }
        }
        Ok(())
    }

    pub(super) fn take_rdata(
        &mut self,
        now: Instant,
        (way, source): (usize, SocketAddr),
        tpdu: &[u8],
        packet: &Packet<'_>,
        data: Data,
    ) -> Result<(), DropReason> {
        let tsi = packet.header().tsi();
        self.hear(now, way, source, tsi)?.see_data(now, data.sqn);
        if packet.header().flags.contains(Flags::PARITY) {
            let (ways, time) = self.ways_of_parity(now, tsi, packet, data)?;
            self.send_repair(tsi, ways, time, tpdu);
            return Ok(());
        }
        let (ways, time) = self.repairs.rdata(now, key(tsi, data.sqn));
        // When this element missed the packet itself, it keeps the repair instead.
        self.keep(tsi, data, tpdu);
        self.send_repair(tsi, ways, time, tpdu);
        Ok(())
    }

    /// Keeps a packet, unless it is kept already. A kept packet with the same number and another
    /// content is of an earlier session: the source has begun anew, even if no SPM shows it yet.
    fn keep(&mut self, tsi: Tsi, data: Data, tpdu: &[u8]) {
        let Some(session) = self.sessions.get(&tsi) else {
            return;
        };
        let key = key(tsi, data.sqn);
        if let Some(kept) = self.kept.find(key, session.kept_since) {
            // A repair may have another head and other options than the data.
            let content = |tpdu| Some(Packet::parse(tpdu).ok()?.tsdu());
            if content(kept) == content(tpdu) {
                return;
            }
            self.begin_anew(tsi);
            if let Some(session) = self.sessions.get_mut(&tsi) {
                (session.trail, session.lead) = (data.trail, data.sqn);
            }
        }
        self.kept.keep(key, tpdu);
    }

    /// Sends a repair by each of `ways`, the ways whose receivers need it. The repair has come from
    /// upstream, `time` after the confirmation of its NAK, if that is known.
    fn send_repair(&mut self, tsi: Tsi, ways: WaySet, time: Option<Duration>, tpdu: &[u8]) {
        if let Some(session) = self.sessions.get_mut(&tsi) {
            session.repair_time.add(time);
        }
        let wanted = (0..self.setup.ways.len()).filter(|&other| ways.contains(other));
        let mut sent = 0;
        for other in wanted {
            sent += u64::from(self.send_down(other, tpdu.len(), |out| {
                out.extend_from_slice(tpdu);
            }));
        }
        self.counters.rdata_forwarded += sent;
        self.counters.rdata_unwanted += u64::from(ways == WaySet::NONE);
    }

    pub(super) fn take_ncf(
        &mut self,
        now: Instant,
        (way, source): (usize, SocketAddr),
        packet: &Packet<'_>,
        ncf: Nak,
    ) -> Result<(), DropReason> {
        let tsi = packet.header().tsi();
        if packet.options().any(|it| it == PgmOption::NbrUnreach) {
            return self.take_unreachable_ncf(way, packet);
        }
        let session = *self.hear(now, way, source, tsi)?;
        let eliminated_until = now + session.repair_time.elimination(&self.setup.timers);
        if packet.header().flags.contains(Flags::PARITY) {
            return self.take_parity_ncf(now, tsi, packet, ncf, eliminated_until);
        }
        self.counters.ncfs_heard += 1;
        for sqn in sqns_of(packet, ncf) {
            self.repairs.ncf(now, key(tsi, sqn), eliminated_until);
        }
        Ok(())
    }

    /// Notes that the source was heard, and returns its session. Fails when the session is unknown,
    /// or when the packet did not come from the neighbour upstream.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        way: usize,
        source: SocketAddr,
        tsi: Tsi,
    ) -> Result<&mut Session, DropReason> {
        let session = self.sessions.get_mut(&tsi);
        let session = session.ok_or(DropReason::UnknownSession)?;
        if session.way != way || session.upstream.ip() != source.ip() {
            return Err(DropReason::WrongSource);
        }
        session.heard = now;
        Ok(session)
    }

    /// Queues a packet of at most `bytes_max` bytes for the group of a way. Returns false when the
    /// way's queue has no room for the packet.
    pub(super) fn send_down(
        &mut self,
        way: usize,
        bytes_max: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let Some(to) = self.setup.ways.get(way) else {
            return false;
        };
        let destination = Destination {
            to: to.group,
            path: to.path,
            hops: None,
        };
        self.queue(way, destination, bytes_max, write)
    }

    /// Queues a packet for a way. Returns false when the way's queue has no room for the packet.
    pub(super) fn queue(
        &mut self,
        way: usize,
        destination: Destination,
        bytes_max: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let queue = &mut self.queues[way];
        let has_room = queue.room_bytes() >= bytes_max;
        if has_room {
            queue.push(destination, write);
        } else {
            self.counters.overflowed += 1;
        }
        has_room
    }
}

/// Returns all sequence numbers of a NAK or NCF.
pub(super) fn sqns_of<'a>(packet: &Packet<'a>, nak: Nak) -> impl Iterator<Item = Sqn> + use<'a> {
    let list = packet.options().find_map(|option| match option {
        PgmOption::NakList(list) => Some(list),
        _ => None,
    });
    let listed = list.into_iter().flat_map(|list| list.iter());
    std::iter::once(nak.sqn).chain(listed)
}

/// Returns the mark of an SPM. When a network element has passed the SPM on, the mark has that
/// element's port for reports, and 0 as the port for NAKs.
fn mark_of(packet: &Packet<'_>) -> Option<Mark> {
    packet.options().find_map(|option| match option {
        PgmOption::Mark(mark) => Some(mark),
        _ => None,
    })
}

/// Length of the longest SPM in bytes: header, body, OPT_LENGTH and 16 options of 255 bytes.
const SPM_BYTES_MAX: usize = 16 + 32 + 4 + 16 * 255;
