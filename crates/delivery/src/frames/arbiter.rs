//! Makes one stream of each sender's frames when they come as two feeds, such as over two networks.
//! Financial exchanges call this A/B feed arbitration.
//!
//! ```text
//!   feed 0:  FrameReceiver --take--.               .--pop--> each number once, in order: whole, if
//!                                   >-- Arbiter --<          one feed had it in time, else lost
//!   feed 1:  FrameReceiver --take--'               '-feeds-> what each feed lost
//! ```
//!
//! Two sessions have the same frames when their identifiers are partners ([`Tsi::partner`]), and
//! when each comes from the address that the mark of the other one names. Before a mark is heard,
//! the identifiers are enough. If a later mark shows that a session comes from another address,
//! this session moves to a stream of its own. A session that it had kept out of the stream then
//! moves in.
//!
//! As long as a stream lives, it takes sessions of a feed only from the address of that feed's
//! first session. A session that was refused or has moved out does not count as the first.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
};

use base::Instant;
use wire::pgm::Tsi;

use super::{
    counts::{FeedCounts, FrameCounts},
    feed::Feed,
    merge::{Merge, Outlet},
    receiver::{FrameEvent, FrameReceiver},
    room::Room,
    stream::Settled,
    whole::Whole,
};
use crate::parameters::{FRAME_DEADLINE_MAX, FRAME_STREAMS_MAX};

base::counters! {
    /// What an arbiter of two feeds has done, over all senders.
    pub struct ArbiterCounters: "frame_arbiter" {
        frames_whole: Events, "frames given out whole, of either feed";
        frames_saved: Events, "of these, frames that the other feed lost";
        frames_lost: Events, "frames that neither feed had in time";
        waits_in_vain: Events, "waits for a frame of the other feed that ended without it";
        waits_cut_short: Events, "of these, waits that ended as too much was held meanwhile";
    }
}

/// A sender that was heard for the first time. Its frames are given out as one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundStream {
    /// The number of the stream.
    pub stream: u32,
    /// The identifier of the stream's first session.
    pub tsi: Tsi,
    /// The source address of the stream's first session.
    pub source: IpAddr,
}

/// Two sessions whose identifiers say that they are the feeds of one sender, while the addresses in
/// their marks say that they are not. They count as two senders. The cause is a relay or address
/// translation on the way of one session, or one session comes from a host that only claims to be
/// the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apart {
    /// The identifier of the session that came later.
    pub tsi: Tsi,
    /// For each feed, the address that its session comes from.
    pub sources: [IpAddr; 2],
}

/// An event to give out. If the event is a whole frame, the frame's memory goes back to the
/// receiver of `feed`.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) stream: u32,
    pub(super) feed: Feed,
    pub(super) settled: Settled,
}

/// The merging of two feeds into one stream of frames for each sender.
///
/// In: [`Arbiter::join`] for each session that is found, [`Arbiter::take`] for what a feed's
/// receiver has settled, [`Arbiter::part`] for each session that is over, [`Arbiter::settle`] when
/// [`Arbiter::next_timeout`] is due. Out: [`Arbiter::pop_found`], [`Arbiter::pop`],
/// [`Arbiter::pop_apart`].
///
/// **Cost**: no frame is copied; a frame that has to wait stays in the memory in which it arrived.
#[derive(Debug)]
pub struct Arbiter {
    held_bytes_max: usize,
    streams: BTreeMap<u32, Sender>,
    /// When each feed last had a whole frame.
    heard: [Option<Instant>; 2],
    /// For each feed: a map from each session's number to the number of its stream.
    members: [BTreeMap<u32, u32>; 2],
    found: VecDeque<FoundStream>,
    apart: Option<Apart>,
    /// True once one pair of sessions was noted for the owner ([`Apart`]). No more pairs are noted,
    /// because hosts may forge any number of sessions.
    is_apart_noted: bool,
    ready: VecDeque<Ready>,
    /// The frame that was given out last, and the feed that its memory belongs to.
    lent: Option<(Feed, Box<Whole>)>,
    /// Memory to be returned to each feed's receiver.
    free: [Vec<Room>; 2],
    /// For each feed, the frame counts of the streams that are already forgotten.
    before: [FeedCounts; 2],
    counters: ArbiterCounters,
}

