//! The MTU of paths in the lab, exact to the byte, by a reflector's answers and without one.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(clippy::print_stdout, reason = "a test says why it is skipped")]

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use lab::{Lab, LabSpec, isolated};
use sys::{
    namespace::run_in,
    netlink::Rtnetlink,
    packet::{PacketSocket, Packets},
};
use towline_gauge::{
    mtu::{Claim, Confirmation, MtuVerdict, PathMtuReport, group_mtu, path_mtu},
    rtt::{Engine, PORT, ReflectSpec, Reflector, Wait},
};

mod middle;

use middle::{Middle, RIGHT_ROUTED, did};

const TIMEOUT: Duration = Duration::from_secs(3);
/// A port where nobody listens.
const FREE_PORT: u16 = 33_434;

fn never() -> bool {
    false
}

fn probed(lab: &Lab, peer: SocketAddr) -> PathMtuReport {
    let found = lab.host(0).enter(|| path_mtu(peer, TIMEOUT, &never));
    found.unwrap().unwrap()
}

#[test]
fn every_size_of_path_is_found_with_and_without_a_reflector() {
    isolated(|| {
        for mtu in [1_280, 1_400, 1_500, 9_000] {
            let lab = Lab::new(&LabSpec::new(2).mtu(mtu)).unwrap();
            let (engine, wait) = (Engine::Recv, Wait::Block);
            let listen = (Ipv4Addr::UNSPECIFIED, PORT).into();
            let spec = ReflectSpec {
                listen,
                engine,
                wait,
            };
            let opened = lab.host(1).enter(|| Reflector::open(spec)).unwrap();
            let mut reflector = opened.unwrap();
            let stop = AtomicBool::new(false);
            let there = lab.host(1).ipv4();
            let (reflected, refused) = thread::scope(|scope| {
                scope.spawn(|| reflector.run(&|| stop.load(Ordering::Relaxed)).unwrap());
                let reflected = probed(&lab, (there, PORT).into());
                let refused = probed(&lab, (there, FREE_PORT).into());
                stop.store(true, Ordering::Relaxed);
                (reflected, refused)
            });
            for (found, confirmation) in [
                (reflected, Confirmation::Reflector),
                (refused, Confirmation::PortUnreachable),
            ] {
                assert_eq!(
                    (found.path_mtu_bytes, found.interface_mtu_bytes),
                    (mtu, mtu),
                    "{found:?}"
                );
                assert_eq!(found.confirmation, confirmation);
                let is_reflected = confirmation == Confirmation::Reflector;
                assert_eq!(found.path_mtu_back_bytes, is_reflected.then_some(mtu));
                assert_eq!(found.verdict, MtuVerdict::Clear);
                assert_eq!(found.udp_payload_bytes_max, mtu - 28);
                assert_eq!(found.pgm_payload_bytes_max, mtu - 52);
            }
        }
    });
}

#[test]
fn answers_in_fragments_prove_nothing_of_the_way_back() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).mtu(1_500)).unwrap();
        // Only what the far end sends is bounded: it takes a little more than its own MTU.
        let shrunk = lab.host(1).enter(|| {
            let mut netlink = Rtnetlink::open().unwrap();
            let index = netlink.link_index(lab.host(1).interface()).unwrap();
            netlink.set_mtu(index, 1_400).unwrap();
        });
        shrunk.unwrap();
        let spec = ReflectSpec {
            listen: (lab.host(1).ipv4(), PORT).into(),
            engine: Engine::Recv,
            wait: Wait::Block,
        };
        let opened = lab.host(1).enter(|| Reflector::open(spec)).unwrap();
        let mut reflector = opened.unwrap();
        let stop = AtomicBool::new(false);
        let brief = Duration::from_millis(100);
        let found = thread::scope(|scope| {
            scope.spawn(|| reflector.run(&|| stop.load(Ordering::Relaxed)).unwrap());
            let found = lab.host(0).enter(|| path_mtu(spec.listen, brief, &never));
            stop.store(true, Ordering::Relaxed);
            found.unwrap().unwrap()
        });
        assert_eq!(found.confirmation, Confirmation::Reflector);
        assert!(found.path_mtu_bytes > 1_400, "{found:?}");
        assert_eq!(found.path_mtu_back_bytes, Some(1_400), "{found:?}");
    });
}

