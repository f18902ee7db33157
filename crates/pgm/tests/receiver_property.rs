//! Any order, duplication and loss of a stream with repairs: every position is given out once, in
//! order, or reported as lost once; the books balance; memory stays within its bound.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod receiver_kit;

use std::{collections::BTreeMap, time::Duration};

use base::Verdict;
use proptest::prelude::*;
use receiver_kit::{Bench, Event};
use towline_pgm::{Config, Mode, Timer};
use wire::{
    Sqn,
    pgm::{Fragment, PgmOption},
};

/// One packet of the stream.
#[derive(Clone, Debug)]
struct Piece {
    fragment: Option<Fragment>,
    payload: Vec<u8>,
}

/// The stream that the forged sender sends: pieces by index, messages by the index of their first.
struct Stream {
    start: u32,
    pieces: Vec<Piece>,
    messages: BTreeMap<usize, (usize, Vec<u8>)>,
}

impl Stream {
    /// A stream of messages of `parts` packets each.
    fn new(start: u32, parts: &[usize]) -> Self {
        let (mut pieces, mut messages) = (Vec::new(), BTreeMap::new());
        for &count in parts {
            let first = pieces.len();
            let sqn = Sqn(start) + first as u32;
            let apdu: Vec<_> = (0..count * 10 - 3).map(|i| (first + i) as u8).collect();
            for (part, payload) in apdu.chunks(10).enumerate() {
                let fragment = Fragment {
                    first: sqn,
                    offset: 10 * part as u32,
                    apdu_len: apdu.len() as u32,
                };
                pieces.push(Piece {
                    fragment: (count > 1).then_some(fragment),
                    payload: payload.to_vec(),
                });
            }
            messages.insert(first, (count, apdu));
        }
        Self {
            start,
            pieces,
            messages,
        }
    }

    fn sqn(&self, index: usize) -> u32 {
        self.start.wrapping_add(index as u32)
    }

    fn index(&self, position: u64) -> usize {
        Sqn::of(position).distance_from(Sqn(self.start)) as usize
    }

    fn packet(&self, index: usize, trail: usize, is_repair: bool) -> Vec<u8> {
        let piece = &self.pieces[index];
        let option = piece.fragment.map(PgmOption::Fragment);
        let options = option.as_slice();
        let (sqn, trail) = (self.sqn(index), self.sqn(trail));
        if is_repair {
            receiver_kit::rdata(sqn, trail, options, &piece.payload)
        } else {
            receiver_kit::odata(sqn, trail, options, &piece.payload)
        }
    }

    /// The message that a piece belongs to: its first piece and the one after its last.
    fn message_of(&self, index: usize) -> (usize, usize) {
        let (&first, (count, _)) = self.messages.range(..=index).next_back().unwrap();
        (first, first + count)
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// The next so many packets of the stream, of which the bits of the mask are lost.
    Send(u8, u32),
    /// A packet near the lead, out of order or again.
    Stray(u8),
    Spm,
    Ncf(u8, u8),
    HeardNak(u8, u8),
    /// The trail moves to so many packets behind the lead.
    Trail(u8),
    /// Time passes; requests are answered except for those the bits of the mask lose.
    Pass(u8, u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1..32_u8, any::<u32>(), any::<u32>()).prop_map(|(n, a, b)| Op::Send(n, a & b)),
        2 => (1..32_u8).prop_map(|n| Op::Send(n, 0)),
        3 => any::<u8>().prop_map(Op::Stray),
        1 => Just(Op::Spm),
        1 => (0..40_u8, 1..9_u8).prop_map(|(back, count)| Op::Ncf(back, count)),
        1 => (0..40_u8, 1..9_u8).prop_map(|(back, count)| Op::HeardNak(back, count)),
        1 => (8..64_u8).prop_map(Op::Trail),
        3 => (1..30_u8, any::<u32>()).prop_map(|(ms, mask)| Op::Pass(ms, mask)),
    ]
}

