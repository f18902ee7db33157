//! The frames of one sender that sends them twice: one stream out of its two feeds.
//!
//! ```text
//!   feed 0:  ... 7 whole   8 lost    9 whole          next = 8: feed 0 has lost it, feed 1 may
//!   feed 1:  ... 7 whole                              still bring it, and 9 is held meanwhile
//! ```
//!
//! A feed brings its frames as soon as they are whole, in any order. They are held by their
//! numbers, so each number is given out once, whatever a feed says. A feed tells its losses in the
//! order of the numbers. In this order a feed *settles* each number: its frame is whole or lost.
//!
//! When no feed has the next number whole, the stream waits while a feed may still bring it. Such a
//! feed has a session, has not settled the number, and has not said that the stream ends before it.
//! It is at most `FRAMES_OPEN_MAX` numbers behind. It is not silent: its last packet came no longer
//! ago than the frames' deadline or two frame intervals, whichever is longer. The wait ends at the
//! latest when a held frame must be given out.
//!
//! Invariants, for whatever the feeds tell:
//! - numbers leave in order, each at most once, until [`Settled::Ended`] begins them anew;
//! - a frame leaves before it is late, or not at all;
//! - what one feed says does not end the stream while the other feed goes on.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    time::Duration,
};

use base::Instant;
use wire::object::FrameHeader;

use super::{
    arbiter::{ArbiterCounters, Ready},
    counts::{FeedCounts, FrameCounts, FrameLoss},
    entry::deadline_of,
    feed::Feed,
    room::Room,
    stream::Settled,
    whole::{Whole, data_len},
};
use crate::parameters::{FRAME_DEADLINE_MAX, FRAME_LOSSES_KEPT, FRAMES_OPEN_MAX};

/// One stream of two feeds.
#[derive(Debug)]
pub(super) struct Merge {
    sides: [Side; 2],
    /// Number of the next frame to give out; `None` until a feed has settled a frame as whole or
    /// lost.
    next: Option<u64>,
    /// Number of the frame at which the stream begins; earlier frames are not counted.
    start: u64,
    /// Whole frames that are not given out yet, by number, from `next` on.
    held: BTreeMap<u64, Held>,
    /// Runs of frames that were given out as lost, but that a feed may still settle as whole or
    /// lost. For each run: the number of its first frame, and one past the number of its last
    /// frame.
    lost: VecDeque<(u64, u64)>,
    /// Number of the frame that the stream waits for, or last waited for.
    awaited: Option<u64>,
    /// Number and timestamp of the last frame that was given out whole.
    last: Option<(u64, u64)>,
    /// True when the sender's last frame was given out.
    is_over: bool,
    is_leaving: bool,
    /// How long a frame is of use, as stated in the last whole frame; before the first whole frame,
    /// `FRAME_DEADLINE_MAX`.
    deadline: Duration,
    /// A feed that is silent for this long is no longer waited for. This is the longer of
    /// `deadline` and two frame intervals; before the first whole frame, it is
    /// `FRAME_DEADLINE_MAX`.
    pause: Duration,
    /// When [`Merge::advance`] is due.
    due: Option<Instant>,
    counts: FrameCounts,
}

/// One feed of the stream.
#[derive(Debug, Default)]
struct Side {
    is_present: bool,
    /// When a packet of the feed last came, or the feed last told something.
    heard: Instant,
    /// One past the number of the last frame that the feed has settled as whole or lost; `None`
    /// before the first.
    at: Option<u64>,
    /// One past the number of the newest frame of which this feed has brought a packet.
    newest: Option<u64>,
    /// Frames below this number were counted before the feed last began its numbers anew.
    floor: u64,
    /// Runs of frames that the feed has lost, in order, from `next` on.
    losses: VecDeque<Loss>,
    /// One past the number of the last frame, as the feed says, and the time until which the other
    /// feed may show that there are more frames.
    end: Option<(u64, Instant)>,
    counts: FeedCounts,
}

