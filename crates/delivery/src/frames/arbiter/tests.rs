use base::Rng;
use wire::{
    object::{FrameHeader, FrameKind},
    pgm::Gsi,
};

use super::*;
use crate::frames::FrameLoss;

mod properties;

const INTERVAL_MS: u64 = 50;
const DEADLINE_MS: u64 = 100;
/// How long before its deadline a frame is given out at the latest.
const MARGIN_MS: u64 = 10;
const SESSION: u32 = 7;
const TSI: Tsi = Tsi {
    gsi: Gsi([1, 2, 3, 4, 5, 6]),
    port: 40_001,
};
const BYTES: usize = 600;
/// A frame has two packets.
const PACKET_BYTES: usize = 400;

const fn ms(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

fn source(number: u8) -> IpAddr {
    [10, 0, number, 1].into()
}

/// What the arbiter gave out.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Out {
    Found(u32),
    Whole(u32, u64),
    Lost(u32, u64, u64, FrameLoss),
    Ended(u32, FrameCounts),
}

/// An arbiter with two feeds of one sender.
struct Court {
    arbiter: Arbiter,
    out: Vec<Out>,
}

impl Court {
    fn empty(held_bytes_max: usize) -> Self {
        Self {
            arbiter: Arbiter::new(held_bytes_max),
            out: Vec::new(),
        }
    }

    fn new() -> Self {
        let mut court = Self::empty(1 << 20);
        court.join(Feed::First, SESSION, TSI, source(0));
        court.join(Feed::Second, SESSION, TSI.partner(), source(1));
        assert_eq!(court.drain(), [Out::Found(0)]);
        court
    }

    /// Makes a court: both feeds have frame 0 whole at 1,000 ms, `Feed::First` earlier.
    fn begun() -> Self {
        let mut court = Self::new();
        court.whole(1000, Feed::First, 0, 1090);
        court.whole(1000, Feed::Second, 0, 1090);
        court
    }

    fn join(&mut self, feed: Feed, session: u32, tsi: Tsi, source: IpAddr) {
        self.arbiter.join(ms(0), feed, session, tsi, source);
    }

    fn hear(&mut self, now: Instant, feed: Feed, settled: Settled) {
        self.arbiter.hear(now, feed, SESSION, settled);
        self.arbiter.keep_bounds(now);
    }

    fn tell(&mut self, now_ms: u64, feed: Feed, settled: Settled) {
        self.hear(ms(now_ms), feed, settled);
    }

    /// Tells that the feed has frame `id` whole, which may wait until `give_by_ms`.
    fn whole(&mut self, now_ms: u64, feed: Feed, id: u64, give_by_ms: u64) {
        self.tell(now_ms, feed, Settled::Whole(whole(id, give_by_ms)));
    }

    /// Does the same as `whole`, before the turn of the frame.
    fn ahead(&mut self, now_ms: u64, feed: Feed, id: u64, give_by_ms: u64) {
        let mut whole = whole(id, give_by_ms);
        whole.is_ahead = true;
        self.tell(now_ms, feed, Settled::Whole(whole));
    }

    fn lost(&mut self, now_ms: u64, feed: Feed, first: u64, count: u64, cause: FrameLoss) {
        let lost = Settled::Lost {
            first,
            count,
            cause,
        };
        self.hear(ms(now_ms), feed, lost);
    }

    /// Ends a feed's session. `end`: how many frames its sender says that it has numbered.
    fn end(&mut self, now_ms: u64, feed: Feed, end: Option<u64>) {
        self.hear(ms(now_ms), feed, ended(end));
        self.arbiter.part(ms(now_ms), feed, SESSION);
    }

    fn drain(&mut self) -> Vec<Out> {
        while let Some(found) = self.arbiter.pop_found() {
            self.out.push(Out::Found(found.stream));
        }
        while let Some(event) = self.arbiter.pop() {
            self.out.push(match event {
                FrameEvent::Whole(frame) => {
                    assert_eq!(frame.data, content(frame.id));
                    Out::Whole(frame.stream, frame.id)
                }
                FrameEvent::Lost {
                    stream,
                    first,
                    count,
                    cause,
                } => Out::Lost(stream, first, count, cause),
                FrameEvent::Ended { stream, counts } => Out::Ended(stream, counts),
            });
        }
        std::mem::take(&mut self.out)
    }

    fn feed(&self, feed: Feed) -> FeedCounts {
        self.arbiter.feeds()[feed.index()]
    }
}

fn content(id: u64) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    Rng::new(id + 1).fill(&mut bytes);
    bytes
}

