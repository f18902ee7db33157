//! One sender, as a receiver knows it: its window, what is held of it, and where it is in its life.
//!
//! Does not parse packets nor know other senders. In: one checked packet at a time. Out: a verdict,
//! and through [`Peer::step`] what became ready. The files: data here, control packets in
//! `control.rs`, what is handed out later in `drain.rs`, timers in `timer.rs`.
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
//! Invariants: in sequence mode nothing is handed out in place while anything earlier waits to be
//! popped; every position from the window's start on is handed out once or reported lost once;
//! `way` says what the next expected packet needs, as everything else stands.

use std::net::IpAddr;

use base::{DropReason, Instant, PathId, Rng, Verdict};
use wire::{
    Sqn,
    pgm::{Data, Fragment, Mark, PacketType, Tsi},
};

use super::{
    Mode,
    apdu::{Assembly, Fit, Part},
    counters::ReceiverCounters,
    held::{Content, Entry, HeldQueue, HeldStore},
    outbox::Outbox,
    ready::Arrived,
    setup::{Limits, ReceiverSetup},
    spmr::SpmRequest,
    timing::Timing,
    window::{Place, Window},
};
use crate::{LateJoin, fec::Combine};

mod control;
pub(super) use control::SpmNotes;

mod parity;
pub(super) use parity::IncomingParity;
use parity::Offer;

mod drain;
use drain::Skip;
pub(super) use drain::Step;

mod timer;
pub(super) use timer::Fate;
use timer::Pace;

/// What all sessions of a receiver share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) setup: ReceiverSetup,
    pub(super) limits: Limits,
    pub(super) rng: Rng,
    pub(super) store: HeldStore,
    pub(super) counters: ReceiverCounters,
    pub(super) outbox: Outbox,
    /// Ranges of one request; kept for its memory.
    pub(super) ranges: Vec<(u64, u64)>,
    /// The same while parity is looked for, and the requests for it.
    pub(super) selective: Vec<(u64, u64)>,
    pub(super) requests: Vec<Sqn>,
    /// What recovers payloads.
    pub(super) combine: Combine,
}

/// One sender.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) tsi: Tsi,
    pub(super) session: u32,
    /// The only address that this session's packets may come from.
    pub(super) source: IpAddr,
    way: Way,
    mode: Mode,
    /// The window has a beginning.
    is_established: bool,
    window: Window,
    held: HeldQueue,
    due: Due,
    phase: Phase,
    spms: FromSpms,
    offer: Offer,
    asking: Asking,
    heard: Instant,
    arrived: Arrived,
    /// The owner knows the sender by other means than its packets.
    is_vouched_for: bool,
    /// What it sends are rows of messages.
    pub(super) is_packed: bool,
}

/// What is given out next, and what stands in its way.
#[derive(Debug)]
struct Due {
    assembly: Assembly,
    /// What was given up just before the window's base, or before the message at hand.
    skip: Skip,
    notices: Notices,
    /// The piece that is due found no room: it waits for [`Peer::try_again`], and nothing is asked
    /// for meanwhile, as nothing that comes can be kept.
    is_short: bool,
    /// Nothing was given out or lost yet: pieces of a message begun earlier are no loss.
    is_joining: bool,
}

/// What the sender's SPMs say, above all the way back to it.
#[derive(Debug)]
struct FromSpms {
    last_spm: Option<Sqn>,
    /// SPMs in a row that were out of sequence with `last_spm`, but in sequence among themselves.
    stale: (Sqn, u8),
    path_nla: Option<IpAddr>,
    scope_id: u32,
    path: PathId,
    mark: Option<Mark>,
    /// When to ask for one.
    spmr: SpmRequest,
}

/// How and when repairs are asked for.
#[derive(Debug)]
struct Asking {
    timing: Timing,
    timed: Option<Timed>,
    /// When the current turn of asking began, and what it has asked for.
    turn: (Instant, u64),
    /// Held data found no room: only the oldest gap is asked for, at this pace.
    is_starved: bool,
    pace: Pace,
}

/// The packet whose confirmation and repair are timed, one at a time.
#[derive(Clone, Copy, Debug)]
struct Timed {
    sqn: u64,
    /// When it was first asked for, then when that was confirmed.
    since: Instant,
    is_confirmed: bool,
}

/// What the application has yet to be told.
#[derive(Clone, Copy, Debug, Default)]
struct Notices {
    /// The session number belonged to another sender, which is forgotten.
    replaced: bool,
    found: bool,
    mark: bool,
}

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Nothing comes at or after this position.
    Ending(u64),
    /// Over as soon as what was received has been given out.
    Leaving(Farewell),
    /// Over, and the application knows: further packets are ignored.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Farewell {
    Reset,
    Expired,
}

