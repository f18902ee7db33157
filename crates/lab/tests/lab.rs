//! The lab as its users see it: hosts that reach each other, loss that can be measured, nothing
//! left behind.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use towline_lab::{Host, Lab, LabSpec, isolated};

/// A socket in `host` that has joined `group` on `e0`.
fn member(host: &Host, group: IpAddr) -> UdpSocket {
    let open = || {
        let any: IpAddr = match group {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, PORT)).unwrap();
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
    let members: Vec<_> = lab.hosts()[1..]
        .iter()
        .map(|host| member(host, group))
        .collect();
    let source = sender(lab.host(0), group);
    source
        .send_to(b"ping", SocketAddr::new(group, PORT))
        .unwrap();
    for member in &members {
        let mut bytes = [0; 16];
        let (len, from) = member.recv_from(&mut bytes).unwrap();
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

const PORT: u16 = 7500;
const GROUP_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 192, 0, 1));
const GROUP_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 1));