fn whole(id: u64, give_by_ms: u64) -> Box<Whole> {
    let header = FrameHeader {
        kind: FrameKind::Piece,
        format_len: 0,
        stride: BYTES as u16,
        index: 0,
        id,
        timestamp_ns: id * INTERVAL_MS * 1_000_000,
        len: BYTES as u32,
        interval_us: INTERVAL_MS as u32 * 1000,
        deadline_us: DEADLINE_MS as u32 * 1000,
        skipped: 0,
    };
    let mut room = Room::default();
    room.prepare(&header);
    assert!(room.put(&header, &content(id)));
    Box::new(Whole::new(header, room, false, ms(give_by_ms + MARGIN_MS)))
}

/// Returns the end of a feed. `end`: how many frames its sender says that it has numbered.
fn ended(end: Option<u64>) -> Settled {
    Settled::Ended(FrameCounts {
        first_id: Some(0),
        frames: end.unwrap_or(0),
        is_end_known: end.is_some(),
        ..FrameCounts::default()
    })
}

#[test]
fn the_faster_feed_is_given_out_and_the_other_counted() {
    let mut court = Court::new();
    court.whole(1000, Feed::First, 0, 1090);
    court.whole(1001, Feed::Second, 0, 1090);
    court.whole(1050, Feed::Second, 1, 1140);
    assert_eq!(court.drain(), [Out::Whole(0, 0), Out::Whole(0, 1)]);
    let [first, second] = court.arbiter.feeds();
    assert_eq!((first.first, first.second), (1, 0));
    assert_eq!((second.first, second.second), (1, 1));
}

#[test]
fn what_one_feed_has_lost_the_other_brings() {
    let mut court = Court::begun();
    court.lost(1050, Feed::First, 1, 1, FrameLoss::Network);
    court.whole(1050, Feed::First, 2, 1090);
    assert_eq!(court.drain(), [Out::Whole(0, 0)], "frame 2 is held");
    assert_eq!(court.arbiter.next_timeout(), Some(ms(1090)));
    court.whole(1080, Feed::Second, 1, 1140);
    assert_eq!(court.drain(), [Out::Whole(0, 1), Out::Whole(0, 2)]);
    assert_eq!(court.arbiter.next_timeout(), None);
    let first = court.feed(Feed::First);
    assert_eq!((first.saved, first.lost, first.first), (1, 0, 2));
}

#[test]
fn what_one_feed_has_lost_before_any_frame_was_whole_the_other_brings() {
    let mut court = Court::new();
    court.lost(1000, Feed::First, 0, 1, FrameLoss::Network);
    assert_eq!(court.drain(), []);
    court.whole(1050, Feed::Second, 0, 1140);
    assert_eq!(court.drain(), [Out::Whole(0, 0)]);
    assert_eq!(court.feed(Feed::First).saved, 1);
}

#[test]
fn what_both_have_lost_is_lost_with_the_cause_that_a_network_had() {
    let mut court = Court::begun();
    court.lost(1050, Feed::First, 1, 3, FrameLoss::Overrun);
    court.lost(1050, Feed::Second, 1, 2, FrameLoss::SocketBuffer);
    court.lost(1050, Feed::Second, 3, 1, FrameLoss::Overrun);
    let out = court.drain();
    let lost = [
        Out::Lost(0, 1, 2, FrameLoss::SocketBuffer),
        Out::Lost(0, 3, 1, FrameLoss::Overrun),
    ];
    assert_eq!(out[1..], lost);
    assert_eq!(court.feed(Feed::First).lost, 3);
}

