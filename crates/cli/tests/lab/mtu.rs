//! What `mtu` says of paths on which something is wrong.

use std::time::Duration;

use lab::{Lab, LabSpec};
use serde_json::Value;
use sys::netlink::Rtnetlink;

use crate::ends::{End, alone, towline};

/// A virtual cable drops what is longer than its other end takes, and nobody says so.
#[test]
fn a_black_hole_is_a_finding() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let there = lab.host(1);
        let _reflector = End::start(towline(there, "rtt reflect --quiet"));
        for (mtu, code, verdict) in [(1_500, 0, "clear"), (1_400, 1, "black-hole")] {
            let set = there.enter(|| {
                let mut netlink = Rtnetlink::open().unwrap();
                let index = netlink.link_index(there.interface()).unwrap();
                netlink.set_mtu(index, mtu).unwrap();
            });
            set.unwrap();
            let words = format!("mtu {} --json --timeout 300ms", there.ipv4());
            let found = End::start(towline(lab.host(0), &words));
            let (status, text) = found.finish(Duration::from_secs(30));
            let report: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(report["verdict"], verdict, "{report:#}");
            assert_eq!(status.code(), Some(code), "{report:#}");
        }
    });
}
