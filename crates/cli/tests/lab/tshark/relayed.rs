//! Everything that passes a relay: what a network element changes, and what it sends by itself.

use std::{collections::BTreeMap, net::IpAddr, thread};

use lab::isolated;
use wire::pgm::{
    Body,
    PacketType::{self, Nak, Ncf, Odata, Poll, Polr, Rdata, Spm},
};

use super::{LIMIT, RAW, REST, UDP, are_there, assert_same, assert_shows, recording::record_at};
use crate::{
    ends::{End, assert_complete, towline},
    relay::{FAR, NEAR, end, relay, two_networks, two_networks_and_a_tunnel},
    signals::Place,
};

/// A run through a relay.
#[derive(Clone, Copy, Debug)]
struct Relayed {
    name: &'static str,
    /// The words of every end and of the relay.
    words: &'static str,
    /// The sender's words beside these.
    send: &'static str,
    /// Messages.
    count: u64,
    /// What is recorded.
    filter: &'static [&'static str],
    /// What is lost before the relay and behind it.
    is_lossy: bool,
    /// A second relay is behind the first, and the receiver behind that.
    is_tunnel: bool,
    /// What is to be sent by the source, by the relay towards it, by the relay away from it, and by
    /// the receiver or the second relay.
    sends: [&'static [PacketType]; 4],
    /// What the run is to show beside that.
    shows: &'static [&'static str],
}

const PLAIN: Relayed = Relayed {
    name: "a relay",
    words: "",
    send: "--size 1-3000 --rate 10MB/s",
    count: 3000,
    filter: UDP,
    is_lossy: true,
    is_tunnel: false,
    sends: [DOWN, &[Nak], DOWN, &[Nak]],
    shows: &["Mark in Spm", "Fragment in Rdata"],
};
const DOWN: &[PacketType] = &[Spm, Odata, Rdata, Ncf];

const RUNS: &[Relayed] = &[
    PLAIN,
    Relayed {
        name: "a relay in IPv4",
        words: "--encapsulation raw",
        filter: RAW,
        ..PLAIN
    },
    Relayed {
        name: "a relay into a tunnel",
        is_tunnel: true,
        ..PLAIN
    },
    Relayed {
        name: "a relay with parity",
        send: "--size 1-3000 --rate 10MB/s --fec-group 8",
        shows: &[
            "ParityPrm in Spm",
            "parity Nak",
            "parity Ncf",
            "parity Rdata",
        ],
        ..PLAIN
    },
    Relayed {
        name: "a relay counted by polls",
        send: "--size 1400 --rate 50kB/s --poll-interval 1s",
        count: 400,
        is_lossy: false,
        sends: [&[Poll], &[Polr], &[Spm, Odata], &[]],
        shows: &[],
        ..PLAIN
    },
];

#[test]
fn a_relays_recorded_runs_read_the_same() {
    isolated(|| {
        if !are_there() {
            return;
        }
        let place = Place::new("tshark-relay");
        thread::scope(|scope| {
            for run in RUNS {
                let place = &place;
                scope.spawn(move || run.run(place));
            }
        });
    });
}

impl Relayed {
    fn run(&self, place: &Place) {
        let (name, words) = (self.name, self.words);
        let lab = if self.is_tunnel {
            two_networks_and_a_tunnel()
        } else {
            two_networks(1)
        };
        let path = place.file(&format!("{}.pcap", name.replace(' ', "-")));
        let recorder = record_at(lab.host(1), "any", path.as_ref(), self.filter);
        // What is recorded comes before the relay's faults.
        let mut faults = "nogso";
        if self.is_lossy {
            faults = "loss=5%,seed=9,nogso";
            lab.host(2).set_loss(10, 100).unwrap();
        }
        let start = |host, networks: &str, faults| {
            let words = format!("{networks} {words} --faults {faults}");
            relay(lab.host(host), &words)
        };
        let [one, other] = [1, 2].map(|host| lab.host(host).ipv4());
        let (relays, receiver) = if self.is_tunnel {
            let relays = vec![
                start(1, &format!("{NEAR} {other}"), faults),
                start(2, &format!("{NEAR} {one}"), "nogso"),
            ];
            (relays, (lab.host(3), NEAR))
        } else {
            let relays = vec![start(1, &format!("{NEAR} {FAR}"), faults)];
            (relays, (lab.host(2), FAR))
        };
        let words = format!("{words} --count {} --json --faults nogso", self.count);
        let receive = format!("load recv -g {} --timeout 20s {words}", receiver.1);
        let receiver = End::start(towline(receiver.0, &receive));
        receiver.await_session();
        let send = format!("load send -g {NEAR} --receivers 1 --timeout 20s {words}");
        let send = format!("{send} {}", self.send);
        let sent = End::start(towline(lab.host(0), &send)).report(LIMIT);
        assert_eq!(sent["is_confirmed"], true, "{name}: {sent:#}");
        assert_complete(&receiver.report(LIMIT), self.count);
        thread::sleep(REST);
        for relay in relays {
            end(relay);
        }
        recorder.signal("-INT");
        recorder.finish(LIMIT);

        let packets = assert_same(name, path.as_ref());
        let mut sent = BTreeMap::new();
        for recorded in &packets {
            let (packet, _) = recorded.packet();
            if let Body::Spm(spm) = packet.body() {
                // NAKs go to whoever passed the SPM on.
                assert_eq!(spm.path_nla, recorded.from, "{name}: {packet}");
            }
            *sent
                .entry((recorded.from, packet.header().kind))
                .or_insert(0) += 1;
        }
        println!("{name}: {sent:?}");
        let [source, near] = [0, 1].map(|host| IpAddr::from(lab.host(host).second_ipv4()));
        let senders = [source, near, one.into(), other.into()];
        for (from, kinds) in senders.into_iter().zip(self.sends) {
            for kind in kinds {
                let is_sent = sent.contains_key(&(from, *kind));
                assert!(is_sent, "{name}: no {kind} of {from}");
            }
        }
        assert_shows(name, &packets, self.shows);
    }
}
