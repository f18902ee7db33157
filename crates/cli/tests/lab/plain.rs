//! `send --plain` to programs that confirm nothing, through what goes wrong with TCP: either the
//! peer's kernel has acknowledged everything and the peer has closed in good order, or the report
//! says how much was acknowledged and why it ended. No outcome claims more than is known.
//!
//! Beside each, naive senders do what most programs do, and take the end of their last call for
//! success.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use lab::{Host, Lab, LabSpec, isolated};
use rustix::net::sockopt::set_socket_linger;
use serde_json::Value;
use sys::{TcpInfo, transmit};

use crate::{
    ends::{End, towline},
    signals::Place,
};

const LIMIT: Duration = Duration::from_secs(60);
const PORT: u16 = 9;
/// More than the sockets of both ends hold.
const BYTES: usize = 24_000_000;
/// What a naive sender sends: less than one socket holds.
pub(crate) const NAIVE_BYTES: usize = 100_000;
/// What a peer reads that does not read everything.
const READ_BYTES: usize = 30_000;

/// What the peer's application does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// Reads to the end, and closes.
    Reads,
    /// Ends its own side first, then reads to the end.
    EndsFirst,
    /// Answers every piece that it reads.
    Answers,
    /// Rests before it reads on, while its window is zero.
    Rests(Duration),
    /// Reads a little, and closes with bytes unread.
    ClosesUnread,
    /// Reads a little, and closes with a reset (`SO_LINGER` of zero): so does a process that is
    /// killed with bytes unread.
    Resets,
    /// Reads a little and no more.
    Hangs,
    /// Reads to the end, and does not close.
    StaysOpen,
}

/// What happens on the way, once a little has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    Good,
    /// The cable is out for this time.
    Unplugged(Duration),
    Cut,
    /// A third party resets the sender's connection.
    Reset,
}

/// What the peer knows in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heard {
    /// By the application.
    read_bytes: u64,
    /// By its kernel.
    arrived_bytes: u64,
    /// The application saw the end of the stream.
    is_end: bool,
}

/// Serves one connection. `then` is called once a little was read.
fn serve(listener: &TcpListener, peer: Peer, then: impl FnOnce()) -> Heard {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    if peer == Peer::EndsFirst {
        stream.shutdown(Shutdown::Write).unwrap();
    }
    let (mut room, mut then) = (vec![0; 10_000], Some(then));
    let (mut read_bytes, mut is_end) = (0, false);
    while let Ok(count) = stream.read(&mut room) {
        is_end = count == 0;
        if is_end {
            break;
        }
        read_bytes += count as u64;
        if peer == Peer::Answers && stream.write_all(&room[..count / 10]).is_err() {
            break;
        }
        if read_bytes < READ_BYTES as u64 {
            continue;
        }
        if let Some(then) = then.take() {
            then();
            match peer {
                Peer::Rests(time) => thread::sleep(time),
                Peer::ClosesUnread | Peer::Resets => {
                    thread::sleep(Duration::from_millis(200));
                    break;
                }
                Peer::Hangs => {
                    thread::sleep(HANG);
                    break;
                }
                _ => {}
            }
        }
    }
    let arrived_bytes = TcpInfo::of(&stream).unwrap().bytes_received().unwrap();
    match peer {
        Peer::Resets => set_socket_linger(&stream, Some(Duration::ZERO)).unwrap(),
        Peer::StaysOpen => thread::sleep(HANG),
        _ => {}
    }
    Heard {
        read_bytes,
        // With the end of the stream, one more than the payload.
        arrived_bytes,
        is_end,
    }
}

struct Scene {
    lab: Lab,
    root: Place,
    listener: TcpListener,
    to: SocketAddr,
}