/// A sender, heard by one feed or by both.
#[derive(Debug)]
struct Sender {
    /// The lesser of the sender's two identifiers; it has one for each feed.
    key: Tsi,
    /// The feed by which the sender was first heard.
    first: Feed,
    /// For each feed, the sender's session. A session that is over stays here: only a session from
    /// the same address may follow it.
    members: [Option<Member>; 2],
    merge: Merge,
    /// When the sender is forgotten; `None` before its stream has ended. The sender is kept for a
    /// while after that, because a feed that is first heard after the end may bring the same frames
    /// again.
    until: Option<Instant>,
    /// True when a session has moved from this sender to another stream. No session may join this
    /// sender any more.
    is_shut: bool,
}

/// One feed's session with a sender.
#[derive(Clone, Copy, Debug)]
struct Member {
    tsi: Tsi,
    source: IpAddr,
    /// The address of the other feed's session, as the mark of this session says; `None` before the
    /// mark is heard.
    partner: Option<IpAddr>,
    /// The number of the session; `None` once the session is over.
    session: Option<u32>,
}

impl Member {
    /// Returns true when each session's mark, if it was heard, names the other session's address.
    fn goes_with(&self, other: &Self) -> bool {
        let names = |one: &Self, other: &Self| one.partner.is_none_or(|it| it == other.source);
        names(self, other) && names(other, self)
    }

    /// Returns true when the session's mark says that there is no session on the other feed.
    fn is_alone(&self) -> bool {
        self.partner.is_some_and(|it| it.is_unspecified())
    }
}

impl Sender {
    /// Returns true when this session of `feed` belongs to the sender.
    fn admits(&self, feed: Feed, member: &Member) -> bool {
        let is_free = self.members[feed.index()]
            .is_none_or(|known| known.source == member.source && known.session.is_none());
        let other = self.members[feed.other().index()];
        let is_new = self.members[feed.index()].is_none();
        self.key == key_of(member.tsi)
            && is_free
            && other.is_none_or(|other| member.goes_with(&other))
            && (is_new || !self.merge.is_over())
            && !self.is_shut
    }

    fn is_present(&self) -> bool {
        let mut members = self.members.iter().flatten();
        members.any(|member| member.session.is_some())
    }
}

fn key_of(tsi: Tsi) -> Tsi {
    tsi.min(tsi.partner())
}

impl Arbiter {
    /// Makes an arbiter that holds at most `held_bytes_max` bytes of frames while it waits for a
    /// feed.
    #[must_use]
    pub fn new(held_bytes_max: usize) -> Self {
        Self {
            held_bytes_max,
            streams: BTreeMap::new(),
            heard: [None; 2],
            members: Default::default(),
            found: VecDeque::new(),
            apart: None,
            is_apart_noted: false,
            ready: VecDeque::new(),
            lent: None,
            free: Default::default(),
            before: Default::default(),
            counters: ArbiterCounters::default(),
        }
    }

    /// Notes that a session of a feed was found.
    pub fn join(&mut self, now: Instant, feed: Feed, session: u32, tsi: Tsi, source: IpAddr) {
        // A new session may get the number of a session that the feed's receiver has forgotten. If
        // so, the old session is over.
        self.part(now, feed, session);
        let member = Member {
            tsi,
            source,
            partner: None,
            session: Some(session),
        };
        self.admit(feed, session, member);
    }

    /// Adds a session to the sender that it belongs to, or begins a new sender with it.
    fn admit(&mut self, feed: Feed, session: u32, member: Member) {
        let mut streams = self.streams.iter();
        let known = streams.find(|(_, sender)| sender.admits(feed, &member));
        let stream = known.map(|(&stream, _)| stream);
        let stream = stream.unwrap_or_else(|| self.begin(feed, &member));
        self.seat(stream, feed, session, member);
    }

    /// Begins a stream for a sender that was not heard before. Returns the stream's number.
    fn begin(&mut self, feed: Feed, member: &Member) -> u32 {
        self.note_apart(feed, member);
        let mut numbers = 0..u32::MAX;
        let stream = numbers.find(|number| !self.streams.contains_key(number));
        let stream = stream.expect("fewer streams than numbers");
        self.found.push_back(FoundStream {
            stream,
            tsi: member.tsi,
            source: member.source,
        });
        let sender = Sender {
            key: key_of(member.tsi),
            first: feed,
            members: [None; 2],
            merge: Merge::default(),
            until: None,
            is_shut: false,
        };
        self.streams.insert(stream, sender);
        stream
    }

