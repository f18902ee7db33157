//! Datagrams that end a program on libpgm.

use std::{
    io::Write as _,
    net::{Ipv4Addr, UdpSocket},
    process::Child,
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabSpec, PYTHON};
use towline::counters::{self, ProcessCounters};

use super::{
    ENV, GROUP, Library, MESSAGES, OpenPgm, Ours, PORT, alone, compiled, directory, finish_both,
    on, ready,
    talk::joined,
    text,
    zmq::{figure, has_zmq, script},
};

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

/// A program at both ends of a lab with three hosts, of which the third attacks.
struct Ends {
    sender: Child,
    receiver: Child,
    target: Target,
    from: Ipv4Addr,
    attacker: UdpSocket,
}

impl Ends {
    /// Starts both ends, and waits until data is sent to `port`. `words` gives the command line of
    /// the sender or receiver with an address. The sender's last message must wait for a line on
    /// its standard input.
    fn start(
        lab: &Lab,
        library: Library,
        port: u16,
        words: impl Fn(&str, Ipv4Addr) -> String,
    ) -> Self {
        let [from, to, own] = [0, 1, 2].map(|host| lab.host(host).ipv4());
        let watcher = joined(lab.host(2), port, PATIENCE);
        let receiver = ready(on(lab.host(1), library, ENV, &words("recv", to)));
        let mut sender = on(lab.host(0), library, ENV, &words("send", from));
        let sender = sender.spawn().unwrap();
        let mut packet = [0; 2000];
        while packet[4] != ODATA {
            watcher.recv(&mut packet).unwrap();
        }
        let bound = lab.host(2).enter(|| UdpSocket::bind((own, 0)));
        Self {
            sender,
            receiver,
            target: Target::of(&packet, port),
            from,
            attacker: bound.unwrap().unwrap(),
        }
    }

    fn to_receiver(&self, datagram: &[u8]) {
        let group = (GROUP, self.target.udp_port);
        self.attacker.send_to(datagram, group).unwrap();
    }

    fn to_sender(&self, datagram: &[u8]) {
        let at = (self.from, self.target.udp_port);
        self.attacker.send_to(datagram, at).unwrap();
    }

    /// Announces a hundred sessions: not more than a socket's buffer holds.
    fn spoof(&self, first: u16) {
        for session in first..first + 100 {
            self.to_receiver(&self.target.packet(session, SPM, 0, &window(1, 9)));
        }
    }

    /// Lets the last message go.
    fn release(&mut self) {
        // One that has ended takes no line.
        let _ended = self.sender.stdin.as_mut().unwrap().write_all(b"\n");
    }
}

/// Returns the first session of each hundred that are spoofed.
fn spoofed() -> impl Iterator<Item = u16> {
    (100..100 + SESSIONS as u16).step_by(100)
}

/// Sends both ends, which run on our library, everything, finds each datagram in its counter, and
/// returns what both print then. `window_sqns` is the receiver's window.
fn outlive(mut ends: Ends, window_sqns: u64) -> String {
    let [subscriber, publisher] = ["subscriber", "publisher"].map(Watched::find);
    for (what, datagram, name) in ends.target.to_receivers() {
        subscriber.assert_counts(1, name, what, || ends.to_receiver(&datagram));
    }
    for (what, datagram, name) in ends.target.to_senders() {
        publisher.assert_counts(1, name, what, || ends.to_sender(&datagram));
    }
    for first in spoofed() {
        subscriber.assert_counts(100, "receiver.sessions_found", "spoofed", || {
            ends.spoof(first);
        });
    }
    let evicted = subscriber.counter("receiver.sessions_evicted");
    assert!(evicted >= SESSIONS - PEERS_MAX, "{evicted}");
    let missed = subscriber.counter("receiver.missed_sqns");
    assert!(missed <= window_sqns, "{missed}");
    ends.release();
    finish_both(ends.sender, ends.receiver)
}

#[test]
fn it_outlives_the_datagrams_that_end_libpgm() {
    alone(|| {
        let Some(program) = compiled("talk") else {
            return;
        };
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let program = program.display();
        // Slow, so that messages go on meanwhile.
        let words = |role: &str, address| match role {
            "send" => format!("TALK_HOLD=1 {program} send {address} {MESSAGES} 100000 short"),
            _ => {
                format!("TALK_PATIENCE=80 {program} recv {address} {MESSAGES} short recvmsgv poll")
            }
        };
        let text = outlive(Ends::start(&lab, Ours, PORT, words), WINDOW_SQNS);
        assert!(
            text.contains("from 108.246.120.105.140.226.4711 "),
            "{text}"
        );
        let all = format!("received {MESSAGES} messages, 1411400 bytes\nwrong 0\n");
        assert!(text.contains(&all), "{text}");
    });
}

