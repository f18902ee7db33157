//! Properties of an arbiter that hold whatever two feeds bring and tell: compared with a naive
//! arbiter, and with real receivers.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::Rng;
use proptest::prelude::*;

use super::*;
use crate::frames::{FrameReceiverConfig, FrameSender, FrameSenderConfig};

/// A naive arbiter: it remembers everything.
#[derive(Default)]
struct Model {
    /// By feed: what it has told of each number, and when.
    told: [Vec<(u64, bool, u64)>; 2],
    given: Vec<(u64, bool)>,
}

impl Model {
    fn next(&self) -> u64 {
        self.given.len() as u64
    }

    fn has_whole(&self, feed: Feed, id: u64) -> bool {
        let told = &self.told[feed.index()];
        told.iter()
            .any(|&(known, is_whole, _)| known == id && is_whole)
    }

    fn has_settled(&self, feed: Feed, id: u64) -> bool {
        self.told[feed.index()]
            .iter()
            .any(|&(known, ..)| known == id)
    }

    /// Takes what the arbiter gave out at `now_ms`, and checks that against the model.
    fn check(&mut self, now_ms: u64, out: &[Out], patience_ms: impl Fn(&Self) -> u64) {
        for given in out {
            let next = self.next();
            match *given {
                Out::Whole(0, id) => {
                    assert_eq!(id, next);
                    assert!(Feed::ALL.iter().any(|&feed| self.has_whole(feed, id)));
                    self.given.push((id, true));
                }
                Out::Lost(0, first, count, _) => {
                    assert_eq!(first, next);
                    for id in first..first + count {
                        for feed in Feed::ALL {
                            assert!(!self.has_whole(feed, id), "{id} was whole in {feed:?}");
                            let heard = self.told[feed.index()].last().map_or(0, |it| it.2);
                            let is_silent = now_ms >= heard + DEADLINE_MS;
                            if !self.has_settled(feed, id) && !is_silent {
                                assert!(now_ms >= patience_ms(self), "{id} at {now_ms}");
                            }
                        }
                        self.given.push((id, false));
                    }
                }
                ref other => panic!("{other:?}"),
            }
        }
    }
}

/// Generates what two feeds tell of frames: for each frame and feed, whether the feed has the frame
/// whole, and how many milliseconds pass from what the feed tells of the previous frame to what it
/// tells of this one.
fn fates() -> impl Strategy<Value = Vec<[(bool, u64); 2]>> {
    let fate = || (prop::bool::weighted(0.8), 0_u64..120);
    let pair = (fate(), fate()).prop_map(|(one, other)| [one, other]);
    prop::collection::vec(pair, 1..60)
}

/// What a feed can tell.
#[derive(Clone, Copy, Debug)]
enum Word {
    Whole {
        id: u64,
        stays: u64,
        is_ahead: bool,
    },
    Turn(u64),
    Lost(u64, u64),
    Ended(Option<u64>),
    /// The feed's session is over, and is found again.
    Back,
    Nothing,
}

fn words() -> impl Strategy<Value = Vec<(Feed, u64, Word)>> {
    // Most numbers are near each other; some are further away than a receiver goes along.
    let id = || prop_oneof![8 => 0..12_u64, 1 => 300..312_u64, 1 => 5000..5004_u64];
    let word = prop_oneof![
        6 => (id(), 0..120_u64, any::<bool>())
            .prop_map(|(id, stays, is_ahead)| Word::Whole { id, stays, is_ahead }),
        2 => id().prop_map(Word::Turn),
        3 => (id(), 1..600_u64).prop_map(|(first, count)| Word::Lost(first, count)),
        1 => prop::option::of(id()).prop_map(Word::Ended),
        1 => Just(Word::Back),
        3 => Just(Word::Nothing),
    ];
    let feed = prop::sample::select(Feed::ALL.to_vec());
    prop::collection::vec((feed, 0..150_u64, word), 1..60)
}

