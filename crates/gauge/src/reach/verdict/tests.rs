//! What is found, by what was seen.

use super::*;
use crate::reach::{Heard, InterfaceFacts, ReversePath, RuleChain};

fn facts() -> Facts {
    Facts {
        group: "239.192.0.7:7500".parse().unwrap(),
        hops: 1,
        lasted: Duration::from_secs(5),
        interface: Some(InterfaceFacts {
            name: "e0".to_owned(),
            address: [10, 0, 0, 1].into(),
            igmp: Some("V3".to_owned()),
            condition: "up",
            notes: Vec::new(),
        }),
        refusal: None,
        has_route: true,
        send_error: None,
        heard: Vec::new(),
        frames: vec![Frames {
            interface: "e0".to_owned(),
            source: [10, 9, 9, 9].into(),
            port: 7_500,
            hops_left: 3,
            count: 7,
        }],
        sees_wire: true,
        queriers: Vec::new(),
        peers: Vec::new(),
        reverse_paths: Vec::new(),
        reverse_path_drops: 7,
        chains: Vec::new(),
    }
}

#[test]
fn what_enters_and_vanishes_was_dropped_by_the_reverse_path_filter_or_by_rules() {
    let mut facts = facts();
    let found = judge(&facts);
    assert_eq!(found[0].cause, Cause::Firewall);
    assert!(found[0].words.contains("BPF"), "{found:?}");
    for (mode, leaves_by, is_dropped) in [
        (1, Some("e1"), true),
        (1, Some("e0"), false),
        (2, Some("e1"), false),
        (2, None, true),
        (0, None, false),
    ] {
        facts.reverse_paths = vec![ReversePath {
            source: [10, 9, 9, 9].into(),
            interface: "e0".to_owned(),
            leaves_by: leaves_by.map(str::to_owned),
            mode,
        }];
        let is_named = judge(&facts)[0].cause == Cause::ReversePathFilter;
        assert_eq!(is_named, is_dropped, "{:?}", facts.reverse_paths);
    }
}

#[test]
fn rules_are_passed_where_they_are() {
    let chain = |table: &str, name: &str| RuleChain {
        table: table.to_owned(),
        name: name.to_owned(),
        drops_by_default: false,
    };
    let mut facts = facts();
    assert!(judge(&facts)[0].fix.contains("bpftool"));
    facts.chains = vec![chain("inet guard", "entry"), chain("ip6 other", "entry")];
    let fix = &judge(&facts)[0].fix;
    let insert = "`nft insert rule inet guard entry ip daddr 239.192.0.7 udp dport 7500 accept`";
    assert!(fix.contains(insert) && !fix.contains("other"), "{fix}");
    assert!(
        fix.contains("nft delete rule inet guard entry handle"),
        "{fix}"
    );
    facts.chains.push(chain("iptables filter", ""));
    let fix = &judge(&facts)[0].fix;
    assert!(fix.contains("does not undo a drop in another"), "{fix}");
    assert!(
        fix.contains("`iptables -t filter -I INPUT -d 239.192.0.7 -p udp"),
        "{fix}"
    );
}

#[test]
fn a_peer_that_does_not_hear_is_a_finding_here_too() {
    let mut facts = facts();
    facts.frames.clear();
    facts.heard = vec![Heard {
        name: "vm".to_owned(),
        source: [10, 0, 0, 2].into(),
        interface: "e0".to_owned(),
        hops: (1, Some(1)),
        count: 25,
        first: Duration::ZERO,
        last: facts.lasted,
        is_self: false,
        token: 2,
    }];
    let word = PeerWord {
        name: "vm".to_owned(),
        group: facts.group,
        hops: 1,
        source: Some([10, 0, 0, 2].into()),
        interface: "e0".to_owned(),
        refusal: None,
        hears_us: true,
        routers: Some(0),
        token: 2,
        times: 25,
    };
    let judged = |facts: &mut Facts, word: PeerWord| {
        facts.peers = vec![PeerFacts {
            address: "10.0.0.2:7702".parse().unwrap(),
            word: Some(word),
        }];
        judge(facts)
    };
    assert!(judged(&mut facts, word.clone()).is_empty());
    let deaf = PeerWord {
        hears_us: false,
        ..word
    };
    let found = judged(&mut facts, deaf.clone());
    assert_eq!(found[0].cause, Cause::PeerDoesNotHear);
    assert!(
        found[0].words.contains("vm reports that it does not hear"),
        "{found:?}"
    );
    // Just begun, it could not have heard; behind a router, the TTL explains it.
    let begun = PeerWord {
        times: 1,
        ..deaf.clone()
    };
    assert!(judged(&mut facts, begun).is_empty());
    let far = PeerWord {
        routers: Some(1),
        ..deaf
    };
    let found = judged(&mut facts, far);
    assert_eq!(found[0].cause, Cause::TtlTooLow);
    assert!(
        found[0].fix.contains("--hops 2 or more on this host"),
        "{found:?}"
    );
}

#[test]
fn silence_says_what_was_not_looked_at() {
    let mut facts = facts();
    facts.frames.clear();
    facts.sees_wire = false;
    let found = judge(&facts);
    assert_eq!(found[0].cause, Cause::NobodySends);
    assert!(found[0].words.contains("CAP_NET_RAW"), "{found:?}");
    facts.has_route = false;
    assert_eq!(judge(&facts)[1].cause, Cause::MissingRoute);
}
