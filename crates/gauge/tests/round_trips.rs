//! Round trips over the loopback interface: what is sent is accounted for, a stall cannot hide, and
//! an end that is not there or dies is told.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(clippy::print_stdout, reason = "a test says why it is skipped")]

use std::{
    io::Write,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use measure::Probe;
use towline_gauge::rtt::{
    Client, Cut, Engine, Latencies, MESSAGE_BYTES_MAX, PROBE_BYTES_MIN, Recorder, ReflectSpec,
    Reflector, Schedule, Transport, Wait,
    raw::{self, Manifest, Setup},
    reflect_over,
};

/// Sends more to `to` than any receive buffer holds, while nobody reads there; returns how many
/// datagrams.
fn flood(socket: &UdpSocket, to: SocketAddr) -> u64 {
    let datagrams = 20_000;
    for _ in 0..datagrams {
        socket.send_to(&[0; 1_400], to).unwrap();
    }
    datagrams
}

#[test]
fn what_the_kernel_drops_at_the_reflector_is_counted() {
    for engine in [Engine::Recv, Engine::Mmsg] {
        let spec = ReflectSpec {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            engine,
            wait: Wait::Block,
        };
        let mut reflector = Reflector::open(spec).unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let sent = flood(&socket, reflector.local().unwrap());
        let until = Instant::now() + Duration::from_secs(2);
        let counts = reflector.run(&|| Instant::now() > until).unwrap();
        assert!(counts.socket_drops > 0, "{counts:?}");
        assert_eq!(counts.foreign + counts.socket_drops, sent, "{counts:?}");
    }
}

#[test]
fn what_the_kernel_drops_at_the_measuring_end_is_counted() {
    let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (peer, greeted) = (far.local_addr().unwrap(), far.try_clone().unwrap());
    let mut client = thread::scope(|scope| {
        scope.spawn(move || {
            let mut bytes = [0; 2_048];
            let (len, from) = greeted.recv_from(&mut bytes).unwrap();
            Probe::answer(&mut bytes[..len]).unwrap();
            greeted.send_to(&bytes[..len], from).unwrap();
        });
        Client::connect(peer, 7, TIMEOUT).unwrap()
    });
    let to = client.local().unwrap();
    let has_flooded = AtomicBool::new(false);
    // The measuring thread asks this, and so it does not read meanwhile.
    let stop = || {
        if !has_flooded.swap(true, Ordering::Relaxed) {
            flood(&far, to);
        }
        true
    };
    let engine = (Engine::Recv, Wait::Busy);
    let time = Duration::from_secs(1);
    let outcome = client.run(&setup(Some(100), None), engine, time, None, &stop);
    let end = outcome.unwrap().end;
    assert!(end.socket_drops > Some(0), "{end:?}");
    // Of another measurement, nothing is counted again.
    let later = client.run(&setup(Some(100), None), engine, time, None, &|| true);
    assert_eq!(later.unwrap().end.socket_drops, Some(0));
}

const TIMEOUT: Duration = Duration::from_millis(500);

fn never() -> bool {
    false
}

fn setup(per_second: Option<u64>, window: Option<u32>) -> Setup {
    Setup {
        label: "test".to_owned(),
        per_second,
        size_bytes: 64,
        transport: Transport::Udp,
        is_ipv6: false,
        sched: "other".to_owned(),
        engine: "recv".to_owned(),
        wait: "busy".to_owned(),
        cpu: None,
        window_messages: window,
    }
}

/// A result in memory that outlives the recorder.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Measures against `peer` and gives the outcome and the result.
fn measured(
    peer: SocketAddr,
    setup: &Setup,
    engine: (Engine, Wait),
    duration: Duration,
) -> (Option<Cut>, raw::File) {
    let mut client = Client::connect(peer, 7, TIMEOUT).unwrap();
    if engine.0.takes_stamps() {
        client.set_stamping(10).unwrap();
    }
    let bytes = Shared::default();
    let mut recorder = Recorder::start(bytes.clone(), &Manifest::default(), None).unwrap();
    let outcome = client
        .run(setup, engine, duration, Some(&mut recorder), &never)
        .unwrap();
    recorder.finish().unwrap();
    let file = raw::read(&bytes.0.lock().unwrap()[..]).unwrap();
    assert_eq!(file.cut, None);
    (outcome.cut, file)
}

/// Runs `body` beside a reflector.
fn beside_reflector<T>(engine: Engine, wait: Wait, body: impl FnOnce(SocketAddr) -> T) -> T {
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let spec = ReflectSpec {
        listen,
        engine,
        wait,
    };
    let mut reflector = Reflector::open(spec).unwrap();
    let peer = reflector.local().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| reflector.run(&|| stop.load(Ordering::Relaxed)).unwrap());
        let given = body(peer);
        stop.store(true, Ordering::Relaxed);
        given
    })
}