impl Scene {
    fn new(name: &str, bytes: usize) -> Self {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let to = SocketAddr::new(lab.host(1).ipv4().into(), PORT);
        let listener = lab
            .host(1)
            .enter(|| TcpListener::bind(to))
            .unwrap()
            .unwrap();
        let root = Place::new(&format!("plain-{name}"));
        let content: Vec<u8> = (0..bytes).map(|n| (n * 7 + n / 251) as u8).collect();
        fs::write(root.file("file"), content).unwrap();
        Self {
            lab,
            root,
            listener,
            to,
        }
    }

    /// Makes what happens on the way happen.
    fn befalls(&self, path: Path) {
        match path {
            Path::Good => {}
            Path::Unplugged(time) => {
                self.lab.unplug(1).unwrap();
                thread::sleep(time);
                self.lab.plug(1).unwrap();
            }
            Path::Cut => self.lab.unplug(1).unwrap(),
            Path::Reset => self.lab.host(1).reset_senders().unwrap(),
        }
    }

    fn heals(&self, path: Path) {
        match path {
            Path::Good | Path::Unplugged(_) => {}
            Path::Cut => self.lab.plug(1).unwrap(),
            Path::Reset => self.lab.host(1).clear_loss().unwrap(),
        }
    }

    /// Runs `send --plain` against a peer and a path.
    fn sends(&self, peer: Peer, path: Path, more: &str) -> (Option<i32>, Value, Heard) {
        thread::scope(|scope| {
            let serving = scope.spawn(|| serve(&self.listener, peer, || self.befalls(path)));
            let words = format!(
                "send {} --to {} --plain --json {more}",
                self.root.file("file"),
                self.to
            );
            let (status, text) = End::start(towline(self.lab.host(0), &words)).finish(LIMIT);
            let heard = serving.join().unwrap();
            self.heals(path);
            (status.code(), serde_json::from_str(&text).unwrap(), heard)
        })
    }

    /// Sends by a naive program; returns whether it believes that it has succeeded.
    fn naive(&self, way: Naive, peer: Peer, path: Path) -> (bool, Heard) {
        thread::scope(|scope| {
            let serving = scope.spawn(|| serve(&self.listener, peer, || self.befalls(path)));
            let stream = dial(self.lab.host(0), self.to);
            let is_success = way.send(stream, &self.root.file("file")).is_ok();
            let heard = serving.join().unwrap();
            self.heals(path);
            (is_success, heard)
        })
    }
}

fn dial(host: &Host, to: SocketAddr) -> TcpStream {
    host.enter(|| TcpStream::connect(to)).unwrap().unwrap()
}

/// How a naive program sends and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naive {
    /// `write`, `close`.
    Writes,
    /// `sendfile`, `close`.
    SendsFile,
    /// `splice` from a pipe, `close`.
    Splices,
    /// `write`, and `close` with `SO_LINGER` of zero.
    LingersNot,
    /// `write`, and `close` with `SO_LINGER` of five seconds.
    Lingers,
}

impl Naive {
    pub(crate) const ALL: [Self; 5] = [
        Self::Writes,
        Self::SendsFile,
        Self::Splices,
        Self::LingersNot,
        Self::Lingers,
    ];

    /// Sends the first bytes of a file.
    pub(crate) fn send(self, mut stream: TcpStream, path: &str) -> std::io::Result<()> {
        let content = fs::read(path)?;
        let content = &content[..NAIVE_BYTES];
        match self {
            Self::Writes => stream.write_all(content)?,
            Self::SendsFile => {
                let file = fs::File::open(path)?;
                let sent = transmit::send_file(&stream, &file, 0, NAIVE_BYTES)?;
                assert_eq!(sent, NAIVE_BYTES);
            }
            Self::Splices => {
                let (from, mut to) = std::io::pipe()?;
                let from = OwnedFd::from(from);
                for piece in content.chunks(20_000) {
                    to.write_all(piece)?;
                    let mut left = piece.len();
                    while left > 0 {
                        left -= transmit::splice(&from, &stream, left)?;
                    }
                }
            }
            Self::LingersNot => {
                stream.write_all(content)?;
                set_socket_linger(&stream, Some(Duration::ZERO))?;
            }
            Self::Lingers => {
                stream.write_all(content)?;
                set_socket_linger(&stream, Some(Duration::from_secs(5)))?;
            }
        }
        drop(stream);
        Ok(())
    }
}

