//! A receiver under test with a forged sender before it, in virtual time.
#![allow(dead_code, reason = "each test binary uses its own part of the kit")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

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

use base::{Arrival, Budget, DropReason, Instant, Outcome, PathId, Socket, Verdict};
use towline_pgm::{Config, ConfigBuilder, Mode, Ready, Receiver, ReceiverSetup};
use wire::{
    Sqn,
    pgm::{
        Addressing, Body, Data, Fragment, Gsi, Mark, Nak, NakList, Packet, PgmOption, Spm, Tsi,
        emit,
    },
};

pub(crate) const PORT: u16 = 7500;
pub(crate) const TSI: Tsi = Tsi {
    gsi: Gsi([1, 2, 3, 4, 5, 6]),
    port: 4321,
};
pub(crate) const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const NEIGHBOUR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
pub(crate) const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub(crate) const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 192, 0, 1));

/// What the application saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Found(Tsi),
    Message(u64, Vec<u8>),
    Lost(u64, u64),
    Mark(Mark),
    Ended,
    Expired,
    Reset,
}

/// A packet that the receiver sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) to: SocketAddr,
    pub(crate) hops: Option<u8>,
    pub(crate) bytes: Vec<u8>,
}

impl Sent {
    pub(crate) fn body(&self) -> Body {
        Packet::parse(&self.bytes).unwrap().body()
    }

    pub(crate) fn is_spmr(&self) -> bool {
        self.body() == Body::Spmr
    }

    /// The sequence numbers of a NAK; none for anything else.
    pub(crate) fn nak_sqns(&self) -> Vec<u32> {
        let packet = Packet::parse(&self.bytes).unwrap();
        let Body::Nak(nak) = packet.body() else {
            return Vec::new();
        };
        let mut sqns = vec![nak.sqn.0];
        for option in packet.options() {
            if let PgmOption::NakList(list) = option {
                sqns.extend(list.iter().map(|sqn| sqn.0));
            }
        }
        sqns
    }
}

pub(crate) struct Bench {
    pub(crate) receiver: Receiver,
    pub(crate) now: Instant,
    pub(crate) events: Vec<Event>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) spm_sqn: u32,
    pub(crate) trail: u32,
}

impl Bench {
    pub(crate) fn new(mode: Mode) -> Self {
        Self::with(mode, Config::builder())
    }

    pub(crate) fn with(mode: Mode, config: ConfigBuilder) -> Self {
        Self::open(mode, config, false)
    }

    /// Of packets that were protected with a key on the way.
    pub(crate) fn protected(mode: Mode) -> Self {
        Self::open(mode, Config::builder(), true)
    }

