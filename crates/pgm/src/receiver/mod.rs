//! The receiver: follows every sender of one group, asks for what is missing, hands data out.
//!
//! It does no input or output and reads no clock. In: [`Receiver::handle`] for each packet, with
//! the time and where it came from. Out: data in place, as the verdict's range of the packet that
//! was handled; everything else through [`Receiver::pop_ready`]; packets to send as runs.
//!
//! ```text
//! packet -> handle --+--> Verdict::Payload      in place, no copy
//!                    |--> Verdict::Held         copied; pop_ready gives it in its turn
//!                    |--> Verdict::Control      SPM, NCF, NAK and SPMR of others
//!                    '--> Verdict::Drop(why)    counted
//! timeout -> handle_timeout --> NAK lists, SPM requests --> poll_run / run_done
//! ```
//!
//! Order of calls: `handle`, and directly after it `pop_ready` until `None` whenever
//! [`Receiver::has_ready`] says so; `poll_run` and `run_done` once per receive batch. In
//! `Mode::Sequence` data is held, never given out of turn, while something of its session waits.
//!
//! What bounds it, whatever the network sends: senders (`peers_max`), missing ranges of each
//! (`rx_gaps_max`), held bytes of each and of all (`rx_window_bytes`, `rx_total_bytes`), packets to
//! send, work per timeout. A session belongs to the address it first came from; packets of it from
//! elsewhere are dropped, except that anybody may send NAKs and SPM requests.
//!
//! Invariants: `seen = payload + held + control + drops`; each position of a session is given out
//! once or reported as lost once.
//!
//! **Spec**: RFC 3208 sections 3.4, 6, 9.1 to 9.4, 9.7, 9.8, 13.5.

use std::{collections::VecDeque, time::Duration};

use base::{
    Arrival, Budget, Contract, DropCounters, DropReason, Instant, Outcome, Rng, Run, Verdict,
};
use wire::pgm::{
    Body, ChecksumState, Data, Flags, Header, NakList, Packet, PgmOption, Spm, Tsi, verify_checksum,
};

use crate::{
    Config, LateJoin,
    fec::{Combine, Parity, encoded_contents},
};

mod apdu;
mod gaps;
mod groups;
mod held;
mod outbox;
mod spmr;
mod timing;
mod window;

mod counters;
pub use counters::ReceiverCounters;

mod peer;
use held::Entry;
use peer::{Fate, Incoming, IncomingParity, Peer, Shared, SpmNotes, Step};

mod ready;
pub use ready::{Arrived, Position, Ready, Status};

mod setup;
use setup::Limits;
pub use setup::{Mode, ReceiverSetup};

mod table;
use table::PeerTable;

/// Follows the senders of one group. See the module's description for the order of calls.
#[derive(Debug)]
pub struct Receiver {
    shared: Shared,
    contract: Contract,
    peers: PeerTable,
    /// Sessions with something to pop, each once.
    ready: VecDeque<u32>,
    is_ready: Vec<bool>,
    drops: DropCounters,
    /// Nothing is due before it.
    wake: Instant,
    /// The sessions are not looked through again before it: bounds the work that very many cost.
    rested: Instant,
}

impl Receiver {
    /// A receiver that knows no sender yet.
    #[must_use]
    pub fn new(config: Config, setup: ReceiverSetup, _now: Instant) -> Self {
        let limits = Limits::new(&config);
        Self {
            shared: Shared {
                setup,
                limits,
                rng: Rng::new(setup.seed),
                store: limits.store(),
                counters: ReceiverCounters::default(),
                outbox: outbox::Outbox::default(),
                ranges: Vec::new(),
                selective: Vec::new(),
                requests: Vec::new(),
                combine: crate::fec::combine,
            },
            contract: Contract::default(),
            peers: PeerTable::new(limits.peers_max),
            ready: VecDeque::new(),
            is_ready: Vec::new(),
            drops: DropCounters::default(),
            wake: Instant::NEVER,
            rested: Instant::ZERO,
        }
    }

