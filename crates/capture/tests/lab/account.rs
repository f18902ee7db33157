//! The account closes, whatever happens.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use lab::isolated;
use sys::netlink::Rtnetlink;
use towline_capture::{
    Account, CaptureError, Checksum, Edits, Ended, Filter, Interface, Limits, LiveOptions, Losses,
    Packet, ReplayTiming, Second, SendOptions, Session, Sink, SinkAddress, Source, TagEdit,
    Workers,
    sink::{self, NullSink, Output, PcapngSink, RotatingSink, Rotation},
    source::{self, FileSource, Progress, RING_BYTES_MAX, RingSource, Visit},
};
use wire::pcapng::Options;

use crate::{
    Captured, OTHERS_MAX, assert_closed, capture, incoming, pair, send, send_edited, small_ring,
};

/// Every kind of source sees every frame of a moderate load.
#[test]
fn nothing_is_lost_at_a_moderate_rate() {
    isolated(|| {
        let lab = pair();
        for kind in ["ring", "ring2", "int"] {
            let options = incoming();
            let mut sent = 0;
            let captured = capture(lab.host(1), kind, &options, Box::new(NullSink), || {
                let spec = "size=60-1514,count=3000,flows=4";
                sent = send(lab.host(0), "ring", spec, ReplayTiming::Packets(10_000));
            });
            assert_eq!(sent, 3000);
            assert_closed(&captured, sent);
            assert_eq!(
                captured.sequence.frames, 3000,
                "{kind}: {:?}",
                captured.account
            );
            assert_eq!(captured.account.cut, 0);
        }
    });
}

/// Long frames are whole in every kind of ring.
#[test]
fn frames_of_a_large_mtu_are_whole() {
    isolated(|| {
        let lab = pair();
        for host in lab.hosts() {
            let set = || {
                let mut netlink = Rtnetlink::open().unwrap();
                let index = netlink.link_index(host.interface()).unwrap();
                netlink.set_mtu(index, 9000).unwrap();
            };
            host.enter(set).unwrap();
        }
        for kind in ["ring", "ring2", "int"] {
            let options = incoming();
            let mut sent = 0;
            let captured = capture(lab.host(1), kind, &options, Box::new(NullSink), || {
                let spec = "size=8000-9014,count=500";
                sent = send(lab.host(0), "ring", spec, ReplayTiming::Packets(2_000));
            });
            assert_closed(&captured, sent);
            assert_eq!((sent, captured.sequence.frames), (500, 500), "{kind}");
            assert_eq!(captured.account.cut, 0, "{kind}: {:?}", captured.account);
        }
    });
}

/// A ring without measure is as large as the machine can spare, in every kind, and that is said.
#[test]
fn the_largest_ring_there_is_can_be_asked_for() {
    isolated(|| {
        let lab = pair();
        let options = LiveOptions {
            ring_bytes: RING_BYTES_MAX,
            ..LiveOptions::default()
        };
        for kind in ["ring2", "int"] {
            let address = format!("{kind}:e0").parse().unwrap();
            let opened = lab.host(0).enter(|| source::open(&address, &options));
            let remarks = opened.unwrap().unwrap().take_remarks();
            let of_size = |remark: &String| remark.starts_with("e0: ") && remark.contains(" bytes");
            assert!(remarks.iter().any(of_size), "{kind}: {remarks:?}");
        }
    });
}

/// Who shares an interface's packets has each of them once, and one account.
#[test]
fn workers_share_flows_and_their_account_closes() {
    isolated(|| {
        let lab = pair();
        let options = LiveOptions {
            ring_bytes: 12 << 20,
            ..incoming()
        };
        let name = lab.host(1).interface().to_owned();
        let (is_over, is_ready) = (AtomicBool::new(false), AtomicBool::new(false));
        let (mut workers, shares, sent) = thread::scope(|scope| {
            let capture = scope.spawn(|| {
                let captured = lab.host(1).enter(|| {
                    let sources = RingSource::open_shared(&name, &options, 3).unwrap();
                    let bytes: usize = sources.iter().map(RingSource::ring_bytes).sum();
                    assert!(bytes <= options.ring_bytes, "{bytes}");
                    let limits = Limits {
                        checks_sequence: true,
                        ..Limits::default()
                    };
                    let session = |source| {
                        Session::new(vec![Box::new(source)], Box::new(NullSink), limits).unwrap()
                    };
                    let mut workers = Workers::new(sources.into_iter().map(session).collect());
                    is_ready.store(true, Ordering::Release);
                    let mut shown = 0;
                    let is_stopped = || is_over.load(Ordering::Acquire);
                    let ended = workers.run(&is_stopped, &mut |_| shown += 1).unwrap();
                    assert_eq!((ended, shown > 0), (Ended::Stopped, true));
                    workers
                });
                captured.unwrap()
            });
            while !is_ready.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(1));
            }
            let spec = "size=60-1514,count=15000,flows=64";
            let sent = send(lab.host(0), "ring", spec, ReplayTiming::Packets(10_000));
            is_over.store(true, Ordering::Release);
            let workers = capture.join().unwrap();
            let shares: Vec<u64> = workers.accounts().map(|account| account.passed).collect();
            (workers, shares, sent)
        });
        let captured = Captured {
            account: workers.account(),
            sequence: workers.sequence().unwrap(),
        };
        assert_eq!(sent, 15_000);
        assert_closed(&captured, sent);
        let Captured { account, sequence } = &captured;
        assert_eq!(sequence.frames + account.losses.ring, 15_000, "{account:?}");
        assert_eq!((sequence.duplicates, sequence.corrupt), (0, 0));
        assert_eq!(account.received, shares.iter().sum::<u64>());
        // Sixty-four flows in one of three, by any fair hash: never.
        assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
        assert!(workers.take_failure().is_none());
    });
}