    fn seat(&mut self, stream: u32, feed: Feed, session: u32, member: Member) {
        if let Some(sender) = self.streams.get_mut(&stream) {
            sender.members[feed.index()] = Some(member);
            sender.merge.join(feed);
            self.members[feed.index()].insert(session, stream);
        }
    }

    /// Notes a new session that, by its identifier, is the other feed of a known sender, while the
    /// addresses in the marks say that it is not.
    fn note_apart(&mut self, feed: Feed, member: &Member) {
        let senders = self.streams.values();
        let mut others = senders.filter_map(|sender| sender.members[feed.other().index()]);
        let other = others.find(|other| {
            other.session.is_some()
                && other.tsi == member.tsi.partner()
                && !other.goes_with(member)
                && !(other.is_alone() || member.is_alone())
        });
        let Some(other) = other else { return };
        if !std::mem::replace(&mut self.is_apart_noted, true) {
            self.apart = Some(Apart {
                tsi: member.tsi,
                sources: match feed {
                    Feed::First => [member.source, other.source],
                    Feed::Second => [other.source, member.source],
                },
            });
        }
    }

    /// Notes the address that a session's mark gives for `partner`, the sender's session on the
    /// other feed; the address is unspecified when there is none. If the marks show that the two
    /// sessions of a stream do not belong together, the session on the feed that was heard later
    /// leaves the stream. If the partner is in another stream, the two streams become one. Then
    /// this returns the number of the stream that is over.
    pub fn bind(&mut self, now: Instant, feed: Feed, session: u32, partner: IpAddr) -> Option<u32> {
        let stream = self.members[feed.index()].get(&session)?;
        let sender = self.streams.get_mut(stream)?;
        if let Some(member) = &mut sender.members[feed.index()]
            && member.partner.replace(partner) == Some(partner)
        {
            return None;
        }
        if let [Some(one), Some(other)] = &sender.members
            && !one.goes_with(other)
        {
            let later = sender.first.other();
            match sender.members[later.index()].and_then(|it| it.session) {
                Some(session) => self.move_out(now, later, session),
                None => sender.members[later.index()] = None,
            }
        }
        self.bring_together(now, feed, session)
    }

    /// Merges the stream of a session with the stream of its partner, if another host's session or
    /// an earlier mark has kept them apart. Returns the number of the stream that is over.
    fn bring_together(&mut self, now: Instant, feed: Feed, session: u32) -> Option<u32> {
        let &stream = self.members[feed.index()].get(&session)?;
        let sender = self.streams.get(&stream)?;
        let (own, other) = (sender.members[feed.index()]?, feed.other());
        let mut senders = self.streams.iter();
        let (number, partner) = senders.find_map(|(&number, it)| {
            let member = it.members[other.index()]?;
            let goes_on = !sender.merge.is_over() && !it.merge.is_over();
            let fits = goes_on && it.admits(feed, &own) && sender.admits(other, &member);
            Some((number, member.session?)).filter(|_| fits)
        })?;
        let (into, gone, feed, session) = if number < stream {
            (number, stream, feed, session)
        } else {
            (stream, number, other, partner)
        };
        self.streams.get_mut(&gone)?.is_shut = true;
        let member = self.expel(now, feed, session)?;
        self.seat(into, feed, session, member);
        Some(gone)
    }

    /// Moves a session out of its sender: to another sender, or to one of its own.
    fn move_out(&mut self, now: Instant, feed: Feed, session: u32) {
        if let Some(member) = self.expel(now, feed, session) {
            self.admit(feed, session, member);
        }
    }

    /// Notes that this end refuses a session. After that, a session of the same feed from another
    /// address may take the session's place.
    pub fn refuse(&mut self, now: Instant, feed: Feed, session: u32) {
        self.expel(now, feed, session);
    }

    fn expel(&mut self, now: Instant, feed: Feed, session: u32) -> Option<Member> {
        let stream = self.members[feed.index()].get(&session)?;
        let member = self.streams.get_mut(stream)?.members[feed.index()].take();
        self.part(now, feed, session);
        member
    }

