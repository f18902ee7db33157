//! The stand-in beside OpenPGM's own library: programs that were compiled against its headers, and
//! Debian's ZeroMQ, run on either and must not see a difference, except where the other one fails.
//!
//! Skipped, with the reason printed, where Debian's libpgm-dev, a C compiler or python3-zmq is
//! missing.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(clippy::print_stdout, reason = "a skipped test says why")]

use std::{
    io::Read as _,
    net::UdpSocket,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use lab::{Host, Lab, LabSpec, isolated};

#[path = "peers/examples.rs"]
mod examples;

#[path = "../../capi/tests/kit/mod.rs"]
mod kit;

#[path = "peers/sanitized.rs"]
mod sanitized;

/// Runs a test that keeps a processor busy: one at a time, or libpgm's timers come too late.
fn alone<F: FnOnce() + Send>(body: F) {
    static MACHINE: Mutex<()> = Mutex::new(());
    let _turn = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    isolated(body);
}

/// Which library a program runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    OpenPgm,
    Ours,
}
use Library::{OpenPgm, Ours};

/// Every pair of a sender's and a receiver's library.
const PAIRS: [(Library, Library); 4] = [
    (OpenPgm, OpenPgm),
    (Ours, OpenPgm),
    (OpenPgm, Ours),
    (Ours, Ours),
];

/// A directory in which our library has the name that programs ask for.
fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| kit::library("libtowline_libpgm.so", &["libpgm-5.3.so.0"]))
}

/// What pkg-config says of a library; `None`, with the reason printed, where it is not installed.
fn flags(library: &str, package: &str) -> Option<String> {
    let mut pkg_config = Command::new("pkg-config");
    let flags = pkg_config.args(["--cflags", "--libs", library]).output();
    let Some(flags) = flags.ok().filter(|output| output.status.success()) else {
        println!("skipped: {library} is not installed (Debian: {package}, pkg-config)");
        return None;
    };
    Some(String::from_utf8(flags.stdout).unwrap())
}

/// A program of `tests/c`, compiled against libpgm's headers; `None`, with the reason printed,
/// where it cannot be.
fn compiled(name: &str) -> Option<PathBuf> {
    compiled_as(name, name, &[])
}

