//! Drives a receiver with arbitrary operations: a stream with loss and repair, forged and broken
//! packets beside it, and a driver that pops and sends at any time.
//!
//! The check does not know about windows. It looks at what comes out, and checks that the counters
//! add up.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use base::{Arrival, Budget, Instant, Outcome, PathId, Socket, Verdict};
use pgm::{Config, LateJoin, Mode, Ready, Receiver, ReceiverSetup, Timer};
use wire::{
    Sqn, checksum,
    pgm::{
        Addressing, Body, Data, Fragment, Gsi, Join, Nak, NakList, PgmOption, Rst, Spm, Tsi, emit,
    },
};

/// Reads arbitrary bytes as operations on a receiver.
///
/// **Panics** (bug): when an invariant of the receiver breaks.
pub fn receiver_ops(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut play = Play::new(&mut bytes);
    while !bytes.0.is_empty() {
        play.step(&mut bytes);
        play.check();
    }
    play.finish();
}

struct Play {
    receiver: Receiver,
    mode: Mode,
    now: Instant,
    /// The next packet of the stream; `trail` is its oldest packet.
    lead: u32,
    trail: u32,
    spm_sqn: u32,
    sessions: BTreeMap<u32, Seen>,
    memory_max: usize,
    packet: Vec<u8>,
}

/// What has come out of one session.
#[derive(Default)]
struct Seen {
    /// In sequence mode: nothing before this position may come any more.
    next: u64,
    /// True when the next message must be at `next` exactly. A message that was popped makes it
    /// false, because it may have taken several packets.
    is_exact: bool,
    /// In arrival mode: the packets that came; `lost` has those that were reported lost.
    given: BTreeSet<u64>,
    lost: Vec<(u64, u64)>,
}

