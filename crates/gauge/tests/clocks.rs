//! What two ends' clocks justify: one clock at both, two hosts, and a far end that does not tell.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use lab::{Lab, LabSpec, isolated};
use measure::{Probe, ProbeKind};
use sys::hardware_stamp::{HardwareStamping, abilities};
use towline_gauge::{
    clock::{BetweenSpec, between},
    rtt::{Engine, PORT, ReflectSpec, Reflector, Wait},
};

fn never() -> bool {
    false
}

fn spec(peer: SocketAddr) -> BetweenSpec {
    BetweenSpec {
        peer,
        count: 50,
        gap: Duration::from_millis(1),
        timeout: Duration::from_millis(500),
        seed: 7,
    }
}

fn reflector(listen: SocketAddr) -> Reflector {
    let (engine, wait) = (Engine::Recv, Wait::Block);
    Reflector::open(ReflectSpec {
        listen,
        engine,
        wait,
    })
    .unwrap()
}

#[test]
fn both_ends_of_one_host_read_one_clock() {
    let mut reflector = reflector((Ipv4Addr::LOCALHOST, 0).into());
    let (peer, stop) = (reflector.local().unwrap(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| reflector.run(&|| stop.load(Ordering::Relaxed)).unwrap());
        let found = between(&spec(peer), &never);
        stop.store(true, Ordering::Relaxed);
        let found = found.unwrap();
        assert!(found.is_one_clock && found.exchanges + found.disturbed as usize == 50);
        let one_way = found.one_way.unwrap();
        assert_eq!((one_way.error_ns_max, &found.refusal), (0, &None));
        // Each delay is there, and both together are within what the round trip took.
        let (there, back) = (one_way.there.min_ns, one_way.back.min_ns);
        assert!(there > 0 && back > 0, "{one_way:?}");
        assert!(
            (there + back) as u64 <= found.round_trip_p50_ns,
            "{found:?}"
        );
    });
}

#[test]
fn two_hosts_are_told_apart_and_judged_by_their_daemons() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let peer = SocketAddr::new(IpAddr::V4(lab.host(1).ipv4()), PORT);
        let mut reflector = lab.host(1).enter(|| reflector(peer)).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| reflector.run(&|| stop.load(Ordering::Relaxed)).unwrap());
            let found = lab.host(0).enter(|| between(&spec(peer), &never)).unwrap();
            stop.store(true, Ordering::Relaxed);
            let found = found.unwrap();
            assert!(!found.is_one_clock && found.round_trip_p50_ns > 0);
            // Two names of one kernel: what it says of its clock is the same at both.
            assert_eq!(found.here.is_synchronised, found.there.is_synchronised);
            match (&found.one_way, &found.refusal) {
                (Some(one_way), None) => {
                    assert!(found.here.is_synchronised, "{found:?}");
                    let bound = one_way.error_ns_max;
                    assert!(
                        bound > 0 && one_way.there.p50_ns > bound as i64,
                        "{found:?}"
                    );
                }
                (None, Some(reason)) if found.here.is_synchronised => {
                    assert!(reason.contains("may differ by"), "{reason}");
                }
                (None, Some(reason)) => assert!(reason.contains("either clock"), "{reason}"),
                other => panic!("{other:?}"),
            }
        });
    });
}

#[test]
fn a_reflector_that_does_not_know_the_question_is_named() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(3)))
        .unwrap();
    let peer = socket.local_addr().unwrap();
    let thread = thread::spawn(move || {
        let (mut room, mut questions) = ([0; 2_048], 0);
        while let Ok((len, from)) = socket.recv_from(&mut room) {
            let asked = Probe::answer(&mut room[..len]).unwrap();
            if asked.kind == ProbeKind::Hello {
                socket.send_to(&room[..len], from).unwrap();
                continue;
            }
            questions += 1;
            if questions == 3 {
                break;
            }
        }
        questions
    });
    let mut spec = spec(peer);
    spec.timeout = Duration::from_millis(100);
    let error = between(&spec, &never).unwrap_err().to_string();
    assert!(error.contains("older release"), "{error}");
    // It is not asked fifty times.
    assert_eq!(thread.join().unwrap(), 3);
    spec.peer = "239.192.0.1:7700".parse().unwrap();
    let error = between(&spec, &never).unwrap_err().to_string();
    assert!(error.contains("name one host"), "{error}");
}

#[test]
fn a_virtual_cable_has_no_stamps_of_its_own_and_says_so() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let asked = lab.host(0).enter(|| {
            let refused = HardwareStamping::start("e0").map(|_| ()).unwrap_err();
            (refused.kind(), abilities("e0").unwrap())
        });
        let (kind, can) = asked.unwrap();
        assert_eq!(kind, std::io::ErrorKind::Unsupported);
        assert!(!can.stamps_all_received && can.clock.is_none(), "{can:?}");
    });
}