    fn open(mode: Mode, config: ConfigBuilder, is_protected: bool) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let setup = ReceiverSetup {
            mode,
            destination_port: PORT,
            group: SocketAddr::new(addresses().group, PORT),
            path: PathId(0),
            seed: 7,
            is_protected,
            own_nla: addresses().receiver,
        };
        Self {
            receiver: Receiver::new(config.build().unwrap(), setup, now),
            now,
            events: Vec::new(),
            sent: Vec::new(),
            spm_sqn: 3200,
            trail: 0,
        }
    }

    /// Hands a packet from `source` in, and pops what became ready.
    pub(crate) fn packet_from(&mut self, source: IpAddr, bytes: &[u8]) -> Verdict {
        let arrival = Arrival::from(SocketAddr::new(source, 40_000), Socket::Group);
        let verdict = self.receiver.handle(self.now, &arrival, bytes);
        if let Verdict::Payload {
            position, range, ..
        } = &verdict
        {
            let payload = bytes[range.clone()].to_vec();
            self.events.push(Event::Message(*position, payload));
        }
        self.pop();
        verdict
    }

    pub(crate) fn packet(&mut self, bytes: &[u8]) -> Verdict {
        self.packet_from(addresses().source, bytes)
    }

    pub(crate) fn pop(&mut self) {
        while let Some(ready) = self.receiver.pop_ready() {
            self.events.push(match ready {
                Ready::Message { position, data, .. } => Event::Message(position, data.to_vec()),
                Ready::Lost { first, count, .. } => Event::Lost(first, count),
                Ready::Found { tsi, .. } => Event::Found(tsi),
                Ready::Mark { mark, .. } => Event::Mark(mark),
                Ready::Ended { .. } => Event::Ended,
                Ready::Expired { .. } => Event::Expired,
                Ready::Reset { .. } => Event::Reset,
            });
        }
        assert!(!self.receiver.has_ready());
    }

    pub(crate) fn odata(&mut self, sqn: u32, payload: &[u8]) -> Verdict {
        let packet = odata(sqn, self.trail, &[], payload);
        self.packet(&packet)
    }

    pub(crate) fn rdata(&mut self, sqn: u32, payload: &[u8]) -> Verdict {
        let packet = rdata(sqn, self.trail, &[], payload);
        self.packet(&packet)
    }

    pub(crate) fn fragment(
        &mut self,
        sqn: u32,
        first: u32,
        offset: u32,
        apdu: &[u8],
        len: usize,
    ) -> Verdict {
        let option = PgmOption::Fragment(Fragment {
            first: Sqn(first),
            offset,
            apdu_len: apdu.len() as u32,
        });
        let at = offset as usize;
        let packet = odata(sqn, self.trail, &[option], &apdu[at..at + len]);
        self.packet(&packet)
    }

    /// The next SPM in sequence.
    pub(crate) fn spm(&mut self, lead: u32, options: &[PgmOption<'_>]) -> Verdict {
        self.spm_sqn = self.spm_sqn.wrapping_add(1);
        let packet = spm(self.spm_sqn, self.trail, lead, options);
        self.packet(&packet)
    }

    pub(crate) fn ncf(&mut self, sqns: &[u32]) -> Verdict {
        let packet = nak_like(Body::Ncf, false, sqns);
        self.packet(&packet)
    }

    /// A NAK that another receiver multicast.
    pub(crate) fn heard_nak(&mut self, sqns: &[u32]) -> Verdict {
        let packet = nak_like(Body::Nak, true, sqns);
        self.packet_from(addresses().others[0], &packet)
    }

    /// Lets time pass, doing everything that is due on the way, at its own time.
    pub(crate) fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        self.send();
        while let Some(due) = self.receiver.next_timeout().filter(|&due| due <= end) {
            let before = (self.now, due);
            self.now = self.now.max(due);
            self.receiver.handle_timeout(self.now);
            self.pop();
            self.send();
            let after = self.receiver.next_timeout();
            assert!(
                after.is_none_or(|next| next > self.now),
                "no progress: {before:?} {after:?}"
            );
        }
        self.now = end;
    }

    pub(crate) fn pass_ms(&mut self, ms: u64) {
        self.pass(Duration::from_millis(ms));
    }

    /// Collects what the receiver wants to send.
    pub(crate) fn send(&mut self) {
        let budget = Budget {
            bytes: 64_000,
            datagrams: 128,
        };
        while let Some(run) = self.receiver.poll_run(self.now, budget) {
            let datagrams = run.datagram_count();
            for bytes in run.datagrams() {
                self.sent.push(Sent {
                    at: self.now,
                    to: run.to,
                    hops: run.hops,
                    bytes: bytes.to_vec(),
                });
            }
            self.receiver
                .run_done(self.now, Outcome::Sent { datagrams });
        }
    }

    pub(crate) fn take_sent(&mut self) -> Vec<Sent> {
        self.send();
        std::mem::take(&mut self.sent)
    }

    /// The sequence numbers asked for since the last look.
    pub(crate) fn take_naks(&mut self) -> Vec<u32> {
        let sent = self.take_sent();
        sent.iter().flat_map(Sent::nak_sqns).collect()
    }

    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        self.pop();
        std::mem::take(&mut self.events)
    }

    /// The payloads of the messages seen so far, as text, and losses as their counts.
    pub(crate) fn take_texts(&mut self) -> Vec<String> {
        let events = self.take_events();
        let text = |event| match event {
            Event::Message(_, data) => String::from_utf8(data).unwrap(),
            Event::Lost(_, count) => format!("-{count}"),
            Event::Found(_) => "found".to_owned(),
            Event::Mark(_) => "mark".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        };
        events.into_iter().map(text).collect()
    }

    /// `seen = payload + held + control + drops`.
    pub(crate) fn assert_accounts(&self) {
        let counters = self.receiver.counters();
        let sum = counters.payload_packets
            + counters.held_packets
            + counters.control_packets
            + self.receiver.drops().total();
        assert_eq!(counters.seen_packets, sum, "{counters:?}");
    }
}