proptest! {
    #[test]
    fn each_frame_is_given_out_once_in_order_and_whole_if_a_feed_had_it(fates in fates()) {
        let mut told: Vec<(u64, Feed, u64, bool)> = Vec::new();
        for feed in Feed::ALL {
            let mut now = 1000;
            for (id, fate) in fates.iter().enumerate() {
                let (is_whole, later) = fate[feed.index()];
                now += later;
                told.push((now, feed, id as u64, is_whole));
            }
        }
        told.sort_by_key(|&(now, feed, id, _)| (now, feed, id));
        let (mut court, mut model) = (Court::new(), Model::default());
        let give_by = |at: u64| at + 70;
        let patience = |model: &Model| {
            let next = model.next();
            let all = model.told.iter().flatten();
            let whole = all.clone().filter(|it| it.1 && it.0 >= next).map(|it| give_by(it.2));
            let lost = all.filter(|it| it.0 == next).map(|it| it.2);
            whole.min().or_else(|| lost.min()).unwrap_or(0)
        };
        for &(now, feed, id, is_whole) in &told {
            while let Some(due) = court.arbiter.next_timeout().filter(|&due| due <= ms(now)) {
                court.arbiter.settle(due);
                let out = court.drain();
                model.check(due.as_nanos() / 1_000_000, &out, patience);
            }
            model.told[feed.index()].push((id, is_whole, now));
            if is_whole {
                court.whole(now, feed, id, give_by(now));
            } else {
                court.lost(now, feed, id, 1, FrameLoss::Network);
            }
            let out = court.drain();
            model.check(now, &out, patience);
        }
        let frames = fates.len() as u64;
        court.end(100_000, Feed::First, Some(frames));
        court.end(100_000, Feed::Second, Some(frames));
        let mut out = court.drain();
        let Some(Out::Ended(0, counts)) = out.pop() else {
            panic!("{out:?}")
        };
        model.check(100_000, &out, patience);
        prop_assert_eq!(model.next(), frames);
        prop_assert_eq!(counts.frames, frames);
        prop_assert!(counts.is_end_known);
        let whole = model.given.iter().filter(|it| it.1).count() as u64;
        prop_assert_eq!((counts.whole, counts.lost_all()), (whole, frames - whole));
        let feeds = court.arbiter.feeds();
        prop_assert_eq!(feeds[0].first + feeds[1].first, whole);
        for feed in Feed::ALL {
            let counts = feeds[feed.index()];
            let had = fates.iter().filter(|it| it[feed.index()].0).count() as u64;
            prop_assert_eq!((counts.whole(), counts.lost_here()), (had, frames - had));
            let fates = fates.iter().zip(&model.given);
            let saved = fates.filter(|(fate, given)| !fate[feed.index()].0 && given.1);
            prop_assert_eq!(counts.saved, saved.count() as u64);
        }
    }

    /// Whatever two feeds tell, even if they contradict themselves: between two ends of a stream,
    /// numbers leave in order, each once. No frame is given out once it is due, and all memory
    /// comes back.
    #[test]
    fn no_words_of_a_feed_make_a_number_leave_twice(told in words()) {
        let mut court = Court::new();
        // The next number of each stream.
        let (mut now, mut next) = (1000, BTreeMap::<u32, u64>::new());
        let (mut given, mut dues) = (0, BTreeMap::new());
        for (feed, later, word) in told {
            now += later;
            match word {
                Word::Whole { id, stays, is_ahead } => {
                    let mut whole = whole(id, now + stays);
                    whole.is_ahead = is_ahead;
                    let due = dues.entry(id).or_insert(whole.due);
                    *due = whole.due.max(*due);
                    given += 1;
                    court.tell(now, feed, Settled::Whole(whole));
                }
                Word::Turn(id) => court.tell(now, feed, Settled::Turn(id)),
                Word::Lost(first, count) => {
                    let cause = FrameLoss::Network;
                    court.tell(now, feed, Settled::Lost { first, count, cause });
                }
                Word::Ended(end) => court.tell(now, feed, ended(end)),
                Word::Back => {
                    court.arbiter.part(ms(now), feed, SESSION);
                    let tsi = if feed == Feed::First { TSI } else { TSI.partner() };
                    court.join(feed, SESSION, tsi, source(feed.index() as u8));
                }
                Word::Nothing => court.arbiter.settle(ms(now)),
            }
            for out in court.drain() {
                match out {
                    Out::Found(stream) | Out::Ended(stream, _) => {
                        next.remove(&stream);
                    }
                    Out::Whole(stream, id) => {
                        let expected = next.insert(stream, id + 1);
                        prop_assert!(expected.is_none_or(|it| it == id), "{id}, not {expected:?}");
                        prop_assert!(ms(now) < dues[&id], "{id} was due");
                    }
                    Out::Lost(stream, first, count, _) => {
                        let expected = next.insert(stream, first + count);
                        prop_assert!(expected.is_none_or(|it| it == first), "{first}");
                    }
                }
            }
        }
        court.arbiter.finish(ms(now));
        court.drain();
        let free: usize = court.arbiter.free.iter().map(Vec::len).sum();
        prop_assert_eq!(free, given);
    }

    /// With real receivers: whatever packets each network loses, a frame that came by one of them
    /// is given out, also when one network is slower than the other by more than two frames.
    #[test]
    fn a_frame_that_one_network_brought_is_given_out(
        seed: u64,
        frames in 1_u64..40,
        loss in [0_u64..60, 0..60],
        cut in 0_u64..40,
        cut_length in 0_u64..20,
        delay in 0_u64..120,
    ) {
        let mut rng = Rng::new(seed);
        let mut court = Court::empty(1 << 20);
        let mut lanes = [Lane::new(), Lane::new()];
        let mut whole = BTreeSet::new();
        for feed in Feed::ALL {
            let tsi = if feed == Feed::First { TSI } else { TSI.partner() };
            court.join(feed, SESSION, tsi, source(feed.index() as u8));
        }
        let mut out = Vec::new();
        for now in 0..frames * INTERVAL_MS + 1000 {
            for feed in Feed::ALL {
                let sent = now.checked_sub(if feed == Feed::First { 0 } else { delay });
                let id = sent.filter(|at| at % INTERVAL_MS == 0).map(|at| at / INTERVAL_MS);
                let is_cut = id.is_some_and(|id| (cut..cut + cut_length).contains(&id));
                let lane = &mut lanes[feed.index()];
                if let Some(id) = id.filter(|&id| id < frames) {
                    let is_cut = is_cut && feed == Feed::First;
                    let percent = if is_cut { 100 } else { loss[feed.index()] };
                    // Everybody hears the first frame, and joins with it.
                    let percent = if id == 0 { 0 } else { percent };
                    if lane.send(ms(1000 + now), id, percent, &mut rng) {
                        whole.insert(id);
                    }
                }
                lane.receiver.settle(ms(1000 + now));
                court.arbiter.take(ms(1000 + now), feed, &mut lane.receiver);
            }
            court.arbiter.settle(ms(1000 + now));
            out.extend(court.drain());
        }
        let now = ms(1000 + frames * INTERVAL_MS + 1000);
        for feed in Feed::ALL {
            let lane = &mut lanes[feed.index()];
            lane.end(now);
            court.arbiter.take(now, feed, &mut lane.receiver);
            court.arbiter.part(now, feed, SESSION);
        }
        out.extend(court.drain());
        let next = account(&out, &mut whole, frames);
        prop_assert_eq!(next, frames);
        prop_assert!(whole.is_empty(), "not given out: {:?}", whole);
        for feed in Feed::ALL {
            let receiver = &lanes[feed.index()].receiver;
            prop_assert!(receiver.memory_bytes() <= 40_000);
        }
    }
}

