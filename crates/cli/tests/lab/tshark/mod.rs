//! Recorded runs as Wireshark reads them, packet by packet, beside our own reading of them: a run
//! for each feature, which shows the feature's packets.
//!
//! Recorded before the receiver's loss takes packets away, each packet by itself. Skipped, with the
//! reason printed, where tshark or a program that records is missing.

mod expected;
mod recording;

use std::{collections::BTreeMap, net::IpAddr, path::Path, thread, time::Duration};

use lab::{Lab, LabSpec, isolated};
use wire::pgm::{
    Body, Flags,
    PacketType::{Nak, Ncf, Odata, Rdata, Spm},
};

pub(crate) use recording::{Recorded, is_there, record};

use recording::record_at;

use crate::{
    ends::{End, assert_complete, towline},
    relay::{FAR, NEAR, end, relay, two_networks},
    siege::key_of,
    signals::Place,
};

/// A run of one feature.
#[derive(Clone, Copy, Debug)]
struct Feature {
    name: &'static str,
    /// The session's words at both ends.
    session: &'static str,
    /// The sender's words beside these.
    send: &'static str,
    /// Messages.
    count: u64,
    /// What is recorded.
    filter: &'static [&'static str],
    ends: Ends,
    /// What the run is to show: packet types, and options with the packets that carry them.
    shows: &'static [&'static str],
}

/// How a run goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// Everything is confirmed.
    Complete,
    /// The receiver starts in the middle.
    Late,
    /// The sender breaks the session off before it begins.
    Broken,
    /// Both ends have a key, and everything is confirmed.
    Keyed,
}

const UDP: &[&str] = &["udp", "port", "7500"];
const IPV4: &str = "-g 239.192.0.1:7500";
const IPV6: &str = "-g [ff15::1]:7500";
const PLAIN: Feature = Feature {
    name: "messages in UDP over IPv4",
    session: IPV4,
    send: "--size 1-4000 --rate 6MB/s",
    count: 1500,
    filter: UDP,
    ends: Ends::Complete,
    shows: &[
        "plain Odata",
        "plain Rdata",
        "Fragment in Odata",
        "Fragment in Rdata",
        "plain Nak",
        "NakList in Nak",
        "plain Ncf",
        "NakList in Ncf",
        "Mark in Spm",
        "Fin in Spm",
        "idle Spm",
    ],
};
const PARITY: Feature = Feature {
    name: "parity on demand",
    send: "--size 100-3000 --rate 4MB/s --fec-group 8",
    count: 1500,
    shows: &[
        "ParityPrm in Spm",
        "parity Nak",
        "parity Ncf",
        "parity Rdata",
        "var-pktlen Rdata",
        "Encoded in Rdata",
    ],
    ..PLAIN
};

const FEATURES: &[Feature] = &[
    PLAIN,
    Feature {
        name: "messages in UDP over IPv6",
        session: IPV6,
        ..PLAIN
    },
    Feature {
        name: "messages in IPv4",
        session: "-g 239.192.0.1:7500 --encapsulation raw",
        filter: &["ip", "proto", "113"],
        ..PLAIN
    },
    Feature {
        name: "messages in IPv6",
        session: "-g [ff15::1]:7500 --encapsulation raw",
        filter: &["ip6", "proto", "113"],
        ..PLAIN
    },
    PARITY,
    Feature {
        name: "parity on demand over IPv6",
        session: IPV6,
        ..PARITY
    },
    Feature {
        name: "parity unasked, and on demand after that",
        send: "--size 100-1400 --rate 4MB/s --fec-group 2 --fec-proactive 2",
        count: 1500,
        shows: &[
            "ParityPrm in Spm",
            "parity Odata",
            "var-pktlen Odata",
            "parity Nak",
            "parity Rdata",
            "ParityGrp in Rdata",
        ],
        ..PLAIN
    },
    Feature {
        name: "parity as OpenPGM offers it",
        send: "--size 100-1400 --rate 4MB/s --fec-group 8 --fec-form openpgm",
        count: 200,
        shows: &["ParityPrm in Spm"],
        ..PLAIN
    },
    Feature {
        name: "the beginning told, and old packets offered, to a late receiver",
        send: "--size 100-1400 --rate 500kB/s --send-syn --send-join \
               --spm-active 10s --spm-heartbeat-min 1s",
        count: 1000,
        ends: Ends::Late,
        shows: &["Syn in Odata", "Join in Spm", "plain Spmr"],
        ..PLAIN
    },
    Feature {
        name: "a session broken off",
        send: "",
        count: 100,
        ends: Ends::Broken,
        shows: &["Rst in Spm"],
        ..PLAIN
    },
    Feature {
        name: "receivers counted by polls",
        send: "--size 1400 --rate 50kB/s --poll-interval 1s",
        count: 400,
        shows: &["plain Poll", "plain Polr"],
        ..PLAIN
    },
    Feature {
        name: "packets that messages share",
        send: "--size 1-300 --rate 4MB/s --pack",
        count: 5000,
        shows: &["Packed in Odata", "Packed in Rdata"],
        ..PLAIN
    },
    Feature {
        name: "a session with a key",
        send: "--size 1-3000 --rate 4MB/s",
        count: 500,
        ends: Ends::Keyed,
        shows: &["Mark in Spm", "plain Nak", "plain Rdata"],
        ..PLAIN
    },
];