/// One data packet.
#[derive(Clone, Debug)]
pub(super) struct Incoming<'a> {
    pub(super) sqn: Sqn,
    pub(super) trail: Sqn,
    pub(super) is_repair: bool,
    pub(super) fragment: Option<Fragment>,
    pub(super) is_last: bool,
    pub(super) join_min: Option<Sqn>,
    /// Where the payload lies in the packet.
    pub(super) payload_at: usize,
    pub(super) payload: &'a [u8],
}

impl Peer {
    /// A sender heard for the first time, at `source`.
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
                last_spm: None,
                stale: (Sqn(0), 0),
                path_nla: None,
                scope_id: 0,
                path: shared.setup.path,
                mark: None,
                spmr: SpmRequest::start(now, limits, &mut shared.rng),
            },
            offer: Offer::default(),
            asking: Asking {
                timing: shared.limits.timing,
                timed: None,
                turn: (now, 0),
                is_starved: false,
                pace: Pace::default(),
            },
            heard: now,
            arrived: Arrived::default(),
            is_vouched_for: false,
            is_packed: false,
        }
    }

    /// Takes a plain packet if it is the next one of the stream and nothing stands in its way: its
    /// position, and whether it is to be handed out.
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

    /// Counts an accepted data packet by its kind.
    #[inline]
    pub(super) const fn count_data(&mut self, kind: PacketType, counters: &mut ReceiverCounters) {
        match kind {
            PacketType::Rdata => {
                self.arrived.repairs += 1;
                counters.rdata_packets += 1;
            }
            _ => counters.odata_packets += 1,
        }
    }

    /// Takes one data packet, whatever its place.
    pub(super) fn data(
        &mut self,
        now: Instant,
        data: &Incoming<'_>,
        shared: &mut Shared,
    ) -> Result<Verdict, DropReason> {
        if self.is_over() {
            self.heard = now;
            return Err(DropReason::Ended);
        }
        self.begin_at_data(now, data, shared);
        let position = data.sqn.extend(self.window.next);
        if self.is_past_end(position) {
            return Err(DropReason::Ended);
        }
        if data.is_repair {
            self.time_repair(now, position);
        }
        let certain = self.window.confirmed();
        let place = self.window.place(position);
        if place == Place::Nowhere(DropReason::BehindWindow) {
            return Err(DropReason::BehindWindow);
        }
        let verdict = match place {
            Place::Nowhere(reason) => Err(reason),
            _ => self.place_data(now, position, place, data, shared),
        };
        if verdict != Err(DropReason::BeyondWindow) {
            self.heard = now;
        }
        if !matches!(place, Place::Nowhere(_)) && verdict != Err(DropReason::NoRoom) {
            self.keep_member(now, position, data, shared);
        }
        self.window.see_trail(data.trail.extend(position), certain);
        if data.is_last && verdict.is_ok() {
            self.finish(position + 1);
        }
        self.look_again(&shared.store);
        verdict
    }

    /// True when [`Peer::step`] would give something.
    pub(super) fn has_ready(&self) -> bool {
        let Notices {
            replaced,
            found,
            mark,
        } = self.due.notices;
        let base = self.window.base;
        let data = match self.mode {
            Mode::Sequence => {
                let is_due = |entry: &Entry| entry.sqn == base && !self.due.is_short;
                self.due.assembly.is_complete()
                    || self.due.skip.is_some()
                    || self.held.front().is_some_and(is_due)
                    || self.window.gaps.is_lost_at(base)
            }
            Mode::Arrival => !self.held.is_empty() || self.window.gaps.has_lost(),
        };
        replaced || found || mark || data || self.is_leaving()
    }

    /// True for a session that is over and known to be.
    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// True for a session that was real and is over.
    pub(super) fn is_remembered(&self) -> bool {
        self.is_over() && self.arrived.packets >= PROVEN_DATA_PACKETS
    }

    /// True when the session has shown enough to be kept when room is needed.
    pub(super) fn is_proven(&self) -> bool {
        let enough = if self.spms.last_spm.is_some() {
            PROVEN_DATA_PACKETS
        } else {
            PROVEN_DATA_PACKETS_WITHOUT_SPM
        };
        (self.is_vouched_for || self.arrived.packets >= enough) && !self.is_over()
    }

    /// The owner knows that the sender is real.
    pub(super) const fn vouch(&mut self) {
        self.is_vouched_for = true;
    }

    /// True when the application knows the session number as this sender's, and not as over.
    pub(super) fn is_announced(&self) -> bool {
        self.due.notices.replaced || (!self.due.notices.found && !self.is_over())
    }

    /// Notes that the session number was another sender's, and that the application knows that one.
    pub(super) fn replace_another(&mut self) {
        self.due.notices.replaced = true;
    }

    /// There may be room for the piece that is due.
    pub(super) const fn try_again(&mut self) {
        self.due.is_short = false;
    }

    /// Gives up all memory; the session is over and its packets are ignored.
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

    /// Puts data that has a place where it belongs.
    fn place_data(
        &mut self,
        now: Instant,
        position: u64,
        place: Place,
        data: &Incoming<'_>,
        shared: &mut Shared,
    ) -> Result<Verdict, DropReason> {
        let content = content_of(data, &shared.limits);
        let kept = match self.mode {
            Mode::Sequence => self.keep_in_sequence(position, &content, data, shared),
            Mode::Arrival => self.keep_on_arrival(position, &content, data, shared),
        };
        if kept == Err(DropReason::NoRoom) {
            let due = self
                .window
                .gaps
                .draw(now, &self.asking.timing, &mut shared.rng);
            self.asking.is_starved = true;
            self.window.miss(position, now, due);
            return Err(DropReason::NoRoom);
        }
        let mut due = Instant::NEVER;
        if place == Place::Ahead {
            due = self
                .window
                .gaps
                .draw(now, &self.asking.timing, &mut shared.rng);
            self.count_missed(position - self.window.next, shared);
        }
        self.window.take(position, place, now, due);
        if self.mode == Mode::Sequence && matches!(kept, Ok(Kept::InTurn | Kept::Skipped)) {
            self.window.base = position + 1;
        }
        self.arrived.packets += 1;
        self.arrived.bytes += data.payload.len() as u64;
        match (kept, content) {
            (Err(reason), _) => Err(reason),
            (Ok(Kept::Broken), Content::Part(_)) => Err(DropReason::Incompatible),
            (Ok(Kept::Skipped), Content::Part(_)) => Err(DropReason::Unexpected),
            (Ok(Kept::Broken | Kept::Skipped), _) => Err(DropReason::Malformed),
            (Ok(Kept::InTurn), Content::Whole) => {
                self.due.is_joining = false;
                Ok(Verdict::Payload {
                    session: self.session,
                    sqn: position,
                    range: data.payload_at..data.payload_at + data.payload.len(),
                })
            }
            (Ok(_), _) => Ok(Verdict::Held),
        }
    }

    /// Sequence mode: uses the packet now if it is its turn, holds it otherwise.
    ///
    /// What is due needs no room in the store, whatever it is: otherwise a full store would wait
    /// for the packet that empties it.
    fn keep_in_sequence(
        &mut self,
        position: u64,
        content: &Content,
        data: &Incoming<'_>,
        shared: &mut Shared,
    ) -> Result<Kept, DropReason> {
        let is_turn = position == self.window.base
            && !self.due.notices.found
            && !self.due.notices.replaced
            && !self.due.assembly.is_complete();
        self.due.is_short &= !is_turn;
        match content {
            Content::Whole if is_turn => {
                self.abandon(&mut shared.counters);
                if !self.due.skip.is_some() {
                    return Ok(Kept::InTurn);
                }
            }
            Content::Part(part) if is_turn => {
                return self.keep_piece(position, part, data.payload, shared);
            }
            Content::Broken if is_turn => {
                self.abandon(&mut shared.counters);
                self.due.skip.cover(position, position + 1);
                return Ok(Kept::Skipped);
            }
            _ => {}
        }
        if !self
            .held
            .push(&mut shared.store, position, *content, data.payload)
        {
            return Err(DropReason::NoRoom);
        }
        match content {
            Content::Broken => Ok(Kept::Broken),
            _ => Ok(Kept::Held),
        }
    }

    /// Adds the piece that is due to the message at hand, or begins one with it, or skips it.
    fn keep_piece(
        &mut self,
        position: u64,
        part: &Part,
        payload: &[u8],
        shared: &mut Shared,
    ) -> Result<Kept, DropReason> {
        let mut fit = self
            .due
            .assembly
            .add(&mut shared.store, position, part, payload);
        if fit == Fit::Stray {
            let abandoned = self.abandon(&mut shared.counters);
            if abandoned && part.index == 0 {
                fit = self
                    .due
                    .assembly
                    .add(&mut shared.store, position, part, payload);
            }
        }
        match fit {
            Fit::Taken | Fit::Completed => Ok(Kept::InTurn),
            Fit::NoRoom => {
                self.due.is_short = true;
                Err(DropReason::NoRoom)
            }
            Fit::Stray => {
                self.skip_piece(position, &mut shared.counters);
                Ok(Kept::Skipped)
            }
        }
    }

    /// Arrival mode: everything is used at once, but for the packet that the session began with.
    ///
    /// Deviation from RFC 3208 section 6.1: messages in pieces are not put together in this mode;
    /// they are refused and reported as lost, so that no half message is ever given out.
    fn keep_on_arrival(
        &mut self,
        position: u64,
        content: &Content,
        data: &Incoming<'_>,
        shared: &mut Shared,
    ) -> Result<Kept, DropReason> {
        let content = match content {
            Content::Whole if !self.due.notices.found && !self.due.notices.replaced => {
                return Ok(Kept::InTurn);
            }
            Content::Part(_) => &Content::Broken,
            other => other,
        };
        match (
            self.held
                .push(&mut shared.store, position, *content, data.payload),
            content,
        ) {
            (false, _) => Err(DropReason::NoRoom),
            (true, Content::Broken) => Ok(Kept::Broken),
            (true, _) => Ok(Kept::Held),
        }
    }

    /// Gives the window its beginning, if data may and must do that.
    fn begin_at_data(&mut self, now: Instant, data: &Incoming<'_>, shared: &mut Shared) {
        let position = if self.is_established {
            data.sqn.extend(self.window.next)
        } else {
            FIRST_LAP + u64::from(data.sqn.0)
        };
        if self.is_established {
            if self.is_overtaken_beginning(position, data) {
                let end = self.window.next;
                let trail = self.window.trail;
                self.begin(position, shared);
                self.window.trail = trail;
                let due = self
                    .window
                    .gaps
                    .draw(now, &self.asking.timing, &mut shared.rng);
                self.window.announce(end, false, now, due);
            }
            return;
        }
        let trail = data.trail.extend(position).min(position);
        let start = match (shared.limits.late_join, data.join_min) {
            (LateJoin::Now, _) | (LateJoin::Offered, None) => position,
            (LateJoin::Offered, Some(min)) => min.extend(position).clamp(trail, position),
            (LateJoin::Window, _) => trail,
        };
        let oldest = position.saturating_sub(shared.limits.span_max - 1);
        self.begin(start.max(oldest), shared);
    }

    /// Data that an SPM overtook on its way: the session begins with it, not after it. Only new
    /// data shortly before counts; a repair for somebody else may be as old as the window.
    fn is_overtaken_beginning(&self, position: u64, data: &Incoming<'_>) -> bool {
        let base = self.window.base;
        self.arrived.packets == 0
            && self.window.next == base
            && !data.is_repair
            && position < base
            && position >= self.window.trail
            && base - position <= OVERTAKEN_MAX
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

    fn is_past_end(&self, position: u64) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Ending(end) => position >= end,
            Phase::Leaving(_) | Phase::Over => true,
        }
    }

    /// True when everything is in place for the session's last event.
    fn is_leaving(&self) -> bool {
        match self.phase {
            Phase::Open | Phase::Over => false,
            Phase::Ending(end) => self.window.contiguous() >= end,
            Phase::Leaving(_) => true,
        }
    }

    /// Finds out how the next expected packet is to be treated, if it is a plain one.
    fn look_again(&mut self, store: &HeldStore) {
        if self.asking.is_starved && self.held.has_room() && store.has_room() {
            self.asking.is_starved = false;
        }
        // Until it is proven, each packet of a session must move it among the evictable.
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

/// What the next packet of the stream needs, if it is a plain one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Nothing: it can be handed out.
    HandOut,
    /// To be held: earlier data is missing.
    Hold,
    /// A closer look.
    Long,
}

/// What became of data that had a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// Handed out, or added to the message at hand.
    InTurn,
    Held,
    /// Held as something of no use, which is reported in its turn.
    Broken,
    /// Due, and of no use: reported, or a message begun before this receiver.
    Skipped,
}

/// What the payload is: a message, a piece of one, or useless.
fn content_of(data: &Incoming<'_>, limits: &Limits) -> Content {
    let Some(fragment) = &data.fragment else {
        return Content::Whole;
    };
    let len = data.payload.len();
    match Part::of(fragment, data.sqn, len, &limits.parts) {
        None => Content::Broken,
        Some(part) if part.is_whole(len) => Content::Whole,
        Some(part) => Content::Part(part),
    }
}

/// Positions begin one lap up, so that subtraction never leaves 64 bits.
const FIRST_LAP: u64 = 1 << 32;

/// Data packets after which a session is kept when room is needed, with and without an SPM.
const PROVEN_DATA_PACKETS: u64 = 4;
const PROVEN_DATA_PACKETS_WITHOUT_SPM: u64 = 16;

/// How far an SPM may overtake the data it announces, in packets.
const OVERTAKEN_MAX: u64 = 64;