impl Play {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let choice = bytes.u8();
        let mode = if choice & 1 == 0 {
            Mode::Sequence
        } else {
            Mode::Arrival
        };
        let joins = [LateJoin::Now, LateJoin::Offered, LateJoin::Window];
        let small = choice & 2 != 0;
        let timer = |ms| match choice & 0x40 {
            0 => Timer::Auto,
            _ => Timer::Fixed(Duration::from_millis(ms)),
        };
        let builder = Config::builder()
            .mtu(576)
            .apdu_bytes_max(2000)
            .fragments_max(16)
            .rx_gaps_max(if small { 16 } else { 1000 })
            .rx_window_sqns(if small { 64 } else { 1 << 20 })
            .rx_window_bytes(if small { 4096 } else { 1 << 16 })
            .rx_total_bytes(if small { 8192 } else { 1 << 18 })
            .peers_max(if small { 2 } else { 5 })
            .late_join(joins[usize::from(choice >> 2) % 3])
            .nak_backoff_max(timer(1))
            .nak_repeat_interval(timer(4))
            .nak_rdata_interval(timer(6))
            .nak_ncf_retries(3)
            .nak_data_retries(3)
            .repair_time_max(Duration::from_millis(100));
        let config = builder.build().expect("the fuzzed configuration is valid");
        let setup = ReceiverSetup {
            mode,
            destination_port: PORT,
            group: SocketAddr::new(GROUP, PORT),
            path: PathId(0),
            seed: u64::from(choice),
            is_protected: false,
            own_nla: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)),
        };
        let starts = [0, (1 << 31) - 5, u32::MAX - 5, 77];
        let start = starts[usize::from(bytes.u8()) % 4];
        Self {
            receiver: Receiver::new(config, setup, Instant::ZERO),
            mode,
            now: Instant::ZERO,
            lead: start,
            trail: start,
            spm_sqn: 1,
            sessions: BTreeMap::new(),
            memory_max: config.rx_total_bytes(),
            packet: Vec::new(),
        }
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        let op = bytes.u8();
        match op % 16 {
            0..=3 => self.next_data(op & 0x10 != 0, bytes),
            4 | 5 => self.stray_data(bytes),
            6 => self.spm(bytes),
            7 => self.requests(op, bytes),
            8 => self.trail = self.lead.wrapping_sub(u32::from(bytes.u8() % 40)),
            9 => self.broken(bytes),
            10 => self.lead = self.lead.wrapping_add(bytes.u32()),
            11 | 12 => self.pass(Duration::from_micros(u64::from(bytes.u16()))),
            13 => self.pass(Duration::from_millis(u64::from(bytes.u16() >> 5))),
            14 => self.send(bytes.u8()),
            _ => self.pop(),
        }
        // Most drivers pop at once. A driver that pops late must see the same order.
        if op & 0x40 == 0 {
            self.pop();
        }
    }

    /// Delivers the next packet of the stream, or loses it on the way.
    fn next_data(&mut self, is_lost: bool, bytes: &mut Bytes<'_>) {
        let sqn = self.lead;
        self.lead = self.lead.wrapping_add(1);
        if !is_lost {
            let shape = bytes.u8();
            self.data(sqn, false, shape);
        }
    }

    /// Delivers a packet from near the lead: an old one again, one out of order, or one from beyond
    /// the lead.
    fn stray_data(&mut self, bytes: &mut Bytes<'_>) {
        let back = i32::from(bytes.u8()) - 16;
        let sqn = self.lead.wrapping_sub(back.cast_unsigned());
        let shape = bytes.u8();
        self.data(sqn, true, shape);
    }

    fn data(&mut self, sqn: u32, is_repair: bool, shape: u8) {
        let data = Data {
            sqn: Sqn(sqn),
            trail: Sqn(self.trail),
        };
        let body = if is_repair {
            Body::Rdata(data)
        } else {
            Body::Odata(data)
        };
        let len = u32::from(shape >> 4) * 7;
        // The fragment follows from the position, so that most fragments agree with each other.
        let index = sqn % 4;
        let fragment = Fragment {
            first: Sqn(sqn.wrapping_sub(index)),
            offset: index * 7,
            apdu_len: 28,
        };
        let options = match shape % 16 {
            0..=8 => vec![],
            9..=12 => vec![PgmOption::Fragment(fragment)],
            13 => vec![PgmOption::Fragment(Fragment {
                offset: u32::from(shape) << 24,
                ..fragment
            })],
            14 => vec![PgmOption::Join(Join { min: Sqn(sqn ^ 8) })],
            _ if shape == 0xFF => vec![PgmOption::Fin],
            _ => vec![PgmOption::Syn],
        };
        let len = if matches!(shape % 16, 9..=12) { 7 } else { len };
        self.make(0, &body, &options, &[sqn as u8; 105][..len as usize]);
        self.handle(shape & 7 != 7);
    }

    fn spm(&mut self, bytes: &mut Bytes<'_>) {
        let kind = bytes.u8();
        self.spm_sqn = self.spm_sqn.wrapping_add(1);
        let far = if kind & 3 == 3 { bytes.u32() } else { 0 };
        let body = Body::Spm(Spm {
            sqn: Sqn(self
                .spm_sqn
                .wrapping_add(if kind & 4 == 0 { 0 } else { far })),
            trail: Sqn(self.trail.wrapping_add(if kind & 8 == 0 { 0 } else { far })),
            lead: Sqn(self.lead.wrapping_sub(1).wrapping_add(far)),
            path_nla: SOURCE,
        });
        let reset = Rst {
            is_deaf: false,
            reason: 1,
        };
        let options = match kind >> 4 {
            14 => vec![PgmOption::Fin],
            15 if kind & 1 == 1 => vec![PgmOption::Rst(reset)],
            13 => vec![PgmOption::Join(Join { min: Sqn(far) })],
            _ => vec![],
        };
        self.make(0, &body, &options, &[]);
        self.handle(kind & 0x0C != 0x0C);
    }

    /// Delivers NCFs, NAKs and SPMRs for packets near the lead.
    fn requests(&mut self, op: u8, bytes: &mut Bytes<'_>) {
        let first = self.lead.wrapping_sub(u32::from(bytes.u8() % 64));
        let step = u32::from(bytes.u8() % 4) + 1;
        let list: Vec<_> = (1..u32::from(bytes.u8() % 63))
            .map(|i| Sqn(first.wrapping_add(i * step)))
            .collect();
        let nak = Nak {
            sqn: Sqn(first),
            source_nla: SOURCE,
            group_nla: GROUP,
        };
        let options = [PgmOption::NakList(NakList::new(&list))];
        match op >> 4 & 3 {
            0 | 1 => self.make(0, &Body::Ncf(nak), &options, &[]),
            2 => self.make_upstream(&Body::Nak(nak), &options),
            _ => self.make_upstream(&Body::Spmr, &[]),
        }
        self.handle(op & 0x40 == 0);
    }

    /// Delivers arbitrary bytes behind a valid header, so that the parser gets far.
    fn broken(&mut self, bytes: &mut Bytes<'_>) {
        let kind = bytes.u8();
        let session = bytes.u8();
        let len = usize::from(bytes.u8() % 80);
        let rest = bytes.take(len);
        let body = Body::Odata(Data {
            sqn: Sqn(self.lead),
            trail: Sqn(self.trail),
        });
        self.make(session, &body, &[], &[]);
        self.packet.truncate(16);
        self.packet.extend_from_slice(rest);
        self.packet[4] = kind & 0x0F;
        self.packet[5] = kind >> 6 | kind & 0x20 << 2;
        self.packet[6..8].fill(0);
        let tsdu_len = rest.len().saturating_sub(8) as u16;
        self.packet[14..16].copy_from_slice(&tsdu_len.to_be_bytes());
        let check = checksum::finish(checksum::sum(&self.packet));
        self.packet[6..8].copy_from_slice(&check.to_be_bytes());
        self.handle(session & 1 == 0);
    }

    fn make(&mut self, session: u8, body: &Body, options: &[PgmOption<'_>], payload: &[u8]) {
        let addressing = Addressing {
            source_port: TSI.port + u16::from(session % 8),
            destination_port: PORT,
            gsi: TSI.gsi,
        };
        self.packet.clear();
        emit(&mut self.packet, &addressing, body, options, payload);
    }

    fn make_upstream(&mut self, body: &Body, options: &[PgmOption<'_>]) {
        let addressing = Addressing {
            source_port: PORT,
            destination_port: TSI.port,
            gsi: TSI.gsi,
        };
        self.packet.clear();
        emit(&mut self.packet, &addressing, body, options, &[]);
    }

    /// Passes the packet to the receiver, from the right address or from another one.
    fn handle(&mut self, is_real: bool) {
        let other = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 6));
        let source = if is_real { SOURCE } else { other };
        let arrival = Arrival::from(SocketAddr::new(source, 1000), Socket::Group);
        let verdict = self.receiver.handle(self.now, &arrival, &self.packet);
        if let Verdict::Payload {
            session,
            position,
            range,
        } = verdict
        {
            assert!(
                range.end <= self.packet.len(),
                "a payload outside its packet"
            );
            let seen = self
                .sessions
                .get_mut(&session)
                .expect("data of an announced session");
            seen.give(self.mode, position, true);
        }
    }

    fn pop(&mut self) {
        while let Some(ready) = self.receiver.pop_ready() {
            match ready {
                Ready::Found { session, .. } => {
                    let before = self.sessions.insert(session, Seen::default());
                    assert!(before.is_none(), "a session number in use was given again");
                }
                Ready::Message {
                    session, position, ..
                } => {
                    let seen = self
                        .sessions
                        .get_mut(&session)
                        .expect("an announced session");
                    seen.give(self.mode, position, false);
                }
                Ready::Lost {
                    session,
                    first,
                    count,
                } => {
                    let seen = self
                        .sessions
                        .get_mut(&session)
                        .expect("an announced session");
                    seen.lose(self.mode, first, count);
                }
                Ready::Mark { session, .. } => assert!(self.sessions.contains_key(&session)),
                Ready::Ended { session }
                | Ready::Expired { session }
                | Ready::Reset { session } => {
                    let seen = self.sessions.remove(&session);
                    assert!(
                        seen.is_some(),
                        "the end of a session that was not announced"
                    );
                }
            }
        }
        assert!(!self.receiver.has_ready());
    }

    fn pass(&mut self, duration: Duration) {
        self.now += duration;
        self.receiver.handle_timeout(self.now);
        let next = self.receiver.next_timeout();
        assert!(
            next.is_none_or(|next| next > self.now),
            "a deadline stays in the past"
        );
    }

    fn send(&mut self, choice: u8) {
        let budget = Budget {
            bytes: 200 << (choice % 8),
            datagrams: usize::from(choice >> 3) + 1,
        };
        let Some(run) = self.receiver.poll_run(self.now, budget) else {
            return;
        };
        let datagrams = run.datagram_count();
        assert!(datagrams <= budget.datagrams && !run.is_empty());
        for datagram in run.datagrams() {
            let packet = wire::pgm::Packet::parse(datagram).expect("a receiver's own packet");
            assert!(packet.header().kind.is_upstream());
        }
        let outcome = match choice % 4 {
            0 => Outcome::Blocked,
            1 => Outcome::Failed,
            _ => Outcome::Sent {
                datagrams: datagrams.min(usize::from(choice >> 2) + 1),
            },
        };
        self.receiver.run_done(self.now, outcome);
    }

    fn check(&self) {
        let counters = self.receiver.counters();
        let sum = counters.payload_packets
            + counters.held_packets
            + counters.control_packets
            + self.receiver.drops().total();
        assert_eq!(counters.seen_packets, sum, "a packet is counted once");
        assert!(self.receiver.held_memory_bytes() <= self.memory_max);
        for session in self.receiver.sessions() {
            let position = self
                .receiver
                .position(session)
                .expect("a session that is listed");
            assert!(position.contiguous <= position.lead + 1);
        }
    }

    /// Stays silent: every session must end, and nothing of it may be kept.
    fn finish(&mut self) {
        for _ in 0..3 {
            self.pop();
            self.pass(Duration::from_secs(31));
        }
        self.pop();
        assert!(self.sessions.is_empty(), "a silent session did not end");
        assert_eq!(self.receiver.held_memory_bytes(), 0);
    }
}

