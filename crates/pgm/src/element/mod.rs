//! A network element: it stands between a source and receivers on several ways, collects their
//! NAKs, and lets repairs go only where they are missing.
//!
//! It does no input or output and reads no clock. In: [`Element::handle`] for each packet, with the
//! way that it came by; time. Out: packets for each way, as runs.
//!
//! ```text
//!            upstream way                                     other ways
//!   SPM   -------------------> path: our address ----------------> each
//!   ODATA ---------------------------------------------------------> each
//!   RDATA -------------------> repair state ---> those that asked
//!   NCF   -------------------> repair state
//!         <------------------- repair state <--- NAK, new ---------- receivers
//!                                     '--------> NCF, at once -----> the way of the NAK
//!         <---------------------------------------- SPMR ----------- receivers
//! ```
//!
//! The way of a session's SPMs is its upstream way; what comes by another way in the source's name
//! is dropped, so that two elements between the same networks make no loop. An element sends in its
//! own name: to receivers it looks like the source, to the source like a receiver.
//!
//! Bounds: sessions, repair state and waiting bytes of each way, from [`ElementSetup`]; reaching
//! one is a counted drop.
//!
//! Deviation: section 7.2 wants NCFs in the network name of the source, and section 7.1 takes the
//! path of SPMs as they say. A UDP socket cannot send in another's name. So an element's neighbours
//! know it by its own address, and it believes no path but its neighbour's own: a forged SPM cannot
//! turn the NAKs of a network on a third host.
//!
//! **Spec**: RFC 3208 sections 7.1 to 7.5, 7.7, 7.8, 9.3.3, 15.3.2. Parity (11.6), redirection
//! (9.5.3) and polls (14) are not in it: NAKs for parity, NNAKs, POLLs and POLRs are dropped.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use base::{
    Arrival, Budget, Contract, DropCounters, DropReason, Instant, Outcome, PathId, Run, Verdict,
};
use wire::{
    Sqn,
    pgm::{Body, ChecksumState, Packet, Tsi, verify_checksum},
};

use crate::queue::PacketQueue;

mod counters;
pub use counters::ElementCounters;

mod downstream;

mod repairs;
use repairs::Repairs;

mod upstream;

/// An element between several ways. The module's description says what it does.
#[derive(Debug)]
pub struct Element {
    setup: ElementSetup,
    /// What waits for each way.
    queues: Vec<PacketQueue>,
    /// The way whose run was given out last.
    turn: usize,
    sessions: BTreeMap<Tsi, Session>,
    repairs: Repairs,
    counters: ElementCounters,
    drops: DropCounters,
    contract: Contract,
}

/// What an element is told at its start.
#[derive(Clone, Debug)]
pub struct ElementSetup {
    /// The data-destination port: packets to another port are not for this element.
    pub destination_port: u16,
    /// The ways that it joins, at most 64.
    pub ways: Vec<Way>,
    /// How long repair state lives.
    pub timers: ElementTimers,
    /// The most sessions; a packet of a further one is dropped.
    pub sessions_max: usize,
    /// The most packets with repair state; a NAK for a further one is dropped.
    pub repairs_max: usize,
    /// The most bytes that wait for each way.
    pub queue_bytes_max: usize,
}

/// A way from an element: an interface with its group, or a tunnel to one other host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The interface.
    pub path: PathId,
    /// The element's own address there: where receivers send NAKs.
    pub nla: IpAddr,
    /// Where downstream packets go, with the UDP port that NAKs go to as well. May be unicast.
    pub group: SocketAddr,
}

/// The intervals of an element's repair state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementTimers {
    /// How long a NAK is repeated until it is confirmed (NAK_RPT_IVL).
    pub repeat_time: Duration,
    /// The time between two NAKs for a packet (one part of NAK_RPT_RTE).
    pub repeat_every: Duration,
    /// How long a confirmed NAK waits for its repair (NAK_RDATA_IVL).
    pub rdata_wait: Duration,
    /// How long further NAKs for a packet are held back after a confirmation (NAK_ELIM_IVL); at
    /// most a quarter of `rdata_wait` counts.
    pub elimination: Duration,
    /// When a session is forgotten of which nothing is heard.
    pub session_expiry: Duration,
}

impl Default for ElementTimers {
    /// Judgement: as receivers on a LAN wait, with repairs kept alive for a sender far away.
    fn default() -> Self {
        Self {
            repeat_time: Duration::from_secs(1),
            repeat_every: Duration::from_millis(50),
            rdata_wait: Duration::from_secs(2),
            elimination: Duration::from_millis(20),
            session_expiry: Duration::from_secs(60),
        }
    }
}

/// One source, as an element knows it.
#[derive(Clone, Copy, Debug)]
struct Session {
    /// The way that its packets come by.
    way: usize,
    /// The neighbour upstream, who takes NAKs.
    upstream: SocketAddr,
    last_spm: Sqn,
    heard: Instant,
    /// True when the neighbour cannot reach us by multicast: NAKs wait for a regular SPM.
    is_cut_off: bool,
    /// When a request for an SPM last went upstream.
    requested: Option<Instant>,
}

/// A set of ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WaySet(u64);

impl WaySet {
    const NONE: Self = Self(0);

    const fn with(self, way: usize) -> Self {
        Self(self.0 | 1 << way)
    }

