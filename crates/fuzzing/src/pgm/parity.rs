//! A source that offers parity and a receiver that uses it. The input tells the link between them
//! which packets to lose, repeat or delay, and when to forge parity.
//!
//! The check does not know about groups. It looks at the messages that come out, and checks that
//! counters add up and that memory stays within its bound. When the link forged nothing, every
//! message must have come in the end, in order and intact.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use base::{Arrival, Budget, Instant, Outcome, PathId, Run, Socket, Verdict};
use pgm::{Config, Mode, Ready, Receiver, ReceiverSetup, Source, SourceSetup};
use wire::{
    Sqn, checksum,
    pgm::{
        Addressing, Body, CurrTgsize, Data, Flags, Gsi, ParityGrp, PgmOption, RawOption, Tsi,
        emit_flagged,
    },
};

use super::receiver::Bytes;

/// Reads arbitrary bytes as events between a source and a receiver with parity.
///
/// **Panics** (bug): when an invariant of either end breaks.
pub fn parity_ops(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut link = Link::new(&mut bytes);
    let mut ops = 0;
    while !bytes.0.is_empty() && ops < OPS_MAX {
        link.step(&mut bytes);
        link.check();
        ops += 1;
    }
    link.finish();
}

struct Link {
    source: Source,
    receiver: Receiver,
    now: Instant,
    /// Packets on their way to the receiver.
    wire: VecDeque<Vec<u8>>,
    offered: Vec<Vec<u8>>,
    given: Vec<Vec<u8>>,
    /// The position of the next message, once one has come out.
    next: Option<u64>,
    is_forged: bool,
    memory_max: usize,
}

