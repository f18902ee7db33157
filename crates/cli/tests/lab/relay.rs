//! `towline relay` between networks that have no route to each other: files proven and messages in
//! order behind it, with loss on both sides, and what that costs the network of the sender.

use std::{fs, path::Path, time::Duration};

use lab::{Host, Lab, LabSpec, isolated};
use serde_json::Value;

use crate::{
    ends::{End, alone, assert_complete, towline},
    schema_kit::check_schema,
    siege::key_of,
    signals::Place,
};

const LIMIT: Duration = Duration::from_secs(120);
/// The sender's network is the cable `e1`, that of the receivers the switch, `e0`.
pub(crate) const NEAR: &str = "239.192.0.1@e1:7500";
pub(crate) const FAR: &str = "239.192.0.1@e0:7500";

/// A sender on host 0, a relay on host 1, and `receivers` more hosts on the relay's other side.
pub(crate) fn two_networks(receivers: u8) -> Lab {
    let lab = Lab::new(&LabSpec::new(2 + receivers)).unwrap();
    lab.add_cable(0, 1).unwrap();
    lab.unplug(0).unwrap();
    lab
}

pub(crate) fn relay(host: &Host, words: &str) -> End {
    let relay = End::start(towline(host, &format!("relay {words} --json")));
    relay.await_session();
    relay
}

/// Ends a relay, which is no failure, and reads its report.
pub(crate) fn end(relay: End) -> Value {
    relay.signal("-INT");
    let (status, text) = relay.finish(LIMIT);
    assert_eq!(status.code(), Some(0), "{text}");
    check_schema(&text).1
}

/// A tree of `bytes` bytes in files of 1 MB, in `place`.
fn make_tree(place: &Place, bytes: usize) {
    let root = place.file("tree");
    let root = Path::new(&root);
    fs::create_dir_all(root).unwrap();
    let mut state = 1_u64;
    for number in 0..bytes.div_ceil(1_000_000) {
        let content: Vec<u8> = (0..125_000)
            .flat_map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                state.to_be_bytes()
            })
            .collect();
        fs::write(root.join(number.to_string()), content).unwrap();
    }
}

/// Sends the tree in `place` from `host`; the receivers on the hosts from 2 on lose 1 % of what
/// reaches them. Returns the sender's report, and checks theirs.
fn send_tree(lab: &Lab, place: &Place, group: &str, sender_is: &str) -> Value {
    let receivers: Vec<End> = (2..lab.hosts().len())
        .map(|number| {
            let directory = place.file(&number.to_string());
            let words = format!(
                "recv {directory} -g {FAR} --from {sender_is} --json \
                 --faults loss=1%,seed={number}"
            );
            let receiver = End::start(towline(lab.host(number), &words));
            receiver.await_session();
            receiver
        })
        .collect();
    let words = format!(
        "send {} -g {group} --receivers {} --json",
        place.file("tree"),
        receivers.len()
    );
    let sent = End::start(towline(lab.host(0), &words)).report(LIMIT);
    assert_eq!(sent["is_proven"], true, "{sent:#}");
    for (number, receiver) in (2..).zip(receivers) {
        let report = receiver.report(LIMIT);
        assert_eq!(report["is_complete"], true, "{report:#}");
        assert_eq!(report["root"], sent["root"]);
        fs::remove_dir_all(place.file(&number.to_string())).unwrap();
    }
    sent
}

fn counter(report: &Value, name: &str) -> u64 {
    report["counters"][name].as_u64().unwrap_or(0)
}

#[test]
fn a_tree_is_proven_behind_a_relay_and_each_loss_before_it_is_repaired_about_once() {
    alone(|| {
        let (lab, place) = (two_networks(3), Place::new("relay-tree"));
        make_tree(&place, 40_000_000);
        let relay = relay(
            lab.host(1),
            &format!("{NEAR} {FAR} --faults loss=1%,seed=9"),
        );
        let from = lab.host(1).ipv4().to_string();
        let sent = send_tree(&lab, &place, NEAR, &from);
        let report = end(relay);
        assert_eq!(report["sessions"], 1, "{report:#}");
        assert_eq!(report["receivers"], 3, "{report:#}");
        // Repairs go out once at most for what was lost before the relay, and for a few of which
        // the repair was lost there too. What was lost behind it the relay repairs by itself.
        let sent_packets = counter(&sent, "source.odata_packets");
        let lost = sent_packets - counter(&report, "element.odata_forwarded");
        let repairs = counter(&sent, "source.rdata_packets");
        let kept = counter(&report, "element.rdata_kept");
        println!("{lost} of {sent_packets} lost before the relay: {repairs} repairs, {kept} kept");
        assert!(lost * 100 > sent_packets / 2 && kept > lost, "{report:#}");
        assert!(repairs * 10 <= lost * 12, "{repairs} for {lost}: {sent:#}");
    });
}

