//! Drives a network element with arbitrary operations: four sources, one more than it may carry, on
//! two groups and a tunnel; receivers that ask for anything; forged and broken packets; a driver
//! that sends at any time.
//!
//! The check does not know about repair state. It looks at what the element sends: each packet must
//! be well-formed and go where its kind may go, and data must be as it came. It checks that the
//! counters add up, that the bounds hold, and that silence ends everything.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use base::{Arrival, Budget, Instant, Outcome, PathId, Socket};
use pgm::{Element, ElementSetup, ElementTimers, Way};
use wire::{
    Sqn, checksum,
    pgm::{
        Addressing, Body, ChecksumState, Data, Flags, Gsi, Mark, Nak, NakList, Packet, ParityPrm,
        ParityReading, PgmOption, Poll, Profile, Spm, Tsi, emit_flagged, verify_checksum,
    },
};

use super::receiver::Bytes;

/// Reads arbitrary bytes as operations on a network element.
///
/// **Panics** (bug): when an invariant of the element breaks.
pub fn element_ops(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut play = Play::new(bytes.u8());
    while !bytes.0.is_empty() {
        play.step(&mut bytes);
        play.check();
    }
    play.finish();
}

struct Play {
    element: Element,
    now: Instant,
    spm_sqn: u32,
    /// The next packet of each source.
    leads: [u32; SOURCES],
    /// True when a packet was handed in whose contents the check does not know.
    is_forged: bool,
    packet: Vec<u8>,
}

impl Play {
    fn new(choice: u8) -> Self {
        let ways = (0..WAYS).map(|way| Way {
            path: PathId(way as u8),
            nla: address(way, 254),
            group: group(way),
            control_port: 7600,
        });
        let setup = ElementSetup {
            destination_port: PORT,
            ways: ways.collect(),
            timers: ElementTimers::default(),
            sessions_max: SESSIONS_MAX,
            repairs_max: REPAIRS_MAX,
            queue_bytes_max: if choice & 1 == 0 { 1 << 20 } else { 5_000 },
            kept_bytes_max: [0, 2_000, 100_000][usize::from(choice >> 1) % 3],
            seed: u64::from(choice),
        };
        let start = [0, (1 << 31) - 5, u32::MAX - 5, 77][usize::from(choice >> 4) % 4];
        Self {
            element: Element::new(setup),
            now: Instant::ZERO,
            spm_sqn: 1,
            leads: [start; SOURCES],
            is_forged: false,
            packet: Vec::new(),
        }
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        let op = bytes.u8();
        let source = usize::from(op >> 4) % SOURCES;
        match op % 16 {
            0 | 1 => self.next_data(source, bytes.u8()),
            2 => self.repair(source, bytes),
            3 | 4 => self.spm(source, bytes.u8()),
            5 | 6 => self.nak(source, bytes),
            7 => self.ncf(source, bytes),
            8 => self.request(source, bytes),
            9 => self.broken(source, bytes),
            10 => self.leads[source] = self.leads[source].wrapping_add(bytes.u32()),
            11 | 12 => self.pass(Duration::from_micros(u64::from(bytes.u16()))),
            13 => self.pass(Duration::from_millis(u64::from(bytes.u16() >> 3))),
            _ => {
                self.send(bytes.u8());
            }
        }
        // Most drivers send at once.
        if op & 0x40 == 0 {
            while self.send(0xFF) {}
        }
    }

    /// Hands in a source's next packet, or loses it on the way.
    fn next_data(&mut self, source: usize, shape: u8) {
        let sqn = self.leads[source];
        self.leads[source] = sqn.wrapping_add(1);
        if shape & 3 != 3 {
            self.data(source, sqn, shape);
        }
    }

    fn repair(&mut self, source: usize, bytes: &mut Bytes<'_>) {
        let sqn = self.leads[source].wrapping_sub(u32::from(bytes.u8() % 64));
        let shape = bytes.u8();
        self.data(source, sqn, shape | 0x80);
    }

    /// Hands in a data packet. Its payload follows from its number.
    fn data(&mut self, source: usize, sqn: u32, shape: u8) {
        let data = Data {
            sqn: Sqn(sqn),
            trail: Sqn(sqn.wrapping_sub(40)),
        };
        let body = match shape & 0x80 {
            0 => Body::Odata(data),
            _ => Body::Rdata(data),
        };
        let flags = match shape & 0x40 {
            0 => Flags::NONE,
            _ => Flags::PARITY,
        };
        self.make(source, false, flags, &body, &[], &payload(sqn));
        self.hand(source, shape & 0x30 != 0x30);
    }

