//! Hostile packets against a live receiver and a live source, while real traffic runs.
//!
//! Two attackers: one on a host of its own, and one on the sender's host, whose packets carry the
//! sender's own address and so pass for its own.

use std::{
    io::IoSlice,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::AsFd as _,
    thread,
    time::{Duration, Instant},
};

use lab::{Host, Lab, LabSpec};
use serde_json::Value;
use sys::{RawAddress, message::Control};
use wire::{
    Sqn,
    checksum::{finish, sum},
    pgm::{
        Addressing, Body, Data, Gsi, Nak, NakList, Packet, PacketType, PgmOption, Spm, Tsi, emit,
    },
};

use crate::ends::{End, alone, towline};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 192, 0, 1);
const PORT: u16 = 7500;
const LIMIT: Duration = Duration::from_secs(120);
/// Real traffic: a message a packet.
const MESSAGES: u64 = 110_000;
const RATE: &str = "10MB/s";

/// Who attacks, from where, and what it has learned of the session.
struct Attacker<'a> {
    socket: UdpSocket,
    session: &'a Session,
    random: u64,
    packet: Vec<u8>,
    sent: u64,
}

/// What anybody in the group can hear.
struct Session {
    tsi: Tsi,
    source: Ipv4Addr,
    spm: Spm,
    /// Where data was when it was heard.
    sqn: Sqn,
}

/// Listens to the group until it has heard data and an SPM.
fn overhear(host: &Host) -> Session {
    let socket = host.enter(|| UdpSocket::bind((GROUP, PORT))).unwrap();
    let socket = socket.unwrap();
    host.enter(|| socket.join_multicast_v4(&GROUP, &host.ipv4()))
        .unwrap()
        .unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let (mut spm, mut data) = (None, None);
    let mut buffer = vec![0; 65_536];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        let packet = Packet::parse(&buffer[..len]).unwrap();
        match packet.body() {
            Body::Spm(heard) => spm = Some(heard),
            Body::Odata(heard) => data = Some(heard),
            _ => {}
        }
        if let (Some(spm), Some(Data { sqn, .. }), SocketAddr::V4(from)) = (spm, data, from) {
            return Session {
                tsi: packet.header().tsi(),
                source: *from.ip(),
                spm,
                sqn,
            };
        }
    }
}

