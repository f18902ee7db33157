//! The profiles of programs that cannot run here, on golden packets (`testdata/profiles`).
//!
//! Their documentation tells no packet byte by byte. What it tells of the wire is tested here, and
//! the bytes are those that RFC 3208 prescribes for it:
//!
//! - `ms-pgm`: Microsoft, "`IPPROTO_RM` Socket Options" and `RM_FEC_INFO` (wsrm.h). IP protocol
//!   113; TTL 255, the greatest, by default; parity pro-active, on demand or both, in groups of a
//!   power of two, and where it is on demand receivers ask for parity alone; late joiners may ask
//!   for old packets as far as the sender allows it.
//! - `ibm`: IBM MQ, the multicast stanza of mqclient.ini. In UDP the packets are still those of
//!   PGM; TTL 1; a heartbeat every 2 s, and 20 s without one end a session.
//! - `tibco`: none that is public. OpenPGM's examples say that their intervals are TIBCO's: SPMs
//!   four times 100 ms apart, then after 1.3 s, 7 s, 16 s and 25 s, then every 30 s.
//!
//! Nothing says whether any of the three sends `OPT_SYN`, so that a receiver takes data with it and
//! without; nor what TIBCO's packets travel in.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use base::{Arrival, Budget, Instant, Outcome, PathId, Socket, Verdict};
use pgm::{Config, Mode, Ready, Receiver, ReceiverSetup, Source, SourceSetup};
use wire::{
    Sqn,
    pgm::{Addressing, Body, Data, Gsi, Mark, Packet, PacketType, Profile, Tsi, emit},
};

use crate::SessionBuilder;

macro_rules! golden {
    ($($name:ident $file:literal)+) => {
        $(const $name: &str = include_str!(concat!("../../../testdata/profiles/", $file));)+
    };
}

golden! {
    SPM "spm.hex"
    SPM_ON_DEMAND "spm_on_demand.hex"
    SPM_PROACTIVE "spm_proactive.hex"
    SPM_BOTH "spm_both.hex"
    SPM_JOIN "spm_join.hex"
    SPM_FIN "spm_fin.hex"
    ODATA_8 "odata_8.hex"
    ODATA_8_SYN "odata_8_syn.hex"
    ODATA_9 "odata_9.hex"
    ODATA_10 "odata_10.hex"
    FRAGMENT_1 "fragment_1.hex"
    FRAGMENT_2 "fragment_2.hex"
    NAK_9 "nak_9.hex"
    NCF_9 "ncf_9.hex"
    RDATA_9 "rdata_9.hex"
    NAK_PARITY "nak_parity.hex"
    NCF_PARITY "ncf_parity.hex"
    RDATA_PARITY "rdata_parity.hex"
}

/// The profiles, and the first data packet of each: only one of them sends OPT_SYN.
const PROFILES: [(&str, &str); 3] = [
    ("ms-pgm", ODATA_8_SYN),
    ("ibm", ODATA_8),
    ("tibco", ODATA_8),
];

/// The bytes of a golden packet.
fn bytes(text: &str) -> Vec<u8> {
    let fields = text.lines().map(|line| line.split('#').next().unwrap());
    let digits = fields.flat_map(str::split_whitespace);
    digits
        .map(|it| u8::from_str_radix(it, 16).unwrap())
        .collect()
}

/// An SPM without its number, which each source draws at random, and without its checksum.
fn unnumbered(mut spm: Vec<u8>) -> Vec<u8> {
    spm[6..8].fill(0);
    spm[16..20].fill(0);
    spm
}