/// The same, compiled with more flags into a file of another name.
fn compiled_as(program: &str, name: &str, more: &[&str]) -> Option<PathBuf> {
    let flags = flags("openpgm-5.3", "libpgm-dev")?;
    if Command::new("cc").arg("--version").output().is_err() {
        println!("skipped: there is no C compiler (Debian: gcc)");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    let program = directory().join(program);
    // Tests run side by side in one process.
    static COMPILER: Mutex<()> = Mutex::new(());
    let _turn = COMPILER.lock().unwrap_or_else(PoisonError::into_inner);
    if !program.exists() {
        let output = Command::new("cc")
            .args(["-O1", "-g", "-w"])
            .args(more)
            .arg("-o")
            .arg(&program)
            .arg(source)
            .args(flags.split_whitespace())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {said}");
    }
    Some(program)
}

/// Returns true where python3-zmq and libzmq have PGM; otherwise prints the reason.
fn has_zmq() -> bool {
    let check = "import sys, zmq; sys.exit(not zmq.has('pgm'))";
    let output = Command::new(PYTHON).args(["-c", check]).output();
    let has = output.is_ok_and(|output| output.status.success());
    if !has {
        println!("skipped: no ZeroMQ with PGM for Python (Debian: python3-zmq, libzmq5)");
    }
    has
}

fn on(host: &Host, library: Library, program: impl AsRef<Path>, words: &str) -> Command {
    // Whatever goes wrong, no program stays.
    let mut command = host.command("timeout");
    command
        .args(["--signal=KILL", "90"])
        .arg(program.as_ref())
        .args(words.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if library == Ours {
        command.env("LD_LIBRARY_PATH", directory());
    }
    command
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    format!("{out}{err}")
}

fn finish(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{}: {text}", output.status);
    text
}

/// Starts a receiver, and waits until it says that it has joined the group: how long that takes
/// depends on what else the machine does.
fn ready(mut command: Command) -> Child {
    let mut receiver = command.spawn().unwrap();
    let said = receiver.stdout.as_mut().unwrap();
    let (mut line, mut byte) = (Vec::new(), [0]);
    // Byte by byte, so that what follows is left to whoever reads the rest.
    while said.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.extend(byte);
    }
    let line = String::from_utf8_lossy(&line).into_owned();
    assert_eq!(line, "ready", "{command:?}");
    receiver
}

/// Runs a sender on host 0 and a receiver on host 1, and returns what both print.
fn session(lab: &Lab, pair: (Library, Library), [send, recv]: [(&Path, String); 2]) -> String {
    let receiver = ready(on(lab.host(1), pair.1, recv.0, &recv.1));
    let sender = on(lab.host(0), pair.0, send.0, &send.1).spawn().unwrap();
    let sent = finish(sender);
    sent + &finish(receiver)
}

fn talk(
    lab: &Lab,
    pair: (Library, Library),
    program: &Path,
    kind: &str,
    how: &str,
    port: u16,
) -> String {
    let [from, to] = [0, 1].map(|host| lab.host(host).ipv4());
    let env = Path::new(ENV);
    let program = format!("TALK_PORT={port} {}", program.display());
    let send = format!("{program} send {from} {MESSAGES} 1400000 {kind}");
    let recv = format!("{program} recv {to} {MESSAGES} {kind} {how}");
    session(lab, pair, [(env, send), (env, recv)])
}

fn lab(loss_percent: u32) -> Lab {
    let lab = Lab::new(&LabSpec::new(2).segments_at_switch()).unwrap();
    if loss_percent > 0 {
        lab.host(1).set_loss(loss_percent, 100).unwrap();
    }
    lab
}

#[test]
fn every_function_answers_as_libpgms_does() {
    alone(|| {
        let Some(program) = compiled("api") else {
            return;
        };
        let lab = lab(0);
        let address = lab.host(0).ipv4().to_string();
        let [theirs, ours] = [OpenPgm, Ours].map(|library| {
            let child = on(lab.host(0), library, &program, &address)
                .spawn()
                .unwrap();
            finish(child)
        });
        for (theirs, ours) in theirs.lines().zip(ours.lines()) {
            assert_eq!(theirs, ours);
        }
        assert!(theirs.lines().count() > 900, "{theirs}");
        assert_eq!(theirs.lines().count(), ours.lines().count());
    });
}

/// The same program prints the same with each pair of libraries, in UDP at `port` or, with 0, in
/// IP.
fn assert_same_talk(loss_percent: u32, how: &str, port: u16) {
    let Some(program) = compiled("talk") else {
        return;
    };
    let lab = lab(loss_percent);
    let all = PAIRS.map(|pair| talk(&lab, pair, &program, "short", how, port));
    for (pair, text) in PAIRS.iter().zip(&all) {
        assert_eq!(
            *text, all[0],
            "{pair:?}, {how}, {port}, {loss_percent} % lost"
        );
    }
    assert!(
        all[0].contains(&format!("received {MESSAGES} messages")),
        "{}",
        all[0]
    );
    assert_eq!(lab.host(1).lost_packets().unwrap() > 0, loss_percent > 0);
}

#[test]
fn messages_come_as_by_libpgm() {
    alone(|| assert_same_talk(0, "recvmsgv poll", PORT));
}

#[test]
fn messages_in_ip_come_as_by_libpgm() {
    alone(|| {
        assert_same_talk(0, "recvmsgv epoll", 0);
        assert_same_talk(2, "recv poll", 0);
    });
}

#[test]
fn lost_packets_come_as_by_libpgm() {
    alone(|| {
        assert_same_talk(2, "recvmsg epoll", PORT);
        assert_same_talk(2, "recvfrom poll", PORT);
    });
}

#[test]
fn messages_of_several_packets_come_in_each_way() {
    alone(|| {
        let Some(program) = compiled("talk") else {
            return;
        };
        let lab = lab(2);
        for (library, how) in [
            (OpenPgm, "recvmsgv poll"),
            (Ours, "recvmsgv select"),
            (Ours, "recv epoll"),
        ] {
            let text = talk(&lab, (Ours, library), &program, "long", how, PORT);
            let all = format!("received {MESSAGES} messages, 1786640 bytes\nwrong 0\n");
            assert!(text.contains(&all), "{library:?} {how}: {text}");
        }
    });
}

#[test]
fn a_loss_is_told_with_its_number() {
    alone(|| {
        let Some(program) = compiled("talk") else {
            return;
        };
        let lab = lab(0);
        let [from, to] = [0, 1].map(|host| lab.host(host).ipv4());
        let count = 60_000;
        let recv = format!("recv {to} {count} short recvmsgv poll");
        let receiver = ready(on(lab.host(1), Ours, &program, &recv));
        let send = format!("send {from} {count} 20000000 short");
        let sender = on(lab.host(0), Ours, &program, &send).spawn().unwrap();
        // The sender begins after 0.3 s and sends for 2 s; its window holds a third of a second.
        thread::sleep(Duration::from_millis(800));
        lab.unplug(1).unwrap();
        thread::sleep(Duration::from_millis(800));
        lab.plug(1).unwrap();
        finish(sender);
        let text = finish(receiver);
        let own = format!("reset of {}", text.split_whitespace().nth(1).unwrap());
        assert!(
            text.contains("loss told: 1") && text.contains("wrong 0"),
            "{text}"
        );
        assert!(
            text.contains("accounted 1") && text.contains(&own),
            "{text}"
        );
    });
}

/// What a sentence of the ZeroMQ program says behind `word`.
fn figure(text: &str, word: &str) -> f64 {
    let mut words = text.split_whitespace().skip_while(|&it| it != word).skip(1);
    let number = words.next().and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no {word} in {text}"))
}

/// Unchanged ZeroMQ over `transport`, with our library at one end or both.
fn zmq(transport: &str, loss_percent: u32, rate_kbit: u32) {
    let Some(_) = has_zmq().then_some(()) else {
        return;
    };
    let lab = lab(loss_percent);
    let [from, to] = [0, 1].map(|host| lab.host(host).ipv4());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zmq_peer.py");
    let script = format!("ZMQ_TRANSPORT={transport} {PYTHON} {}", script.display());
    for pair in PAIRS {
        let send = format!("{script} pub {from} {MESSAGES} 1000 {rate_kbit}");
        let recv = format!("{script} sub {to} {MESSAGES} {rate_kbit}");
        let text = session(&lab, pair, [(Path::new(ENV), send), (Path::new(ENV), recv)]);
        println!("{pair:?} {transport} {loss_percent} % lost: {text}");
        if pair != (OpenPgm, OpenPgm) {
            assert_eq!(
                figure(&text, "received"),
                f64::from(MESSAGES),
                "{pair:?}: {text}"
            );
            assert_eq!(figure(&text, "gaps"), 0.0, "{pair:?}: {text}");
        }
    }
}

#[test]
fn zeromq_runs_on_it_unchanged() {
    alone(|| zmq("epgm", 0, 20_000));
}

#[test]
fn zeromq_misses_nothing_when_packets_are_lost() {
    alone(|| zmq("epgm", 2, 20_000));
}

#[test]
fn zeromq_runs_on_it_in_ip_too() {
    alone(|| zmq("pgm", 2, 20_000));
}

/// Seconds that the processors of this machine were busy since it started.
fn busy_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let ticks = stat.lines().next().unwrap().split_whitespace().skip(1);
    let ticks: Vec<f64> = ticks.map(|it| it.parse().unwrap()).collect();
    // User, nice and system; the kernel's interrupts.
    let busy: f64 = [0, 1, 2, 5, 6].iter().map(|&at| ticks[at]).sum();
    busy / 100.0
}