fn start() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(0),
        (0..200_u32).prop_map(|n| n.wrapping_sub(100)),
        (0..200_u32).prop_map(|n| (1 << 31) - 100 + n),
        any::<u32>(),
    ]
}

struct Run {
    bench: Bench,
    stream: Stream,
    /// Pieces sent so far.
    lead: usize,
    trail: usize,
    memory_bound: usize,
}

impl Run {
    fn new(mode: Mode, config: Config, stream: Stream) -> Self {
        let mut bench = Bench::with(mode, config.to_builder());
        bench.trail = stream.start;
        bench.spm(stream.start.wrapping_sub(1), &[]);
        assert!(matches!(bench.take_events()[..], [Event::Found(_)]));
        Self {
            bench,
            stream,
            lead: 0,
            trail: 0,
            memory_bound: config.rx_total_bytes(),
        }
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Send(count, lost) => {
                for i in 0..u32::from(count) {
                    if self.lead < self.stream.pieces.len() {
                        if lost >> i & 1 == 0 {
                            self.give(self.lead, false);
                        }
                        self.lead += 1;
                    }
                }
            }
            Op::Stray(back) => {
                let index = self.lead.saturating_sub(usize::from(back));
                if index >= self.trail && index < self.lead {
                    self.give(index, false);
                }
            }
            Op::Spm => self.spm(&[]),
            Op::Ncf(back, count) => {
                let sqns = self.some_sqns(back, count);
                self.bench.ncf(&sqns);
            }
            Op::HeardNak(back, count) => {
                let sqns = self.some_sqns(back, count);
                self.bench.heard_nak(&sqns);
            }
            Op::Trail(back) => {
                let trail = self.lead.saturating_sub(usize::from(back));
                self.trail = self.trail.max(trail);
                self.bench.trail = self.stream.sqn(self.trail);
            }
            Op::Pass(ms, lost) => {
                self.bench.pass_ms(u64::from(ms));
                self.answer(lost);
            }
        }
        assert!(self.bench.receiver.held_memory_bytes() <= self.memory_bound);
    }

    fn give(&mut self, index: usize, is_repair: bool) {
        let packet = self.stream.packet(index, self.trail, is_repair);
        self.bench.packet(&packet);
    }

    fn spm(&mut self, options: &[PgmOption<'_>]) {
        let lead = self.stream.sqn(self.lead).wrapping_sub(1);
        assert_eq!(self.bench.spm(lead, options), Verdict::Control);
    }

    fn some_sqns(&self, back: u8, count: u8) -> Vec<u32> {
        let first = self.lead.saturating_sub(usize::from(back));
        (first..first + usize::from(count))
            .map(|index| self.stream.sqn(index))
            .collect()
    }

    /// Repairs what was asked for and can be repaired.
    fn answer(&mut self, lost: u32) {
        for (i, sqn) in self.bench.take_naks().into_iter().enumerate() {
            let index = Sqn(sqn).distance_from(Sqn(self.stream.start)) as usize;
            if (self.trail..self.lead).contains(&index) && lost >> (i % 32) & 1 == 0 {
                self.give(index, true);
            }
        }
    }

    /// Ends the session, answering every request.
    fn finish(&mut self) {
        for round in 0..400 {
            if round % 10 == 0 {
                let lead = self.stream.sqn(self.lead).wrapping_sub(1);
                self.bench.spm(lead, &[PgmOption::Fin]);
            }
            if self.bench.receiver.sessions().count() == 0 {
                return;
            }
            self.bench.pass_ms(5);
            self.answer(0);
        }
        let position = self.bench.receiver.position(0);
        let (drops, state) = (self.bench.receiver.drops(), &self.bench.receiver);
        panic!(
            "no end: {position:?}, lead {}, {drops:?}, {state:?}",
            self.lead
        );
    }

    /// Where each piece went: every one up to the lead exactly once.
    fn check(&mut self, is_ordered: bool) {
        self.bench.assert_accounts();
        let mut fate = vec![None; self.lead];
        let mut next = 0;
        for event in self.bench.take_events() {
            let (first, end, message) = match event {
                Event::Message(position, data) => {
                    let first = self.stream.index(position);
                    let (count, _) = self.stream.messages[&first];
                    (first, first + count, Some(data))
                }
                Event::Lost(position, count) => {
                    let first = self.stream.index(position);
                    (first, first + count as usize, None)
                }
                Event::Ended => {
                    next = usize::MAX;
                    continue;
                }
                other => panic!("unexpected {other:?}"),
            };
            assert!(!is_ordered || first == next, "{first} where {next} was due");
            next = end;
            if let Some(data) = &message {
                assert_eq!(data, &self.stream.messages[&first].1);
            }
            for place in &mut fate[first..end] {
                assert_eq!(
                    place.replace(message.is_some()),
                    None,
                    "{first} given twice"
                );
            }
        }
        assert_eq!(next, usize::MAX, "the end was not reported");
        for (index, fate) in fate.iter().enumerate() {
            let (first, end) = self.stream.message_of(index);
            match fate {
                None => panic!("{index} was neither given out nor lost"),
                // Only what the trail left behind may be lost, what belongs to it, and what the
                // sender never finished.
                Some(false) => assert!(
                    first < self.trail || end > self.lead,
                    "{index} in {first}..{end} was lost"
                ),
                Some(true) => {}
            }
        }
        let lead = self.stream.sqn(self.lead);
        assert_eq!(self.bench.receiver.held_memory_bytes(), 0, "lead {lead}");
    }
}

