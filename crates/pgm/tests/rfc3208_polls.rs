//! RFC 3208 section 14: polls of sources, and the replies of receivers.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod receiver_kit;
mod source_kit;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use base::{Arrival, DropReason, Instant, Rng, Socket, Verdict};
use receiver_kit::{NEIGHBOUR, PORT, SOURCE, downstream, dropped, joined, joined_with, made};
use towline_pgm::{Census, Config, Mode};
use wire::{
    Sqn,
    pgm::{Body, NakBackOffInterval, Packet, PacketType, PgmOption, Poll, Polr},
};

const POLL: Poll = Poll {
    sqn: Sqn(1),
    round: 0,
    sub_type: Poll::GENERAL,
    path_nla: SOURCE,
    back_off_us: 100_000,
    random: 0,
    mask: 0,
};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A receiver that follows a sender, and its replies.
struct Child(receiver_kit::Bench);

impl Child {
    fn new() -> Self {
        Self(joined(Mode::Sequence, 10))
    }

    fn poll(&mut self, poll: Poll) -> Verdict {
        self.0
            .packet(&made(&downstream(), &Body::Poll(poll), &[], &[]))
    }

    /// The replies within the next `time`, with the time that each took and its way.
    fn replies(&mut self, time: Duration) -> Vec<(Duration, SocketAddr, Polr)> {
        let start = self.0.now;
        self.0.pass(time);
        let sent = self.0.take_sent();
        let replies = sent.iter().map(|sent| match sent.body() {
            Body::Polr(polr) => (sent.at.since(start), sent.to, polr),
            other => panic!("{other:?} is no reply"),
        });
        replies.collect()
    }

    /// The receiver's own random bits, found bit by bit with polls from `first` on.
    fn bits(&mut self, first: u32) -> u32 {
        let bit = |bit: u32| {
            let sqn = Sqn(first + bit);
            let mask = 1 << bit;
            assert_eq!(self.poll(Poll { sqn, mask, ..POLL }), Verdict::Control);
            match self.replies(ms(100)).len() {
                0 => mask,
                _ => 0,
            }
        };
        (0..32).map(bit).sum()
    }
}

#[test]
fn s14_5_a_poll_is_answered_once_after_a_random_wait() {
    let mut child = Child::new();
    let mut waits = Vec::new();
    for number in 1..=40 {
        let sqn = Sqn(number);
        let option = PgmOption::NakBackOffInterval(NakBackOffInterval {
            interval_us: 1000,
            poll_sqn: Sqn(0),
        });
        let options = [option];
        let options = if number % 2 == 0 { &options[..] } else { &[] };
        let poll = made(
            &downstream(),
            &Body::Poll(Poll { sqn, ..POLL }),
            options,
            &[],
        );
        assert_eq!(child.0.packet(&poll), Verdict::Control);
        child.0.packet(&poll);
        let replies = child.replies(ms(100));
        let expected = Polr { sqn, round: 0 };
        let way = SocketAddr::new(SOURCE, PORT);
        assert!(matches!(replies[..], [(_, to, polr)] if to == way && polr == expected));
        waits.push(replies[0].0);
        child.0.packet(&poll);
        assert!(child.replies(ms(200)).is_empty(), "a poll has one reply");
    }
    waits.sort_unstable();
    assert!(
        waits[39] <= ms(100) && waits[30] > ms(50) && waits[9] < ms(50),
        "{waits:?}"
    );
    assert_eq!(child.0.receiver.counters().polr_packets, 40);
    assert_eq!(child.0.receiver.counters().polls_heard, 120);
    child.0.assert_accounts();
}

#[test]
fn s14_5_random_bits_decide_who_answers() {
    let mut child = Child::new();
    let mut answered = 0;
    for random in 0..64 {
        let sqn = Sqn(1000 + random);
        let mask = 0x3F;
        child.poll(Poll {
            sqn,
            random,
            mask,
            ..POLL
        });
        answered += child.replies(ms(100)).len();
    }
    assert_eq!(answered, 1, "one of 64 patterns of six bits");
    let bits = child.bits(2000);
    assert_eq!(bits, child.bits(3000), "they are drawn once");
    let mask = u32::MAX;
    let [meant, other] = [bits, !bits].map(|random| Poll {
        sqn: Sqn(4000),
        random,
        mask,
        ..POLL
    });
    child.poll(other);
    assert!(child.replies(ms(100)).is_empty());
    child.poll(Poll { round: 1, ..meant });
    assert_eq!(child.replies(ms(100)).len(), 1);
}