/// A receiver that has the data packet `sqn`, and SPMs that are worth 400 short NAKs, with nothing
/// to report.
pub(crate) fn joined(mode: Mode, sqn: u32) -> Bench {
    joined_with(mode, Config::builder(), sqn)
}

pub(crate) fn joined_with(mode: Mode, config: ConfigBuilder, sqn: u32) -> Bench {
    let mut bench = Bench::with(mode, config);
    bench.trail = sqn;
    for _ in 0..400 {
        bench.spm(sqn.wrapping_sub(1), &[]);
    }
    bench.odata(sqn, b"first");
    assert_eq!(bench.take_texts(), ["found", "first"]);
    assert!(bench.take_sent().is_empty());
    bench
}

pub(crate) fn downstream() -> Addressing {
    downstream_of(TSI)
}

pub(crate) fn downstream_of(tsi: Tsi) -> Addressing {
    Addressing {
        source_port: tsi.port,
        destination_port: PORT,
        gsi: tsi.gsi,
    }
}

pub(crate) fn upstream() -> Addressing {
    Addressing {
        source_port: PORT,
        destination_port: TSI.port,
        gsi: TSI.gsi,
    }
}

pub(crate) fn made(
    addressing: &Addressing,
    body: &Body,
    options: &[PgmOption<'_>],
    tsdu: &[u8],
) -> Vec<u8> {
    let mut out = Vec::new();
    emit(&mut out, addressing, body, options, tsdu);
    out
}

pub(crate) fn odata(sqn: u32, trail: u32, options: &[PgmOption<'_>], payload: &[u8]) -> Vec<u8> {
    made(
        &downstream(),
        &Body::Odata(data(sqn, trail)),
        options,
        payload,
    )
}

pub(crate) fn rdata(sqn: u32, trail: u32, options: &[PgmOption<'_>], payload: &[u8]) -> Vec<u8> {
    made(
        &downstream(),
        &Body::Rdata(data(sqn, trail)),
        options,
        payload,
    )
}

pub(crate) fn spm(spm_sqn: u32, trail: u32, lead: u32, options: &[PgmOption<'_>]) -> Vec<u8> {
    let body = Body::Spm(Spm {
        sqn: Sqn(spm_sqn),
        trail: Sqn(trail),
        lead: Sqn(lead),
        path_nla: addresses().source,
    });
    made(&downstream(), &body, options, &[])
}

pub(crate) fn nak_like(kind: impl Fn(Nak) -> Body, is_upstream: bool, sqns: &[u32]) -> Vec<u8> {
    let body = kind(Nak {
        sqn: Sqn(sqns[0]),
        source_nla: addresses().source,
        group_nla: addresses().group,
    });
    let more: Vec<_> = sqns[1..].iter().map(|&sqn| Sqn(sqn)).collect();
    let addressing = if is_upstream {
        upstream()
    } else {
        downstream()
    };
    match more.as_slice() {
        [] => made(&addressing, &body, &[], &[]),
        list => made(
            &addressing,
            &body,
            &[PgmOption::NakList(NakList::new(list))],
            &[],
        ),
    }
}

pub(crate) const fn data(sqn: u32, trail: u32) -> Data {
    Data {
        sqn: Sqn(sqn),
        trail: Sqn(trail),
    }
}

pub(crate) fn dropped(reason: DropReason) -> Verdict {
    Verdict::Drop(reason)
}

pub(crate) fn nak_body(sqn: u32) -> Nak {
    Nak {
        sqn: Sqn(sqn),
        source_nla: addresses().source,
        group_nla: addresses().group,
    }
}