/// Timers of a few milliseconds, or such as set themselves, which begin with no more.
fn quick(is_auto: bool) -> towline_pgm::ConfigBuilder {
    if is_auto {
        return Config::builder();
    }
    Config::builder()
        .nak_backoff_max(Timer::Fixed(Duration::from_millis(1)))
        .nak_repeat_interval(Timer::Fixed(Duration::from_millis(4)))
        .nak_rdata_interval(Timer::Fixed(Duration::from_millis(6)))
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_stream_in_sequence_is_given_out_once_and_in_order(
        start in start(),
        is_auto in any::<bool>(),
        parts in prop::collection::vec(prop_oneof![3 => Just(1_usize), 1 => 1..6_usize], 1..200),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let config = quick(is_auto).build().unwrap();
        let mut run = Run::new(Mode::Sequence, config, Stream::new(start, &parts));
        ops.iter().for_each(|op| run.step(op));
        run.finish();
        run.check(true);
    }

    #[test]
    fn a_stream_on_arrival_is_given_out_once(
        start in start(),
        is_auto in any::<bool>(),
        count in 1..400_usize,
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let config = quick(is_auto).build().unwrap();
        let mut run = Run::new(Mode::Arrival, config, Stream::new(start, &vec![1; count]));
        ops.iter().for_each(|op| run.step(op));
        run.finish();
        run.check(false);
    }

    #[test]
    fn little_room_for_gaps_and_data_costs_repairs_and_no_message(
        start in start(),
        is_auto in any::<bool>(),
        parts in prop::collection::vec(prop_oneof![3 => Just(1_usize), 1 => 1..6_usize], 1..200),
        ops in prop::collection::vec(op(), 1..80),
        gaps in 16..24_u32,
        bytes in 4096..8192_usize,
    ) {
        let config = quick(is_auto)
            .apdu_bytes_max(1000)
            .fragments_max(8)
            .mtu(576)
            .rx_gaps_max(gaps)
            .rx_window_bytes(bytes)
            .rx_total_bytes(bytes)
            .build()
            .unwrap();
        let mut run = Run::new(Mode::Sequence, config, Stream::new(start, &parts));
        ops.iter().for_each(|op| run.step(op));
        run.finish();
        run.check(true);
    }
}