    const fn contains(self, way: usize) -> bool {
        self.0 >> way & 1 == 1
    }
}

impl Element {
    /// Makes an element that knows no session yet.
    ///
    /// **Panics**: with more than 64 ways.
    #[must_use]
    pub fn new(setup: ElementSetup) -> Self {
        assert!(setup.ways.len() <= 64, "an element has at most 64 ways");
        let queues = setup
            .ways
            .iter()
            .map(|_| PacketQueue::new(setup.queue_bytes_max));
        Self {
            queues: queues.collect(),
            turn: 0,
            sessions: BTreeMap::new(),
            repairs: Repairs::new(setup.timers.settled(), setup.repairs_max),
            counters: ElementCounters::default(),
            drops: DropCounters::default(),
            contract: Contract::default(),
            setup,
        }
    }

    /// Takes one packet and returns what became of it: `Verdict::Control` when it was understood.
    ///
    /// **Panics**: in debug builds, when time goes back, as in every call that takes the time.
    pub fn handle(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8]) -> Verdict {
        self.contract.tell_time(now);
        self.counters.seen_packets += 1;
        match self.take(now, arrival, tpdu) {
            Ok(()) => {
                self.counters.handled_packets += 1;
                Verdict::Control
            }
            Err(reason) => {
                self.drops.count(reason);
                Verdict::Drop(reason)
            }
        }
    }

    /// Does the work that is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.contract.tell_time(now);
        let expiry = self.setup.timers.session_expiry;
        let is_over = |session: &Session| now >= session.heard + expiry;
        let over = self.sessions.extract_if(.., |_, session| is_over(session));
        for (tsi, _) in over {
            self.repairs.forget(tsi);
            self.counters.sessions_expired += 1;
        }
        let mut again = Vec::new();
        self.repairs.expire(now, &mut again);
        self.ask_again(&again);
    }

    /// Returns the time when [`Element::handle_timeout`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let expiry = self.setup.timers.session_expiry;
        let over = self.sessions.values().map(|session| session.heard + expiry);
        let due = over.min().unwrap_or(Instant::NEVER).min(self.repairs.due());
        (due != Instant::NEVER).then_some(due)
    }

    /// Returns the next packets to send, at most `budget`; the ways take turns.
    /// [`Element::run_done`] must follow.
    ///
    /// **Panics**: in debug builds, when `run_done` was not called for the last run.
    pub fn poll_run(&mut self, now: Instant, budget: Budget) -> Option<Run<'_>> {
        self.contract.tell_time(now);
        let count = self.queues.len();
        let next = (1..=count).map(|step| (self.turn + step) % count);
        self.turn = { next }.find(|&way| !self.queues[way].is_empty())?;
        self.queues[self.turn].poll_run(budget)
    }

    /// Notes what became of the last run that [`Element::poll_run`] gave.
    ///
    /// **Panics**: in debug builds, when there was no such run.
    pub fn run_done(&mut self, now: Instant, outcome: Outcome) {
        self.contract.tell_time(now);
        self.queues[self.turn].run_done(outcome);
    }

    /// Returns the counters of what the element has done.
    #[must_use]
    pub const fn counters(&self) -> &ElementCounters {
        &self.counters
    }

    /// Returns the number of packets thrown away, by reason.
    #[must_use]
    pub const fn drops(&self) -> &DropCounters {
        &self.drops
    }

    /// Returns the number of packets that the element waits for on behalf of receivers, or that it
    /// knows others wait for.
    #[must_use]
    pub fn repair_count(&self) -> usize {
        self.repairs.len()
    }

    fn take(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8]) -> Result<(), DropReason> {
        let packet = Packet::parse(tpdu).map_err(|error| error.reason())?;
        let header = packet.header();
        match verify_checksum(tpdu) {
            ChecksumState::Good => {}
            ChecksumState::Absent if !header.kind.is_data() => {}
            ChecksumState::Absent => return Err(DropReason::NoChecksum),
            ChecksumState::Bad => return Err(DropReason::BadChecksum),
        }
        let ways = &self.setup.ways;
        let way = ways.iter().position(|way| way.path == arrival.path);
        let way = way.ok_or(DropReason::NotForUs)?;
        if ways.iter().any(|way| way.nla == arrival.source.ip()) {
            return Err(DropReason::Looped);
        }
        let port = if header.kind.is_upstream() {
            header.source_port
        } else {
            header.destination_port
        };
        if port != self.setup.destination_port {
            return Err(DropReason::NotForUs);
        }
        match packet.body() {
            Body::Spm(spm) => self.take_spm(now, way, arrival.source, &packet, spm),
            Body::Odata(_) => self.take_odata(now, way, tpdu, header.tsi()),
            Body::Rdata(data) => self.take_rdata(now, way, tpdu, &packet, data),
            Body::Ncf(ncf) => self.take_ncf(now, way, &packet, ncf),
            Body::Nak(nak) => self.take_nak(now, way, &packet, nak),
            Body::Spmr => self.take_spmr(now, way, header.upstream_tsi()),
            Body::Poll(_) | Body::Polr(_) | Body::Nnak(_) | Body::Ack(_) => {
                Err(DropReason::Unexpected)
            }
        }
    }
}

#[cfg(test)]
mod tests;