#[test]
fn every_features_recorded_run_reads_the_same() {
    isolated(|| {
        if !are_there() {
            return;
        }
        let place = Place::new("tshark");
        for some in FEATURES.chunks(AT_A_TIME) {
            thread::scope(|scope| {
                for feature in some {
                    let place = &place;
                    scope.spawn(move || feature.run(place));
                }
            });
        }
    });
}

/// Everything that passes a relay: what a network element changes, and what it sends by itself.
#[test]
fn a_relays_recorded_run_reads_the_same() {
    isolated(|| {
        if !are_there() {
            return;
        }
        let (lab, place) = (two_networks(1), Place::new("tshark-relay"));
        let path = place.file("relay.pcap");
        let recorder = record_at(lab.host(1), "any", path.as_ref(), UDP);
        // What is recorded comes before the relay's faults.
        let words = format!("{NEAR} {FAR} --faults loss=5%,seed=9,nogso");
        let passed = relay(lab.host(1), &words);
        lab.host(2).set_loss(10, 100).unwrap();
        let words = format!("load recv -g {FAR} --json --count 3000 --timeout 20s --faults nogso");
        let receiver = End::start(towline(lab.host(2), &words));
        receiver.await_session();
        let words = format!(
            "load send -g {NEAR} --json --receivers 1 --timeout 20s --count 3000 --size 1-3000 \
             --rate 10MB/s --faults nogso"
        );
        let sent = End::start(towline(lab.host(0), &words)).report(LIMIT);
        assert_eq!(sent["is_confirmed"], true, "{sent:#}");
        assert_complete(&receiver.report(LIMIT), 3_000);
        thread::sleep(REST);
        end(passed);
        recorder.signal("-INT");
        recorder.finish(LIMIT);

        let packets = assert_same("a relay", path.as_ref());
        let [source, near] = [0, 1].map(|host| IpAddr::from(lab.host(host).second_ipv4()));
        let [far, receiver] = [1, 2].map(|host| IpAddr::from(lab.host(host).ipv4()));
        let mut sent = BTreeMap::new();
        for recorded in &packets {
            let (packet, _) = recorded.packet();
            if let Body::Spm(spm) = packet.body() {
                // NAKs go to whoever passed the SPM on.
                assert_eq!(spm.path_nla, recorded.from, "{packet}");
            }
            *sent
                .entry((recorded.from, packet.header().kind))
                .or_insert(0) += 1;
        }
        println!("{} packets of a relay read alike: {sent:?}", packets.len());
        for (from, kinds) in [
            (source, &[Spm, Odata, Rdata, Ncf][..]),
            (far, &[Spm, Odata, Rdata, Ncf]),
            (receiver, &[Nak]),
            (near, &[Nak]),
        ] {
            for kind in kinds {
                assert!(sent.contains_key(&(from, *kind)), "no {kind} of {from}");
            }
        }
    });
}

/// Returns true where both programs are; otherwise prints what is missing.
fn are_there() -> bool {
    let missing = ["tshark", "tcpdump"].into_iter().find(|it| !is_there(it));
    if let Some(program) = missing {
        println!("skipped: {program} is not installed");
    }
    missing.is_none()
}

