//! Causes planted between two hosts of the lab, and the one that is named.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(clippy::print_stdout, reason = "a test says why it is skipped")]

use std::{fs, net::SocketAddr, thread, time::Duration};

use lab::isolated;
use sys::namespace::{Namespace, run_in};
use towline::Selector;
use towline_gauge::reach::{Cause, PORT, ReachReport, ReachSpec, reach};

mod middle;

use middle::{LEFT, Middle, RIGHT_ROUTED, RIGHT_SWITCHED, did};

fn never() -> bool {
    false
}

fn spec(name: &str, peer: &str) -> ReachSpec {
    ReachSpec {
        group: "239.192.0.7:7500".parse().unwrap(),
        interface: None,
        hops: 1,
        peers: vec![SocketAddr::new(peer.parse().unwrap(), PORT)],
        port: PORT,
        time: Duration::from_millis(1_500),
        name: name.to_owned(),
        token: u64::from(name.as_bytes()[0]),
    }
}

fn at(namespace: &Namespace, spec: &ReachSpec) -> ReachReport {
    run_in(&[namespace], || reach(spec, &never))
        .unwrap()
        .unwrap()
}

/// Both ends at once: what the left and the right one found.
fn both(made: &Middle, left: &ReachSpec, right: &ReachSpec) -> (ReachReport, ReachReport) {
    thread::scope(|scope| {
        let left = scope.spawn(|| at(&made.left, left));
        let right = at(&made.right, right);
        (left.join().unwrap(), right)
    })
}

fn switched_specs() -> (ReachSpec, ReachSpec) {
    (spec("left", RIGHT_SWITCHED), spec("right", LEFT))
}

/// The causes of a report, once each.
fn causes(report: &ReachReport) -> Vec<Cause> {
    let mut causes: Vec<Cause> = report.findings.iter().map(|it| it.cause).collect();
    causes.dedup();
    causes
}

/// The only cause that is named, with a fix that holds these words.
fn assert_named(report: &ReachReport, cause: Cause, fix: &str) {
    assert_eq!(causes(report), [cause], "{report:#?}");
    let found = &report.findings[0].fix;
    assert!(found.contains(fix), "{found}");
}

#[test]
fn a_group_that_arrives_has_nothing_wrong() {
    isolated(|| {
        let made = Middle::switched();
        let (left, right) = switched_specs();
        let (left, right) = both(&made, &left, &right);
        for (report, peer) in [(&left, "right"), (&right, "left")] {
            assert_eq!(causes(report), [], "{report:#?}");
            let heard = report
                .facts
                .heard
                .iter()
                .find(|it| it.name == peer)
                .unwrap();
            assert_eq!((heard.hops, heard.interface.as_str()), ((1, Some(1)), "e0"));
            let word = report.facts.peers[0].word.as_ref().unwrap();
            assert_eq!((word.hears_us, word.routers), (Some(true), Some(0)));
        }
    });
}

#[test]
fn the_wrong_interface() {
    isolated(|| {
        let made = Middle::switched();
        made.second_interface("10.99.0.2");
        let (left, mut right) = switched_specs();
        right.interface = Some("e1".parse::<Selector>().unwrap());
        let (_, right) = both(&made, &left, &right);
        assert_named(&right, Cause::WrongInterface, "--iface e0");
    });
}

#[test]
fn the_reverse_path_filter() {
    isolated(|| {
        let made = Middle::switched();
        made.second_interface("10.99.0.2");
        let is_routed = did(&made.right, "ip", "route add 10.88.1.1/32 dev e1");
        if !is_routed {
            return;
        }
        let strict = || fs::write("/proc/sys/net/ipv4/conf/e0/rp_filter", "1");
        run_in(&[&made.right], strict).unwrap().unwrap();
        let (left, mut right) = switched_specs();
        right.interface = Some("e0".parse::<Selector>().unwrap());
        let (_, right) = both(&made, &left, &right);
        assert_named(&right, Cause::ReversePathFilter, "rp_filter=2");
        assert!(right.facts.reverse_path_drops > 0);
    });
}

#[test]
fn a_firewall() {
    isolated(|| {
        let made = Middle::switched();
        let rules = [
            "add table inet guard",
            "add chain inet guard entry { type filter hook input priority 0 ; }",
            "add rule inet guard entry udp dport 7500 drop",
        ];
        if !rules.iter().all(|rule| did(&made.right, "nft", rule)) {
            return;
        }
        let (left, right) = switched_specs();
        let (left, right) = both(&made, &left, &right);
        let insert = "nft insert rule inet guard entry ip daddr 239.192.0.7 udp dport 7500 accept";
        assert_named(&right, Cause::Firewall, insert);
        // It hears the other end, which does not hear it: that is no group that arrives.
        assert_named(&left, Cause::PeerDoesNotHear, "`towline reach` on right");
        assert!(
            right.findings[0].words.contains("inet guard entry"),
            "{:?}",
            right.findings
        );
    });
}

