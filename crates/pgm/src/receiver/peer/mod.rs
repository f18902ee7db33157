//! One sender, as a receiver knows it: its window, its held data, and how far its session has come.
//!
//! The module does not parse packets or know other senders. In: one checked packet at a time. Out:
//! a verdict, and through [`Peer::step`] the data and events that became ready. This file has the
//! life of a session and the quick path; `data.rs` has all other data packets, `parity.rs` parity,
//! `control.rs` control packets, `parent.rs` what the PGM parent (the source or the last network
//! element) asks, `drain.rs` the data that is handed out later, `timer.rs` timers.
//!
//! ```text
//!          FIN                  all up to the lead given out or lost
//! Open ----------> Ending{end} ------------------------------------> Over (remembered, ignored)
//!  | \  RST                                  given out               ^
//!  |  '----------> Leaving(Reset) -----------------------------------'
//!  | nothing heard                           given out
//!  '-------------> Leaving(Expired) -------------------------------> forgotten
//! ```
//!
//! Invariants: in sequence mode, no packet is handed out at once while earlier data waits for
//! [`Peer::step`]; every position from the window's start on is handed out once or reported lost
//! once, except pieces of a message that had begun before the receiver joined; `way` says how to
//! treat the next expected packet in the present state.

use std::net::IpAddr;

use base::{Instant, PathId, Rng};
use wire::{
    Sqn,
    pgm::{Data, Mark, PacketType, Tsi},
};

use super::{
    Mode,
    apdu::Assembly,
    counters::ReceiverCounters,
    credit::Credit,
    held::{Content, Entry, HeldQueue, HeldStore},
    outbox::Outbox,
    ready::Arrived,
    setup::{Limits, ReceiverSetup},
    spmr::SpmRequest,
    timing::Timing,
    window::Window,
};
use crate::{fec::Combine, spm_sequence::SpmSequence};

mod claims;
use claims::Claims;
pub use claims::Told;

mod control;
pub(super) use control::SpmNotes;

mod data;
pub(super) use data::Incoming;

mod parent;
pub(super) use parent::BackOffNotes;
use parent::Parent;

mod parity;
pub(super) use parity::IncomingParity;
use parity::Offer;

mod drain;
use drain::Skip;
pub(super) use drain::Step;

mod timer;
pub(super) use timer::Fate;
use timer::StarvedWindow;

/// The parts of a receiver that all its sessions share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) setup: ReceiverSetup,
    pub(super) limits: Limits,
    pub(super) rng: Rng,
    /// This receiver's own random bits (RAND_NODE_ID): a POLL names bits, and only receivers whose
    /// own bits match reply.
    pub(super) node_bits: u32,
    pub(super) store: HeldStore,
    pub(super) counters: ReceiverCounters,
    pub(super) outbox: Outbox,
    /// The ranges of positions to ask for now; the list is kept so that its memory is reused.
    pub(super) ranges: Vec<(u64, u64)>,
    /// The part of `ranges` that parity should not repair. `requests` asks for parity for the rest.
    pub(super) selective: Vec<(u64, u64)>,
    pub(super) requests: Vec<Sqn>,
    /// The function that recovers payloads.
    pub(super) combine: Combine,
}

/// One sender and its session.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) tsi: Tsi,
    pub(super) session: u32,
    /// The only IP address that this session's packets may come from.
    pub(super) source: IpAddr,
    way: Way,
    mode: Mode,
    /// True once the receiver knows where the window begins.
    is_established: bool,
    window: Window,
    held: HeldQueue,
    due: Due,
    phase: Phase,
    spms: FromSpms,
    parent: Parent,
    offer: Offer,
    asking: Asking,
    claims: Claims,
    heard: Instant,
    arrived: Arrived,
    /// True when the owner knows the sender by other means than its packets.
    is_vouched_for: bool,
    /// True when the session's packets are genuine but may be old; see
    /// [`ReceiverSetup::is_protected`].
    is_protected: bool,
    /// True when one data packet of the session may hold several messages.
    pub(super) is_packed: bool,
}

