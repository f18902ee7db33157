//! A hostile host: it listens to the group and sends packets that no correct program sends.
//!
//! It sends from its own network address. Where the plan says so, also from the address of the host
//! that it imitates: messages without a key have no defence against that.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use base::{Instant, Io as _, PathId, RecvBatch, Rng, Run, Segments};
use wire::{
    Sqn,
    pgm::{Addressing, Body, Gsi, Nak, NakList, Packet, PgmOption, Rst, Spm, Tsi, emit},
};

use crate::{
    SimIo,
    frame::{forge, index, seal},
    plan::{Forgery, IntruderPlan},
};

/// The intruder's process.
#[derive(Debug)]
pub struct IntruderNode {
    io: SimIo,
    batch: RecvBatch,
    rng: Rng,
    plan: IntruderPlan,
    group: SocketAddr,
    /// Packets heard, each with its source. Beyond [`HEARD_MAX`], a new packet replaces the oldest.
    heard: Vec<(SocketAddr, Vec<u8>)>,
    /// The sessions whose data was heard. By then, all receivers that the session waited for know
    /// it.
    begun: BTreeSet<[u8; 8]>,
    next: usize,
    due: Instant,
    until: Instant,
}

impl IntruderNode {
    /// Starts an intruder on `io`.
    pub fn new(io: SimIo, plan: IntruderPlan, group: SocketAddr, seed: u64) -> Self {
        let now = io.world_now();
        Self {
            io,
            batch: RecvBatch::new(8, 2048),
            rng: Rng::new(seed),
            plan,
            group,
            heard: Vec::new(),
            begun: BTreeSet::new(),
            next: 0,
            due: now,
            until: now + plan.stops_after.0,
        }
    }

    /// Makes one turn: listens, and sends a packet when one is due.
    pub fn turn(&mut self) {
        let now = self.io.now();
        self.listen();
        if now >= self.until {
            return;
        }
        if now >= self.due {
            let gap = self.rng.duration_up_to(self.plan.gap.0 * 2);
            self.due = now + gap.max(Duration::from_micros(1));
            self.speak();
        }
        self.io.wait(Some(self.due));
    }

    fn listen(&mut self) {
        self.batch.clear();
        if self.io.recv(&mut self.batch).is_err() {
            return;
        }
        for (datagram, bytes) in self.batch.datagrams() {
            for tpdu in Segments::new(bytes, datagram.segment) {
                let known = (datagram.arrival.source, tpdu.to_vec());
                if let Some((_, name)) = session_of(tpdu).filter(|(is_data, _)| *is_data) {
                    self.begun.insert(name);
                }
                if self.heard.len() < HEARD_MAX {
                    self.heard.push(known);
                } else {
                    self.heard[self.next % HEARD_MAX] = known;
                    self.next += 1;
                }
            }
        }
    }

    fn speak(&mut self) {
        let template = match self.heard.len() as u64 {
            0 => None,
            count => Some(self.heard[index(self.rng.below(count))].clone()),
        };
        let has_begun = |(_, tpdu): &(SocketAddr, Vec<u8>)| {
            session_of(tpdu).is_some_and(|(_, name)| self.begun.contains(&name))
        };
        let imitates = self.plan.forges == Forgery::Senders && template.is_some();
        let forges = imitates
            || self.plan.forges == Forgery::Sessions && template.as_ref().is_some_and(has_begun);
        let real = template.as_ref().map(|(source, _)| *source);
        let (mut to, mut bytes) = (self.group, Vec::new());
        let kinds = if imitates { 12 } else { 8 };
        match (self.rng.below(kinds), template) {
            (0, _) => self.random(&mut bytes),
            (1, _) => self.plausible(&mut bytes),
            (2, _) => self.stranger(&mut bytes),
            (3, Some((source, tpdu))) => {
                to = self.naks(source, &tpdu, &mut bytes);
            }
            (4, Some((source, tpdu))) if forges => {
                to = self.target(source);
                bytes = tpdu;
                forge(&mut bytes, &mut self.rng);
            }
            (5, Some((_, tpdu))) if forges => bytes = self.far(tpdu),
            (6, Some((_, tpdu))) if forges => bytes = tpdu,
            (8, Some((_, mut tpdu))) => {
                forge(&mut tpdu, &mut self.rng);
                bytes = tpdu;
            }
            (9..12, Some((source, tpdu))) => self.order(source, &tpdu, &mut bytes),
            _ => self.classic(&mut bytes),
        }
        let all = 0..bytes.len();
        let run = Run {
            path: PathId(0),
            to,
            hops: None,
            segment: bytes.len().max(1),
            memory: &bytes,
            ranges: std::slice::from_ref(&all),
        };
        match real.filter(|_| imitates && self.rng.chance(3, 4)) {
            Some(source) => self.io.send_as(source, &run),
            None => self.io.send(&run),
        };
    }

