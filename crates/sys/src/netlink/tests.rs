//! The parsers on answers that a kernel has given, and on bytes that no kernel gives.

use std::net::IpAddr;

use proptest::prelude::*;

use super::{
    socket::{check_error, flag},
    *,
};

/// Reads the bytes from a text of hexadecimal digits; `#` starts a comment line.
fn recorded(text: &str) -> Vec<u8> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_whitespace)
        .map(|digits| u8::from_str_radix(digits, 16).unwrap())
        .collect()
}

fn parsed<T>(text: &str, kind: u16, parse: impl Fn(&[u8]) -> Result<T, Malformed>) -> Vec<T> {
    Replies::new(&recorded(text))
        .map(Result::unwrap)
        .filter(|reply| reply.kind == kind)
        .map(|reply| parse(reply.payload).unwrap())
        .collect()
}

/// Runs every parser of this module on one received buffer.
fn read_everything(bytes: &[u8]) {
    for reply in Replies::new(bytes) {
        let Ok(reply) = reply else { return };
        let _link = Link::parse(reply.payload);
        let _address = Address::parse(reply.payload);
        let _route = Route::parse(reply.payload);
        let _refusal = check_error(&reply).map_err(|error| error.to_string());
        if let Ok(attributes) = Attributes::parse(reply.payload) {
            for attribute in attributes {
                let _count = nftables::counted(&attribute);
                let _text = (attribute.text(), attribute.number(), attribute.address());
            }
        }
    }
}

#[test]
#[cfg(target_endian = "little")]
fn recorded_links_are_read() {
    let links = parsed(LINKS, libc::RTM_NEWLINK, Link::parse);
    let [lo, e0] = &links[..] else {
        panic!("two links, not {links:?}");
    };
    assert_eq!((lo.name.as_str(), lo.index, lo.hardware), ("lo", 1, 772));
    assert!(lo.flags.is_loopback() && lo.flags.is_up() && !lo.flags.is_multicast());
    assert_eq!(
        (lo.state, lo.mtu_bytes, &lo.kind),
        (LinkState::Unknown, 65_536, &None)
    );
    assert_eq!(
        (e0.name.as_str(), e0.mtu_bytes, e0.hardware),
        ("e0", 1500, 1)
    );
    assert_eq!(
        (e0.state, e0.kind.as_deref()),
        (LinkState::Up, Some("veth"))
    );
    assert!(e0.flags.is_multicast() && e0.flags.is_broadcast() && e0.flags.is_running());
    assert_eq!(
        (e0.gso_max_size, e0.gso_max_segs),
        (Some(65_536), Some(65_535))
    );
    assert_eq!(e0.master, None);
}

#[test]
#[cfg(target_endian = "little")]
fn recorded_addresses_are_read() {
    let addresses = parsed(ADDRESSES, libc::RTM_NEWADDR, Address::parse);
    let described: Vec<String> = addresses
        .into_iter()
        .flatten()
        .map(|one| {
            let peer = one
                .peer
                .map_or(String::new(), |peer| format!(" peer {peer}"));
            format!(
                "{}: {}{peer}/{} {}",
                one.index,
                one.ip,
                one.prefix,
                one.scope.name()
            )
        })
        .collect();
    let expected = [
        "1: 127.0.0.1/8 host",
        "2: 10.77.0.1/24 global",
        "2: 192.0.2.1 peer 192.0.2.2/32 global",
        "1: ::1/128 host",
        "2: fd77::1/64 global",
    ];
    assert_eq!(described[..5], expected);
    assert!(described[5].starts_with("2: fe80::") && described[5].ends_with("/64 link"));
    assert_eq!(described.len(), 6);
}