/// The data that is given out next, and the conditions that delay it.
#[derive(Debug)]
struct Due {
    assembly: Assembly,
    /// Positions that the receiver gave up and has not reported yet. They end at the window's base,
    /// or where the current message begins.
    skip: Skip,
    notices: Notices,
    /// True when the piece that is due found no room and waits for [`Peer::try_again`]. Until then
    /// the session asks for nothing, because it could not keep what comes.
    is_short: bool,
    /// True until something is given out or lost. While true, pieces of a message that began before
    /// the receiver joined do not count as lost.
    is_joining: bool,
}

/// The contents of the sender's SPMs, above all the path back to the sender.
#[derive(Debug)]
struct FromSpms {
    /// The numbers of the SPMs; `None` before the first SPM.
    sequence: Option<SpmSequence>,
    path_nla: Option<IpAddr>,
    scope_id: u32,
    path: PathId,
    mark: Option<Mark>,
    /// When to send SPMRs, which ask the sender for an SPM.
    spmr: SpmRequest,
}

/// How and when the session asks for repairs.
#[derive(Debug)]
struct Asking {
    timing: Timing,
    timed: Option<Timed>,
    credit: Credit,
    /// The current turn of sending NAKs: when it began, and how many positions it has asked for.
    turn: (Instant, u64),
    /// True when there was no room to hold data. In sequence mode, the session then asks only for
    /// as many positions from the window's base on as `starved` says.
    is_starved: bool,
    starved: StarvedWindow,
}

/// The packet whose confirmation and repair the receiver times; it times one at a time.
#[derive(Clone, Copy, Debug)]
struct Timed {
    position: u64,
    /// The time when the receiver first asked for the packet. Once `is_confirmed` is true, the time
    /// when the source confirmed the request.
    since: Instant,
    is_confirmed: bool,
}

/// The events that the application has yet to be told.
#[derive(Clone, Copy, Debug, Default)]
struct Notices {
    /// True when the application must be told that the sender that had this session number before
    /// is forgotten.
    replaced: bool,
    found: bool,
    mark: bool,
}

/// The phase of a session's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// The sender's data ends before this position.
    Ending(u64),
    /// The session is over as soon as what was received has been given out.
    Leaving(Farewell),
    /// The session is over, and the application knows: further packets are ignored.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Farewell {
    Reset,
    Expired,
}

impl Peer {
    /// Makes the state of a sender that was heard for the first time, from `source`.
    pub(super) fn new(
        now: Instant,
        session: u32,
        tsi: Tsi,
        source: IpAddr,
        shared: &mut Shared,
    ) -> Self {
        let (mode, limits) = (shared.setup.mode, &shared.limits);
        Self {
            tsi,
            session,
            source,
            way: Way::Long,
            mode,
            is_established: false,
            window: Window::new(mode == Mode::Sequence, 0, limits.span_max, limits.gaps_max),
            held: HeldQueue::new(limits.pages_max),
            due: Due {
                assembly: Assembly::default(),
                skip: Skip::default(),
                notices: Notices {
                    found: true,
                    ..Notices::default()
                },
                is_short: false,
                is_joining: true,
            },
            phase: Phase::Open,
            spms: FromSpms {
                sequence: None,
                path_nla: None,
                scope_id: 0,
                path: shared.setup.path,
                mark: None,
                spmr: SpmRequest::start(now, limits, &mut shared.rng),
            },
            parent: Parent::default(),
            offer: Offer::default(),
            asking: Asking {
                timing: shared.limits.timing,
                timed: None,
                credit: Credit::default(),
                turn: (now, 0),
                is_starved: false,
                starved: StarvedWindow::default(),
            },
            claims: Claims::default(),
            heard: now,
            arrived: Arrived::default(),
            is_vouched_for: false,
            is_protected: shared.setup.is_protected,
            is_packed: false,
        }
    }