fn config(profile: &str, settings: &[(&str, &str)]) -> Config {
    let session = SessionBuilder::new("239.192.0.1".parse().unwrap());
    let session = session.set("profile", profile).unwrap();
    let session = settings
        .iter()
        .try_fold(session, |session, (name, text)| session.set(name, text));
    session.unwrap().config.build().unwrap()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

const TSI: Tsi = Tsi {
    gsi: Gsi([1, 2, 3, 4, 5, 6]),
    port: 40_000,
};
const START: Instant = Instant::from_nanos(1_000_000_000);
const BUDGET: Budget = Budget {
    bytes: 64_000,
    datagrams: 1,
};
const MOMENT: Duration = Duration::from_millis(200);

/// A source that has yet to send its first SPM, and what it sends.
struct Sender {
    source: Source,
    now: Instant,
    sent: Vec<(Instant, Vec<u8>)>,
}

impl Sender {
    fn new(config: Config) -> Self {
        let setup = SourceSetup {
            tsi: TSI,
            destination_port: 7_500,
            group: SocketAddr::new(address("239.192.0.1"), 7_500),
            nla: address("10.0.0.1"),
            path: PathId(0),
            first_sqn: 8,
            seed: 1,
            // As every session has it: the profiles leave it out by `strict_pgm`.
            mark: Some(Mark::new(Profile::Messages, 1)),
        };
        Self {
            source: Source::new(config, setup, START),
            now: START,
            sent: Vec::new(),
        }
    }

    fn hear(&mut self, packet: &str) {
        let from = Arrival::from(SocketAddr::new(address("10.0.0.2"), 0), Socket::Upstream);
        self.source.handle(self.now, &from, &bytes(packet));
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            while let Some(run) = self.source.poll_run(self.now, BUDGET) {
                let packets = run.datagrams().map(<[u8]>::to_vec);
                self.sent.extend(packets.map(|packet| (self.now, packet)));
                let outcome = Outcome::Sent { datagrams: 1 };
                self.source.run_done(self.now, outcome);
            }
            let due = self.source.next_timeout().filter(|&due| due <= end);
            let Some(due) = due else { break };
            self.now = self.now.max(due);
            self.source.handle_timeout(self.now);
        }
        self.now = end;
    }

    fn has_sent(&self, packet: &str) -> bool {
        let packet = bytes(packet);
        self.sent.iter().any(|(_, sent)| *sent == packet)
    }

    fn has_sent_spm(&self, spm: &str) -> bool {
        let spm = unnumbered(bytes(spm));
        let mut sent = self.sent.iter();
        sent.any(|(_, sent)| sent.len() == spm.len() && unnumbered(sent.clone()) == spm)
    }
}

/// A receiver, what it sends and what it gives out.
struct Listener {
    receiver: Receiver,
    now: Instant,
    sent: Vec<Vec<u8>>,
    heard: Vec<String>,
}

impl Listener {
    fn new(config: Config) -> Self {
        let setup = ReceiverSetup {
            mode: Mode::Sequence,
            destination_port: 7_500,
            group: SocketAddr::new(address("239.192.0.1"), 7_500),
            path: PathId(0),
            seed: 1,
            is_protected: false,
            own_nla: address("10.0.0.2"),
        };
        Self {
            receiver: Receiver::new(config, setup, START),
            now: START,
            sent: Vec::new(),
            heard: Vec::new(),
        }
    }

    fn hear(&mut self, packets: &[&str]) {
        for packet in packets {
            self.hear_bytes(&bytes(packet));
        }
    }

    fn hear_bytes(&mut self, packet: &[u8]) {
        let from = Arrival::from(SocketAddr::new(address("10.0.0.1"), 0), Socket::Group);
        let verdict = self.receiver.handle(self.now, &from, packet);
        if let Verdict::Payload { range, .. } = verdict {
            self.heard.push(text(&packet[range]));
        }
        self.pop();
    }

    /// Believes an offer of parity: one that two SPMs in a row make, after data that shows that the
    /// sender is real.
    fn believe(&mut self, spm: &str) {
        let addressing = Addressing::downstream(TSI, 7_500);
        for sqn in (0..8).map(Sqn) {
            let (mut packet, trail) = (Vec::new(), Sqn(0));
            let body = Body::Odata(Data { sqn, trail });
            emit(&mut packet, &addressing, &body, &[], b"earlier");
            self.hear_bytes(&packet);
        }
        self.hear(&[spm]);
        // The second has no checksum, which is allowed.
        let mut second = unnumbered(bytes(spm));
        second[19] = 2;
        self.hear_bytes(&second);
        self.heard.clear();
    }