    /// Takes one packet: what became of it. `sqn` in the verdict is a 64-bit position.
    ///
    /// # Panics
    /// In debug builds, when time goes back, as in every call that is told the time.
    #[inline]
    pub fn handle(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8]) -> Verdict {
        self.contract.tell_time(now);
        self.shared.counters.seen_packets += 1;
        let verdict = self.sort(now, arrival, tpdu);
        let verdict = verdict.unwrap_or_else(Verdict::Drop);
        let counters = &mut self.shared.counters;
        match &verdict {
            Verdict::Payload { range, .. } => {
                counters.payload_packets += 1;
                counters.payload_bytes += range.len() as u64;
            }
            Verdict::Held => counters.held_packets += 1,
            Verdict::Control => counters.control_packets += 1,
            Verdict::Drop(reason) => self.drops.count(*reason),
        }
        verdict
    }

    /// True when [`Receiver::pop_ready`] has something to give.
    #[inline]
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next thing that became ready.
    pub fn pop_ready(&mut self) -> Option<Ready<'_>> {
        let (session, step) = self.next_step()?;
        Some(self.present(session, step))
    }

    /// The next packets to send, at most `budget`; [`Receiver::run_done`] must follow.
    ///
    /// # Panics
    /// In debug builds, when it did not for the last run.
    pub fn poll_run(&mut self, now: Instant, budget: Budget) -> Option<Run<'_>> {
        self.contract.tell_time(now);
        self.shared.outbox.poll_run(budget)
    }

    /// Says what became of the run that was given last.
    ///
    /// # Panics
    /// In debug builds, when none was; otherwise nothing happens then.
    pub fn run_done(&mut self, now: Instant, outcome: Outcome) {
        self.contract.tell_time(now);
        self.shared.outbox.run_done(outcome);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.contract.tell_time(now);
        if now < self.wake {
            return;
        }
        self.wake = Instant::NEVER;
        self.rested = now + SCAN_PAUSE * self.peers.end();
        for session in 0..self.peers.end() {
            let Some(peer) = self.peers.get_mut(session) else {
                continue;
            };
            if peer.wake(&self.shared) <= now {
                match peer.timeout(now, &mut self.shared) {
                    Fate::Stays => {}
                    Fate::Forgotten => {
                        self.remove(session);
                        continue;
                    }
                }
            }
            self.settle(session);
        }
    }

    /// Recovers lost packets with this function from here on: the receiver's owner may have one
    /// that is faster than [`crate::fec::combine`].
    pub const fn set_combine(&mut self, combine: Combine) {
        self.shared.combine = combine;
    }

    /// When [`Receiver::handle_timeout`] is due; it may turn out that nothing was.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        (self.wake != Instant::NEVER).then_some(self.wake)
    }

    /// Stops following a session, without an event. Its packets are dropped until it falls silent.
    pub fn forget(&mut self, session: u32) {
        if let Some(peer) = self.peers.get_mut(session) {
            peer.retire(&mut self.shared.store);
            self.peers.touch(session);
            self.pass_on_room();
        }
    }

    /// The owner knows by other means that the sender of `session` is real, as by a connection to
    /// it: however little it has sent, its session gives way to no other until it is over. Nothing
    /// happens for a session that is unknown.
    ///
    /// Without this, a sender counts as real once it has sent a few data packets. One that has yet
    /// to send its first, and whose heartbeats have become rare, would give way to a flood of
    /// forged sessions, and what it sends then would be joined in the middle.
    pub fn vouch(&mut self, session: u32) {
        if let Some(peer) = self.peers.get_mut(session) {
            peer.vouch();
            self.peers.touch(session);
        }
    }

    /// Breaks a session off from this end: what was received is given out, what is missing is
    /// reported as lost, and [`Ready::Reset`] comes last. Its packets are dropped from here on,
    /// until it falls silent. False, and nothing happens, for a session that is over or unknown.
    pub fn abort(&mut self, session: u32) -> bool {
        let Some(peer) = self.peers.get_mut(session).filter(|peer| !peer.is_over()) else {
            return false;
        };
        peer.abort();
        self.settle(session);
        true
    }

    /// Where a session stands, or stood at its end while its number names no other; `None` for one
    /// that is unknown, forgotten or expired. **Cost**: one step for each missing range.
    #[must_use]
    pub fn position(&self, session: u32) -> Option<Position> {
        let peer = self.peers.get(session)?;
        let window = peer.window();
        let known = peer.is_established();
        Some(Position {
            tsi: peer.tsi,
            source: peer.source,
            path_nla: peer.path_nla(),
            mark: peer.mark().copied(),
            contiguous: if known { window.contiguous() } else { 0 },
            lead: window.next.saturating_sub(1),
            trail: window.trail,
            missing: window.gaps.missing(),
            held_bytes: peer.held_bytes(),
            arrived: peer.arrived(),
        })
    }

    /// True when the messages of a session are rows of messages ([`wire::pgm::Packed`]), as every
    /// data packet of it says; the last one counts.
    #[inline]
    #[must_use]
    pub fn is_packed(&self, session: u32) -> bool {
        self.peers.get(session).is_some_and(|peer| peer.is_packed)
    }

    /// The numbers of all sessions that are not over, ascending.
    pub fn sessions(&self) -> impl Iterator<Item = u32> {
        let alive = self.peers.iter().filter(|peer| !peer.is_over());
        alive.map(|peer| peer.session)
    }

    /// What the receiver waits for. **Cost**: one step for each session.
    #[must_use]
    pub fn status(&self) -> Status {
        if self.sessions().next().is_none() {
            return Status::NoSender;
        }
        let due = self.peers.iter().map(Peer::repair_wake);
        match due.filter(|&due| due != Instant::NEVER).min() {
            Some(due) => Status::TimerPending(due),
            None => Status::Waiting,
        }
    }

    /// What was seen and done.
    #[must_use]
    pub const fn counters(&self) -> &ReceiverCounters {
        &self.shared.counters
    }

    /// Packets thrown away, by reason.
    #[must_use]
    pub const fn drops(&self) -> &DropCounters {
        &self.drops
    }

    /// Bytes taken for held data and messages in pieces, of all sessions together.
    #[must_use]
    pub const fn held_memory_bytes(&self) -> usize {
        self.shared.store.used_bytes()
    }

    /// Checks a packet as such and gives it to those it is for.
    #[inline]
    fn sort(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        tpdu: &[u8],
    ) -> Result<Verdict, DropReason> {
        let packet = Packet::parse(tpdu).map_err(|error| error.reason())?;
        let header = packet.header();
        match verify_checksum(tpdu) {
            ChecksumState::Good => {}
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

    /// The right port, and not somebody else's group.
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
            && let Some(session) = self.peers.find(header.tsi())
            && let Some(peer) = self.peers.get_mut(session)
            && peer.source == arrival.source.ip()
        {
            let store = &mut self.shared.store;
            if let Some((sqn, is_due)) = peer.take_next(now, data, packet.tsdu(), store) {
                // A forged packet that said otherwise spoils no more than came out with it.
                peer.is_packed = false;
                peer.count_data(header.kind, &mut self.shared.counters);
                let range = packet.tsdu_range();
                return Ok(if is_due {
                    Verdict::Payload {
                        session,
                        sqn,
                        range,
                    }
                } else {
                    Verdict::Held
                });
            }
        }
        self.data_at_length(now, arrival, packet, data)
    }

    /// Data with options, out of order, or of a session that needs a closer look.
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
            is_repair: header.kind == wire::pgm::PacketType::Rdata,
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
                PgmOption::Fragment(fragment) => incoming.fragment = Some(fragment),
                PgmOption::Fin => incoming.is_last = true,
                PgmOption::Join(join) => incoming.join_min = Some(join.min),
                _ => {}
            }
        }
        let session = self.session(now, arrival, header.tsi())?;
        let peer = self
            .peers
            .get_mut(session)
            .expect("the session was just found");
        let was_proven = peer.is_proven();
        let verdict = peer.data(now, &incoming, &mut self.shared);
        #[cfg(feature = "planted-bugs")]
        let verdict = match verdict {
            Err(DropReason::Duplicate)
                if incoming.is_repair
                    && base::planted::is_planted(base::planted::Bug::RepairTakenTwice) =>
            {
                let sqn = data.sqn.extend(peer.window().next);
                let range = packet.tsdu_range();
                Ok(Verdict::Payload {
                    session,
                    sqn,
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
                let list = nak_list_of(packet);
                let peer = self
                    .peers
                    .get_mut(session)
                    .expect("the session was just found");
                if is_parity {
                    peer.parity_ncf(now, &nak, list)?;
                } else {
                    peer.ncf(now, &nak, list, &mut self.shared)?;
                }
                self.shared.counters.ncf_packets += 1;
                self.settle(session);
            }
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
        // A session that is over has nothing for who begins with what comes next.
        let joins_late = self.shared.limits.late_join != LateJoin::Now;
        if notes.is_fin && !joins_late && self.peers.find(tsi).is_none() {
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

    /// What other receivers ask for, heard because it was multicast.
    fn heard_request(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet<'_>,
        body: Body,
    ) -> Result<(), DropReason> {
        let header = packet.header();
        let is_parity = self.count_parity(header);
        let session = self.peers.find(header.upstream_tsi());
        let peer = session.and_then(|session| self.peers.get_mut(session));
        let peer = peer.ok_or(DropReason::UnknownSession)?;
        if arrival.source.ip() == self.shared.setup.own_nla {
            return Err(DropReason::Looped);
        }
        if let Body::Nak(nak) = body {
            if is_parity {
                peer.heard_parity_nak(now, &nak, nak_list_of(packet));
            } else {
                peer.heard_nak(now, &nak, nak_list_of(packet));
            }
            self.shared.counters.nak_packets_heard += 1;
        } else {
            peer.heard_spmr(now, &self.shared);
            self.shared.counters.spmr_packets_heard += 1;
        }
        Ok(())
    }

    /// Whether a request or its confirmation counts packets of a group instead of naming them.
    fn count_parity(&mut self, header: &Header) -> bool {
        let is_parity = header.flags.contains(Flags::PARITY);
        self.shared.counters.parity_packets += u64::from(is_parity);
        is_parity
    }

    /// A parity packet, which begins no session.
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
            is_repair: header.kind == wire::pgm::PacketType::Rdata,
            group: None,
            parity: Parity {
                index: 0,
                payload: packet.tsdu(),
                is_variable: header.flags.contains(Flags::VAR_PKTLEN),
                fragment: None,
                size: None,
            },
        };
        for option in packet.options() {
            match option {
                PgmOption::ParityGrp(group) => incoming.group = Some(group),
                PgmOption::CurrTgsize(last) => incoming.parity.size = Some(last.size as usize),
                PgmOption::Encoded(raw) => incoming.parity.fragment = encoded_contents(&raw),
                _ => {}
            }
        }
        let session = self.known_session(arrival, header.tsi())?;
        let peer = self
            .peers
            .get_mut(session)
            .expect("the session was just found");
        let verdict = peer.parity(now, &incoming, &mut self.shared);
        self.settle(session);
        verdict
    }

    /// The session of `tsi`, if it is known and `arrival` is from where it must come.
    fn known_session(&mut self, arrival: &Arrival, tsi: Tsi) -> Result<u32, DropReason> {
        let session = self.peers.find(tsi).ok_or(DropReason::UnknownSession)?;
        let peer = self.peers.get(session).ok_or(DropReason::UnknownSession)?;
        if peer.source != arrival.source.ip() {
            return Err(DropReason::WrongSource);
        }
        Ok(session)
    }

    /// The session of `tsi`, made when it is new.
    fn session(&mut self, now: Instant, arrival: &Arrival, tsi: Tsi) -> Result<u32, DropReason> {
        match self.known_session(arrival, tsi) {
            Err(DropReason::UnknownSession) => {}
            known => return known,
        }
        let (session, replaces) = match self.peers.vacancy() {
            Some(session) => (session, false),
            None => self.evict().ok_or(DropReason::PeerLimit)?,
        };
        let source = arrival.source.ip();
        let mut peer = Peer::new(now, session, tsi, source, &mut self.shared);
        peer.note_way(arrival);
        if replaces {
            peer.replace_another();
        }
        self.peers.insert(peer);
        self.is_ready.resize(self.peers.end() as usize, false);
        self.shared.counters.sessions_found += 1;
        Ok(session)
    }

    /// Makes room for a new session: the number of the one that went, and whether it was announced.
    fn evict(&mut self) -> Option<(u32, bool)> {
        let session = self.peers.evictable()?;
        let mut peer = self.peers.remove(session)?;
        let was_announced = peer.is_announced();
        self.shared.counters.sessions_evicted += u64::from(!peer.is_over());
        peer.retire(&mut self.shared.store);
        self.pass_on_room();
        Some((session, was_announced))
    }

    fn remove(&mut self, session: u32) {
        if let Some(mut peer) = self.peers.remove(session) {
            peer.retire(&mut self.shared.store);
            self.peers.vacate(session);
            self.pass_on_room();
        }
    }

    /// Lets sessions that wait for room look again, when there is some.
    fn pass_on_room(&mut self) {
        if !self.shared.store.take_news() {
            return;
        }
        for session in 0..self.peers.end() {
            if let Some(peer) = self.peers.get_mut(session) {
                peer.try_again();
                self.settle(session);
            }
        }
    }

    /// Notes what a session has become ready for, and when it must be looked at.
    fn settle(&mut self, session: u32) {
        let Some(peer) = self.peers.get(session) else {
            return;
        };
        let due = peer.wake(&self.shared).max(self.rested);
        self.wake = self.wake.min(due);
        if peer.has_ready() && !self.is_ready[session as usize] {
            self.is_ready[session as usize] = true;
            self.ready.push_back(session);
        }
    }

    /// The next step of the first session that has one.
    fn next_step(&mut self) -> Option<(u32, Step)> {
        while let Some(&session) = self.ready.front() {
            if let Some(peer) = self.peers.get_mut(session) {
                let shared = &mut self.shared;
                if let Some(step) = peer.step(&mut shared.store, &mut shared.counters) {
                    return Some((session, step));
                }
            }
            self.ready.pop_front();
            self.is_ready[session as usize] = false;
            self.pass_on_room();
        }
        None
    }

    /// The step in the owner's terms.
    fn present(&mut self, session: u32, step: Step) -> Ready<'_> {
        let counters = &mut self.shared.counters;
        match step {
            Step::Ended => counters.sessions_ended += 1,
            Step::Reset => counters.sessions_reset += 1,
            Step::Expired => counters.sessions_expired += 1,
            _ => {}
        }
        if matches!(step, Step::Ended | Step::Reset) {
            self.peers.touch(session);
            self.settle(session);
        }
        if step == Step::Expired {
            self.remove(session);
            return Ready::Expired { session };
        }
        let peer = self
            .peers
            .get(session)
            .expect("the session just made a step");
        let data: &[u8] = match step {
            Step::Message(entry) => self.shared.store.payload(&entry),
            Step::Apdu(_) => peer.apdu(),
            _ => &[],
        };
        let counters = &mut self.shared.counters;
        match step {
            Step::Message(Entry { sqn, .. }) | Step::Apdu(sqn) => {
                counters.held_messages += 1;
                counters.held_bytes += data.len() as u64;
                Ready::Message {
                    session,
                    sqn,
                    data,
                    is_row: peer.is_packed,
                }
            }
            Step::Found => Ready::Found {
                session,
                tsi: peer.tsi,
                source: peer.source,
            },
            Step::Mark(mark) => Ready::Mark {
                session,
                mark,
                source: peer.source,
            },
            Step::Lost { first, count } => Ready::Lost {
                session,
                first,
                count,
            },
            Step::Ended => Ready::Ended { session },
            Step::Reset => Ready::Reset { session },
            Step::Replaced | Step::Expired => Ready::Expired { session },
        }
    }
}

/// The further sequence numbers of a NAK or NCF.
fn nak_list_of<'a>(packet: &Packet<'a>) -> Option<NakList<'a>> {
    packet.options().find_map(|option| match option {
        PgmOption::NakList(list) => Some(list),
        _ => None,
    })
}

/// Pause between two looks through all sessions, for each of them.
const SCAN_PAUSE: Duration = Duration::from_nanos(200);