/// Checks that numbers come once and in order, and removes whole frames from `whole`. Returns the
/// next number.
fn account(out: &[Out], whole: &mut BTreeSet<u64>, frames: u64) -> u64 {
    let mut next = 0;
    for given in out {
        match *given {
            Out::Found(0) => {}
            Out::Whole(0, id) => {
                assert_eq!(id, next);
                assert!(whole.remove(&id), "{id} was not whole");
                next += 1;
            }
            Out::Lost(0, first, count, _) => {
                assert_eq!(first, next);
                next += count;
            }
            Out::Ended(0, counts) => {
                assert_eq!(counts.frames, frames);
                assert!(counts.is_end_known);
            }
            ref other => panic!("{other:?}"),
        }
    }
    next
}

/// A feed's way from the sender to its receiver.
struct Lane {
    sender: FrameSender,
    receiver: FrameReceiver,
    position: u64,
}

impl Lane {
    fn new() -> Self {
        Self {
            sender: FrameSender::new(FrameSenderConfig {
                interval: Duration::from_millis(INTERVAL_MS),
                deadline: Duration::from_millis(DEADLINE_MS),
                format: Vec::new(),
            }),
            receiver: FrameReceiver::new(FrameReceiverConfig {
                frame_bytes_max: 10_000,
                memory_bytes_max: 40_000,
                streams_max: 2,
            }),
            position: 1 << 32,
        }
    }

    /// Sends a frame of two packets. Returns true when none was lost.
    fn send(&mut self, now: Instant, id: u64, percent: u64, rng: &mut Rng) -> bool {
        let pieces = self
            .sender
            .next(id * INTERVAL_MS * 1_000_000, BYTES, PACKET_BYTES);
        let pieces = pieces.unwrap();
        let lens = [pieces.piece_len(), pieces.last_len()];
        assert_eq!(pieces.count(), lens.len());
        let payloads = [0, 1].map(|index| {
            let mut payload = vec![0; lens[index]];
            pieces.fill(index, &mut payload, |at, room| {
                room.copy_from_slice(&content(id)[at..at + room.len()]);
            });
            payload
        });
        assert_eq!(self.sender.taken(BYTES), id);
        let mut is_whole = true;
        let spared = rng.below(2);
        for (index, payload) in (0..).zip(payloads) {
            // A feed that is not cut brings some packet of each frame.
            let is_lost = rng.chance(percent, 100) && (percent == 100 || index != spared);
            is_whole &= !is_lost;
            if !is_lost {
                self.take(now, &payload);
            }
            self.position += 1;
        }
        is_whole
    }

    fn end(&mut self, now: Instant) {
        self.take(now, &self.sender.end());
        self.receiver.close(now, SESSION);
    }

    fn take(&mut self, now: Instant, payload: &[u8]) {
        self.receiver.take(now, SESSION, self.position, payload);
        while let Some(session) = self.receiver.pop_fresh() {
            self.receiver.begin(session, 1 << 32);
        }
    }
}