/// The command line of a ZeroMQ program, of which the subscriber waits `patience_s` for a message.
fn zmq(role: &str, address: Ipv4Addr, messages: u32, rate_kbit: u64, patience_s: u32) -> String {
    let script = script().display();
    // One that does not end is no use, and `on` waits longer.
    let limit = format!("timeout --signal=KILL {} {PYTHON} {script}", patience_s + 5);
    match role {
        "send" => format!("ZMQ_HOLD=1 {limit} pub {address} {messages} 1000 {rate_kbit}"),
        _ => format!("ZMQ_PATIENCE={patience_s} {limit} sub {address} {messages} {rate_kbit}"),
    }
}

#[test]
fn zeromq_on_it_outlives_them_too() {
    alone(|| {
        if !has_zmq() {
            return;
        }
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let words = |role: &str, address| zmq(role, address, MESSAGES, ZMQ_RATE_KBIT, 80);
        let text = outlive(Ends::start(&lab, Ours, ZMQ_PORT, words), ZMQ_WINDOW_SQNS);
        let figures = ["received", "gaps"].map(|word| figure(&text, word));
        assert_eq!(figures, [f64::from(MESSAGES), 0.0], "{text}");
    });
}

/// The control: each kind of datagram, and what becomes of ZeroMQ on libpgm. It is printed, as some
/// of it is a matter of chance.
#[test]
fn what_becomes_of_zeromq_on_libpgm_is_printed() {
    alone(|| {
        if !has_zmq() {
            return;
        }
        for kind in [
            "no bytes",
            "16 bytes",
            "no length",
            "empty",
            "far",
            "spoofed",
        ] {
            let lab = Lab::new(&LabSpec::new(3)).unwrap();
            let words = |role: &str, address| zmq(role, address, 200, 20_000, 3);
            let mut ends = Ends::start(&lab, OpenPgm, ZMQ_PORT, words);
            // libpgm is to have taken each before the next comes.
            let pause = || thread::sleep(Duration::from_millis(50));
            for (what, datagram, _) in ends.target.to_receivers() {
                if what.contains(kind) {
                    ends.to_receiver(&datagram);
                    pause();
                }
            }
            for (what, datagram, _) in ends.target.to_senders() {
                if what.contains(kind) {
                    ends.to_sender(&datagram);
                    pause();
                }
            }
            for first in spoofed().filter(|_| kind == "spoofed") {
                ends.spoof(first);
                pause();
            }
            ends.release();
            for (role, child) in [("subscriber", ends.receiver), ("publisher", ends.sender)] {
                let output = child.wait_with_output().unwrap();
                let said = text(&output).replace('\n', "; ");
                println!("{kind}: libpgm's {role}: {}: {said}", output.status);
            }
        }
    });
}

/// What a datagram is, the datagram, and the counter that it is found in.
type Hostile = (&'static str, Vec<u8>, &'static str);

/// The session that runs.
struct Target {
    udp_port: u16,
    data_port: [u8; 2],
    source_port: [u8; 2],
    gsi: [u8; 6],
}

impl Target {
    /// Reads the header of a packet of the session.
    fn of(packet: &[u8], udp_port: u16) -> Self {
        Self {
            udp_port,
            source_port: [packet[0], packet[1]],
            data_port: [packet[2], packet[3]],
            gsi: std::array::from_fn(|at| packet[8 + at]),
        }
    }