#[test]
fn s14_5_a_later_round_is_for_those_who_heard_the_first() {
    let mut child = Child::new();
    let bits = child.bits(100);
    child.poll(Poll {
        sqn: Sqn(5),
        round: 1,
        ..POLL
    });
    assert!(
        child.replies(ms(100)).is_empty(),
        "it joined during the poll"
    );
    let (random, mask) = (!bits, u32::MAX);
    child.poll(Poll {
        sqn: Sqn(6),
        random,
        mask,
        ..POLL
    });
    assert!(child.replies(ms(100)).is_empty(), "others were drawn");
    for round in [1, 2] {
        child.poll(Poll {
            sqn: Sqn(6),
            round,
            ..POLL
        });
        let replies = child.replies(ms(100));
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0].2, Polr { sqn: Sqn(6), round });
    }
}

#[test]
fn s14_5_a_newer_poll_cancels_the_reply_to_an_older() {
    let mut child = Child::new();
    let bits = child.bits(100);
    let back_off_us = 4_000_000;
    child.poll(Poll {
        sqn: Sqn(7),
        back_off_us,
        ..POLL
    });
    let (random, mask) = (!bits, u32::MAX);
    child.poll(Poll {
        sqn: Sqn(8),
        random,
        mask,
        ..POLL
    });
    assert!(child.replies(ms(5000)).is_empty());
}

#[test]
fn s14_5_polls_of_a_kind_it_does_not_know_are_ignored() {
    let mut child = Child::new();
    child.poll(Poll {
        sqn: Sqn(2),
        ..POLL
    });
    let sub_type = 9;
    let verdict = child.poll(Poll {
        sqn: Sqn(3),
        sub_type,
        ..POLL
    });
    assert_eq!(verdict, dropped(DropReason::Unexpected));
    assert_eq!(
        child.replies(ms(100)).len(),
        1,
        "the reply to the poll before"
    );
    let sub_type = Poll::DLR;
    assert_eq!(
        child.poll(Poll {
            sqn: Sqn(4),
            sub_type,
            ..POLL
        }),
        Verdict::Control
    );
    assert!(child.replies(ms(100)).is_empty(), "it is no repairer");
}

#[test]
fn s14_5_the_reply_goes_where_naks_go() {
    let element = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
    for has_elements in [false, true] {
        let config = Config::builder().network_elements(has_elements);
        let mut child = Child(joined_with(Mode::Sequence, config, 10));
        let verdict = child.poll(Poll {
            path_nla: element,
            ..POLL
        });
        let replies = child.replies(ms(100));
        if has_elements {
            assert_eq!(replies.len(), 1);
            assert_eq!(replies[0].1, SocketAddr::new(element, PORT));
        } else {
            assert_eq!(verdict, dropped(DropReason::Unexpected));
            assert!(replies.is_empty());
        }
        let group = child.poll(Poll {
            path_nla: receiver_kit::GROUP,
            sqn: Sqn(2),
            ..POLL
        });
        assert_eq!(group, dropped(DropReason::Unexpected));
    }
}

