//! A network element: it stands between a source and receivers on several ways, collects their
//! NAKs, and sends each repair only to the ways where its packet is missing.
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
//! The way of a session's SPMs is its upstream way. The element drops packets of the source that
//! come by another way, so that two elements between the same networks make no loop. An element
//! sends in its own name: receivers take it for the source, the source takes it for a receiver.
//!
//! When receivers behind the element miss a packet, the element repairs it from what it keeps. So
//! their losses cost the source's network nothing. It acts as a designated local repairer that
//! needs no redirection. On each way, the bytes of these repairs are at most the bytes of data that
//! the element sent there, plus 4 MiB; beyond that, NAKs go upstream.
//!
//! A source that restarts may keep its TSI and count from 0 again. Its SPMs or its data show this,
//! and the element then forgets the packets and the repair state of the earlier session.
//!
//! Bounds, all from [`ElementSetup`]: sessions, repair state, bytes that wait for each way, and
//! kept bytes. New packets replace the oldest kept ones, and a new session may replace one of which
//! no data came. A packet that would exceed another bound is dropped and counted.
//!
//! Deviation: in RFC 3208 section 7.2, an element sends NCFs with the source's own address. In
//! section 7.1, it sends NAKs to the address that SPMs name. The networks of this element may have
//! no route to each other, and then hosts may drop packets with an address of another network. So
//! this element sends everything from its own address. It takes a regular SPM only when the path in
//! the SPM is the address that the SPM came from. So a forged SPM cannot direct the NAKs of a
//! network at a third host.
//!
//! To a source that counts its receivers by polls, the element is one of them: it replies to the
//! polls of its upstream neighbour, and sends none. Receivers behind it do not hear these polls.
//!
//! **Spec**: RFC 3208 sections 7.1 to 7.5, 7.7, 7.8, 9.3.3, 11.6, 14.5, 15.3.2. The element does
//! not do redirection (9.5.3): it drops NNAKs and POLRs.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use base::{
    Arrival, Budget, Contract, DropCounters, DropReason, Instant, Outcome, PathId, Rng, Run,
    Verdict,
};
use wire::{
    Sqn,
    pgm::{Body, ChecksumState, Packet, Tsi, verify_checksum},
};

use crate::{fec::Numbering, poll::Polls, queue::PacketQueue, spm_sequence::SpmSequence};

mod counters;
pub use counters::ElementCounters;

mod downstream;

mod kept;
use kept::Kept;

mod parity;
use parity::ParityRepairs;

mod polls;

mod repair_time;
use repair_time::RepairTime;

mod repairs;
use repairs::Repairs;

mod sessions;

mod timed;

mod upstream;

/// An element between several ways. The module's description says what it does.
#[derive(Debug)]
pub struct Element {
    setup: ElementSetup,
    /// The packets that wait to be sent, one queue for each way.
    queues: Vec<PacketQueue>,
    /// The index in `queues` of the way whose run was given out last.
    turn: usize,
    sessions: BTreeMap<Tsi, Session>,
    repairs: Repairs,
    parity: ParityRepairs,
    kept: Kept,
    /// The bits by which a poll draws at random who replies.
    node_bits: u32,
    rng: Rng,
    counters: ElementCounters,
    drops: DropCounters,
    contract: Contract,
}

/// The settings of a new element.
#[derive(Clone, Debug)]
pub struct ElementSetup {
    /// The data-destination port: packets to another port are not for this element.
    pub destination_port: u16,
    /// The ways that the element joins, at most 64.
    pub ways: Vec<Way>,
    /// The waits for repairs, and the times after which the element forgets sessions.
    pub timers: ElementTimers,
    /// The most sessions. When there are as many, a further one takes the place of a session of
    /// which no data came, or of a host with more than its share; else the element drops its
    /// packets.
    pub sessions_max: usize,
    /// The most packets with repair state, and also the most groups of parity; the element drops a
    /// NAK for a further packet or group.
    pub repairs_max: usize,
    /// Maximum number of bytes in the queue of each way.
    pub queue_bytes_max: usize,
    /// Maximum number of bytes of packets that the element keeps for repairs; with 0 it keeps none.
    pub kept_bytes_max: usize,
    /// Seed of the random bits by which polls draw who replies, and of the wait before a reply.
    pub seed: u64,
}

/// A way from an element: an interface with its group, or a tunnel to one other host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The interface.
    pub path: PathId,
    /// The element's own address on this way: receivers send NAKs to it.
    pub nla: IpAddr,
    /// The address that downstream packets go to. NAKs go to the same UDP port, at `nla`. A unicast
    /// address names the only host on this way: a receiver, a source, or another element.
    pub group: SocketAddr,
    /// The element's TCP port on this way, for the reports of receivers. With 0, the element tells
    /// receivers on this way that sources take no reports.
    pub control_port: u16,
}

impl Way {
    /// Returns the destination address that downstream packets have when they arrive by this way.
    fn group_here(&self) -> IpAddr {
        let group = self.group.ip();
        if group.is_multicast() {
            group
        } else {
            self.nla
        }
    }

    /// Returns true when packets from the host `source` may come by this way.
    fn admits(&self, source: IpAddr) -> bool {
        let group = self.group.ip();
        group.is_multicast() || source == group
    }
}

