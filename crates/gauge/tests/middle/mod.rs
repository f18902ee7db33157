//! Two hosts with a third between them, which routes or switches as a test says:
//!
//! ```text
//!   left  e0 10.88.1.1 ------ 10.88.1.254 m1  middle  m2 10.88.2.254 ------ 10.88.2.2 e0  right
//!                     as a switch: both in 10.88.1.0/24, .1 and .2
//! ```
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "each test uses a part of it"
)]

use std::{fs, os::fd::AsFd as _, process::Command, thread, time::Duration};

use sys::{
    namespace::{CommandExt as _, Namespace, run_in},
    netlink::{Rtnetlink, Veth},
};

/// The three hosts; gone when dropped.
#[derive(Debug)]
pub struct Middle {
    pub left: Namespace,
    pub middle: Namespace,
    pub right: Namespace,
}

pub const LEFT: &str = "10.88.1.1";
/// The right host's address behind a router, and behind a switch.
pub const RIGHT_ROUTED: &str = "10.88.2.2";
pub const RIGHT_SWITCHED: &str = "10.88.1.2";

impl Middle {
    fn new(mtu: u32) -> Self {
        let [left, middle, right] = [(); 3].map(|()| Namespace::network().unwrap());
        for (host, name) in [(&left, "m1"), (&right, "m2")] {
            run_in(&[&middle], || {
                let mut netlink = Rtnetlink::open().unwrap();
                let veth = Veth {
                    name,
                    peer_name: "e0",
                    peer_namespace: host.as_fd(),
                    index: None,
                    mtu_bytes: Some(mtu),
                };
                netlink.add_veth(&veth).unwrap();
            })
            .unwrap();
        }
        for namespace in [&left, &middle, &right] {
            up(namespace, "lo");
        }
        Self {
            left,
            middle,
            right,
        }
    }

    /// With a router between, which takes packets of `far_mtu` on its right.
    pub fn routed(near_mtu: u32, far_mtu: u32) -> Self {
        let made = Self::new(near_mtu);
        address(&made.left, "e0", LEFT);
        address(&made.middle, "m1", "10.88.1.254");
        address(&made.middle, "m2", "10.88.2.254");
        address(&made.right, "e0", RIGHT_ROUTED);
        route(&made.left, "0.0.0.0", 0, Some("10.88.1.254"));
        route(&made.right, "0.0.0.0", 0, Some("10.88.2.254"));
        run_in(&[&made.middle], || {
            fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            let mut netlink = Rtnetlink::open().unwrap();
            let index = netlink.link_index("m2").unwrap();
            netlink.set_mtu(index, far_mtu).unwrap();
        })
        .unwrap();
        made.await_carriers()
    }

    /// With a switch between.
    pub fn switched() -> Self {
        let made = Self::new(1_500);
        run_in(&[&made.middle], || {
            let mut netlink = Rtnetlink::open().unwrap();
            netlink.add_bridge("br0").unwrap();
            let bridge = netlink.link_index("br0").unwrap();
            for name in ["m1", "m2"] {
                let index = netlink.link_index(name).unwrap();
                netlink.set_master(index, Some(bridge)).unwrap();
            }
        })
        .unwrap();
        for name in ["m1", "m2", "br0"] {
            up(&made.middle, name);
        }
        address(&made.left, "e0", LEFT);
        address(&made.right, "e0", RIGHT_SWITCHED);
        for host in [&made.left, &made.right] {
            route(host, "224.0.0.0", 4, None);
        }
        made.await_carriers()
    }

    /// The kernel takes up to a second to see a carrier.
    fn await_carriers(self) -> Self {
        for (host, name) in [
            (&self.left, "e0"),
            (&self.right, "e0"),
            (&self.middle, "m1"),
            (&self.middle, "m2"),
        ] {
            run_in(&[host], || {
                let mut netlink = Rtnetlink::open().unwrap();
                while !netlink.link(name).unwrap().is_passing() {
                    thread::sleep(Duration::from_millis(2));
                }
            })
            .unwrap();
        }
        self
    }

    /// A second interface `e1` on the right, which leads nowhere, with this address.
    pub fn second_interface(&self, ip: &str) {
        run_in(&[&self.right], || {
            let mut netlink = Rtnetlink::open().unwrap();
            let veth = Veth {
                name: "e1",
                peer_name: "x1",
                peer_namespace: self.middle.as_fd(),
                index: None,
                mtu_bytes: None,
            };
            netlink.add_veth(&veth).unwrap();
        })
        .unwrap();
        up(&self.middle, "x1");
        address(&self.right, "e1", ip);
        run_in(&[&self.right], || {
            let mut netlink = Rtnetlink::open().unwrap();
            while !netlink.link("e1").unwrap().is_passing() {
                thread::sleep(Duration::from_millis(2));
            }
        })
        .unwrap();
    }
}

pub fn up(namespace: &Namespace, name: &str) {
    run_in(&[namespace], || {
        let mut netlink = Rtnetlink::open().unwrap();
        let index = netlink.link_index(name).unwrap();
        netlink.set_up(index, true).unwrap();
    })
    .unwrap();
}

pub fn address(namespace: &Namespace, name: &str, ip: &str) {
    up(namespace, name);
    run_in(&[namespace], || {
        let mut netlink = Rtnetlink::open().unwrap();
        let index = netlink.link_index(name).unwrap();
        netlink.add_address(index, ip.parse().unwrap(), 24).unwrap();
    })
    .unwrap();
}

/// A route by `e0`.
pub fn route(namespace: &Namespace, to: &str, prefix: u8, gateway: Option<&str>) {
    run_in(&[namespace], || {
        let mut netlink = Rtnetlink::open().unwrap();
        let index = netlink.link_index("e0").unwrap();
        let gateway = gateway.map(|it| it.parse().unwrap());
        let to = to.parse().unwrap();
        netlink.add_route(to, prefix, index, gateway).unwrap();
    })
    .unwrap();
}

/// Runs a program in a host; false, with a word about it, when it is missing or refuses.
pub fn did(namespace: &Namespace, program: &str, words: &str) -> bool {
    let mut command = Command::new(program);
    command
        .namespace(namespace)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    match command.args(words.split_whitespace()).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            println!("skipped: {program} {words}: {}", text.trim());
            false
        }
        Err(error) => {
            println!("skipped: {program}: {error}");
            false
        }
    }
}
