//! The frames of one sender, at a receiver: which frames are open, which are whole, and what became
//! of each frame.
//!
//! ```text
//!   first heard --> Open --all pieces, in time--> Whole --in its turn--> given out
//!                    |                              '--deadline-----.
//!                    '--deadline--------------------------------> Lost, with a cause
//! ```
//!
//! Frames are settled in the order of their numbers. A frame of which nothing was heard has no
//! entry: the numbers and positions of the heard frames around it tell how many such frames there
//! were. The stream waits for unheard frames until one frame interval before the next heard frame
//! is due. If the interval is short or unknown, it stops waiting earlier: an eighth of the next
//! heard frame's deadline, at most 10 ms, before that frame is due.

use std::collections::VecDeque;

use base::Instant;
use wire::object::FrameHeader;

use super::{
    clock::ClockFloor,
    counts::{FrameCounts, FrameLoss},
    edge::{Edge, unheard},
    entry::{Entry, State, deadline_of, margin_of, release_of},
    receiver::FrameEvent,
    receiver::PieceVerdict,
    room::Room,
    whole::{Whole, data_len},
};
use crate::parameters::FRAMES_OPEN_MAX;

/// An outcome that a stream hands to its receiver, in the order of the frames' numbers. Only whole
/// frames may come before their turn: see [`Stream::take_ahead`].
#[derive(Debug)]
pub(super) enum Settled {
    Whole(Box<Whole>),
    /// It is the turn of the frame with this number; the frame itself was given out earlier.
    Turn(u64),
    Lost {
        first: u64,
        count: u64,
        cause: FrameLoss,
    },
    Ended(FrameCounts),
}

impl Settled {
    /// Returns the event for the application, in which `stream` is the stream's number. Returns
    /// `None` for [`Settled::Turn`]: the application already has that frame. `keep` holds a whole
    /// frame while the application looks at it.
    pub(super) fn event<'f>(
        self,
        stream: u32,
        keep: impl FnOnce(Box<Whole>) -> &'f Whole,
    ) -> Option<FrameEvent<'f>> {
        Some(match self {
            Self::Lost {
                first,
                count,
                cause,
            } => FrameEvent::Lost {
                stream,
                first,
                count,
                cause,
            },
            Self::Ended(counts) => FrameEvent::Ended { stream, counts },
            Self::Whole(whole) => FrameEvent::Whole(keep(whole).frame(stream)),
            Self::Turn(_) => return None,
        })
    }
}

/// The frames of one sender.
#[derive(Debug)]
pub(super) struct Stream {
    /// The lowest position of a packet that can reach this receiver.
    start: u64,
    /// One past the highest position of a piece that agreed with its frame's entry.
    high: u64,
    clock: Option<ClockFloor>,
    /// The sender's timestamp, in nanoseconds, of the newest frame that was heard.
    stamp: Option<u64>,
    /// Frames that were heard and are not settled, in the order of their numbers.
    frames: VecDeque<Entry>,
    /// The place behind the last settled frame, or behind the frame during which this receiver
    /// joined; `None` while there is neither.
    edge: Option<Edge>,
    /// The place behind the last refused frame. The stream believes a later frame that agrees with
    /// this place.
    claim: Option<Edge>,
    /// The sender's END header, which says how many frames there were, and the position of the
    /// packet with that header.
    end: Option<(FrameHeader, u64)>,
    /// Number of pieces that contradicted earlier ones, counted since a piece was last taken.
    contradictions: u32,
    /// How many packets the kernel had dropped when an entry was last added to `frames`.
    drops: u64,
    /// When a packet of the stream last came.
    pub(super) heard: Instant,
    pub(super) counts: FrameCounts,
}

/// The place of a piece in the stream.
#[derive(Clone, Copy, Debug)]
struct Seat {
    /// The index of the frame's entry, or the index at which to make one.
    at: usize,
    /// The position of the frame's first piece.
    first: u64,
    is_free: bool,
}