#[test]
fn a_missing_route() {
    isolated(|| {
        let made = Middle::switched();
        made.second_interface("10.99.0.2");
        if !did(&made.right, "ip", "route del 224.0.0.0/4") {
            return;
        }
        let (left, right) = switched_specs();
        let (left, right) = both(&made, &left, &right);
        assert_named(&right, Cause::MissingRoute, "ip route add 224.0.0.0/4 dev");
        // The other end is told what keeps this one from sending.
        assert_named(&left, Cause::PeerCannotSend, "run `towline reach` on right");
    });
}

#[test]
fn a_ttl_too_low_and_a_router_that_does_not_forward_groups() {
    isolated(|| {
        let made = Middle::routed(1_500, 1_500);
        let (mut left, right) = (spec("left", RIGHT_ROUTED), spec("right", LEFT));
        let (_, report) = both(&made, &left, &right);
        assert_named(&report, Cause::TtlTooLow, "--hops 2");
        left.hops = 2;
        let (_, report) = both(&made, &left, &right);
        assert_named(&report, Cause::NoMulticastRouting, "PIM");
    });
}

#[test]
fn a_switch_that_snoops_without_a_querier() {
    isolated(|| {
        let made = Middle::switched();
        // A bridge floods while it knows no querier; switches one buys do not.
        let settings = [
            (
                "ip",
                "link set br0 type bridge mcast_snooping 1 mcast_querier 0",
            ),
            (
                "ip",
                "link set br0 type bridge mcast_membership_interval 100",
            ),
            ("bridge", "link set dev m2 mcast_flood off"),
        ];
        let are_made = settings
            .iter()
            .all(|(program, words)| did(&made.middle, program, words));
        if !are_made {
            return;
        }
        let (mut left, mut right) = switched_specs();
        (left.time, right.time) = (Duration::from_secs(6), Duration::from_secs(6));
        let (_, right) = both(&made, &left, &right);
        assert_named(&right, Cause::SnoopingWithoutQuerier, "mcast_querier 1");
    });
}

#[test]
fn a_rule_that_keeps_reports_of_membership_from_leaving() {
    isolated(|| {
        let made = Middle::switched();
        let rules = [
            "add table inet guard",
            "add chain inet guard exit { type filter hook output priority 0 ; }",
            "add rule inet guard exit ip protocol igmp drop",
        ];
        let settings = [
            (
                "ip",
                "link set br0 type bridge mcast_snooping 1 mcast_querier 1",
            ),
            ("bridge", "link set dev m2 mcast_flood off"),
        ];
        let are_made = rules.iter().all(|rule| did(&made.right, "nft", rule))
            && settings
                .iter()
                .all(|(program, words)| did(&made.middle, program, words));
        if !are_made {
            return;
        }
        let (left, right) = switched_specs();
        let (_, right) = both(&made, &left, &right);
        let insert = "`nft insert rule inet guard exit ip protocol igmp accept`";
        assert_named(&right, Cause::ReportDropped, insert);
        assert_eq!(right.facts.has_reported, Some(false));
        // With the rule that the fix adds, the report leaves.
        let accept = "insert rule inet guard exit ip protocol igmp accept";
        assert!(did(&made.right, "nft", accept));
        let (left, right) = switched_specs();
        let (_, right) = both(&made, &left, &right);
        assert_eq!(right.facts.has_reported, Some(true));
        let dropped = right
            .findings
            .iter()
            .find(|it| it.cause == Cause::ReportDropped);
        assert!(dropped.is_none(), "{:?}", right.findings);
    });
}

#[test]
fn the_wrong_port() {
    isolated(|| {
        let made = Middle::switched();
        let (left, mut right) = switched_specs();
        right.group.set_port(7_501);
        let (_, report) = both(&made, &left, &right);
        assert_named(&report, Cause::WrongPort, "--group 239.192.0.7:7500");
    });
}

#[test]
fn an_interface_that_is_down_or_carries_no_multicast() {
    isolated(|| {
        let made = Middle::switched();
        let mut alone = spec("right", LEFT);
        alone.interface = Some("e0".parse::<Selector>().unwrap());
        if did(&made.right, "ip", "link set e0 multicast off") {
            let report = at(&made.right, &alone);
            assert_named(&report, Cause::NoMulticast, "ip link set e0 multicast on");
        }
        if did(&made.right, "ip", "link set e0 down") {
            let report = at(&made.right, &alone);
            assert_named(&report, Cause::InterfaceDown, "ip link set e0 up");
        }
        // And the other end hears nothing at all.
        let mut left = spec("left", RIGHT_SWITCHED);
        left.time = Duration::from_millis(500);
        assert_named(
            &at(&made.left, &left),
            Cause::PeerSilent,
            "at the same time",
        );
    });
}
