//! The receiver: it follows every sender of one group, asks for what is missing, and hands data
//! out.
//!
//! It does no input or output and reads no clock. In: [`Receiver::handle`] for each packet, with
//! the time and where the packet came from. Out: data in place, as a range of the handled packet in
//! the verdict; everything else through [`Receiver::pop_ready`]; packets to send, as runs.
//!
//! ```text
//! packet -> handle --+--> Verdict::Payload      in place, no copy
//!                    |--> Verdict::Held         copied; pop_ready gives it in its turn
//!                    |--> Verdict::Control      SPM, NCF, POLL; NAK, SPMR and POLR of others
//!                    '--> Verdict::Drop(why)    counted
//! timeout -> handle_timeout --> NAK lists, SPM requests, replies to polls --> poll_run / run_done
//! ```
//!
//! The order of calls is that of [`base`]; [`Receiver::has_ready`] saves a needless call of
//! `pop_ready`. In `Mode::Sequence`, data of a session is held while earlier data of the session
//! waits, and never given out of turn.
//!
//! Bounds hold whatever the network sends: on senders (`peers_max`), missing ranges of each
//! (`rx_gaps_max`), held bytes of each and of all (`rx_window_bytes`, `rx_total_bytes`), packets to
//! send, and work per timeout. A session is known by its TSI and the address that its packets come
//! from: a host that repeats another sender's TSI begins a session of its own. Only what other
//! receivers send (NAKs, SPM requests, replies to polls) is taken from any address.
//!
//! Invariants: `seen = payload + held + control + drops`; each position of a session is given out
//! once or reported as lost once, except pieces of a message that had begun before the receiver
//! joined.
//!
//! **Spec**: RFC 3208 sections 3.4, 6, 9.1 to 9.4, 9.5.4, 9.7, 9.8, 12.5, 13.5, 14.5, 15.2.2,
//! 15.3.2.

use std::{collections::VecDeque, net::IpAddr, time::Duration};

use base::{
    Arrival, Budget, Contract, DropCounters, DropReason, Instant, Outcome, Rng, Run, Verdict,
};
use wire::pgm::Tsi;

use crate::{Config, fec::Combine};

mod apdu;
mod gaps;
mod groups;
mod held;
mod outbox;
mod spmr;
mod timing;
mod window;

mod counters;
mod credit;
pub use counters::ReceiverCounters;

mod peer;
use held::Entry;
pub use peer::Told;
use peer::{Fate, Peer, Shared, Step};

mod ready;
pub use ready::{Arrived, Position, Ready, Status};

mod setup;
use setup::Limits;
pub use setup::{Mode, ReceiverSetup};

mod sort;

mod table;
use table::PeerTable;

/// A receiver that follows the senders of one group. The module's description has the order of
/// calls.
#[derive(Debug)]
pub struct Receiver {
    shared: Shared,
    contract: Contract,
    peers: PeerTable,
    /// Sessions with something to pop, each listed once.
    ready: VecDeque<u32>,
    is_ready: Vec<bool>,
    drops: DropCounters,
    /// A time before which nothing is due.
    wake: Instant,
    /// The next scan of the sessions happens at this time or later. The pause until then bounds the
    /// work when there are very many sessions.
    rested: Instant,
}

impl Receiver {
    /// Makes a receiver that knows no sender yet.
    #[must_use]
    pub fn new(config: Config, setup: ReceiverSetup, _now: Instant) -> Self {
        let limits = Limits::new(&config);
        Self {
            shared: Shared {
                setup,
                limits,
                rng: Rng::new(setup.seed),
                node_bits: Rng::new(setup.seed ^ NODE_SALT).next_u32(),
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

    /// Takes one packet and returns what became of it.
    ///
    /// **Panics**: in debug builds, when `now` is before the `now` of any earlier call.
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

    /// Returns true when [`Receiver::pop_ready`] may have something to give; when false, it has
    /// nothing.
    #[inline]
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the next message, loss or event that became ready.
    pub fn pop_ready(&mut self) -> Option<Ready<'_>> {
        let (session, step) = self.next_step()?;
        Some(self.present(session, step))
    }

    /// Returns the next packets to send, within `budget` but at least one; [`Receiver::run_done`]
    /// must follow.
    ///
    /// **Panics**: in debug builds, when `run_done` was not called for the last run.
    pub fn poll_run(&mut self, now: Instant, budget: Budget) -> Option<Run<'_>> {
        self.contract.tell_time(now);
        self.shared.outbox.poll_run(budget)
    }

    /// Notes what became of the last run that [`Receiver::poll_run`] gave.
    ///
    /// **Panics**: in debug builds, when there was no such run; in other builds the call then does
    /// nothing.
    pub fn run_done(&mut self, now: Instant, outcome: Outcome) {
        self.contract.tell_time(now);
        self.shared.outbox.run_done(outcome);
    }

    /// Does the work that is due at `now`.
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

    /// Recovers lost packets with `combine` from now on: the receiver's owner may have a function
    /// that is faster than [`crate::fec::combine`].
    pub const fn set_combine(&mut self, combine: Combine) {
        self.shared.combine = combine;
    }

    /// From now on, requests repairs and SPMs only from senders for which the owner vouches
    /// ([`Receiver::vouch`]).
    pub const fn ask_known_only(&mut self) {
        self.shared.limits.asks_known_only = true;
    }

    /// Returns the time when [`Receiver::handle_timeout`] is due; it may then find nothing to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        (self.wake != Instant::NEVER).then_some(self.wake)
    }

