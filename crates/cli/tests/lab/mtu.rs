//! What `mtu` says of paths on which something is wrong.

use std::time::{Duration, Instant};

use lab::{Lab, LabSpec};
use serde_json::Value;
use sys::netlink::Rtnetlink;

use crate::{
    ends::{End, alone, towline},
    schema_kit::check_schema,
};

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

#[test]
fn the_receivers_of_a_group_are_listed_as_the_schema_says() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let group = "239.192.0.7";
        let reflect = format!("rtt reflect --listen {group} --quiet");
        let _reflector = End::start(towline(lab.host(1), &reflect));
        let words = format!("mtu {group} --json --timeout 300ms");
        let until = Instant::now() + Duration::from_secs(60);
        // Nobody answers before the reflector has joined.
        let text = loop {
            let (_, text) =
                End::start(towline(lab.host(0), &words)).finish(Duration::from_secs(30));
            if !text.is_empty() {
                break text;
            }
            assert!(Instant::now() < until, "no reflector came up");
        };
        let (name, document) = check_schema(&text);
        assert_eq!(name, "mtu-group");
        let answered = &document["receivers"][0]["address"];
        assert_eq!(*answered, lab.host(1).ipv4().to_string());
    });
}
