//! Very many peers at one end, which serves all of them on one thread: memory, a rush of
//! connections of which none is refused, and how those that are served share.
//!
//! `TOWLINE_PEERS` says how many peers are connected and idle; a tenth as many are active beside
//! them. `make many` runs with 10,000, without it there are 1,000.
//!
//! No absolute time is asserted: a rush is compared with one to a bare loop of `accept`.

use std::{
    collections::VecDeque,
    env, fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use lab::{Host, Lab, LabSpec};
use towline::{
    Expectation, FileReceiver, FileSender, FileSet, MemoryFiles, ObjectReceiverEvent, Place,
    SessionBuilder, Target, TransferReceiverEvent, TransferSenderEvent,
};
use wire::object::{BODY_LEN_MAX, Challenge, Decoder, Hello, Invite, Message, VERSION};

use crate::{
    ends::{End, alone, towline},
    signals::Place as Scratch,
};

const PORT: u16 = 7500;
const LIMIT: Duration = Duration::from_secs(300);
/// Hosts of senders that wait, and as many of senders that are served: none has more than half of
/// the places. A host that is served would be asked what else it has before it waits.
const HOSTS: usize = 4;
/// Bytes that each active peer transfers: far more than the buffers on the way hold.
const BYTES: usize = 4 << 20;
/// Bytes of each sender that has its turn, of which there are more than places.
const TURN_BYTES: usize = 1 << 20;
/// How often a rush is timed; the quickest counts, because a busy machine delays some.
const RUSHES: u64 = 3;
/// A connection of a rush may take so many times what it takes with a bare loop.
const RUSH_TIMES: f64 = 10.0;
/// The bare loop has one of so many connections of a rush.
const BARE_PART: usize = 4;
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

fn idle_count() -> usize {
    env::var("TOWLINE_PEERS").map_or(1_000, |it| it.parse().unwrap())
}

fn active_count() -> usize {
    idle_count() / 10
}

/// The most memory, in KiB: 400 MB with 10,000 peers. Fewer have half of it at least: however few
/// they are, 256 KiB and more of each active one may wait for the disk.
fn memory_kib_max() -> u64 {
    (39 * idle_count() as u64).max(195_000)
}

/// Lets this process have a descriptor of each idle peer, and what active and hostile ones need.
fn raise_limit() {
    let wanted = (2 * idle_count() as u64).max(6_000);
    let granted = sys::limit_open_files(wanted).unwrap();
    assert!(granted >= wanted, "ulimit -Hn has to be {wanted} at least");
}

fn bytes_of(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    bytes
}

fn invite(session_id: u64) -> Vec<u8> {
    bytes_of(&Message::Invite(Invite {
        session_id,
        required: 0,
        receiver_count: 1,
    }))
}

/// Connects `count` senders on each of the hosts at once. Each says what session it has, and its
/// connection is given back once it was answered, with the name of the answer.
fn rush(lab: &Lab, to: SocketAddr, count: usize) -> (Vec<TcpStream>, Vec<String>, Duration) {
    let began = Instant::now();
    let hosts = 1..=HOSTS;
    let connected: Vec<_> = thread::scope(|scope| {
        let connecting: Vec<_> = hosts
            .map(|host| scope.spawn(move || rush_of_one(lab.host(host), to, (host, count))))
            .collect();
        connecting
            .into_iter()
            .map(|it| it.join().unwrap())
            .collect()
    });
    let took = began.elapsed();
    let (streams, answers): (Vec<_>, Vec<_>) = connected.into_iter().flatten().unzip();
    (streams, answers, took)
}

fn rush_of_one(
    host: &Host,
    to: SocketAddr,
    (number, count): (usize, usize),
) -> Vec<(TcpStream, String)> {
    let connect = || -> Vec<TcpStream> {
        let sessions = (0..count).map(|nth| (number * 1_000_000 + nth) as u64);
        let connected = sessions.map(|session_id| {
            let mut stream = TcpStream::connect(to).unwrap();
            stream.write_all(&invite(session_id)).unwrap();
            stream
        });
        connected.collect()
    };
    let streams = host.enter(connect).unwrap();
    let answered = streams.into_iter().map(|mut stream| {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let name = next_name(&mut stream, &mut Decoder::new(BODY_LEN_MAX));
        (stream, name)
    });
    answered.collect()
}

/// Reads up to the next message; gives its name.
fn next_name(stream: &mut TcpStream, decoder: &mut Decoder) -> String {
    let mut piece = [0; 4096];
    loop {
        if let Some(message) = decoder.next_message().unwrap() {
            return message.name().to_owned();
        }
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "the connection was closed without an answer");
        decoder.push(&piece[..count]);
    }
}