impl Link {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let choice = bytes.u8();
        let group = 2 << (choice % 5);
        let config = Config::builder()
            .mtu(576)
            .tx_window_bytes(1 << 20)
            .tx_window_sqns(4096)
            .fec_group(group)
            .fec_proactive(u32::from(choice >> 5 & 1))
            .fec_proactive_max(u32::from(choice >> 5).min(group))
            .fec_on_demand(choice & 0x18 != 0x18)
            .rx_fec_bytes(1 << 18)
            .rx_total_bytes(1 << 21)
            .rx_window_bytes(1 << 20)
            .apdu_bytes_max(4000)
            .build()
            .expect("the fuzzed configuration is valid");
        let starts = [0, (1 << 31) - 5, u32::MAX - 5, 77];
        let setup = SourceSetup {
            tsi: TSI,
            destination_port: PORT,
            group: GROUP,
            nla: SOURCE,
            path: PathId(0),
            first_sqn: starts[usize::from(bytes.u8()) % 4],
            seed: 1,
            mark: None,
        };
        let listener = ReceiverSetup {
            mode: Mode::Sequence,
            destination_port: PORT,
            group: GROUP,
            path: PathId(0),
            seed: u64::from(choice),
            is_protected: false,
            own_nla: LISTENER,
        };
        let now = Instant::from_nanos(1_000_000_000);
        let mut link = Self {
            source: Source::new(config, setup, now),
            receiver: Receiver::new(config, listener, now),
            now,
            wire: VecDeque::new(),
            offered: Vec::new(),
            given: Vec::new(),
            next: None,
            is_forged: false,
            memory_max: config.rx_total_bytes(),
        };
        // A few messages come first, so that the receiver knows the session and believes it.
        for _ in 0..8 {
            link.offer(9);
            link.exchange(Duration::from_millis(12));
        }
        link
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        let op = bytes.u8();
        match op % 8 {
            0 | 1 => self.offer(usize::from(bytes.u16() % 1200)),
            2 => {
                for _ in 0..op >> 3 {
                    self.offer(usize::from(op));
                }
            }
            3 | 4 => self.carry(bytes),
            5 => self.forge(op, bytes),
            6 => self.exchange(Duration::from_micros(u64::from(bytes.u16()))),
            _ => self.pass(
                Duration::from_micros(u64::from(bytes.u16()) / 4),
                op & 8 != 0,
            ),
        }
    }

    fn offer(&mut self, len: usize) {
        let number = self.offered.len();
        let message: Vec<_> = (0..len).map(|at| (at * 7 + number * 31) as u8).collect();
        if self.source.offer(&message).is_ok() {
            self.offered.push(message);
        }
    }

    /// Sends what is due, and decides what happens to each of the oldest packets on the way.
    fn carry(&mut self, bytes: &mut Bytes<'_>) {
        self.emit();
        for _ in 0..bytes.u8() % 32 {
            let Some(packet) = self.wire.pop_front() else {
                return;
            };
            match bytes.u8() % 16 {
                0 | 1 => {}
                2 => self.wire.push_back(packet),
                3 => {
                    self.deliver(&packet);
                    self.deliver(&packet);
                }
                4 if packet.len() > 40 => self.deliver_changed(packet, bytes),
                _ => self.deliver(&packet),
            }
        }
    }

    /// Delivers a packet in which a byte was changed and the checksum corrected.
    fn deliver_changed(&mut self, mut packet: Vec<u8>, bytes: &mut Bytes<'_>) {
        self.is_forged = true;
        let at = 16 + usize::from(bytes.u16()) % (packet.len() - 16);
        packet[at] ^= bytes.u8();
        sign(&mut packet);
        self.deliver(&packet);
    }

    /// Delivers a parity packet that the source has not sent.
    fn forge(&mut self, op: u8, bytes: &mut Bytes<'_>) {
        self.is_forged = true;
        let near = (self.source.unsent() as u32).wrapping_sub(u32::from(bytes.u8()));
        let data = Data {
            sqn: Sqn(near.wrapping_add(16)),
            trail: Sqn::of(self.source.trail()),
        };
        let shape = bytes.u8();
        let group = u32::from(shape % 4);
        let size = u32::from(bytes.u8() % 40);
        let encoded = RawOption {
            kind: 1,
            bits: 4,
            specific: shape & 0x80,
            value: &[shape; 12],
        };
        let all = [
            (shape & 0x10 != 0).then_some(PgmOption::CurrTgsize(CurrTgsize { packet_count: size })),
            (group > 0).then_some(PgmOption::ParityGrp(ParityGrp { group })),
            (shape & 0x20 != 0).then_some(PgmOption::Encoded(encoded)),
        ];
        let options: Vec<_> = all.into_iter().flatten().collect();
        let mut flags = Flags::PARITY;
        if shape & 0x40 != 0 {
            flags = flags.with(Flags::VAR_PKTLEN);
        }
        let body = if op & 8 == 0 {
            Body::Odata(data)
        } else {
            Body::Rdata(data)
        };
        let payload = vec![shape; usize::from(bytes.u16() % 600)];
        let mut packet = Vec::new();
        let addressing = Addressing::downstream(TSI, PORT);
        emit_flagged(&mut packet, &addressing, flags, &body, &options, &payload);
        self.deliver(&packet);
    }

    /// Lets everything arrive in both directions, for this time.
    fn exchange(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..ROUNDS_MAX {
            self.emit();
            while let Some(packet) = self.wire.pop_front() {
                self.deliver(&packet);
            }
            let due = base::earliest(self.source.next_timeout(), self.receiver.next_timeout());
            let Some(due) = due.filter(|&due| due <= end) else {
                break;
            };
            self.pass(due.since(self.now), true);
        }
        self.pass(end.since(self.now), true);
    }

    fn pass(&mut self, time: Duration, are_naks_heard: bool) {
        self.now += time;
        self.source.handle_timeout(self.now);
        self.receiver.handle_timeout(self.now);
        self.pop();
        let mut naks = Vec::new();
        while let Some(run) = self.receiver.poll_run(self.now, BUDGET) {
            let datagrams = copy(&run, &mut naks);
            self.receiver
                .run_done(self.now, Outcome::Sent { datagrams });
        }
        let arrival = Arrival::from(SocketAddr::new(LISTENER, 9), Socket::Upstream);
        for nak in naks.iter().filter(|_| are_naks_heard) {
            self.source.handle(self.now, &arrival, nak);
        }
    }

    fn emit(&mut self) {
        let mut packets = Vec::new();
        while let Some(run) = self.source.poll_run(self.now, BUDGET) {
            assert!(
                run.segment <= 576 - 28,
                "a packet longer than the path takes"
            );
            let datagrams = copy(&run, &mut packets);
            self.source.run_done(self.now, Outcome::Sent { datagrams });
        }
        self.wire.extend(packets);
    }

    fn deliver(&mut self, packet: &[u8]) {
        let arrival = Arrival::from(SocketAddr::new(SOURCE, 1000), Socket::Group);
        let verdict = self.receiver.handle(self.now, &arrival, packet);
        if let Verdict::Payload {
            position, range, ..
        } = verdict
        {
            let message = packet[range].to_vec();
            self.give(position, message);
            self.next = Some(position + 1);
        }
        self.pop();
    }

    fn pop(&mut self) {
        let mut given = Vec::new();
        while let Some(ready) = self.receiver.pop_ready() {
            match ready {
                Ready::Message { position, data, .. } => given.push((position, data.to_vec())),
                Ready::Lost { count, .. } => {
                    assert!(self.is_forged && count > 0, "a loss on an honest link");
                }
                _ => {}
            }
        }
        for (position, message) in given {
            self.give(position, message);
            self.next = Some(position + 1);
        }
    }

    fn give(&mut self, position: u64, message: Vec<u8>) {
        let is_in_order = self.next.is_none_or(|next| position >= next);
        assert!(is_in_order, "{position} out of turn");
        self.given.push(message);
    }

    fn check(&self) {
        let counters = self.receiver.counters();
        let sum = counters.payload_packets
            + counters.held_packets
            + counters.control_packets
            + self.receiver.drops().total();
        assert_eq!(counters.seen_packets, sum, "a packet is counted once");
        assert!(self.receiver.held_memory_bytes() <= self.memory_max);
        let (trail, hold) = (self.source.trail(), self.source.hold());
        assert!(trail <= hold && hold <= self.source.unsent());
    }

    /// Ends the session over a link without faults.
    fn finish(&mut self) {
        self.source.close(self.now);
        for _ in 0..40 {
            self.exchange(Duration::from_millis(100));
            self.check();
        }
        let is_gone = self.receiver.sessions().next().is_none();
        if !self.is_forged {
            assert!(is_gone, "an honest session did not end");
            assert!(self.given == self.offered, "not what was sent");
        }
        if is_gone {
            assert_eq!(self.receiver.held_memory_bytes(), 0);
        }
    }
}