#[test]
fn a_size_or_a_rate_that_cannot_be_is_refused() {
    beside_reflector(Engine::Recv, Wait::Block, |peer| {
        let mut client = Client::connect(peer, 7, TIMEOUT).unwrap();
        let mut run = |setup: &Setup| {
            let engine = (Engine::Recv, Wait::Block);
            client.run(setup, engine, Duration::from_millis(10), None, &never)
        };
        for size in [0, PROBE_BYTES_MIN - 1, MESSAGE_BYTES_MAX + 1, usize::MAX] {
            let setup = Setup {
                size_bytes: size,
                ..setup(Some(100), None)
            };
            let error = run(&setup).unwrap_err().to_string();
            assert!(error.contains(&format!("{size} bytes")), "{error}");
        }
        for rate in [0, Schedule::RATE_MAX + 1] {
            let error = run(&setup(Some(rate), None)).unwrap_err().to_string();
            assert!(error.contains(&format!("{rate} messages/s")), "{error}");
        }
        assert_eq!(run(&setup(Some(100), None)).unwrap().cut, None);
    });
}

/// Whether the kernel lets this process have `io_uring`; said when it does not.
fn has_rings() -> bool {
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let (engine, wait) = (Engine::IoUring, Wait::Block);
    let spec = ReflectSpec {
        listen,
        engine,
        wait,
    };
    let opened = Reflector::open(spec).unwrap();
    opened
        .remark()
        .inspect(|remark| println!("skipped: {remark}"))
        .is_none()
}

#[test]
fn every_engine_and_wait_accounts_for_every_slot() {
    for engine in [Engine::Recv, Engine::Epoll, Engine::Mmsg, Engine::IoUring] {
        if engine == Engine::IoUring && !has_rings() {
            continue;
        }
        for wait in [Wait::Block, Wait::Busy] {
            let setup = setup(Some(2_000), None);
            let (cut, file) = beside_reflector(engine, wait, |peer| {
                measured(peer, &setup, (engine, wait), Duration::from_millis(300))
            });
            let run = &file.runs[0];
            let counts = run.end.unwrap().counts;
            assert_eq!(cut, None);
            assert_eq!(counts.slots, 600, "{engine} {wait} {counts:?}");
            assert_eq!(counts.sent + counts.missed + counts.refused, counts.slots);
            assert_eq!(counts.answered + counts.lost, counts.sent);
            assert_eq!(run.samples.len() as u64, counts.sent);
            assert!(counts.answered > 0, "{counts:?}");
            for sample in &run.samples {
                assert_eq!(sample.intended_ns, sample.sequence * 500_000);
                assert!(sample.sent_ns >= sample.intended_ns);
            }
        }
    }
}

#[test]
fn ping_pong_and_stamps() {
    let setup = setup(None, None);
    let (_, file) = beside_reflector(Engine::Recv, Wait::Block, |peer| {
        let engine = (Engine::Recv, Wait::Block);
        measured(peer, &setup, engine, Duration::from_millis(400))
    });
    let run = &file.runs[0];
    assert!(run.samples.len() > 100, "{}", run.samples.len());
    assert!(run.samples.windows(2).all(|pair| {
        // One at a time: the next leaves when the answer is there.
        pair[1].sent_ns >= pair[0].sent_ns + pair[0].rtt_ns.unwrap_or(0)
    }));
    assert!(!run.splits.is_empty());
    for split in &run.splits {
        assert!(split.sequence % 10 == 0 && split.link_ns > 0, "{split:?}");
    }
}