/// What unchanged ZeroMQ delivers at rates up to 2 Gbit/s, and what that costs, on libpgm and on
/// our library. `TOWLINE_REPEATS` runs of each, taken in turn; 3 by default.
#[test]
#[ignore = "measures, and needs the machine for itself"]
fn zeromq_by_rates_on_either_library() {
    let repeats = std::env::var("TOWLINE_REPEATS").map_or(3, |it| it.parse().unwrap());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zmq_peer.py");
    let script = format!("{PYTHON} {}", script.display());
    let (env, size) = (Path::new(ENV), 8_000);
    for (loss_percent, rate_kbit) in [0, 2].into_iter().flat_map(|loss_percent| {
        [100_000, 500_000, 1_000_000, 2_000_000].map(|rate_kbit| (loss_percent, rate_kbit))
    }) {
        // Two seconds of it.
        let count = rate_kbit / 8 * 1_000 * 2 / size;
        for _ in 0..repeats {
            for library in [OpenPgm, Ours] {
                alone(|| {
                    let lab = lab(loss_percent);
                    let [from, to] = [0, 1].map(|host| lab.host(host).ipv4());
                    let send = format!("{script} pub {from} {count} {size} {rate_kbit}");
                    let recv = format!("{script} sub {to} {count} {rate_kbit}");
                    let before = busy_seconds();
                    let text = session(&lab, (library, library), [(env, send), (env, recv)]);
                    let busy = busy_seconds() - before;
                    let received = figure(&text, "received");
                    println!(
                        "{library:?} {} Mbit/s, {loss_percent} % lost: {:.1} % received, {} gaps, \
                         {:.0} Mbit/s, {:.2} s of processor a GB",
                        rate_kbit / 1000,
                        100.0 * received / f64::from(count),
                        figure(&text, "gaps"),
                        figure(&text, "rate"),
                        busy * 1e9 / (received * f64::from(size)),
                    );
                });
            }
        }
    }
}