/// A row of the fault table.
struct Row {
    name: &'static str,
    peer: Peer,
    path: Path,
    /// What the verdict must say; `None` when everything is acknowledged.
    why: Option<&'static str>,
}

fn is_told_truly(scene: &Scene, row: &Row) {
    let (code, report, heard) = scene.sends(row.peer, row.path, "--timeout 2s");
    let of = |name: &str| report[name].as_u64().unwrap();
    let acknowledged = of("bytes_acknowledged");
    let is_all = row.why.is_none();
    assert_eq!(
        report["is_acknowledged"], is_all,
        "{}: {report:#}",
        row.name
    );
    // Even the best outcome is no proof.
    assert_eq!(code, Some(1), "{}: {report:#}", row.name);
    let verdict = report["verdict"].as_str().unwrap();
    let words = row
        .why
        .unwrap_or("acknowledged by the peer's kernel, not confirmed");
    assert!(verdict.contains(words), "{}: {report:#}", row.name);
    assert_eq!(of("bytes"), BYTES as u64);
    assert_eq!(
        acknowledged == BYTES as u64,
        is_all || [Peer::StaysOpen, Peer::EndsFirst].contains(&row.peer)
    );
    assert!(acknowledged <= of("bytes_written"), "{report:#}");
    // What is said to be acknowledged has arrived at the peer's kernel.
    assert!(
        acknowledged <= heard.arrived_bytes,
        "{}: {report:#} {heard:?}",
        row.name
    );
    if is_all {
        assert_eq!(
            (heard.read_bytes, heard.is_end),
            (BYTES as u64, true),
            "{heard:?}"
        );
    }
    // A naive sender has no patience: it would wait for ever.
    let is_quick = !matches!(row.peer, Peer::Hangs | Peer::StaysOpen);
    if !is_quick || matches!(row.path, Path::Unplugged(_) | Path::Cut) {
        println!(
            "{:<34} {acknowledged:>9} acknowledged, {:>9} read",
            row.name, heard.read_bytes
        );
        return;
    }
    let (is_success, naive) = scene.naive(Naive::Writes, row.peer, row.path);
    println!(
        "{:<34} {:>9} acknowledged, {:>9} read | naive: {}, {:>6} of {NAIVE_BYTES} read",
        row.name,
        acknowledged,
        heard.read_bytes,
        if is_success { "success" } else { "failure" },
        naive.read_bytes,
    );
}

fn rows() -> [Row; 11] {
    let row = |name, peer, path, why| Row {
        name,
        peer,
        path,
        why,
    };
    let second = Duration::from_millis(1_000);
    [
        row("reads all, closes", Peer::Reads, Path::Good, None),
        row(
            "ends its side first",
            Peer::EndsFirst,
            Path::Good,
            Some("had ended its side before"),
        ),
        row("answers", Peer::Answers, Path::Good, None),
        row(
            "window of zero for 1 s",
            Peer::Rests(second),
            Path::Good,
            None,
        ),
        row(
            "cable out for 1 s",
            Peer::Reads,
            Path::Unplugged(second),
            None,
        ),
        row(
            "closes with unread bytes",
            Peer::ClosesUnread,
            Path::Good,
            Some("reset"),
        ),
        row(
            "killed, or linger of zero",
            Peer::Resets,
            Path::Good,
            Some("reset"),
        ),
        row(
            "a third party resets",
            Peer::Reads,
            Path::Reset,
            Some("reset"),
        ),
        row(
            "stops reading",
            Peer::Hangs,
            Path::Good,
            Some("nothing more within 2 s"),
        ),
        row(
            "does not close",
            Peer::StaysOpen,
            Path::Good,
            Some("did not close"),
        ),
        row(
            "cable cut",
            Peer::Reads,
            Path::Cut,
            Some("nothing more within"),
        ),
    ]
}