/// The times for which an element waits: for repairs, and for silent sessions and neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementTimers {
    /// How long the element repeats a NAK that nobody confirms (NAK_RPT_IVL).
    pub repeat_time: Duration,
    /// The time between two NAKs for a packet (NAK_RPT_RTE, as a time).
    pub repeat_every: Duration,
    /// How long a confirmed NAK waits for its repair (NAK_RDATA_IVL).
    pub rdata_wait: Duration,
    /// The time after a confirmation in which the element passes on no further NAK for the packet
    /// (NAK_ELIM_IVL). A value above a quarter of `rdata_wait` counts as that quarter. When repairs
    /// of a session take long, the element waits twice their average time, up to that quarter.
    pub elimination: Duration,
    /// The time after which the element forgets a session of which it hears nothing.
    pub session_expiry: Duration,
    /// The time for which a session's upstream neighbour must be silent before another may take its
    /// place.
    pub neighbour_expiry: Duration,
}

impl Default for ElementTimers {
    /// Judgement: NAKs are repeated as receivers on a LAN repeat them, and repair state lives long
    /// enough for a distant source to answer.
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
    /// The index in [`ElementSetup::ways`] of the way by which the session's packets come.
    way: usize,
    /// The neighbour upstream, who takes NAKs.
    upstream: SocketAddr,
    spms: SpmSequence,
    /// The trail in the last SPM.
    trail: Sqn,
    /// The newest packet that the element knows of: the lead in the last SPM, or a later packet.
    lead: Sqn,
    /// How the source numbers its groups of packets; `None` when it sends no parity.
    numbering: Option<Numbering>,
    /// True when the source answers NAKs for parity.
    answers_parity: bool,
    /// The session's number, and the address for reports to its source; `None` when the source
    /// takes no reports.
    control: Option<(u64, SocketAddr)>,
    heard: Instant,
    /// The time when data last came; `None` when only SPMs came.
    data: Option<Instant>,
    /// What was kept before this position in [`Kept`] is of an earlier session with the same TSI.
    kept_since: u64,
    /// True when the neighbour upstream cannot reach this element by multicast: until a regular SPM
    /// comes, no NAK goes upstream.
    is_cut_off: bool,
    /// The time when a request for an SPM last went upstream.
    requested: Option<Instant>,
    polls: Polls,
    repair_time: RepairTime,
}

impl Session {
    /// Notes that a data packet has come.
    fn see_data(&mut self, now: Instant, sqn: Sqn) {
        self.data = Some(now);
        if sqn.is_after(self.lead) {
            self.lead = sqn;
        }
    }

    /// Returns true for a packet so far ahead that no receiver can miss it yet.
    fn is_ahead(&self, sqn: Sqn) -> bool {
        sqn.distance_from(self.lead) > LEAD_AHEAD_MAX
    }
}

/// A set of ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WaySet(u64);

impl WaySet {
    const NONE: Self = Self(0);

    const fn with(self, way: usize) -> Self {
        Self(self.0 | 1 << way)
    }

    const fn without(self, way: usize) -> Self {
        Self(self.0 & !(1 << way))
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
    pub fn new(mut setup: ElementSetup) -> Self {
        assert!(setup.ways.len() <= 64, "an element has at most 64 ways");
        setup.timers = setup.timers.settled();
        let mut rng = Rng::new(setup.seed);
        let queues = setup
            .ways
            .iter()
            .map(|_| PacketQueue::new(setup.queue_bytes_max));
        Self {
            kept: Kept::new(setup.kept_bytes_max, setup.ways.len()),
            queues: queues.collect(),
            turn: 0,
            sessions: BTreeMap::new(),
            repairs: Repairs::new(setup.timers, setup.repairs_max),
            parity: ParityRepairs::new(setup.timers, setup.repairs_max),
            node_bits: rng.next_u32(),
            rng,
            counters: ElementCounters::default(),
            drops: DropCounters::default(),
            contract: Contract::default(),
            setup,
        }
    }

    /// Takes one packet and returns what became of it: `Verdict::Control` when it was understood.
    ///
    /// **Panics**: in debug builds, when `now` is before that of an earlier call. This holds for
    /// every call with a `now`.
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
        let over: Vec<_> = over.map(|(tsi, _)| tsi).collect();
        for tsi in over {
            self.forget_repairs(tsi);
            self.counters.sessions_expired += 1;
        }
        self.reply_to_polls(now);
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
        let of_session = |session: &Session| (session.heard + expiry).min(session.polls.due());
        let due = self.sessions.values().map(of_session).min();
        let due = due.unwrap_or(Instant::NEVER);
        let due = due.min(self.repairs.due()).min(self.parity.due());
        (due != Instant::NEVER).then_some(due)
    }

    /// Returns the next packets to send, within `budget` but at least one; the ways take turns.
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

    /// Returns true when a way's queue is more than half full: the owner then leaves arriving
    /// packets in the sockets, because the element might have to drop them.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let half = self.setup.queue_bytes_max / 2;
        self.queues.iter().any(|queue| queue.room_bytes() < half)
    }

    /// Returns the address for reports to a session's source; `None` when the element does not
    /// carry the session, or the source takes no reports.
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

    /// Returns the number of packets and groups of parity with repair state.
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
        // The element's own packets leave from the ports that NAKs go to. Other programs on this
        // host send from other ports.
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
            Body::Poll(poll) => self.take_poll(now, (way, arrival.source), header.tsi(), &poll),
            Body::Polr(_) | Body::Nnak(_) | Body::Ack(_) => Err(DropReason::Unexpected),
        }
    }
}

/// Receivers may ask for packets up to this far ahead of the newest that the element knows of. They
/// know of no packets but those that the element has sent on, except when packets overtake each
/// other. Judgement.
const LEAD_AHEAD_MAX: i32 = 64;

#[cfg(test)]
mod tests;
