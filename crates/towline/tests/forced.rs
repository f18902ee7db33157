//! Everything arrives whatever the kernel and the network do: each rare path forced in turn.
//!
//! Both ends suffer the faults of a case. A case also names the counters by which the path shows
//! itself, so that it cannot pass without having been taken.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use measure::load::{LoadCheck, LoadPattern, LoadSizes};
use towline::{
    Expectation, FileReceiver, FileSender, FileSet, FileSetBuilder, Group, Publisher, Received,
    SessionBuilder, SessionEvent, Snapshot, Subscriber,
};

/// A rare path, and how it shows.
struct Case {
    faults: &'static str,
    /// Counters of either end that must move, `set.name`.
    taken: &'static [&'static str],
    /// Counters of both ends that must stay 0.
    still: &'static [&'static str],
}

const CASES: [Case; 11] = [
    Case {
        faults: "",
        taken: &["udp.gso_runs", "udp.gro_buffers"],
        still: &["udp.short_runs", "udp.gso_fallbacks", "intercept.lost"],
    },
    Case {
        faults: "short=20%",
        taken: &["udp.short_runs", "udp.send_full", "driver.runs_short"],
        still: &[],
    },
    Case {
        faults: "eintr=20%",
        taken: &["udp.send_interrupted", "udp.receive_interrupted"],
        still: &[],
    },
    Case {
        faults: "eagain=20%",
        taken: &["udp.send_full", "udp.blocked", "driver.runs_blocked"],
        still: &[],
    },
    Case {
        faults: "enobufs=20%",
        taken: &["udp.send_no_buffers"],
        still: &[],
    },
    Case {
        faults: "enomem=10%",
        taken: &["udp.send_no_buffers", "udp.receive_failed"],
        still: &[],
    },
    Case {
        faults: "eio=100%",
        taken: &["udp.gso_fallbacks", "udp.sent_datagrams"],
        still: &["udp.gso_runs"],
    },
    Case {
        faults: "nogso,nogro",
        taken: &["udp.sent_datagrams"],
        still: &["udp.gso_runs", "udp.gro_buffers"],
    },
    Case {
        faults: "loss=5%,duplicate=5%",
        taken: &[
            "intercept.lost",
            "intercept.duplicated",
            "source.rdata_packets",
            "receiver.held_packets",
        ],
        still: &[],
    },
    Case {
        faults: "corrupt=1%",
        taken: &["intercept.corrupted", "source.rdata_packets"],
        still: &[],
    },
    EVERYTHING,
];

const EVERYTHING: Case = Case {
    faults: "short=20%,eintr=20%,eagain=20%,enobufs=20%,enomem=10%,eio=100%,nogro,\
             loss=5%,duplicate=5%,corrupt=1%",
    taken: &[
        "udp.send_interrupted",
        "udp.receive_interrupted",
        "udp.send_full",
        "udp.send_no_buffers",
        "udp.receive_failed",
        "udp.gso_fallbacks",
        "udp.short_runs",
        "intercept.lost",
        "intercept.duplicated",
        "intercept.corrupted",
        "source.rdata_packets",
    ],
    still: &["udp.gso_runs", "udp.gro_buffers"],
};

/// Groups differ, so that no case hears the end of another.
fn session(last: u8, case: &Case) -> SessionBuilder {
    let port = 28_000 + u16::from(last);
    let group: Group = format!("239.192.80.{last}@lo:{port}").parse().unwrap();
    SessionBuilder::new(group).faults(case.faults.parse().unwrap())
}

impl Case {
    /// Holds the counters of both ends against the case.
    fn check(&self, snapshot: &Snapshot) {
        let sum = |wanted: &str| -> u64 {
            let (set, name) = wanted.split_once('.').unwrap();
            let mut values = snapshot
                .iter()
                .filter(|(of, info, _)| *of == set && info.name == name)
                .map(|(_, _, value)| value)
                .peekable();
            assert!(values.peek().is_some(), "there is no counter {wanted}");
            values.sum()
        };
        for name in self.taken {
            assert!(sum(name) > 0, "{name} stayed 0 under {:?}", self.faults);
        }
        for name in self.still {
            assert_eq!(sum(name), 0, "{name} moved under {:?}", self.faults);
        }
    }
}