fn listen(address: SocketAddr) -> TcpListener {
    let listener = sys::tcp::listen(address, 4096).unwrap();
    listener.set_nonblocking(false).unwrap();
    listener
}

/// Answers every sender as a receiver does that has no place, by the least that can be done.
fn accept_only(listener: &TcpListener, count: usize) -> Vec<TcpStream> {
    let wait = bytes_of(&Message::Wait);
    let mut invitation = vec![0; invite(0).len()];
    let mut accepted = Vec::with_capacity(count);
    while accepted.len() < count {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut invitation).unwrap();
        stream.write_all(&wait).unwrap();
        accepted.push(stream);
    }
    accepted
}

/// What a rush of `count` senders costs at least. It is measured with fewer, because this process
/// has both ends.
fn least_rush(lab: &Lab, count: usize) -> Duration {
    let bare = SocketAddr::new(lab.host(0).ipv4().into(), PORT + 1);
    let listener = lab.host(0).enter(|| listen(bare)).unwrap();
    let of_host = count / HOSTS / BARE_PART;
    let bare_rush = |_| {
        thread::scope(|scope| {
            let server = scope.spawn(|| accept_only(&listener, of_host * HOSTS));
            let (_streams, _, took) = rush(lab, bare, of_host);
            drop(server.join().unwrap());
            took
        })
    };
    let least = (0..RUSHES).map(bare_rush).min().unwrap();
    least.mul_f64(count as f64 / (of_host * HOSTS) as f64)
}

/// Lets `count` senders rush to a receiver whose places are all taken, again and again: all have to
/// wait. Gives the connections of the last rush, and the time of the quickest.
fn rushes(lab: &Lab, to: SocketAddr, receiver: &End, count: usize) -> (Vec<TcpStream>, Duration) {
    let gone = "object_receiver.callers_gone";
    let had_gone = receiver.counter(gone).unwrap();
    let (mut streams, mut took) = (Vec::new(), LIMIT);
    for nth in 0..RUSHES {
        // Those of the rush before leave the line.
        drop(std::mem::take(&mut streams));
        receiver.await_counter(gone, had_gone + nth * count as u64);
        let (connected, answers, its) = rush(lab, to, count / HOSTS);
        let others: Vec<_> = answers.iter().filter(|it| *it != "WAIT").collect();
        assert!(others.is_empty(), "{others:?}");
        (streams, took) = (connected, took.min(its));
    }
    (streams, took)
}

/// Makes the file that every active peer transfers.
fn content(scratch: &Scratch, len: usize) -> String {
    let path = scratch.file("content");
    let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
    fs::write(&path, bytes).unwrap();
    path
}

/// Real senders of a file each, `count` of them, by their hosts.
fn senders(
    lab: &Lab,
    to: SocketAddr,
    scratch: &Scratch,
    (count, len): (usize, usize),
) -> Vec<Vec<FileSender>> {
    let mut expectation = Expectation::default();
    (expectation.join_timeout, expectation.progress_timeout) = (LIMIT, LIMIT);
    let content = content(scratch, len);
    let open = |number: usize| {
        let path = scratch.file(&format!("f{number}"));
        fs::hard_link(&content, &path).unwrap();
        let files = FileSet::builder().path(path).read().unwrap();
        let session = SessionBuilder::at(Place::Hosts(vec![to.to_string()]));
        FileSender::open(&session, files, &expectation).unwrap()
    };
    let of_host = |nth| {
        let body = || (nth..count).step_by(HOSTS).map(open).collect();
        lab.host(1 + HOSTS + nth).enter(body).unwrap()
    };
    (0..HOSTS).map(of_host).collect()
}

/// What became of ends that were driven.
#[derive(Debug, Default)]
struct Driven {
    /// When each had done what was waited for.
    times: Vec<Duration>,
    /// What each had when the first one of all was done, in bytes.
    held: Vec<u64>,
}