    /// Takes a data packet without options if it is the next packet of the stream. If earlier data
    /// is missing, holds the packet. Returns the packet's position, and whether to hand it out;
    /// `None` when it did not take the packet, which must then be examined in full.
    #[inline]
    pub(super) fn take_next(
        &mut self,
        now: Instant,
        data: Data,
        payload: &[u8],
        store: &mut HeldStore,
    ) -> Option<(u64, bool)> {
        let position = self.window.next;
        if self.way == Way::Long || data.sqn != Sqn::of(position) {
            return None;
        }
        let trail = data.trail.extend(position);
        let contiguous = self.window.contiguous();
        let is_news = trail > self.window.trail && trail > contiguous;
        if is_news || position - contiguous >= self.window.span_max() {
            return None;
        }
        let is_held = self.way == Way::Hold;
        if is_held && !self.held.push(store, position, Content::Whole, payload) {
            return None;
        }
        self.window.trail = self.window.trail.max(trail);
        self.window.take_next(!is_held);
        self.heard = now;
        self.arrived.packets += 1;
        self.arrived.bytes += payload.len() as u64;
        Some((position, !is_held))
    }

    /// Gives up what is missing before the position `before`. Returns false when nothing was
    /// missing there.
    pub(super) fn give_up(&mut self, before: u64) -> bool {
        !self.is_over() && self.window.lose_before(before) > 0
    }

    /// Counts an accepted data packet by its kind.
    #[inline]
    pub(super) const fn count_data(&mut self, kind: PacketType, counters: &mut ReceiverCounters) {
        match kind {
            PacketType::Rdata => {
                self.asking.credit.answered();
                self.arrived.repairs += 1;
                counters.rdata_packets += 1;
            }
            _ => counters.odata_packets += 1,
        }
    }

    /// Notes that a packet arrived from the sender, except a data packet that was kept.
    pub(super) const fn note_heard(&mut self) {
        self.asking.credit.heard();
    }

    /// Returns true when [`Peer::step`] may return a step.
    pub(super) fn has_ready(&self) -> bool {
        let Notices {
            replaced,
            found,
            mark,
        } = self.due.notices;
        if !self.is_trusted() {
            return replaced || mark;
        }
        let base = self.window.base;
        let data = match self.mode {
            Mode::Sequence => {
                let is_due = |entry: &Entry| entry.position == base && !self.due.is_short;
                self.due.assembly.is_complete()
                    || self.due.skip.is_some()
                    || self.held.front().is_some_and(is_due)
                    || self.window.gaps.is_lost_at(base)
            }
            Mode::Arrival => !self.held.is_empty() || self.window.gaps.has_lost(),
        };
        replaced || found || mark || data || self.is_leaving()
    }

    /// Returns true when the session is over and the application knows it.
    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Returns true when the session is over and its sender had proved to be real.
    pub(super) fn is_remembered(&self) -> bool {
        self.is_over() && self.arrived.packets >= PROVEN_DATA_PACKETS
    }

    /// Returns true when the sender has proved to be real: its session then stays when others need
    /// room.
    pub(super) fn is_proven(&self) -> bool {
        let enough = if self.spms.sequence.is_some() {
            PROVEN_DATA_PACKETS
        } else {
            PROVEN_DATA_PACKETS_WITHOUT_SPM
        };
        (self.is_vouched_for || self.arrived.packets >= enough) && !self.is_over()
    }

    /// Returns true when data of the session may be taken and asked for. Packets of a protected
    /// session may be old recordings, so the owner must first know that the sender is real.
    pub(super) const fn is_trusted(&self) -> bool {
        self.is_vouched_for || !self.is_protected
    }

    /// Returns true when the owner knows that the sender is real.
    pub(super) const fn is_vouched_for(&self) -> bool {
        self.is_vouched_for
    }

    /// Notes that the owner knows that the sender is real.
    pub(super) const fn vouch(&mut self) {
        self.is_vouched_for = true;
    }

    /// Returns true when the application believes that the session number is in use: by this
    /// sender, or by the sender that had the number before.
    pub(super) fn is_announced(&self) -> bool {
        self.due.notices.replaced || (!self.due.notices.found && !self.is_over())
    }

    /// Notes that the application must be told: this peer's session number now belongs to this
    /// peer, and no longer to the sender that had it before.
    pub(super) fn replace_another(&mut self) {
        self.due.notices.replaced = true;
    }