impl Feature {
    /// Runs the feature on two hosts of its own.
    fn run(&self, place: &Place) {
        let lab = Lab::new(&LabSpec::new(2).segments_at_switch()).unwrap();
        if self.session.contains("[ff") && !lab.host(0).has_ipv6() {
            println!("skipped: {}: IPv6 is not to be had in this lab", self.name);
            return;
        }
        lab.host(1).set_loss(15, 100).unwrap();
        let path = place.file(&format!("{}.pcap", self.name.replace(' ', "-")));
        let recorder = record(lab.host(1), path.as_ref(), self.filter);
        self.transfer(&lab, place);
        thread::sleep(REST);
        recorder.signal("-INT");
        recorder.finish(LIMIT);
        let packets = assert_same(self.name, path.as_ref());
        let by = |word| self.session.contains(word);
        for recorded in &packets {
            let is_by = (recorded.from.is_ipv6(), recorded.is_raw);
            assert_eq!(is_by, (by("[ff"), by("raw")), "{}", self.name);
            // What a key adds stands behind the packet, but for SPMs, which have it in the mark.
            let (packet, surplus) = recorded.packet();
            let is_tagged = self.ends == Ends::Keyed && packet.header().kind != Spm;
            assert_eq!(surplus > 0, is_tagged, "{}: {packet}", self.name);
        }
        assert_shows(self.name, &packets, self.shows);
    }

    fn transfer(&self, lab: &Lab, place: &Place) {
        let key = match self.ends {
            Ends::Keyed => key_of(place),
            _ => String::new(),
        };
        let count = self.count;
        let words = format!("{} --count {count} --json {key}", self.session);
        let receive = |more| {
            let words = format!("load recv {words} --timeout 20s --faults nogso {more}");
            let receiver = End::start(towline(lab.host(1), &words));
            receiver.await_session();
            receiver
        };
        let send = |more| {
            let words = format!("load send {words} {} {more}", self.send);
            End::start(towline(lab.host(0), &words))
        };
        match self.ends {
            Ends::Complete | Ends::Keyed => {
                let receiver = receive("");
                let sent = send("--receivers 1 --timeout 20s").report(LIMIT);
                assert_eq!(sent["is_confirmed"], true, "{}: {sent:#}", self.name);
                assert_complete(&receiver.report(LIMIT), count);
            }
            Ends::Late => {
                let sender = send("");
                sender.await_counter("source.odata_packets", 100);
                let receiver = receive("--late-join offered");
                sender.report(LIMIT);
                receiver.report(LIMIT);
            }
            Ends::Broken => {
                let receiver = receive("");
                // Of the two receivers that it waits for one is there.
                send("--receivers 2 --timeout 1s").report(LIMIT);
                drop(receiver);
            }
        }
    }
}

/// Asserts that tshark reads every packet of a recording as we do; returns the packets.
fn assert_same(name: &str, path: &Path) -> Vec<Recorded> {
    let packets = Recorded::all(path);
    let (rows, options) = (recording::rows(path), recording::options(path));
    assert_eq!(rows.len(), packets.len(), "{name}: a row a packet");
    let mut our_options = Vec::new();
    for (number, (row, recorded)) in (1..).zip(rows.iter().zip(&packets)) {
        let (packet, _) = recorded.packet();
        let expected = expected::row(recorded, &packet);
        assert_eq!(*row, expected, "{name}: packet {number}: {packet}");
        packet
            .options()
            .for_each(|option| expected::option_lines(option, &mut our_options));
    }
    assert_eq!(options, our_options, "{name}");
    packets
}

/// Asserts that the run shows what it is for.
fn assert_shows(name: &str, packets: &[Recorded], shows: &[&str]) {
    let seen = kinds(packets);
    println!("{name}: {} packets read alike: {seen:?}", packets.len());
    for kind in shows {
        assert!(seen.contains_key(*kind), "{name}: no {kind} in {seen:?}");
    }
}

/// How many packets there are of each type, with each option and of each other kind.
fn kinds(packets: &[Recorded]) -> BTreeMap<String, u64> {
    let (mut seen, mut lead) = (BTreeMap::new(), None);
    for recorded in packets {
        let (packet, _) = recorded.packet();
        let header = packet.header();
        let mut words: Vec<_> = packet
            .options()
            .map(|option| format!("{} in", expected::name(option)))
            .collect();
        for (flag, word) in [(Flags::PARITY, "parity"), (Flags::VAR_PKTLEN, "var-pktlen")] {
            if header.flags.contains(flag) {
                words.push(word.to_owned());
            }
        }
        if words.is_empty() {
            words.push("plain".to_owned());
        }
        // A heartbeat or an ambient SPM: no data was sent since the one before.
        if let Body::Spm(spm) = packet.body()
            && lead.replace(spm.lead) == Some(spm.lead)
        {
            words.push("idle".to_owned());
        }
        for word in words {
            *seen.entry(format!("{word} {:?}", header.kind)).or_default() += 1;
        }
    }
    seen
}

const AT_A_TIME: usize = 4;
const LIMIT: Duration = Duration::from_secs(60);
/// How long after the end of a run its last packets are recorded.
const REST: Duration = Duration::from_millis(500);