    /// Asserts what it has sent first. As nobody answers, it then repeats its request, and in the
    /// end asks for packets in place of parity.
    fn assert_asked(&self, nak: &str) {
        assert_eq!(self.sent.first(), Some(&bytes(nak)));
    }

    fn pop(&mut self) {
        while let Some(ready) = self.receiver.pop_ready() {
            match ready {
                Ready::Message { data, .. } => self.heard.push(text(data)),
                Ready::Ended { .. } => self.heard.push("ended".to_owned()),
                Ready::Expired { .. } => self.heard.push("expired".to_owned()),
                _ => {}
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            while let Some(run) = self.receiver.poll_run(self.now, BUDGET) {
                self.sent.extend(run.datagrams().map(<[u8]>::to_vec));
                let outcome = Outcome::Sent { datagrams: 1 };
                self.receiver.run_done(self.now, outcome);
            }
            let due = self.receiver.next_timeout().filter(|&due| due <= end);
            let Some(due) = due else { break };
            self.now = self.now.max(due);
            self.receiver.handle_timeout(self.now);
            self.pop();
        }
        self.now = end;
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn sources_send_messages_and_answer_naks_as_the_rfc_has_it() {
    for (profile, first) in PROFILES {
        let mut sender = Sender::new(config(profile, &[("send_join", "true")]));
        sender.pass(Duration::ZERO);
        for message in [b"hello", b"world", b"again"] {
            sender.source.offer(message).unwrap();
        }
        sender.pass(MOMENT);
        for packet in [first, ODATA_9, ODATA_10] {
            assert!(sender.has_sent(packet), "{profile}: {packet}");
        }
        assert!(sender.has_sent_spm(SPM_JOIN), "{profile}");
        sender.hear(NAK_9);
        sender.pass(MOMENT);
        for packet in [NCF_9, RDATA_9] {
            assert!(sender.has_sent(packet), "{profile}: {packet}");
        }
    }
}

#[test]
fn sources_begin_and_end_sessions_as_the_rfc_has_it() {
    for (profile, _) in PROFILES {
        let mut sender = Sender::new(config(profile, &[]));
        sender.pass(Duration::ZERO);
        assert!(sender.has_sent_spm(SPM), "{profile}");
        for message in [b"hello", b"world", b"again"] {
            sender.source.offer(message).unwrap();
        }
        sender.pass(MOMENT);
        sender.source.close(sender.now);
        sender.pass(MOMENT);
        assert!(sender.has_sent_spm(SPM_FIN), "{profile}");
    }
}

#[test]
fn sources_offer_each_kind_of_parity_and_answer_naks_for_it() {
    let kinds = [
        ("true", "0", SPM_ON_DEMAND),
        ("false", "1", SPM_PROACTIVE),
        ("true", "1", SPM_BOTH),
    ];
    for ((profile, first), (on_demand, proactive, spm)) in PROFILES
        .into_iter()
        .flat_map(|profile| kinds.map(|kind| (profile, kind)))
    {
        let settings = [
            ("fec_group", "2"),
            ("fec_on_demand", on_demand),
            ("fec_proactive", proactive),
        ];
        let mut sender = Sender::new(config(profile, &settings));
        sender.pass(Duration::ZERO);
        assert!(sender.has_sent_spm(spm), "{profile}: {spm}");
        sender.source.offer(b"hello").unwrap();
        sender.source.offer(b"world").unwrap();
        sender.pass(MOMENT);
        assert!(sender.has_sent(first), "{profile}");
        sender.hear(NAK_PARITY);
        sender.pass(MOMENT);
        // After unasked parity, the next is packet 1 of the group.
        let is_first = (on_demand, proactive) == ("true", "0");
        assert_eq!(sender.has_sent(RDATA_PARITY), is_first, "{profile}: {spm}");
        assert_eq!(
            sender.has_sent(NCF_PARITY),
            on_demand == "true",
            "{profile}"
        );
    }
}

#[test]
fn receivers_ask_for_a_lost_packet_and_take_its_repair() {
    for (profile, _) in PROFILES {
        for first in [ODATA_8, ODATA_8_SYN] {
            let mut listener = Listener::new(config(profile, &[]));
            listener.hear(&[SPM, first, ODATA_10]);
            listener.pass(MOMENT);
            listener.assert_asked(NAK_9);
            listener.hear(&[NCF_9, RDATA_9, SPM_FIN]);
            let heard = ["hello", "world", "again", "ended"];
            assert_eq!(listener.heard, heard, "{profile}");
        }
    }
}

#[test]
fn receivers_ask_for_parity_alone_where_it_is_offered_on_demand() {
    for (profile, _) in PROFILES {
        for spm in [SPM_ON_DEMAND, SPM_BOTH] {
            let mut listener = Listener::new(config(profile, &[]));
            listener.believe(spm);
            listener.hear(&[ODATA_8, ODATA_10]);
            listener.pass(MOMENT);
            listener.assert_asked(NAK_PARITY);
            listener.hear(&[NCF_PARITY, RDATA_PARITY]);
            assert_eq!(listener.heard, ["hello", "world", "again"], "{profile}");
        }
    }
}

#[test]
fn receivers_put_messages_of_several_packets_together() {
    for (profile, _) in PROFILES {
        let mut listener = Listener::new(config(profile, &[]));
        listener.hear(&[SPM, FRAGMENT_1, FRAGMENT_2]);
        assert_eq!(listener.heard, ["frag-ment"], "{profile}");
    }
}

/// RM_LATEJOIN: the sender says how much of its window late joiners may ask for.
#[test]
fn a_late_receiver_asks_for_what_the_sender_allows() {
    let mut listener = Listener::new(config("ms-pgm", &[("late_join", "offered")]));
    listener.hear(&[SPM_JOIN]);
    listener.pass(MOMENT);
    let asked = Packet::parse(&listener.sent[0]).unwrap().body();
    assert!(
        matches!(asked, Body::Nak(nak) if nak.sqn == Sqn(8)),
        "{asked}"
    );
}

#[test]
fn packets_travel_in_what_the_documentation_tells() {
    for (profile, encapsulation, hops) in [("ms-pgm", "raw", 255), ("ibm", "udp", 1)] {
        let session = SessionBuilder::new("239.192.0.1".parse().unwrap());
        let sockets = session.set("profile", profile).unwrap().sockets;
        assert_eq!(sockets.encapsulation.to_string(), encapsulation);
        assert_eq!(sockets.hops, hops, "{profile}");
    }
}

#[test]
fn sessions_of_ibm_have_a_heartbeat_every_2_s_and_end_after_20_s_without_one() {
    let mut sender = Sender::new(config("ibm", &[]));
    sender.source.offer(b"hello").unwrap();
    sender.pass(Duration::from_secs(60));
    let at: Vec<_> = sender.sent.iter().map(|(at, _)| *at).collect();
    let longest = at.windows(2).map(|pair| pair[1].since(pair[0])).max();
    assert_eq!(longest, Some(Duration::from_secs(2)));

    let mut listener = Listener::new(config("ibm", &[]));
    listener.hear(&[SPM, ODATA_8]);
    listener.pass(Duration::from_secs(19));
    assert_eq!(listener.heard, ["hello"]);
    listener.pass(Duration::from_secs(2));
    assert_eq!(listener.heard, ["hello", "expired"]);
}

#[test]
fn heartbeats_of_tibco_are_those_of_the_examples() {
    let mut sender = Sender::new(config("tibco", &[]));
    sender.pass(MOMENT);
    sender.source.offer(b"hello").unwrap();
    sender.pass(Duration::from_secs(120));
    let is_data = |packet: &[u8]| PacketType::of_packet(packet) == Some(PacketType::Odata);
    let data = sender.sent.iter().position(|(_, sent)| is_data(sent));
    let at: Vec<_> = sender.sent[data.unwrap()..].iter().map(|it| it.0).collect();
    let gaps = at.windows(2).map(|pair| pair[1].since(pair[0]).as_millis());
    let gaps: Vec<_> = gaps.collect();
    // The first SPM follows the data at once.
    assert_eq!(
        gaps,
        [
            0, 100, 100, 100, 100, 1_300, 7_000, 16_000, 25_000, 30_000, 30_000
        ]
    );
}