/// A piece of a frame, as a packet brought it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub(super) header: FrameHeader,
    pub(super) position: u64,
    pub(super) bytes: &'a [u8],
}

impl Stream {
    /// Makes a stream whose first packet came at `position`.
    pub(super) fn new(position: u64, drops: u64) -> Self {
        Self {
            start: position,
            high: position,
            clock: None,
            stamp: None,
            frames: VecDeque::new(),
            edge: None,
            claim: None,
            end: None,
            contradictions: 0,
            drops,
            heard: Instant::ZERO,
            counts: FrameCounts::default(),
        }
    }

    /// Notes that packets from position `start` on can still come, although a packet with a higher
    /// position came first.
    pub(super) fn begin(&mut self, start: u64, release: &mut impl FnMut(Room)) {
        self.start = self.start.min(start);
        if self.frames.front().is_some_and(|it| it.first < self.start)
            && let Some(entry) = self.frames.pop_front()
        {
            self.join_after(&entry.header, entry.first);
            release_of(entry.state, release);
        }
    }

    /// Notes a frame that began before this receiver joined: counting begins with the frame after
    /// it.
    fn join_after(&mut self, header: &FrameHeader, first: u64) {
        let behind = Edge::behind(header, first, self.drops);
        self.edge.get_or_insert(behind);
    }

    /// Takes the sender's END header, which says how many frames there were. If several come, the
    /// one at the highest position counts.
    pub(super) fn end(&mut self, header: FrameHeader, position: u64) {
        if self.end.is_none_or(|(_, at)| at <= position) {
            self.end = Some((header, position));
        }
    }

    /// Returns true when `CONTRADICTIONS_MAX` pieces contradicted earlier pieces, and no piece was
    /// taken in between. Then the earlier pieces must be wrong.
    pub(super) const fn is_contradicted(&self) -> bool {
        self.contradictions >= CONTRADICTIONS_MAX
    }

    /// Takes a piece. `room` gives the memory for a frame: `None` when the frame is too long or no
    /// memory is left.
    #[inline]
    pub(super) fn take(
        &mut self,
        now: Instant,
        piece: &Piece<'_>,
        drops: u64,
        room: impl FnOnce(&FrameHeader) -> Option<Room>,
    ) -> PieceVerdict {
        let verdict = self.place(now, piece, drops, room);
        match verdict {
            PieceVerdict::Taken | PieceVerdict::Completed => self.contradictions = 0,
            PieceVerdict::Contradictory => self.contradictions += 1,
            _ => {}
        }
        verdict
    }

    fn place(
        &mut self,
        now: Instant,
        piece: &Piece<'_>,
        drops: u64,
        room: impl FnOnce(&FrameHeader) -> Option<Room>,
    ) -> PieceVerdict {
        let header = &piece.header;
        let seat = match self.find(piece) {
            Ok(seat) => seat,
            Err(verdict) => {
                self.turn_away(piece, verdict);
                return verdict;
            }
        };
        if seat.is_free {
            self.claim = None;
            let entry = self.open(now, header, seat.first, drops, room);
            self.frames.insert(seat.at, entry);
        }
        self.put(seat.at, piece, seat.first)
    }

    /// Returns the place of a piece, or the reason why the stream does not take it.
    fn find(&self, piece: &Piece<'_>) -> Result<Seat, PieceVerdict> {
        let header = &piece.header;
        let Some(first) = piece.position.checked_sub(u64::from(header.index)) else {
            return Err(PieceVerdict::Contradictory);
        };
        let is_first_packet = self.clock.is_none();
        if first < self.start && !is_first_packet {
            return Err(self.before_join(header, first));
        }
        match self.edge {
            // A frame with a lower number than the edge cannot begin behind the edge: the header or
            // the edge is wrong.
            Some(edge) if header.id < edge.id && first >= edge.position => {
                return Err(PieceVerdict::Contradictory);
            }
            Some(edge) if header.id < edge.id => return Err(PieceVerdict::Late),
            _ => {}
        }
        let at = self.frames.partition_point(|it| it.header.id < header.id);
        let known = self.frames.get(at);
        let is_free = known.is_none_or(|it| it.header.id != header.id);
        if is_free && !self.fits(at, header, first) {
            return Err(PieceVerdict::Contradictory);
        }
        let is_full = self.frames.len() >= FRAMES_OPEN_MAX as usize;
        if is_free && (is_full || !self.is_believed(at, header, first)) {
            return Err(PieceVerdict::Refused);
        }
        Ok(Seat { at, first, is_free })
    }

