//! UdpIo between hosts of the lab: IPv6, a path MTU, cables that come out.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::AsFd as _,
    time::Duration,
};

use base::{Io as _, Outcome, PathId, Run, Segments, Socket};
use lab::{Host, Lab, LabSpec, isolated};
use towline_net::{Encapsulation, Role, SocketOptions, UdpIo, UdpSetup, interface::Interfaces};

/// Opens a session's sockets on a host's interface to the lab.
fn open(
    host: &Host,
    role: Role,
    destination: &str,
    local: IpAddr,
    options: SocketOptions,
) -> UdpIo {
    let destination = destination.parse().unwrap();
    host.enter(|| {
        let interfaces = Interfaces::read().unwrap();
        let e0 = interfaces
            .list()
            .iter()
            .find(|one| one.name == "e0")
            .unwrap();
        UdpIo::open(UdpSetup::new(role, destination, e0.index, local).options(options)).unwrap()
    })
    .unwrap()
}

fn send(io: &mut UdpIo, memory: &[u8], segment: usize, to: SocketAddr) -> Outcome {
    let whole = 0..memory.len();
    io.send(&Run {
        path: PathId(0),
        to,
        hops: None,
        segment,
        memory,
        ranges: std::slice::from_ref(&whole),
    })
}

/// Datagrams until `count` came or nothing has come for `patience`: their bytes, joined, and the
/// last one's source.
fn collect(
    io: &mut UdpIo,
    count: usize,
    patience: Duration,
) -> (Vec<u8>, usize, Option<SocketAddr>) {
    let mut batch = io.batch();
    let (mut bytes, mut seen, mut source) = (Vec::new(), 0, None);
    let mut give_up = io.now() + patience;
    while seen < count && io.now() < give_up {
        batch.clear();
        if io.recv(&mut batch).unwrap() == 0 {
            io.wait(Some(give_up));
            continue;
        }
        give_up = io.now() + patience;
        for (datagram, buffer) in batch.datagrams() {
            seen += Segments::new(buffer, datagram.segment).count();
            bytes.extend_from_slice(buffer);
            source = Some(datagram.arrival.source);
        }
    }
    (bytes, seen, source)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect()
}

const SECOND: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(50);

#[test]
fn a_run_and_its_nak_cross_the_lab_by_either_family() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let mut families = vec![(
            "239.192.0.1:7500",
            lab.hosts()
                .iter()
                .map(|h| h.ipv4().into())
                .collect::<Vec<IpAddr>>(),
        )];
        if lab.host(0).has_ipv6() {
            for group in ["[ff15::1]:7500", "[ff12::1]:7500"] {
                families.push((group, lab.hosts().iter().map(|h| h.ipv6().into()).collect()));
            }
        } else {
            println!("skipped: this machine has no IPv6");
        }
        for (group, locals) in families {
            let at = |index: usize, role| {
                let options = SocketOptions::default();
                open(lab.host(index), role, group, locals[index], options)
            };
            let mut source = at(0, Role::Source);
            let mut receivers = [at(1, Role::Receiver), at(2, Role::Receiver)];
            let memory = pattern(40 * 1400);
            let to = group.parse().unwrap();
            assert_eq!(
                send(&mut source, &memory, 1400, to),
                Outcome::Sent { datagrams: 40 }
            );
            for receiver in &mut receivers {
                let (bytes, seen, from) = collect(receiver, 40, SECOND);
                assert_eq!(seen, 40, "{group}");
                assert!(bytes == memory, "{group}");
                assert_eq!(from, Some(source.upstream_address()));
                send(receiver, b"nak", 3, from.unwrap());
            }
            let (naks, seen, _) = collect(&mut source, 2, SECOND);
            assert_eq!((naks.as_slice(), seen), (&b"naknak"[..], 2), "{group}");
        }
    });
}