    /// Returns the destination of a packet: the group or the host behind `source`.
    fn target(&mut self, source: SocketAddr) -> SocketAddr {
        if self.rng.chance(1, 2) {
            self.group
        } else {
            SocketAddr::new(source.ip(), self.group.port())
        }
    }

    fn random(&mut self, bytes: &mut Vec<u8>) {
        bytes.resize(index(self.rng.below(120)) + 1, 0);
        self.rng.fill(bytes);
    }

    /// Makes random bytes with an existing packet type and a correct checksum.
    fn plausible(&mut self, bytes: &mut Vec<u8>) {
        bytes.resize(index(self.rng.between(16, 120)), 0);
        self.rng.fill(bytes);
        bytes[2..4].copy_from_slice(&self.group.port().to_be_bytes());
        bytes[4] = [0, 4, 5, 8, 9, 10, 12][index(self.rng.below(7))];
        bytes[5] &= 0x03;
        let len = u16::try_from(bytes.len().saturating_sub(24)).unwrap_or(0);
        bytes[14..16].copy_from_slice(&len.to_be_bytes());
        seal(bytes);
    }

    /// Makes an SPM of a sender that nobody has heard of.
    fn stranger(&mut self, bytes: &mut Vec<u8>) {
        let mut gsi = [0; 6];
        self.rng.fill(&mut gsi);
        let tsi = Tsi {
            gsi: Gsi(gsi),
            port: self.rng.next_u32() as u16,
        };
        let addressing = Addressing::downstream(tsi, self.group.port());
        let lead = self.rng.next_u32();
        let spm = Spm {
            sqn: Sqn(self.rng.next_u32()),
            trail: Sqn(lead.wrapping_sub(self.rng.next_u32() % 1000)),
            lead: Sqn(lead),
            path_nla: self.io.local_ip(),
        };
        emit(bytes, &addressing, &Body::Spm(spm), &[], &[]);
    }

    /// Makes a NAK list for packets that the sender of a heard packet may or may not have. Returns
    /// where to send it.
    fn naks(&mut self, source: SocketAddr, tpdu: &[u8], bytes: &mut Vec<u8>) -> SocketAddr {
        let Ok(packet) = Packet::parse(tpdu) else {
            return self.group;
        };
        let tsi = packet.header().tsi();
        let near = match packet.body() {
            Body::Odata(data) | Body::Rdata(data) => data.sqn,
            Body::Spm(spm) => spm.lead,
            _ => Sqn(self.rng.next_u32()),
        };
        let first = near
            .0
            .wrapping_sub(self.rng.next_u32() % 100)
            .wrapping_add(20);
        let nak = Nak {
            sqn: Sqn(first),
            source_nla: source.ip(),
            group_nla: self.group.ip(),
        };
        let count = u32::try_from(self.rng.between(1, 62)).unwrap_or(1);
        let list: Vec<Sqn> = (1..=count).map(|n| Sqn(first.wrapping_add(n))).collect();
        let list = NakList::new(&list);
        let addressing = Addressing::upstream(tsi, self.group.port());
        emit(
            bytes,
            &addressing,
            &Body::Nak(nak),
            &[PgmOption::NakList(list)],
            &[],
        );
        self.target(source)
    }