    /// Judges a piece whose position says that its frame began before this receiver joined. Until
    /// there is an edge, the header must also fit in front of the first heard frame.
    fn before_join(&self, header: &FrameHeader, first: u64) -> PieceVerdict {
        let behind = Edge::behind(header, first, self.drops);
        match self.frames.front().filter(|_| self.edge.is_none()) {
            Some(front) if !behind.leads_to(&front.header, front.first) => {
                PieceVerdict::Contradictory
            }
            Some(front) if !behind.is_near(&front.header) => PieceVerdict::Refused,
            _ => PieceVerdict::BeforeJoin,
        }
    }

    /// Notes what can be learned from a piece that the stream does not take.
    fn turn_away(&mut self, piece: &Piece<'_>, verdict: PieceVerdict) {
        let Some(first) = piece.position.checked_sub(u64::from(piece.header.index)) else {
            return;
        };
        match verdict {
            PieceVerdict::BeforeJoin => self.join_after(&piece.header, first),
            PieceVerdict::Refused => {
                self.claim = Some(Edge::behind(&piece.header, first, self.drops));
            }
            _ => {}
        }
    }

    /// Returns true when the stream would take the piece, but has no entry for its frame yet.
    /// Taking it then needs memory.
    pub(super) fn needs_room(&self, piece: &Piece<'_>) -> bool {
        self.find(piece).is_ok_and(|seat| seat.is_free)
    }

    /// Returns true when the piece belongs to a newer frame than all those heard so far.
    #[inline]
    pub(super) fn is_news(&self, header: &FrameHeader) -> bool {
        let newest = self.frames.back();
        newest.is_none_or(|it| it.header.id < header.id)
    }

    /// Returns one past the number of the newest frame that was heard.
    pub(super) fn newest(&self) -> Option<u64> {
        let newest = self.frames.back().map(|it| it.header.id + 1);
        newest.or(self.edge.map(|edge| edge.id))
    }

    /// Returns how many bytes of memory are taken up by frames that were heard and are not settled.
    pub(super) fn room_bytes(&self) -> usize {
        let rooms = self.frames.iter().filter_map(|it| it.state.room());
        rooms.map(|room| room.bytes.capacity()).sum()
    }

    /// Gives up the newest frame that has memory, and returns that memory.
    pub(super) fn give_way(&mut self) -> Option<Room> {
        let mut newest_first = self.frames.iter_mut().rev();
        let entry = newest_first.find(|it| it.state.room().is_some())?;
        match std::mem::replace(&mut entry.state, State::Lost(FrameLoss::Refused)) {
            State::Open { room, .. } | State::Whole { room, .. } => Some(room),
            State::Ahead { .. } | State::Lost(_) => None,
        }
    }

    /// Makes the entry of a frame that is heard for the first time.
    fn open(
        &mut self,
        now: Instant,
        header: &FrameHeader,
        first: u64,
        drops: u64,
        room: impl FnOnce(&FrameHeader) -> Option<Room>,
    ) -> Entry {
        let (stamp, is_news) = (header.timestamp_ns, self.is_news(header));
        let clock = self
            .clock
            .get_or_insert_with(|| ClockFloor::new(now, stamp));
        let is_set_back = is_news && self.stamp.is_some_and(|before| stamp < before);
        let heard = clock.take(now, stamp, is_set_back);
        if is_news {
            self.stamp = Some(stamp);
        }
        let state = if now >= clock.due(heard, deadline_of(header)) {
            State::Lost(FrameLoss::Late)
        } else {
            match room(header) {
                None => State::Lost(FrameLoss::Refused),
                Some(room) => State::Open {
                    room,
                    missing: header.pieces(),
                    is_repaired: false,
                },
            }
        };
        let drops_before = std::mem::replace(&mut self.drops, drops);
        Entry {
            header: FrameHeader {
                index: 0,
                ..*header
            },
            first,
            heard,
            drops,
            drops_before,
            state,
        }
    }