#[test]
fn a_feed_that_is_cut_costs_one_wait_and_no_frame() {
    let mut court = Court::new();
    court.whole(1000, Feed::Second, 0, 1090);
    court.whole(1000, Feed::First, 0, 1090);
    // The feed that is left loses a frame: the one behind it waits until the other is silent.
    court.lost(1050, Feed::First, 1, 1, FrameLoss::Network);
    court.whole(1050, Feed::First, 2, 1190);
    assert_eq!(court.drain(), [Out::Whole(0, 0)]);
    assert_eq!(court.arbiter.next_timeout(), Some(ms(1100)));
    court.arbiter.settle(ms(1100));
    let lost = |id| Out::Lost(0, id, 1, FrameLoss::Network);
    assert_eq!(court.drain(), [lost(1), Out::Whole(0, 2)]);
    // The next ones need not.
    court.lost(1110, Feed::First, 3, 1, FrameLoss::Network);
    assert_eq!(court.drain(), [lost(3)]);
    assert_eq!(court.arbiter.counters().waits_in_vain, 1);
    for id in 4..13 {
        court.whole(1000 + id * 50, Feed::First, id, 1090 + id * 50);
    }
    assert_eq!(court.drain().len(), 9);
    // It comes back, and tells what it has missed: all of it but two frames were saved.
    court.whole(1710, Feed::First, 13, 1790);
    court.lost(1720, Feed::Second, 1, 12, FrameLoss::Network);
    court.whole(1720, Feed::Second, 13, 1790);
    assert_eq!(court.drain(), [Out::Whole(0, 13)]);
    let second = court.feed(Feed::Second);
    assert_eq!((second.saved, second.lost), (10, 2));
    assert_eq!(court.arbiter.counters().frames_saved, 10);
    assert_eq!((second.first, second.second), (1, 1));
    // From then on it counts again.
    court.lost(1800, Feed::First, 14, 1, FrameLoss::Network);
    court.whole(1810, Feed::Second, 14, 1890);
    assert_eq!(court.drain(), [Out::Whole(0, 14)]);
}

#[test]
fn a_feed_whose_packets_come_is_waited_for_though_it_has_no_frame_whole() {
    let mut court = Court::begun();
    court.lost(1090, Feed::First, 1, 1, FrameLoss::Network);
    assert_eq!(court.arbiter.next_timeout(), Some(ms(1100)));
    let packet_at = |court: &mut Court, at: u64| {
        court.arbiter.follow(0, |merge, out| {
            merge.attend(Feed::Second, ms(at), None);
            merge.advance(ms(at), out);
        });
    };
    packet_at(&mut court, 1095);
    // Nothing stands behind it, so it may take as long as a frame is of use.
    assert_eq!(court.arbiter.next_timeout(), Some(ms(1190)));
    court.whole(1101, Feed::First, 2, 1180);
    assert_eq!(court.arbiter.next_timeout(), Some(ms(1180)));
    court.whole(1150, Feed::Second, 1, 1240);
    assert_eq!(court.drain(), [0, 1, 2].map(|id| Out::Whole(0, id)));
}

#[test]
fn a_frame_that_comes_after_the_wait_is_late() {
    let mut court = Court::begun();
    court.lost(1050, Feed::First, 1, 1, FrameLoss::Network);
    court.arbiter.settle(ms(1100));
    court.whole(1101, Feed::Second, 1, 1140);
    let lost = Out::Lost(0, 1, 1, FrameLoss::Network);
    assert_eq!(court.drain()[1..], [lost]);
    assert_eq!(court.feed(Feed::Second).late, 1);
    assert_eq!(court.feed(Feed::First).lost, 1);
    assert_eq!(court.arbiter.counters().waits_in_vain, 1);
}

#[test]
fn a_frame_that_both_had_and_that_waited_for_too_long_is_late_by_both() {
    let mut court = Court::begun();
    court.lost(1050, Feed::First, 1, 1, FrameLoss::Network);
    court.whole(1050, Feed::First, 2, 1140);
    court.ahead(1051, Feed::Second, 2, 1140);
    court.arbiter.settle(ms(5000));
    assert!(matches!(court.drain()[..], [Out::Whole(0, 0), _, _]));
    let [first, second] = court.arbiter.feeds();
    assert_eq!((first.first, first.late), (1, 1));
    assert_eq!((second.second, second.late), (1, 1));
}

#[test]
fn what_is_held_is_bounded() {
    let mut court = Court::new();
    court.arbiter.held_bytes_max = 3 * (BYTES + size_of::<Whole>());
    court.whole(1000, Feed::First, 0, 1090);
    court.whole(1000, Feed::Second, 0, 1090);
    court.lost(1050, Feed::First, 1, 1, FrameLoss::Network);
    for id in 2..5 {
        court.whole(1050, Feed::First, id, 9000);
    }
    assert_eq!(court.drain(), [Out::Whole(0, 0)]);
    court.whole(1050, Feed::First, 5, 9000);
    assert_eq!(court.drain().len(), 5);
    assert_eq!(court.arbiter.counters().waits_cut_short, 1);
    // Two gaps stand before what is held.
    court.lost(1060, Feed::First, 6, 1, FrameLoss::Network);
    court.lost(1060, Feed::First, 7, 1, FrameLoss::SocketBuffer);
    for id in 8..12 {
        court.whole(1060, Feed::First, id, 9000);
    }
    assert_eq!(court.drain().len(), 6);
    let counters = court.arbiter.counters();
    assert_eq!((counters.waits_cut_short, counters.waits_in_vain), (3, 3));
}