    /// Takes everything that a feed's receiver has settled or has whole. Gives memory back to that
    /// receiver.
    pub fn take(&mut self, now: Instant, feed: Feed, from: &mut FrameReceiver) {
        self.return_memory(feed, from);
        for (&session, stream) in &self.members[feed.index()] {
            let sender = self.streams.get_mut(stream);
            if let (Some(sender), Some((at, newest))) = (sender, from.heard(session)) {
                sender.merge.attend(feed, at, newest);
            }
        }
        from.take_ahead(now);
        while let Some((session, settled)) = from.pop_settled() {
            self.hear(now, feed, session, settled);
        }
        self.keep_bounds(now);
        self.return_memory(feed, from);
    }

    fn hear(&mut self, now: Instant, feed: Feed, session: u32, settled: Settled) {
        let Some(&(mut stream)) = self.members[feed.index()].get(&session) else {
            if let Settled::Whole(whole) = settled {
                self.free[feed.index()].push(whole.room);
            }
            return;
        };
        if let Settled::Whole(whole) = &settled {
            self.heard[feed.index()] = Some(now);
            let sender = self.streams.get_mut(&stream);
            let beyond = sender.filter(|it| it.merge.is_beyond(&whole.header));
            if let Some(sender) = beyond {
                sender.is_shut = true;
                self.move_out(now, feed, session);
                let known = self.members[feed.index()].get(&session);
                stream = known.copied().unwrap_or(stream);
            }
        }
        self.follow(stream, |merge, out| {
            merge.hear(now, feed, settled, out);
            merge.advance(now, out);
        });
    }

    fn return_memory(&mut self, feed: Feed, to: &mut FrameReceiver) {
        for room in self.free[feed.index()].drain(..) {
            to.give_back(room);
        }
    }

    /// Notes that a session of a feed is over. The caller must already have taken what the feed's
    /// receiver settled.
    pub fn part(&mut self, now: Instant, feed: Feed, session: u32) {
        let Some(stream) = self.members[feed.index()].remove(&session) else {
            return;
        };
        self.follow(stream, |merge, out| {
            merge.part(now, feed, out);
            merge.advance(now, out);
        });
        let Some(sender) = self.streams.get_mut(&stream) else {
            return;
        };
        if let Some(member) = &mut sender.members[feed.index()] {
            member.session = None;
        }
        if sender.merge.is_over() && !sender.is_shut {
            sender.until = Some(now + FRAME_DEADLINE_MAX);
        } else if !sender.is_present() {
            self.forget(stream);
        }
    }

    fn forget(&mut self, stream: u32) {
        if let Some(sender) = self.streams.remove(&stream) {
            for feed in Feed::ALL {
                self.before[feed.index()] += sender.merge.feed_counts(feed);
            }
        }
    }

    /// Begins to leave all streams. After this, the caller makes both feeds' receivers leave, takes
    /// what they have settled ([`Arbiter::take`]), and calls [`Arbiter::finish`].
    pub fn leave(&mut self) {
        for sender in self.streams.values_mut() {
            sender.merge.leave();
        }
    }

    /// Gives out everything that was taken, and forgets all streams.
    pub fn finish(&mut self, now: Instant) {
        for stream in self.streams.keys().copied().collect::<Vec<_>>() {
            self.follow(stream, |merge, out| merge.conclude(now, out));
            self.forget(stream);
        }
        self.members = Default::default();
    }

    /// For each stream whose wait for the other feed is due to end by `now`: ends that wait.
    pub fn settle(&mut self, now: Instant) {
        self.forget_ended(now);
        let is_due = |sender: &Sender| sender.merge.next_timeout().is_some_and(|due| due <= now);
        let due = self.streams.iter().filter(|(_, sender)| is_due(sender));
        let due: Vec<u32> = due.map(|(&stream, _)| stream).collect();
        for stream in due {
            self.follow(stream, |merge, out| merge.advance(now, out));
        }
    }

    /// Forgets senders that have no session any more: all whose time `until` has come, and the
    /// oldest while more than [`FRAME_STREAMS_MAX`] are left.
    fn forget_ended(&mut self, now: Instant) {
        loop {
            let ended = self
                .streams
                .iter()
                .filter(|(_, sender)| !sender.is_present());
            let count = ended.clone().count();
            let oldest = ended.min_by_key(|(_, sender)| sender.until);
            let Some((&stream, sender)) = oldest else {
                return;
            };
            let is_due = sender.until.is_none_or(|until| now >= until);
            if !is_due && count <= FRAME_STREAMS_MAX as usize {
                return;
            }
            self.forget(stream);
        }
    }

