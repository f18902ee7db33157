//! A source under test with a wire monitor behind it and a forged receiver, in virtual time.
#![allow(dead_code, reason = "each test binary uses its own part of the kit")]
#![allow(
    clippy::unwrap_used,
    reason = "test code, though not in a test function"
)]

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

#[path = "../addresses/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "a test may use both kits")]
mod addresses;
#[allow(
    unused_imports,
    reason = "each test binary uses its own part of the kit"
)]
pub(crate) use addresses::{addresses, over_each_kind};

use base::{Arrival, Budget, Instant, Outcome, Pace, PathId, Socket, Verdict};
use towline_pgm::{Config, ConfigBuilder, Rate, Source, SourceSetup};
use wire::{
    Sqn,
    pgm::{
        Addressing, Body, ChecksumState, Gsi, Mark, Nak, NakList, Packet, PacketType, PgmOption,
        Profile, Spm, Tsi, emit, verify_checksum,
    },
};

pub(crate) const PORT: u16 = 7500;
pub(crate) const TSI: Tsi = Tsi {
    gsi: Gsi([1, 2, 3, 4, 5, 6]),
    port: 4321,
};
pub(crate) const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const RECEIVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub(crate) const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 192, 0, 1));
/// IPv4 and UDP headers of each datagram.
pub(crate) const OVERHEAD: usize = 28;

/// One datagram as the wire monitor saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    /// Which run it belonged to.
    pub(crate) run: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Seen {
    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).unwrap()
    }

    pub(crate) fn kind(&self) -> PacketType {
        self.packet().header().kind
    }

    pub(crate) fn spm(&self) -> Option<Spm> {
        match self.packet().body() {
            Body::Spm(spm) => Some(spm),
            _ => None,
        }
    }

    /// The sequence number of ODATA or RDATA.
    pub(crate) fn data_sqn(&self) -> Option<u32> {
        match self.packet().body() {
            Body::Odata(data) | Body::Rdata(data) => Some(data.sqn.0),
            _ => None,
        }
    }

    /// Every sequence number of an NCF, the list included.
    pub(crate) fn ncf_sqns(&self) -> Option<Vec<u32>> {
        let packet = self.packet();
        let Body::Ncf(ncf) = packet.body() else {
            return None;
        };
        let mut sqns = vec![ncf.sqn.0];
        for option in packet.options() {
            if let PgmOption::NakList(list) = option {
                sqns.extend(list.iter().map(|sqn| sqn.0));
            }
        }
        Some(sqns)
    }

    pub(crate) fn on_wire(&self) -> usize {
        self.bytes.len() + addresses().overhead()
    }

    pub(crate) fn ms(&self) -> u64 {
        self.at.as_nanos() / 1_000_000
    }
}

