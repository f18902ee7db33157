//! The addresses of a session under test: of IPv4 and IPv6, of groups of any source and of one.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "the addresses are right")]

use std::{net::IpAddr, thread};

/// Who is where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) source: IpAddr,
    pub(crate) receiver: IpAddr,
    /// Two other hosts.
    pub(crate) others: [IpAddr; 2],
    pub(crate) group: IpAddr,
}

impl Addresses {
    /// Bytes of the IP and UDP headers of each datagram.
    pub(crate) const fn overhead(&self) -> usize {
        if self.source.is_ipv4() { 28 } else { 48 }
    }
}

/// Source, receiver, two other hosts, group.
const KINDS: [[&str; 5]; 4] = [
    [
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.3",
        "10.0.0.67",
        "239.192.0.1",
    ],
    ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.67", "232.1.1.1"],
    ["fd00::1", "fd00::2", "fd00::3", "fd00::67", "ff15::1"],
    ["fd00::1", "fd00::2", "fd00::3", "fd00::67", "ff35::1"],
];

/// The addresses of this run of the test.
pub(crate) fn addresses() -> Addresses {
    let thread = thread::current();
    let kind = thread.name().and_then(|name| name.strip_prefix(RUN));
    let texts = KINDS[kind.map_or(0, |kind| kind.parse().unwrap())];
    let [source, receiver, one, other, group] = texts.map(|text| text.parse().unwrap());
    Addresses {
        source,
        receiver,
        others: [one, other],
        group,
    }
}

/// Runs a test once for each kind of addresses, on a thread whose name says which.
#[allow(
    clippy::disallowed_types,
    reason = "the test has a thread anyway; here its name says more"
)]
pub(crate) fn over_each_kind(test: impl Fn() + Copy + Send + 'static) {
    for kind in 0..KINDS.len() {
        let run = thread::Builder::new().name(format!("{RUN}{kind}"));
        run.spawn(test).unwrap().join().unwrap();
    }
}

const RUN: &str = "addresses of kind ";