#[test]
fn the_stream_ends_when_both_feeds_have_told_their_end() {
    let mut court = Court::begun();
    court.lost(1050, Feed::First, 1, 1, FrameLoss::Network);
    court.end(1050, Feed::First, Some(2));
    assert_eq!(court.drain(), [Out::Whole(0, 0)]);
    court.whole(1060, Feed::Second, 1, 1140);
    assert_eq!(court.drain(), [Out::Whole(0, 1)]);
    assert!(!court.arbiter.is_over(0));
    court.hear(ms(1061), Feed::Second, ended(Some(2)));
    let [Out::Ended(0, counts)] = court.drain()[..] else {
        panic!("no end")
    };
    let told = (counts.frames, counts.whole, counts.is_end_known);
    assert_eq!(told, (2, 2, true));
    assert!(court.arbiter.is_over(0) && court.arbiter.is_known(0));
    court.arbiter.part(ms(1062), Feed::Second, SESSION);
    assert_eq!(court.drain(), []);
    assert!(court.arbiter.is_known(0));
    court.arbiter.settle(ms(11_062));
    assert!(!court.arbiter.is_known(0));
}

#[test]
fn the_stream_ends_by_one_feed_when_the_other_is_cut() {
    let mut court = Court::begun();
    court.whole(1050, Feed::First, 1, 1140);
    court.end(1060, Feed::First, Some(2));
    assert_eq!(court.drain(), [0, 1].map(|id| Out::Whole(0, id)));
    // The other feed has the time of two frames, or their deadline, to show that there are more.
    assert_eq!(court.arbiter.next_timeout(), Some(ms(1160)));
    court.arbiter.settle(ms(1160));
    assert!(matches!(court.drain()[..], [Out::Ended(0, counts)] if counts.is_end_known));
    // What it tells later adds nothing.
    court.lost(5000, Feed::Second, 1, 1, FrameLoss::Network);
    court.end(5000, Feed::Second, None);
    assert_eq!(court.drain(), []);
    assert_eq!(court.feed(Feed::Second).saved, 1);
}

#[test]
fn a_feed_that_is_first_heard_after_the_end_tells_nothing_again() {
    let mut court = Court::empty(1 << 20);
    court.join(Feed::First, SESSION, TSI, source(0));
    court.whole(1000, Feed::First, 0, 1090);
    court.whole(1005, Feed::First, 1, 1095);
    court.end(1010, Feed::First, Some(2));
    let out = court.drain();
    assert_eq!(
        out[..3],
        [Out::Found(0), Out::Whole(0, 0), Out::Whole(0, 1)]
    );
    assert!(matches!(out[3..], [Out::Ended(0, counts)] if counts.is_end_known));
    court.join(Feed::Second, SESSION, TSI.partner(), source(1));
    court.whole(1020, Feed::Second, 0, 1110);
    court.whole(1025, Feed::Second, 1, 1115);
    court.end(1030, Feed::Second, Some(2));
    assert_eq!(court.drain(), []);
    assert_eq!(court.feed(Feed::Second).second, 2);
    // Sessions of the same sender after that are another life of it.
    court.join(Feed::First, SESSION, TSI, source(0));
    assert_eq!(court.drain(), [Out::Found(1)]);
}

#[test]
fn another_life_of_a_sender_that_begins_by_the_other_feed_is_heard() {
    let mut court = Court::empty(1 << 20);
    court.join(Feed::First, SESSION, TSI, source(0));
    for id in 0..3 {
        court.whole(1000 + id, Feed::First, id, 1090);
    }
    court.end(1010, Feed::First, Some(3));
    assert_eq!(court.drain().len(), 5);
    court.join(Feed::Second, SESSION, TSI.partner(), source(1));
    // The clock of the sender goes on.
    for id in 0..2 {
        let mut whole = whole(id, 2090);
        whole.header.timestamp_ns += 1_000_000_000;
        court.tell(2000 + id, Feed::Second, Settled::Whole(whole));
    }
    assert_eq!(
        court.drain(),
        [Out::Found(0), Out::Whole(0, 0), Out::Whole(0, 1)]
    );
}

#[test]
fn a_feed_that_is_far_behind_the_end_begins_no_other_life() {
    let mut court = Court::empty(1 << 20);
    court.join(Feed::First, SESSION, TSI, source(0));
    for id in 0..300 {
        court.whole(1000 + id, Feed::First, id, 1090 + id);
    }
    court.end(1300, Feed::First, Some(300));
    assert_eq!(court.drain().len(), 302);
    court.join(Feed::Second, SESSION, TSI.partner(), source(1));
    for id in 0..300 {
        court.whole(1310 + id, Feed::Second, id, 1400 + id);
    }
    assert_eq!(court.drain(), []);
    assert_eq!(court.feed(Feed::Second).second, 300);
}

