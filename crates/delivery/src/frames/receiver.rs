//! The receiving end of frames: it puts pieces together, and gives out whole frames in time.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    time::Duration,
};

use base::Instant;
use wire::object::{FrameHeader, FrameKind};

use super::{
    counts::{FrameCounts, FrameLoss},
    room::Room,
    stream::{Piece, Settled, Stream},
    whole::{Whole, data_len},
};
use crate::parameters::{
    FRAME_BYTES_MAX, FRAME_MEMORY_BYTES_MAX, FRAME_ROOMS_KEPT, FRAME_STREAMS_MAX,
};

base::counters! {
    /// What a receiver of frames has seen and done, over all streams.
    pub struct FrameReceiverCounters: "frame_receiver" {
        frames_whole: Events, "frames delivered whole and in time";
        frames_repaired: Events, "of these, frames of which a packet came behind later ones";
        frame_bytes: Bytes, "bytes of the frames delivered";
        frames_lost_network: Events, "frames lost: packets did not arrive in time, nor did repairs";
        frames_lost_socket_buffer: Events, "frames lost: the socket buffer was full";
        frames_lost_late: Events, "frames lost: sender, path or this host was too slow";
        frames_lost_overrun: Events, "frames lost: the sender had no room for them";
        frames_lost_refused: Events, "frames lost: longer than this end takes, or no memory";
        pieces_taken: Packets, "packets with a piece of a frame taken";
        pieces_late: Packets, "packets of frames that were settled before";
        pieces_before_join: Packets, "packets of frames that began before this receiver";
        pieces_refused: Packets,
            "packets beyond the frames or streams that this end follows, or behind its end";
        pieces_malformed: Packets, "packets that hold no piece of a frame";
        pieces_contradictory: Packets, "packets that contradict others of their stream";
    }
}

/// Bounds on the frames and streams that a receiver keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameReceiverConfig {
    /// The longest frame that the receiver takes, in bytes, its format included.
    pub frame_bytes_max: usize,
    /// Memory for the frames of all streams, in bytes.
    pub memory_bytes_max: usize,
    /// The most streams that the receiver follows.
    pub streams_max: usize,
}

impl Default for FrameReceiverConfig {
    fn default() -> Self {
        Self {
            frame_bytes_max: FRAME_BYTES_MAX,
            memory_bytes_max: FRAME_MEMORY_BYTES_MAX,
            streams_max: FRAME_STREAMS_MAX as usize,
        }
    }
}

/// What became of a packet's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceVerdict {
    /// The piece was put into its frame; or the payload is the sender's END.
    Taken,
    /// The piece was put into its frame, and the frame is now whole.
    Completed,
    /// The piece came after its frame was whole or lost.
    Late,
    /// The piece's frame began before this receiver joined.
    BeforeJoin,
    /// The receiver already follows too many frames or streams, or has left. Or the piece claims
    /// that the sender skipped very many frames for lack of room, and no other frame confirms that.
    Refused,
    /// The payload is not a piece of a frame.
    Malformed,
    /// The piece contradicts other packets of its stream, or is a duplicate.
    Contradictory,
}

/// A frame that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The stream that the frame belongs to.
    pub stream: u32,
    /// The frame's number.
    pub id: u64,
    /// When the frame was made, in nanoseconds of the sender's clock.
    pub timestamp_ns: u64,
    /// The time from one frame to the next; zero when the sender does not know it.
    pub interval: Duration,
    /// True when a packet of the frame came out of order, after later packets. Usually such a
    /// packet is a repair.
    pub is_repaired: bool,
    /// The sender's description of how to read the frame.
    pub format: &'a [u8],
    /// The frame's bytes.
    pub data: &'a [u8],
}

/// A whole frame or a loss, in the order of the frames' numbers; or the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameEvent<'a> {
    /// A frame is whole, and its deadline has not passed.
    Whole(Frame<'a>),
    /// Frames were lost.
    Lost {
        /// The stream that the lost frames belong to.
        stream: u32,
        /// The number of the first lost frame.
        first: u64,
        /// The number of lost frames.
        count: u64,
        /// The reason why these frames were lost.
        cause: FrameLoss,
    },
    /// A stream is over, or it begins anew because its packets contradict what was heard first.
    /// Frames that come after this event are numbered and counted anew.
    Ended {
        /// The stream that is over or begins anew.
        stream: u32,
        /// How many of the stream's frames came whole, and how many were lost and why.
        counts: FrameCounts,
    },
}