    /// Puts a piece into entry `at` of `frames`, whose frame has the number that the piece names.
    fn put(&mut self, at: usize, piece: &Piece<'_>, first: u64) -> PieceVerdict {
        let entry = &mut self.frames[at];
        if entry.first != first || !entry.header.is_same_frame(&piece.header) {
            return PieceVerdict::Contradictory;
        }
        let is_behind = piece.position + 1 < self.high;
        self.high = self.high.max(piece.position + 1);
        let State::Open {
            room,
            missing,
            is_repaired,
        } = &mut entry.state
        else {
            return PieceVerdict::Late;
        };
        if !room.put(&piece.header, piece.bytes) {
            return PieceVerdict::Contradictory;
        }
        *is_repaired |= is_behind;
        *missing -= 1;
        if *missing > 0 {
            return PieceVerdict::Taken;
        }
        let is_repaired = *is_repaired;
        let room = std::mem::take(room);
        entry.state = State::Whole { room, is_repaired };
        // Whether the frame is in time is decided when it is given out.
        PieceVerdict::Completed
    }

    /// Returns true when a frame that begins at `first` can be inserted at index `at` of `frames`.
    /// Between it and the frames on either side, there must be room for at least one packet of each
    /// unheard frame.
    fn fits(&self, at: usize, header: &FrameHeader, first: u64) -> bool {
        let before = self.before(at);
        let behind = Edge::behind(header, first, self.drops);
        let mut next = self.frames.get(at).into_iter();
        before.is_none_or(|it| it.leads_to(header, first))
            && next.all(|next| behind.leads_to(&next.header, next.first))
    }

    /// Returns true when a frame that fits is believed. A packet may be forged if it claims more
    /// overruns (frames numbered but not sent) than [`Edge::is_near`] allows: it is believed only
    /// when a packet of another frame agrees.
    fn is_believed(&self, at: usize, header: &FrameHeader, first: u64) -> bool {
        match (self.before(at), self.frames.get(at)) {
            (Some(before), None) => self.is_agreed(&before, header, first),
            (None, Some(next)) => Edge::behind(header, first, 0).is_near(&next.header),
            // A frame between two believed ones cannot claim more overruns than the later one.
            (Some(_), Some(_)) | (None, None) => true,
        }
    }

    fn is_agreed(&self, before: &Edge, header: &FrameHeader, first: u64) -> bool {
        let agrees = |claim: Edge| claim.leads_to(header, first) && claim.is_near(header);
        before.is_near(header) || self.claim.is_some_and(agrees)
    }

    /// Returns the edge behind entry `at - 1` of `frames`, or the stream's edge when `at` is 0.
    fn before(&self, at: usize) -> Option<Edge> {
        let entry = at.checked_sub(1).and_then(|at| self.frames.get(at));
        let behind = entry.map(|it| Edge::behind(&it.header, it.first, it.drops));
        behind.or(self.edge)
    }

    /// Settles the next frame if that is possible at `now`; `is_over` says that no more packets
    /// come. Gives `out` the outcome of this frame and of the unheard frames before it. Returns
    /// false when nothing was settled.
    pub(super) fn settle_next(
        &mut self,
        now: Instant,
        drops: u64,
        is_over: bool,
        release: &mut impl FnMut(Room),
        out: &mut impl FnMut(Settled),
    ) -> bool {
        let is_open = self.frames.front().is_some_and(Entry::is_open);
        let open_until = is_open.then(|| self.open_until()).flatten();
        let high = self.high;
        let (Some(front), Some(clock)) = (self.frames.front_mut(), &self.clock) else {
            return false;
        };
        let is_past = match front.state {
            State::Open { .. } => open_until.is_some_and(|until| now >= until),
            _ => now >= front.due(clock),
        };
        front.expire(is_past, is_over, high, drops, release);
        if front.is_open() || !(is_over || self.may_pass(now)) {
            return false;
        }
        if let Some(entry) = self.frames.pop_front() {
            self.settle(entry, out);
        }
        true
    }