/// What a filter rejects is counted, and nothing else.
#[test]
fn a_filter_counts_what_it_rejects() {
    isolated(|| {
        let filter = match Filter::compile("udp src port 20001") {
            Err(error) if error.to_string().contains("need libpcap") => {
                println!("skipped: {error}");
                return;
            }
            filter => filter.unwrap(),
        };
        let source = "gen:count=1000,flows=4,size=60-200".parse().unwrap();
        let source = source::open(&source, &LiveOptions::default()).unwrap();
        let limits = Limits::default();
        let mut session = Session::new(vec![source], Box::new(NullSink), limits).unwrap();
        session.set_filter(filter).unwrap();
        session.run(&|| false, &mut |_| {}).unwrap();
        let account = session.account();
        assert_eq!((account.passed, account.filtered), (250, 750));
        assert_eq!((account.received, account.delivered), (1000, 250));
        let error = Filter::compile("udp and and").unwrap_err().to_string();
        assert!(
            error.contains("is not a filter: ") && error.contains("syntax"),
            "{error}"
        );
    });
}

/// A ring of 16 KiB under full load loses much, and says of every frame what became of it.
#[test]
fn what_a_small_ring_loses_is_counted_to_the_frame() {
    isolated(|| {
        let lab = pair();
        for (kind, sender) in [("ring", "ring"), ("ring2", "int"), ("int", "ring")] {
            let options = small_ring(16 << 10);
            let mut sent = 0;
            let captured = capture(lab.host(1), kind, &options, Box::new(NullSink), || {
                sent = send(
                    lab.host(0),
                    sender,
                    "size=60-1514,count=60000",
                    ReplayTiming::TopSpeed,
                );
            });
            assert_eq!(sent, 60_000);
            assert_closed(&captured, sent);
        }
    });
}

/// Takes packets, and once takes its time.
#[derive(Debug)]
struct SlowSink(u64);

impl Sink for SlowSink {
    fn interface(&mut self, _: &Interface) -> Result<(), CaptureError> {
        Ok(())
    }

    fn write(&mut self, _: &Packet<'_>) -> Result<(), CaptureError> {
        self.0 += 1;
        if self.0 == 100 {
            thread::sleep(Duration::from_secs(3));
        }
        Ok(())
    }

    fn note(&mut self, _: &Account, _: u64) -> Result<(), CaptureError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        Ok(())
    }
}

/// A reader that stands still for three seconds loses what the ring cannot hold, and knows it.
#[test]
fn a_reader_that_stops_knows_what_it_missed() {
    isolated(|| {
        let lab = pair();
        let mut sent = 0;
        let options = small_ring(1 << 20);
        let captured = capture(lab.host(1), "ring", &options, Box::new(SlowSink(0)), || {
            sent = send(
                lab.host(0),
                "ring",
                "count=60000",
                ReplayTiming::Packets(20_000),
            );
        });
        assert_closed(&captured, sent);
        assert!(
            captured.account.losses.ring > 10_000,
            "{:?}",
            captured.account
        );
        assert!(captured.account.losses.freezes > 0);
    });
}

/// An interface that goes down and comes back ends nothing.
#[test]
fn an_interface_may_go_down_and_come_back() {
    isolated(|| {
        let lab = pair();
        for kind in ["ring", "ring2", "int"] {
            let mut sent = 0;
            let options = small_ring(1 << 20);
            let captured = capture(lab.host(1), kind, &options, Box::new(NullSink), || {
                sent += send(lab.host(0), "int", "count=100", ReplayTiming::TopSpeed);
                lab.set_interface_up(1, false).unwrap();
                lab.set_interface_up(1, true).unwrap();
                sent += send(lab.host(0), "int", "count=100", ReplayTiming::TopSpeed);
            });
            assert_eq!(captured.account.residual(), Some(0));
            // The second run has the numbers of the first.
            let seen = captured.sequence.frames + captured.sequence.duplicates;
            assert_eq!((seen, sent), (200, 200), "{kind}");
        }
    });
}

