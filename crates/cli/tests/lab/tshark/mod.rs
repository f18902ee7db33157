//! Recorded runs as Wireshark reads them, packet by packet, beside our own reading of them: a run
//! for each feature, which shows the feature's packets.
//!
//! Recorded before the receiver's loss takes packets away, each packet by itself. Skipped, with the
//! reason printed, where tshark or a program that records is missing.

mod expected;
mod recording;
mod relayed;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use lab::{Lab, LabSpec, isolated};
use wire::pgm::{Body, Flags, Packet, PacketType::Spm, PgmOption};

pub(crate) use recording::{Recorded, is_there, record};

use crate::{
    ends::{End, assert_complete, towline},
    siege::key_of,
    signals::Place,
};

/// A run of one feature.
#[derive(Clone, Copy, Debug)]
struct Feature {
    name: &'static str,
    /// The session's words at both ends, in which SOURCE and RECEIVER stand for their addresses.
    session: &'static str,
    /// The sender's words beside these.
    send: &'static str,
    /// Messages; frames; or thousands of bytes in a file.
    count: u64,
    /// Percent of what is sent to the receiver, lost after it was recorded.
    lost: u32,
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
    /// The receiver starts in the middle. The sender ends when the receiver has some.
    Late,
    /// The sender breaks the session off before it begins.
    Broken,
    /// Both ends have a key, and everything is confirmed.
    Keyed,
    /// A file, which is proven.
    File,
    Frames,
}