    /// Gives out the frames that are whole and in time, even when frames before them are not
    /// settled. The caller puts them in order. At the turn of such a frame, `settle` gives out
    /// [`Settled::Turn`] instead of the frame.
    pub(super) fn take_ahead(&mut self, now: Instant, out: &mut impl FnMut(Settled)) {
        let Some(clock) = self.clock else {
            return;
        };
        let ahead = self.frames.iter_mut();
        for whole in ahead.filter_map(|entry| entry.take_ahead(now, &clock)) {
            out(Settled::Whole(Box::new(whole)));
        }
    }

    /// Settles the whole frames and those past their deadline when this receiver leaves. Frames
    /// that could still arrive are not counted, because this receiver takes no more packets.
    pub(super) fn leave(
        &mut self,
        now: Instant,
        drops: u64,
        release: &mut impl FnMut(Room),
        out: &mut impl FnMut(Settled),
    ) {
        let mut is_all_counted = true;
        while let Some(clock) = self.clock
            && let Some(mut entry) = self.frames.pop_front()
        {
            entry.expire(now >= entry.due(&clock), false, self.high, drops, release);
            if let Some(edge) = &mut self.edge
                && let Some(unheard) = unheard(edge.id, edge.skipped, &entry.header)
                && now < entry.passed_at(&clock)
            {
                edge.id += unheard;
                is_all_counted &= unheard == 0;
            }
            if entry.is_open() {
                is_all_counted = false;
                self.pass_over(entry, release, out);
            } else {
                self.settle(entry, out);
            }
        }
        let can_more_come = |edge: Edge| {
            let end = self.end.as_ref();
            end.is_some_and(|(end, _)| unheard(edge.id, edge.skipped, end) != Some(0))
        };
        if is_all_counted && !self.edge.is_some_and(can_more_come) {
            self.finish(drops, out);
        }
    }

    /// Returns until when the first heard frame may stay open: until it is due, or until
    /// [`margin_of`] before a whole frame behind it is due, if that is earlier. Otherwise an open
    /// frame with a long or forged deadline would make the whole frame late.
    fn open_until(&self) -> Option<Instant> {
        let (front, clock) = (self.frames.front()?, self.clock.as_ref()?);
        let behind = self.frames.iter().skip(1);
        let whole = behind.filter(|it| it.is_whole());
        let waiting = whole.map(|it| it.due(clock) - margin_of(&it.header)).min();
        Some(waiting.map_or(front.due(clock), |waiting| waiting.min(front.due(clock))))
    }

    /// Returns true when no frame before the first heard one can still be delivered.
    fn may_pass(&self, now: Instant) -> bool {
        let (Some(front), Some(clock)) = (self.frames.front(), &self.clock) else {
            return false;
        };
        self.is_next(front) || now >= front.passed_at(clock)
    }

    fn is_next(&self, front: &Entry) -> bool {
        match self.edge {
            Some(edge) => unheard(edge.id, edge.skipped, &front.header) == Some(0),
            None => front.first == self.start,
        }
    }

    /// Counts the unheard frames before the frame of `entry` as lost, and moves the edge behind the
    /// frame of `entry`.
    fn settle_before(&mut self, entry: &Entry, out: &mut impl FnMut(Settled)) {
        let header = &entry.header;
        let edge = self.edge.unwrap_or(Edge {
            id: header.id,
            position: entry.first,
            skipped: header.skipped,
            drops: entry.drops,
        });
        self.settle_gap(edge, header, entry.drops, out);
        self.edge = Some(Edge::behind(header, entry.first, entry.drops));
    }

