//! The peers: what is started on a host to send or to receive, and what came of it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
    sync::OnceLock,
    time::Duration,
};

use lab::{Host, PYTHON};

use super::cell::{Carrier, Cell, FEC_GROUP, Manner, Parity, Scale, Story};
use crate::{
    ends::{End, Printed, towline},
    signals::Place,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Towline,
    /// A C program on Debian's libpgm.
    OpenPgm,
    /// Debian's ZeroMQ for Python, over epgm.
    ZeroMq,
}

/// What a receiver has got.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) received: u32,
    /// Bytes of messages a second, from the first to the last.
    pub(super) bytes_per_s: f64,
    /// What is wrong with it, other than the number.
    pub(super) fault: Option<String>,
}

impl Peer {
    /// True for peers that send messages of several packets. libpgm 5.3 crashes when it does.
    pub(super) const fn sends_long(self) -> bool {
        !matches!(self, Self::OpenPgm)
    }

    /// The kinds of parity that can be offered between two peers. libpgm 5.3 crashes when it sends
    /// parity that nobody asked for, and gives nothing out or aborts when it receives such; ZeroMQ
    /// has none.
    pub(super) const fn parity_to(self, to: Self) -> &'static [Parity] {
        match (self, to) {
            (Self::ZeroMq, _) | (_, Self::ZeroMq) => &[],
            (Self::OpenPgm, _) | (_, Self::OpenPgm) => &[Parity::OnDemand],
            (Self::Towline, Self::Towline) => &[Parity::OnDemand, Parity::Proactive],
        }
    }

    /// How long a sender waits before its first message.
    pub(super) const fn start_time(self) -> Duration {
        Duration::from_millis(match self {
            Self::Towline => 50,
            Self::OpenPgm => 300,
            Self::ZeroMq => 1_200,
        })
    }

    pub(super) fn send(self, host: &Host, cell: Cell, scale: Scale, place: &Place) -> Command {
        let Scale {
            count, bytes_per_s, ..
        } = scale;
        match self {
            Self::Towline => {
                let input = place.file(cell.content.file(cell.to));
                let mut parity = match cell.parity {
                    Parity::No => String::new(),
                    Parity::OnDemand => format!("--fec-group {FEC_GROUP}"),
                    Parity::Proactive => format!("--fec-group {FEC_GROUP} --fec-proactive 1"),
                };
                if cell.parity != Parity::No && cell.to == Self::OpenPgm {
                    parity += " --fec-form openpgm";
                }
                // A receiver on a busy machine may ask for repairs long after the last message.
                if cell.story == Story::Plain && cell.to != Self::Towline {
                    parity += " --linger 60s";
                }
                let words = format!(
                    "pub {} --framing length --rate {}kB/s {parity}",
                    session(cell),
                    bytes_per_s / 1000
                );
                let tool = env!("CARGO_BIN_EXE_towline");
                let mut command = host.command("sh");
                command.args(["-c", &format!("exec {tool} {words} < {input}")]);
                command
            }
            Self::OpenPgm => talk(host, cell, &format!("send {count} {bytes_per_s} short")),
            Self::ZeroMq => {
                let kbit = bytes_per_s / 125;
                let size = if cell.content == Content::Long {
                    5_000
                } else {
                    750
                };
                zmq(host, cell, &format!("pub {count} {size} {kbit}"))
            }
        }
    }

    /// Starts a receiver and waits until it has joined.
    pub(super) fn receive(self, host: &Host, cell: Cell, scale: Scale) -> End {
        let count = scale.count;
        match self {
            Self::Towline => {
                let end = match (cell.from, cell.story) {
                    // ZeroMQ puts as much into a packet as is there.
                    (Self::ZeroMq, Story::Restart) => "--timeout 5s".to_owned(),
                    (Self::ZeroMq, _) | (_, Story::LateJoin) => "--once --timeout 40s".to_owned(),
                    (_, Story::Restart) => format!("--count {} --timeout 40s", 2 * count),
                    _ => format!("--count {count} --timeout 40s"),
                };
                let words = format!("sub {} --framing length {end}", session(cell));
                let receiver = End::start(towline(host, &words));
                receiver.await_session();
                receiver
            }
            Self::OpenPgm => {
                let receiver = End::start(talk(
                    host,
                    cell,
                    &format!("recv {count} {} recvmsgv poll", cell.content.word()),
                ));
                receiver.await_said("ready");
                receiver
            }
            Self::ZeroMq => {
                let kbit = scale.bytes_per_s / 125;
                let receiver = End::start(zmq(host, cell, &format!("sub {count} {kbit}")));
                receiver.await_said("ready");
                receiver
            }
        }
    }

    /// Waits for a receiver's end and looks at what it has got.
    pub(super) fn outcome(self, end: End, cell: Cell, scale: Scale, place: &Place) -> Outcome {
        let limit = cell.limit(scale);
        match self {
            Self::Towline => {
                let (_, Printed { bytes, took }, said) = end.finish_timed(limit);
                let (outcome, took) = match cell.from {
                    Self::ZeroMq => {
                        let outcome = super::zmtp::judge(&bytes, cell, scale);
                        (outcome, took.saturating_sub(ZMQ_ENDING_TIME))
                    }
                    _ => (judge(&bytes, cell, scale, place), took),
                };
                let bytes_per_s = bytes.len() as f64 / took.as_secs_f64();
                Outcome {
                    bytes_per_s,
                    ..outcome.said(&said)
                }
            }
            Self::OpenPgm => {
                let (_, _, said) = end.finish_all(limit);
                let received: Option<u32> = figure(&said, "received");
                let begins = figure(&said, "first").unwrap_or(0);
                let ends = scale.count * cell.sessions();
                let is_whole = said.contains("wrong 0") && !said.contains("instead of");
                let has_all = received.is_some_and(|received| begins + received == ends);
                let fault = (!has_all || !is_whole).then(|| said.clone());
                let [bytes, took] = ["messages,", "took"].map(|word| figure::<f64>(&said, word));
                Outcome {
                    received: received.unwrap_or(0),
                    bytes_per_s: bytes.unwrap_or(0.0) / took.unwrap_or(f64::INFINITY),
                    fault,
                }
            }
            Self::ZeroMq => {
                let (_, _, said) = end.finish_all(limit);
                let [received, gaps, first] =
                    ["received", "gaps", "first"].map(|word| figure::<u32>(&said, word));
                let begun_late = u32::from(first != Some(0));
                let all = scale.count * cell.sessions();
                let is_whole = gaps == Some(begun_late)
                    && received
                        .zip(first)
                        .is_some_and(|(n, first)| n + first == all);
                Outcome {
                    received: received.unwrap_or(0),
                    bytes_per_s: figure::<f64>(&said, "rate").unwrap_or(0.0) * 1e6 / 8.0,
                    fault: (!is_whole).then_some(said),
                }
            }
        }
    }
}