#[test]
fn a_feed_that_vanishes_and_comes_back_goes_on_in_the_same_stream() {
    let mut court = Court::begun();
    court.end(1010, Feed::Second, None);
    court.whole(1050, Feed::First, 1, 1090);
    court.join(Feed::Second, SESSION, TSI.partner(), source(1));
    court.whole(1120, Feed::Second, 3, 1240);
    let out = court.drain();
    assert_eq!(out, [0, 1].map(|id| Out::Whole(0, id)), "3 waits for 2");
    court.whole(1121, Feed::First, 2, 1190);
    assert_eq!(court.drain(), [2, 3].map(|id| Out::Whole(0, id)));
    // Both gone: whatever comes now is another stream.
    court.end(1200, Feed::First, None);
    court.end(1200, Feed::Second, None);
    assert!(matches!(court.drain()[..], [Out::Ended(0, _)]));
    court.join(Feed::First, SESSION, TSI, source(0));
    court.whole(2000, Feed::First, 90, 2090);
    assert_eq!(court.drain(), [Out::Found(0), Out::Whole(0, 90)]);
}

#[test]
fn a_stranger_with_the_same_identifier_is_a_sender_of_its_own() {
    let mut court = Court::new();
    court.join(Feed::First, 8, TSI, source(66));
    assert_eq!(court.drain(), [Out::Found(1)]);
    // Even when the sender's own session is over.
    court.whole(1000, Feed::First, 0, 1090);
    court.end(1010, Feed::Second, None);
    court.join(Feed::Second, 9, TSI.partner(), source(66));
    assert_eq!(court.arbiter.stream_of(Feed::Second, 9), Some(1));
    court.join(Feed::Second, 10, TSI.partner(), source(1));
    assert_eq!(court.arbiter.stream_of(Feed::Second, 10), Some(0));
    // Another sender has another identifier.
    let other = Tsi {
        port: TSI.port + 2,
        ..TSI
    };
    court.join(Feed::Second, 11, other, source(1));
    assert_eq!(court.arbiter.stream_of(Feed::Second, 11), Some(2));
}

#[test]
fn a_feed_that_numbers_anew_is_listened_to_once_the_other_has_gone() {
    let mut court = Court::new();
    court.whole(1000, Feed::First, 5000, 1090);
    court.whole(1000, Feed::Second, 5000, 1090);
    // The sender was started again under the same identifier; one feed tells so first.
    court.end(1010, Feed::First, None);
    court.join(Feed::First, SESSION, TSI, source(0));
    court.whole(2000, Feed::First, 0, 2090);
    assert_eq!(court.drain(), [Out::Whole(0, 5000)]);
    court.end(2001, Feed::Second, None);
    court.join(Feed::Second, SESSION, TSI.partner(), source(1));
    court.whole(2050, Feed::First, 1, 2140);
    court.whole(2050, Feed::Second, 1, 2140);
    let out = court.drain();
    assert!(matches!(out[..], [Out::Ended(0, _), Out::Whole(0, 1)]));
}

#[test]
fn the_turn_of_a_frame_that_is_not_of_this_stream_says_nothing() {
    let mut court = Court::new();
    court.tell(1000, Feed::First, Settled::Turn(5));
    assert_eq!(court.drain(), []);
    assert_eq!(court.arbiter.next_timeout(), None);
    court.whole(1001, Feed::First, 0, 1090);
    assert_eq!(court.drain(), [Out::Whole(0, 0)]);
}

#[test]
fn the_turn_of_a_frame_from_before_the_numbers_began_anew_says_nothing() {
    let mut court = Court::new();
    court.whole(1000, Feed::First, 5000, 1090);
    court.end(1010, Feed::Second, None);
    court.whole(2000, Feed::First, 0, 2090);
    let out = court.drain();
    assert!(matches!(
        out[..],
        [Out::Whole(0, 5000), Out::Ended(0, _), Out::Whole(0, 0)]
    ));
    court.tell(2001, Feed::First, Settled::Turn(5001));
    assert_eq!(court.drain(), []);
    court.whole(2050, Feed::First, 1, 2140);
    assert_eq!(court.drain(), [Out::Whole(0, 1)]);
}