    /// Stops following a session, without an event. The receiver drops the session's packets until
    /// the session falls silent.
    pub fn forget(&mut self, session: u32) {
        if let Some(peer) = self.peers.get_mut(session) {
            peer.retire(&mut self.shared.store);
            self.peers.touch(session);
            self.pass_on_room();
        }
    }

    /// Stops following a session, as [`Receiver::forget`] does, because the owner does not want its
    /// sender. A counter counts such sessions.
    pub fn ignore(&mut self, session: u32) {
        self.shared.counters.sessions_ignored += 1;
        self.forget(session);
    }

    /// Notes that the sender of `session` is real: the owner knows that by other means, such as a
    /// connection. However little this sender has sent, other sessions cannot displace `session`
    /// until it is over. There is one exception. When a host has more than a quarter of all
    /// `peers_max` places, or a network more than three quarters, its sessions may be displaced;
    /// those that the owner vouches for go last. The call does nothing for an unknown session.
    ///
    /// Without this call, a sender counts as real once it has sent a few data packets. A flood of
    /// forged sessions could displace a sender that has sent no data yet and whose heartbeats have
    /// become rare. The receiver would then join that sender's session in the middle.
    pub fn vouch(&mut self, session: u32) {
        if let Some(peer) = self.peers.get_mut(session) {
            peer.vouch();
            self.peers.touch(session);
            // The receiver may now ask for what was missed before.
            self.settle(session);
        }
    }

    /// Breaks a session off from this end. What was received is given out, what is missing is
    /// reported as lost, and [`Ready::Reset`] comes last. From then on the receiver drops the
    /// session's packets, until the session falls silent. Returns false, and does nothing, for a
    /// session that is over or unknown.
    pub fn abort(&mut self, session: u32) -> bool {
        let Some(peer) = self.peers.get_mut(session).filter(|peer| !peer.is_over()) else {
            return false;
        };
        peer.abort();
        self.settle(session);
        true
    }

    /// Notes that the sender has ended its session. The sender said so by other means than packets.
    /// If no packet is known to be missing, the session ends here as if the sender's last SPM had
    /// come.
    pub fn conclude(&mut self, session: u32) {
        if let Some(peer) = self.peers.get_mut(session) {
            peer.conclude();
            self.settle(session);
        }
    }

    /// Gives up the packets of a session that are missing before the position `before`, because the
    /// owner has no use for them any more. The receiver reports them as lost and asks for them no
    /// more.
    pub fn give_up(&mut self, session: u32, before: u64) {
        if let Some(peer) = self.peers.get_mut(session)
            && peer.give_up(before)
        {
            self.settle(session);
        }
    }

    /// Notes whether the owner can ask the sender of `session` by other means than packets. If so,
    /// the receiver does not act on three things that a packet may announce: a trail by which
    /// something would be lost, an end, and a reset. They wait for [`Receiver::told`];
    /// [`Receiver::is_doubtful`] says when something waits. If not, the receiver believes packets.
    pub fn check_claims(&mut self, session: u32, is_checked: bool) {
        let peer = self.peers.get_mut(session);
        if let Some(peer) = peer.filter(|peer| peer.is_checked() != is_checked) {
            peer.check_claims(is_checked);
            self.settle(session);
        }
    }

    /// Returns true when something that a packet announced waits until the sender itself confirms
    /// it; see [`Receiver::check_claims`].
    #[must_use]
    pub fn is_doubtful(&self, session: u32) -> bool {
        self.peers.get(session).is_some_and(Peer::is_doubtful)
    }

    /// Takes what the sender itself has said by other means than packets.
    pub fn told(&mut self, session: u32, told: &Told) {
        if let Some(peer) = self.peers.get_mut(session) {
            peer.told(told, &mut self.shared);
            self.settle(session);
        }
    }