/// The frames of all streams that this end follows.
///
/// In: [`FrameReceiver::take`] for each payload; [`FrameReceiver::settle`] in each turn of the
/// caller's loop and when [`FrameReceiver::next_timeout`] is due. Out: [`FrameReceiver::pop`].
///
/// **Cost**: one copy of each piece, into its frame. The memory of a frame serves later frames.
#[derive(Debug)]
pub struct FrameReceiver {
    config: FrameReceiverConfig,
    streams: BTreeMap<u32, Stream>,
    /// New streams that [`FrameReceiver::pop_fresh`] has not returned yet.
    fresh: Vec<u32>,
    settled: VecDeque<(u32, Settled)>,
    /// The frame that the last call of [`FrameReceiver::pop`] returned, if it returned one.
    lent: Option<Box<Whole>>,
    memory: Memory,
    host_drops: u64,
    has_left: bool,
    counters: FrameReceiverCounters,
}

impl FrameReceiver {
    /// Makes a receiver that follows no stream yet.
    #[must_use]
    pub fn new(config: FrameReceiverConfig) -> Self {
        Self {
            config,
            streams: BTreeMap::new(),
            fresh: Vec::new(),
            settled: VecDeque::new(),
            lent: None,
            memory: Memory::default(),
            host_drops: 0,
            has_left: false,
            counters: FrameReceiverCounters::default(),
        }
    }

    /// Takes the payload of the packet at `position` of `stream`.
    #[inline]
    pub fn take(
        &mut self,
        now: Instant,
        stream: u32,
        position: u64,
        payload: &[u8],
    ) -> PieceVerdict {
        let verdict = match FrameHeader::parse(payload) {
            Ok((header, bytes)) => {
                let piece = Piece {
                    header,
                    position,
                    bytes,
                };
                self.take_piece(now, stream, &piece)
            }
            Err(_) => PieceVerdict::Malformed,
        };
        let counters = &mut self.counters;
        match verdict {
            PieceVerdict::Taken | PieceVerdict::Completed => counters.pieces_taken += 1,
            PieceVerdict::Late => counters.pieces_late += 1,
            PieceVerdict::BeforeJoin => counters.pieces_before_join += 1,
            PieceVerdict::Refused => counters.pieces_refused += 1,
            PieceVerdict::Malformed => counters.pieces_malformed += 1,
            PieceVerdict::Contradictory => {
                counters.pieces_contradictory += 1;
                self.doubt(now, stream, position);
            }
        }
        verdict
    }