#[test]
fn without_the_right_to_ip_a_program_is_told_what_to_do() {
    alone(|| {
        let Some(program) = compiled("talk") else {
            return;
        };
        let lab = lab(0);
        let words = format!(
            "--bounding-set=-net_raw --inh-caps=-net_raw {ENV} TALK_PORT=0 {} send {} 1 1400000 \
             short",
            program.display(),
            lab.host(0).ipv4()
        );
        let output = on(lab.host(0), Ours, "setpriv", &words).output().unwrap();
        let text = text(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("setcap cap_net_raw+ep PROGRAM"), "{text}");
    });
}

#[test]
fn it_outlives_the_datagrams_that_end_libpgm() {
    alone(|| {
        let Some(program) = compiled("talk") else {
            return;
        };
        let lab = lab(0);
        let [from, to] = [0, 1].map(|host| lab.host(host).ipv4());
        let recv = format!("recv {to} {MESSAGES} short recvmsgv poll");
        let receiver = ready(on(lab.host(1), Ours, &program, &recv));
        let send = format!("send {from} {MESSAGES} 1400000 short");
        let sender = on(lab.host(0), Ours, &program, &send).spawn().unwrap();
        let attack = || {
            let socket = UdpSocket::bind((lab.host(0).ipv4(), 0)).unwrap();
            for (to, datagrams) in [(GROUP, hostile()), (&*from.to_string(), hostile())] {
                for datagram in datagrams {
                    socket.send_to(&datagram, (to, PORT)).unwrap();
                }
            }
        };
        thread::sleep(START_TIME);
        lab.host(0).enter(attack).unwrap();
        finish(sender);
        let text = finish(receiver);
        let all = format!("received {MESSAGES} messages, 1411400 bytes\nwrong 0\n");
        assert!(text.contains(&all), "{text}");
    });
}

/// Datagrams each of which ends a program on libpgm 5.3, or keeps it busy for ever.
fn hostile() -> Vec<Vec<u8>> {
    let [spm, odata, nak, ncf] = [0, 4, 8, 10];
    let nla = [0, 1, 0, 0, 10, 77, 0, 1];
    let window = |trail: u32, lead: u32| [1, trail, lead].map(u32::to_be_bytes).concat();
    let no_length = [0, 4, 0, 8, 0x81, 0, 0, 0];
    let wrong_first = [0x81, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let data = |number: u32| [number, 0].map(u32::to_be_bytes).concat();
    let mut all = vec![
        Vec::new(),
        vec![0],
        packet(1, odata, 0, &[]),
        packet(2, odata, 1, &[&data(0)[..], &wrong_first].concat()),
        packet(3, odata, 1, &[&data(0)[..], &no_length].concat()),
        packet(4, spm, 1, &[&window(0, 9)[..], &nla, &no_length].concat()),
        packet(5, spm, 0, &[&window(0, 0x7000_0000)[..], &nla].concat()),
        packet(5, odata, 0, &data(0x6fff_ffff)),
        packet(
            6,
            ncf,
            1,
            &[&[0, 0, 0, 1], &nla[..], &nla, &no_length].concat(),
        ),
        packet(
            7,
            nak,
            1,
            &[&[0, 0, 0, 1], &nla[..], &nla, &no_length].concat(),
        ),
        packet(8, nak, 0, &[]),
    ];
    for session in 0..2000 {
        all.push(packet(100 + session, odata, 0, &data(7)));
    }
    all
}

/// A packet of a session of its own, with a checksum that is right.
fn packet(session: u16, kind: u8, options: u8, body: &[u8]) -> Vec<u8> {
    let [high, low] = session.to_be_bytes();
    let mut packet = vec![
        high, low, 0x1d, 0x4c, kind, options, 0, 0, 9, 9, 9, 9, high, low, 0, 0,
    ];
    packet.extend_from_slice(body);
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

#[test]
fn it_exports_what_the_list_says() {
    let library = directory().join("libpgm-5.3.so.0");
    let Some(names) = kit::exported(&library) else {
        return;
    };
    let expected: Vec<&str> = include_str!("symbols.txt").lines().collect();
    assert_eq!(
        names, expected,
        "add a function to tests/symbols.txt; never take one away"
    );
}

const ENV: &str = "/usr/bin/env";
const PYTHON: &str = "/usr/bin/python3";
const GROUP: &str = "239.192.7.1";
const PORT: u16 = 3056;
const MESSAGES: u32 = 2_000;
/// Time for a program to join.
const START_TIME: Duration = Duration::from_millis(600);
