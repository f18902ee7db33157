//! Messages from one sender to three receivers under loss, and when a receiver fails.

use std::{thread, time::Duration};

use lab::{Lab, LabSpec, isolated};

use crate::ends::{End, assert_complete, towline};

const GROUP: &str = "239.192.0.1:7500";
const LIMIT: Duration = Duration::from_secs(300);

/// Four hosts whose switch segments runs, so that loss hits single packets.
fn lossy_lab(percent: u32) -> Lab {
    let lab = Lab::new(&LabSpec::new(4).segments_at_switch()).unwrap();
    for host in &lab.hosts()[1..] {
        host.set_loss(percent, 100).unwrap();
    }
    lab
}

fn receivers(lab: &Lab, words: &str) -> Vec<End> {
    let hosts = lab.hosts()[1..].iter();
    hosts
        .map(|host| {
            End::start(towline(
                host,
                &format!("load recv -g {GROUP} --json {words}"),
            ))
        })
        .collect()
}

#[test]
fn all_receive_all_in_order_under_loss() {
    isolated(|| {
        let lab = lossy_lab(5);
        let ends = receivers(&lab, "--count 200000 --timeout 60s");
        let words = format!(
            "load send -g {GROUP} --json --receivers 3 --policy wait --count 200000 --size 1-20000"
        );
        let sent = End::start(towline(lab.host(0), &words)).report(LIMIT);
        for end in ends {
            let report = end.report(LIMIT);
            assert_complete(&report, 200_000);
            assert!(
                report["counters"]["receiver.rdata_packets"]
                    .as_u64()
                    .unwrap()
                    > 1_000
            );
        }
        assert_eq!(sent["messages"], 200_000);
        assert_eq!(sent["is_confirmed"], true);
    });
}

#[test]
fn a_receiver_that_stops_holds_the_others_back_until_it_dies() {
    isolated(|| {
        let lab = lossy_lab(1);
        let mut ends = receivers(&lab, "--count 150000 --timeout 60s");
        let words = format!(
            "load send -g {GROUP} --json --receivers 3 --policy wait --count 150000 \
             --size 1000-9000"
        );
        let sender = End::start(towline(lab.host(0), &words));
        thread::sleep(Duration::from_millis(700));
        let victim = ends.pop().unwrap();
        victim.signal("-STOP");
        // Long enough for the window to fill: the policy says that all wait.
        thread::sleep(Duration::from_secs(2));
        victim.signal("-KILL");
        drop(victim);
        let sent = sender.report(LIMIT);
        assert_eq!(sent["messages"], 150_000);
        for end in ends {
            assert_complete(&end.report(LIMIT), 150_000);
        }
    });
}

#[test]
fn a_stopped_receiver_is_dropped_or_loses_as_the_policy_says() {
    isolated(|| {
        for policy in ["drop", "lose"] {
            let lab = lossy_lab(1);
            let mut ends = receivers(&lab, "--count 60000 --timeout 60s");
            let words = format!(
                "load send -g {GROUP} --json --receivers 3 --policy {policy} --count 60000 \
                 --size 1400 --rate 20MB/s --timeout 60s"
            );
            let sender = End::start(towline(lab.host(0), &words));
            thread::sleep(Duration::from_millis(700));
            let victim = ends.pop().unwrap();
            victim.signal("-STOP");
            let sent = sender.report(LIMIT);
            assert_eq!(sent["messages"], 60_000, "{policy}");
            for end in ends {
                assert_complete(&end.report(LIMIT), 60_000);
            }
        }
    });
}