/// A whole frame that waits for its turn.
#[derive(Debug)]
struct Held {
    /// The feed that was the first to have the whole frame.
    feed: Feed,
    whole: Box<Whole>,
    /// True when the other feed has the frame whole, too.
    is_double: bool,
}

/// Frames that a feed has lost.
#[derive(Clone, Copy, Debug)]
struct Loss {
    first: u64,
    end: u64,
    cause: FrameLoss,
    /// Until when the stream, while it holds no frame, waits for the other feed to bring these
    /// frames.
    until: Instant,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Give,
    Lose(u64, FrameLoss),
    /// Goes on at this number. The frames before it could still have come when this receiver left,
    /// so they do not count as lost.
    PassOver(u64),
    Wait(Instant),
    Nothing,
}

/// Where a stream puts what it gives out (`ready`), and the memory of frames that nobody needs any
/// more (`free`).
pub(super) struct Outlet<'a> {
    pub(super) stream: u32,
    pub(super) ready: &'a mut VecDeque<Ready>,
    pub(super) free: &'a mut [Vec<Room>; 2],
    pub(super) counters: &'a mut ArbiterCounters,
}

impl Outlet<'_> {
    fn put(&mut self, feed: Feed, settled: Settled) {
        self.ready.push_back(Ready {
            stream: self.stream,
            feed,
            settled,
        });
    }

    fn release(&mut self, feed: Feed, whole: Whole) {
        self.free[feed.index()].push(whole.room);
    }
}

impl Default for Merge {
    fn default() -> Self {
        Self {
            sides: Default::default(),
            next: None,
            start: 0,
            held: BTreeMap::new(),
            lost: VecDeque::new(),
            awaited: None,
            last: None,
            is_over: false,
            is_leaving: false,
            deadline: FRAME_DEADLINE_MAX,
            pause: FRAME_DEADLINE_MAX,
            due: None,
            counts: FrameCounts::default(),
        }
    }
}

impl Merge {
    /// Notes that a feed has come, or has come back.
    pub(super) fn join(&mut self, feed: Feed) {
        let side = &mut self.sides[feed.index()];
        side.is_present = true;
        side.begin_anew();
    }

    /// Notes that a packet of a feed came at `at`. `newest` is one past the number of the newest
    /// frame of which that feed has brought a packet.
    pub(super) fn attend(&mut self, feed: Feed, at: Instant, newest: Option<u64>) {
        let side = &mut self.sides[feed.index()];
        side.heard = at.max(side.heard);
        side.newest = newest;
    }

    /// Handles what a feed tells. The caller must then call [`Merge::advance`].
    pub(super) fn hear(
        &mut self,
        now: Instant,
        feed: Feed,
        settled: Settled,
        out: &mut Outlet<'_>,
    ) {
        let heard = &mut self.sides[feed.index()].heard;
        *heard = now.max(*heard);
        match settled {
            Settled::Whole(whole) => self.hear_whole(now, feed, whole, out),
            Settled::Turn(id) => self.hear_turn(feed, id),
            Settled::Lost {
                first,
                count,
                cause,
            } => {
                let lost = Loss {
                    first,
                    end: first + count,
                    cause,
                    until: now + self.deadline,
                };
                self.hear_loss(feed, lost, out);
            }
            Settled::Ended(counts) => self.hear_end(now, feed, &counts, out),
        }
    }

    /// Notes that a feed has come to the turn of a frame that it brought earlier. A number that is
    /// neither held nor given out is ignored: the feed may have brought that frame to another
    /// stream, or before the numbers began anew.
    fn hear_turn(&mut self, feed: Feed, id: u64) {
        let is_given = self
            .next
            .is_some_and(|next| (self.start..next).contains(&id));
        if is_given || self.held.contains_key(&id) {
            self.reach(feed, id, id + 1);
        }
    }

