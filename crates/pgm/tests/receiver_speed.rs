//! What one packet costs the receiver. Figures come from a release build:
//! `cargo test --release -p towline-pgm --test receiver_speed -- --nocapture`
//! A debug build takes few packets, and so tests only that all are given out.
//!
//! Packets lie in buffers of 64,000 bytes, as GRO hands them over; loss is 1 %, repaired 1000
//! packets later. The cost includes popping what became ready and touching nothing of the payload
//! except the checksum, which is measured alone as well.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measurement: it reads the clock and prints"
)]

mod receiver_kit;

use std::{collections::VecDeque, time::Duration};

use base::{Arrival, Instant, Rng, Segments, Socket, Verdict};
use receiver_kit::{Bench, PORT, SOURCE, TSI, data, downstream, joined};
use towline_pgm::Mode;
use wire::pgm::{Body, Packet, emit, verify_checksum};

const PACKETS: u32 = if cfg!(debug_assertions) {
    10_000
} else {
    3_000_000
};
const REPAIR_AFTER: u32 = 1000;

struct Feed {
    payload: Vec<u8>,
    next: u32,
    end: u32,
    loss: bool,
    rng: Rng,
    repairs: VecDeque<u32>,
    buffer: Vec<u8>,
}

impl Feed {
    fn new(payload_len: usize, loss: bool) -> Self {
        Self {
            payload: vec![7; payload_len],
            next: 11,
            end: 11 + PACKETS,
            loss,
            rng: Rng::new(1),
            repairs: VecDeque::new(),
            buffer: Vec::new(),
        }
    }

    fn segment(&self) -> usize {
        24 + self.payload.len()
    }

    /// The next buffer of packets; false at the end.
    fn fill(&mut self) -> bool {
        self.buffer.clear();
        while self.buffer.len() + self.segment() <= 64_000 && self.next < self.end {
            let due = |&sqn: &u32| self.next - sqn >= REPAIR_AFTER;
            if self.repairs.front().is_some_and(due) {
                let sqn = self.repairs.pop_front().unwrap();
                self.push(&Body::Rdata(data(sqn, sqn.saturating_sub(40_000).max(10))));
                continue;
            }
            let sqn = self.next;
            self.next += 1;
            if self.loss && self.rng.chance(1, 100) {
                self.repairs.push_back(sqn);
            } else {
                self.push(&Body::Odata(data(sqn, sqn.saturating_sub(40_000).max(10))));
            }
        }
        !self.buffer.is_empty()
    }

    fn push(&mut self, body: &Body) {
        emit(&mut self.buffer, &downstream(), body, &[], &self.payload);
    }
}

/// Nanoseconds a packet of the whole, of the checksum alone, and of parsing alone.
fn measure(mode: Mode, payload_len: usize, loss: bool) -> [f64; 3] {
    let mut feed = Feed::new(payload_len, loss);
    let Bench {
        mut receiver,
        mut now,
        ..
    } = joined(mode, 10);
    let arrival = Arrival::from((SOURCE, PORT).into(), Socket::Group);
    let mut spent = [Duration::ZERO; 3];
    let (mut packets, mut given) = (0_u64, 0_u64);
    while feed.fill() {
        let segment = feed.segment();
        let start = std::time::Instant::now();
        let good = Segments::new(&feed.buffer, segment)
            .filter(|tpdu| std::hint::black_box(verify_checksum(tpdu)) as u8 == 0)
            .count();
        let summed = std::time::Instant::now();
        let parsed = Segments::new(&feed.buffer, segment)
            .filter(|tpdu| std::hint::black_box(Packet::parse(tpdu)).is_ok())
            .count();
        let begin = std::time::Instant::now();
        for tpdu in Segments::new(&feed.buffer, segment) {
            let verdict = receiver.handle(now, &arrival, tpdu);
            given += u64::from(matches!(verdict, Verdict::Payload { .. }));
            if receiver.has_ready() {
                while let Some(ready) = receiver.pop_ready() {
                    given += 1;
                    std::hint::black_box(ready);
                }
            }
        }
        receiver.handle_timeout(now);
        let end = std::time::Instant::now();
        assert_eq!(good, parsed);
        packets += good as u64;
        spent[0] += end - begin;
        spent[1] += summed - start;
        spent[2] += begin - summed;
        now += Duration::from_micros(20);
    }
    assert!(
        given >= packets - 2 * u64::from(REPAIR_AFTER),
        "{given} of {packets}"
    );
    assert_eq!(receiver.drops().total(), 0);
    assert!(now > Instant::ZERO && receiver.position(0).unwrap().tsi == TSI);
    spent.map(|time| time.as_secs_f64() * 1e9 / packets as f64)
}

#[test]
fn cost_of_a_packet() {
    println!("mode      bytes  loss   ns/packet   checksum  without   (parse alone)");
    // One row alone, for a profiler: TOWLINE_ROW=Sequence-64-1
    let only = std::env::var("TOWLINE_ROW").ok();
    for mode in [Mode::Sequence, Mode::Arrival] {
        for payload_len in [64, 1400] {
            for loss in [false, true] {
                let row = format!("{mode:?}-{payload_len}-{}", u8::from(loss));
                if only.as_ref().is_some_and(|only| *only != row) {
                    continue;
                }
                let mut runs: Vec<_> = (0..5).map(|_| measure(mode, payload_len, loss)).collect();
                runs.sort_by(|a, b| a[0].total_cmp(&b[0]));
                let [all, sum, parse] = runs[2];
                let (name, percent) = (format!("{mode:?}"), u8::from(loss));
                let rest = all - sum;
                println!(
                    "{name:9} {payload_len:5}   {percent} %   {all:9.1}  {sum:9.1}  {rest:7.1} \
                     {parse:9.1}"
                );
            }
        }
    }
}