#[test]
fn what_a_feed_that_came_back_passes_over_is_waited_for() {
    let mut court = Court::begun();
    court.end(1010, Feed::First, None);
    court.join(Feed::First, SESSION, TSI, source(0));
    // It tells nothing of 1 and 2, and no whole frame stands behind them.
    court.lost(1050, Feed::First, 3, 1, FrameLoss::Network);
    assert_eq!(court.drain(), [Out::Whole(0, 0)]);
    assert_eq!(court.arbiter.next_timeout(), Some(ms(1100)));
    court.whole(1060, Feed::Second, 1, 1150);
    court.whole(1065, Feed::Second, 2, 1155);
    assert_eq!(court.drain(), [1, 2].map(|id| Out::Whole(0, id)));
    // Nobody brings 3 while it is of use.
    court.arbiter.settle(ms(1165));
    assert_eq!(court.drain(), [Out::Lost(0, 3, 1, FrameLoss::Network)]);
}

#[test]
fn a_feed_that_was_cut_for_long_counts_again_though_a_late_frame_comes_first() {
    let mut court = Court::begun();
    for id in 1..400 {
        court.whole(1000 + id * 50, Feed::First, id, 1090 + id * 50);
    }
    assert_eq!(court.drain().len(), 400);
    // The cut ends: a frame of long ago was still being repaired.
    court.whole(21_000, Feed::Second, 1, 21_090);
    court.lost(21_000, Feed::Second, 2, 398, FrameLoss::Network);
    court.whole(21_010, Feed::Second, 400, 21_100);
    assert_eq!(court.drain(), [Out::Whole(0, 400)]);
    // From then on, a frame that the other feed loses is waited for.
    court.whole(21_050, Feed::First, 400, 21_100);
    court.lost(21_100, Feed::First, 401, 1, FrameLoss::Network);
    court.whole(21_110, Feed::Second, 401, 21_150);
    assert_eq!(court.drain(), [Out::Whole(0, 401)]);
    let second = court.feed(Feed::Second);
    assert_eq!((second.first, second.second, second.saved), (2, 2, 398));
}

#[test]
fn a_feed_whose_packets_come_again_after_a_long_cut_is_waited_for() {
    let mut court = Court::begun();
    for id in 1..400 {
        court.whole(1000 + id * 50, Feed::First, id, 1090 + id * 50);
    }
    assert_eq!(court.drain().len(), 400);
    // A packet of frame 400 has come by the feed that was cut; it has settled nothing yet.
    court.arbiter.follow(0, |merge, out| {
        merge.attend(Feed::Second, ms(21_000), Some(401));
        merge.advance(ms(21_000), out);
    });
    court.lost(21_010, Feed::First, 400, 1, FrameLoss::Network);
    assert_eq!(court.drain(), []);
    court.ahead(21_020, Feed::Second, 400, 21_090);
    assert_eq!(court.drain(), [Out::Whole(0, 400)]);
}

#[test]
fn a_feed_that_numbers_lower_while_its_frames_are_held_gives_none_out_twice() {
    let mut court = Court::new();
    for feed in Feed::ALL {
        court.whole(1000, feed, 0, 1090);
    }
    // One feed has lost 1, and its frames 2 to 4 wait for the other.
    court.lost(1050, Feed::First, 1, 1, FrameLoss::Network);
    for id in 2..5 {
        court.whole(1050 + id, Feed::First, id, 1190 + id);
    }
    assert_eq!(court.drain(), [Out::Whole(0, 0)]);
    // What it had heard first was wrong, or its session was forgotten: it tells some of them again.
    court.hear(ms(1056), Feed::First, ended(None));
    court.whole(1057, Feed::First, 3, 1190);
    court.lost(1057, Feed::First, 4, 1, FrameLoss::Network);
    court.whole(1058, Feed::First, 5, 1190);
    court.end(1059, Feed::First, None);
    court.join(Feed::First, SESSION, TSI, source(0));
    court.whole(1059, Feed::First, 2, 1190);
    assert_eq!(court.drain(), []);
    court.whole(1060, Feed::Second, 1, 1140);
    assert_eq!(
        court.drain(),
        (1..6).map(|id| Out::Whole(0, id)).collect::<Vec<_>>()
    );
}