/// Sends every message on a thread of its own; gives the sender's counters.
fn send_all(session: SessionBuilder) -> thread::JoinHandle<Snapshot> {
    let mut publisher = Publisher::builder(session)
        .expect_receivers(1)
        .open()
        .unwrap();
    thread::spawn(move || {
        publisher.wait_for_receivers(Some(LIMIT)).unwrap();
        let pattern = LoadPattern::new(SIZES.seed);
        let mut message = vec![0; SIZES.bytes_max];
        for number in 0..MESSAGES {
            let len = SIZES.of(number);
            pattern.fill(number, &mut message[..len]);
            publisher.send(&message[..len]).unwrap();
        }
        let closed = publisher.close(LIMIT).unwrap();
        assert!(closed.is_complete(), "{closed:?}");
        let mut snapshot = Snapshot::default();
        publisher.snapshot(&mut snapshot);
        snapshot
    })
}

#[test]
fn messages_arrive_complete_on_every_rare_path() {
    for (last, case) in (1..).zip(&CASES) {
        let mut subscriber = Subscriber::open(&session(last, case)).unwrap();
        let sender = send_all(session(last, case));
        let mut check = LoadCheck::new(SIZES.seed);
        loop {
            match subscriber.recv(Some(LIMIT)).unwrap() {
                Some(Received::Message { data, .. }) => {
                    check.take(data);
                }
                Some(Received::Event(SessionEvent::Found { .. })) => {}
                Some(Received::Event(SessionEvent::Ended { .. })) => break,
                other => panic!("{other:?} under {:?}: {:?}", case.faults, check.tally()),
            }
        }
        subscriber.close().unwrap();
        let mut snapshot = sender.join().unwrap();
        subscriber.snapshot(&mut snapshot);
        let tally = check.tally();
        let (received, first) = (tally.received, tally.first);
        let bad = tally.missing + tally.corrupt + tally.duplicates + tally.out_of_order;
        assert_eq!(
            (received, first, bad),
            (MESSAGES, Some(0), 0),
            "{:?}",
            case.faults
        );
        case.check(&snapshot);
    }
}

#[test]
fn files_arrive_complete_with_every_fault_at_once() {
    let place =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("forced-{}", std::process::id()));
    let (from, to) = (place.join("from"), place.join("to"));
    fs::create_dir_all(&from).unwrap();
    let pattern = LoadPattern::new(SIZES.seed);
    let mut content = Vec::new();
    for part in 0..100 {
        let mut bytes = vec![0; 60_000];
        pattern.fill(part, &mut bytes);
        content.append(&mut bytes);
    }
    let files = [("large", &content[..]), ("small", b"x"), ("empty", b"")];
    for (name, bytes) in files {
        fs::write(from.join(name), bytes).unwrap();
    }

    let mut receiver = FileReceiver::open(&session(50, &EVERYTHING), &to).unwrap();
    let sender = thread::spawn({
        let paths: Vec<PathBuf> = files.iter().map(|(name, _)| from.join(name)).collect();
        move || send_files(&paths)
    });
    let end = Instant::now() + LIMIT;
    while receiver.turn().unwrap() {
        assert!(Instant::now() < end, "{:?}", receiver.progress());
        receiver.wait(None);
    }

    let mut snapshot = sender.join().unwrap();
    receiver.snapshot(&mut snapshot);
    for (name, bytes) in files {
        assert!(fs::read(to.join(name)).unwrap() == bytes, "{name} differs");
    }
    EVERYTHING.check(&snapshot);
    fs::remove_dir_all(&place).unwrap();
}

/// Sends the files until the receiver has proved delivery; gives the sender's counters.
fn send_files(paths: &[PathBuf]) -> Snapshot {
    let expectation = Expectation::default().receivers(1);
    let expectation = expectation.join_timeout(LIMIT).progress_timeout(LIMIT);
    let set = paths.iter().fold(FileSet::builder(), FileSetBuilder::path);
    let files = set.read().unwrap();
    let mut sender = FileSender::open(&session(50, &EVERYTHING), files, &expectation).unwrap();
    let end = Instant::now() + LIMIT;
    while sender.turn().unwrap() {
        assert!(Instant::now() < end, "{:?}", sender.outcome());
        sender.wait(None);
    }
    assert!(sender.outcome().is_proven(), "{:?}", sender.outcome());
    let mut snapshot = Snapshot::default();
    sender.snapshot(&mut snapshot);
    snapshot
}

const MESSAGES: u64 = 10_000;
const SIZES: LoadSizes = LoadSizes {
    bytes_min: 1,
    bytes_max: 4_000,
    seed: 11,
};
/// Far beyond what any case takes.
const LIMIT: Duration = Duration::from_secs(20);
