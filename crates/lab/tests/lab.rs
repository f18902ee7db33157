//! The lab as its users see it: hosts that reach each other, loss that can be measured, nothing
//! left behind.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    io::{IoSlice, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::{fd::AsFd as _, unix::process::ExitStatusExt as _},
    process,
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::{Duration, Instant},
};

use sys::{Control, RawAddress, message};
use towline_lab::{Access, Disk, Host, Lab, LabSpec, isolated};

/// A port that no socket has had before: a child that is just being started by another test still
/// holds a copy of every socket, closed ones included.
fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(7500);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A socket in `host` that has joined `group` on `e0`.
fn member(host: &Host, group: IpAddr, port: u16) -> UdpSocket {
    let open = || {
        let any: IpAddr = match group {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, port)).unwrap();
        match group {
            IpAddr::V4(group) => socket.join_multicast_v4(&group, &host.ipv4()).unwrap(),
            IpAddr::V6(group) => socket.join_multicast_v6(&group, 0).unwrap(),
        }
        socket
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        socket
    };
    host.enter(open).unwrap()
}

/// A socket in `host` to send from.
fn sender(host: &Host, to: IpAddr) -> UdpSocket {
    let own: IpAddr = match to {
        IpAddr::V4(_) => host.ipv4().into(),
        IpAddr::V6(_) => host.ipv6().into(),
    };
    host.enter(|| UdpSocket::bind((own, 0)).unwrap()).unwrap()
}

fn ping_group(lab: &Lab, group: IpAddr) {
    let port = next_port();
    let members: Vec<_> = lab.hosts()[1..]
        .iter()
        .map(|host| member(host, group, port))
        .collect();
    let source = sender(lab.host(0), group);
    source
        .send_to(b"ping", SocketAddr::new(group, port))
        .unwrap();
    for member in &members {
        let mut bytes = [0; 16];
        let received = member.recv_from(&mut bytes);
        let (len, from) = received.unwrap_or_else(|error| panic!("{group}: {error}\n{lab:?}"));
        assert_eq!(&bytes[..len], b"ping");
        assert_eq!(from, source.local_addr().unwrap());
        // And back, by unicast.
        member.send_to(b"pong", from).unwrap();
    }
    source
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    for _ in &members {
        let mut bytes = [0; 16];
        assert_eq!(source.recv(&mut bytes).unwrap(), 4);
    }
}

#[test]
fn hosts_reach_each_other_by_multicast_at_once() {
    isolated(|| {
        for spec in [
            LabSpec::new(2),
            LabSpec::new(4).mtu(9000),
            LabSpec::new(2).direct(),
            LabSpec::new(3).segments_at_switch(),
        ] {
            let lab = Lab::new(&spec).unwrap();
            ping_group(&lab, GROUP_V4);
            if lab.host(0).has_ipv6() {
                ping_group(&lab, GROUP_V6);
            }
        }
    });
}

#[test]
fn a_command_runs_inside_its_host() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let output = lab
            .host(1)
            .command("cat")
            .arg("/proc/net/fib_trie")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("10.77.0.2") && !text.contains("10.77.0.1 "),
            "{text}"
        );
    });
}

/// How many of `count` packets from host 0 arrive at host 1.
fn arrivals(lab: &Lab, group: IpAddr, count: u32) -> u32 {
    let port = next_port();
    let member = member(lab.host(1), group, port);
    let source = sender(lab.host(0), group);
    let mut arrived = 0;
    for number in 0..count {
        let to = SocketAddr::new(group, port);
        source.send_to(&number.to_be_bytes(), to).unwrap();
        // On a virtual cable a packet has arrived, or never will, when the send returns; a few at
        // a time keep the receive buffer from being the reason.
        if number % 64 == 63 || number == count - 1 {
            member.set_nonblocking(true).unwrap();
            while member.recv(&mut [0; 16]).is_ok() {
                arrived += 1;
            }
        }
    }
    member.set_nonblocking(false).unwrap();
    member
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    while member.recv(&mut [0; 16]).is_ok() {
        arrived += 1;
    }
    arrived
}