    fn take_piece(&mut self, now: Instant, stream: u32, piece: &Piece<'_>) -> PieceVerdict {
        if self.has_left {
            return PieceVerdict::Refused;
        }
        let is_full = self.streams.len() >= self.config.streams_max;
        let known = match self.streams.entry(stream) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_full => return PieceVerdict::Refused,
            Entry::Vacant(place) => {
                self.fresh.push(stream);
                place.insert(Stream::new(piece.position, self.host_drops))
            }
        };
        known.heard = now;
        if piece.header.kind == FrameKind::End {
            known.end(piece.header, piece.position);
            return PieceVerdict::Taken;
        }
        let is_news = known.is_news(&piece.header);
        let has_room = !is_news || self.memory.has_room(&piece.header, &self.config);
        let known = if !has_room && known.needs_room(piece) {
            self.make_room(stream, &piece.header);
            let Some(known) = self.streams.get_mut(&stream) else {
                return PieceVerdict::Refused;
            };
            known
        } else {
            known
        };
        let (memory, config) = (&mut self.memory, &self.config);
        known.take(now, piece, self.host_drops, |header| {
            memory.room(header, config)
        })
    }

    /// Begins a stream anew when its packets contradict what was heard of it before. So forged
    /// packets that came first do not block the stream.
    #[cold]
    fn doubt(&mut self, now: Instant, stream: u32, position: u64) {
        let known = self.streams.get(&stream);
        if known.is_some_and(Stream::is_contradicted) {
            self.close(now, stream);
            self.fresh.push(stream);
            let anew = Stream::new(position, self.host_drops);
            self.streams.insert(stream, anew);
        }
    }

    /// Frees memory for a frame of `stream`, if the stream uses no memory yet or stays within its
    /// share with this frame. All streams that use memory have equal shares. Streams above their
    /// share give up their newest frames. So one stream cannot take all memory.
    #[cold]
    fn make_room(&mut self, stream: u32, header: &FrameHeader) {
        let len = header.len as usize;
        let others = self.streams.iter().filter(|(other, _)| **other != stream);
        let users = 1 + others.filter(|(_, it)| it.room_bytes() > 0).count();
        let share = self.config.memory_bytes_max / users;
        let own = self.streams.get(&stream).map_or(0, Stream::room_bytes);
        let is_greedy = own > 0 && own.saturating_add(len) > share;
        let len_max = self
            .config
            .frame_bytes_max
            .min(self.config.memory_bytes_max);
        if len > len_max || is_greedy {
            return;
        }
        while !self.memory.has_room(header, &self.config) {
            let others = self
                .streams
                .iter_mut()
                .filter(|(other, _)| **other != stream);
            let others = others.map(|(_, known)| (known.room_bytes(), known));
            let Some((used, greediest)) = others.max_by_key(|(used, _)| *used) else {
                return;
            };
            let Some(room) = Some(greediest)
                .filter(|_| used > share)
                .and_then(Stream::give_way)
            else {
                return;
            };
            self.memory.release(room);
        }
    }

    /// Returns a stream that was heard for the first time; [`FrameReceiver::begin`] must follow.
    #[inline]
    pub fn pop_fresh(&mut self) -> Option<u32> {
        self.fresh.pop()
    }

    /// Sets `start`, the position of the first packet of `stream` that this end can receive. Frames
    /// that began before `start` do not count.
    pub fn begin(&mut self, stream: u32, start: u64) {
        let memory = &mut self.memory;
        if let Some(known) = self.streams.get_mut(&stream) {
            known.begin(start, &mut |room| memory.release(room));
        }
    }

    /// Sets how many packets the kernel has dropped so far because a socket buffer was full.
    pub const fn set_host_drops(&mut self, packets: u64) {
        self.host_drops = packets;
    }

    /// Gives up frames that are past their deadlines, and makes whole frames ready for
    /// [`FrameReceiver::pop`].
    pub fn settle(&mut self, now: Instant) {
        let mut settler = Settler {
            memory: &mut self.memory,
            settled: &mut self.settled,
            counters: &mut self.counters,
            drops: self.host_drops,
        };
        for (&stream, known) in &mut self.streams {
            settler.settle(now, stream, known, Until::Now);
        }
    }

    /// Leaves all streams: gives out the whole frames, and forgets the streams. A frame that could
    /// still come in time is not counted. Everything that comes after this is refused.
    pub fn leave(&mut self, now: Instant) {
        self.has_left = true;
        self.fresh.clear();
        while let Some((stream, mut known)) = self.streams.pop_first() {
            self.settler().settle(now, stream, &mut known, Until::Left);
            self.settled
                .push_back((stream, Settled::Ended(known.counts)));
        }
    }

    /// Settles all frames of a stream that is over, and forgets the stream.
    pub fn close(&mut self, now: Instant, stream: u32) {
        let Some(mut known) = self.streams.remove(&stream) else {
            return;
        };
        self.fresh.retain(|&fresh| fresh != stream);
        self.settler().settle(now, stream, &mut known, Until::Over);
        self.settled
            .push_back((stream, Settled::Ended(known.counts)));
    }

    /// Returns the next event: a whole frame, a loss, or the end of a stream. A frame's memory is
    /// used again after the next call.
    pub fn pop(&mut self) -> Option<FrameEvent<'_>> {
        loop {
            let (stream, settled) = self.pop_settled()?;
            if !matches!(settled, Settled::Turn(_)) {
                return settled.event(stream, |whole| self.lent.insert(whole));
            }
        }
    }

    /// Returns the time at which the last packet of a stream came, and one past the number of the
    /// newest frame heard.
    pub(super) fn heard(&self, stream: u32) -> Option<(Instant, Option<u64>)> {
        let known = self.streams.get(&stream)?;
        Some((known.heard, known.newest()))
    }

    /// Makes whole frames ready before their turn, for a caller that takes them by
    /// [`FrameReceiver::pop_settled`] and puts them in order itself.
    pub(super) fn take_ahead(&mut self, now: Instant) {
        let (settled, counters) = (&mut self.settled, &mut self.counters);
        for (&stream, known) in &mut self.streams {
            known.take_ahead(now, &mut |next| {
                count(counters, &next);
                settled.push_back((stream, next));
            });
        }
    }

    /// Returns a stream and its next outcome. A whole frame comes with its memory, which the caller
    /// returns by [`FrameReceiver::give_back`].
    pub(super) fn pop_settled(&mut self) -> Option<(u32, Settled)> {
        if let Some(lent) = self.lent.take() {
            self.memory.release(lent.room);
        }
        self.settled.pop_front()
    }

    /// Takes back the memory of a frame.
    pub(super) fn give_back(&mut self, room: Room) {
        self.memory.release(room);
    }

    fn settler(&mut self) -> Settler<'_> {
        Settler {
            memory: &mut self.memory,
            settled: &mut self.settled,
            counters: &mut self.counters,
            drops: self.host_drops,
        }
    }

    /// Returns a position for each stream. This end has no use for packets before that position, so
    /// missing ones need not be repaired.
    pub fn give_up_before(&self) -> impl Iterator<Item = (u32, u64)> {
        let streams = self.streams.iter();
        streams.map(|(&stream, known)| (stream, known.give_up_before()))
    }

    /// Returns what became of a stream's frames so far; `None` for an unknown stream.
    #[must_use]
    pub fn counts(&self, stream: u32) -> Option<&FrameCounts> {
        self.streams.get(&stream).map(|known| &known.counts)
    }

    /// Says when [`FrameReceiver::settle`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let due = self.streams.values().map(Stream::next_timeout);
        due.fold(None, base::earliest)
    }

    /// Returns the bytes of memory that frames take, including the memory kept for later frames.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.memory.used_bytes
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &FrameReceiverCounters {
        &self.counters
    }
}

