//! Datagrams that end a program on libpgm.

use std::{
    io::Write as _,
    net::UdpSocket,
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabSpec};
use towline::counters::{self, ProcessCounters};

use super::{ENV, GROUP, MESSAGES, Ours, PORT, alone, compiled, directory, finish_both, on, ready};

/// A program of this test that runs on the stand-in, as `towline stat` sees it.
struct Watched {
    pid: u32,
}

impl Watched {
    /// Finds the program whose session is a `role`, which it becomes when it connects.
    fn find(role: &str) -> Self {
        let own = directory().to_string_lossy();
        let is_it = |process: &ProcessCounters| {
            process.command.contains(&*own) && process.sessions.iter().any(|it| it.role == role)
        };
        let found = || {
            let pids = counters::processes().unwrap();
            let mut all = pids.into_iter().filter_map(|pid| counters::read(pid).ok());
            all.find(is_it)
        };
        let process = eventually(found);
        let pid = process
            .unwrap_or_else(|| panic!("no {role} shows counters"))
            .pid;
        Self { pid }
    }

    /// Reads a counter such as `drop.truncated`.
    fn counter(&self, name: &str) -> u64 {
        let process = counters::read(self.pid).unwrap();
        let all = process
            .sessions
            .iter()
            .flat_map(|session| &session.counters);
        let named = all.filter(|it| format!("{}.{}", it.set, it.name) == name);
        named.map(|it| it.value).sum()
    }

    /// Runs `body`, and waits until the counter has grown by `count`.
    fn assert_counts(&self, count: u64, name: &str, what: &str, body: impl FnOnce()) {
        let before = self.counter(name);
        body();
        let grown = || self.counter(name) - before;
        let counted = eventually(|| (grown() >= count).then_some(()));
        assert!(counted.is_some(), "{what}: {name} has grown by {}", grown());
    }
}

/// Looks for something twenty times a second, for some seconds.
fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        let found = look();
        if found.is_some() || Instant::now() > until {
            return found;
        }
        thread::sleep(Duration::from_millis(50));
    }
}
#[test]
fn it_outlives_the_datagrams_that_end_libpgm() {
    alone(|| {
        let Some(program) = compiled("talk") else {
            return;
        };
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let [from, to, attacker] = [0, 1, 2].map(|host| lab.host(host).ipv4());
        let program = program.display();
        let recv = format!("TALK_PATIENCE=80 {program} recv {to} {MESSAGES} short recvmsgv poll");
        let receiver = ready(on(lab.host(1), Ours, ENV, &recv));
        // Slow, so that messages go on meanwhile; and the last one waits until all is counted.
        let send = format!("TALK_HOLD=1 {program} send {from} {MESSAGES} 100000 short");
        let mut sender = on(lab.host(0), Ours, ENV, &send).spawn().unwrap();
        let bound = lab.host(2).enter(|| UdpSocket::bind((attacker, 0)));
        let socket = bound.unwrap().unwrap();
        let [subscriber, publisher] = ["subscriber", "publisher"].map(Watched::find);
        for (what, datagram, name) in to_receivers() {
            subscriber.assert_counts(1, name, what, || {
                socket.send_to(&datagram, (GROUP, PORT)).unwrap();
            });
        }
        for (what, datagram, name) in to_senders() {
            publisher.assert_counts(1, name, what, || {
                socket.send_to(&datagram, (from, PORT)).unwrap();
            });
        }
        // Not more at a time than a socket's buffer holds.
        for first in (100..100 + SESSIONS).step_by(100) {
            subscriber.assert_counts(100, "receiver.sessions_found", "spoofed", || {
                for session in first..first + 100 {
                    let datagram = packet(session, ODATA, 0, &data(7));
                    socket.send_to(&datagram, (GROUP, PORT)).unwrap();
                }
            });
        }
        let evicted = subscriber.counter("receiver.sessions_evicted");
        assert!(evicted >= u64::from(SESSIONS - PEERS_MAX), "{evicted}");
        let missed = subscriber.counter("receiver.missed_sqns");
        assert!(missed <= WINDOW_SQNS, "{missed}");
        sender.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let text = finish_both(sender, receiver);
        assert!(
            text.contains(&format!("from {SENDER}.{SOURCE_PORT} ")),
            "{text}"
        );
        let all = format!("received {MESSAGES} messages, 1411400 bytes\nwrong 0\n");
        assert!(text.contains(&all), "{text}");
    });
}

/// What a datagram is, the datagram, and the counter that it is found in.
type Hostile = (&'static str, Vec<u8>, &'static str);