#[test]
fn loss_is_as_set_and_counted() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let host = lab.host(1);
        for group in [GROUP_V4, GROUP_V6] {
            if group.is_ipv6() && !host.has_ipv6() {
                continue;
            }
            host.set_loss(0, 1000).unwrap();
            assert_eq!(arrivals(&lab, group, 5_000), 5_000);
            assert_eq!(host.lost_packets().unwrap(), 0);
            // 1 in 10 of 5,000: 500 with a standard deviation of 21.
            host.set_loss(100, 1000).unwrap();
            let arrived = arrivals(&lab, group, 5_000);
            assert!((4_350..4_650).contains(&arrived), "{arrived}");
            assert_eq!(u64::from(5_000 - arrived), host.lost_packets().unwrap());
            host.clear_loss().unwrap();
            assert_eq!(arrivals(&lab, group, 1_000), 1_000);
        }
    });
}

/// Sends 100 GSO runs of 40 packets into 50 % loss; how often the loss was within a run.
fn runs_cut(lab: &Lab) -> u32 {
    lab.host(1).set_loss(500, 1000).unwrap();
    let port = next_port();
    let member = member(lab.host(1), GROUP_V4, port);
    let source = sender(lab.host(0), GROUP_V4);
    let to = RawAddress::from(SocketAddr::new(GROUP_V4, port));
    let bytes = [7; 40 * 100];
    let mut cut = 0;
    member.set_nonblocking(true).unwrap();
    for _ in 0..100 {
        let pieces = [IoSlice::new(&bytes)];
        let control = Control::new().segment(100);
        message::send(source.as_fd(), &to, &pieces, &control).unwrap();
        let mut arrived = 0;
        while member.recv(&mut [0; 128]).is_ok() {
            arrived += 1;
        }
        cut += u32::from(arrived != 0 && arrived != 40);
    }
    cut
}

#[test]
fn loss_takes_packets_where_the_switch_segments_and_runs_where_not() {
    isolated(|| {
        let whole = Lab::new(&LabSpec::new(2)).unwrap();
        assert_eq!(runs_cut(&whole), 0);
        let segmented = Lab::new(&LabSpec::new(2).segments_at_switch()).unwrap();
        assert!(runs_cut(&segmented) > 95);
    });
}

#[test]
fn a_cable_can_be_pulled_and_an_interface_switched_off() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        lab.unplug(1).unwrap();
        assert_eq!(arrivals(&lab, GROUP_V4, 10), 0);
        lab.plug(1).unwrap();
        ping_group(&lab, GROUP_V4);
        let direct = Lab::new(&LabSpec::new(2).direct()).unwrap();
        assert!(direct.unplug(0).is_err());
        for lab in [lab, direct] {
            lab.set_interface_up(0, false).unwrap();
            lab.set_interface_up(1, false).unwrap();
            lab.set_interface_up(0, true).unwrap();
            lab.set_interface_up(1, true).unwrap();
            ping_group(&lab, GROUP_V4);
            if lab.host(0).has_ipv6() {
                ping_group(&lab, GROUP_V6);
            }
        }
    });
}

#[test]
fn a_slow_cable_carries_its_rate_and_drops_what_its_queue_cannot_hold() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        // A queue of 20 packets; 10 a second leave it.
        lab.set_bottleneck(1, 10_000, 20_840).unwrap();
        let port = next_port();
        let members = [1, 2].map(|host| member(lab.host(host), GROUP_V4, port));
        let source = sender(lab.host(0), GROUP_V4);
        for _ in 0..60 {
            source.send_to(&[7; 1000], (GROUP_V4, port)).unwrap();
        }
        let counts = members.map(|member| {
            let mut bytes = [0; 1500];
            let come = (0..60).map_while(|_| member.recv(&mut bytes).ok());
            come.count()
        });
        assert!((20..40).contains(&counts[0]), "{} packets", counts[0]);
        assert_eq!(counts[1], 60);
        assert!(lab.bytes_to(1).unwrap() < lab.bytes_to(2).unwrap());
        let direct = Lab::new(&LabSpec::new(2).direct()).unwrap();
        assert!(direct.set_bottleneck(0, 10_000, 20_000).is_err());
    });
}