fn copy(run: &Run<'_>, packets: &mut Vec<Vec<u8>>) -> usize {
    packets.extend(run.datagrams().map(<[u8]>::to_vec));
    run.datagram_count()
}

/// Corrects the checksum of a changed packet.
fn sign(packet: &mut [u8]) {
    packet[6..8].fill(0);
    let check = checksum::finish(checksum::sum(packet));
    packet[6..8].copy_from_slice(&check.to_be_bytes());
}

const PORT: u16 = 7500;
const TSI: Tsi = Tsi {
    gsi: Gsi([9, 8, 7, 6, 5, 4]),
    port: 100,
};
const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const LISTENER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
const GROUP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 0, 0, 1)), PORT);
const BUDGET: Budget = Budget {
    bytes: 64_000,
    datagrams: 64,
};
const OPS_MAX: usize = 400;
const ROUNDS_MAX: usize = 2000;

#[cfg(test)]
mod tests {
    use crate::pgm::tests::each_seed;

    #[test]
    fn arbitrary_links_keep_the_invariants() {
        each_seed(150, 2..=600, |seed, data| {
            if seed % 2 == 0 {
                honest(data);
            }
            super::parity_ops(data);
        });
    }

    /// Removes most operations that forge, so that some runs end with an honest link.
    fn honest(data: &mut [u8]) {
        for byte in data {
            if *byte % 8 == 5 || *byte % 16 == 4 {
                *byte ^= 3;
            }
        }
    }
}