#[test]
#[ignore = "measures, and needs the machine for itself"]
fn the_rate_behind_a_relay_beside_that_without_one() {
    alone(|| {
        let place = Place::new("relay-rate");
        make_tree(&place, 220_000_000);
        let seconds = |sent: &Value| sent["seconds"].as_f64().unwrap();
        let mut ratios = Vec::new();
        for _ in 0..3 {
            let direct = Lab::new(&LabSpec::new(5)).unwrap();
            let from = direct.host(0).ipv4().to_string();
            let alone = send_tree(&direct, &place, FAR, &from);
            drop(direct);
            let lab = two_networks(3);
            let relay = relay(
                lab.host(1),
                &format!("{NEAR} {FAR} --faults loss=1%,seed=9"),
            );
            let from = lab.host(1).ipv4().to_string();
            let relayed = send_tree(&lab, &place, NEAR, &from);
            drop(end(relay));
            let ratio = seconds(&alone) / seconds(&relayed);
            println!(
                "220 MB to 3 receivers: {:.2} s without a relay, {:.2} s with: {ratio:.2} of \
                 the rate",
                seconds(&alone),
                seconds(&relayed)
            );
            ratios.push(ratio);
        }
        ratios.sort_by(f64::total_cmp);
        println!("median {:.2}", ratios[1]);
    });
}

#[test]
fn messages_pass_a_relay_in_order_with_their_reports() {
    isolated(|| {
        let lab = two_networks(3);
        let relay = relay(
            lab.host(1),
            &format!("{NEAR} {FAR} --faults loss=1%,seed=5"),
        );
        let receivers: Vec<End> = (2..5)
            .map(|number| {
                let words = format!(
                    "load recv -g {FAR} --json --count 20000 --timeout 20s \
                     --faults loss=1%,seed={number}"
                );
                End::start(towline(lab.host(number), &words))
            })
            .collect();
        receivers.iter().for_each(End::await_session);
        let words = format!(
            "load send -g {NEAR} --json --receivers 3 --timeout 20s --count 20000 --size 1-3000"
        );
        let sent = End::start(towline(lab.host(0), &words)).report(LIMIT);
        assert_eq!(sent["is_confirmed"], true, "{sent:#}");
        for receiver in receivers {
            assert_complete(&receiver.report(LIMIT), 20_000);
        }
        let report = end(relay);
        assert_eq!(report["receivers"], 3, "{report:#}");
        assert!(report["repairs_kept"].as_u64() > Some(0), "{report:#}");
    });
}

#[test]
fn sessions_go_both_ways_through_a_tunnel_of_two_relays() {
    isolated(|| {
        // Host 0 - e1 - host 1 - e0, unicast alone - host 2 - e1 - host 3.
        let lab = Lab::new(&LabSpec::new(4)).unwrap();
        lab.add_cable(0, 1).unwrap();
        lab.add_cable(2, 3).unwrap();
        for end in [0, 3] {
            lab.unplug(end).unwrap();
        }
        let (one, other) = (lab.host(1).ipv4(), lab.host(2).ipv4());
        let relays = [
            relay(
                lab.host(1),
                &format!("{NEAR} {other} --faults loss=1%,seed=1"),
            ),
            relay(
                lab.host(2),
                &format!("{NEAR} {one} --faults loss=1%,seed=2"),
            ),
        ];
        for (from, to) in [(0, 3), (3, 0)] {
            let words = format!("load recv -g {NEAR} --json --count 5000 --timeout 20s");
            let receiver = End::start(towline(lab.host(to), &words));
            receiver.await_session();
            let words = format!(
                "load send -g {NEAR} --json --receivers 1 --timeout 20s --count 5000 --size 1-3000"
            );
            let sent = End::start(towline(lab.host(from), &words)).report(LIMIT);
            assert_eq!(sent["is_confirmed"], true, "{sent:#}");
            assert_complete(&receiver.report(LIMIT), 5_000);
        }
        for relay in relays {
            let report = end(relay);
            assert_eq!(report["sessions"], 2, "{report:#}");
            assert_eq!(report["receivers"], 2, "{report:#}");
        }
    });
}

#[test]
fn a_session_with_a_key_is_not_carried_and_the_relay_says_so() {
    isolated(|| {
        let (lab, place) = (two_networks(1), Place::new("relay-key"));
        let key = key_of(&place);
        let relay = relay(lab.host(1), &format!("{NEAR} {FAR}"));
        let words = format!("load send -g {NEAR} --json --count 1 --timeout 2s {key}");
        let sender = End::start(towline(lab.host(0), &words));
        relay.await_said("a session has a key");
        drop(sender);
        let report = end(relay);
        assert_eq!(report["sessions"], 0, "{report:#}");
    });
}