    /// Notes that there may be room again for the piece of a message that is due next.
    pub(super) const fn try_again(&mut self) {
        self.due.is_short = false;
    }

    /// Ends the session: frees its memory. Its packets are ignored from now on.
    pub(super) fn retire(&mut self, store: &mut HeldStore) {
        self.held.clear(store);
        self.offer.clear(store);
        self.due.assembly.clear(store);
        self.phase = Phase::Over;
        self.way = Way::Long;
        self.due.notices = Notices::default();
        self.spms.spmr = SpmRequest::QUIET;
        self.window.gaps.truncate(0);
    }

    pub(super) const fn window(&self) -> &Window {
        &self.window
    }

    pub(super) const fn path_nla(&self) -> Option<IpAddr> {
        self.spms.path_nla
    }

    pub(super) const fn is_established(&self) -> bool {
        self.is_established
    }

    pub(super) const fn held_bytes(&self) -> u64 {
        self.held.payload_bytes()
    }

    pub(super) const fn arrived(&self) -> Arrived {
        self.arrived
    }

    pub(super) const fn mark(&self) -> Option<&Mark> {
        self.spms.mark.as_ref()
    }

    fn begin(&mut self, start: u64, shared: &Shared) {
        let (span_max, gaps_max) = (shared.limits.span_max, shared.limits.gaps_max);
        self.window = Window::new(self.mode == Mode::Sequence, start, span_max, gaps_max);
        self.is_established = true;
    }

    fn count_missed(&mut self, count: u64, shared: &mut Shared) {
        self.arrived.missed += count;
        shared.counters.missed_sqns += count;
    }

    fn finish(&mut self, end: u64) {
        if self.phase == Phase::Open && self.window.cut(end) {
            self.phase = Phase::Ending(end);
        }
    }

    #[inline]
    fn is_past_end(&self, position: u64) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Ending(end) => position >= end,
            Phase::Leaving(_) | Phase::Over => true,
        }
    }

    /// Returns true when the session waits for no more packets: it is over once what it holds is
    /// handed out.
    fn is_leaving(&self) -> bool {
        match self.phase {
            Phase::Open | Phase::Over => false,
            Phase::Ending(end) => self.window.contiguous() >= end,
            Phase::Leaving(_) => true,
        }
    }

    /// Updates `way`: how to treat the next expected packet, if it is data without options.
    #[inline]
    fn look_again(&mut self, store: &HeldStore) {
        if self.asking.is_starved && self.held.has_room() && store.has_room() {
            self.asking.is_starved = false;
        }
        // A session that is not proven needs `Way::Long`: each of its packets moves the session in
        // the list of evictable sessions.
        let is_quiet = !self.due.notices.found
            && !self.due.notices.replaced
            && self.phase == Phase::Open
            && self.is_established
            && self.is_proven()
            && self.offer.groups.is_none()
            && !self.window.has_claim();
        self.way = match self.mode {
            _ if !is_quiet => Way::Long,
            Mode::Arrival => Way::HandOut,
            Mode::Sequence if self.window.gaps.first() == Some(self.window.base) => Way::Hold,
            Mode::Sequence => {
                let is_bare = self.window.base == self.window.next
                    && self.due.assembly.is_idle()
                    && !self.due.skip.is_some();
                if is_bare { Way::HandOut } else { Way::Long }
            }
        };
    }
}

/// The treatment that the next packet of the stream needs, if it is a plain one: a data packet
/// without options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Hand the packet out: nothing stands in its way.
    HandOut,
    /// Hold the packet: earlier data is missing.
    Hold,
    /// Examine the packet in full, the long way: the quick path does not suffice.
    Long,
}

/// Where a sender's 64-bit positions begin: one lap of sequence numbers (2^32) above zero, so that
/// subtraction never goes below zero.
const FIRST_LAP: u64 = 1 << 32;

/// Number of data packets after which a sender that has sent an SPM has proved to be real.
const PROVEN_DATA_PACKETS: u64 = 4;
/// Number of data packets after which a sender that has sent no SPM has proved to be real.
const PROVEN_DATA_PACKETS_WITHOUT_SPM: u64 = 16;