#[test]
fn a_poll_of_a_sender_that_is_not_followed_is_not_answered() {
    let mut child = Child(receiver_kit::Bench::new(Mode::Sequence));
    assert_eq!(child.poll(POLL), dropped(DropReason::UnknownSession));
    child.0.trail = 10;
    child.0.odata(10, b"a");
    child.poll(POLL);
    child.0.pass(ms(100));
    let sent = child.0.take_sent();
    assert!(
        sent.iter().all(receiver_kit::Sent::is_spmr),
        "no SPM has come: {sent:?}"
    );
    child.0.spm(10, &[]);
    let poll = made(
        &downstream(),
        &Body::Poll(Poll {
            sqn: Sqn(2),
            ..POLL
        }),
        &[],
        &[],
    );
    let forged = child.0.packet_from(NEIGHBOUR, &poll);
    assert_eq!(forged, dropped(DropReason::WrongSource));
    assert!(child.replies(ms(100)).is_empty());
    child.0.packet(&poll);
    assert_eq!(child.replies(ms(100)).len(), 1);
    child.0.receiver.ask_known_only();
    child.poll(Poll {
        sqn: Sqn(3),
        ..POLL
    });
    assert!(
        child.replies(ms(100)).is_empty(),
        "its owner does not take the sender"
    );
}

#[test]
fn replies_bring_no_more_bytes_than_polls() {
    let mut child = Child::new();
    let (mut polls, mut replies) = (0, 0);
    for number in 1..=5000 {
        let poll = Poll {
            sqn: Sqn(number),
            back_off_us: 0,
            ..POLL
        };
        let poll = made(&downstream(), &Body::Poll(poll), &[], &[]);
        polls += poll.len();
        child.0.packet(&poll);
        child.0.pass(Duration::from_micros(100));
        replies += child
            .0
            .take_sent()
            .iter()
            .map(|sent| sent.bytes.len())
            .sum::<usize>();
    }
    assert!(replies > 0 && replies < polls, "{polls} brought {replies}");
}

/// Receivers of a source, as section 14.5 has them.
struct Crowd {
    parent: source_kit::Bench,
    rng: Rng,
    members: Vec<Member>,
    /// Replies under way.
    flying: Vec<(Instant, usize, Polr)>,
    /// The polls seen, with the replies that each brought.
    polls: Vec<(Instant, Poll, usize)>,
}

struct Member {
    bits: u32,
    round_trip: Duration,
    opened: Option<Sqn>,
}