    fn hear_whole(&mut self, now: Instant, feed: Feed, whole: Box<Whole>, out: &mut Outlet<'_>) {
        let (id, is_ahead) = (whole.header.id, whole.is_ahead);
        self.deadline = deadline_of(&whole.header);
        let interval = Duration::from_micros(whole.header.interval_us.into());
        self.pause = self.deadline.max(interval * 2);
        if self.is_anew(feed, id) {
            self.conclude(now, out);
        }
        if !is_ahead {
            self.reach(feed, id, id + 1);
        }
        let is_known = self.next.is_some_and(|next| id < next);
        if is_known {
            let was_lost = self.lost_among(id, id + 1) > 0;
            let side = &mut self.sides[feed.index()];
            if id >= self.start.max(side.floor) {
                side.counts.late += u64::from(was_lost);
                side.counts.second += u64::from(!was_lost);
            }
        } else if !self.is_over {
            match self.held.entry(id) {
                Entry::Vacant(place) => {
                    place.insert(Held {
                        feed,
                        whole,
                        is_double: false,
                    });
                    return;
                }
                Entry::Occupied(mut held) => {
                    let held = held.get_mut();
                    held.is_double |= held.feed != feed;
                }
            }
        }
        out.release(feed, *whole);
    }

    /// Returns true when a frame shows that its sender has begun its numbers anew. This is so when
    /// the frame is more than `FRAMES_OPEN_MAX` numbers behind `self.next`, and the other feed is
    /// gone or has settled no frame near `self.next` since its own numbers last began.
    fn is_anew(&self, feed: Feed, id: u64) -> bool {
        let other = &self.sides[feed.other().index()];
        self.next.filter(|_| !self.is_over).is_some_and(|next| {
            let bears_out = other
                .at
                .is_some_and(|at| at > other.floor && !is_far(at, next));
            is_far(id + 1, next) && !(other.is_present && bears_out)
        })
    }

    fn hear_loss(&mut self, feed: Feed, mut loss: Loss, out: &mut Outlet<'_>) {
        self.reach(feed, loss.first, loss.end);
        let next = self.next.unwrap_or(loss.first);
        let side = &self.sides[feed.index()];
        let (past, past_end) = (
            loss.first.max(self.start).max(side.floor),
            loss.end.min(next),
        );
        let lost = self.lost_among(past, past_end);
        let side = &mut self.sides[feed.index()];
        let saved = past_end.saturating_sub(past) - lost;
        side.counts.lost += lost;
        side.counts.saved += saved;
        out.counters.frames_saved += saved;
        let told = side.losses.back().map_or(next, |last| last.end.max(next));
        loss.first = loss.first.max(told);
        let has_room = side.losses.len() < FRAME_LOSSES_KEPT as usize;
        if loss.first < loss.end && has_room && !self.is_over {
            side.losses.push_back(loss);
        }
    }

    /// Notes that a feed has settled its frames from `first` up to `end` (exclusive) as whole or
    /// lost.
    fn reach(&mut self, feed: Feed, first: u64, end: u64) {
        // Runs that both feeds have settled are counted for both already, so they need not be kept.
        let passed = self.sides.iter().map(|it| it.at.unwrap_or(0)).min();
        while self.lost.pop_front_if(|it| Some(it.1) <= passed).is_some() {}
        self.sides[feed.index()].at = Some(end);
        if self.next.is_none() {
            let held = self.held.keys().next();
            self.start = held.map_or(first, |&held| held.min(first));
            self.next = Some(self.start);
        }
    }