    fn spm(&mut self, source: usize, shape: u8) {
        self.spm_sqn = self.spm_sqn.wrapping_add(u32::from(shape & 1));
        let lead = self.leads[source];
        let body = Body::Spm(Spm {
            sqn: Sqn(self.spm_sqn),
            trail: Sqn(lead.wrapping_sub(40)),
            lead: Sqn(lead.wrapping_sub(1)),
            path_nla: home(source),
        });
        let mut mark = Mark::new(Profile::Messages, source as u64);
        mark.control_port = 4000;
        let options = match shape >> 1 & 7 {
            0 => vec![PgmOption::NbrUnreach],
            1 => vec![PgmOption::Fin, PgmOption::Mark(mark)],
            2 | 3 => vec![PgmOption::ParityPrm(ParityPrm::new(
                false,
                true,
                8,
                ParityReading::Lax,
            ))],
            4 => vec![PgmOption::Mark(mark)],
            _ => vec![],
        };
        self.make(source, false, Flags::NONE, &body, &options, &[]);
        self.hand(source, shape & 0x30 != 0x30);
    }

    /// Hands in a NAK of a receiver, mostly of one on another way than the source's.
    fn nak(&mut self, source: usize, bytes: &mut Bytes<'_>) {
        let (shape, list) = (bytes.u8(), self.list(source, bytes));
        let way = usize::from(shape) % WAYS;
        let body = Body::Nak(Nak {
            sqn: list[0],
            source_nla: address(way, 254),
            group_nla: group(way).ip(),
        });
        let options = [PgmOption::NakList(NakList::new(&list[1..]))];
        let options = if list.len() > 1 { &options[..] } else { &[] };
        let flags = match shape & 0xC0 {
            0xC0 => Flags::PARITY,
            _ => Flags::NONE,
        };
        self.make(source, true, flags, &body, options, &[]);
        self.hand_by(way, address(way, 9));
    }

    fn ncf(&mut self, source: usize, bytes: &mut Bytes<'_>) {
        let (shape, list) = (bytes.u8(), self.list(source, bytes));
        let body = Body::Ncf(Nak {
            sqn: list[0],
            source_nla: home(source),
            group_nla: group(source % WAYS).ip(),
        });
        let options = [PgmOption::NakList(NakList::new(&list[1..]))];
        let options = if list.len() > 1 { &options[..] } else { &[] };
        let flags = match shape & 0xC0 {
            0xC0 => Flags::PARITY,
            _ => Flags::NONE,
        };
        self.make(source, false, flags, &body, options, &[]);
        self.hand(source, shape & 0x30 != 0x30);
    }

    /// Returns up to 63 numbers near the lead.
    fn list(&self, source: usize, bytes: &mut Bytes<'_>) -> Vec<Sqn> {
        let first = self.leads[source].wrapping_sub(u32::from(bytes.u8() % 64));
        let step = u32::from(bytes.u8() % 4) + 1;
        let count = u32::from(bytes.u8() % 63) + 1;
        let sqns = (0..count).map(|number| Sqn(first.wrapping_add(number * step)));
        sqns.collect()
    }

    /// Hands in a poll, or a request for an SPM.
    fn request(&mut self, source: usize, bytes: &mut Bytes<'_>) {
        let shape = bytes.u8();
        if shape & 1 == 0 {
            self.make(source, true, Flags::NONE, &Body::Spmr, &[], &[]);
            let way = usize::from(shape >> 1) % WAYS;
            return self.hand_by(way, address(way, 9));
        }
        let body = Body::Poll(Poll {
            sqn: Sqn(u32::from(shape >> 5)),
            round: u16::from(shape >> 4 & 1),
            sub_type: Poll::GENERAL,
            path_nla: home(source),
            back_off_us: u32::from(bytes.u16()),
            random: 0,
            mask: u32::from(shape >> 3 & 1),
        });
        self.make(source, false, Flags::NONE, &body, &[], &[]);
        self.hand(source, shape & 6 != 6);
    }

    /// Hands in arbitrary bytes behind a valid header, so that the parser gets far.
    fn broken(&mut self, source: usize, bytes: &mut Bytes<'_>) {
        self.is_forged = true;
        let (kind, shape) = (bytes.u8(), bytes.u8());
        let len = usize::from(bytes.u8() % 80);
        let rest = bytes.take(len);
        let body = Body::Odata(Data {
            sqn: Sqn(self.leads[source]),
            trail: Sqn(0),
        });
        self.make(source, shape & 1 == 1, Flags::NONE, &body, &[], &[]);
        self.packet.truncate(16);
        self.packet.extend_from_slice(rest);
        self.packet[4] = kind & 0x0F;
        self.packet[5] = kind >> 6 | kind & 0x20 << 2;
        self.packet[6..8].fill(0);
        let tsdu_len = rest.len().saturating_sub(8) as u16;
        self.packet[14..16].copy_from_slice(&tsdu_len.to_be_bytes());
        let check = checksum::finish(checksum::sum(&self.packet));
        self.packet[6..8].copy_from_slice(&check.to_be_bytes());
        match shape & 2 {
            0 => self.hand(source, shape & 4 == 0),
            _ => self.hand_by(usize::from(shape >> 3) % WAYS, home(source)),
        }
    }