/// A reflector of the test's own, which asks `before` before each answer, by the message's number;
/// false, and it dies. Without messages it waits for `patience`.
fn reflector(
    patience: Duration,
    before: impl Fn(u64) -> bool + Send + 'static,
) -> (SocketAddr, thread::JoinHandle<()>) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    let address = socket.local_addr().unwrap();
    let thread = thread::spawn(move || {
        let mut message = [0; 2_048];
        while let Ok((len, from)) = socket.recv_from(&mut message) {
            let Some(asked) = Probe::answer(&mut message[..len]) else {
                continue;
            };
            if !before(asked.sequence) {
                return;
            }
            socket.send_to(&message[..len], from).unwrap();
        }
    });
    (address, thread)
}

/// One that once sleeps for `stall`, at message `at`, or dies there.
fn moody_reflector(at: u64, stall: Option<Duration>) -> (SocketAddr, thread::JoinHandle<()>) {
    reflector(Duration::from_secs(3), move |sequence| {
        if sequence != at {
            return true;
        }
        stall.inspect(|&stall| thread::sleep(stall)).is_some()
    })
}

#[test]
fn a_stall_shows_from_intended_times_and_not_from_actual_ones() {
    // 40 ms of 2 s, so that whatever else the machine does is small against it: every message of
    // 2 % of the time is late, and exactly one of them took long.
    let stall = Duration::from_millis(40);
    let (peer, thread) = moody_reflector(1_000, Some(stall));
    let setup = setup(Some(1_000), Some(1));
    let engine = (Engine::Recv, Wait::Busy);
    let (_, file) = measured(peer, &setup, engine, Duration::from_secs(2));
    thread.join().unwrap();
    let samples = &file.runs[0].samples;
    let mut latencies = Latencies::new();
    for sample in samples {
        latencies.take(sample);
    }
    let stalled = samples
        .iter()
        .find(|sample| sample.sequence == 1_000)
        .unwrap();
    assert!(stalled.rtt_ns.unwrap() >= 40_000_000);
    // The message that was due in the middle of the stall left after it.
    let held = samples
        .iter()
        .find(|sample| sample.sequence == 1_020)
        .unwrap();
    assert!(held.rtt_intended_ns().unwrap() >= 19_000_000, "{held:?}");
    assert!(
        latencies.intended().p99_ns >= 15_000_000,
        "{:?}",
        latencies.intended()
    );
    assert!(
        latencies.actual().p99_ns < 15_000_000,
        "{:?}",
        latencies.actual()
    );
}

/// Of a busy machine the quietest of some runs counts. Runs of this kind take turns.
fn is_shown_once(mut run: impl FnMut() -> bool) -> bool {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let give_up = Instant::now() + Duration::from_secs(60);
    while Instant::now() < give_up {
        if run() {
            return true;
        }
    }
    false
}

/// One that holds every `every`-th answer back for `delay`.
fn slow_reflector(every: u64, delay: Duration) -> (SocketAddr, thread::JoinHandle<()>) {
    reflector(Duration::from_secs(1), move |sequence| {
        if sequence % every == 0 {
            let end = Instant::now() + delay;
            while Instant::now() < end {
                std::hint::spin_loop();
            }
        }
        true
    })
}

#[test]
fn a_stall_of_five_milliseconds_is_in_the_intended_percentiles_alone() {
    // One of 50 messages at 2,000/s waits for 5 ms, ten more leave late behind it: from intended
    // times 14 % are late by 2 ms or more, from actual ones 2 %.
    assert!(is_shown_once(|| {
        let (peer, thread) = slow_reflector(50, Duration::from_millis(5));
        let setup = setup(Some(2_000), Some(1));
        let engine = (Engine::Recv, Wait::Busy);
        let (_, file) = measured(peer, &setup, engine, Duration::from_secs(2));
        thread.join().unwrap();
        let mut latencies = Latencies::new();
        for sample in &file.runs[0].samples {
            latencies.take(sample);
        }
        let (intended, actual) = (latencies.intended(), latencies.actual());
        assert!(intended.max_ns >= 5_000_000, "{intended:?}");
        intended.p90_ns >= 2_000_000 && actual.p90_ns < 2_000_000
    }));
}

