//! `xdp:`, which takes frames away from the host: the account closes as that of any other source,
//! each frame is the one that was sent, and nothing stays behind.

use std::{
    net::UdpSocket,
    ops::ControlFlow,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use lab::{Host, Lab, LabSpec, isolated};
use sys::netlink::{Ethtool, Rtnetlink};
use towline_capture::{
    Account, CaptureError, Direction, Edits, Interface, Limits, LiveOptions, Packet, ReplayTiming,
    SendOptions, Session, Sink, TagEdit, drop_capabilities,
    sink::{self, NullSink},
    source,
};

use crate::{Captured, OTHERS_MAX, assert_closed, capture, pair, send, send_edited, small_ring};

/// Runs `body` in a lab whose hosts may take frames; says why when they may not.
#[expect(clippy::print_stdout, reason = "the reason for a skip")]
fn taking(spec: &LabSpec, body: impl FnOnce(&Lab)) {
    let lab = Lab::new(spec).unwrap();
    let opened = lab.host(1).enter(|| open("xdp:e0").map(drop));
    match opened.unwrap() {
        Err(error @ (CaptureError::NotPermittedXdp { .. } | CaptureError::Refused { .. })) => {
            println!("skipped: {error}");
        }
        opened => {
            opened.unwrap();
            body(&lab);
        }
    }
}

fn cable() -> LabSpec {
    LabSpec::new(2).direct()
}

fn open(address: &str) -> Result<Box<dyn source::Source>, CaptureError> {
    source::open(&address.parse()?, &LiveOptions::default())
}

/// What came, with stamps.
#[derive(Clone, Debug, Default)]
struct Collector(Arc<Mutex<Vec<Collected>>>);

#[derive(Clone, Debug)]
struct Collected {
    data: Vec<u8>,
    wire_len: u32,
    stamp_ns: u64,
    direction: Option<Direction>,
}

impl Sink for Collector {
    fn interface(&mut self, _: &Interface) -> Result<(), CaptureError> {
        Ok(())
    }

    fn write(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError> {
        self.0.lock().unwrap().push(Collected {
            data: packet.data.to_vec(),
            wire_len: packet.wire_len,
            stamp_ns: packet.stamp_ns,
            direction: packet.direction,
        });
        Ok(())
    }

    fn note(&mut self, _: &Account, _: u64) -> Result<(), CaptureError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        Ok(())
    }
}

/// The frames of `spec`, as they are made.
fn made(spec: &str) -> Vec<Vec<u8>> {
    let mut source = open(&format!("gen:{spec}")).unwrap();
    let mut frames = Vec::new();
    let mut take = |packet: &Packet<'_>| {
        frames.push(packet.data.to_vec());
        ControlFlow::Continue(())
    };
    while source.read(&mut take).unwrap() != source::Progress::End {}
    frames
}

/// All of `frames` are among the collected, in order, and next to nothing else.
fn assert_same(collected: &[Collected], frames: &[Vec<u8>]) {
    let mut rest = collected.iter();
    for (number, frame) in frames.iter().enumerate() {
        let found = rest.by_ref().any(|one| &one.data == frame);
        assert!(found, "frame {number} of {} bytes", frame.len());
    }
    assert!(collected.len() - frames.len() <= OTHERS_MAX as usize);
}

#[test]
fn frames_come_as_they_were_sent_in_order_and_stamped() {
    isolated(|| {
        taking(&cable(), |lab| {
            let spec = "size=60-1514,count=3000,flows=4";
            let collector = Collector::default();
            let options = LiveOptions::default();
            let begun = sys::clock::wall_nanos();
            let mut sent = 0;
            let sink = Box::new(collector.clone());
            let captured = capture(lab.host(1), "xdp", &options, sink, || {
                sent = send(lab.host(0), "ring", spec, ReplayTiming::Packets(10_000));
            });
            let ended = sys::clock::wall_nanos();
            assert_eq!((sent, captured.sequence.frames), (3000, 3000));
            assert_closed(&captured, sent);
            assert_eq!(captured.account.losses.ring, 0);
            let collected = collector.0.lock().unwrap();
            assert_same(&collected, &made(spec));
            assert!(collected.iter().all(|one| one.direction.is_some()));
            let stamps: Vec<u64> = collected.iter().map(|one| one.stamp_ns).collect();
            // The two clocks are compared once a second, to some ten nanoseconds.
            let close = |pair: &[u64]| pair[0] < pair[1] + 1_000_000;
            assert!(stamps.windows(2).all(close));
            assert!(stamps.iter().all(|at| (begun..ended).contains(at)));
            // Stamped as they came, not as they were read.
            let different = stamps.windows(2).filter(|pair| pair[0] != pair[1]);
            assert!(different.count() > 2900);
        });
    });
}