/// True when packets lost between two peers come back by parity that the sender offered on demand.
/// libpgm 5.3.128 takes the offer and asks for the packets themselves, of its own senders too; and
/// its senders abort at the first NAK that asks for parity, so that nobody may send them one.
pub(super) const fn repairs_by_parity(from: Peer, to: Peer) -> bool {
    matches!((from, to), (Peer::Towline, Peer::Towline))
}

impl Outcome {
    /// Adds what the program said to what is wrong.
    fn said(mut self, said: &str) -> Self {
        self.fault = self.fault.map(|fault| format!("{fault}: {said}"));
        self
    }
}

/// The messages of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Each fits into a packet.
    Short,
    /// Every 25th has several packets.
    Long,
}

impl Content {
    const fn word(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Long => "long",
        }
    }

    const fn file(self, to: Peer) -> &'static str {
        match (self, to) {
            (Self::Short, Peer::ZeroMq) => "short.zmq",
            (Self::Long, Peer::ZeroMq) => "long.zmq",
            (Self::Short, _) => "short",
            (Self::Long, _) => "long",
        }
    }

    /// Writes what Towline sends: `count` messages, each after its length, as `talk.c` makes them
    /// or as ZeroMQ takes them.
    pub(super) fn write_all(place: &Place, count: u32) {
        for content in [Self::Short, Self::Long] {
            let mut bytes = Vec::new();
            for number in 0..count {
                record(&content.message(number), &mut bytes);
            }
            fs::write(place.file(content.file(Peer::OpenPgm)), &bytes).unwrap();
            bytes.clear();
            let size = if content == Self::Long { 5_000 } else { 750 };
            for packet in super::zmtp::packets(count, size) {
                record(&packet, &mut bytes);
            }
            fs::write(place.file(content.file(Peer::ZeroMq)), bytes).unwrap();
        }
    }

    /// Message `number`, as `talk.c` makes and checks it.
    fn message(self, number: u32) -> Vec<u8> {
        let len = match (self, number % 25) {
            (Self::Long, 24) => 5_000 + number % 900,
            _ => 8 + number.wrapping_mul(37) % 1_400,
        };
        let mut bytes: Vec<u8> = (0..len)
            .map(|at| number.wrapping_mul(31).wrapping_add(at * 7) as u8)
            .collect();
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        bytes
    }
}

fn record(message: &[u8], into: &mut Vec<u8>) {
    into.extend((message.len() as u32).to_be_bytes());
    into.extend(message);
}

/// Compares what `sub` printed with the file that `pub` reads, which `talk.c` sends, too.
fn judge(bytes: &[u8], cell: Cell, scale: Scale, place: &Place) -> Outcome {
    let file = fs::read(place.file(cell.content.file(Peer::Towline))).unwrap();
    let is_whole = match cell.story {
        Story::Plain => *bytes == file,
        Story::LateJoin => file.ends_with(bytes),
        Story::Restart => {
            bytes.len() == 2 * file.len()
                && bytes.chunks(file.len().max(1)).all(|half| *half == file)
        }
    };
    let (mut received, mut rest) = (0, bytes);
    while let Some((len, behind)) = rest.split_first_chunk::<4>() {
        rest = behind
            .get(u32::from_be_bytes(*len) as usize..)
            .unwrap_or(&[]);
        received += 1;
    }
    let all = scale.count;
    Outcome {
        received,
        bytes_per_s: 0.0,
        fault: (!is_whole).then(|| format!("not the {all} messages that were sent")),
    }
}