    /// Believes the claims of packets that the sender has not confirmed; for a sender that does not
    /// answer.
    pub fn believe_claims(&mut self, session: u32) {
        if let Some(peer) = self.peers.get_mut(session) {
            peer.believe_claims();
            self.settle(session);
        }
    }

    /// Returns the lowest session number, from `first` on, whose session is not over.
    #[must_use]
    pub fn session_from(&self, first: u32) -> Option<u32> {
        let is_alive = |&session: &u32| self.peers.get(session).is_some_and(|it| !it.is_over());
        (first..self.peers.end()).find(is_alive)
    }

    /// Returns how far a session has come. A session that is over keeps its last position until the
    /// receiver forgets it. `None` for a number that names no session, such as one that has
    /// expired.
    /// **Cost**: one step for each missing range.
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

    /// Returns true when the messages of a session are rows of messages ([`wire::pgm::Packed`]).
    /// Each data packet says whether its message is a row; the latest packet decides.
    #[inline]
    #[must_use]
    pub fn is_packed(&self, session: u32) -> bool {
        self.peers.get(session).is_some_and(|peer| peer.is_packed)
    }

    /// Returns the numbers of all sessions that are not over, ascending.
    pub fn sessions(&self) -> impl Iterator<Item = u32> {
        let alive = self.peers.iter().filter(|peer| !peer.is_over());
        alive.map(|peer| peer.session)
    }

    /// Returns what the receiver waits for.
    /// **Cost**: one step for each session.
    #[must_use]
    pub fn status(&self) -> Status {
        if self.sessions().next().is_none() {
            return Status::NoSender;
        }
        let due = self.peers.iter().map(|peer| peer.repair_wake(&self.shared));
        match due.filter(|&due| due != Instant::NEVER).min() {
            Some(due) => Status::TimerPending(due),
            None => Status::Waiting,
        }
    }

    /// Returns the counters of what the receiver has seen and done.
    #[must_use]
    pub const fn counters(&self) -> &ReceiverCounters {
        &self.shared.counters
    }

    /// Returns the number of packets thrown away, by reason.
    #[must_use]
    pub const fn drops(&self) -> &DropCounters {
        &self.drops
    }

    /// Returns how many bytes the held data, unfinished messages and parity groups of all sessions
    /// take.
    #[must_use]
    pub const fn held_memory_bytes(&self) -> usize {
        self.shared.store.used_bytes()
    }

    /// Finds the session with this `tsi` and the packet's source address; fails when there is none.
    fn known_session(&mut self, arrival: &Arrival, tsi: Tsi) -> Result<u32, DropReason> {
        if let Some(session) = self.peers.find(tsi, arrival.source.ip()) {
            return Ok(session);
        }
        Err(match self.peers.sharing(tsi).next() {
            Some(_) => DropReason::WrongSource,
            None => DropReason::UnknownSession,
        })
    }

    /// Finds the session with this `tsi` and the packet's source address; adds a session
    /// when there is none.
    fn session(&mut self, now: Instant, arrival: &Arrival, tsi: Tsi) -> Result<u32, DropReason> {
        let source = arrival.source.ip();
        if let Some(known) = self.peers.find(tsi, source) {
            return Ok(known);
        }
        let is_shared = self.peers.sharing(tsi).next().is_some();
        self.shared.counters.sessions_shared += u64::from(is_shared);
        let (session, replaces) = match self.peers.vacancy() {
            Some(session) => (session, false),
            None => self.evict(source).ok_or(DropReason::PeerLimit)?,
        };
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

    /// Removes a session to make room for a new one of a host at `source`. Returns the number of
    /// the removed session, and whether the owner knows of that session.
    fn evict(&mut self, source: IpAddr) -> Option<(u32, bool)> {
        let session = self.peers.evictable(source)?;
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

    /// Lets the sessions that wait for memory try again, when memory has become free.
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

    /// Notes whether a session has something ready, and when the session is due next.
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

    /// Takes the next step of the first session that has one.
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

    /// Turns a step of a session into the event or message that the owner receives.
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
            Step::Message(Entry { position, .. }) | Step::Apdu(position) => {
                counters.held_messages += 1;
                counters.held_bytes += data.len() as u64;
                Ready::Message {
                    session,
                    position,
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

/// A value mixed into the seed of `node_bits`, so that these random bits differ from the receiver's
/// other random draws.
const NODE_SALT: u64 = 0x504F_4C4C;
/// The pause after a scan of all sessions, for each session number used so far.
const SCAN_PAUSE: Duration = Duration::from_nanos(200);