#[test]
fn a_frame_that_is_due_is_lost_as_late_however_long_the_process_stood_still() {
    let stood_still = |end: fn(&mut Court)| {
        let mut court = Court::new();
        court.whole(1000, Feed::First, 0, 1090);
        court.whole(1000, Feed::Second, 0, 1090);
        court.lost(1050, Feed::First, 1, 1, FrameLoss::Network);
        court.whole(1050, Feed::First, 2, 1140);
        end(&mut court);
        court.drain()[1..3].to_vec()
    };
    let lost = [
        Out::Lost(0, 1, 1, FrameLoss::Network),
        Out::Lost(0, 2, 1, FrameLoss::Late),
    ];
    assert_eq!(stood_still(|court| court.arbiter.settle(ms(5000))), lost);
    let gone = |court: &mut Court| {
        court.end(5000, Feed::Second, None);
        court.end(5000, Feed::First, None);
    };
    assert_eq!(stood_still(gone), lost);
    let left = |court: &mut Court| {
        court.arbiter.leave();
        court.arbiter.finish(ms(5000));
    };
    assert_eq!(stood_still(left), lost);
}

#[test]
fn a_stranger_ends_no_stream_that_the_other_feed_still_sends() {
    let mut court = Court::empty(1 << 20);
    court.join(Feed::First, SESSION, TSI, source(0));
    court.whole(1000, Feed::First, 0, 1090);
    court.join(Feed::Second, SESSION, TSI.partner(), source(66));
    court.hear(ms(1010), Feed::Second, ended(Some(1)));
    assert_eq!(court.drain(), [Out::Found(0), Out::Whole(0, 0)]);
    court.whole(1050, Feed::First, 1, 1140);
    court.arbiter.part(ms(1060), Feed::Second, SESSION);
    court.arbiter.settle(ms(9000));
    assert_eq!(court.drain(), [Out::Whole(0, 1)]);
    // It says so again when the sender pauses for long: the sender is found again.
    court.join(Feed::Second, SESSION, TSI.partner(), source(66));
    court.hear(ms(9000), Feed::Second, ended(Some(2)));
    court.arbiter.settle(ms(9200));
    assert!(matches!(court.drain()[..], [Out::Ended(0, _)]));
    court.whole(9300, Feed::First, 2, 9390);
    assert_eq!(court.drain(), [Out::Found(1), Out::Whole(1, 2)]);
}

#[test]
fn who_comes_from_elsewhere_than_the_partner_says_is_a_sender_of_its_own() {
    // The partner is known when the stranger comes.
    let mut court = Court::empty(1 << 20);
    court.join(Feed::First, SESSION, TSI, source(0));
    court.arbiter.bind(ms(0), Feed::First, SESSION, source(1));
    court.join(Feed::Second, 8, TSI.partner(), source(66));
    assert_eq!(court.drain(), [0, 1].map(Out::Found));
    court.join(Feed::Second, 9, TSI.partner(), source(1));
    court.arbiter.bind(ms(0), Feed::Second, 9, source(0));
    assert_eq!(court.arbiter.stream_of(Feed::Second, 9), Some(0));
    // It becomes known only then: the stranger moves out, and its place is free.
    let mut court = Court::empty(1 << 20);
    court.join(Feed::First, SESSION, TSI, source(0));
    court.join(Feed::Second, SESSION, TSI.partner(), source(66));
    assert_eq!(court.arbiter.stream_of(Feed::Second, SESSION), Some(0));
    court.arbiter.bind(ms(0), Feed::First, SESSION, source(1));
    assert_eq!(court.arbiter.stream_of(Feed::Second, SESSION), Some(1));
    court.join(Feed::Second, 9, TSI.partner(), source(1));
    assert_eq!(court.arbiter.stream_of(Feed::Second, 9), Some(0));
    // The stranger was first, and says what it likes.
    let mut court = Court::empty(1 << 20);
    court.join(Feed::Second, 8, TSI.partner(), source(66));
    court.arbiter.bind(ms(0), Feed::Second, 8, source(0));
    court.join(Feed::First, SESSION, TSI, source(0));
    court.arbiter.bind(ms(0), Feed::First, SESSION, source(1));
    court.join(Feed::Second, 9, TSI.partner(), source(1));
    court.arbiter.bind(ms(0), Feed::Second, 9, source(0));
    let streams = [(Feed::Second, 8), (Feed::First, SESSION), (Feed::Second, 9)];
    let streams = streams.map(|(feed, session)| court.arbiter.stream_of(feed, session).unwrap());
    assert_eq!(streams[1], streams[2]);
    assert_ne!(streams[0], streams[1]);
    // A sender of one feed says that it has no partner.
    let mut court = Court::new();
    court
        .arbiter
        .bind(ms(0), Feed::First, SESSION, [0; 4].into());
    assert_eq!(court.arbiter.stream_of(Feed::Second, SESSION), Some(1));
}