pub(crate) struct Bench {
    pub(crate) source: Source,
    pub(crate) now: Instant,
    pub(crate) seen: Vec<Seen>,
    runs: usize,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(Config::builder(), 0)
    }

    /// A bench whose parameters differ from the defaults as `settings` say.
    pub(crate) fn set(settings: &[(&str, &str)]) -> Self {
        let mut builder = Config::builder();
        for (name, text) in settings {
            builder.set(name, text).unwrap();
        }
        Self::with(builder, 0)
    }

    /// A bench that sends at most so many bytes a second.
    pub(crate) fn paced(bytes_per_s: u64, first_sqn: u32) -> Self {
        let rate = Rate::Fixed(Pace::of(bytes_per_s));
        Self::with(Config::builder().rate(rate), first_sqn)
    }

    pub(crate) fn with(builder: ConfigBuilder, first_sqn: u32) -> Self {
        let setup = SourceSetup {
            tsi: TSI,
            destination_port: PORT,
            group: SocketAddr::new(addresses().group, PORT),
            nla: addresses().source,
            path: PathId(0),
            first_sqn,
            seed: 1,
            mark: Some(Mark::new(Profile::Messages, 42)),
        };
        Self {
            source: Source::new(builder.build().unwrap(), setup, START),
            now: START,
            seen: Vec::new(),
            runs: 0,
        }
    }

    /// Sends everything that is due at this moment.
    pub(crate) fn drain(&mut self) {
        while let Some(run) = self.source.poll_run(self.now, BUDGET) {
            let datagrams: Vec<_> = run.datagrams().map(<[u8]>::to_vec).collect();
            let outcome = Outcome::Sent {
                datagrams: datagrams.len(),
            };
            for bytes in datagrams {
                let packet = Packet::parse(&bytes).unwrap();
                assert_eq!(verify_checksum(&bytes), ChecksumState::Good, "{packet}");
                self.seen.push(Seen {
                    at: self.now,
                    run: self.runs,
                    bytes,
                });
            }
            self.runs += 1;
            self.source.run_done(self.now, outcome);
        }
    }

    /// Lets `time` pass; the host wakes exactly when the source asks it to.
    pub(crate) fn run_for(&mut self, time: Duration) {
        self.run_late(time, |_| Duration::ZERO);
    }

    /// Lets `time` pass; each wake-up is late by what `lateness` says of its number.
    pub(crate) fn run_late(&mut self, time: Duration, lateness: impl Fn(u64) -> Duration) {
        let end = self.now + time;
        for wake in 0.. {
            self.drain();
            let due = self.source.next_timeout().unwrap_or(Instant::NEVER);
            if due > end {
                break;
            }
            self.now = (due.max(self.now) + lateness(wake)).min(end);
            self.source.handle_timeout(self.now);
        }
        self.now = end;
        self.drain();
    }

    pub(crate) fn ms(&mut self, ms: u64) {
        self.run_for(Duration::from_millis(ms));
    }

    /// Forgets what was seen so far.
    pub(crate) fn forget(&mut self) {
        self.seen.clear();
    }

    /// Offers `count` messages of `len` bytes and sends them.
    pub(crate) fn send(&mut self, count: usize, len: usize) {
        for _ in 0..count {
            self.source.offer(&vec![7; len]).unwrap();
        }
        self.drain();
    }

    /// Keeps offering messages of `len` bytes for `time`.
    pub(crate) fn flood(&mut self, time: Duration, len: usize) {
        let end = self.now + time;
        let message = vec![7; len];
        while self.now < end {
            while self.source.offer(&message).is_ok() {}
            let due = self.source.next_timeout().unwrap_or(end);
            self.now = self.now.max(due).min(end);
            self.drain();
        }
    }

    /// A packet of a receiver that reports.
    pub(crate) fn upstream(&mut self, bytes: &[u8]) -> Verdict {
        let arrival = Arrival::from(
            SocketAddr::new(addresses().receiver, 40_000),
            Socket::Upstream,
        );
        self.source.handle_reporter(self.now, &arrival, bytes)
    }

    /// A packet of a host that does not report.
    pub(crate) fn stranger(&mut self, host: IpAddr, bytes: &[u8]) -> Verdict {
        let arrival = Arrival::from(SocketAddr::new(host, 40_000), Socket::Upstream);
        self.source.handle(self.now, &arrival, bytes)
    }

    /// A NAK for `sqns`; the first is in the body, the others in a list.
    pub(crate) fn nak(&mut self, sqns: &[u32]) -> Verdict {
        self.upstream(&nak(sqns))
    }

    pub(crate) fn spmr(&mut self) -> Verdict {
        self.upstream(&upstream(&Body::Spmr, &[]))
    }

    pub(crate) fn of(&self, kind: PacketType) -> Vec<&Seen> {
        self.seen
            .iter()
            .filter(|seen| seen.kind() == kind)
            .collect()
    }

    /// Sequence numbers of the data packets of one type, in order.
    pub(crate) fn sqns(&self, kind: PacketType) -> Vec<u32> {
        let seen = self.of(kind);
        seen.iter().filter_map(|seen| seen.data_sqn()).collect()
    }

    pub(crate) fn kinds(&self) -> Vec<PacketType> {
        self.seen.iter().map(Seen::kind).collect()
    }

    /// The most by which any interval's bytes exceed `rate` times its length.
    pub(crate) fn excess_bytes(&self, rate: u64) -> u64 {
        let (mut excess, mut worst, mut last) = (0_u128, 0_u128, START);
        for seen in &self.seen {
            let passed = seen.at.since(last).as_nanos() * u128::from(rate);
            excess = excess.saturating_sub(passed) + (seen.on_wire() as u128) * NS_PER_S;
            worst = worst.max(excess);
            last = seen.at;
        }
        u64::try_from(worst.div_ceil(NS_PER_S)).unwrap()
    }

    /// Bytes of the longest run on the wire.
    pub(crate) fn longest_run_bytes(&self) -> u64 {
        let runs = self.seen.chunk_by(|a, b| a.run == b.run);
        let longest = runs.map(|run| run.iter().map(Seen::on_wire).sum::<usize>());
        longest.max().unwrap_or(0) as u64
    }

    pub(crate) fn wire_bytes(&self) -> u64 {
        self.seen.iter().map(|seen| seen.on_wire() as u64).sum()
    }
}

/// A packet that travels from a receiver to the source.
pub(crate) fn upstream(body: &Body, options: &[PgmOption<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    emit(
        &mut bytes,
        &Addressing::upstream(TSI, PORT),
        body,
        options,
        &[],
    );
    bytes
}

pub(crate) fn nak(sqns: &[u32]) -> Vec<u8> {
    let body = nak_body(sqns[0]);
    let list: Vec<_> = sqns[1..].iter().map(|&sqn| Sqn(sqn)).collect();
    match &list[..] {
        [] => upstream(&Body::Nak(body), &[]),
        list => upstream(&Body::Nak(body), &[PgmOption::NakList(NakList::new(list))]),
    }
}

pub(crate) fn nak_body(sqn: u32) -> Nak {
    Nak {
        sqn: Sqn(sqn),
        source_nla: addresses().source,
        group_nla: addresses().group,
    }
}

pub(crate) const BUDGET: Budget = Budget {
    bytes: 64_000,
    datagrams: 128,
};
/// When the source is made: long after the clock's origin.
pub(crate) const START: Instant = Instant::from_nanos(10_000_000_000);
const NS_PER_S: u128 = 1_000_000_000;