const UDP: &[&str] = &["udp", "port", "7500", "or", "3056", "or", "5555"];
const RAW: &[&str] = &["ip", "proto", "113"];
const IPV4: &str = "-g 239.192.0.1:7500";
const IPV6: &str = "-g [ff15::1]:7500";
const PLAIN: Feature = Feature {
    name: "messages in UDP over IPv4",
    session: IPV4,
    send: "--size 1-4000 --rate 6MB/s",
    count: 1500,
    lost: 15,
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

/// What every session shows with the settings of another implementation. Requests for repairs are
/// seconds apart, so that few packets are lost.
const PROFILED: Feature = Feature {
    send: "--size 1-1400 --rate 4MB/s",
    count: 300,
    lost: 5,
    shows: &[
        "Mark in Spm",
        "plain Odata",
        "plain Rdata",
        "plain Nak",
        "plain Ncf",
        "Fin in Spm",
    ],
    ..PLAIN
};

/// What a session of files or frames shows.
const OBJECTS: &[&str] = &[
    "Mark in Spm",
    "plain Odata",
    "plain Rdata",
    "NakList in Nak",
];

/// Those that take longest are the first.
const FEATURES: &[Feature] = &[
    Feature {
        name: "receivers counted by polls",
        send: "--size 1400 --rate 50kB/s --poll-interval 1s",
        count: 400,
        // A count needs its first and its last POLL to arrive.
        lost: 0,
        shows: &["plain Poll", "plain Polr"],
        ..PLAIN
    },
    Feature {
        name: "messages as OpenPGM expects them",
        session: "-g 239.192.0.1 --profile openpgm",
        ..PROFILED
    },
    Feature {
        name: "messages as ZeroMQ expects them",
        session: "-g 239.192.0.1 --profile zmq",
        ..PROFILED
    },
    PLAIN,
    Feature {
        name: "messages in UDP over IPv6",
        session: IPV6,
        ..PLAIN
    },
    Feature {
        name: "messages in IPv4",
        session: "-g 239.192.0.1:7500 --encapsulation raw",
        filter: RAW,
        ..PLAIN
    },
    Feature {
        name: "messages in IPv6",
        session: "-g [ff15::1]:7500 --encapsulation raw",
        filter: &["ip6", "proto", "113"],
        ..PLAIN
    },
    Feature {
        name: "messages of one source in UDP over IPv4",
        session: "-g SOURCE@232.1.1.1:7500",
        ..PLAIN
    },
    Feature {
        name: "messages to one host",
        session: "-g RECEIVER:7500",
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
    Feature {
        name: "a file",
        send: "--rate 4MB/s",
        ends: Ends::File,
        shows: OBJECTS,
        ..PLAIN
    },
    Feature {
        name: "frames",
        send: "--size 30kB --fps 25 --deadline 2s",
        count: 25,
        ends: Ends::Frames,
        shows: OBJECTS,
        ..PLAIN
    },
];

#[test]
fn every_features_recorded_run_reads_the_same() {
    isolated(|| {
        if !are_there() {
            return;
        }
        let (place, next) = (Place::new("tshark"), AtomicUsize::new(0));
        let work = || {
            while let Some(feature) = FEATURES.get(next.fetch_add(1, Ordering::Relaxed)) {
                feature.run(&place);
            }
        };
        thread::scope(|scope| {
            for _ in 0..AT_A_TIME {
                scope.spawn(work);
            }
        });
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
        if self.lost > 0 {
            lab.host(1).set_loss(self.lost, 100).unwrap();
        }
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
            assert_last_group(self.name, &packet);
        }
        assert_shows(self.name, &packets, self.shows);
    }

    fn transfer(&self, lab: &Lab, place: &Place) {
        let key = match self.ends {
            Ends::Keyed => key_of(place),
            _ => String::new(),
        };
        let count = self.count;
        let [source, receiver] = [0, 1].map(|host| lab.host(host).ipv4().to_string());
        // Only receivers name the source of a group.
        let at_source = self.session.replace("SOURCE@", "");
        let [at_source, at_receiver] = [at_source.as_str(), self.session].map(|words| {
            let words = words.replace("SOURCE", &source);
            format!("{} --json {key}", words.replace("RECEIVER", &receiver))
        });
        let receive = |command: &str| {
            let words = format!("{command} {at_receiver} --faults nogso");
            let receiver = End::start(towline(lab.host(1), &words));
            receiver.await_session();
            receiver
        };
        let send = |command: &str| {
            let words = format!("{command} {at_source} {}", self.send);
            End::start(towline(lab.host(0), &words))
        };
        match self.ends {
            Ends::Complete | Ends::Keyed => {
                let receiver = receive(&format!("load recv --count {count} --timeout 20s"));
                let words = format!("load send --count {count} --receivers 1 --timeout 20s");
                let sent = send(&words).report(LIMIT);
                assert_eq!(sent["is_confirmed"], true, "{}: {sent:#}", self.name);
                assert_complete(&receiver.report(LIMIT), count);
            }
            Ends::Late => {
                let sender = send("load send");
                sender.await_counter("source.odata_packets", 100);
                let receiver = receive("load recv --late-join offered --timeout 20s");
                receiver.await_counter("receiver.odata_packets", 100);
                sender.signal("-INT");
                sender.report(LIMIT);
                receiver.report(LIMIT);
            }
            Ends::Broken => {
                let receiver = receive("load recv --timeout 20s");
                // Of the two receivers that it waits for one is there.
                send("load send --count 100 --receivers 2 --timeout 1s").report(LIMIT);
                drop(receiver);
            }
            Ends::File => {
                let file = place.file("file");
                fs::write(&file, vec![7; count as usize * 1000]).unwrap();
                let receiver = receive(&format!("recv {} --from {source}", place.file("came")));
                let sent = send(&format!("send {file} --receivers 1")).report(LIMIT);
                assert_eq!(sent["is_proven"], true, "{}: {sent:#}", self.name);
                receiver.report(LIMIT);
            }
            Ends::Frames => {
                let receiver = receive("frames recv --fail-on none");
                send(&format!("frames send --count {count} --receivers 1")).report(LIMIT);
                receiver.report(LIMIT);
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

/// Asserts that the SPMs at a session's end tell how many packets the last group of parity has when
/// these are few. How many they are depends on the first number, which is drawn at random.
fn assert_last_group(name: &str, packet: &Packet<'_>) {
    let Body::Spm(spm) = packet.body() else {
        return;
    };
    let (mut is_end, mut offered, mut told) = (false, None, None);
    for option in packet.options() {
        match option {
            PgmOption::Fin => is_end = true,
            PgmOption::ParityPrm(offer) => offered = Some(offer.group_size),
            PgmOption::CurrTgsize(size) => told = Some(size.packet_count),
            _ => {}
        }
    }
    if let Some(group_size) = offered.filter(|_| is_end) {
        let last = spm.lead.0.wrapping_add(1) % group_size;
        assert_eq!(told, (last > 0).then_some(last), "{name}: {packet}");
    }
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