impl<'a> Attacker<'a> {
    fn new(host: &Host, session: &'a Session) -> Self {
        let socket = host.enter(|| UdpSocket::bind((host.ipv4(), 0))).unwrap();
        Self {
            socket: socket.unwrap(),
            session,
            random: 0x9e37_79b9_7f4a_7c15,
            packet: Vec::new(),
            sent: 0,
        }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Sends the packet at hand to the receivers and to the source.
    fn send_to_all(&mut self) {
        for to in [GROUP, self.session.source] {
            self.send(to);
        }
    }

    fn send(&mut self, to: Ipv4Addr) {
        // A full queue is no fault of the victim's.
        self.sent += u64::from(self.socket.send_to(&self.packet, (to, PORT)).is_ok());
    }

    fn emit(&mut self, tsi: Tsi, body: &Body, options: &[PgmOption<'_>], tsdu: &[u8]) {
        self.packet.clear();
        let addressing = match body {
            Body::Nak(_) => Addressing::upstream(tsi, PORT),
            _ => Addressing::downstream(tsi, PORT),
        };
        emit(&mut self.packet, &addressing, body, options, tsdu);
    }

    /// Makes the checksum of the packet at hand good.
    fn seal(&mut self) {
        self.packet[6..8].fill(0);
        let check = finish(sum(&self.packet));
        self.packet[6..8].copy_from_slice(&check.to_be_bytes());
    }

    fn data(&self) -> Body {
        let sqn = Sqn(self.session.sqn.0.wrapping_add(1_000_000));
        let trail = self.session.sqn;
        Body::Odata(Data { sqn, trail })
    }

    fn nothing(&mut self) {
        self.packet.clear();
        self.send_to_all();
    }

    /// A data packet that ends with the common header.
    fn short_data(&mut self) {
        self.emit(self.session.tsi, &self.data(), &[], &[]);
        self.packet.truncate(16);
        self.seal();
        self.send_to_all();
    }

    /// An option whose length is 0, at which a careless walk never ends: in an SPM, data and a NAK.
    fn endless_option(&mut self) {
        let session = self.session;
        let nak = Nak {
            sqn: session.sqn,
            source_nla: session.source.into(),
            group_nla: GROUP.into(),
        };
        for body in [Body::Spm(session.spm), self.data(), Body::Nak(nak)] {
            let two = [PgmOption::Fin, PgmOption::Syn];
            self.emit(session.tsi, &body, &two, &[]);
            let end = self.packet.len();
            // The two options are the last eight bytes; the first says where the second is.
            self.packet[end - 7] = 0;
            self.seal();
            self.send_to_all();
        }
    }

    /// Everything up to 2^31 - 1 ahead was sent, it says: with the window's true beginning and with
    /// none, from an address that is not the sender's and from one that is.
    fn far_lead(&mut self) {
        let spm = self.session.spm;
        for (trail, ahead) in [(spm.trail, 0x7fff_0000), (spm.lead, 0x7fff_ffff)] {
            let lead = Sqn(spm.lead.0.wrapping_add(ahead));
            let sqn = Sqn(spm.sqn.0.wrapping_add(2_000));
            let far = Body::Spm(Spm {
                sqn,
                trail,
                lead,
                ..spm
            });
            self.emit(self.session.tsi, &far, &[], &[]);
            self.send_to_all();
        }
    }

    /// Senders nobody ever heard of, each announced or beginning with data; as fast as the kernel
    /// takes them, a run of [`RUN`] at a time.
    fn strangers(&mut self, runs: u32) {
        let to = RawAddress::from(SocketAddr::from((GROUP, PORT)));
        let mut run = Vec::new();
        for _ in 0..runs {
            run.clear();
            for _ in 0..RUN {
                self.stranger();
                assert_eq!(self.packet.len(), STRANGER_BYTES);
                run.extend_from_slice(&self.packet);
            }
            let control = Control::new().segment(STRANGER_BYTES as u16);
            let sent =
                sys::message::send(self.socket.as_fd(), &to, &[IoSlice::new(&run)], &control);
            self.sent += sent.map_or(0, |_| RUN);
        }
    }

    /// The first packet of a sender of its own.
    fn stranger(&mut self) {
        let number = self.random();
        let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
        let tsi = Tsi {
            gsi: Gsi([a, b, c, d, e, f]),
            port: u16::from_be_bytes([g, h]),
        };
        if number & 1 == 0 {
            self.emit(tsi, &self.data(), &[], b"I am nobody.");
        } else {
            let spm = Body::Spm(self.session.spm);
            self.emit(tsi, &spm, &[], &[]);
        }
    }

    /// Asks for 63 packets at once.
    fn greedy_nak(&mut self, back: u32) {
        let session = self.session;
        let first = session.sqn.0.wrapping_sub(back);
        let list: Vec<Sqn> = (1..63).map(|more| Sqn(first.wrapping_add(more))).collect();
        let nak = Nak {
            sqn: Sqn(first),
            source_nla: session.source.into(),
            group_nla: GROUP.into(),
        };
        let list = [PgmOption::NakList(NakList::new(&list))];
        self.emit(session.tsi, &Body::Nak(nak), &list, &[]);
        self.send_to_all();
    }

    /// Random bytes, a good checksum, and every now and then a plausible header.
    fn noise(&mut self) {
        let len = 16 + (self.random() % 200) as usize;
        self.packet.clear();
        while self.packet.len() < len {
            let word = self.random();
            self.packet.extend(word.to_be_bytes());
        }
        let kinds = [
            PacketType::Spm,
            PacketType::Odata,
            PacketType::Rdata,
            PacketType::Nak,
            PacketType::Ncf,
            PacketType::Spmr,
        ];
        let tsi = self.session.tsi;
        match self.random() % 4 {
            0 => {}
            pick => {
                let kind = kinds[(self.random() % 6) as usize];
                let (to, from) = if kind.is_upstream() {
                    (tsi.port, PORT)
                } else {
                    (PORT, tsi.port)
                };
                self.packet[..2].copy_from_slice(&from.to_be_bytes());
                self.packet[2..4].copy_from_slice(&to.to_be_bytes());
                self.packet[4] = kind as u8;
                self.packet[5] = u8::from(pick == 1);
                self.packet[8..14].copy_from_slice(&tsi.gsi.0);
            }
        }
        self.seal();
        self.send_to_all();
    }

    /// Repeats an attack so many times a second.
    fn at(&mut self, per_second: u32, count: u32, attack: impl Fn(&mut Self, u32)) {
        let start = Instant::now();
        for index in 0..count {
            let due = start + Duration::from_secs(1) / per_second * index;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            attack(self, index);
        }
    }
}

fn attack<'a>(far: &mut Attacker<'a>, near: &mut Attacker<'a>) {
    for attacker in [far, near] {
        attacker.at(1_000, 500, |attacker, _| attacker.nothing());
        attacker.at(1_000, 500, |attacker, _| attacker.short_data());
        attacker.at(1_000, 500, |attacker, _| attacker.endless_option());
        attacker.at(10, 5, |attacker, _| attacker.far_lead());
    }
}

fn count(report: &Value, name: &str) -> u64 {
    let value = report["counters"][name].as_u64();
    value.unwrap_or_else(|| panic!("{name} in {report:#}"))
}

fn drops(report: &Value) -> u64 {
    let counters = report["counters"].as_object().unwrap();
    let drops = counters
        .iter()
        .filter(|(name, _)| name.starts_with("drop."));
    drops.map(|(_, value)| value.as_u64().unwrap()).sum()
}

#[test]
fn hostile_packets_stop_nothing() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let group = format!("-g {GROUP}:{PORT}");
        let words = format!("load recv {group} --json --count {MESSAGES} --timeout 30s");
        let mut receiver = End::start(towline(lab.host(1), &words));
        let words = format!(
            "load send {group} --json --receivers 1 --policy wait --count {MESSAGES} --size 1400 \
             --rate {RATE} --timeout 30s"
        );
        let mut source = End::start(towline(lab.host(0), &words));
        let session = overhear(lab.host(2));
        let mut far = Attacker::new(lab.host(2), &session);
        let mut near = Attacker::new(lab.host(0), &session);
        attack(&mut far, &mut near);
        let mut heavy = |what: &str, run: &dyn Fn(&mut Attacker<'_>)| {
            let (start, before) = (Instant::now(), far.sent);
            run(&mut far);
            let memory = [receiver.resident_kib(), source.resident_kib()];
            let sent = far.sent - before;
            println!("{what}: {sent} in {:?}; KiB {memory:?}", start.elapsed());
            assert!(receiver.is_running() && source.is_running(), "{what}");
            assert!(memory.iter().all(|&kib| kib < MEMORY_KIB_MAX), "{what}");
        };
        heavy("NAK lists", &|far| {
            far.at(10_000, 20_000, |far, index| {
                far.greedy_nak(index % 64 * 63);
            });
        });
        heavy("noise", &|far| {
            (0..50_000).for_each(|_| far.noise());
        });
        heavy("strangers", &|far| {
            far.strangers(1_000_000_u32.div_ceil(RUN as u32));
        });
        let received = receiver.report(LIMIT);
        let sent = source.report(LIMIT);
        for key in ["missing", "duplicates", "out_of_order", "lost_packets"] {
            assert_eq!(received[key], 0, "{key} in {received:#}");
        }
        assert_eq!(received["messages"], MESSAGES, "{received:#}");
        assert_eq!(sent["messages"], MESSAGES, "{sent:#}");
        assert_eq!(sent["is_confirmed"], true, "{sent:#}");
        let shown = received["drops"].as_object().unwrap();
        let shown = shown.values().map(|value| value.as_u64().unwrap());
        let at_kernel = count(&received, "udp.kernel_drops");
        assert_eq!(
            shown.sum::<u64>(),
            drops(&received) + at_kernel,
            "{received:#}"
        );
        let seen = count(&received, "receiver.seen_packets");
        let used = ["payload", "held", "control"]
            .map(|what| count(&received, &format!("receiver.{what}_packets")));
        assert_eq!(
            used.iter().sum::<u64>() + drops(&received),
            seen,
            "{received:#}"
        );
        assert_eq!(seen, count(&received, "udp.received_datagrams"));
        let seen = count(&sent, "source.upstream_packets");
        let handled = count(&sent, "source.upstream_handled");
        assert_eq!(handled + drops(&sent), seen, "{sent:#}");
        assert_eq!(seen, count(&sent, "udp.received_datagrams"));
        println!(
            "sent in {} s, received in {} s",
            sent["seconds"], received["seconds"]
        );
    });
}

/// Packets of a run, as many as every kernel takes.
const RUN: u64 = 64;
/// An IPv4 SPM without options, and data as long.
const STRANGER_BYTES: usize = 36;
/// Half of a megabyte for each of 64 senders, 64 MiB of held data, and the program: far below what
/// a million senders would take.
const MEMORY_KIB_MAX: u64 = 300 * 1024;
