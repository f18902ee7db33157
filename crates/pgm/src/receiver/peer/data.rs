//! Data packets of one sender: the place of each, and whether it is given out now or held.
//!
//! [`Peer::take_next`] in the parent module is the quick path for the next expected packet; this
//! file handles every other packet. In: one data packet. Out: a verdict. The window, the held data
//! and the message that is being put together change with it.

use base::{DropReason, Instant, Verdict};
use wire::{Sqn, pgm::Fragment};

use super::{FIRST_LAP, Peer, Shared};
use crate::{
    LateJoin,
    receiver::{
        Mode,
        apdu::{Fit, Part},
        held::Content,
        setup::Limits,
        window::Place,
    },
};

/// One data packet.
#[derive(Clone, Debug)]
pub(in crate::receiver) struct Incoming<'a> {
    pub(in crate::receiver) sqn: Sqn,
    pub(in crate::receiver) trail: Sqn,
    pub(in crate::receiver) is_repair: bool,
    pub(in crate::receiver) fragment: Option<Fragment>,
    pub(in crate::receiver) is_last: bool,
    pub(in crate::receiver) join_min: Option<Sqn>,
    /// Offset of the payload in the packet.
    pub(in crate::receiver) payload_at: usize,
    pub(in crate::receiver) payload: &'a [u8],
}

impl Peer {
    /// Takes a data packet. The sender counts as heard even when the packet is not kept.
    pub(in crate::receiver) fn data(
        &mut self,
        now: Instant,
        data: &Incoming<'_>,
        shared: &mut Shared,
    ) -> Result<Verdict, DropReason> {
        let verdict = self.keep_data(now, data, shared);
        if verdict.is_err() {
            self.note_heard();
        }
        verdict
    }

    /// Takes one data packet, wherever it lies inside or outside the window.
    fn keep_data(
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
        self.see_trail(data.trail.extend(position), certain);
        if data.is_last && verdict.is_ok() {
            self.claim_end(position + 1);
        }
        self.look_again(&shared.store);
        verdict
    }

    /// Hands out or holds data for which the window has a place.
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
                    position,
                    range: data.payload_at..data.payload_at + data.payload.len(),
                })
            }
            (Ok(_), _) => Ok(Verdict::Held),
        }
    }

    /// In sequence mode, uses the packet at once if it is the next to give out; else holds it.
    ///
    /// A whole message that is next takes no room in the store. Otherwise a full store could not
    /// take the packet after which its held packets can leave. The message does take room when
    /// skipped positions must be reported first. A piece of a message takes room for the message
    /// that it continues or begins.
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

    /// Adds the next piece to the current message, begins a message with the piece, or skips it.
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

    /// In arrival mode, uses the packet at once if the owner has been told of the session; else
    /// holds it.
    ///
    /// Deviation from RFC 3208 section 6.1: in this mode the receiver does not put fragmented
    /// messages together. It refuses them and reports them as lost, so that it never gives out half
    /// a message.
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

    /// Begins the window if it has not begun: at this packet, or before it if the configuration
    /// says so (`late_join`). Begins the window anew at this packet if an SPM overtook the packet.
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

    /// Returns true for data that an SPM overtook on the network: the session begins with this
    /// data, not after it. Only new data within [`OVERTAKEN_MAX`] packets counts; a repair for
    /// another receiver may be as old as the window.
    fn is_overtaken_beginning(&self, position: u64, data: &Incoming<'_>) -> bool {
        let base = self.window.base;
        self.arrived.packets == 0
            && self.window.next == base
            && !data.is_repair
            && position < base
            && position >= self.window.trail
            && base - position <= OVERTAKEN_MAX
    }
}

/// What was done with data for which the window had a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// The data was handed out, or added to its message.
    InTurn,
    Held,
    /// The data is useless; it is held, so that its loss is reported in its turn.
    Broken,
    /// The data is useless and its turn has come. It is reported as lost, unless it is part of a
    /// message that began before this receiver joined.
    Skipped,
}

/// Returns what the payload is: a message, a piece of a message, or useless.
pub(super) fn content_of(data: &Incoming<'_>, limits: &Limits) -> Content {
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

/// The most packets by which an SPM may overtake the data that it announces.
const OVERTAKEN_MAX: u64 = 64;