/// Takes turns of all ends until each has done what `turn` tells. `is_one_done` is shared with
/// those that drive other ends; once it says that the first of all is done, `held` tells what each
/// has.
fn drive<E>(
    ends: &mut [E],
    is_one_done: &AtomicBool,
    turn: impl Fn(&mut E) -> bool,
    held: impl Fn(&E) -> u64,
) -> Driven {
    let began = Instant::now();
    let mut times: Vec<Option<Duration>> = vec![None; ends.len()];
    let mut at_first = Vec::new();
    while times.iter().any(Option::is_none) {
        assert!(began.elapsed() < LIMIT, "{times:?}");
        for (end, time) in ends.iter_mut().zip(&mut times) {
            if time.is_none() && turn(end) {
                *time = Some(began.elapsed());
                is_one_done.store(true, Ordering::Relaxed);
            }
        }
        if at_first.is_empty() && is_one_done.load(Ordering::Relaxed) {
            at_first = ends.iter().map(&held).collect();
        }
    }
    Driven {
        times: times.into_iter().flatten().collect(),
        held: at_first,
    }
}

/// Takes a turn of a sender; tells whether it has said what `is_it` waits for.
fn has_said(sender: &mut FileSender, is_it: impl Fn(&TransferSenderEvent) -> bool) -> bool {
    sender.turn().unwrap();
    let events = std::iter::from_fn(|| sender.pop_event());
    let is_it = |event: &TransferSenderEvent| {
        let has_failed = matches!(event, TransferSenderEvent::Failed { .. });
        assert!(!has_failed, "{event:?}");
        is_it(event)
    };
    events.filter(is_it).count() > 0
}

fn has_joined(sender: &mut FileSender) -> bool {
    has_said(sender, |event| {
        matches!(event, TransferSenderEvent::Joined { .. })
    })
}

fn has_proof(sender: &mut FileSender) -> bool {
    has_said(sender, |event| {
        matches!(event, TransferSenderEvent::Done { .. })
    })
}

/// Drives the senders of each host there, until `turn` has told of each that it has done what is
/// waited for. Does `meanwhile` again and again.
fn drive_senders(
    lab: &Lab,
    senders: &mut [Vec<FileSender>],
    turn: fn(&mut FileSender) -> bool,
    mut meanwhile: impl FnMut(),
) -> Driven {
    let is_one_done = AtomicBool::new(false);
    let held = |sender: &FileSender| {
        let outcome = sender.outcome();
        outcome.receivers.first().map_or(0, |it| it.progress.held)
    };
    thread::scope(|scope| {
        let (held, is_one_done) = (&held, &is_one_done);
        let drivers: Vec<_> = senders
            .iter_mut()
            .enumerate()
            .map(|(nth, its)| {
                let body = move || drive(its, is_one_done, turn, held);
                scope.spawn(move || lab.host(1 + HOSTS + nth).enter(body).unwrap())
            })
            .collect();
        while drivers.iter().any(|it| !it.is_finished()) {
            meanwhile();
            thread::sleep(LOOK_INTERVAL);
        }
        let driven = drivers.into_iter().map(|it| it.join().unwrap());
        driven.fold(Driven::default(), |mut all, some| {
            all.times.extend(some.times);
            all.held.extend(some.held);
            all
        })
    })
}

/// What the slowest peer had when the first one was done, as a share of the mean. It is told and
/// not asserted: the peers of a test take turns on few threads, and the buffers on the way hold as
/// much as one of them gets.
fn share_of_slowest(held: &[u64]) -> f64 {
    let mean = held.iter().sum::<u64>() as f64 / held.len() as f64;
    held.iter().copied().min().unwrap_or_default() as f64 / mean
}

/// Where files arrive: in memory where the machine has such a place, because the network is what is
/// looked at. Removed when dropped.
struct Incoming(PathBuf);