#[test]
fn a_long_path_takes_its_time_each_way_and_carries_runs_of_segments_whole() {
    isolated(|| {
        for spec in [LabSpec::new(3), LabSpec::new(3).segments_at_switch()] {
            let lab = Lab::new(&spec).unwrap();
            let one_way = Duration::from_millis(25);
            let path = lab.lengthen(1, one_way).unwrap();
            let to = SocketAddr::new(lab.host(1).ipv4().into(), next_port());
            let listener = lab.host(1).enter(|| TcpListener::bind(to).unwrap());
            let listener = listener.unwrap();
            let began = Instant::now();
            let stream = lab.host(0).enter(|| TcpStream::connect(to).unwrap());
            let mut stream = stream.unwrap();
            assert!(began.elapsed() >= 2 * one_way, "{:?}", began.elapsed());
            let (mut peer, _) = listener.accept().unwrap();
            let sent: Vec<u8> = (0..5_000_000_u32)
                .map(|n| (n * 7 + n / 251) as u8)
                .collect();
            thread::scope(|scope| {
                let got = scope.spawn(|| {
                    let mut got = Vec::new();
                    peer.read_to_end(&mut got).unwrap();
                    got
                });
                stream.write_all(&sent).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                assert!(got.join().unwrap() == sent);
            });
            assert_eq!(path.overflows(), 0);
            // Nobody else's path is longer, and groups pass.
            ping_group(&lab, GROUP_V4);
        }
        let direct = Lab::new(&LabSpec::new(2).direct()).unwrap();
        assert!(direct.lengthen(0, Duration::ZERO).is_err());
    });
}

#[test]
fn dropping_a_lab_ends_its_processes() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let mut child = lab.host(0).command("sleep").arg("600").spawn().unwrap();
        let mut shell = lab.host(1).command("sh");
        let mut parent = shell.args(["-c", "sleep 600; true"]).spawn().unwrap();
        thread::sleep(Duration::from_millis(50));
        let namespace = lab.host(1).namespace().id().unwrap();
        drop(lab);
        let signal = |status: process::ExitStatus| status.signal();
        assert_eq!(signal(child.try_wait().unwrap().unwrap()), Some(9));
        assert_eq!(signal(parent.try_wait().unwrap().unwrap()), Some(9));
        // The shell's own child was in the host as well.
        assert_eq!(sys::namespace::end_processes_in(&[namespace]), 0);
    });
}

const GROUP_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 192, 0, 1));
const GROUP_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 1));

#[test]
fn a_disk_fills_and_nobody_else_sees_it() {
    isolated(|| {
        let at = std::env::temp_dir().join(format!("towline-lab-disk-{}", process::id()));
        std::fs::create_dir_all(&at).unwrap();
        let file = at.join("file");
        let disk = Disk::new(&at, 1 << 20, Access::ReadWrite).unwrap();
        disk.enter(|| {
            std::fs::write(&file, [1; 1000]).unwrap();
            let error = std::fs::write(at.join("more"), vec![1; 2 << 20]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        })
        .unwrap();
        assert!(!file.exists());
        let mut reader = process::Command::new("cat");
        disk.give_to(reader.arg(&file));
        assert_eq!(reader.output().unwrap().stdout.len(), 1000);

        let disk = Disk::new(&at, 1 << 20, Access::ReadOnly).unwrap();
        let error = disk.enter(|| std::fs::write(&file, [1; 10]).unwrap_err());
        let kind = error.unwrap().kind();
        assert_eq!(kind, std::io::ErrorKind::ReadOnlyFilesystem);
        std::fs::remove_dir_all(&at).unwrap();
    });
}