    /// Handles a feed's message that its numbers end. If the other feed is present, or this
    /// receiver is leaving, the stream goes on. Otherwise the stream gives out what it has. Then
    /// the stream is over, or its numbers begin anew.
    fn hear_end(&mut self, now: Instant, feed: Feed, counts: &FrameCounts, out: &mut Outlet<'_>) {
        let side = &mut self.sides[feed.index()];
        side.begin_anew();
        if let (true, Some(first)) = (counts.is_end_known, counts.first_id) {
            side.end = Some((first + counts.frames, now + self.pause));
        }
        if !self.sides[feed.other().index()].is_present && !self.is_leaving {
            self.follow(now, false, out);
            if !self.is_over {
                self.conclude(now, out);
            }
        }
    }

    /// Notes that a feed has gone. The caller must then call [`Merge::advance`].
    pub(super) fn part(&mut self, now: Instant, feed: Feed, out: &mut Outlet<'_>) {
        let side = &mut self.sides[feed.index()];
        side.is_present = false;
        if !self.sides[feed.other().index()].is_present && !self.is_over {
            self.conclude(now, out);
        }
    }

    /// Notes that this receiver leaves. From then on, frames of which no feed tells anything do not
    /// count as lost. When both feeds have told what they have, the caller must call
    /// [`Merge::conclude`].
    pub(super) const fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Gives out everything that the feeds have told, then the counts. Later frames are numbered
    /// anew.
    pub(super) fn conclude(&mut self, now: Instant, out: &mut Outlet<'_>) {
        if let (None, Some(&first)) = (self.next, self.held.keys().next()) {
            (self.start, self.next) = (first, Some(first));
        }
        self.follow(now, false, out);
        if let Some(next) = self.next.take()
            && !self.is_over
        {
            self.counts.is_end_known = self.sides.iter().any(|side| side.ends_at(next).is_some());
            self.tell_end(out);
        }
        self.lost.clear();
        (self.due, self.awaited, self.last) = (None, None, None);
        self.counts = FrameCounts::default();
        for side in &mut self.sides {
            *side = Side {
                is_present: side.is_present,
                heard: side.heard,
                counts: side.counts,
                ..Side::default()
            };
        }
    }

    fn tell_end(&mut self, out: &mut Outlet<'_>) {
        out.put(Feed::First, Settled::Ended(self.counts));
    }

    /// Gives out what can be given out at `now`.
    pub(super) fn advance(&mut self, now: Instant, out: &mut Outlet<'_>) {
        self.follow(now, true, out);
    }

    /// Takes every step that is possible now. If `waits` is false, no feed is waited for.
    fn follow(&mut self, now: Instant, waits: bool, out: &mut Outlet<'_>) {
        self.due = None;
        while let Some(next) = self.next.filter(|_| !self.is_over) {
            match self.step(now, next, waits) {
                Step::Give => self.give(next, out),
                Step::Lose(end, cause) => self.lose((next, end), cause, out),
                Step::PassOver(end) => self.next = Some(end),
                Step::Wait(until) => {
                    (self.due, self.awaited) = (Some(until), Some(next));
                    return;
                }
                Step::Nothing => return self.look_for_end(now, next, out),
            }
        }
    }

    /// Ends the stream, if a feed has said that its last frame is the one before `next`, and the
    /// other feed does not show more frames in time.
    fn look_for_end(&mut self, now: Instant, next: u64, out: &mut Outlet<'_>) {
        let said = [&self.sides[0], &self.sides[1]].map(|side| side.ends_at(next));
        let Some(until) = said.into_iter().flatten().max() else {
            return;
        };
        let mut sides = self.sides.iter().zip(said);
        let is_open = sides.any(|(side, said)| said.is_none() && side.is_present);
        if is_open && now < until {
            self.due = Some(until);
        } else if self.sides.iter().any(|side| side.is_present) {
            self.counts.is_end_known = true;
            self.is_over = true;
            self.tell_end(out);
        }
    }