#[test]
#[cfg(target_endian = "little")]
fn recorded_routes_are_read() {
    let routes = parsed(ROUTES, libc::RTM_NEWROUTE, Route::parse);
    let defaults: Vec<_> = routes.iter().filter(|route| route.is_default()).collect();
    assert_eq!(defaults.len(), 1);
    assert_eq!(defaults[0].gateway, Some(IpAddr::from([10, 77, 0, 2])));
    assert_eq!((defaults[0].metric, defaults[0].interface), (50, Some(2)));
    let refused = routes
        .iter()
        .find(|route| route.kind == RouteKind::Refused)
        .unwrap();
    assert_eq!(refused.destination, Some(IpAddr::from([203, 0, 113, 0])));
    let groups = IpAddr::from([224, 0, 0, 0]);
    let groups = routes
        .iter()
        .find(|route| route.destination == Some(groups))
        .unwrap();
    assert_eq!((groups.prefix, groups.interface), (4, Some(2)));
    assert!(routes.iter().any(|route| route.is_ipv6));

    let to_group = parsed(ROUTE_TO_GROUP, libc::RTM_NEWROUTE, Route::parse);
    assert_eq!(to_group[0].kind, RouteKind::Multicast);
    assert_eq!(to_group[0].source, Some(IpAddr::from([10, 77, 0, 1])));
}

#[test]
#[cfg(target_endian = "little")]
fn a_recorded_refusal_gives_its_reason() {
    let bytes = recorded(REFUSAL);
    let reply = Replies::new(&bytes).next().unwrap().unwrap();
    let error = check_error(&reply)
        .unwrap_err()
        .during("set the MTU of e0 to 10");
    assert_eq!(error.errno(), Some(libc::EINVAL));
    let text = error.to_string();
    assert!(
        text.starts_with("cannot set the MTU of e0 to 10: Invalid argument"),
        "{text}"
    );
    assert!(text.ends_with(": mtu less than device minimum"), "{text}");
}

#[test]
fn cut_short_at_every_length_nothing_panics() {
    for text in RECORDINGS {
        let bytes = recorded(text);
        for len in 0..bytes.len() {
            read_everything(&bytes[..len]);
        }
    }
}

#[test]
fn a_several_hop_route_is_read_by_its_first_hop() {
    let mut request = Request::new(libc::RTM_NEWROUTE, 0);
    request.fixed(&[0; 12]);
    let mut hop = vec![16, 0, 0, 0, 7, 0, 0, 0];
    hop.extend([8, 0, 5, 0, 10, 77, 0, 9]);
    request.attribute(libc::RTA_MULTIPATH, &hop);
    let bytes = request.finish(flag(libc::NLM_F_MULTI), 1);
    let reply = Replies::new(&bytes).next().unwrap().unwrap();
    let route = Route::parse(reply.payload).unwrap();
    if cfg!(target_endian = "little") {
        assert_eq!(route.interface, Some(7));
        assert_eq!(route.gateway, Some(IpAddr::from([10, 77, 0, 9])));
    }
}

#[test]
fn the_kernel_answers_what_its_files_say() {
    let mut netlink = Rtnetlink::open().unwrap();
    let names: Vec<String> = netlink
        .links()
        .unwrap()
        .into_iter()
        .map(|one| one.name)
        .collect();
    let text = std::fs::read_to_string("/proc/net/dev").unwrap();
    for line in text.lines().skip(2) {
        let name = line.split(':').next().unwrap_or_default().trim();
        assert!(
            names.iter().any(|one| one == name),
            "{name} is missing in {names:?}"
        );
    }
    assert!(
        netlink
            .link("no-such-link")
            .unwrap_err()
            .to_string()
            .contains("no-such-link")
    );
    let error = netlink.set_up(u32::MAX >> 1, true).unwrap_err();
    assert!(
        matches!(error.errno(), Some(libc::ENODEV | libc::EPERM)),
        "{error}"
    );
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        read_everything(&bytes);
    }

    #[test]
    fn damaged_answers_never_panic(
        which in 0..RECORDINGS.len(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = recorded(RECORDINGS[which]);
        for (place, value) in damage {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        read_everything(&bytes);
    }
}

const LINKS: &str = include_str!("../../testdata/netlink/links.hex");
const ADDRESSES: &str = include_str!("../../testdata/netlink/addresses.hex");
const ROUTES: &str = include_str!("../../testdata/netlink/routes.hex");
const ROUTE_TO_GROUP: &str = include_str!("../../testdata/netlink/route_to_group.hex");
const REFUSAL: &str = include_str!("../../testdata/netlink/refusal.hex");
const RECORDINGS: [&str; 5] = [LINKS, ADDRESSES, ROUTES, ROUTE_TO_GROUP, REFUSAL];