#[test]
fn link_local_addresses_carry_their_interface() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        if !lab.host(0).has_ipv6() {
            println!("skipped: this machine has no IPv6");
            return;
        }
        let link_local = |host: &Host| {
            let interfaces = host.enter(|| Interfaces::read().unwrap()).unwrap();
            let e0 = interfaces
                .list()
                .iter()
                .find(|one| one.name == "e0")
                .unwrap();
            let is_link_local =
                |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
            e0.addresses
                .iter()
                .map(|one| one.ip)
                .find(is_link_local)
                .unwrap()
        };
        let (here, there) = (link_local(lab.host(0)), link_local(lab.host(1)));
        let options = SocketOptions::default();
        let group = "[ff12::5]:7500";
        let mut source = open(lab.host(0), Role::Source, group, here, options.clone());
        let mut receiver = open(lab.host(1), Role::Receiver, group, there, options);
        send(&mut source, b"data", 4, group.parse().unwrap());
        let (_, seen, from) = collect(&mut receiver, 1, SECOND);
        assert_eq!((seen, from.map(|from| from.ip())), (1, Some(here)));
        // As from a path NLA, which has no zone: the interface is filled in.
        send(&mut receiver, b"nak", 3, SocketAddr::new(here, 7500));
        let mut batch = source.batch();
        let until = source.now() + SECOND;
        source.wait(Some(until));
        assert_eq!(source.recv(&mut batch).unwrap(), 1);
        let (datagram, bytes) = batch.datagrams().next().unwrap();
        assert_eq!(
            (bytes, datagram.arrival.socket),
            (&b"nak"[..], Socket::Upstream)
        );

        let any_port = SocketAddr::new(here, 0);
        let control = lab.host(0).enter(|| source.listen(any_port)).unwrap();
        let control = SocketAddr::new(here, control.unwrap().port());
        let link = lab.host(1).enter(|| receiver.link_open(control)).unwrap();
        receiver.link_send(link, b"hello");
        let mut data = Vec::new();
        let deadline = source.now() + SECOND;
        while data != b"hello" && source.now() < deadline {
            receiver.link_event(&mut Vec::new());
            source.link_event(&mut data);
        }
        assert_eq!(data, b"hello");
    });
}

#[test]
fn datagrams_longer_than_the_mtu_leave_in_fragments() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).mtu(1400)).unwrap();
        let at = |index: usize, role, gso| {
            let host = lab.host(index);
            let options = SocketOptions::default().gso(gso);
            open(host, role, "239.192.0.1:7500", host.ipv4().into(), options)
        };
        for gso in [true, false] {
            let mut source = at(0, Role::Source, gso);
            let mut receiver = at(1, Role::Receiver, true);
            let to = source.setup().destination;
            let memory = pattern(5 * 1500);
            assert_eq!(
                send(&mut source, &memory, 1500, to),
                Outcome::Sent { datagrams: 5 }
            );
            assert_eq!(source.counters().fragmented_datagrams, 5);
            assert_eq!(source.counters().gso_fallbacks, 0);
            let warning = source.take_warning().unwrap();
            assert!(
                warning.contains("1500 bytes") && warning.contains("MTU"),
                "{warning}"
            );
            let (bytes, seen, _) = collect(&mut receiver, 5, SECOND);
            assert_eq!(seen, 5);
            assert!(bytes == memory);
            // What fits goes as before.
            let before = source.counters().gso_runs;
            let memory = pattern(5 * 1300);
            send(&mut source, &memory, 1300, to);
            assert_eq!(source.counters().gso_runs - before, u64::from(gso));
            assert_eq!(collect(&mut receiver, 5, SECOND).1, 5);
        }
    });
}

#[test]
fn without_loop_receivers_on_the_senders_host_get_nothing() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        for multicast_loop in [true, false] {
            let at = |index: usize, role| {
                let host = lab.host(index);
                let options = SocketOptions::default().multicast_loop(multicast_loop);
                open(host, role, "239.192.0.1:7500", host.ipv4().into(), options)
            };
            let mut source = at(0, Role::Source);
            let (mut near, mut far) = (at(0, Role::Receiver), at(1, Role::Receiver));
            let memory = pattern(40 * 1400);
            let to = source.setup().destination;
            send(&mut source, &memory, 1400, to);
            assert_eq!(collect(&mut far, 40, SECOND).1, 40);
            let expected = if multicast_loop { 40 } else { 0 };
            assert_eq!(collect(&mut near, 40, MOMENT).1, expected);
            assert_eq!(
                collect(&mut source, 1, MOMENT).1,
                0,
                "its own data came back"
            );
        }
    });
}

#[test]
fn hops_of_a_run_override_those_of_the_session() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let at = |index: usize, role| {
            let host = lab.host(index);
            let options = SocketOptions::default().hops(0);
            open(host, role, "239.192.0.1:7500", host.ipv4().into(), options)
        };
        let (mut source, mut receiver) = (at(0, Role::Source), at(1, Role::Receiver));
        // A hop limit of 0 keeps a packet on its host, the only limit that shows on one link; but
        // only when the host has a member.
        let _member = at(0, Role::Receiver);
        let to = source.setup().destination;
        let memory = pattern(2000);
        for (hops, expected) in [(None, 0), (Some(1), 2), (None, 0)] {
            let whole = 0..memory.len();
            let outcome = source.send(&Run {
                path: PathId(0),
                to,
                hops,
                segment: 1000,
                memory: &memory,
                ranges: std::slice::from_ref(&whole),
            });
            assert_eq!(outcome, Outcome::Sent { datagrams: 2 }, "{hops:?}");
            assert_eq!(collect(&mut receiver, 2, MOMENT).1, expected, "{hops:?}");
        }
    });
}