/// The naive sender believes in success in each row; in those that end early, bytes are lost.
#[test]
fn what_is_known_is_told_and_no_more() {
    isolated(|| {
        let scene = Scene::new("table", BYTES);
        for row in &rows() {
            is_told_truly(&scene, row);
        }
    });
}

#[test]
#[ignore = "takes half a minute: the zero window and the pulled cable of 10 s"]
fn ten_seconds_without_a_window_or_a_cable_only_take_time() {
    isolated(|| {
        let scene = Scene::new("long", BYTES);
        let time = Duration::from_secs(10);
        for (peer, path) in [
            (Peer::Rests(time), Path::Good),
            (Peer::Reads, Path::Unplugged(time)),
        ] {
            let (code, report, heard) = scene.sends(peer, path, "--accept-unconfirmed");
            assert_eq!(code, Some(0), "{report:#}");
            assert_eq!(heard.read_bytes, BYTES as u64);
        }
    });
}

/// However a naive program sends and closes, a peer that closes with unread bytes loses what it did
/// not read, and the program never learns.
#[test]
fn every_naive_way_to_send_and_close_claims_success_while_bytes_are_lost() {
    isolated(|| {
        let scene = Scene::new("naive", BYTES);
        for way in Naive::ALL {
            let (is_success, heard) = scene.naive(way, Peer::ClosesUnread, Path::Good);
            println!(
                "{way:?}: success {is_success}, {} of {NAIVE_BYTES} read",
                heard.read_bytes
            );
            assert!(is_success, "{way:?}");
            assert!(heard.read_bytes < NAIVE_BYTES as u64, "{way:?} {heard:?}");
        }
        let (code, report, heard) = scene.sends(Peer::ClosesUnread, Path::Good, "");
        println!("--plain: {}, {} read", report["verdict"], heard.read_bytes);
        assert_eq!((code, &report["is_acknowledged"]), (Some(1), &false.into()));
    });
}

#[test]
fn standard_input_is_sent_from_a_pipe_and_whoever_accepts_it_gets_success() {
    isolated(|| {
        let scene = Scene::new("pipe", 1_000);
        let words = format!(
            "send - --to {} --plain --json --accept-unconfirmed",
            scene.to
        );
        thread::scope(|scope| {
            let serving = scope.spawn(|| serve(&scene.listener, Peer::Reads, || {}));
            let mut cat: Command = scene.lab.host(0).command("head");
            let cat = cat
                .args(["-c", "5000000", "/dev/zero"])
                .stdout(Stdio::piped());
            let mut cat = cat.spawn().unwrap();
            let mut send = towline(scene.lab.host(0), &words);
            let send = send.stdin(cat.stdout.take().unwrap()).output().unwrap();
            let report: Value = serde_json::from_slice(&send.stdout).unwrap();
            assert!(send.status.success(), "{report:#}");
            assert_eq!(report["bytes_acknowledged"], 5_000_000);
            assert_eq!(report["bytes"], Value::Null);
            assert_eq!(serving.join().unwrap().read_bytes, 5_000_000);
            cat.wait().unwrap();
        });
        let nobody = scene.lab.host(2).ipv4();
        let words = format!("send {} --to {nobody}:9 --plain", scene.root.file("file"));
        let (status, _, said) = End::start(towline(scene.lab.host(0), &words)).finish_all(LIMIT);
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(said.contains("cannot connect to 10.77.0.3:9"), "{said}");
    });
}

/// How long a peer hangs: longer than the sender's patience.
const HANG: Duration = Duration::from_millis(2_500);