    fn make(
        &mut self,
        source: usize,
        is_upstream: bool,
        flags: Flags,
        body: &Body,
        options: &[PgmOption<'_>],
        payload: &[u8],
    ) {
        let tsi = Tsi {
            gsi: Gsi([9, 8, 7, 6, 5, 4]),
            port: 100 + source as u16,
        };
        let addressing = match is_upstream {
            true => Addressing::upstream(tsi, PORT),
            false => Addressing::downstream(tsi, PORT),
        };
        self.packet.clear();
        emit_flagged(&mut self.packet, &addressing, flags, body, options, payload);
    }

    /// Hands in the packet by the way of its source, from the source's address or from another.
    fn hand(&mut self, source: usize, is_real: bool) {
        let way = source % WAYS;
        let from = if is_real {
            home(source)
        } else {
            address(way, 66)
        };
        self.hand_by(way, from);
    }

    fn hand_by(&mut self, way: usize, from: IpAddr) {
        let mut arrival = Arrival::from(SocketAddr::new(from, 1000), Socket::Group);
        arrival.path = PathId(way as u8);
        self.element.handle(self.now, &arrival, &self.packet);
    }

    fn pass(&mut self, duration: Duration) {
        self.now += duration;
        self.element.handle_timeout(self.now);
        let next = self.element.next_timeout();
        assert!(
            next.is_none_or(|next| next > self.now),
            "a deadline stays in the past"
        );
    }

    /// Sends one run. Returns false when none waits.
    fn send(&mut self, choice: u8) -> bool {
        let budget = Budget {
            bytes: 200 << (choice % 8),
            datagrams: usize::from(choice >> 3) + 1,
        };
        let Some(run) = self.element.poll_run(self.now, budget) else {
            return false;
        };
        let datagrams = run.datagram_count();
        assert!(datagrams <= budget.datagrams && !run.is_empty());
        let way = usize::from(run.path.0);
        for datagram in run.datagrams() {
            assert_eq!(verify_checksum(datagram), ChecksumState::Good);
            let packet = Packet::parse(datagram).expect("an element's own packet");
            if packet.header().kind.is_upstream() {
                let is_neighbour = (0..SOURCES).any(|it| run.to.ip() == home(it));
                assert!(is_neighbour || self.is_forged, "to {}", run.to);
            } else {
                assert_eq!(run.to, group(way));
            }
            if let Body::Odata(data) | Body::Rdata(data) = packet.body()
                && !self.is_forged
            {
                assert!(packet.tsdu() == payload(data.sqn.0), "{packet}");
            }
        }
        let outcome = match choice % 4 {
            0 => Outcome::Blocked,
            1 => Outcome::Failed,
            _ => Outcome::Sent {
                datagrams: datagrams.min(usize::from(choice >> 2) + 1),
            },
        };
        self.element.run_done(self.now, outcome);
        true
    }

    fn check(&self) {
        let counters = self.element.counters();
        let sum = counters.handled_packets + self.element.drops().total();
        assert_eq!(counters.seen_packets, sum, "a packet is counted once");
        assert!(self.element.session_count() <= SESSIONS_MAX);
        assert!(self.element.repair_count() <= 2 * REPAIRS_MAX);
    }

    /// Stays silent: every session must end, and nothing of it may be kept.
    fn finish(&mut self) {
        while self.send(0xFF) {}
        self.pass(Duration::from_secs(61));
        assert_eq!(
            self.element.session_count(),
            0,
            "a silent session did not end"
        );
        assert_eq!(self.element.repair_count(), 0);
        assert_eq!(self.element.next_timeout(), None);
    }
}

/// Returns the address of a host on a way.
const fn address(way: usize, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, way as u8, host))
}

/// Returns where packets on a way go: the last way is a tunnel.
const fn group(way: usize) -> SocketAddr {
    let ip = match way {
        TUNNEL => address(TUNNEL, 9),
        _ => IpAddr::V4(Ipv4Addr::new(239, 1, way as u8, 1)),
    };
    SocketAddr::new(ip, PORT)
}

/// Returns the address of a source.
const fn home(source: usize) -> IpAddr {
    match source % WAYS {
        TUNNEL => address(TUNNEL, 9),
        way => address(way, 1),
    }
}

/// Returns what the packet with this number carries.
fn payload(sqn: u32) -> Vec<u8> {
    vec![sqn as u8; 100 + sqn as usize % 50]
}

const PORT: u16 = 7500;
const SOURCES: usize = 4;
const SESSIONS_MAX: usize = 3;
const REPAIRS_MAX: usize = 100;
const WAYS: usize = 3;
const TUNNEL: usize = WAYS - 1;

#[cfg(test)]
mod tests {
    use crate::pgm::tests::each_seed;

    #[test]
    fn arbitrary_operations_keep_the_invariants() {
        each_seed(3000, 0..=1500, |_, data| super::element_ops(data));
    }
}