#[test]
fn a_host_that_is_silent_is_told() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        // Somebody listens, and never answers.
        let there = SocketAddr::from((lab.host(1).ipv4(), PORT));
        let opened = lab.host(1).enter(|| std::net::UdpSocket::bind(there));
        let _silent = opened.unwrap().unwrap();
        let brief = Duration::from_millis(50);
        let found = lab.host(0).enter(|| path_mtu(there, brief, &never));
        let error = found.unwrap().unwrap_err().to_string();
        assert!(error.contains("does not answer"), "{error}");
    });
}

#[test]
fn routers_that_tell_and_routers_that_drop_silently() {
    isolated(|| {
        let made = Middle::routed(1_500, 1_400);
        let brief = Duration::from_millis(300);
        let there: SocketAddr = format!("{RIGHT_ROUTED}:{PORT}").parse().unwrap();
        // A reflector, as hosts limit how often they say that nobody listens.
        let spec = ReflectSpec {
            listen: there,
            engine: Engine::Recv,
            wait: Wait::Block,
        };
        let mut reflector = run_in(&[&made.right], || Reflector::open(spec).unwrap()).unwrap();
        let stop = AtomicBool::new(false);
        let mut beside = |body: &mut dyn FnMut() -> PathMtuReport| {
            thread::scope(|scope| {
                stop.store(false, Ordering::Relaxed);
                scope.spawn(|| reflector.run(&|| stop.load(Ordering::Relaxed)).unwrap());
                let found = body();
                stop.store(true, Ordering::Relaxed);
                found
            })
        };
        let mut probe = || {
            let found = run_in(&[&made.left], || path_mtu(there, brief, &never)).unwrap();
            found.unwrap()
        };
        let told = beside(&mut probe);
        assert_eq!(
            (told.path_mtu_bytes, told.interface_mtu_bytes),
            (1_400, 1_500),
            "{told:?}"
        );
        assert_eq!(told.verdict, MtuVerdict::Told);
        assert_eq!(told.claims[0].mtu_bytes, 1_400);
        // The router goes on dropping, and its word about it is dropped, too.
        let rules = [
            "add table ip mute",
            "add chain ip mute out { type filter hook output priority 0 ; }",
            "add rule ip mute out icmp type destination-unreachable drop",
        ];
        if rules.iter().all(|rule| did(&made.middle, "nft", rule)) {
            let silent = beside(&mut probe);
            assert_eq!(silent.path_mtu_bytes, 1_400, "{silent:?}");
            assert_eq!(silent.verdict, MtuVerdict::BlackHole);
            assert!(silent.claims.is_empty());
        }
    });
}

/// Answers, from the router's left interface, every packet larger than `mtu` with the word that it
/// was too big, until told to stop. The packet passes all the same.
fn forge(made: &Middle, mtu: u16, ready: &Barrier, stop: &AtomicBool) {
    run_in(&[&made.middle], || {
        let socket = PacketSocket::open().unwrap();
        socket.set_ignore_outgoing(true).unwrap();
        let index = Rtnetlink::open().unwrap().link_index("m1").unwrap();
        socket.bind(index, Packets::All).unwrap();
        let mut room = vec![0; 4_096];
        ready.wait();
        while !stop.load(Ordering::Relaxed) {
            let packet = socket.receive(&mut room).unwrap();
            let Some(frame) = packet.map(|packet| packet.data) else {
                thread::sleep(Duration::from_micros(200));
                continue;
            };
            // IPv4 without options, UDP, and too long for the lie.
            let is_probe = frame.len() > 14 + usize::from(mtu)
                && frame[12..15] == [8, 0, 0x45]
                && frame[23] == 17;
            if is_probe {
                assert!(socket.send(&too_big(frame, mtu)).unwrap());
            }
        }
    })
    .unwrap();
}

