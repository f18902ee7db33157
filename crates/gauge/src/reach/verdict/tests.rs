//! Checks which findings follow from which observations.

use measure::Beacon;

use super::*;
use crate::reach::{Heard, InterfaceFacts, ReversePath, RuleChain, Unlisted, notes::LISTED_MAX};

fn facts() -> Facts {
    Facts {
        name: "here".to_owned(),
        group: "239.192.0.7:7500".parse().unwrap(),
        hops: 1,
        lasted: Duration::from_secs(5),
        interface: Some(InterfaceFacts {
            name: "e0".to_owned(),
            address: [10, 0, 0, 1].into(),
            prefix: Some(24),
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
        outgoing_chains: Vec::new(),
        has_reported: Some(true),
        unlisted: Unlisted::default(),
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
        bytes: 300,
    }];
    let word = PeerWord {
        name: "vm".to_owned(),
        group: facts.group,
        hops: 1,
        source: Some([10, 0, 0, 2].into()),
        interface: "e0".to_owned(),
        refusal: None,
        hears_us: Some(true),
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
        hears_us: Some(false),
        ..word
    };
    let found = judged(&mut facts, deaf.clone());
    assert_eq!(found[0].cause, Cause::PeerDoesNotHear);
    assert!(
        found[0].words.contains("vm reports that it does not hear"),
        "{found:?}"
    );
    // A host that has just begun cannot have heard us; behind a router the TTL explains it.
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
fn a_peer_on_another_interface_of_its_own_is_blamed_and_not_the_switch() {
    let mut facts = facts();
    facts.frames.clear();
    let mut judged = |source: [u8; 4], interface: &str, routers| {
        facts.peers = vec![PeerFacts {
            address: "10.0.0.2:7702".parse().unwrap(),
            word: Some(PeerWord {
                name: "vm".to_owned(),
                group: facts.group,
                hops: 1,
                source: Some(source.into()),
                interface: interface.to_owned(),
                refusal: None,
                hears_us: Some(false),
                routers,
                token: 2,
                times: 25,
            }),
        }];
        judge(&facts).remove(0)
    };
    for (source, interface) in [([127, 0, 0, 1], "lo"), ([192, 168, 5, 2], "e1")] {
        let found = judged(source, interface, Some(0));
        assert_eq!(found.cause, Cause::PeerElsewhere);
        assert!(found.words.contains(interface), "{found:?}");
        assert!(found.fix.contains("10.0.0.2"), "{found:?}");
    }
    // On this network, or behind a router, another address says nothing.
    let near = judged([10, 0, 0, 3], "e0", Some(0));
    assert_eq!(near.cause, Cause::SnoopingWithoutQuerier);
    let far = judged([192, 168, 5, 2], "e1", Some(1));
    assert_eq!(far.cause, Cause::TtlTooLow);
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

const OURS: u64 = 1_000;

/// The beacon that host `n` of many sends to this host.
fn beacon(n: u64, heard: (Vec<u64>, bool)) -> Beacon {
    Beacon {
        towline_reach: Beacon::VERSION,
        token: n,
        name: format!("host-{n}"),
        group: facts().group,
        hops: 1,
        interface: "e0".to_owned(),
        address: Some(address(n)),
        refusal: None,
        heard: heard.0,
        is_cut: heard.1,
        is_group: false,
    }
}

fn address(n: u64) -> IpAddr {
    [10, 0, 1 + (n / 200) as u8, 1 + (n % 200) as u8].into()
}

/// What this host observes when the user names `peers` and it hears `hosts` hosts through the
/// group.
fn among(hosts: u64, peers: impl Iterator<Item = u64>) -> Facts {
    let mut facts = facts();
    facts.frames.clear();
    facts.peers = peers
        .map(|n| PeerFacts {
            address: (address(n), 7_702).into(),
            word: None,
        })
        .collect();
    for n in 0..hosts {
        let group = Beacon {
            is_group: true,
            ..beacon(n, (Vec::new(), false))
        };
        let arrival = (address(n), "e0".to_owned(), Some(1));
        facts.hear((&group, 300), arrival, OURS, facts.lasted);
    }
    facts
}

fn told(facts: &mut Facts, beacon: &Beacon) {
    for _ in 0..WORDS_MIN {
        let from = (address(beacon.token), 7_702).into();
        facts.note(beacon, from, Some(Beacon::UNICAST_HOPS), OURS);
    }
}

#[test]
fn a_peer_that_hears_more_hosts_than_it_names_is_not_called_deaf() {
    let mut facts = among(50, 0..50);
    let others = |me: u64| (100..).filter(move |n| *n != me);
    for n in 0..50 {
        told(
            &mut facts,
            &beacon(n, (others(n).take(Beacon::HEARD_MAX).collect(), true)),
        );
    }
    assert_eq!(judge(&facts).len(), 0, "{:?}", judge(&facts));
    assert!(
        facts
            .peers
            .iter()
            .all(|peer| peer.word.as_ref().unwrap().hears_us.is_none())
    );

    // A host that names all that it hears, and not this host, does not hear this host.
    told(&mut facts, &beacon(7, (vec![100], false)));
    let found = judge(&facts);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].cause, Cause::PeerDoesNotHear);
}

#[test]
fn a_host_that_hears_many_tells_each_that_it_hears_it() {
    let facts = among(50, std::iter::empty());
    for n in 0..50 {
        let heard = facts.heard_for(address(n));
        assert_eq!(heard.0.len(), Beacon::HEARD_MAX);
        assert_eq!(beacon(OURS, heard).hears(n), Some(true), "{n}");
    }
    // A host that is not heard learns that this host hears more hosts than the list names.
    let heard = facts.heard_for(address(60));
    assert_eq!(beacon(OURS, heard).hears(60), None);

    // The token identifies a host that talks from one address and sends to the group from another.
    let mut facts = facts;
    let elsewhere = "10.7.7.7:7702".parse().unwrap();
    facts.note(&beacon(49, (Vec::new(), false)), elsewhere, None, OURS);
    assert_eq!(facts.heard_for(elsewhere.ip()).0[0], 49);
}

#[test]
fn hosts_beyond_those_that_are_listed_are_counted_and_not_accused() {
    let hosts = LISTED_MAX as u64 + 10;
    let peer = hosts - 1;
    let mut facts = among(hosts, std::iter::once(peer));
    assert_eq!((facts.heard.len(), facts.unlisted.heard), (LISTED_MAX, 10));
    told(&mut facts, &beacon(peer, (vec![OURS], false)));
    facts.frames.push(Frames {
        interface: "e0".to_owned(),
        source: address(peer),
        port: 7_500,
        hops_left: 1,
        count: 25,
    });
    assert_eq!(judge(&facts).len(), 0, "{:?}", judge(&facts));
    for n in 0..hosts {
        facts.note(
            &beacon(n, (vec![OURS], false)),
            (address(n), 7_702).into(),
            None,
            OURS,
        );
    }
    assert_eq!((facts.peers.len(), facts.unlisted.peers), (LISTED_MAX, 10));
}

#[test]
fn hosts_of_one_name_are_told_apart_by_their_addresses() {
    let mut facts = facts();
    let word = |token, last| PeerWord {
        name: "vm".to_owned(),
        group: facts.group,
        hops: 1,
        source: Some([10, 0, 0, last].into()),
        interface: "e0".to_owned(),
        refusal: None,
        hears_us: Some(true),
        routers: Some(0),
        token,
        times: 25,
    };
    let words = [word(2, 2), word(3, 3)];
    facts.peers = words
        .iter()
        .zip([2, 3])
        .map(|(word, last)| PeerFacts {
            address: ([10, 0, 0, last], 7_501).into(),
            word: Some(word.clone()),
        })
        .collect();
    let called = |facts: &Facts| [0, 1].map(|nth: usize| facts.called(&words[nth]));
    assert_eq!(called(&facts), ["vm (10.0.0.2)", "vm (10.0.0.3)"]);
    facts.peers.pop();
    assert_eq!(called(&facts)[0], "vm");
    facts.name = "vm".to_owned();
    assert_eq!(called(&facts)[0], "vm (10.0.0.2)");
}
