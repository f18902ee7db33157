//! A host that attacks a session: what it overhears, and the packets that it makes of that.

use std::{
    io::IoSlice,
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::AsFd as _,
    thread,
    time::{Duration, Instant},
};

use lab::Host;
use sys::{RawAddress, message::Control};
use wire::{
    Sqn,
    checksum::{finish, sum},
    pgm::{
        Addressing, Body, Data, Gsi, Mark, Nak, NakList, Packet, PacketType, PgmOption, Profile,
        Rst, Spm, Tsi, emit,
    },
};

/// Who attacks, from where, and what it has learned of the session.
#[derive(Debug)]
pub(crate) struct Attacker<'a> {
    socket: UdpSocket,
    session: &'a Session,
    random: u64,
    packet: Vec<u8>,
    pub(crate) sent: u64,
}

/// What anybody in the group can hear.
#[derive(Debug)]
pub(crate) struct Session {
    tsi: Tsi,
    group: SocketAddr,
    source: IpAddr,
    spm: Spm,
    /// Where data was when it was heard, or would begin.
    sqn: Sqn,
    /// Where the sender takes control connections; below, what its SPMs say of the session.
    pub(crate) control: SocketAddr,
    pub(crate) mark: Mark,
    /// Packets as they were heard.
    recorded: Vec<Vec<u8>>,
}

/// Listens to the group until it has heard an SPM, and data if that is wanted.
pub(crate) fn overhear(host: &Host, group: SocketAddr, wants_data: bool) -> Session {
    let socket = host.enter(|| UdpSocket::bind(group)).unwrap().unwrap();
    let joined = host.enter(|| match group.ip() {
        IpAddr::V4(group) => socket.join_multicast_v4(&group, &host.ipv4()),
        IpAddr::V6(group) => socket.join_multicast_v6(&group, 0),
    });
    joined.unwrap().unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let (mut announced, mut data) = (None, None);
    let mut recorded = Vec::new();
    let mut buffer = vec![0; 65_536];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        recorded.push(buffer[..len].to_vec());
        match Packet::parse(&buffer[..len]).map(|packet| (packet, packet.body())) {
            Ok((packet, Body::Spm(spm))) => {
                let mark = packet.options().find_map(|option| match option {
                    PgmOption::Mark(mark) => Some(mark),
                    _ => None,
                });
                announced = Some((packet.header().tsi(), spm, mark.unwrap()));
            }
            Ok((_, Body::Odata(heard))) => data = Some(heard.sqn),
            // With a key, data is longer than its header says.
            Err(_) if buffer[4] == PacketType::Odata as u8 => {
                data = Some(Sqn(u32::from_be_bytes(buffer[16..20].try_into().unwrap())));
            }
            _ => {}
        }
        if let Some((tsi, spm, mark)) = announced
            && (data.is_some() || !wants_data)
        {
            return Session {
                tsi,
                group,
                source: from.ip(),
                spm,
                sqn: data.unwrap_or(spm.lead),
                control: SocketAddr::new(from.ip(), mark.control_port),
                mark,
                recorded,
            };
        }
    }
}

impl<'a> Attacker<'a> {
    pub(crate) fn new(host: &Host, session: &'a Session) -> Self {
        let own: IpAddr = match session.group.ip() {
            IpAddr::V4(_) => host.ipv4().into(),
            IpAddr::V6(_) => host.ipv6().into(),
        };
        let socket = host.enter(|| UdpSocket::bind((own, 0))).unwrap();
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
        let source = SocketAddr::new(self.session.source, self.session.group.port());
        for to in [self.session.group, source] {
            // A full queue is no fault of the victim's.
            self.sent += u64::from(self.socket.send_to(&self.packet, to).is_ok());
        }
    }