impl Crowd {
    /// So many receivers, 1 ms to 500 ms away.
    fn of(count: usize, settings: &[(&str, &str)]) -> Self {
        let mut rng = Rng::new(count as u64);
        let members = (0..count).map(|index| Member {
            bits: rng.next_u32(),
            round_trip: ms(1 + index as u64 % 500),
            opened: None,
        });
        Self {
            parent: source_kit::Bench::set(settings),
            members: members.collect(),
            rng,
            flying: Vec::new(),
            polls: Vec::new(),
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.parent.now + time;
        while self.parent.now < end {
            self.hear();
            let now = self.parent.now;
            let arrived: Vec<_> = self.flying.extract_if(.., |(at, ..)| *at <= now).collect();
            for (_, index, polr) in arrived {
                let verdict = self.reply(index, polr);
                if verdict == Verdict::Control {
                    self.polls.last_mut().unwrap().2 += 1;
                }
            }
            let due = self.parent.source.next_timeout().unwrap_or(end);
            let next = self
                .flying
                .iter()
                .map(|(at, ..)| *at)
                .chain([due, end])
                .min();
            self.parent.now = next.unwrap().max(now);
            self.parent.source.handle_timeout(self.parent.now);
        }
        self.hear();
    }

    fn reply(&mut self, index: usize, polr: Polr) -> Verdict {
        let [high, low] = (index as u16).to_be_bytes();
        let host = SocketAddr::from(([10, 9, high, low], 4000));
        let arrival = Arrival::from(host, Socket::Upstream);
        let packet = source_kit::upstream(&Body::Polr(polr), &[]);
        self.parent
            .source
            .handle(self.parent.now, &arrival, &packet)
    }

    /// Lets every member hear the polls that left.
    fn hear(&mut self) {
        self.parent.drain();
        let seen = std::mem::take(&mut self.parent.seen);
        for seen in seen.iter().filter(|seen| seen.kind() == PacketType::Poll) {
            let Body::Poll(poll) = seen.packet().body() else {
                continue;
            };
            self.polls.push((seen.at, poll, 0));
            self.flying.retain(|(.., polr)| polr.sqn == poll.sqn);
            for (index, member) in self.members.iter_mut().enumerate() {
                if poll.round == 0 {
                    member.opened = Some(poll.sqn);
                }
                let is_drawn = (member.bits ^ poll.random) & poll.mask == 0;
                if is_drawn && member.opened == Some(poll.sqn) {
                    let back_off = Duration::from_micros(u64::from(poll.back_off_us));
                    let wait = self.rng.duration_up_to(back_off);
                    let polr = Polr {
                        sqn: poll.sqn,
                        round: poll.round,
                    };
                    self.flying
                        .push((seen.at + wait + member.round_trip, index, polr));
                }
            }
        }
    }

    fn count(&mut self) -> Census {
        self.polls.clear();
        self.parent.source.count_receivers(self.parent.now);
        self.pass(ms(10_000));
        self.parent.source.census().unwrap()
    }

    fn one_of(&self, round: usize) -> u32 {
        self.polls[round].1.mask.count_ones()
    }
}

#[test]
fn s14_4_rounds_open_wider_until_enough_receivers_answer() {
    for (count, expected) in [(0, 0..1), (1, 1..2), (10, 10..11), (1000, 600..1500)] {
        let mut crowd = Crowd::of(count, &[]);
        let census = crowd.count();
        assert!(expected.contains(&census.receivers), "{count}: {census:?}");
        assert_eq!(census.is_complete, count <= 10, "{count}: {census:?}");
        let masks: Vec<u32> = (0..crowd.polls.len())
            .map(|round| crowd.one_of(round))
            .collect();
        assert_eq!(masks[0], 16, "the first is for almost nobody");
        let open = if count > 10 {
            &[16, 12, 8, 4][..]
        } else {
            &[16, 12, 8, 4, 0]
        };
        assert_eq!(masks[..open.len()], *open);
        for (round, (_, poll, _)) in crowd.polls.iter().enumerate() {
            assert_eq!(
                (poll.sqn, usize::from(poll.round)),
                (crowd.polls[0].1.sqn, round)
            );
        }
        for pair in crowd.polls.windows(2) {
            let back_off = Duration::from_micros(u64::from(pair[0].1.back_off_us));
            assert!(pair[1].0.since(pair[0].0) >= back_off);
            assert!(pair[1].2 <= 16 * pair[0].2.max(32), "no implosion");
        }
    }
}

#[test]
fn s14_4_a_large_crowd_is_estimated_by_few_replies() {
    let mut crowd = Crowd::of(20_000, &[]);
    let census = crowd.count();
    assert!((12_000..30_000).contains(&census.receivers), "{census:?}");
    let replies: usize = crowd.polls.iter().map(|poll| poll.2).sum();
    assert!(replies < 700, "{replies} replies");
    assert!(
        census
            .farthest_round_trip
            .is_some_and(|farthest| farthest <= ms(1000))
    );
}

#[test]
fn s14_4_the_round_trip_is_measured_with_few_and_without_a_wait() {
    let mut crowd = Crowd::of(40, &[]);
    let census = crowd.count();
    assert_eq!(census.farthest_round_trip, Some(ms(40)), "{census:?}");
    let (_, last, replies) = *crowd.polls.last().unwrap();
    assert_eq!((last.back_off_us, last.mask, replies), (0, 0, 40));
    let mut crowd = Crowd::of(600, &[]);
    crowd.count();
    let (_, last, replies) = *crowd.polls.last().unwrap();
    assert_eq!(last.back_off_us, 0);
    assert!((1..=128).contains(&replies), "{replies}");
}

#[test]
fn s14_4_a_second_census_begins_where_the_first_ended() {
    let mut crowd = Crowd::of(300, &[]);
    crowd.count();
    let first = crowd.polls[0].1;
    let census = crowd.count();
    assert_eq!(census.receivers, 300, "{census:?}");
    assert_eq!([crowd.one_of(0), crowd.one_of(1)], [8, 4]);
    assert_eq!(crowd.polls[0].1.sqn, first.sqn.next());
}

#[test]
fn s14_4_a_poll_names_the_source_and_counts_on() {
    let mut crowd = Crowd::of(0, &[("poll_interval", "30s")]);
    crowd.pass(ms(29_000));
    assert!(crowd.polls.is_empty());
    crowd.pass(ms(100_000));
    let polls: Vec<Poll> = crowd.polls.iter().map(|(_, poll, _)| *poll).collect();
    let counts: Vec<&[Poll]> = polls.chunk_by(|one, next| one.sqn == next.sqn).collect();
    let rounds: Vec<usize> = counts.iter().map(|count| count.len()).collect();
    assert_eq!(rounds, [5, 2, 2, 2]);
    for (index, count) in counts.iter().enumerate() {
        assert_eq!(count[0].sqn.0, polls[0].sqn.0.wrapping_add(index as u32));
    }
    for poll in &polls {
        assert_eq!(
            (poll.path_nla, poll.sub_type),
            (source_kit::SOURCE, Poll::GENERAL)
        );
    }
    let mut drawn: Vec<u32> = polls.iter().map(|poll| poll.random).collect();
    drawn.sort_unstable();
    drawn.dedup();
    assert_eq!(drawn.len(), polls.len());
    assert_eq!(crowd.parent.source.counters().polls, 11);
}

#[test]
fn s14_4_only_replies_to_the_poll_count() {
    let mut crowd = Crowd::of(0, &[]);
    let early = Polr {
        sqn: Sqn(1),
        round: 0,
    };
    assert_eq!(crowd.reply(1, early), Verdict::Drop(DropReason::Stale));
    crowd.parent.source.count_receivers(crowd.parent.now);
    crowd.pass(ms(100));
    let (_, poll, _) = crowd.polls[0];
    let polr = Polr {
        sqn: poll.sqn,
        round: 0,
    };
    let older = Polr {
        sqn: poll.sqn.previous(),
        ..polr
    };
    let later = Polr { round: 1, ..polr };
    for stale in [older, later] {
        assert_eq!(crowd.reply(1, stale), Verdict::Drop(DropReason::Stale));
    }
    assert_eq!(crowd.reply(1, polr), Verdict::Control);
    assert_eq!(crowd.reply(1, polr), Verdict::Drop(DropReason::Duplicate));
    assert_eq!(crowd.reply(2, polr), Verdict::Control);
    assert_eq!(crowd.parent.source.counters().poll_replies, 2);
    crowd.pass(ms(10_000));
    assert_eq!(crowd.reply(3, polr), Verdict::Drop(DropReason::Stale));
}

#[test]
fn s14_4_a_flood_of_replies_ends_the_poll() {
    let mut crowd = Crowd::of(0, &[]);
    crowd.parent.source.count_receivers(crowd.parent.now);
    crowd.pass(ms(10));
    let (_, poll, _) = crowd.polls[0];
    let polr = Polr {
        sqn: poll.sqn,
        round: 0,
    };
    let taken = (0..6000).map(|index| crowd.reply(index, polr));
    let taken = taken.filter(|verdict| *verdict == Verdict::Control).count();
    assert_eq!(taken, 4096);
    crowd.pass(ms(1));
    let (_, abort, _) = crowd.polls[1];
    assert_eq!(
        (abort.sqn, abort.round, abort.mask),
        (poll.sqn.next(), 0, u32::MAX)
    );
    crowd.pass(ms(10_000));
    assert_eq!(crowd.polls.len(), 2);
    let census = crowd.parent.source.census().unwrap();
    assert_eq!((census.receivers, census.is_complete), (4096 << 16, false));
}

#[test]
fn polls_do_not_keep_data_waiting() {
    let mut bench = source_kit::Bench::set(&[("poll_interval", "1ms")]);
    for _ in 0..1000 {
        bench.send(1, 100);
        bench.ms(20);
    }
    assert_eq!(bench.sqns(PacketType::Odata).len(), 1000);
    let polls = bench.of(PacketType::Poll);
    assert!(polls.len() > 10);
    let first = Packet::parse(&polls[0].bytes).unwrap();
    assert_eq!(first.header().tsi(), source_kit::TSI);
}
