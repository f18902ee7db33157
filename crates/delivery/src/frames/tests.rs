use std::time::Duration;

use base::{Instant, Rng};
use proptest::prelude::*;
use wire::object::FrameHeader;

use super::*;

const PACKET_BYTES: usize = 400;
const INTERVAL: Duration = Duration::from_millis(50);
const DEADLINE: Duration = Duration::from_millis(100);
const STREAM: u32 = 3;
/// The position of the first packet of every stream.
const START: u64 = 1 << 32;

const fn ms(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

fn sender() -> FrameSender {
    FrameSender::new(FrameSenderConfig {
        interval: INTERVAL,
        deadline: DEADLINE,
        format: b"mono8".to_vec(),
    })
}

/// Returns the bytes of frame `id`.
fn content(id: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(id + 1).fill(&mut bytes);
    bytes
}

/// A packet of a stream: its position, and its payload.
#[derive(Clone, Debug)]
struct Packet {
    position: u64,
    payload: Vec<u8>,
}

/// A sender, and the packets that its frames have become.
struct Sent {
    sender: FrameSender,
    next: u64,
}

impl Sent {
    fn new() -> Self {
        Self {
            sender: sender(),
            next: START,
        }
    }

    /// Sends the next frame, made at `timestamp_ns`.
    fn frame(&mut self, timestamp_ns: u64, len: usize) -> Vec<Packet> {
        let pieces = self.sender.next(timestamp_ns, len, PACKET_BYTES).unwrap();
        let id = self.sender.counters().frames_sent + self.sender.counters().frames_overrun;
        let bytes = content(id, len);
        let packets = (0..pieces.count()).map(|index| {
            let is_last = index + 1 == pieces.count();
            let len = if is_last {
                pieces.last_len()
            } else {
                pieces.piece_len()
            };
            let mut payload = vec![0; len];
            pieces.fill(index, &mut payload, |at, room| {
                room.copy_from_slice(&bytes[at..at + room.len()]);
            });
            Packet {
                position: self.next + index as u64,
                payload,
            }
        });
        let packets: Vec<Packet> = packets.collect();
        self.next += packets.len() as u64;
        self.sender.taken(len);
        packets
    }

    fn end(&mut self) -> Packet {
        self.next += 1;
        Packet {
            position: self.next - 1,
            payload: self.sender.end().to_vec(),
        }
    }
}

fn take(receiver: &mut FrameReceiver, now: Instant, packet: &Packet) -> PieceVerdict {
    take_of(receiver, now, STREAM, packet)
}

/// Takes a packet of a stream, which begins at [`START`].
fn take_of(
    receiver: &mut FrameReceiver,
    now: Instant,
    stream: u32,
    packet: &Packet,
) -> PieceVerdict {
    let verdict = receiver.take(now, stream, packet.position, &packet.payload);
    while let Some(stream) = receiver.pop_fresh() {
        receiver.begin(stream, START);
    }
    verdict
}

fn take_all(receiver: &mut FrameReceiver, now: Instant, packets: &[Packet]) {
    for packet in packets {
        take(receiver, now, packet);
    }
}

/// What a receiver gives out: numbers of whole frames, and losses.
#[derive(Debug, Default, PartialEq, Eq)]
struct Given {
    whole: Vec<u64>,
    lost: Vec<(u64, u64, FrameLoss)>,
    counts: Option<FrameCounts>,
    /// The numbers of whole and lost frames, in the order in which they were given out.
    ids: Vec<u64>,
}

fn settle(receiver: &mut FrameReceiver, now: Instant) -> Given {
    receiver.settle(now);
    let mut given = Given::default();
    while let Some(event) = receiver.pop() {
        match event {
            FrameEvent::Whole(frame) => {
                assert_eq!(frame.format, b"mono8");
                assert_eq!(frame.data, content(frame.id, frame.data.len()));
                given.whole.push(frame.id);
                given.ids.push(frame.id);
            }
            FrameEvent::Lost {
                first,
                count,
                cause,
                ..
            } => {
                given.lost.push((first, count, cause));
                given.ids.extend(first..first + count);
            }
            FrameEvent::Ended { counts, .. } => given.counts = Some(counts),
        }
    }
    given
}

fn whole(ids: &[u64]) -> Given {
    Given {
        whole: ids.to_vec(),
        ids: ids.to_vec(),
        ..Given::default()
    }
}

fn lost(lost: &[(u64, u64, FrameLoss)]) -> Given {
    let ids = lost
        .iter()
        .flat_map(|&(first, count, _)| first..first + count);
    Given {
        lost: lost.to_vec(),
        ids: ids.collect(),
        ..Given::default()
    }
}

fn receiver() -> FrameReceiver {
    FrameReceiver::new(FrameReceiverConfig {
        frame_bytes_max: 10_000,
        memory_bytes_max: 40_000,
        streams_max: 2,
    })
}

#[test]
fn a_frame_is_given_out_whole_whatever_the_order_of_its_pieces() {
    let (mut sent, mut receiver) = (Sent::new(), receiver());
    let mut packets = sent.frame(0, 5000);
    packets.reverse();
    let last = packets.pop().unwrap();
    take_all(&mut receiver, ms(1000), &packets);
    assert_eq!(settle(&mut receiver, ms(1000)), Given::default());
    assert_eq!(
        take(&mut receiver, ms(1001), &last),
        PieceVerdict::Completed
    );
    assert_eq!(settle(&mut receiver, ms(1001)), whole(&[0]));
    let counts = receiver.counts(STREAM).unwrap();
    assert_eq!((counts.whole, counts.repaired, counts.bytes), (1, 1, 5000));
}

#[test]
fn every_length_is_cut_and_put_together() {
    let stride = PACKET_BYTES - FrameHeader::LEN;
    for len in [
        1,
        stride - 5,
        stride - 4,
        stride,
        stride + 1,
        3 * stride - 5,
    ] {
        let (mut sent, mut receiver) = (Sent::new(), receiver());
        let packets = sent.frame(0, len);
        take_all(&mut receiver, ms(1000), &packets);
        assert_eq!(settle(&mut receiver, ms(1000)), whole(&[0]), "{len}");
    }
}

#[test]
fn what_is_not_whole_by_its_deadline_is_dropped_and_its_positions_given_up() {
    let (mut sent, mut receiver) = (Sent::new(), receiver());
    let mut packets = sent.frame(0, 5000);
    let missing = packets.remove(4);
    take_all(&mut receiver, ms(1000), &packets);
    assert_eq!(receiver.next_timeout(), Some(ms(1100)));
    assert_eq!(receiver.give_up_before().next(), Some((STREAM, 0)));
    let given = settle(&mut receiver, ms(1100));
    assert_eq!(given, lost(&[(0, 1, FrameLoss::Network)]));
    assert_eq!(
        receiver.give_up_before().next(),
        Some((STREAM, missing.position + packets.len() as u64 - 3))
    );
    assert_eq!(take(&mut receiver, ms(1101), &missing), PieceVerdict::Late);
}

#[test]
fn the_cause_of_a_loss_is_named() {
    // The end of the frame had not come, and nothing before it was missing.
    let (mut sent, mut late) = (Sent::new(), receiver());
    let packets = sent.frame(0, 5000);
    take_all(&mut late, ms(1000), &packets[..9]);
    let given = settle(&mut late, ms(1100));
    assert_eq!(given, lost(&[(0, 1, FrameLoss::Late)]));
    // The kernel dropped packets.
    let mut full = receiver();
    take_all(&mut full, ms(1000), &packets[..9]);
    full.set_host_drops(7);
    let given = settle(&mut full, ms(1100));
    assert_eq!(given, lost(&[(0, 1, FrameLoss::SocketBuffer)]));
    // It is too long.
    let (mut sent, mut small) = (Sent::new(), receiver());
    let packets = sent.frame(0, 10_001);
    take_all(&mut small, ms(1000), &packets);
    let given = settle(&mut small, ms(1000));
    assert_eq!(given, lost(&[(0, 1, FrameLoss::Refused)]));
}

#[test]
fn a_frame_that_came_whole_too_late_is_dropped() {
    let (mut sent, mut receiver) = (Sent::new(), receiver());
    take_all(&mut receiver, ms(1000), &sent.frame(0, 1000));
    settle(&mut receiver, ms(1000));
    let packets = sent.frame(50_000_000, 1000);
    take_all(&mut receiver, ms(1160), &packets);
    let given = settle(&mut receiver, ms(1160));
    assert_eq!(given, lost(&[(1, 1, FrameLoss::Late)]));
}

#[test]
fn a_clock_that_is_set_makes_no_frame_late() {
    // By five seconds back, by less than a minute forward, and by an hour.
    for stamps in [
        [10_000, 10_050, 5_100, 5_150],
        [0, 50, 40_100, 40_150],
        [4_000_000, 4_000_050, 100, 150],
    ] {
        let (mut sent, mut receiver) = (Sent::new(), receiver());
        for (n, stamp) in stamps.into_iter().enumerate() {
            let now = ms(1000 + n as u64 * 50);
            take_all(&mut receiver, now, &sent.frame(stamp * 1_000_000, 1000));
            assert_eq!(settle(&mut receiver, now), whole(&[n as u64]), "{stamps:?}");
        }
    }
}

#[test]
fn frames_come_in_order_and_those_that_never_came_are_counted() {
    let (mut sent, mut receiver) = (Sent::new(), receiver());
    let stamp = |n: u64| n * 50_000_000;
    let frames: Vec<_> = (0..5).map(|n| sent.frame(stamp(n), 1000)).collect();
    take_all(&mut receiver, ms(1000), &frames[0]);
    assert_eq!(settle(&mut receiver, ms(1000)), whole(&[0]));
    // Of the frames 1 and 2 nothing comes; frame 3 waits until neither can come in time.
    take_all(&mut receiver, ms(1150), &frames[3]);
    assert_eq!(settle(&mut receiver, ms(1150)), Given::default());
    assert_eq!(receiver.next_timeout(), Some(ms(1200)));
    let given = settle(&mut receiver, ms(1200));
    assert_eq!(given.lost, [(1, 2, FrameLoss::Network)]);
    assert_eq!(given.whole, [3]);
    // A repair of frame 2 comes after that, and frame 4 is next.
    let verdict = take(&mut receiver, ms(1201), &frames[2][0]);
    assert_eq!(verdict, PieceVerdict::Late);
    take_all(&mut receiver, ms(1202), &frames[4]);
    assert_eq!(settle(&mut receiver, ms(1202)), whole(&[4]));
}

#[test]
fn a_frame_behind_one_that_never_came_is_given_out_in_time() {
    for interval in [Duration::ZERO, Duration::from_micros(100)] {
        let (mut sent, mut receiver) = (Sent::new(), receiver());
        sent.sender = FrameSender::new(FrameSenderConfig {
            interval,
            ..sent.sender.config().clone()
        });
        take_all(&mut receiver, ms(1000), &sent.frame(0, 1000));
        assert_eq!(settle(&mut receiver, ms(1000)), whole(&[0]));
        let _lost = sent.frame(10_000_000, 1000);
        take_all(&mut receiver, ms(1020), &sent.frame(20_000_000, 1000));
        assert_eq!(settle(&mut receiver, ms(1100)), Given::default());
        let due = receiver.next_timeout().unwrap();
        assert!(due > ms(1100) && due < ms(1120), "{due:?}");
        // Two milliseconds late, as a busy host is.
        let given = settle(&mut receiver, due + Duration::from_millis(2));
        assert_eq!(given.lost, [(1, 1, FrameLoss::Network)]);
        assert_eq!(given.whole, [2]);
    }
}

#[test]
fn frames_that_the_sender_had_no_room_for_are_told_apart() {
    let (mut sent, mut receiver) = (Sent::new(), receiver());
    take_all(&mut receiver, ms(1000), &sent.frame(0, 1000));
    assert_eq!(settle(&mut receiver, ms(1000)), whole(&[0]));
    sent.sender.overrun();
    sent.sender.overrun();
    take_all(&mut receiver, ms(1150), &sent.frame(150_000_000, 1000));
    let given = settle(&mut receiver, ms(1150));
    assert_eq!(given.lost, [(1, 2, FrameLoss::Overrun)]);
    assert_eq!(given.whole, [3]);
}

#[test]
fn the_end_tells_of_frames_that_never_came() {
    let (mut sent, mut receiver) = (Sent::new(), receiver());
    take_all(&mut receiver, ms(1000), &sent.frame(0, 1000));
    assert_eq!(settle(&mut receiver, ms(1000)), whole(&[0]));
    let _lost = sent.frame(50_000_000, 1000);
    sent.sender.overrun();
    let end = sent.end();
    take(&mut receiver, ms(1100), &end);
    assert_eq!(settle(&mut receiver, ms(1100)), whole(&[]));
    receiver.close(ms(1100), STREAM);
    let given = settle(&mut receiver, ms(1100));
    let counts = given.counts.unwrap();
    assert!(counts.is_end_known);
    assert_eq!((counts.frames, counts.whole), (3, 1));
    assert_eq!(counts.lost_by(FrameLoss::Network), 1);
    assert_eq!(counts.lost_by(FrameLoss::Overrun), 1);
    assert_eq!(receiver.counts(STREAM), None);
}

#[test]
fn who_leaves_counts_only_what_is_certain() {
    let (mut sent, mut receiver) = (Sent::new(), receiver());
    let frames: Vec<_> = (0..5).map(|n| sent.frame(n * 30_000_000, 1000)).collect();
    // Frame 0 is past its deadline, frame 2 is not, and of frame 3 nothing was heard.
    take_all(&mut receiver, ms(1000), &frames[0][1..]);
    take_all(&mut receiver, ms(1030), &frames[1]);
    take_all(&mut receiver, ms(1060), &frames[2][1..]);
    take_all(&mut receiver, ms(1120), &frames[4]);
    receiver.leave(ms(1125));
    let given = settle(&mut receiver, ms(1125));
    assert_eq!(given.lost, [(0, 1, FrameLoss::Network)]);
    assert_eq!(given.whole, [1, 4]);
    let counts = given.counts.unwrap();
    assert_eq!((counts.frames, counts.whole), (3, 2));
    assert_eq!(counts.first_id, Some(0));
    assert!(!counts.is_end_known);
    // Nothing is open, and nothing begins again.
    assert_eq!(receiver.next_timeout(), None);
    let verdict = take(&mut receiver, ms(1126), &frames[2][0]);
    assert_eq!(verdict, PieceVerdict::Refused);
    assert_eq!(settle(&mut receiver, ms(1400)), Given::default());
    // A first frame that does not count is not the first that counts.
    let mut receiver = self::receiver();
    take_all(&mut receiver, ms(1000), &frames[0][1..]);
    take_all(&mut receiver, ms(1030), &frames[1]);
    receiver.leave(ms(1031));
    let counts = settle(&mut receiver, ms(1031)).counts.unwrap();
    assert_eq!((counts.first_id, counts.frames), (Some(1), 1));
}

#[test]
fn who_leaves_after_the_end_knows_it_when_nothing_is_missing() {
    for (is_last_open, is_last_unheard) in [(false, false), (true, false), (false, true)] {
        let (mut sent, mut receiver) = (Sent::new(), receiver());
        take_all(&mut receiver, ms(1000), &sent.frame(0, 1000));
        let last = sent.frame(50_000_000, 1000);
        let skipped = match () {
            () if is_last_unheard => last.len(),
            () if is_last_open => 1,
            () => 0,
        };
        take_all(&mut receiver, ms(1050), &last[skipped..]);
        sent.sender.overrun();
        let end = sent.end();
        take(&mut receiver, ms(1060), &end);
        receiver.leave(ms(1060));
        let counts = settle(&mut receiver, ms(1060)).counts.unwrap();
        let is_known = !is_last_open && !is_last_unheard;
        assert_eq!(counts.is_end_known, is_known);
        assert_eq!(counts.frames, if is_known { 3 } else { 1 });
    }
}

#[test]
fn a_late_joiner_begins_with_the_next_frame() {
    let (mut sent, mut receiver) = (Sent::new(), receiver());
    let (first, second) = (sent.frame(0, 5000), sent.frame(50_000_000, 5000));
    for packet in &first[4..] {
        receiver.take(ms(1000), STREAM, packet.position, &packet.payload);
        while let Some(stream) = receiver.pop_fresh() {
            receiver.begin(stream, first[4].position);
        }
    }
    assert_eq!(settle(&mut receiver, ms(1010)), Given::default());
    take_all(&mut receiver, ms(1050), &second);
    assert_eq!(settle(&mut receiver, ms(1050)), whole(&[1]));
    let counts = receiver.counts(STREAM).unwrap();
    assert_eq!((counts.first_id, counts.frames), (Some(1), 1));
}

#[test]
fn a_first_frame_whose_beginning_is_repaired_counts() {
    let (mut sent, mut receiver) = (Sent::new(), receiver());
    let packets = sent.frame(0, 5000);
    take_all(&mut receiver, ms(1000), &packets[2..]);
    take_all(&mut receiver, ms(1005), &packets[..2]);
    assert_eq!(settle(&mut receiver, ms(1005)), whole(&[0]));
}

#[test]
fn memory_is_bounded_and_used_again() {
    let (mut sent, mut receiver) = (Sent::new(), receiver());
    // Five frames of the longest length are open at a time; there is memory for four.
    let frames: Vec<_> = (0..5).map(|n| sent.frame(n, 9_995)).collect();
    for packets in &frames {
        take_all(&mut receiver, ms(1000), &packets[1..]);
        assert!(receiver.memory_bytes() <= 40_000);
    }
    for packets in &frames {
        take(&mut receiver, ms(1001), &packets[0]);
    }
    let given = settle(&mut receiver, ms(1001));
    assert_eq!(given.whole, [0, 1, 2, 3]);
    assert_eq!(given.lost, [(4, 1, FrameLoss::Refused)]);
    for _ in 0..20 {
        let packets = sent.frame(0, 9_995);
        take_all(&mut receiver, ms(1002), &packets);
        assert_eq!(settle(&mut receiver, ms(1002)).whole.len(), 1);
    }
    assert!(receiver.memory_bytes() <= 40_000);
}

#[test]
fn a_stranger_that_takes_all_memory_gives_way_to_others() {
    let stranger = STREAM + 1;
    let mut receiver = receiver();
    let mut forged = Sent::new();
    for n in 0..4 {
        let packet = &forged.frame(n, 9_995)[0];
        take_of(&mut receiver, ms(1000), stranger, packet);
    }
    // There are two streams: each has a half, which are two of these frames.
    let mut sent = Sent::new();
    let frames: Vec<_> = (0..3).map(|n| sent.frame(n, 9_995)).collect();
    for packets in &frames {
        take_all(&mut receiver, ms(1001), &packets[1..]);
        assert!(receiver.memory_bytes() <= 40_000);
    }
    for packets in &frames {
        take(&mut receiver, ms(1002), &packets[0]);
    }
    receiver.settle(ms(1002));
    let mut whole = Vec::new();
    while let Some(event) = receiver.pop() {
        match event {
            FrameEvent::Whole(frame) => whole.push((frame.stream, frame.id)),
            FrameEvent::Lost {
                stream,
                first,
                cause,
                ..
            } => {
                assert_eq!((stream, first, cause), (STREAM, 2, FrameLoss::Refused));
            }
            FrameEvent::Ended { .. } => panic!("no stream has ended"),
        }
    }
    assert_eq!(whole, [(STREAM, 0), (STREAM, 1)]);
    // What is left to the stranger is not taken away from it.
    assert!(receiver.memory_bytes() <= 40_000);
    settle_any(&mut receiver, ms(1200));
    let counters = receiver.counters();
    assert_eq!(counters.frames_lost_refused, 3);
    assert_eq!(counters.frames_lost_network, 2);
}

#[test]
fn a_stream_that_holds_nothing_has_no_share_of_the_memory() {
    let mut receiver = FrameReceiver::new(FrameReceiverConfig {
        frame_bytes_max: 30_000,
        memory_bytes_max: 40_000,
        streams_max: 8,
    });
    let mut take = |stream: u32, packet: &Packet| take_of(&mut receiver, ms(1000), stream, packet);
    // Four streams of which nothing is open any more, and one that takes all memory.
    for stream in 10..14 {
        take(stream, &Sent::new().end());
    }
    let mut greedy = Sent::new();
    for n in 0..4 {
        take(1, &greedy.frame(n, 9_995)[0]);
    }
    // Of two streams that hold something, each has a half.
    for packet in &Sent::new().frame(0, 15_000) {
        take(2, packet);
    }
    settle_any(&mut receiver, ms(1001));
    assert_eq!(receiver.counters().frames_whole, 1);
    assert!(receiver.memory_bytes() <= 40_000);
}

#[test]
fn a_first_frame_that_is_longer_than_a_share_takes_from_the_greedy() {
    let mut receiver = FrameReceiver::new(FrameReceiverConfig {
        frame_bytes_max: 30_000,
        memory_bytes_max: 40_000,
        streams_max: 8,
    });
    let mut take = |stream: u32, packet: &Packet| take_of(&mut receiver, ms(1000), stream, packet);
    let mut greedy = Sent::new();
    for n in 0..3 {
        take(1, &greedy.frame(n, 9_995)[0]);
    }
    take(2, &Sent::new().frame(0, 4_995)[0]);
    for packet in &Sent::new().frame(0, 16_000) {
        take(3, packet);
    }
    settle_any(&mut receiver, ms(1001));
    assert_eq!(receiver.counters().frames_whole, 1);
    assert!(receiver.memory_bytes() <= 40_000);
}

#[test]
fn a_piece_that_is_refused_takes_no_memory_from_others() {
    let stranger = STREAM + 1;
    let mut receiver = FrameReceiver::new(FrameReceiverConfig {
        frame_bytes_max: 10_000,
        memory_bytes_max: 45_000,
        streams_max: 2,
    });
    let mut sent = Sent::new();
    let frames: Vec<_> = (0..4).map(|n| sent.frame(n, 9_995)).collect();
    for packets in &frames {
        take_all(&mut receiver, ms(1000), &packets[1..]);
    }
    // It began before this receiver, and is new to it.
    let mut other = Sent::new();
    let packets = [other.frame(0, 100), other.frame(1, 9_995)].concat();
    take_of(&mut receiver, ms(1000), stranger, &packets[0]);
    for packet in &packets[1..] {
        let verdict = receiver.take(ms(1000), stranger, packet.position - 9, &packet.payload);
        assert!(
            matches!(
                verdict,
                PieceVerdict::BeforeJoin | PieceVerdict::Contradictory
            ),
            "{verdict:?}"
        );
    }
    for packets in &frames {
        take(&mut receiver, ms(1001), &packets[0]);
    }
    receiver.settle(ms(1001));
    assert_eq!(receiver.counters().frames_whole, 5);
}

#[test]
fn what_contradicts_other_packets_is_thrown_away() {
    let (mut sent, mut receiver) = (Sent::new(), receiver());
    let packets = sent.frame(0, 5000);
    take_all(&mut receiver, ms(1000), &packets[..3]);
    let (header, _) = FrameHeader::parse(&packets[3].payload).unwrap();
    let mut forge = |change: &dyn Fn(&mut FrameHeader), position: u64| {
        let mut header = header;
        change(&mut header);
        let bytes = vec![9; header.piece_len()];
        let payload = [&header.to_bytes()[..], &bytes].concat();
        receiver.take(ms(1000), STREAM, position, &payload)
    };
    let at = packets[3].position;
    let wrong = PieceVerdict::Contradictory;
    assert_eq!(forge(&|it| it.len += 1, at), wrong, "another length");
    assert_eq!(forge(&|it| it.timestamp_ns += 1, at), wrong);
    assert_eq!(forge(&|_| {}, at + 1), wrong, "another place");
    assert_eq!(forge(&|it| it.index = 2, at - 1), wrong, "it came before");
    let far = at + 100;
    assert_eq!(
        forge(&|it| it.id = 1 << 40, far),
        wrong,
        "no room for so many"
    );
    assert_eq!(forge(&|it| it.id = 1, at + 1), wrong, "it overlaps");
    assert_eq!(
        receiver.take(ms(1000), STREAM, at, b"no frame"),
        PieceVerdict::Malformed
    );
    take_all(&mut receiver, ms(1001), &packets[3..]);
    assert_eq!(settle(&mut receiver, ms(1001)), whole(&[0]));
}

/// Changes a header as an attacker who sees the packets would.
type Forge = fn(&mut FrameHeader);

#[test]
fn forged_headers_do_not_end_a_stream() {
    let forges: [Forge; 4] = [
        // A million frames that the sender had no room for, and one that is whole.
        |header| {
            (header.id, header.skipped) = (1 << 20, (1 << 20) - 1);
            (header.len, header.index) = (6, 0);
        },
        // The same, of no more than are believed at once.
        |header| {
            (header.id, header.skipped) = (200, 199);
            (header.len, header.index) = (6, 0);
        },
        // Too long to be taken, so the next frame begins far behind.
        |header| header.len = 1 << 30,
        // Other frames, which overlap those that follow.
        |header| (header.len, header.deadline_us) = (9_000, 10_000_000),
    ];
    for (n, forge) in forges.into_iter().enumerate() {
        let (mut sent, mut receiver) = (Sent::new(), receiver());
        take_all(&mut receiver, ms(1000), &sent.frame(0, 5000));
        assert_eq!(settle(&mut receiver, ms(1000)), whole(&[0]));
        let next = sent.frame(50_000_000, 2000);
        let (mut header, _) = FrameHeader::parse(&next[0].payload).unwrap();
        forge(&mut header);
        let payload = [&header.to_bytes()[..], &vec![9; header.piece_len()]].concat();
        receiver.take(ms(1050), STREAM, next[0].position, &payload);
        settle_any(&mut receiver, ms(1050));
        let mut given = Vec::new();
        for id in 2..12 {
            let now = ms(1000 + id * 50);
            for packet in &sent.frame(id * 50_000_000, 2000) {
                receiver.take(now, STREAM, packet.position, &packet.payload);
                while let Some(stream) = receiver.pop_fresh() {
                    receiver.begin(stream, packet.position);
                }
            }
            for ms in 0..50 {
                receiver.settle(now + Duration::from_millis(ms));
                while let Some(event) = receiver.pop() {
                    if let FrameEvent::Whole(frame) = event {
                        given.push(frame.id);
                    }
                }
            }
        }
        assert_eq!(
            given[given.len() - 4..],
            [8, 9, 10, 11],
            "forgery {n}: {given:?}"
        );
        assert!(receiver.memory_bytes() <= 40_000);
        let counters = receiver.counters();
        let overruns = if n == 1 { 199 } else { 0 };
        assert_eq!(counters.frames_lost_overrun, overruns, "forgery {n}");
        let lost = counters.frames_lost_network + counters.frames_lost_late;
        assert!(lost + counters.frames_lost_refused <= 9, "forgery {n}");
    }
}

#[test]
fn many_overruns_are_believed_when_two_frames_agree() {
    let (mut sent, mut receiver) = (Sent::new(), receiver());
    take_all(&mut receiver, ms(1000), &sent.frame(0, 1000));
    assert_eq!(settle(&mut receiver, ms(1000)), whole(&[0]));
    for _ in 0..1000 {
        sent.sender.overrun();
    }
    let alone = sent.frame(10_000_000_000, 1000);
    for packet in &alone {
        let verdict = take(&mut receiver, ms(11_000), packet);
        assert_eq!(verdict, PieceVerdict::Refused);
    }
    assert_eq!(receiver.next_timeout(), None);
    take_all(&mut receiver, ms(11_050), &sent.frame(10_050_000_000, 1000));
    let given = settle(&mut receiver, ms(11_110));
    assert_eq!(given.lost[0], (1, 1, FrameLoss::Network));
    assert_eq!(given.lost[1], (2, 1000, FrameLoss::Overrun));
    let end = sent.end();
    take(&mut receiver, ms(11_200), &end);
    receiver.close(ms(11_200), STREAM);
    let counts = settle(&mut receiver, ms(11_200)).counts.unwrap();
    assert_eq!((counts.frames, counts.is_end_known), (1003, true));
}

#[test]
fn a_frame_before_the_join_that_contradicts_later_ones_is_thrown_away() {
    let (mut sent, mut receiver) = (Sent::new(), receiver());
    sent.next += 1;
    sent.sender.overrun();
    take_all(&mut receiver, ms(1000), &sent.frame(0, 1000));
    let next = sent.frame(0, 100);
    let (mut header, _) = FrameHeader::parse(&next[0].payload).unwrap();
    let mut forge = |id: u64, skipped: u32, now: Instant| {
        (header.id, header.skipped) = (id, skipped);
        let payload = [&header.to_bytes()[..], &vec![9; header.piece_len()]].concat();
        receiver.take(now, STREAM, START - 7, &payload)
    };
    assert_eq!(forge(3, 0, ms(1001)), PieceVerdict::Contradictory);
    let given = settle(&mut receiver, ms(1100));
    assert_eq!(given.ids, [1]);
}

#[test]
fn a_forged_end_is_no_count() {
    for (id, skipped) in [(1 << 40, 0), (0, 0), (1 << 20, (1 << 20) - 1)] {
        let (mut sent, mut receiver) = (Sent::new(), receiver());
        take_all(&mut receiver, ms(1000), &sent.frame(0, 1000));
        let (mut header, _) = FrameHeader::parse(&sent.sender.end()).unwrap();
        (header.id, header.skipped) = (id, skipped);
        receiver.take(ms(1001), STREAM, sent.next, &header.to_bytes());
        receiver.close(ms(1001), STREAM);
        let counts = settle(&mut receiver, ms(1001)).counts.unwrap();
        assert_eq!((counts.frames, counts.is_end_known), (1, false));
    }
    // The last word counts.
    let (mut sent, mut receiver) = (Sent::new(), receiver());
    take_all(&mut receiver, ms(1000), &sent.frame(0, 1000));
    let (mut header, _) = FrameHeader::parse(&sent.sender.end()).unwrap();
    header.id = 0;
    receiver.take(ms(1001), STREAM, sent.next, &header.to_bytes());
    let end = sent.end();
    take(&mut receiver, ms(1002), &end);
    receiver.close(ms(1002), STREAM);
    let counts = settle(&mut receiver, ms(1002)).counts.unwrap();
    assert_eq!((counts.frames, counts.is_end_known), (1, true));
}

#[test]
fn streams_beyond_the_bound_are_refused() {
    let (mut sent, mut receiver) = (Sent::new(), receiver());
    let packet = &sent.frame(0, 100)[0];
    let mut take = |stream| receiver.take(ms(1), stream, packet.position, &packet.payload);
    assert_eq!(take(1), PieceVerdict::Completed);
    assert_eq!(take(2), PieceVerdict::Completed);
    assert_eq!(take(3), PieceVerdict::Refused);
}

/// What happens to the packets of a run.
#[derive(Clone, Debug)]
struct Weather {
    seed: u64,
    frames: usize,
    loss_percent: u64,
    delay_ms_max: u64,
    overrun_percent: u64,
}

fn weather() -> impl Strategy<Value = Weather> {
    (any::<u64>(), 1..30_usize, 0..60_u64, 0..150_u64, 0..30_u64).prop_map(
        |(seed, frames, loss_percent, delay_ms_max, overrun_percent)| Weather {
            seed,
            frames,
            loss_percent,
            delay_ms_max,
            overrun_percent,
        },
    )
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..80)
}