/// Datagrams each of which ends a receiving program on libpgm 5.3, or keeps it busy for ever.
fn to_receivers() -> Vec<Hostile> {
    let no_length = |body: &[u8]| [body, &NO_LENGTH].concat();
    let far = window(0, 0x7000_0000);
    vec![
        ("no bytes", Vec::new(), TRUNCATED),
        ("one byte", vec![0], TRUNCATED),
        ("ODATA of 16 bytes", packet(1, ODATA, 0, &[]), TRUNCATED),
        (
            "another first option than the length",
            packet(2, ODATA, 1, &[&data(0)[..], &[0x81, 16], &[0; 14]].concat()),
            MALFORMED,
        ),
        (
            "ODATA with an option of no length",
            packet(3, ODATA, 1, &no_length(&data(0))),
            MALFORMED,
        ),
        (
            "SPM with an option of no length",
            packet(4, SPM, 1, &no_length(&window(0, 9))),
            MALFORMED,
        ),
        (
            "NCF with an option of no length",
            packet(6, NCF, 1, &no_length(&nak())),
            MALFORMED,
        ),
        (
            "a peer's NAK with an option of no length",
            packet(7, NAK, 1, &no_length(&nak())),
            MALFORMED,
        ),
        ("NAK of 16 bytes", packet(8, NAK, 0, &[]), TRUNCATED),
        (
            "a session's first packet",
            packet(5, ODATA, 0, &data(0)),
            "receiver.sessions_found",
        ),
        // As many as the window holds are taken for missing, and no more: see `WINDOW_SQNS`.
        (
            "a far lead",
            packet(5, SPM, 0, &far),
            "receiver.missed_sqns",
        ),
        (
            "data far ahead",
            packet(5, ODATA, 0, &data(0x6fff_ffff)),
            "drop.beyond_window",
        ),
    ]
}

/// The same for a sending program.
fn to_senders() -> Vec<Hostile> {
    let no_length = [&nak()[..], &NO_LENGTH].concat();
    vec![
        ("no bytes", Vec::new(), TRUNCATED),
        ("one byte", vec![0], TRUNCATED),
        ("NAK of 16 bytes", upstream(NAK, 0, &[]), TRUNCATED),
        (
            "NAK with an option of no length",
            upstream(NAK, 1, &no_length),
            MALFORMED,
        ),
        (
            "NAK of another session",
            packet(7, NAK, 1, &no_length),
            "drop.not_for_us",
        ),
    ]
}

const TRUNCATED: &str = "drop.truncated";
const MALFORMED: &str = "drop.malformed";
const SPM: u8 = 0;
const ODATA: u8 = 4;
const NAK: u8 = 8;
const NCF: u8 = 10;
/// Options of 8 bytes, of which the first has no length.
const NO_LENGTH: [u8; 8] = [0, 4, 0, 8, 0x81, 0, 0, 0];
/// A network address.
const NLA: [u8; 8] = [0, 1, 0, 0, 10, 77, 0, 1];

fn data(number: u32) -> Vec<u8> {
    [number, 0].map(u32::to_be_bytes).concat()
}

fn window(trail: u32, lead: u32) -> Vec<u8> {
    let numbers = [1, trail, lead].map(u32::to_be_bytes).concat();
    [&numbers[..], &NLA].concat()
}

/// What a NAK or NCF asks for.
fn nak() -> Vec<u8> {
    [&[0, 0, 0, 1], &NLA[..], &NLA].concat()
}

/// A packet of a session of its own, with a checksum that is right.
fn packet(session: u16, kind: u8, options: u8, body: &[u8]) -> Vec<u8> {
    let [high, low] = session.to_be_bytes();
    let ports = [session, DATA_PORT].map(u16::to_be_bytes).concat();
    with_checksum(&[
        &ports,
        &[kind, options, 0, 0],
        &[9, 9, 9, 9, high, low],
        &[0, 0],
        body,
    ])
}

/// A packet to the sender of the session that runs, with a checksum that is right.
fn upstream(kind: u8, options: u8, body: &[u8]) -> Vec<u8> {
    let ports = [DATA_PORT, SOURCE_PORT].map(u16::to_be_bytes).concat();
    let gsi = SENDER.split('.').map(|number| number.parse().unwrap());
    let gsi: Vec<u8> = gsi.collect();
    with_checksum(&[&ports, &[kind, options, 0, 0], &gsi, &[0, 0], body])
}

fn with_checksum(parts: &[&[u8]]) -> Vec<u8> {
    let mut packet = parts.concat();
    let words = packet.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([pair[0], low]))
    });
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = ((sum & 0xffff) + (sum >> 16)) as u16;
    packet[6..8].copy_from_slice(&(!sum).to_be_bytes());
    packet
}

/// The ports of the session that runs, and the identifier of its sender: `talk.c` makes it from the
/// sender's address.
const DATA_PORT: u16 = 7500;
const SOURCE_PORT: u16 = 4711;
const SENDER: &str = "108.246.120.105.140.226";
/// The receiver's window in packets.
const WINDOW_SQNS: u64 = 4_000;
/// The most sessions that a group's receiver knows at a time.
const PEERS_MAX: u16 = 1_024;
const SESSIONS: u16 = 2_000;
/// How long something may take to be seen.
const PATIENCE: Duration = Duration::from_secs(15);