#[test]
fn a_session_survives_its_cable() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let at = |index: usize, role| {
            let host = lab.host(index);
            let options = SocketOptions::default();
            open(host, role, "239.192.0.1:7500", host.ipv4().into(), options)
        };
        let (mut source, mut receiver) = (at(0, Role::Source), at(1, Role::Receiver));
        let to = source.setup().destination;
        send(&mut source, b"1", 1, to);
        assert_eq!(collect(&mut receiver, 1, SECOND).1, 1);

        lab.unplug(0).unwrap();
        send(&mut source, b"2", 1, to);
        assert_eq!(collect(&mut receiver, 1, MOMENT).1, 0);
        lab.plug(0).unwrap();
        let deadline = source.now() + 5 * SECOND;
        let mut seen = 0;
        while seen == 0 && source.now() < deadline {
            send(&mut source, b"3", 1, to);
            seen = collect(&mut receiver, 1, MOMENT).1;
        }
        assert!(seen > 0, "{:?}", source.counters());

        lab.set_interface_up(0, false).unwrap();
        let outcome = send(&mut source, b"4", 1, to);
        assert!(
            matches!(outcome, Outcome::Failed | Outcome::Sent { .. }),
            "{outcome:?}"
        );
        lab.set_interface_up(0, true).unwrap();
        let deadline = source.now() + 5 * SECOND;
        let mut seen = 0;
        while seen == 0 && source.now() < deadline {
            send(&mut source, b"5", 1, to);
            seen = collect(&mut receiver, 1, MOMENT).1;
        }
        assert!(seen > 0, "{:?}", source.counters());
    });
}

#[test]
fn a_slow_interface_holds_the_sender_back_instead_of_losing() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        // First a queue that holds less than the socket's buffer, then one that holds more.
        for limit in ["300kb", "10mb"] {
            let slow = [
                "qdisc", "replace", "dev", "e0", "root", "tbf", "rate", "200mbit",
            ];
            let mut tc = lab.host(0).command("tc");
            tc.args(slow).args(["burst", "70kb", "limit", limit]);
            if !tc.output().is_ok_and(|output| output.status.success()) {
                println!("skipped: this machine cannot slow an interface down with tc");
                return;
            }
            let at = |index: usize, role| {
                let host = lab.host(index);
                let options = SocketOptions::default();
                open(host, role, "239.192.0.1:7500", host.ipv4().into(), options)
            };
            let (mut source, mut receiver) = (at(0, Role::Source), at(1, Role::Receiver));
            let to = source.setup().destination;
            let memory = pattern(40 * 1400);
            let (mut sent, mut seen) = (0, 0);
            let mut batch = receiver.batch();
            while sent < 150 {
                source.recv(&mut batch).unwrap();
                match send(&mut source, &memory, 1400, to) {
                    Outcome::Blocked => {
                        let until = source.now() + SECOND;
                        source.wait(Some(until));
                    }
                    outcome => {
                        assert_eq!(outcome, Outcome::Sent { datagrams: 40 });
                        sent += 1;
                    }
                }
                seen += collect(&mut receiver, 40, Duration::ZERO).1;
            }
            seen += collect(&mut receiver, 150 * 40 - seen, SECOND).1;
            assert_eq!(seen, 150 * 40, "{limit}: {:?}", source.counters());
            assert!(source.counters().blocked > 0, "{limit}");
        }
    });
}

/// A packet of PGM with nothing in it but its type and a number.
fn packet(kind: u8, number: u8) -> [u8; 24] {
    let mut packet = [number; 24];
    packet[4] = kind;
    packet
}

