//! Messages to several receivers that lose different packets, with parity and without.

use std::time::Duration;

use lab::{Lab, LabSpec};

use crate::ends::{End, alone, assert_complete, towline};

const GROUP: &str = "239.192.0.1:7500";
const LIMIT: Duration = Duration::from_secs(300);
const COUNT: u64 = 100_000;

/// The sender's counters after every one of three receivers, each of which loses 5 % of its own,
/// has everything; and how much each of them recovered.
fn transfer(lab: &Lab, words: &str) -> (serde_json::Value, Vec<u64>) {
    let receive = format!("load recv -g {GROUP} --json --count {COUNT} --timeout 60s");
    let hosts = lab.hosts()[1..].iter();
    let ends: Vec<_> = hosts
        .map(|host| End::start(towline(host, &receive)))
        .collect();
    let send =
        format!("load send -g {GROUP} --json --receivers 3 --policy wait --count {COUNT} {words}");
    let sent = End::start(towline(lab.host(0), &send)).report(LIMIT);
    let recovered = ends.into_iter().map(|end| {
        let report = end.report(LIMIT);
        assert_complete(&report, COUNT);
        report["counters"]["receiver.recovered_sqns"]
            .as_u64()
            .unwrap()
    });
    let recovered = recovered.collect();
    assert_eq!(sent["is_confirmed"], true);
    (sent["counters"].clone(), recovered)
}

/// Four hosts whose switch segments runs, so that loss hits single packets.
fn lossy_lab() -> Lab {
    let lab = Lab::new(&LabSpec::new(4).segments_at_switch()).unwrap();
    for host in &lab.hosts()[1..] {
        host.set_loss(5, 100).unwrap();
    }
    lab
}

#[test]
fn packets_that_messages_share_and_pieces_of_messages_are_recovered() {
    alone(|| {
        let lab = lossy_lab();
        let words = "--size 1-4000 --pack --fec-group 32 --fec-proactive 1 --rate 40MB/s";
        let (sent, recovered) = transfer(&lab, words);
        assert!(
            recovered.iter().all(|&count| count > 1_000),
            "{recovered:?}"
        );
        let count = |name: &str| sent[name].as_u64().unwrap();
        assert!(count("source.packed") > 0 && count("source.fragmented") > 0);
        assert!(count("source.parity_unasked") > 0);
    });
}

#[test]
fn parity_repairs_three_receivers_with_fewer_packets() {
    alone(|| {
        let lab = lossy_lab();
        let (plain, recovered) = transfer(&lab, "--size 1400");
        assert_eq!(recovered, [0; 3]);
        let (parity, recovered) = transfer(&lab, "--size 1400 --fec-group 64");
        assert!(
            recovered.iter().all(|&count| count > 2_000),
            "{recovered:?}"
        );
        let repairs = |counters: &serde_json::Value| {
            let count = |name: &str| counters[name].as_u64().unwrap();
            count("source.rdata_packets") + count("source.parity_packets")
        };
        let (plain, parity) = (repairs(&plain), repairs(&parity));
        assert!(parity < plain, "{parity} with parity, {plain} without");
    });
}