proptest! {
    #[test]
    fn every_frame_is_whole_and_in_time_or_lost_for_one_cause(weather in weather()) {
        let mut rng = Rng::new(weather.seed);
        let mut sent = Sent::new();
        let mut arrivals = Vec::new();
        for n in 0..weather.frames as u64 {
            if n > 0 && rng.chance(weather.overrun_percent, 100) {
                sent.sender.overrun();
                continue;
            }
            let len = rng.between(1, 4000) as usize;
            for packet in sent.frame(n * 50_000_000, len) {
                let is_first = packet.position == START;
                if is_first || !rng.chance(weather.loss_percent, 100) {
                    let delay = if is_first { 0 } else { rng.below(weather.delay_ms_max + 1) };
                    arrivals.push((1000 + n * 50 + delay, packet));
                }
            }
        }
        arrivals.push((1000 + weather.frames as u64 * 50 + 200, sent.end()));
        arrivals.sort_by_key(|(at, packet)| (*at, packet.position));
        let mut receiver = receiver();
        let mut ids = Vec::new();
        let over = arrivals.last().map_or(0, |(at, _)| at + 200);
        let mut next = arrivals.iter().peekable();
        for now in 1000..=over {
            while let Some((_, packet)) = next.next_if(|(at, _)| *at <= now) {
                take(&mut receiver, ms(now), packet);
            }
            if now == over {
                receiver.close(ms(now), STREAM);
            }
            let given = settle(&mut receiver, ms(now));
            for &id in &given.whole {
                // The first packet came at once, so the deadline counts from its time.
                prop_assert!(now < 1000 + id * 50 + 100, "frame {} at {}", id, now);
            }
            ids.extend(given.ids);
            if let Some(counts) = given.counts {
                prop_assert_eq!(counts.frames, weather.frames as u64);
                prop_assert_eq!(counts.whole + counts.lost_all(), counts.frames);
                let overruns = sent.sender.counters().frames_overrun;
                prop_assert_eq!(counts.lost_by(FrameLoss::Overrun), overruns);
            }
        }
        let expected: Vec<u64> = (0..weather.frames as u64).collect();
        prop_assert_eq!(ids, expected, "in order, each once");
        prop_assert!(receiver.memory_bytes() <= 40_000);
    }

    #[test]
    fn no_bytes_make_a_receiver_panic_or_grow(
        payloads in prop::collection::vec((0..200_u64, bytes()), 0..100),
    ) {
        let mut receiver = receiver();
        for (n, (position, mut payload)) in payloads.into_iter().enumerate() {
            if let Some(kind) = payload.first_mut() {
                *kind = *kind % 2 + 1;
            }
            receiver.take(ms(n as u64), 0, START + position, &payload);
            while let Some(stream) = receiver.pop_fresh() {
                receiver.begin(stream, START);
            }
            settle_any(&mut receiver, ms(n as u64));
            prop_assert!(receiver.memory_bytes() <= 40_000);
        }
    }
}

fn settle_any(receiver: &mut FrameReceiver, now: Instant) {
    receiver.settle(now);
    while receiver.pop().is_some() {}
}