#[test]
fn large_frames_are_put_together_and_long_ones_cut() {
    isolated(|| {
        taking(&cable().mtu(9000), |lab| {
            let spec = "size=60-9014,count=2000";
            let collector = Collector::default();
            let sink = Box::new(collector.clone());
            let options = LiveOptions::default();
            let mut sent = 0;
            let captured = capture(lab.host(1), "xdp", &options, sink, || {
                sent = send(lab.host(0), "ring", spec, ReplayTiming::Packets(10_000));
            });
            assert_closed(&captured, sent);
            assert_same(&collector.0.lock().unwrap(), &made(spec));

            let collector = Collector::default();
            let sink = Box::new(collector.clone());
            let options = LiveOptions {
                snap_len: 100,
                ..options
            };
            let captured = capture(lab.host(1), "xdp", &options, sink, || {
                sent = send(lab.host(0), "ring", spec, ReplayTiming::Packets(10_000));
            });
            assert_eq!(captured.account.residual(), Some(0));
            let collected = collector.0.lock().unwrap();
            let lens = || collected.iter().map(|one| one.wire_len);
            assert!(collected.iter().all(|one| one.data.len() <= 100));
            assert_eq!(
                captured.account.cut,
                lens().filter(|len| *len > 100).count() as u64
            );
            assert!(lens().max() > Some(8900));
        });
    });
}

#[test]
fn tags_are_where_they_were() {
    isolated(|| {
        taking(&cable(), |lab| {
            let collector = Collector::default();
            let sink = Box::new(collector.clone());
            let options = LiveOptions::default();
            capture(lab.host(1), "xdp", &options, sink, || {
                let edits = Edits {
                    tag: TagEdit::Set(5),
                    ..Edits::default()
                };
                send_edited(lab.host(0), "count=100,size=200", edits);
            });
            let collected = collector.0.lock().unwrap();
            let tagged = |one: &&Collected| one.data[12..16] == [0x81, 0, 0, 5];
            assert_eq!(collected.iter().filter(tagged).count(), 100);
        });
    });
}

/// What a sender says has left, and what its interface dropped after all: a full queue of the cable
/// is the sender's loss.
fn send_all(host: &Host, spec: &str) -> u64 {
    let address = format!("ring:{}", host.interface()).parse().unwrap();
    let sent = host.enter(|| {
        let source = open(&format!("gen:{spec}")).unwrap();
        let sink = sink::open(&address, &SendOptions::default()).unwrap();
        let mut session = Session::new(vec![source], sink, Limits::default()).unwrap();
        session.run(&|| false, &mut |_| {}).unwrap();
        session.account().delivered - session.dropped_later()
    });
    sent.unwrap()
}

#[test]
fn what_a_small_ring_loses_is_counted_to_the_frame() {
    isolated(|| {
        taking(&cable(), |lab| {
            for bytes in [16 << 10, 1 << 20] {
                let options = small_ring(bytes);
                let mut sent = 0;
                let captured = capture(lab.host(1), "xdp", &options, Box::new(NullSink), || {
                    sent = send_all(lab.host(0), "size=60-1514,count=100000");
                });
                assert_closed(&captured, sent);
                let Captured { account, sequence } = captured;
                // What is missing is what the sockets say, to the frame.
                let others = account.received - sequence.frames;
                assert_eq!(account.losses.interface, 0, "{account:?}");
                assert_eq!(
                    sequence.frames + account.losses.ring + others,
                    account.losses.seen.unwrap()
                );
                let named = |name: &str| {
                    let mut named = account.named_losses.iter();
                    named
                        .find(|(found, _)| found == name)
                        .map_or(0, |(_, count)| *count)
                };
                assert_eq!(
                    named("e0 socket rx_dropped") + named("e0 socket rx_ring_full"),
                    account.losses.ring
                );
            }
        });
    });
}