#[test]
fn two_hundred_microseconds_of_every_thousandth_message_show_at_p999() {
    assert!(is_shown_once(|| {
        let (peer, thread) = slow_reflector(1_000, Duration::from_micros(200));
        let setup = setup(None, None);
        let engine = (Engine::Recv, Wait::Block);
        let (_, file) = measured(peer, &setup, engine, Duration::from_secs(1));
        thread.join().unwrap();
        let samples = &file.runs[0].samples;
        let mut slow = samples.iter().filter(|it| it.sequence % 1_000 == 0);
        assert!(slow.all(|it| it.rtt_ns.is_none_or(|rtt| rtt >= 200_000)));
        let mut latencies = Latencies::new();
        for sample in samples {
            latencies.take(sample);
        }
        // The first message is one of them, so that there are more than 1 in 1,000.
        let found = latencies.actual();
        samples.len() > 1_000 && found.p999_ns >= 200_000 && found.p50_ns < 100_000
    }));
}

/// A group of two reflectors: each answers, the first answer counts.
#[test]
fn a_group_of_reflectors_answers() {
    lab::isolated(|| {
        let lab = lab::Lab::new(&lab::LabSpec::new(3)).unwrap();
        let group: SocketAddr = "239.192.0.5:7700".parse().unwrap();
        let spec = ReflectSpec {
            listen: group,
            engine: Engine::Recv,
            wait: Wait::Block,
        };
        let mut reflectors: Vec<Reflector> = lab.hosts()[1..]
            .iter()
            .map(|host| host.enter(|| Reflector::open(spec)).unwrap().unwrap())
            .collect();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for reflector in &mut reflectors {
                scope.spawn(|| reflector.run(&|| stop.load(Ordering::Relaxed)).unwrap());
            }
            let setup = setup(Some(1_000), None);
            let engine = (Engine::Recv, Wait::Block);
            let host = lab.host(0);
            let (cut, file) = host
                .enter(|| measured(group, &setup, engine, Duration::from_millis(300)))
                .unwrap();
            stop.store(true, Ordering::Relaxed);
            let counts = file.runs[0].end.unwrap().counts;
            assert_eq!((cut, counts.slots), (None, 300));
            assert!(
                counts.answered > 200 && counts.late_or_twice > 200,
                "{counts:?}"
            );
        });
    });
}