/// Destination unreachable, fragmentation needed (RFC 1191), about the packet in `frame`.
fn too_big(frame: &[u8], mtu: u16) -> Vec<u8> {
    let (own, asked) = (&frame[..6], &frame[6..12]);
    let mut icmp = vec![3, 4, 0, 0, 0, 0];
    icmp.extend(mtu.to_be_bytes());
    icmp.extend(&frame[14..14 + 28]);
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum);
    let len = u16::try_from(20 + icmp.len()).unwrap();
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0];
    ip[2..4].copy_from_slice(&len.to_be_bytes());
    // From the packet's destination: what a router of the path would also get through with.
    ip.extend(&frame[30..34]);
    ip.extend(&frame[26..30]);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    [asked, own, &[8, 0], &ip, &icmp].concat()
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes
        .chunks(2)
        .map(|it| u32::from(it[0]) << 8 | u32::from(*it.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    (!((folded & 0xffff) as u16 + (folded >> 16) as u16)).to_be_bytes()
}

#[test]
fn a_forged_claim_is_told_from_a_true_one() {
    isolated(|| {
        for far_mtu in [1_500, 1_400] {
            let made = Middle::routed(1_500, far_mtu);
            let there: SocketAddr = format!("{RIGHT_ROUTED}:{PORT}").parse().unwrap();
            let spec = ReflectSpec {
                listen: there,
                engine: Engine::Recv,
                wait: Wait::Block,
            };
            let opened = run_in(&[&made.right], || Reflector::open(spec));
            let mut reflector = opened.unwrap().unwrap();
            let (ready, stop) = (Barrier::new(2), AtomicBool::new(false));
            let found = thread::scope(|scope| {
                scope.spawn(|| reflector.run(&|| stop.load(Ordering::Relaxed)).unwrap());
                scope.spawn(|| forge(&made, 600, &ready, &stop));
                ready.wait();
                let found = run_in(&[&made.left], || path_mtu(there, TIMEOUT, &never));
                stop.store(true, Ordering::Relaxed);
                found.unwrap().unwrap()
            });
            // Exact, whoever says what; and the liar is named.
            assert_eq!(found.path_mtu_bytes, far_mtu, "{found:?}");
            assert_eq!(found.verdict, MtuVerdict::FalseClaim);
            let refuted = |claim: &&Claim| claim.is_refuted(found.path_mtu_bytes);
            let lies: Vec<u32> = found
                .claims
                .iter()
                .filter(refuted)
                .map(|it| it.mtu_bytes)
                .collect();
            assert_eq!(lies, [600], "{found:?}");
            let is_true = |claim: &Claim| claim.mtu_bytes == far_mtu;
            assert_eq!(
                found.claims.iter().any(is_true),
                far_mtu == 1_400,
                "{found:?}"
            );
        }
    });
}

#[test]
fn ipv6_paths_are_exact() {
    isolated(|| {
        for mtu in [1_280, 1_500, 9_000] {
            let lab = Lab::new(&LabSpec::new(2).mtu(mtu)).unwrap();
            if !lab.host(1).has_ipv6() {
                println!("skipped: the kernel has no IPv6");
                return;
            }
            let found = probed(&lab, (lab.host(1).ipv6(), FREE_PORT).into());
            assert_eq!(
                (found.path_mtu_bytes, found.udp_payload_bytes_max),
                (mtu, mtu - 48)
            );
            assert_eq!(found.confirmation, Confirmation::PortUnreachable);
        }
    });
}

#[test]
fn of_a_group_each_receiver_has_a_path_of_its_own() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3).mtu(1_500)).unwrap();
        // One receiver is behind a smaller link: what is larger does not reach it.
        let smaller = "add rule ip small in udp length > 1372 drop";
        let rules = [
            "add table ip small",
            "add chain ip small in { type filter hook prerouting priority 0 ; }",
            smaller,
        ];
        let has_small = rules
            .iter()
            .all(|rule| did(lab.host(2).namespace(), "nft", rule));
        let group: SocketAddr = "239.192.0.9:7700".parse().unwrap();
        let spec = ReflectSpec {
            listen: group,
            engine: Engine::Recv,
            wait: Wait::Block,
        };
        let stop = AtomicBool::new(false);
        let mut reflectors: Vec<Reflector> = lab.hosts()[1..]
            .iter()
            .map(|host| host.enter(|| Reflector::open(spec)).unwrap().unwrap())
            .collect();
        let found = thread::scope(|scope| {
            for reflector in &mut reflectors {
                scope.spawn(|| reflector.run(&|| stop.load(Ordering::Relaxed)).unwrap());
            }
            let brief = Duration::from_millis(300);
            let found = lab
                .host(0)
                .enter(|| group_mtu(group, None, 1, brief, &never));
            stop.store(true, Ordering::Relaxed);
            found.unwrap().unwrap()
        });
        let small = if has_small { 1_392 } else { 1_500 };
        let expected = [(lab.host(1).ipv4(), 1_500), (lab.host(2).ipv4(), small)];
        assert_eq!(found.receivers, expected.map(|(ip, mtu)| (ip.into(), mtu)));
        assert_eq!(
            (found.path_mtu(), found.interface_mtu_bytes),
            (small, 1_500)
        );
    });
}