/// The number behind a word.
fn figure<T: FromStr>(text: &str, word: &str) -> Option<T> {
    let mut words = text.split_whitespace().skip_while(|&it| it != word).skip(1);
    words.next()?.parse().ok()
}

/// The session of a cell, as Towline has it in its flags.
fn session(cell: Cell) -> String {
    let group = group(cell);
    let bracketed = if cell.carrier.is_ipv6() {
        format!("[{group}]")
    } else {
        group.to_owned()
    };
    // ZeroMQ has one port for both.
    let is_zmq = [cell.from, cell.to].contains(&Peer::ZeroMq);
    if cell.manner == Manner::Profile {
        let profile = if is_zmq { "zmq" } else { "openpgm" };
        return format!("-g {bracketed} --profile {profile}");
    }
    match (is_zmq, cell.carrier.is_raw()) {
        (true, false) => format!("-g {bracketed}:{ZMQ_PORT}"),
        (true, true) => format!("-g {bracketed}:{ZMQ_PORT} --encapsulation raw"),
        (false, false) => format!("-g {bracketed}:{UDP_PORT} --pgm-port {PGM_PORT}"),
        (false, true) => format!("-g {bracketed}:{PGM_PORT} --encapsulation raw"),
    }
}

const fn group(cell: Cell) -> &'static str {
    if cell.carrier.is_ipv6() {
        "ff15::7:1"
    } else {
        "239.192.7.1"
    }
}

fn address(host: &Host, carrier: Carrier) -> String {
    if carrier.is_ipv6() {
        host.ipv6().to_string()
    } else {
        host.ipv4().to_string()
    }
}

/// `talk.c` on libpgm: `words` without the address, which is their second.
fn talk(host: &Host, cell: Cell, words: &str) -> Command {
    let program = compiled().as_ref().unwrap().display();
    let (role, rest) = words.split_once(' ').unwrap();
    let address = address(host, cell.carrier);
    let mut command = host.command("sh");
    // What it prints is watched where errors are.
    command.args([
        "-c",
        &format!("exec {program} {role} {address} {rest} 1>&2"),
    ]);
    command
        .env("TALK_TIME", "1")
        .env("TALK_GROUP", group(cell))
        .env(
            "TALK_PORT",
            if cell.carrier.is_raw() {
                "0".to_owned()
            } else {
                UDP_PORT.to_string()
            },
        )
        .env("TALK_DATA_PORT", PGM_PORT.to_string())
        .env("TALK_WINDOW", "20000")
        .env(
            "TALK_LINGER",
            if cell.story == Story::Plain {
                "60"
            } else {
                "2"
            },
        );
    // Each sender has an identifier of its own.
    static SOURCES: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(10_000);
    let source = SOURCES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    command.env("TALK_SOURCE_PORT", source.to_string());
    // libpgm asks for parity only when both its ends have the option.
    if cell.parity != Parity::No {
        command.env("TALK_FEC", format!("{FEC_GROUP}:0:1"));
    }
    match cell.story {
        Story::Plain => &mut command,
        Story::LateJoin => command.env("TALK_LATE", "1"),
        Story::Restart => command.env("TALK_SESSIONS", "2"),
    };
    command
}

pub(super) fn zmq(host: &Host, cell: Cell, words: &str) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../libpgm/tests/zmq_peer.py");
    let (role, rest) = words.split_once(' ').unwrap();
    let address = address(host, cell.carrier);
    let mut command = host.command("sh");
    command.args([
        "-c",
        &format!("exec {PYTHON} {script} {role} {address} {rest} 1>&2"),
    ]);
    command.env("ZMQ_GROUP", group(cell));
    if cell.carrier.is_raw() {
        command.env("ZMQ_TRANSPORT", "pgm");
    }
    if cell.story == Story::Restart {
        command.env("ZMQ_SESSIONS", "2");
    }
    command
}

/// `talk.c`, compiled once against the headers of libpgm.
pub(super) fn compiled() -> &'static Result<PathBuf, String> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAM.get_or_init(compile)
}

fn compile() -> Result<PathBuf, String> {
    let flags = lab::pkg_config("openpgm-5.3", "libpgm-dev")?;
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../libpgm/tests/c/talk.c");
    let program = std::env::temp_dir().join(format!("talk-{}", std::process::id()));
    let quiet = ["-O2", "-w"].into_iter();
    let flags = quiet.chain(flags.iter().map(String::as_str));
    lab::compile(Path::new(source), &program, flags)?;
    Ok(program)
}

/// How long `zmq_peer.py` goes on to say that its messages have ended.
const ZMQ_ENDING_TIME: Duration = Duration::from_millis(1_900);
const UDP_PORT: u16 = 3056;
const PGM_PORT: u16 = 7500;
const ZMQ_PORT: u16 = 5555;
