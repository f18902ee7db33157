//! A network element: it stands between a source and receivers on several ways, collects their
//! NAKs, and lets repairs go only where they are missing.
//!
//! It does no input or output and reads no clock. In: [`Element::handle`] for each packet, with the
//! way that it came by; time. Out: packets for each way, as runs.
//!
//! ```text
//!            upstream way                                     other ways
//!   SPM   -------------------> path: our address ----------------> each
//!   ODATA -------------------> kept -------------------------------> each
//!   RDATA -------------------> kept, repair state ---> those that asked
//!   NCF   -------------------> repair state
//!         <------------------- repair state <--- NAK, new ---------- receivers
//!                                     |--------> NCF, at once -----> the way of the NAK
//!                              kept --'--------> RDATA, at once ---> the way of the NAK
//!         <---------------------------------------- SPMR ----------- receivers
//! ```
//!
//! The way of a session's SPMs is its upstream way; what comes by another way in the source's name
//! is dropped, so that two elements between the same networks make no loop. An element sends in its
//! own name: to receivers it looks like the source, to the source like a receiver.
//!
//! A packet that only receivers behind the element have missed is repaired from what it keeps, so
//! that their losses do not cost the network of the source anything: to them it is the source, and
//! a designated local repairer that needs no redirection. How much it repairs so is bounded by what
//! it has sent; what is asked for beyond that goes upstream, as it does without anything kept.
//!
//! Bounds: sessions, repair state, waiting bytes of each way and kept bytes, from [`ElementSetup`];
//! reaching one is a counted drop.
//!
//! Deviation: section 7.2 wants NCFs in the network name of the source, and section 7.1 takes the
//! path of SPMs as they say. A UDP socket cannot send in another's name. So an element's neighbours
//! know it by its own address, and it believes no path but its neighbour's own: a forged SPM cannot
//! turn the NAKs of a network on a third host.
//!
//! **Spec**: RFC 3208 sections 7.1 to 7.5, 7.7, 7.8, 9.3.3, 11.6, 15.3.2. Redirection (9.5.3) and
//! polls (14) are not in it: NNAKs, POLLs and POLRs are dropped.

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

use crate::{fec::Numbering, queue::PacketQueue};

mod counters;
pub use counters::ElementCounters;

mod downstream;

mod kept;
use kept::Kept;

mod parity;
use parity::ParityRepairs;

mod repairs;
use repairs::Repairs;

mod timed;

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
    parity: ParityRepairs,
    kept: Kept,
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
    /// The most packets with repair state, and the most groups of parity; a NAK for a further one
    /// is dropped.
    pub repairs_max: usize,
    /// The most bytes that wait for each way.
    pub queue_bytes_max: usize,
    /// The most bytes of packets that are kept to repair from; 0 keeps none.
    pub kept_bytes_max: usize,
}

/// A way from an element: an interface with its group, or a tunnel to one other host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The interface.
    pub path: PathId,
    /// The element's own address there: where receivers send NAKs.
    pub nla: IpAddr,
    /// Where downstream packets go, with the UDP port that NAKs go to as well. A unicast address is
    /// the one host on this way: a receiver, a source, or another element.
    pub group: SocketAddr,
    /// The element's TCP port there, where receivers report to sources that take reports. 0: none,
    /// and receivers on this way are told that sources take no reports.
    pub control_port: u16,
}

impl Way {
    /// Returns where downstream packets that come by this way are sent to.
    fn group_here(&self) -> IpAddr {
        let group = self.group.ip();
        if group.is_multicast() {
            group
        } else {
            self.nla
        }
    }

    /// Returns true for a host from which packets may come by this way.
    fn admits(&self, source: IpAddr) -> bool {
        let group = self.group.ip();
        group.is_multicast() || source == group
    }
}

/// The intervals of an element's repair state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementTimers {
    /// How long the element repeats a NAK that nobody confirms (NAK_RPT_IVL).
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
    /// How long nothing was heard of a session's neighbour when another may take its place.
    pub neighbour_expiry: Duration,
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
            neighbour_expiry: Duration::from_secs(5),
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
    /// The trail that the last SPM told.
    trail: Sqn,
    /// How the source numbers groups; `None` when it sends no parity.
    numbering: Option<Numbering>,
    /// The session's number, and where it takes reports; `None` when it takes none.
    control: Option<(u64, SocketAddr)>,
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
            kept: Kept::new(setup.kept_bytes_max, setup.ways.len()),
            queues: queues.collect(),
            turn: 0,
            sessions: BTreeMap::new(),
            repairs: Repairs::new(setup.timers.settled(), setup.repairs_max),
            parity: ParityRepairs::new(setup.timers.settled(), setup.repairs_max),
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
            self.parity.forget(tsi);
            self.counters.sessions_expired += 1;
        }
        let mut again = Vec::new();
        self.repairs.expire(now, &mut again);
        self.ask_again(again);
        let mut again = Vec::new();
        self.parity.expire(now, &mut again);
        self.ask_parity_again(&again);
    }

    /// Returns the time when [`Element::handle_timeout`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let expiry = self.setup.timers.session_expiry;
        let over = self.sessions.values().map(|session| session.heard + expiry);
        let due = over.min().unwrap_or(Instant::NEVER);
        let due = due.min(self.repairs.due()).min(self.parity.due());
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

    /// Returns true when much waits for a way: its owner then leaves arriving packets where they
    /// are, because the element would have to drop them.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let half = self.setup.queue_bytes_max / 2;
        self.queues.iter().any(|queue| queue.room_bytes() < half)
    }

    /// Returns where the source of a session that the element carries takes reports.
    #[must_use]
    pub fn control_address(&self, session_id: u64) -> Option<SocketAddr> {
        let mut all = self.sessions.values().filter_map(|session| session.control);
        all.find(|&(number, _)| number == session_id)
            .map(|(_, address)| address)
    }

    /// Returns the number of sessions that the element carries.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
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

    /// Returns the number of packets, and groups of parity, that the element waits for on behalf of
    /// receivers, or that it knows others wait for.
    #[must_use]
    pub fn repair_count(&self) -> usize {
        self.repairs.len() + self.parity.len()
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
        // What we send leaves from the ports that NAKs go to; others on this host have other ports.
        let from = (arrival.source.ip(), arrival.source.port());
        if ways.iter().any(|way| (way.nla, way.group.port()) == from) {
            return Err(DropReason::Looped);
        }
        if !ways[way].admits(arrival.source.ip()) {
            return Err(DropReason::WrongSource);
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
            Body::Odata(data) => self.take_odata(now, (way, arrival.source), tpdu, &packet, data),
            Body::Rdata(data) => self.take_rdata(now, (way, arrival.source), tpdu, &packet, data),
            Body::Ncf(ncf) => self.take_ncf(now, (way, arrival.source), &packet, ncf),
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