    /// Datagrams each of which ends a receiving program on libpgm 5.3, or keeps it busy for ever.
    fn to_receivers(&self) -> Vec<Hostile> {
        let no_length = |body: &[u8]| [body, &NO_LENGTH].concat();
        let far = window(2, 0x7000_0000);
        vec![
            ("no bytes", Vec::new(), TRUNCATED),
            ("one byte", vec![0], TRUNCATED),
            (
                "ODATA of 16 bytes",
                self.packet(1, ODATA, 0, &[]),
                TRUNCATED,
            ),
            (
                "another first option than the length",
                self.packet(2, ODATA, 1, &[&data(0)[..], &[0x81, 16], &[0; 14]].concat()),
                MALFORMED,
            ),
            (
                "ODATA with an option of no length",
                self.packet(3, ODATA, 1, &no_length(&data(0))),
                MALFORMED,
            ),
            (
                "SPM with an option of no length",
                self.packet(4, SPM, 1, &no_length(&window(1, 9))),
                MALFORMED,
            ),
            (
                "NCF with an option of no length",
                self.packet(6, NCF, 1, &no_length(&nak())),
                MALFORMED,
            ),
            (
                "a peer's NAK with an option of no length",
                self.packet(7, NAK, 1, &no_length(&nak())),
                MALFORMED,
            ),
            ("NAK of 16 bytes", self.packet(8, NAK, 0, &[]), TRUNCATED),
            (
                "the first SPM of a session whose lead is far",
                self.packet(5, SPM, 0, &window(1, 0)),
                "receiver.sessions_found",
            ),
            (
                "an empty message",
                self.packet(9, ODATA, 0, &data(0)),
                "libpgm.unfit_messages",
            ),
            // As many as the window holds are taken for missing, and no more: see `outlive`.
            (
                "a far lead",
                self.packet(5, SPM, 0, &far),
                "receiver.missed_sqns",
            ),
            (
                "data far ahead",
                self.packet(5, ODATA, 0, &data(0x6fff_ffff)),
                "drop.beyond_window",
            ),
        ]
    }

    /// The same for a sending program.
    fn to_senders(&self) -> Vec<Hostile> {
        let no_length = [&nak()[..], &NO_LENGTH].concat();
        vec![
            ("no bytes", Vec::new(), TRUNCATED),
            ("one byte", vec![0], TRUNCATED),
            ("NAK of 16 bytes", self.upstream(NAK, 0, &[]), TRUNCATED),
            (
                "NAK with an option of no length",
                self.upstream(NAK, 1, &no_length),
                MALFORMED,
            ),
            (
                "NAK of another session",
                self.packet(7, NAK, 1, &no_length),
                "drop.not_for_us",
            ),
        ]
    }

    /// A packet of a session of its own, with a checksum that is right.
    fn packet(&self, session: u16, kind: u8, options: u8, body: &[u8]) -> Vec<u8> {
        let session = session.to_be_bytes();
        with_checksum(&[
            &session,
            &self.data_port,
            &[kind, options, 0, 0],
            &[9, 9, 9, 9],
            &session,
            &[0, 0],
            body,
        ])
    }

    /// A packet to the sender of the session that runs, with a checksum that is right.
    fn upstream(&self, kind: u8, options: u8, body: &[u8]) -> Vec<u8> {
        with_checksum(&[
            &self.data_port,
            &self.source_port,
            &[kind, options, 0, 0],
            &self.gsi,
            &[0, 0],
            body,
        ])
    }
}

const TRUNCATED: &str = "drop.truncated";
const MALFORMED: &str = "drop.malformed";
const SPM: u8 = 0;
const ODATA: u8 = 4;
const NAK: u8 = 8;
const NCF: u8 = 10;
/// Options of 8 bytes, of which one has no length and says that another follows.
const NO_LENGTH: [u8; 8] = [0, 4, 0, 8, 1, 0, 0, 0];
/// The network addresses of the sender and of the group.
const NLA: [u8; 8] = [0, 1, 0, 0, 10, 77, 0, 1];
const GROUP_NLA: [u8; 8] = [0, 1, 0, 0, 239, 192, 7, 1];

fn data(number: u32) -> Vec<u8> {
    [number, 0].map(u32::to_be_bytes).concat()
}

/// What an SPM says of a window that begins at 0.
fn window(spm: u32, lead: u32) -> Vec<u8> {
    let numbers = [spm, 0, lead].map(u32::to_be_bytes).concat();
    [&numbers[..], &NLA].concat()
}

/// What a NAK or NCF asks for.
fn nak() -> Vec<u8> {
    [&[0, 0, 0, 1], &NLA[..], &GROUP_NLA].concat()
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

/// The window of `talk.c` in packets.
const WINDOW_SQNS: u64 = 4_000;
const ZMQ_PORT: u16 = 5555;
const ZMQ_RATE_KBIT: u64 = 3_200;
/// The window of ZeroMQ's receiver: what the rate sends in `RECOVERY_IVL`, which is 2 s.
const ZMQ_WINDOW_SQNS: u64 = 2 * ZMQ_RATE_KBIT * 1_000 / 8 / 1_500;
/// The most sessions that a group's receiver knows at a time.
const PEERS_MAX: u64 = 1_024;
const SESSIONS: u64 = 2_000;
/// How long something may take to be seen.
const PATIENCE: Duration = Duration::from_secs(15);