/// A reader that stands still loses what the ring cannot hold; what it then reads has the time at
/// which it came.
#[test]
fn frames_that_waited_have_the_time_at_which_they_came() {
    #[derive(Debug)]
    struct Slow(Collector);
    impl Sink for Slow {
        fn interface(&mut self, _: &Interface) -> Result<(), CaptureError> {
            Ok(())
        }
        fn write(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError> {
            if self.0.0.lock().unwrap().len() == 10 {
                thread::sleep(Duration::from_millis(1500));
            }
            self.0.write(packet)
        }
        fn note(&mut self, _: &Account, _: u64) -> Result<(), CaptureError> {
            Ok(())
        }
        fn flush(&mut self) -> Result<(), CaptureError> {
            Ok(())
        }
    }
    isolated(|| {
        taking(&cable(), |lab| {
            let collector = Collector::default();
            let options = small_ring(256 << 10);
            let mut sent = 0;
            let sink = Box::new(Slow(collector.clone()));
            let captured = capture(lab.host(1), "xdp", &options, sink, || {
                sent = send(
                    lab.host(0),
                    "ring",
                    "count=2000",
                    ReplayTiming::Packets(2000),
                );
            });
            assert_closed(&captured, sent);
            let account = captured.account;
            assert!(account.losses.ring > 100, "{account:?}");
            assert!(account.losses.freezes > 0, "{account:?}");
            let collected = collector.0.lock().unwrap();
            // Number 100 waited with the others, and was there long before it was read.
            let waited = collected[100].stamp_ns - collected[5].stamp_ns;
            assert!(waited < 1_200_000_000, "{waited}");
        });
    });
}

#[test]
fn the_host_receives_nothing_meanwhile_and_everything_afterwards() {
    isolated(|| {
        taking(&cable(), |lab| {
            let listener = lab
                .host(1)
                .enter(|| UdpSocket::bind("0.0.0.0:7777").unwrap());
            let listener = listener.unwrap();
            let wait = Some(Duration::from_millis(300));
            listener.set_read_timeout(wait).unwrap();
            let speak = || {
                let spoken = lab.host(0).enter(|| {
                    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                    socket.send_to(b"heard?", ("10.77.0.2", 7777)).unwrap();
                });
                spoken.unwrap();
                listener.recv(&mut [0; 16]).is_ok()
            };
            assert!(speak(), "neighbours know each other");
            let options = LiveOptions::default();
            let mut heard = true;
            let captured = capture(lab.host(1), "xdp", &options, Box::new(NullSink), || {
                assert!(program(lab.host(1)).is_some());
                heard = speak();
                // The interface has one program, and another capture says so.
                let error = lab.host(1).enter(|| open("xdp:e0").map(drop).unwrap_err());
                let error = error.unwrap().to_string();
                assert!(
                    error.contains("attach the XDP program to e0")
                        && error.contains("another XDP program"),
                    "{error}"
                );
            });
            assert!(!heard && captured.account.passed >= 1, "{captured:?}");
            assert_eq!(program(lab.host(1)), None, "the program is gone");
            assert!(speak());
        });
    });
}

/// The number of the program on a host's interface.
fn program(host: &Host) -> Option<u32> {
    let link = host.enter(|| Rtnetlink::open().unwrap().link("e0").unwrap());
    link.unwrap().program
}

#[test]
fn every_queue_has_its_socket() {
    isolated(|| {
        taking(&cable(), |lab| {
            for host in lab.hosts() {
                let set = host.enter(|| {
                    let index = Rtnetlink::open().unwrap().link_index("e0").unwrap();
                    Ethtool::open().unwrap().set_queues(index, 2)
                });
                if let Err(error) = set.unwrap() {
                    println!("skipped: {error}");
                    return;
                }
            }
            let cpus = sys::scheduler::cpus().unwrap();
            let [Some(even), Some(odd)] = [0, 1].map(|rest| {
                let mut cpus = cpus.iter().copied();
                cpus.find(|cpu| cpu % 2 == rest)
            }) else {
                println!("skipped: one processor only fills one queue");
                return;
            };
            // Whatever a processor sends goes to the queue of its number.
            let send_from = |cpu| {
                let sender = || {
                    sys::scheduler::set_cpu(cpu).unwrap();
                    let spec = "size=60-1514,count=5000";
                    send(lab.host(0), "ring", spec, ReplayTiming::Packets(20_000))
                };
                thread::scope(|scope| scope.spawn(sender).join().unwrap())
            };
            let options = LiveOptions::default();
            let mut sent = 0;
            let captured = capture(lab.host(1), "xdp", &options, Box::new(NullSink), || {
                sent = send_from(even) + send_from(odd);
            });
            let Captured { account, sequence } = captured;
            assert_eq!(account.residual(), Some(0), "{account:?}");
            // The second has the numbers of the first.
            let frames = sequence.frames + sequence.duplicates + account.losses.ring;
            assert_eq!((sent, frames >= sent), (10_000, true), "{account:?}");
            let by_queue = lab.host(1).enter(|| {
                let driver = sys::DriverCounters::open("e0").unwrap();
                let counts = driver.read().unwrap();
                let at = |name| driver.names().iter().position(|one| one == name).unwrap();
                ["rx_queue_0_xdp_packets", "rx_queue_1_xdp_packets"].map(|name| counts[at(name)])
            });
            let by_queue = by_queue.unwrap();
            assert!(by_queue.iter().all(|count| *count >= 5000), "{by_queue:?}");
            let described = lab.host(1).enter(|| {
                let source = open("xdp:e0").unwrap();
                source.interfaces()[0].description.clone()
            });
            assert!(described.unwrap().contains("2 queues"));
        });
    });
}

#[test]
fn an_interface_may_go_down_and_come_back() {
    isolated(|| {
        taking(&cable(), |lab| {
            let mut sent = 0;
            let options = small_ring(1 << 20);
            let captured = capture(lab.host(1), "xdp", &options, Box::new(NullSink), || {
                sent += send(
                    lab.host(0),
                    "int",
                    "count=100",
                    ReplayTiming::Packets(10_000),
                );
                lab.set_interface_up(1, false).unwrap();
                lab.set_interface_up(1, true).unwrap();
                sent += send(
                    lab.host(0),
                    "int",
                    "count=100",
                    ReplayTiming::Packets(10_000),
                );
            });
            assert_eq!(captured.account.residual(), Some(0));
            let seen = captured.sequence.frames + captured.sequence.duplicates;
            assert_eq!((seen, sent), (200, 200));
        });
    });
}

/// Loopback's driver takes no program: it runs behind it, with a remark, and frames longer than a
/// page come in one piece.
#[test]
fn a_driver_without_programs_is_gone_around() {
    isolated(|| {
        taking(&cable(), |lab| {
            let entered = lab.host(0).enter(|| {
                let collector = Collector::default();
                let limits = Limits {
                    packets: Some(1),
                    duration: Some(Duration::from_secs(5)),
                    ..Limits::default()
                };
                let sources = vec![open("xdp:lo").unwrap()];
                let sink = Box::new(collector.clone());
                let mut session = Session::new(sources, sink, limits).unwrap();
                let remarks = session.take_remarks().join("; ");
                assert!(
                    remarks.contains("lo: its driver cannot run an XDP program"),
                    "{remarks}"
                );
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                let payload = vec![7; 20_000];
                socket
                    .send_to(&payload, socket.local_addr().unwrap())
                    .unwrap();
                session.run(&|| false, &mut |_| {}).unwrap();
                assert_eq!(session.account().residual(), Some(0));
                let collected = collector.0.lock().unwrap();
                assert_eq!(collected[0].data.len(), 20_042);
                assert!(collected[0].data.ends_with(&payload));
            });
            entered.unwrap();
        });
    });
}

#[test]
fn who_may_not_take_frames_is_told_what_is_missing() {
    isolated(|| {
        let lab = pair();
        let told = lab.host(1).enter(|| {
            drop_capabilities().unwrap();
            open("xdp:e0").map(drop).unwrap_err().to_string()
        });
        let told = told.unwrap();
        assert!(
            told.starts_with("not permitted to load the XDP program for e0: CAP_NET_ADMIN"),
            "{told}"
        );
        assert!(told.contains("ring:"), "{told}");
        let missing = lab.host(1).enter(|| open("xdp:e9").map(drop).unwrap_err());
        assert!(
            missing
                .unwrap()
                .to_string()
                .contains("this host has lo, e0")
        );
    });
}