    /// Counts the unheard frames before the frame of `entry` as lost, and moves the edge behind
    /// that frame without counting it.
    fn pass_over(
        &mut self,
        entry: Entry,
        release: &mut impl FnMut(Room),
        out: &mut impl FnMut(Settled),
    ) {
        self.settle_before(&entry, out);
        release_of(entry.state, release);
    }

    /// Counts a frame, and the unheard frames before it.
    fn settle(&mut self, entry: Entry, out: &mut impl FnMut(Settled)) {
        self.settle_before(&entry, out);
        let header = entry.header;
        let due = self.clock.map_or(Instant::ZERO, |clock| entry.due(&clock));
        match entry.state {
            State::Whole { room, is_repaired } => {
                self.count_whole(&header, is_repaired);
                let whole = Whole::new(header, room, is_repaired, due);
                out(Settled::Whole(Box::new(whole)));
            }
            State::Ahead { is_repaired } => {
                self.count_whole(&header, is_repaired);
                out(Settled::Turn(header.id));
            }
            State::Lost(cause) => self.lose(header.id, 1, cause, out),
            State::Open { .. } => unreachable!("an open frame is not settled"),
        }
    }

    fn count_whole(&mut self, header: &FrameHeader, is_repaired: bool) {
        self.counts.first_id.get_or_insert(header.id);
        self.counts.frames += 1;
        self.counts.whole += 1;
        self.counts.repaired += u64::from(is_repaired);
        self.counts.bytes += data_len(header);
    }

    /// Counts the frames between `edge` and the frame of `header` as lost.
    fn settle_gap(
        &mut self,
        edge: Edge,
        header: &FrameHeader,
        drops: u64,
        out: &mut impl FnMut(Settled),
    ) {
        // `None` would mean that the header contradicts the edge, but such a header is not taken.
        let Some(unheard) = unheard(edge.id, edge.skipped, header) else {
            return;
        };
        let overruns = u64::from(header.skipped - edge.skipped);
        let cause = if drops > edge.drops {
            FrameLoss::SocketBuffer
        } else {
            FrameLoss::Network
        };
        self.lose(edge.id, unheard, cause, out);
        self.lose(edge.id + unheard, overruns, FrameLoss::Overrun, out);
    }

    fn lose(&mut self, first: u64, count: u64, cause: FrameLoss, out: &mut impl FnMut(Settled)) {
        if count > 0 {
            self.counts.first_id.get_or_insert(first);
            self.counts.frames += count;
            self.counts.lost[cause as usize] += count;
            out(Settled::Lost {
                first,
                count,
                cause,
            });
        }
    }

    /// Counts the frames after the last heard frame as lost, if the sender's END header said how
    /// many frames there were.
    pub(super) fn finish(&mut self, drops: u64, out: &mut impl FnMut(Settled)) {
        let Some((end, position)) = self.end else {
            return;
        };
        let Some(edge) = self.edge else {
            self.counts.is_end_known = true;
            return;
        };
        if edge.leads_to(&end, position) && self.is_agreed(&edge, &end, position) {
            self.counts.is_end_known = true;
            self.settle_gap(edge, &end, drops, out);
        }
    }

    /// Returns the position before which the receiver has no use for any packet.
    pub(super) fn give_up_before(&self) -> u64 {
        self.edge.map_or(0, |edge| edge.position)
    }

    /// Says when the next frame can be settled even if no packet comes.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let (front, clock) = (self.frames.front()?, self.clock.as_ref()?);
        Some(match front.state {
            State::Open { .. } => self.open_until()?,
            // No frame before this one is missing, so it can be settled at once.
            _ if self.is_next(front) => Instant::ZERO,
            _ => front.passed_at(clock),
        })
    }
}

/// This many contradictory pieces, with none taken in between, show that the earlier pieces were
/// wrong. Judgement: most frames have more pieces than this, so the pieces of one frame can show
/// it; a few forged pieces cannot.
const CONTRADICTIONS_MAX: u32 = 32;