impl Seen {
    fn give(&mut self, mode: Mode, position: u64, is_single: bool) {
        self.advance(mode, position, 1);
        self.is_exact = is_single;
        self.given.insert(position);
    }

    fn lose(&mut self, mode: Mode, first: u64, count: u64) {
        assert!(count > 0, "a loss of nothing");
        self.advance(mode, first, count);
        self.is_exact = true;
        self.lost.push((first, first + count));
    }

    fn advance(&mut self, mode: Mode, first: u64, count: u64) {
        let end = first + count;
        if mode == Mode::Sequence {
            assert!(first >= self.next, "{first} after {}", self.next);
            assert!(
                !self.is_exact || first == self.next,
                "{first} where {} was due",
                self.next
            );
            self.next = end;
        } else {
            assert!(
                self.given.range(first..end).next().is_none(),
                "{first} twice"
            );
            let again = self.lost.iter().any(|lost| first < lost.1 && lost.0 < end);
            assert!(!again, "{first} after its loss");
        }
    }
}

/// Reads arbitrary bytes, and zeros after their end.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        head
    }

    pub(super) fn u8(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_be_bytes([self.u8(), self.u8(), self.u8(), self.u8()])
    }
}

const PORT: u16 = 7500;
const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 0, 0, 1));
const TSI: Tsi = Tsi {
    gsi: Gsi([9, 8, 7, 6, 5, 4]),
    port: 100,
};

#[cfg(test)]
mod tests {
    use crate::pgm::tests::each_seed;

    #[test]
    fn arbitrary_operations_keep_the_invariants() {
        each_seed(3000, 0..=1500, |_, data| super::receiver_ops(data));
    }
}