impl Incoming {
    fn new(scratch: &Scratch) -> Self {
        let memory = Path::new("/dev/shm");
        Self(match memory.is_dir() {
            true => memory.join(format!("towline-many-{}", std::process::id())),
            false => scratch.file("in").into(),
        })
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn very_many_senders_wait_connected_while_others_are_served() {
    alone(|| {
        raise_limit();
        let (lab, scratch) = (
            Lab::new(&LabSpec::new(1 + 2 * HOSTS as u8)).unwrap(),
            Scratch::new("many"),
        );
        let (idle, active) = (idle_count(), active_count());
        let incoming = Incoming::new(&scratch);
        let least = least_rush(&lab, idle);
        let to = SocketAddr::new(lab.host(0).ipv4().into(), PORT);
        let words = format!(
            "recv {} --listen {PORT} --from 10.77.0.0/24 --serve --max-transfers {active} --json",
            incoming.0.display()
        );
        let receiver = End::start(towline(lab.host(0), &words));
        receiver.await_session();
        let before_kib = receiver.resident_kib();

        // Senders take all places, and stand still.
        let mut senders = senders(&lab, to, &scratch, (active, BYTES));
        let joining = drive_senders(&lab, &mut senders, has_joined, || ()).times;
        let joining = joining.iter().max().unwrap();
        receiver.await_counter("object_receiver.transfers_accepted", active as u64);
        let count = |name: &str| receiver.counter(&format!("object_receiver.{name}"));
        let turned_away = || ["callers_refused", "callers_cut", "callers_late"].map(count);
        let waited = || count("callers_waited").unwrap();
        let (had_waited, had_turned_away) = (waited(), turned_away());

        let (streams, took) = rushes(&lab, to, &receiver, idle);
        let ratio = took.as_secs_f64() / least.as_secs_f64();
        let idle_kib = receiver.resident_kib();
        // Counters are told a moment later.
        let all = had_waited + RUSHES * idle as u64;
        receiver.await_counter("object_receiver.callers_waited", all);
        assert_eq!(waited(), all);
        assert_eq!(turned_away(), had_turned_away);
        assert_eq!(receiver.counter("udp.links_refused"), Some(0));

        // They go on, all at once.
        let mut most_kib = idle_kib;
        let driven = drive_senders(&lab, &mut senders, has_proof, || {
            most_kib = most_kib.max(receiver.resident_kib());
        });
        let took_all = driven.times.iter().max().unwrap();
        let slowest = share_of_slowest(&driven.held);
        println!(
            "{idle} senders connect in {took:.2?} ({ratio:.1} of a bare loop's {least:.2?}), none \
             refused; {active} admitted in {joining:.2?}; {active} beside them transfer {} MB in \
             {took_all:.2?}, the slowest {slowest:.2} of the mean; memory {} MB, {} MB idle, {} \
             MB at most",
            (active * BYTES) / 1_000_000,
            before_kib / 1_000,
            idle_kib / 1_000,
            most_kib / 1_000
        );
        assert!(ratio < RUSH_TIMES, "{took:?} instead of {least:?}");
        assert!(most_kib < memory_kib_max(), "{most_kib} KiB");
        for number in 0..active {
            let came = incoming.0.join(format!("f{number}"));
            assert_eq!(fs::metadata(came).unwrap().len(), BYTES as u64);
        }
        drop((streams, receiver));
    });
}

/// Takes a turn of a sender; tells whether that was its last one.
fn is_over(sender: &mut FileSender) -> bool {
    let goes_on = sender.turn().unwrap();
    while sender.pop_event().is_some() {}
    !goes_on
}

#[test]
fn more_senders_than_places_are_all_proven_one_after_the_other() {
    alone(|| {
        raise_limit();
        let lab = Lab::new(&LabSpec::new(1 + 2 * HOSTS as u8)).unwrap();
        for (nth, places) in [1, 4, active_count() / 4].into_iter().enumerate() {
            let scratch = Scratch::new(&format!("many-turns-{places}"));
            let incoming = Incoming::new(&scratch);
            let to = SocketAddr::new(lab.host(0).ipv4().into(), PORT + nth as u16);
            let words = format!(
                "recv {} --listen {} --from 10.77.0.0/24 --serve --max-transfers {places} --json",
                incoming.0.display(),
                to.port()
            );
            let receiver = End::start(towline(lab.host(0), &words));
            receiver.await_session();
            let count = 3 * places;
            let mut senders = senders(&lab, to, &scratch, (count, TURN_BYTES));
            // A sender that is not driven to its end would keep its place.
            let driven = drive_senders(&lab, &mut senders, is_over, || ());
            for sender in senders.iter().flatten() {
                let outcome = sender.outcome();
                let is_proven = outcome.receivers.iter().any(|it| it.took.is_some());
                assert!(is_proven, "{outcome:?}");
            }
            let took = driven.times.iter().max().unwrap();
            receiver.await_counter("object_receiver.transfers_accepted", count as u64);
            let counter = |name: &str| receiver.counter(name).unwrap();
            let put_off = counter("object_receiver.offers_put_off");
            println!(
                "{count} senders, {places} at a time, proven in {took:.2?}; {put_off} put off"
            );
            assert_eq!(counter("object_receiver.transfers_declined"), 0);
            assert_eq!(counter("object_receiver.transfers_accepted"), count as u64);
            for number in 0..count {
                let came = incoming.0.join(format!("f{number}"));
                assert_eq!(fs::metadata(came).unwrap().len(), TURN_BYTES as u64);
            }
        }
    });
}

/// Receivers that join and then say nothing, at as many addresses of this host: gives their
/// connections once each has the manifest.
fn silent_receivers(listener: &TcpListener, count: usize) -> Vec<TcpStream> {
    let mut joined = Vec::with_capacity(count);
    let mut invitations = Vec::new();
    while invitations.len() < count {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        invitations.push(stream);
        // Greet while more come.
        let number = invitations.len() as u64;
        let stream = invitations.last_mut().unwrap();
        let mut decoder = Decoder::new(BODY_LEN_MAX);
        let mut piece = [0; 4096];
        let session_id = loop {
            if let Some(message) = decoder.next_message().unwrap() {
                let Message::Invite(invite) = message else {
                    panic!("{message}");
                };
                break invite.session_id;
            }
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "closed before it was invited");
            decoder.push(&piece[..count]);
        };
        let hello = Message::Hello(Hello {
            version_min: VERSION,
            version_max: VERSION,
            instance: number,
            session_id,
            name: &format!("idle{number}"),
            nonce: None,
        });
        stream.write_all(&bytes_of(&hello)).unwrap();
    }
    for mut stream in invitations {
        let mut decoder = Decoder::new(BODY_LEN_MAX);
        while next_name(&mut stream, &mut decoder) != "PASS_END" {}
        joined.push(stream);
    }
    joined
}

#[test]
fn one_sender_serves_very_many_receivers() {
    alone(|| {
        raise_limit();
        let scratch = Scratch::new("many-receivers");
        let (idle, active) = (idle_count(), active_count());
        let content = content(&scratch, BYTES);
        let all = SocketAddr::from(([0, 0, 0, 0], PORT));
        let listener = listen(all);
        let (mut receivers, files): (Vec<FileReceiver>, Vec<MemoryFiles>) = (0..active)
            .map(|number| {
                let place = Place::Listen(SocketAddr::from(([127, 0, 0, 1], 0)));
                let session = SessionBuilder::at(place).name(format!("r{number}"));
                let files = MemoryFiles::new(2 * BYTES as u64);
                let receiver = FileReceiver::builder(session, Target::Memory(files.clone()));
                (receiver.open().unwrap(), files)
            })
            .unzip();
        let mut hosts: Vec<String> = (0..idle)
            .map(|number| format!("127.1.{}.{}", number / 250, 1 + number % 250))
            .collect();
        hosts.extend(receivers.iter().map(|it| it.place().to_string()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
        command.args(["send", &content, "--json"]);
        command.args(["--timeout", "120s", "--join-timeout", "120s"]);
        for some in hosts.chunks(1_000) {
            command.args(["--to", &some.join(",")]);
        }
        let began = Instant::now();
        let sender = End::start(command);
        let streams = silent_receivers(&listener, idle);
        let joined = began.elapsed();
        let idle_kib = sender.resident_kib();

        let mut most_kib = idle_kib;
        let is_one_done = AtomicBool::new(false);
        let held = |receiver: &FileReceiver| {
            let progress = receiver.progress();
            progress.first().map_or(0, |(_, it)| it.numbers.held)
        };
        let driven = thread::scope(|scope| {
            let body = || drive(&mut receivers, &is_one_done, has_delivered, held);
            let driver = scope.spawn(body);
            while !driver.is_finished() {
                most_kib = most_kib.max(sender.resident_kib());
                thread::sleep(LOOK_INTERVAL);
            }
            driver.join().unwrap()
        });
        let took_all = driven.times.iter().max().unwrap();
        let slowest = share_of_slowest(&driven.held);
        println!(
            "{idle} receivers joined in {joined:.2?}; {active} beside them receive {} MB in \
             {took_all:.2?}, the slowest {slowest:.2} of the mean; memory {} MB idle, {} MB at \
             most",
            (active * BYTES) / 1_000_000,
            idle_kib / 1_000,
            most_kib / 1_000
        );
        assert!(most_kib < memory_kib_max(), "{most_kib} KiB");
        for files in files {
            assert_eq!(files.take().len(), 1);
        }
        drop(streams);
    });
}

/// Takes a turn of a receiver; tells whether it has delivered.
fn has_delivered(receiver: &mut FileReceiver) -> bool {
    receiver.turn().unwrap();
    std::iter::from_fn(|| receiver.pop_event()).any(|event| {
        matches!(
            event,
            ObjectReceiverEvent::Transfer {
                event: TransferReceiverEvent::Delivered { .. },
                ..
            }
        )
    })
}

/// What a hostile host says on its connections.
#[derive(Clone, Copy, Debug)]
enum Hostility {
    /// Its invitation byte by byte, and never to the end.
    Slow,
    /// That a message of 4 GiB comes.
    Huge,
    /// Bytes that mean nothing.
    Garbage,
    /// A good invitation, and words of another key when it is answered.
    WrongKey,
    /// What a sender with the key has said to another receiver.
    Replay,
}

const HOSTILITIES: [Hostility; 5] = [
    Hostility::Slow,
    Hostility::Huge,
    Hostility::Garbage,
    Hostility::WrongKey,
    Hostility::Replay,
];
/// Connections of each kind that a hostile host makes at least, and how many it keeps open, the
/// newest ones: so long that they are late.
const HOSTILE_MIN: u32 = 400;
const KEPT_MAX: usize = 500;
const PARTS: u32 = 10;
/// How often a hostile host opens a connection on which it says something.
const PACE: Duration = Duration::from_millis(20);

/// Ends the attacks when it is dropped, by a panic, too.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a hostile host says on its connection of this number: at once, and later.
fn hostile_words(kind: Hostility, number: u32, recorded: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let invitation = bytes_of(&Message::Invite(Invite {
        session_id: number.into(),
        required: wire::pgm::Mark::PROTECTED,
        receiver_count: 1,
    }));
    let noise = || (0..64_u32).map(|at| (at.wrapping_mul(number) >> 3) as u8);
    match kind {
        Hostility::Slow => (invitation[..1].to_vec(), invitation[1..].to_vec()),
        Hostility::Huge => (vec![0xff; 8], Vec::new()),
        Hostility::Garbage => (noise().collect(), Vec::new()),
        Hostility::WrongKey => {
            let challenge = bytes_of(&Message::Challenge(Challenge { nonce: [7; 16] }));
            // A welcome whose tag no key has made.
            let tagged = [[0, 0, 0, 32, 0, 2, 0, 2].as_slice(), &[9; 32]].concat();
            (invitation, [challenge, tagged].concat())
        }
        Hostility::Replay => {
            let (first, rest) = recorded.split_at(invitation.len());
            (first.to_vec(), rest.to_vec())
        }
    }
}

/// Goes on where a hostile host has more to say: byte by byte and never to the end, or once it is
/// greeted. What is shorter than a greeting says that it waits.
fn go_on(kind: Hostility, stream: &mut TcpStream, rest: &mut Vec<u8>) {
    let is_greeted = |len| len > bytes_of(&Message::Wait).len();
    // A connection that was closed already has served its purpose.
    if let Hostility::Slow = kind {
        if rest.len() > 1 {
            let _next = stream.write_all(&[rest.remove(0)]);
        }
    } else if stream.read(&mut [0; 256]).is_ok_and(is_greeted) {
        let _said = stream.write_all(&std::mem::take(rest));
    }
}

/// Opens connections and says what is hostile, to the end.
fn attack(to: SocketAddr, kind: Hostility, recorded: &[u8], is_over: &AtomicBool) {
    let mut kept = VecDeque::new();
    for number in 1_u32.. {
        if is_over.load(Ordering::Relaxed) && number > HOSTILE_MIN {
            return;
        }
        thread::sleep(PACE);
        let mut stream = TcpStream::connect_timeout(&to, LIMIT).unwrap();
        let (first, rest) = hostile_words(kind, number, recorded);
        let _said = stream.write_all(&first);
        stream.set_nonblocking(true).unwrap();
        kept.push_back((number, stream, rest));
        if kept.len() > KEPT_MAX {
            kept.pop_front();
        }
        for (nth, stream, rest) in &mut kept {
            // A part of them at a time.
            if *nth % PARTS == number % PARTS && !rest.is_empty() {
                go_on(kind, stream, rest);
            }
        }
    }
}

/// Hosts on which a program each opens connections and says nothing.
const SILENT_HOSTS: usize = 3;
const SILENT_COUNT: &str = "TOWLINE_LAB_SILENT_COUNT";
const ALL_SILENT: &str = "all connections are open";

/// Starts a program on a host that keeps `count` connections open. It is this one, because no
/// process has descriptors for all of them.
fn start_silent(host: &Host, to: SocketAddr, count: usize) -> End {
    let mut command = host.command(env::current_exe().unwrap());
    command.args(["--exact", "crowd::silent_host", "--ignored", "--nocapture"]);
    command.env(SILENT_COUNT, format!("{count} {to}"));
    End::start(command)
}

#[test]
#[ignore = "the body of a program that another test starts"]
fn silent_host() {
    let words = env::var(SILENT_COUNT).unwrap_or_default();
    let Some((count, to)) = words.split_once(' ') else {
        return println!("{SILENT_COUNT} does not say how many, and to whom");
    };
    let (count, to): (usize, SocketAddr) = (count.parse().unwrap(), to.parse().unwrap());
    sys::limit_open_files(count as u64 + 100).unwrap();
    let connect = || TcpStream::connect_timeout(&to, LIMIT).unwrap();
    let mut kept: VecDeque<TcpStream> = (0..count).map(|_| connect()).collect();
    eprintln!("{ALL_SILENT}");
    // Until it is killed, new ones take the place of the oldest.
    loop {
        kept.pop_front();
        kept.push_back(connect());
        thread::sleep(PACE);
    }
}

/// Lets a sender with the key transfer a file through `host`, which writes down what it said.
fn record(lab: &Lab, (host, to): (usize, SocketAddr), words: &str) -> Vec<u8> {
    let ip = lab.host(host).ipv4();
    let at = SocketAddr::new(ip.into(), PORT);
    let listener = lab.host(host).enter(|| TcpListener::bind(at)).unwrap();
    let listener = listener.unwrap();
    let sender = End::start(towline(lab.host(1), &format!("{words} --to {at}")));
    let (mut near, _) = listener.accept().unwrap();
    let far = lab.host(host).enter(|| TcpStream::connect(to)).unwrap();
    let mut far = far.unwrap();
    let (mut back, mut forth) = (far.try_clone().unwrap(), near.try_clone().unwrap());
    let mut recorded = Vec::new();
    thread::scope(|scope| {
        scope.spawn(move || {
            drop(std::io::copy(&mut back, &mut forth));
            drop(forth.shutdown(std::net::Shutdown::Write));
        });
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = near.read(&mut piece) {
            recorded.extend_from_slice(&piece[..count]);
            far.write_all(&piece[..count]).unwrap();
        }
        drop(far.shutdown(std::net::Shutdown::Write));
    });
    let sent = sender.report(LIMIT);
    assert_eq!(sent["is_proven"], true, "{sent:#}");
    // All of the handshake, and some content.
    recorded.truncate(16_384);
    recorded
}

#[test]
fn hostile_connections_of_every_kind_keep_no_sender_out() {
    alone(|| {
        raise_limit();
        // A receiver, an honest sender, hosts that are silent, and one that is not.
        let (lab, scratch) = (
            Lab::new(&LabSpec::new(3 + SILENT_HOSTS as u8)).unwrap(),
            Scratch::new("crowd-hostile"),
        );
        let hostile = 2 + SILENT_HOSTS;
        let key = crate::siege::key_of(&scratch);
        let content = content(&scratch, BYTES);
        let to = SocketAddr::new(lab.host(0).ipv4().into(), PORT);
        let receive = |port: u16| {
            let directory = scratch.file(&format!("in{port}"));
            let words =
                format!("recv {directory} --listen {port} --serve --overwrite --json {key}");
            let receiver = End::start(towline(lab.host(0), &words));
            receiver.await_session();
            receiver
        };
        let send = format!("send {content} --json --join-timeout 60s {key}");
        // To this receiver, the session that is repeated is a new one.
        let recorded = {
            let _other = receive(PORT + 1);
            record(&lab, (hostile, SocketAddr::new(to.ip(), PORT + 1)), &send)
        };
        let receiver = receive(PORT);
        let mut most_kib = 0;
        let mut transfer = || {
            let sender = End::start(towline(lab.host(1), &format!("{send} --to {to}")));
            let sent = sender.report(LIMIT);
            assert_eq!(sent["is_proven"], true, "{sent:#}");
            most_kib = most_kib.max(receiver.resident_kib());
        };
        let silent_count = 5 * idle_count();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _ends_with_this = Over(&is_over);
            for kind in HOSTILITIES {
                let (host, recorded, is_over) = (lab.host(hostile), &recorded, &is_over);
                let body = move || attack(to, kind, recorded, is_over);
                scope.spawn(move || host.enter(body).unwrap());
            }
            let count = silent_count.div_ceil(SILENT_HOSTS);
            let start = |nth| start_silent(lab.host(2 + nth), to, count);
            let silent: Vec<End> = (0..SILENT_HOSTS).map(start).collect();
            for _ in 0..5 {
                transfer();
            }
            silent.iter().for_each(|it| it.await_said(ALL_SILENT));
            transfer();
        });
        let count = |name: &str| receiver.counter(name).unwrap();
        let end = Instant::now() + LIMIT;
        let (all, counts) = loop {
            let (counts, all) = (COUNTED.map(count), count("udp.links_accepted"));
            if counts.iter().sum::<u64>() == all {
                break (all, counts);
            }
            assert!(Instant::now() < end, "{all} connections: {counts:?}");
            thread::sleep(PACE);
        };
        println!(
            "{all} connections, {silent_count} of them silent at a time, others {HOSTILITIES:?}; 6 \
             of 6 transfers proven, memory {} MB at most; {COUNTED:?}: {counts:?}",
            most_kib / 1_000,
        );
        assert!(all >= (silent_count + HOSTILITIES.len() * HOSTILE_MIN as usize) as u64);
        assert!(counts[0] > 6, "some that are hostile are greeted, too");
        assert!(most_kib < memory_kib_max(), "{most_kib} KiB");
    });
}

/// What becomes of connections: each is counted once.
const COUNTED: [&str; 5] = [
    "object_receiver.callers_greeted",
    "object_receiver.callers_refused",
    "object_receiver.callers_cut",
    "object_receiver.callers_late",
    "object_receiver.callers_gone",
];

/// Connections that a host opens to a sender, and leaves open: more than greet at a time, and more
/// than a process may have files by the usual limit.
const LEFT_OPEN: usize = 5_000;
/// Files of the tree, each of which the sender has to open.
const TREE_FILES: usize = 200;

#[test]
fn connections_that_are_left_open_keep_no_receiver_from_a_sender_of_a_group() {
    alone(|| {
        raise_limit();
        // A sender, a receiver, and a host that is silent.
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let scratch = Scratch::new("crowd-left-open");
        let tree = scratch.file("tree");
        fs::create_dir(&tree).unwrap();
        for number in 0..TREE_FILES {
            fs::write(format!("{tree}/{number}"), vec![7; 4_096]).unwrap();
        }
        let session = format!(
            "-g 239.192.7.1:7500 --json {}",
            crate::siege::key_of(&scratch)
        );
        let send = format!("send {tree} --receivers 1 --join-timeout 120s {session}");
        let sender = towline(lab.host(0), &format!("{send} --control-port {PORT}"));
        let sender = End::start(sender);
        sender.await_session();
        let to = SocketAddr::new(lab.host(0).ipv4().into(), PORT);
        let silent = start_silent(lab.host(2), to, LEFT_OPEN);
        silent.await_said(ALL_SILENT);
        let directory = scratch.file("in");
        let receive = format!("recv {directory} --from any {session}");
        let receiver = End::start(towline(lab.host(1), &receive));
        let sent = sender.report(LIMIT);
        assert_eq!(sent["is_proven"], true, "{sent:#}");
        let received = receiver.report(LIMIT);
        assert_eq!(received["is_complete"], true, "{received:#}");
        drop(silent);
    });
}