    /// While all streams together hold too many bytes, gives up waiting for the other feed, first
    /// in the stream that holds most.
    fn keep_bounds(&mut self, now: Instant) {
        loop {
            let held = self.streams.iter();
            let held = held.map(|(&stream, sender)| (sender.merge.held_bytes(), stream));
            let (sum, most) = held.fold((0, (0, 0)), |(sum, most), it| (sum + it.0, it.max(most)));
            let is_too_much = sum > self.held_bytes_max;
            if !is_too_much || self.follow(most.1, |merge, out| merge.hurry(now, out)) != Some(true)
            {
                return;
            }
        }
    }

    fn follow<T>(
        &mut self,
        stream: u32,
        change: impl FnOnce(&mut Merge, &mut Outlet<'_>) -> T,
    ) -> Option<T> {
        let sender = self.streams.get_mut(&stream)?;
        let mut out = Outlet {
            stream,
            ready: &mut self.ready,
            free: &mut self.free,
            counters: &mut self.counters,
        };
        Some(change(&mut sender.merge, &mut out))
    }

    /// Returns the next sender that was found: it was heard for the first time.
    pub fn pop_found(&mut self) -> Option<FoundStream> {
        self.found.pop_front()
    }

    /// Returns the first two sessions that were found not to belong together; returns them only
    /// once.
    pub const fn pop_apart(&mut self) -> Option<Apart> {
        self.apart.take()
    }

    /// Returns the next event; see [`FrameReceiver::pop`].
    pub fn pop(&mut self) -> Option<FrameEvent<'_>> {
        if let Some((feed, lent)) = self.lent.take() {
            self.free[feed.index()].push(lent.room);
        }
        loop {
            let Ready {
                stream,
                feed,
                settled,
            } = self.ready.pop_front()?;
            if !matches!(settled, Settled::Turn(_)) {
                let lent = &mut self.lent;
                return settled.event(stream, |whole| &lent.insert((feed, whole)).1);
            }
        }
    }

    /// Says when [`Arbiter::settle`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let due = self.streams.values().map(|it| it.merge.next_timeout());
        due.fold(None, base::earliest)
    }

    /// Returns the stream that a session of a feed belongs to.
    #[must_use]
    pub fn stream_of(&self, feed: Feed, session: u32) -> Option<u32> {
        self.members[feed.index()].get(&session).copied()
    }

    /// Returns the lowest session number of a feed; `None` when the feed has no session.
    #[must_use]
    pub fn session_of(&self, feed: Feed) -> Option<u32> {
        self.members[feed.index()].keys().next().copied()
    }

    /// Returns true when all frames of a stream were given out: its end was heard, or both feeds
    /// are gone. Returns true for an unknown stream, too.
    #[must_use]
    pub fn is_over(&self, stream: u32) -> bool {
        let sender = self.streams.get(&stream);
        sender.is_none_or(|sender| sender.merge.is_over())
    }

    /// Returns true until a stream is forgotten. A stream is forgotten when its sessions are over,
    /// or some time after that if its sender has ended it.
    #[must_use]
    pub fn is_known(&self, stream: u32) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Returns what became of a stream's frames so far; `None` for an unknown stream.
    #[must_use]
    pub fn counts(&self, stream: u32) -> Option<&FrameCounts> {
        self.streams.get(&stream).map(|it| it.merge.counts())
    }

    /// Returns for each feed what became of its frames, over all senders.
    #[must_use]
    pub fn feeds(&self) -> [FeedCounts; 2] {
        let mut feeds = self.before;
        for (sender, feed) in self
            .streams
            .values()
            .flat_map(|sender| Feed::ALL.map(|feed| (sender, feed)))
        {
            feeds[feed.index()] += sender.merge.feed_counts(feed);
        }
        feeds
    }

    /// Returns when a feed last had a frame whole, in time or not; `None` when it never had one.
    #[must_use]
    pub const fn heard(&self, feed: Feed) -> Option<Instant> {
        self.heard[feed.index()]
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &ArbiterCounters {
        &self.counters
    }
}

#[cfg(test)]
mod tests;