    /// Ends the present wait, because too much is held. Returns false when there is no wait to end.
    pub(super) fn hurry(&mut self, now: Instant, out: &mut Outlet<'_>) -> bool {
        let Some(next) = self.awaited.filter(|&awaited| self.next == Some(awaited)) else {
            return false;
        };
        let Step::Lose(end, cause) = self.step(now, next, false) else {
            return false;
        };
        out.counters.waits_cut_short += 1;
        self.lose((next, end), cause, out);
        self.advance(now, out);
        true
    }

    fn step(&self, now: Instant, next: u64, waits: bool) -> Step {
        if let Some(held) = self.held.get(&next) {
            return if now < held.whole.due {
                Step::Give
            } else {
                Step::Lose(next + 1, FrameLoss::Late)
            };
        }
        let sides = [&self.sides[0], &self.sides[1]];
        let losses = sides.map(|side| side.losses.front());
        let ends = losses.map(|loss| {
            let loss = loss?;
            Some(if loss.first == next {
                loss.end
            } else {
                loss.first
            })
        });
        let stands = sides.map(|side| side.at.filter(|&at| at > next));
        let held = self.held.keys().next().copied();
        let known = ends.into_iter().chain(stands).chain([held]).flatten();
        let Some(end) = known.min() else {
            return Step::Nothing;
        };
        let told = losses.map(|loss| loss.filter(|loss| loss.first == next));
        let hopes = sides.iter().filter(|side| waits && side.may_bring(next));
        if let Some(silent) = hopes.map(|side| side.heard + self.pause).max() {
            let until = told.into_iter().flatten().map(|loss| loss.until).min();
            let until = self.patience().or(until);
            let until = until.map_or(silent, |until| until.min(silent));
            if now < until {
                return Step::Wait(until);
            }
        }
        let cause = match told {
            [Some(one), Some(other)] if one.cause == FrameLoss::Overrun => other.cause,
            [Some(one), _] | [None, Some(one)] => one.cause,
            [None, None] if self.is_leaving => return Step::PassOver(end),
            [None, None] => FrameLoss::Network,
        };
        Step::Lose(end, cause)
    }

    /// Returns the time at which the first held frame must be handed out; `None` when none is held.
    fn patience(&self) -> Option<Instant> {
        let held = self.held.values();
        held.map(|held| held.whole.give_by()).min()
    }

    fn give(&mut self, next: u64, out: &mut Outlet<'_>) {
        let Some(Held {
            feed,
            whole,
            is_double,
        }) = self.held.remove(&next)
        else {
            return;
        };
        self.sides[feed.index()].counts.first += 1;
        self.sides[feed.other().index()].counts.second += u64::from(is_double);
        self.last = Some((next, whole.header.timestamp_ns));
        self.account(next + 1, Some(feed), out);
        let counts = &mut self.counts;
        counts.first_id.get_or_insert(next);
        counts.frames += 1;
        counts.whole += 1;
        counts.repaired += u64::from(whole.is_repaired);
        counts.bytes += data_len(&whole.header);
        self.next = Some(next + 1);
        out.counters.frames_whole += 1;
        out.put(feed, Settled::Whole(whole));
    }

    fn lose(&mut self, (first, end): (u64, u64), cause: FrameLoss, out: &mut Outlet<'_>) {
        let count = end - first;
        out.counters.waits_in_vain += u64::from(self.awaited.take() == Some(first));
        if let Some(held) = self.held.remove(&first) {
            let feed = held.feed;
            self.sides[feed.index()].counts.late += 1;
            self.sides[feed.other().index()].counts.late += u64::from(held.is_double);
            out.release(feed, *held.whole);
        }
        self.account(end, None, out);
        match self.lost.back_mut().filter(|last| last.1 == first) {
            Some(last) => last.1 = end,
            None => self.lost.push_back((first, end)),
        }
        if self.lost.len() > FRAME_LOSSES_KEPT as usize {
            self.lost.pop_front();
        }
        self.counts.first_id.get_or_insert(first);
        self.counts.frames += count;
        self.counts.lost[cause as usize] += count;
        self.next = Some(end);
        out.counters.frames_lost += count;
        let lost = Settled::Lost {
            first,
            count,
            cause,
        };
        out.put(Feed::First, lost);
    }