#[test]
fn errors_name_what_to_do() {
    isolated(|| {
        let lab = pair();
        let open = |address: &str| {
            let address = address.parse().unwrap();
            let options = LiveOptions::default();
            let opened = lab.host(0).enter(|| source::open(&address, &options));
            opened.unwrap().unwrap_err().to_string()
        };
        assert_eq!(
            open("ring:e9"),
            "there is no interface e9; this host has lo, e0; if e9 is a file, write pcapng:e9"
        );
        let missing = open("pcap:no/such/x.pcap");
        assert!(missing.starts_with("cannot open no/such/x.pcap: No such file"));
        let text = open("pcap:/proc/self/status");
        assert!(
            text.contains("is not a capture file") && text.contains("neither pcap nor pcapng"),
            "{text}"
        );
    });
}

/// A filter that the kernel runs rejects the same packets as one that we run, and counts them; a
/// tag, which the kernel has taken out before it looks, changes nothing.
#[test]
fn what_the_kernel_rejects_is_counted_too() {
    isolated(|| {
        let filter = match Filter::compile("udp src port 20001 or vlan 5") {
            Err(error) if error.to_string().contains("need libpcap") => {
                println!("skipped: {error}");
                return;
            }
            filter => filter.unwrap(),
        };
        let lab = pair();
        for kind in ["ring", "ring2", "int"] {
            let options = LiveOptions {
                filter: Some(filter.clone()),
                ..incoming()
            };
            let captured = capture(lab.host(1), kind, &options, Box::new(NullSink), || {
                send(
                    lab.host(0),
                    "ring",
                    "count=1000,flows=4",
                    ReplayTiming::Packets(20_000),
                );
                let tagged = Edits {
                    tag: TagEdit::Set(5),
                    ..Edits::default()
                };
                send_edited(lab.host(0), "count=100", tagged);
            });
            let Captured { account, sequence } = captured;
            assert_eq!(account.residual(), Some(0), "{kind}: {account:?}");
            // Tagged frames are not looked into for their numbers: they are the others.
            assert_eq!(sequence.frames, 250, "{kind}: {account:?}");
            assert!(account.filtered >= 750, "{kind}: {account:?}");
            assert!(
                (350..350 + OTHERS_MAX).contains(&account.passed),
                "{kind}: {account:?}"
            );
            assert_eq!(account.interfaces[0].passed, account.passed);
            assert_eq!(account.interfaces[0].losses, account.losses);
        }
    });
}

/// Counts on beyond 32 bits, as a source does that has run for hours.
#[derive(Debug, Default)]
struct LongRunning {
    interface: [Interface; 1],
    reads: u64,
}

impl Source for LongRunning {
    fn interfaces(&self) -> &[Interface] {
        &self.interface
    }

    fn read(&mut self, visit: &mut Visit<'_>) -> Result<Progress, CaptureError> {
        self.reads += 1;
        if self.reads > 3 {
            return Ok(Progress::End);
        }
        let frame = [0; 60];
        let packet = Packet {
            data: &frame,
            wire_len: 60,
            stamp_ns: self.reads,
            interface: 0,
            direction: None,
            checksum: Checksum::Unknown,
            offload: None,
            notes: Options::empty(),
            is_rejected: false,
        };
        let _goes_on = visit(&packet);
        Ok(Progress::Some)
    }

    fn losses(&mut self) -> Result<Losses, CaptureError> {
        Ok(Losses {
            seen: Some(LOST + 3),
            ring: LOST,
            ..Losses::default()
        })
    }
}

const LOST: u64 = (1 << 32) + 7;