    fn emit(&mut self, tsi: Tsi, body: &Body, options: &[PgmOption<'_>], tsdu: &[u8]) {
        self.packet.clear();
        let port = self.session.group.port();
        let addressing = match body {
            Body::Nak(_) => Addressing::upstream(tsi, port),
            _ => Addressing::downstream(tsi, port),
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

    pub(crate) fn nothing(&mut self) {
        self.packet.clear();
        self.send_to_all();
    }

    /// A data packet that ends with the common header.
    pub(crate) fn short_data(&mut self) {
        self.emit(self.session.tsi, &self.data(), &[], &[]);
        self.packet.truncate(16);
        self.seal();
        self.send_to_all();
    }

    /// An option whose length is 0, at which a careless walk never ends: in an SPM, data and a NAK.
    pub(crate) fn endless_option(&mut self) {
        let session = self.session;
        let nak = Nak {
            sqn: session.sqn,
            source_nla: session.source,
            group_nla: session.group.ip(),
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
    pub(crate) fn far_lead(&mut self) {
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
    pub(crate) fn strangers(&mut self, runs: u32) {
        let to = RawAddress::from(self.session.group);
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
    pub(crate) fn greedy_nak(&mut self, back: u32) {
        let session = self.session;
        let first = session.sqn.0.wrapping_sub(back);
        let list: Vec<Sqn> = (1..63).map(|more| Sqn(first.wrapping_add(more))).collect();
        let nak = Nak {
            sqn: Sqn(first),
            source_nla: session.source,
            group_nla: session.group.ip(),
        };
        let list = [PgmOption::NakList(NakList::new(&list))];
        self.emit(session.tsi, &Body::Nak(nak), &list, &[]);
        self.send_to_all();
    }

    /// Random bytes, a good checksum, and every now and then a plausible header.
    pub(crate) fn noise(&mut self) {
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
        let (tsi, port) = (self.session.tsi, self.session.group.port());
        match self.random() % 4 {
            0 => {}
            pick => {
                let kind = kinds[(self.random() % 6) as usize];
                let (to, from) = if kind.is_upstream() {
                    (tsi.port, port)
                } else {
                    (port, tsi.port)
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

    /// Data in the sender's name, a little ahead of where it is: content that nobody sent.
    /// With `is_sealed` it looks as if it were protected with a key, which it was not.
    pub(crate) fn forged_data(&mut self, ahead: u32, is_sealed: bool) {
        let first = self.session.sqn;
        let sqn = Sqn(first.0.wrapping_add(ahead));
        let body = Body::Odata(Data { sqn, trail: first });
        self.emit(self.session.tsi, &body, &[], &[0xEE; 1_000]);
        if is_sealed {
            // No checksum; the position, and a tag of 16 bytes.
            self.packet[6..8].fill(0);
            let edge = self.session.mark.tag.map_or(0, |tag| tag.edge);
            let words = [sqn.extend(edge), self.random(), self.random()];
            self.packet
                .extend(words.iter().flat_map(|word| word.to_be_bytes()));
        }
        self.send_to_all();
    }

    /// The end of the session, or that it is broken off, or that all before now is gone.
    pub(crate) fn forged_end(&mut self, number: u32) {
        let spm = self.session.spm;
        let far = Sqn(spm.lead.0.wrapping_add(100_000));
        let reset = PgmOption::Rst(Rst {
            is_deaf: true,
            reason: 0,
        });
        let (trail, lead, option) = match number % 3 {
            0 => (spm.trail, spm.lead, Some(PgmOption::Fin)),
            1 => (spm.trail, spm.lead, Some(reset)),
            _ => (far, far, None),
        };
        let sqn = Sqn(spm.sqn.0.wrapping_add(number));
        let body = Body::Spm(Spm {
            sqn,
            trail,
            lead,
            ..spm
        });
        // With a key, the tag of what was heard does not fit what is said now.
        let mark = PgmOption::Mark(self.session.mark);
        let options = [Some(mark), option].into_iter().flatten();
        let options: Vec<_> = options.collect();
        self.emit(self.session.tsi, &body, &options, &[]);
        self.send_to_all();
    }

    /// The announcement of a session that is not there, to the group: its sender takes connections
    /// at `control`, or nobody does. Returns its bytes on a link.
    pub(crate) fn forged_session(
        &mut self,
        number: u16,
        profile: Profile,
        control: Option<SocketAddr>,
    ) -> u64 {
        let tsi = Tsi {
            port: number,
            ..self.session.tsi
        };
        let mark = Mark {
            profile,
            session_id: number.into(),
            control_port: control.map_or(9, |it| it.port()),
            ..self.session.mark
        };
        let spm = Body::Spm(Spm {
            path_nla: control.map_or(self.session.spm.path_nla, |it| it.ip()),
            ..self.session.spm
        });
        self.emit(tsi, &spm, &[PgmOption::Mark(mark)], &[]);
        self.socket
            .send_to(&self.packet, self.session.group)
            .unwrap();
        // Headers of UDP, IP and Ethernet.
        let headers =
            8 + if self.session.source.is_ipv4() {
                20
            } else {
                40
            } + 14;
        (self.packet.len() + headers) as u64
    }

    /// A packet as it was heard.
    pub(crate) fn replay(&mut self, number: u32) {
        let recorded = &self.session.recorded;
        self.packet
            .clone_from(&recorded[number as usize % recorded.len()]);
        self.send_to_all();
    }

    /// Repeats an attack so many times a second.
    pub(crate) fn at(&mut self, per_second: u32, count: u32, attack: impl Fn(&mut Self, u32)) {
        let start = Instant::now();
        for index in 0..count {
            let due = start + Duration::from_secs(1) / per_second * index;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            attack(self, index);
        }
    }
}

/// Packets of a run, as many as every kernel takes.
pub(crate) const RUN: u64 = 64;
/// An IPv4 SPM without options, and data as long.
const STRANGER_BYTES: usize = 36;
