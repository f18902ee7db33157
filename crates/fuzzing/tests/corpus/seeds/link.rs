//! Super-packets of TCP and UDP over IPv4 and IPv6, with a VLAN tag and without; messages of IGMP
//! and MLD alone.

use std::net::{Ipv4Addr, Ipv6Addr};

use wire::link::{
    IGMP_REPORT_V2, IGMP_REPORT_V3, IgmpMessage, MLD_QUERY, MLD_REPORT_V2, MldMessage,
};

use super::write;

pub(super) fn write_all() {
    memberships();
    super_packets();
}

/// Each of these follows a link type that says nothing of it: the bodies read any bytes as each
/// header.
fn memberships() {
    let (four, six) = (Ipv4Addr::new(239, 1, 1, 1), Ipv6Addr::LOCALHOST);
    let (mut igmp, mut mld) = (vec![0, 101], vec![0, 101]);
    IgmpMessage {
        kind: IGMP_REPORT_V2,
        time_code: 0,
        group: four,
    }
    .emit(&mut igmp);
    MldMessage {
        kind: MLD_QUERY,
        time_code: 1000,
        group: six,
    }
    .emit(&mut mld, 0);
    write("link_headers", "igmp", &igmp);
    write("link_headers", "mld", &mld);
    // Two records: one with a source and a word of auxiliary data, one without.
    for (name, kind, group) in [
        ("igmp_newest", IGMP_REPORT_V3, &four.octets()[..]),
        ("mld_newest", MLD_REPORT_V2, &six.octets()),
    ] {
        let mut report = vec![0, 101, kind, 0, 0, 0, 0, 0, 0, 2];
        report.extend([&[4, 1, 0, 1], group, group, &[7; 4]].concat());
        report.extend([&[4, 0, 0, 0], group].concat());
        write("link_headers", name, &report);
    }
}

fn super_packets() {
    for (name, ip) in [("four", ipv4()), ("six", ipv6())] {
        // LINKTYPE_RAW: no link header, so the views meet the headers themselves.
        write(
            "link_headers",
            &format!("{name}_raw"),
            &[&[0, 101], &ip[..]].concat(),
        );
        for (kind, protocol) in [(0, TCP), (1, UDP)] {
            let (transport, checksum_at) = match protocol {
                TCP => (tcp(), 16_u16),
                _ => (vec![0, 9, 0, 9, 0, 0, 0x12, 0x34], 6),
            };
            let mut ip = ip.clone();
            ip[if name == "four" { 9 } else { 6 }] = protocol;
            for (tag_name, tag) in [("plain", &[][..]), ("tagged", &[0x81, 0, 0, 5])] {
                let ether_type: &[u8] = if name == "four" {
                    &[8, 0]
                } else {
                    &[0x86, 0xdd]
                };
                let start = (14 + tag.len() + ip.len()) as u16;
                let mut seed = vec![kind];
                // 100 bytes of payload in each packet, and where the transport's checksum stands.
                seed.extend([100, start, checksum_at].map(u16::to_be_bytes).concat());
                seed.extend([&[1; 12], tag, ether_type, &ip, &transport].concat());
                seed.extend((0..250).map(|at| at as u8));
                let protocol = if protocol == TCP { "tcp" } else { "udp" };
                let name = format!("{name}_{protocol}_{tag_name}");
                write("link_segments", &name, &seed);
                // As Ethernet, behind the seven bytes that say how to cut.
                write("link_headers", &name, &[&[0, 1], &seed[7..]].concat());
            }
        }
    }
}

fn ipv4() -> Vec<u8> {
    let mut ip = vec![0x45, 0, 1, 0x22, 0xFF, 0xFE, 0x40, 0, 64, 0, 0, 0];
    ip.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    ip
}

fn ipv6() -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0, 1, 0x0E, 0, 64];
    ip.extend([0xFD; 32]);
    ip
}

/// With the option of time stamps, and all flags that only one packet of a row may have.
fn tcp() -> Vec<u8> {
    let mut tcp = vec![0, 9, 0, 9, 0xFF, 0xFF, 0xFF, 0xF0, 0, 0, 0, 7];
    tcp.extend([0x80, 0x80 | 0x10 | 0x08 | 0x01, 1, 0, 0x12, 0x34, 0, 0]);
    tcp.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    tcp
}

const TCP: u8 = 6;
const UDP: u8 = 17;