#[test]
fn a_feed_that_a_stranger_kept_out_comes_in_when_the_mark_names_it() {
    let mut court = Court::empty(1 << 20);
    court.join(Feed::First, SESSION, TSI, source(0));
    court.join(Feed::Second, 66, TSI.partner(), source(66));
    court.join(Feed::Second, 9, TSI.partner(), source(1));
    assert_eq!(court.drain(), [0, 1].map(Out::Found));
    assert_eq!(court.arbiter.stream_of(Feed::Second, 9), Some(1));
    let gone = court.arbiter.bind(ms(0), Feed::First, SESSION, source(1));
    assert_eq!(gone, Some(1));
    let stream_of = |session| court.arbiter.stream_of(Feed::Second, session);
    assert_eq!((stream_of(9), stream_of(66)), (Some(0), Some(2)));
    assert!(!court.arbiter.is_known(1));
    assert_eq!(court.drain(), [Out::Found(2)]);
    // The mark of the other feed names it: what it said first was wrong.
    let mut court = Court::empty(1 << 20);
    court.join(Feed::First, SESSION, TSI, source(0));
    court.join(Feed::Second, 9, TSI.partner(), source(1));
    assert_eq!(court.arbiter.bind(ms(0), Feed::Second, 9, source(5)), None);
    assert_eq!(court.arbiter.stream_of(Feed::Second, 9), Some(1));
    let gone = court.arbiter.bind(ms(0), Feed::Second, 9, source(0));
    assert_eq!(gone, Some(1));
    assert_eq!(court.arbiter.stream_of(Feed::Second, 9), Some(0));
}

#[test]
fn feeds_that_come_from_elsewhere_than_their_marks_say_are_told_once() {
    // The second feed comes through a relay, which takes the address out of its mark.
    let apart = Apart {
        tsi: TSI.partner(),
        sources: [source(0), source(66)],
    };
    let mut court = Court::empty(1 << 20);
    court.join(Feed::First, SESSION, TSI, source(0));
    court.arbiter.bind(ms(0), Feed::First, SESSION, source(1));
    assert_eq!(court.arbiter.pop_apart(), None);
    court.join(Feed::Second, 8, TSI.partner(), source(66));
    assert_eq!(court.arbiter.pop_apart(), Some(apart));
    court.join(Feed::Second, 9, TSI.partner(), source(67));
    assert_eq!(court.arbiter.pop_apart(), None);
    // The mark that names the address is read later.
    let mut court = Court::empty(1 << 20);
    court.join(Feed::First, SESSION, TSI, source(0));
    court.join(Feed::Second, 8, TSI.partner(), source(66));
    assert_eq!(court.arbiter.pop_apart(), None);
    court.arbiter.bind(ms(0), Feed::First, SESSION, source(1));
    assert_eq!(court.arbiter.pop_apart(), Some(apart));
    // Who says that it has no other feed lacks none.
    let mut court = Court::new();
    let nobody = [0; 4].into();
    court.arbiter.bind(ms(0), Feed::First, SESSION, nobody);
    assert_eq!(court.arbiter.stream_of(Feed::Second, SESSION), Some(1));
    assert_eq!(court.arbiter.pop_apart(), None);
}

#[test]
fn a_session_that_is_refused_keeps_no_place() {
    let mut court = Court::empty(1 << 20);
    court.join(Feed::First, SESSION, TSI, source(0));
    court.join(Feed::Second, 8, TSI.partner(), source(66));
    court.arbiter.refuse(ms(0), Feed::Second, 8);
    court.join(Feed::Second, 9, TSI.partner(), source(1));
    assert_eq!(court.arbiter.stream_of(Feed::Second, 9), Some(0));
}

#[test]
fn an_end_that_leaves_gives_out_what_is_whole_and_counts_no_more() {
    let mut court = Court::begun();
    court.arbiter.leave();
    // One feed's receiver had 2 and 4, the other 1; nobody knows of 3.
    court.whole(1060, Feed::First, 2, 1190);
    court.whole(1060, Feed::First, 4, 1290);
    court.hear(
        ms(1060),
        Feed::First,
        Settled::Ended(FrameCounts::default()),
    );
    court.whole(1060, Feed::Second, 1, 1140);
    court.hear(
        ms(1060),
        Feed::Second,
        Settled::Ended(FrameCounts::default()),
    );
    court.arbiter.finish(ms(1060));
    let mut out = court.drain();
    let Some(Out::Ended(0, counts)) = out.pop() else {
        panic!("{out:?}")
    };
    assert_eq!(out, [0, 1, 2, 4].map(|id| Out::Whole(0, id)));
    assert_eq!((counts.frames, counts.whole), (4, 4));
}