    /// Makes an SPM for the session of a heard packet. It ends the session, resets it, or moves its
    /// window.
    fn order(&mut self, source: SocketAddr, tpdu: &[u8], bytes: &mut Vec<u8>) {
        let Ok(packet) = Packet::parse(tpdu) else {
            return;
        };
        let lead = match packet.body() {
            Body::Odata(data) | Body::Rdata(data) => data.sqn,
            Body::Spm(spm) => spm.lead,
            _ => return,
        };
        let ahead = [0, 1, 100, 100_000][index(self.rng.below(4))];
        let lead = Sqn(lead.0.wrapping_add(ahead));
        let kept = [0, 1, 1_000][index(self.rng.below(3))];
        let spm = Spm {
            sqn: Sqn(self.rng.next_u32()),
            trail: Sqn(lead.0.wrapping_sub(kept)),
            lead,
            path_nla: source.ip(),
        };
        let reset = Rst {
            is_deaf: false,
            reason: 0,
        };
        let options = [PgmOption::Fin, PgmOption::Rst(reset)];
        let chosen = index(self.rng.below(3));
        let options = options.get(chosen..=chosen).unwrap_or_default();
        let addressing = Addressing::downstream(packet.header().tsi(), self.group.port());
        emit(bytes, &addressing, &Body::Spm(spm), options, &[]);
    }

    /// Moves a heard packet far ahead or back. Each of sequence number, trail and lead moves with a
    /// chance of one half.
    fn far(&mut self, mut tpdu: Vec<u8>) -> Vec<u8> {
        let jumps = [1 << 31, (1 << 31) - 1, 1_000_000, 5_000, u32::MAX - 1_000];
        let jump = jumps[index(self.rng.below(jumps.len() as u64))];
        for at in [16, 20, 24] {
            if let Some(field) = tpdu.get_mut(at..at + 4)
                && self.rng.chance(1, 2)
                && let Ok(bytes) = <[u8; 4]>::try_from(&*field)
            {
                field.copy_from_slice(&u32::from_be_bytes(bytes).wrapping_add(jump).to_be_bytes());
            }
        }
        seal(&mut tpdu);
        tpdu
    }

    /// Makes a packet that is known to have stopped other implementations.
    fn classic(&mut self, bytes: &mut Vec<u8>) {
        let odata = [0, 7, 0x1d, 0x4c, 4, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0];
        match self.rng.below(4) {
            // Nothing at all.
            0 => {}
            // ODATA that ends with its header.
            1 => bytes.extend(odata),
            // An option of length 0.
            2 => {
                bytes.extend(odata);
                bytes[5] = 1;
                bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 4, 0, 12, 1, 0, 0, 0, 0, 0, 0, 0]);
            }
            // Options that claim to be longer than the packet.
            _ => {
                bytes.extend(odata);
                bytes[5] = 1;
                bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 4, 0xff, 0xff, 0x81, 255, 0, 0]);
            }
        }
        seal(bytes);
    }
}

/// Returns the session that a downstream packet belongs to, and whether the packet is new data.
fn session_of(tpdu: &[u8]) -> Option<(bool, [u8; 8])> {
    const DOWNSTREAM: [u8; 4] = [0, 4, 5, 10];
    let mut name = [0; 8];
    name[..6].copy_from_slice(tpdu.get(8..14)?);
    name[6..].copy_from_slice(tpdu.get(..2)?);
    DOWNSTREAM
        .contains(&tpdu[4])
        .then_some((tpdu[4] == 4, name))
}

const HEARD_MAX: usize = 64;