/// The parts of a [`FrameReceiver`], besides the stream, that settling a stream's frames needs.
struct Settler<'a> {
    memory: &'a mut Memory,
    settled: &'a mut VecDeque<(u32, Settled)>,
    counters: &'a mut FrameReceiverCounters,
    drops: u64,
}

impl Settler<'_> {
    fn settle(&mut self, now: Instant, stream: u32, known: &mut Stream, until: Until) {
        let Self {
            memory,
            settled,
            counters,
            drops,
        } = self;
        let mut release = |room| memory.release(room);
        let mut out = |next| {
            count(counters, &next);
            settled.push_back((stream, next));
        };
        if until == Until::Left {
            known.leave(now, *drops, &mut release, &mut out);
            return;
        }
        let is_over = until == Until::Over;
        while known.settle_next(now, *drops, is_over, &mut release, &mut out) {}
        if is_over {
            known.finish(*drops, &mut out);
        }
    }
}

/// Why frames of a stream are settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// Time has passed: settle the frames that are due.
    Now,
    /// Nothing more comes from the stream: settle all its frames.
    Over,
    /// This end leaves: settle whole frames and those past their deadline.
    Left,
}

fn count(counters: &mut FrameReceiverCounters, settled: &Settled) {
    match settled {
        Settled::Whole(whole) => {
            let Whole {
                header,
                is_repaired,
                ..
            } = &**whole;
            counters.frames_whole += 1;
            counters.frames_repaired += u64::from(*is_repaired);
            counters.frame_bytes += data_len(header);
        }
        Settled::Lost { count, cause, .. } => {
            *match cause {
                FrameLoss::Network => &mut counters.frames_lost_network,
                FrameLoss::SocketBuffer => &mut counters.frames_lost_socket_buffer,
                FrameLoss::Late => &mut counters.frames_lost_late,
                FrameLoss::Overrun => &mut counters.frames_lost_overrun,
                FrameLoss::Refused => &mut counters.frames_lost_refused,
            } += count;
        }
        Settled::Turn(_) | Settled::Ended(_) => {}
    }
}

/// The memory of frames. The memory of settled frames is kept for later frames.
#[derive(Debug, Default)]
struct Memory {
    /// Memory of all rooms, in bytes: rooms of frames, and unused rooms in `kept`.
    used_bytes: usize,
    kept: Vec<Room>,
}

impl Memory {
    /// Returns room for a frame; `None` when the frame is too long or no memory is left.
    fn room(&mut self, header: &FrameHeader, config: &FrameReceiverConfig) -> Option<Room> {
        let len = header.len as usize;
        if len > config.frame_bytes_max {
            return None;
        }
        let fits = |room: &Room| room.bytes.capacity() >= len;
        let mut room = match self.kept.iter().position(fits) {
            Some(at) => self.kept.swap_remove(at),
            None => self.allocate(len, config.memory_bytes_max)?,
        };
        room.prepare(header);
        Some(room)
    }

    /// Returns true when there is memory for the frame. Does not check `frame_bytes_max`.
    fn has_room(&self, header: &FrameHeader, config: &FrameReceiverConfig) -> bool {
        let len = header.len as usize;
        let is_free = self.used_bytes.saturating_add(len) <= config.memory_bytes_max;
        is_free || {
            let kept = self.kept.iter().map(|room| room.bytes.capacity());
            let (kept_bytes, longest) = kept.fold((0, 0), |(sum, longest), bytes| {
                (sum + bytes, bytes.max(longest))
            });
            let in_use = self.used_bytes - kept_bytes;
            longest >= len || in_use.saturating_add(len) <= config.memory_bytes_max
        }
    }

    fn allocate(&mut self, len: usize, bytes_max: usize) -> Option<Room> {
        while self.used_bytes.saturating_add(len) > bytes_max {
            let unused = self.kept.pop()?;
            self.used_bytes -= unused.bytes.capacity();
        }
        let room = Room::new(len);
        self.used_bytes += room.bytes.capacity();
        Some(room)
    }

    fn release(&mut self, room: Room) {
        if self.kept.len() < FRAME_ROOMS_KEPT as usize {
            self.kept.push(room);
        } else {
            self.used_bytes -= room.bytes.capacity();
        }
    }
}