    /// Counts each feed's losses before `end`. The numbers before `end` are given out now: as whole
    /// by the feed `giver`, or as lost if `giver` is `None`.
    fn account(&mut self, end: u64, giver: Option<Feed>, out: &mut Outlet<'_>) {
        for feed in Feed::ALL {
            let Side { losses, counts, .. } = &mut self.sides[feed.index()];
            while let Some(loss) = losses.front_mut().filter(|loss| loss.first < end) {
                let to = loss.end.min(end);
                let count = to - loss.first;
                match giver {
                    None => counts.lost += count,
                    Some(giver) if giver != feed => {
                        counts.saved += count;
                        out.counters.frames_saved += count;
                    }
                    // The feed told this loss before its numbers began anew. Now it has brought the
                    // frame.
                    Some(_) => {}
                }
                loss.first = to;
                if loss.first == loss.end {
                    losses.pop_front();
                }
            }
        }
    }

    /// Returns how many of the numbers from `first` up to `end` were given out as lost.
    fn lost_among(&self, first: u64, end: u64) -> u64 {
        let at = self.lost.partition_point(|&(_, to)| to <= first);
        let shared = self.lost.range(at..).take_while(|it| it.0 < end);
        let shared = shared.map(|&(from, to)| to.min(end).saturating_sub(from.max(first)));
        shared.sum()
    }

    /// Returns how many bytes of memory the held frames take.
    pub(super) fn held_bytes(&self) -> usize {
        let rooms = self.held.values();
        let bytes = rooms.map(|held| held.whole.room.bytes.capacity() + size_of::<Whole>());
        bytes.sum()
    }

    /// Says when [`Merge::advance`] is due.
    pub(super) const fn next_timeout(&self) -> Option<Instant> {
        self.due
    }

    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns true when this stream is over, and a frame shows that the sender goes on. Either the
    /// frame's number lies beyond the end, or a number that was reached already comes with a later
    /// timestamp: then the sender was started anew.
    pub(super) fn is_beyond(&self, header: &FrameHeader) -> bool {
        let is_new = self.next.is_none_or(|next| header.id >= next);
        let is_later = |last: (u64, u64)| header.id <= last.0 && header.timestamp_ns > last.1;
        self.is_over && (is_new || self.last.is_some_and(is_later))
    }

    pub(super) const fn counts(&self) -> &FrameCounts {
        &self.counts
    }

    pub(super) fn feed_counts(&self, feed: Feed) -> FeedCounts {
        self.sides[feed.index()].counts
    }
}

impl Side {
    /// Notes that the feed may tell other numbers from now on, or the same ones again.
    fn begin_anew(&mut self) {
        self.floor = self.floor.max(self.at.unwrap_or(0));
        (self.newest, self.end) = (None, None);
    }

    /// Returns true when the feed may still have the frame `next` whole. A feed that was cut off
    /// has settled nothing for long, but packets that come from it again show that it is back.
    fn may_bring(&self, next: u64) -> bool {
        let is_open = self.at.is_none_or(|at| at <= next);
        let is_near = self.at.max(self.newest).is_none_or(|at| !is_far(at, next));
        self.is_present && self.ends_at(next).is_none() && is_open && is_near
    }

    /// If the feed says that the last frame is the one before `next`, returns until when the other
    /// feed may contradict that.
    fn ends_at(&self, next: u64) -> Option<Instant> {
        self.end.filter(|end| end.0 == next).map(|end| end.1)
    }
}

/// Returns true when a feed that stands at `at` is more than `FRAMES_OPEN_MAX` numbers behind
/// `next`.
const fn is_far(at: u64, next: u64) -> bool {
    at.saturating_add(FRAMES_OPEN_MAX as u64) < next
}
