//! What comes from upstream: SPMs, data, repairs, confirmations.
//!
//! **Spec**: RFC 3208 sections 7.1, 7.5, 7.8, 15.3.2.

use std::net::{IpAddr, SocketAddr};

use base::{DropReason, Instant};
use wire::{
    Sqn,
    pgm::{
        Addressing, Body, Data, Flags, Mark, Nak, NakList, OPTIONS_MAX, Packet, PgmOption, Spm,
        Tsi, emit_flagged,
    },
};

use super::{Element, Session, repairs::key};
use crate::queue::Destination;

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
        let port = self.setup.ways[way].group.port();
        let upstream = SocketAddr::new(spm.path_nla, upstream_port(packet).unwrap_or(port));
        let is_full = self.sessions.len() >= self.setup.sessions_max;
        match self.sessions.get_mut(&tsi) {
            Some(session) if session.way != way => return Err(DropReason::WrongSource),
            Some(session) if !spm.sqn.is_after(session.last_spm) => return Err(DropReason::Stale),
            Some(session) => {
                session.upstream = upstream;
                session.last_spm = spm.sqn;
                session.heard = now;
                session.is_cut_off = false;
            }
            None if is_full => return Err(DropReason::PeerLimit),
            None => {
                self.counters.sessions_found += 1;
                let session = Session {
                    way,
                    upstream,
                    last_spm: spm.sqn,
                    heard: now,
                    is_cut_off: false,
                    requested: None,
                };
                self.sessions.insert(tsi, session);
            }
        }
        self.forward_spm(way, packet, spm);
        Ok(())
    }

    /// Notes that the element at `path_nla` says that it cannot reach us. It counts when our NAKs
    /// go to that element.
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

    /// Takes an NCF that says so, and tells it to those below: they hear no such NCF.
    fn take_unreachable_ncf(&mut self, way: usize, packet: &Packet<'_>) -> Result<(), DropReason> {
        let tsi = packet.header().tsi();
        let path_nla = packet.options().find_map(|option| match option {
            PgmOption::PathNla(path) => Some(path.nla),
            _ => None,
        });
        let sqn = self.cut_off(way, tsi, path_nla)?.last_spm;
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

    /// Sends an SPM on by each other way, as one of our own.
    fn forward_spm(&mut self, from: usize, packet: &Packet<'_>, spm: Spm) {
        let mut options = [PgmOption::Syn; OPTIONS_MAX];
        let mut count = 0;
        // A back-off is that of one network: receivers on the next one measure their own.
        let is_kept = |it: &PgmOption<'_>| !matches!(it, PgmOption::NakBackOffInterval(_));
        let kept = packet.options().filter(is_kept);
        for (place, option) in options.iter_mut().zip(kept) {
            *place = match option {
                // Our own port is that of the group.
                PgmOption::Mark(mark) if mark.tag.is_none() => PgmOption::Mark(Mark {
                    upstream_port: 0,
                    ..mark
                }),
                other => other,
            };
            count += 1;
        }
        let header = packet.header();
        let addressing = Addressing::downstream(header.tsi(), header.destination_port);
        for way in (0..self.setup.ways.len()).filter(|&way| way != from) {
            let path_nla = self.setup.ways[way].nla;
            let body = Body::Spm(Spm { path_nla, ..spm });
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
        way: usize,
        tpdu: &[u8],
        tsi: Tsi,
    ) -> Result<(), DropReason> {
        self.hear(now, way, tsi)?;
        for other in (0..self.setup.ways.len()).filter(|&other| other != way) {
            if self.send_down(other, tpdu.len(), |out| out.extend_from_slice(tpdu)) {
                self.counters.odata_forwarded += 1;
            }
        }
        Ok(())
    }

    pub(super) fn take_rdata(
        &mut self,
        now: Instant,
        way: usize,
        tpdu: &[u8],
        packet: &Packet<'_>,
        data: Data,
    ) -> Result<(), DropReason> {
        let tsi = packet.header().tsi();
        self.hear(now, way, tsi)?;
        if packet.header().flags.contains(Flags::PARITY) {
            return Err(DropReason::Unexpected);
        }
        let ways = self.repairs.rdata(key(tsi, data.sqn));
        let wanted = (0..self.setup.ways.len()).filter(|&other| ways.contains(other));
        let mut sent = 0;
        for other in wanted {
            sent += u64::from(self.send_down(other, tpdu.len(), |out| {
                out.extend_from_slice(tpdu);
            }));
        }
        self.counters.rdata_forwarded += sent;
        self.counters.rdata_unwanted += u64::from(ways == super::WaySet::NONE);
        Ok(())
    }

    pub(super) fn take_ncf(
        &mut self,
        now: Instant,
        way: usize,
        packet: &Packet<'_>,
        ncf: Nak,
    ) -> Result<(), DropReason> {
        let tsi = packet.header().tsi();
        if packet.options().any(|it| it == PgmOption::NbrUnreach) {
            return self.take_unreachable_ncf(way, packet);
        }
        self.hear(now, way, tsi)?;
        if packet.header().flags.contains(Flags::PARITY) {
            return Err(DropReason::Unexpected);
        }
        self.counters.ncfs_heard += 1;
        for sqn in sqns_of(packet, ncf) {
            self.repairs.ncf(now, key(tsi, sqn));
        }
        Ok(())
    }

    /// Notes that the source was heard; fails when the packet did not come from upstream.
    fn hear(&mut self, now: Instant, way: usize, tsi: Tsi) -> Result<(), DropReason> {
        let session = self.sessions.get_mut(&tsi);
        let session = session.ok_or(DropReason::UnknownSession)?;
        if session.way != way {
            return Err(DropReason::WrongSource);
        }
        session.heard = now;
        Ok(())
    }

    /// Queues a packet of at most `bytes_max` bytes for the group of a way. Returns false when too
    /// much waits.
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

    /// Queues a packet for a way. Returns false when too much waits.
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
    let listed = (0..NakList::SQNS_MAX).filter_map(move |index| list?.iter().nth(index));
    std::iter::once(nak.sqn).chain(listed)
}

/// Returns the port for NAKs that a source names; a network element in between names none.
fn upstream_port(packet: &Packet<'_>) -> Option<u16> {
    packet.options().find_map(|option| match option {
        PgmOption::Mark(mark) if mark.upstream_port > 0 => Some(mark.upstream_port),
        _ => None,
    })
}

/// The longest SPM: 16 options of 255 bytes.
const SPM_BYTES_MAX: usize = 16 + 32 + 4 + 16 * 255;
