//! The packets that a receiver sends: NAKs, SPM requests and replies to polls, complete, in the
//! order they were made.
//!
//! The module does not decide when to ask. In: what to ask for, and from whom. Out: runs of packets
//! from a [`PacketQueue`]. When the queue is full, a request is made later.
//!
//! **Spec**: RFC 3208 sections 8.3, 9.3, 12.5, 13.6, 14.7.2. In a NAK, the source's address is the
//! address that the NAK goes to, because OpenPGM's sources accept no other address.

use std::net::{IpAddr, SocketAddr};

use base::{Budget, Outcome, PathId, Run};
use wire::{
    Sqn,
    pgm::{Addressing, Body, Cr, Flags, Nak, NakList, PgmOption, Polr, Tsi, emit_flagged},
};

use crate::queue::{Destination, PacketQueue};

/// The packets that wait to be sent.
#[derive(Debug)]
pub(super) struct Outbox {
    queue: PacketQueue,
}

/// The addresses by which a receiver reaches the sender of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upstream {
    pub(super) tsi: Tsi,
    pub(super) destination_port: u16,
    pub(super) path: PathId,
    pub(super) to: SocketAddr,
    pub(super) group: SocketAddr,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            queue: PacketQueue::new(BYTES_MAX),
        }
    }
}

impl Outbox {
    /// Returns how many more sequence numbers there is room to ask for.
    pub(super) const fn room_sqns(&self) -> u64 {
        (self.queue.room_bytes() / NAK_BYTES_MAX) as u64 * SQNS_A_NAK as u64
    }

    /// Returns the number of bytes that wait to be sent.
    pub(super) const fn queued_bytes(&self) -> u64 {
        self.queue.queued_bytes()
    }

    /// Asks the sender for everything in `ranges`, which are ascending; each NAK carries `report`.
    /// Returns the number of packets made.
    pub(super) fn nak(
        &mut self,
        upstream: &Upstream,
        report: Option<Cr>,
        ranges: &[(u64, u64)],
    ) -> u64 {
        let positions = ranges.iter().flat_map(|&(first, end)| first..end);
        self.naks(upstream, Flags::NONE, report, positions.map(Sqn::of))
    }

    /// Asks the sender for parity; each of `requests` names a group and a count, and each NAK
    /// carries `report`. Returns the number of packets made.
    pub(super) fn parity_nak(
        &mut self,
        upstream: &Upstream,
        report: Option<Cr>,
        requests: &[Sqn],
    ) -> u64 {
        self.naks(upstream, Flags::PARITY, report, requests.iter().copied())
    }

    fn naks(
        &mut self,
        upstream: &Upstream,
        flags: Flags,
        report: Option<Cr>,
        sqns: impl Iterator<Item = Sqn>,
    ) -> u64 {
        let mut list = [Sqn(0); SQNS_A_NAK];
        let (mut len, mut packets) = (0, 0);
        for sqn in sqns {
            list[len] = sqn;
            len += 1;
            if len == SQNS_A_NAK {
                self.nak_packet(upstream, flags, report, &list);
                packets += 1;
                len = 0;
            }
        }
        if len > 0 {
            self.nak_packet(upstream, flags, report, &list[..len]);
            packets += 1;
        }
        packets
    }

    /// Asks for an SPM. In a multicast group, one request goes to the group with a TTL of 1, so
    /// that neighbours hear it and do not ask as well. Another goes where NAKs go: to the sender,
    /// or to a network element before it. Returns false when there is no room; the timer of SPM
    /// requests then starts the next try.
    pub(super) fn spmr(&mut self, upstream: &Upstream) -> bool {
        if self.queue.room_bytes() < 2 * SPMR_BYTES {
            return false;
        }
        if upstream.group.ip().is_multicast() {
            self.push(upstream, upstream.group, Some(1), &Body::Spmr);
        }
        self.push(upstream, upstream.to, None, &Body::Spmr);
        true
    }

    /// Replies to a poll. Returns false when there is no room: the sender then counts one receiver
    /// too few.
    pub(super) fn polr(&mut self, upstream: &Upstream, polr: Polr) -> bool {
        if self.queue.room_bytes() < POLR_BYTES as usize {
            return false;
        }
        self.push(upstream, upstream.to, None, &Body::Polr(polr));
        true
    }

    /// Returns the next packets to send; see [`PacketQueue::poll_run`].
    pub(super) fn poll_run(&mut self, budget: Budget) -> Option<Run<'_>> {
        self.queue.poll_run(budget)
    }

    /// Forgets those packets of the run that were sent, and those that can never be sent.
    pub(super) fn run_done(&mut self, outcome: Outcome) {
        self.queue.run_done(outcome);
    }

    fn nak_packet(&mut self, upstream: &Upstream, flags: Flags, report: Option<Cr>, sqns: &[Sqn]) {
        let body = Body::Nak(Nak {
            sqn: sqns[0],
            source_nla: upstream.to.ip(),
            group_nla: upstream.group.ip(),
        });
        let list = PgmOption::NakList(NakList::new(&sqns[1..]));
        let mut options = [PgmOption::Syn; 2];
        let mut count = 0;
        let list = (sqns.len() > 1).then_some(list);
        for option in list.into_iter().chain(report.map(PgmOption::Cr)) {
            options[count] = option;
            count += 1;
        }
        let to = upstream.to;
        self.push_flagged(upstream, to, None, flags, &body, &options[..count]);
    }

    fn push(&mut self, upstream: &Upstream, to: SocketAddr, hops: Option<u8>, body: &Body) {
        self.push_flagged(upstream, to, hops, Flags::NONE, body, &[]);
    }

    fn push_flagged(
        &mut self,
        upstream: &Upstream,
        to: SocketAddr,
        hops: Option<u8>,
        flags: Flags,
        body: &Body,
        options: &[PgmOption<'_>],
    ) {
        let addressing = Addressing {
            source_port: upstream.destination_port,
            destination_port: upstream.tsi.port,
            gsi: upstream.tsi.gsi,
        };
        let destination = Destination {
            to,
            path: upstream.path,
            hops,
        };
        self.queue.push(destination, |memory| {
            emit_flagged(memory, &addressing, flags, body, options, &[]);
        });
    }
}

/// Returns true when a receiver may send NAKs to `nla`: it is unicast, of the group's family, and a
/// loopback address only when the sender's address is one, too.
pub(super) fn is_fit_for_naks(nla: IpAddr, group: IpAddr, source: IpAddr) -> bool {
    let broadcast = matches!(nla, IpAddr::V4(v4) if v4.is_broadcast());
    nla.is_ipv4() == group.is_ipv4()
        && !nla.is_multicast()
        && !nla.is_unspecified()
        && !broadcast
        && (!nla.is_loopback() || source.is_loopback())
}

/// The most sequence numbers in one NAK: one in its body, the rest in the list.
pub(super) const SQNS_A_NAK: usize = NakList::SQNS_MAX + 1;

/// Length of a full NAK over IPv6 with a congestion report, in bytes.
const NAK_BYTES_MAX: usize = 16 + 4 + 2 * 20 + 4 + 4 + 4 * NakList::SQNS_MAX + 36;

/// Length of a reply to a poll in bytes, without IP and UDP headers.
pub(super) const POLR_BYTES: u64 = 16 + Polr::LEN as u64;

/// Length of a request for an SPM in bytes, without IP and UDP headers.
pub(super) const SPMR_BYTES: usize = 16;

/// The most bytes that may wait to be sent: about 370 full NAKs.
const BYTES_MAX: usize = 128 << 10;