#[test]
fn over_tcp_and_over_pgm() {
    lab::isolated(|| {
        let lab = lab::Lab::new(&lab::LabSpec::new(2)).unwrap();
        let stop = AtomicBool::new(false);
        let tcp: SocketAddr = (lab.host(1).ipv4(), 7_700).into();
        let pgm: SocketAddr = "239.192.0.6:7720".parse().unwrap();
        thread::scope(|scope| {
            let (lab, stop) = (&lab, &stop);
            for (transport, listen) in [(Transport::Tcp, tcp), (Transport::Pgm, pgm)] {
                scope.spawn(move || {
                    let is_stopped = || stop.load(Ordering::Relaxed);
                    let host = lab.host(1);
                    let reflected = host
                        .enter(|| reflect_over(transport, listen, None, Wait::Block, &is_stopped))
                        .unwrap();
                    let counts = reflected.unwrap();
                    assert!(counts.greeted > 0 && counts.answered > 100, "{counts:?}");
                });
            }
            for (transport, peer) in [(Transport::Tcp, tcp), (Transport::Pgm, pgm)] {
                for (rate, size) in [(Some(500), 64), (None, 3_000)] {
                    let mut setup = setup(rate, None);
                    (setup.size_bytes, setup.transport) = (size, transport);
                    let (cut, file) = lab.host(0).enter(|| carried(peer, &setup)).unwrap();
                    let counts = file.runs[0].end.unwrap().counts;
                    assert_eq!(cut, None, "{transport} {counts:?}");
                    assert_eq!(counts.sent + counts.missed + counts.refused, counts.slots);
                    assert!(
                        counts.answered > 50 && counts.lost == 0,
                        "{transport} {counts:?}"
                    );
                    assert_eq!(file.runs[0].setup.transport, transport);
                    // Counted in every run, also when nothing had to be repaired.
                    let repairs = file.runs[0].end.unwrap().repairs;
                    assert_eq!(repairs.is_some(), transport == Transport::Pgm);
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

/// Measures over another carrier, as soon as its reflector is there.
fn carried(peer: SocketAddr, setup: &Setup) -> (Option<Cut>, raw::File) {
    let connect = || Client::connect_over(setup.transport, peer, None, 7, TIMEOUT);
    let client = (0..20).find_map(|_| {
        connect()
            .inspect_err(|_| thread::sleep(Duration::from_millis(100)))
            .ok()
    });
    let bytes = Shared::default();
    let mut recorder = Recorder::start(bytes.clone(), &Manifest::default(), None).unwrap();
    let (engine, duration) = ((Engine::Recv, Wait::Block), Duration::from_millis(400));
    let outcome = client
        .unwrap()
        .run(setup, engine, duration, Some(&mut recorder), &never)
        .unwrap();
    recorder.finish().unwrap();
    let file = raw::read(&bytes.0.lock().unwrap()[..]).unwrap();
    (outcome.cut, file)
}

#[test]
fn a_reflector_that_dies_ends_the_run_and_leaves_what_was_measured() {
    let (peer, thread) = moody_reflector(500, None);
    let setup = setup(Some(1_000), None);
    let engine = (Engine::Recv, Wait::Block);
    let (cut, file) = measured(peer, &setup, engine, Duration::from_secs(60));
    thread.join().unwrap();
    assert_eq!(cut, Some(Cut::Refused));
    let run = &file.runs[0];
    let end = run.end.unwrap();
    assert!(end.is_cut && end.lasted_ns < 20_000_000_000);
    assert_eq!(end.counts.answered, 500);
    assert_eq!(run.samples.len() as u64, end.counts.sent);
}

#[test]
fn nobody_there_and_somebody_silent_are_told_apart() {
    let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let peer = taken.local_addr().unwrap();
    let silent = Client::connect(peer, 1, TIMEOUT).unwrap_err().to_string();
    assert!(silent.contains("no reflector answered"), "{silent}");
    drop(taken);
    let nobody = Client::connect(peer, 1, TIMEOUT).unwrap_err().to_string();
    assert!(nobody.contains("no program listens on port"), "{nobody}");
}

#[test]
fn what_is_under_way_when_the_caller_stops_is_waited_for() {
    for per_second in [Some(500), None] {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let peer = socket.local_addr().unwrap();
        socket.set_read_timeout(Some(TIMEOUT * 4)).unwrap();
        // Each answer takes 100 ms.
        thread::spawn(move || {
            let mut room = [0; 64];
            while let Ok((len, from)) = socket.recv_from(&mut room) {
                let (mut answer, socket) = (room[..len].to_vec(), socket.try_clone().unwrap());
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(100));
                    Probe::answer(&mut answer).unwrap();
                    socket.send_to(&answer, from).unwrap();
                });
            }
        });
        let mut client = Client::connect(peer, 7, TIMEOUT * 2).unwrap();
        let began = Instant::now();
        let is_stopped = || began.elapsed() > Duration::from_millis(350);
        let (engine, long) = ((Engine::Recv, Wait::Block), Duration::from_secs(60));
        let setup = setup(per_second, None);
        let outcome = client.run(&setup, engine, long, None, &is_stopped).unwrap();
        assert_eq!(outcome.cut, Some(Cut::Stopped));
        let counts = outcome.end.counts;
        assert!(counts.answered > 0 && counts.lost == 0, "{counts:?}");
        assert_eq!(counts.answered, counts.sent);
        assert!(began.elapsed() < TIMEOUT * 2);
    }
}