/// After 2^32 packets the account still closes, also in the file.
#[test]
fn counters_of_64_bits_reach_the_file() {
    let path = std::env::temp_dir().join(format!("towline-long-{}.pcapng", std::process::id()));
    let address = format!("pcapng:{}", path.display()).parse().unwrap();
    let sink = sink::open(&address, &SendOptions::default()).unwrap();
    let limits = Limits::default();
    let source: Box<dyn Source> = Box::<LongRunning>::default();
    let mut session = Session::new(vec![source], sink, limits).unwrap();
    session.run(&|| false, &mut |_| {}).unwrap();
    let account = session.account();
    assert_eq!((account.residual(), account.losses.ring), (Some(0), LOST));
    let file = std::fs::read(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let dropped = [[7, 0, 8, 0].as_slice(), &LOST.to_le_bytes()].concat();
    assert!(file.windows(12).any(|bytes| bytes == dropped), "isb_osdrop");
}

/// A disk that is full, or slow, loses what it has no room or time for, and the account knows it.
#[test]
fn a_disk_that_fails_or_is_slow_leaves_an_account_that_closes() {
    isolated(|| {
        let lab = pair();
        let at = std::env::temp_dir().join(format!("towline-disk-{}", std::process::id()));
        std::fs::create_dir(&at).unwrap();
        let disk = lab::Disk::new(&at, 2 << 20, lab::Access::ReadWrite).unwrap();
        let address = format!("pcapng:{}", at.join("full.pcapng").display())
            .parse()
            .unwrap();
        let made = disk.enter(|| sink::open(&address, &SendOptions::default()));
        let sink = made.unwrap().unwrap();
        let options = small_ring(4 << 20);
        let mut sent = 0;
        let captured = capture(lab.host(1), "ring", &options, sink, || {
            sent = send(
                lab.host(0),
                "ring",
                "count=60000",
                ReplayTiming::Packets(60_000),
            );
        });
        std::fs::remove_dir(&at).unwrap();
        let account = captured.account;
        assert_eq!((account.residual(), sent), (Some(0), 60_000), "{account:?}");
        assert!(account.unwritten > 0, "{account:?}");
        assert_eq!(
            account.passed,
            account.delivered + account.unwritten,
            "{account:?}"
        );

        assert_eq!(account.interfaces[0].delivered, account.delivered);
        assert_eq!(account.interfaces[0].unwritten, account.unwritten);
        let by_second = |field: fn(&Second) -> u64| account.seconds.iter().map(field).sum::<u64>();
        assert_eq!(by_second(|second| second.delivered), account.delivered);
        assert_eq!(by_second(|second| second.unwritten), account.unwritten);

        let captured = capture(lab.host(1), "ring", &options, slow_sink(), || {
            sent = send(
                lab.host(0),
                "ring",
                "count=100000",
                ReplayTiming::Packets(50_000),
            );
        });
        assert_closed(&captured, sent);
        assert!(captured.account.losses.ring > 0, "{:?}", captured.account);
    });
}

/// Files that follow each other until the disk is full: what the account says was delivered is in
/// them, to the packet.
#[test]
fn files_that_fill_the_disk_hold_what_was_delivered() {
    isolated(|| {
        let at = std::env::temp_dir().join(format!("towline-rotated-{}", std::process::id()));
        std::fs::create_dir(&at).unwrap();
        // Little more than two files: the disk is full in the middle of one, when one ends (the
        // buffer is written out then), or when the next begins.
        for kib in [300, 316, 332, 348, 364, 380] {
            let disk = lab::Disk::new(&at, kib << 10, lab::Access::ReadWrite).unwrap();
            let address = format!("pcapng:{}", at.join("x.pcapng").display());
            let (account, found) = disk.enter(|| fill(&address.parse().unwrap(), &at)).unwrap();
            assert!(account.unwritten > 0, "{kib} KiB: {account:?}");
            assert_eq!(account.sink_residual(), 0, "{kib} KiB: {account:?}");
            assert_eq!(account.delivered, found, "{kib} KiB: {account:?}");
            assert_eq!(account.interfaces[0].delivered, found);
        }
        std::fs::remove_dir(&at).unwrap();
    });
}

/// Generates into files of 150 kB until it fails; gives the account and the packets in the files.
fn fill(address: &SinkAddress, at: &std::path::Path) -> (Account, u64) {
    let source = "gen:size=100".parse().unwrap();
    let source = source::open(&source, &LiveOptions::default()).unwrap();
    let rotation = Rotation {
        bytes: Some(150_000),
        ..Rotation::default()
    };
    let sink = Box::new(RotatingSink::open(address, rotation).unwrap());
    let mut session = Session::new(vec![source], sink, Limits::default()).unwrap();
    let ended = session.run(&|| false, &mut |_| {}).unwrap();
    let failure = session.take_failure().unwrap().to_string();
    assert_eq!(ended, Ended::Sink, "{failure}");
    assert!(failure.contains("No space left"), "{failure}");
    let mut found = 0;
    for file in std::fs::read_dir(at).unwrap() {
        let Ok(mut source) = FileSource::open(&file.unwrap().path()) else {
            // One that has no room for its beginning has no packet either.
            continue;
        };
        let mut count = |_: &Packet<'_>| {
            found += 1;
            std::ops::ControlFlow::Continue(())
        };
        while source.read(&mut count).unwrap() != Progress::End {}
    }
    (session.account().clone(), found)
}

/// A file whose disk takes a mebibyte in a second.
fn slow_sink() -> Box<dyn Sink> {
    struct Slow;
    impl std::io::Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let len = bytes.len().min(64 << 10);
            thread::sleep(Duration::from_secs_f64(len as f64 / f64::from(1 << 20)));
            Ok(len)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let output = Output::to_writer(std::path::Path::new("slow"), Box::new(Slow));
    Box::new(PcapngSink::new(output))
}