#[test]
fn raw_packets_come_whole_and_those_for_elements_bear_an_alert() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let raw = SocketOptions::default().encapsulation(Encapsulation::Raw);
        let mut families = vec![("239.192.0.9:7500", lab.host(0).ipv4().into(), 4)];
        if lab.host(0).has_ipv6() {
            families.push(("[ff15::9]:7500", lab.host(0).ipv6().into(), 0));
        }
        for (group, local, alert_bytes) in families {
            let far = match local {
                IpAddr::V4(_) => lab.host(1).ipv4().into(),
                IpAddr::V6(_) => lab.host(1).ipv6().into(),
            };
            let mut source = open(lab.host(0), Role::Source, group, local, raw.clone());
            let mut receiver = open(lab.host(1), Role::Receiver, group, far, raw.clone());
            let watch = lab.host(1).enter(|| watch(group)).unwrap();
            // SPM, ODATA twice, RDATA twice, ODATA, NCF, POLL, in one run.
            let kinds = [0, 4, 4, 5, 5, 4, 10, 1];
            let packets = kinds.map(|kind| packet(kind, 7)).concat();
            let group: SocketAddr = group.parse().unwrap();
            let outcome = send(&mut source, &packets, 24, group);
            assert_eq!(outcome, Outcome::Sent { datagrams: 8 });
            let (bytes, seen, from) = collect(&mut receiver, 8, SECOND);
            assert_eq!((bytes, seen), (packets, 8));
            assert_eq!(from.map(|from| from.ip()), Some(local));
            for kind in kinds {
                let alert = if kind == 4 { 0 } else { alert_bytes };
                assert_eq!(
                    watch.next_head(),
                    HEAD_BYTES[usize::from(local.is_ipv6())] + alert
                );
            }
            // What a receiver sends upstream comes to the source, and not back to the receiver.
            let nak = packet(8, 9);
            for to in [SocketAddr::new(local, 7500), SocketAddr::new(far, 7500)] {
                let outcome = send(&mut receiver, &nak, 24, to);
                assert_eq!(outcome, Outcome::Sent { datagrams: 1 });
            }
            assert_eq!(collect(&mut source, 1, SECOND).0, nak);
            assert_eq!(collect(&mut receiver, 1, MOMENT).1, 0);
        }
    });
}

#[test]
fn the_longest_packets_come_whole_whether_or_not_the_kernel_coalesces() {
    isolated(|| {
        // Longer than any jumbo frame; 65,535 bytes is what IPv4 and a virtual cable can carry.
        let lab = Lab::new(&LabSpec::new(2).direct().mtu(65_535)).unwrap();
        let raw = SocketOptions::default().encapsulation(Encapsulation::Raw);
        let plain = SocketOptions::default().gro(false);
        let carriers = [(raw, 20), (plain, 28), (SocketOptions::default(), 28)];
        for (number, (options, head_bytes)) in carriers.into_iter().enumerate() {
            let group = format!("239.192.0.{}:7500", 20 + number);
            let at = |index: usize, role| {
                let host = lab.host(index);
                open(host, role, &group, host.ipv4().into(), options.clone())
            };
            let (mut source, mut receiver) = (at(0, Role::Source), at(1, Role::Receiver));
            for len in [9_216, 9_217, 65_535 - head_bytes] {
                let mut packet = pattern(len);
                packet[4] = 4;
                let outcome = send(&mut source, &packet, len, group.parse().unwrap());
                assert_eq!(outcome, Outcome::Sent { datagrams: 1 }, "{len} to {group}");
                let (bytes, seen, _) = collect(&mut receiver, 1, SECOND);
                assert_eq!((bytes.len(), seen), (len, 1), "{group}");
                assert!(bytes == packet, "{len} to {group}");
            }
            assert_eq!(receiver.counters().truncated_buffers, 0, "{group}");
        }
    });
}

/// Sees packets of PGM to a group with their IP headers.
struct Watch(sys::UdpSocket);

fn watch(group: &str) -> Watch {
    let group: SocketAddr = group.parse().unwrap();
    let interfaces = Interfaces::read().unwrap();
    let e0 = interfaces.list().iter().find(|one| one.name == "e0");
    let protocol = std::num::NonZeroU8::new(113).unwrap();
    let socket = sys::UdpSocket::raw(sys::Family::of(&group), protocol).unwrap();
    socket.bind(group).unwrap();
    socket.join(group.ip(), e0.unwrap().index, None).unwrap();
    sys::datagram::set_blocking(socket.as_fd(), SECOND).unwrap();
    Watch(socket)
}

impl Watch {
    /// Length of the IP header of the next packet, as far as the kernel shows it.
    fn next_head(&self) -> usize {
        let mut bytes = [0; 100];
        sys::datagram::receive(self.0.as_fd(), &mut bytes, true).unwrap() - 24
    }
}

/// IPv4 headers without options; IPv6 shows none.
const HEAD_BYTES: [usize; 2] = [20, 0];
