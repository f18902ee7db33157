//! Messages from one sender to three receivers under loss, and when a receiver fails.

use std::{thread, time::Duration};

use lab::{Lab, LabSpec};
use serde_json::Value;

use crate::{
    addresses::{address, at_each_kind},
    ends::{End, alone, assert_complete, towline},
};

const GROUP: &str = "239.192.0.1:7500";
const LIMIT: Duration = Duration::from_secs(300);
/// How long a counter must stay the same to count as still.
const STILL_TIME: Duration = Duration::from_secs(1);

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
    alone(|| {
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
fn two_senders_of_one_host_and_port_repair_for_the_same_receivers() {
    alone(|| {
        let lab = lossy_lab(5);
        let ends = receivers(&lab, "--count 40000 --timeout 60s");
        let words = format!(
            "load send -g {GROUP} --json --receivers 3 --policy wait --count 20000 --size 1000-2000"
        );
        let senders = [(); 2].map(|()| End::start(towline(lab.host(0), &words)));
        for sender in senders {
            let sent = sender.report(LIMIT);
            assert_eq!(sent["is_confirmed"], true, "{sent:#}");
            let asked = sent["counters"]["source.naks"].as_u64();
            assert!(asked.is_some_and(|naks| naks > 100), "{sent:#}");
        }
        for end in ends {
            assert_complete(&end.report(LIMIT), 40_000);
        }
    });
}

#[test]
fn messages_that_share_packets_all_come_in_order_under_loss() {
    alone(|| {
        let lab = lossy_lab(5);
        let ends = receivers(&lab, "--count 300000 --timeout 60s");
        let words = format!(
            "load send -g {GROUP} --json --receivers 3 --policy wait --count 300000 --size 1-400 \
             --pack"
        );
        let sent = End::start(towline(lab.host(0), &words)).report(LIMIT);
        for end in ends {
            let report = end.report(LIMIT);
            assert_complete(&report, 300_000);
            let repairs = report["counters"]["receiver.rdata_packets"].as_u64();
            assert!(repairs.is_some_and(|repairs| repairs > 500), "{report:#}");
        }
        assert_eq!(sent["is_confirmed"], true);
        let count = |name: &str| sent["counters"][name].as_u64().unwrap();
        assert_eq!(count("source.packed"), 300_000);
        // Messages of 200 bytes on average: seven share a packet.
        assert!(count("source.odata_packets") < 100_000, "{sent:#}");
    });
}

#[test]
fn a_receiver_that_stops_holds_the_others_back_until_it_dies() {
    alone(|| {
        let lab = lossy_lab(1);
        let mut ends = receivers(&lab, "--count 150000 --timeout 60s");
        let words = format!(
            "load send -g {GROUP} --json --receivers 3 --policy wait --count 150000 \
             --size 1000-9000"
        );
        let sender = End::start(towline(lab.host(0), &words));
        sender.await_counter("source.odata_packets", 1_000);
        let victim = ends.pop().unwrap();
        victim.signal("-STOP");
        // Once the window is full nothing new leaves, for however long; the others have that much.
        sender.await_stillness("source.odata_packets", STILL_TIME);
        let held = sender.counter("source.odata_packets").unwrap();
        for end in &ends {
            end.await_stillness("receiver.odata_packets", STILL_TIME);
        }
        assert_eq!(sender.counter("source.odata_packets"), Some(held));
        victim.signal("-KILL");
        drop(victim);
        let sent = sender.report(LIMIT);
        assert_eq!(sent["messages"], 150_000);
        let all = sent["counters"]["source.odata_packets"].as_u64().unwrap();
        assert!(held < all, "{held} of {all} packets while one stood still");
        for end in ends {
            assert_complete(&end.report(LIMIT), 150_000);
        }
    });
}

/// One receiver does not report, and one is 40 ms away and back.
#[test]
fn polls_count_all_receivers_and_find_the_farthest() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(4)).unwrap();
        let far = lab.lengthen(3, Duration::from_millis(20)).unwrap();
        let receive = format!("load recv -g {GROUP} --json --timeout 30s");
        let ends = ["", "--strict-pgm", ""].into_iter().zip(&lab.hosts()[1..]);
        let ends: Vec<End> = ends
            .map(|(more, host)| End::start(towline(host, &format!("{receive} {more}"))))
            .collect();
        ends.iter().for_each(End::await_session);
        // A count takes seven seconds.
        let words = format!(
            "load send -g {GROUP} --json --receivers 2 --count 400 --size 1400 --rate 50kB/s \
             --poll-interval 1s"
        );
        let sender = End::start(towline(lab.host(0), &words));
        sender.await_said("3 receivers found by polls, the longest round trip ");
        let sent = sender.report(LIMIT);
        let census = &sent["census"];
        assert_eq!(census["receivers"], 3, "{sent:#}");
        assert_eq!(census["is_complete"], true, "{sent:#}");
        let farthest = census["farthest_round_trip_ns"].as_u64().unwrap();
        assert!(farthest >= 40_000_000, "{sent:#}");
        assert_eq!(sent["receivers"], 2, "{sent:#}");
        drop((ends, far));
    });
}

#[test]
fn a_pub_that_knows_of_a_loss_exits_with_1_and_says_that_nothing_is_confirmed() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        at_each_kind(&lab, |_, from, to| {
            let victim = End::start(towline(lab.host(1), &format!("sub -g {from} --once")));
            // Eight seconds of messages, and a fifth of a second of history.
            let tool = env!("CARGO_BIN_EXE_towline");
            let mut command = lab.host(0).command("sh");
            let script = format!(
                "yes $(printf %0999d 7) | head -n 80000 | {tool} pub -g {to} --json --receivers 1 \
                 --policy lose --rate 10MB/s --tx-window-bytes 2MiB --timeout 20s"
            );
            command.args(["-c", &script]);
            let sender = End::start(command);
            victim.await_counter("receiver.odata_packets", 100);
            victim.signal("-STOP");
            thread::sleep(Duration::from_secs(2));
            victim.signal("-CONT");
            let (status, text) = sender.finish(LIMIT);
            let sent: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(sent["messages"], 80_000, "{to}: {sent:#}");
            assert_eq!(status.code(), Some(1), "{to}: {sent:#}");
            assert_eq!(sent["is_confirmed"], false, "{to}: {sent:#}");
            let (_, heard) = victim.finish(LIMIT);
            assert!(heard.lines().count() < 80_000, "{to}");
        });
    });
}

#[test]
fn sub_takes_messages_only_from_senders_that_are_named() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        at_each_kind(&lab, |_, from, to| {
            let own = address(lab.host(0), to);
            let listen = |host: usize, rule: &str| {
                let words = format!("sub -g {from} --from {rule}");
                let end = End::start(towline(lab.host(host), &words));
                end.await_session();
                end
            };
            let named = listen(1, &format!("{own} --count 1 --timeout 30s"));
            let other = listen(2, "10.9.9.9,fd00:9::9");
            let words = format!("pub -g {to} --receivers 1 hello");
            let (status, _) = End::start(towline(lab.host(0), &words)).finish(LIMIT);
            assert!(status.success(), "{to}");
            assert_eq!(named.finish(LIMIT).1, "hello\n", "{to}");
            other.signal("-TERM");
            assert_eq!(other.finish(LIMIT).1, "", "{to}");
        });
    });
}

#[test]
fn a_guest_that_stops_does_not_hold_an_expected_receiver_back_for_long() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        at_each_kind(&lab, |_, from, to| {
            let words = format!("load recv -g {from} --json --count 10000 --timeout 120s");
            let honest = End::start(towline(lab.host(1), &words));
            // Six seconds of messages; the window holds a small part of them.
            let words = format!(
                "load send -g {to} --json --receivers 1 --policy wait --count 10000 \
                 --size 1000-9000 --rate 8MB/s --tx-window-bytes 2MiB"
            );
            let sender = End::start(towline(lab.host(0), &words));
            sender.await_counter("source.odata_packets", 1_000);
            let words = format!("load recv -g {from} --json --timeout 120s");
            let guest = End::start(towline(lab.host(2), &words));
            guest.await_counter("reporter.reports", 1);
            guest.signal("-STOP");
            // It stays stopped, and its connection open: without a limit all would wait for 5
            // minutes.
            let report = honest.report(Duration::from_secs(120));
            assert_complete(&report, 10_000);
            sender.await_said("is not waited for any longer");
            guest.signal("-KILL");
            drop(guest);
            let sent = sender.report(LIMIT);
            assert_eq!(sent["messages"], 10_000, "{to}: {sent:#}");
            // It is waited for again for a while each time its account has shrunk.
            let passed_over = sent["counters"]["audience.passed_over"].as_u64().unwrap();
            assert!(passed_over > 0, "{to}: {sent:#}");
        });
    });
}

#[test]
fn a_receiver_that_stops_is_dropped_and_the_others_go_on() {
    alone(|| {
        let lab = lossy_lab(1);
        let mut ends = receivers(&lab, "--count 60000 --timeout 20s");
        let words = format!(
            "load send -g {GROUP} --json --receivers 3 --policy drop --count 60000 --size 1400 \
             --rate 20MB/s"
        );
        let sender = End::start(towline(lab.host(0), &words));
        thread::sleep(Duration::from_millis(700));
        let mut victim = ends.pop().unwrap();
        victim.signal("-STOP");
        // It stays stopped: that the sender comes to its end shows that nobody waits for it.
        let sent = sender.report(LIMIT);
        assert!(victim.is_running());
        assert_eq!(sent["messages"], 60_000);
        assert_eq!(sent["counters"]["audience.dropped"], 1, "{sent:#}");
        for end in ends {
            assert_complete(&end.report(LIMIT), 60_000);
        }
        // It is told as soon as it runs again, not when the sender's silence has lasted too long.
        victim.signal("-CONT");
        let report = victim.report(LIMIT);
        assert_eq!(report["senders"]["dropped"], 1, "{report:#}");
        assert_eq!(report["senders"]["expired"], 0, "{report:#}");
        assert!(report["messages"].as_u64().unwrap() < 60_000, "{report:#}");
    });
}

#[test]
fn a_receiver_that_stops_loses_and_is_told_how_much() {
    alone(|| {
        let lab = lossy_lab(1);
        let mut ends = receivers(&lab, "--count 60000 --timeout 20s");
        // 0.6 s of history at this rate, less than two on a busy machine; the stop lasts three.
        let words = format!(
            "load send -g {GROUP} --json --receivers 3 --policy lose --count 60000 --size 1400 \
             --rate 20MB/s --tx-window-bytes 12MiB --timeout 20s"
        );
        let sender = End::start(towline(lab.host(0), &words));
        thread::sleep(Duration::from_millis(700));
        let victim = ends.pop().unwrap();
        victim.signal("-STOP");
        thread::sleep(Duration::from_secs(3));
        victim.signal("-CONT");
        let (status, text) = sender.finish(LIMIT);
        let sent: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(sent["messages"], 60_000);
        // Two of three have everything: that is no confirmation.
        assert_eq!(status.code(), Some(1), "{sent:#}");
        assert_eq!(sent["is_confirmed"], false, "{sent:#}");
        for end in ends {
            assert_complete(&end.report(LIMIT), 60_000);
        }
        let report = victim.report(LIMIT);
        let count = |name: &str| report[name].as_u64().unwrap();
        assert!(count("missing") > 0, "{report:#}");
        assert_eq!(count("missing"), count("lost_packets"), "{report:#}");
        assert_eq!(count("messages") + count("missing"), 60_000, "{report:#}");
        assert_eq!(
            count("duplicates") + count("corrupt") + count("out_of_order"),
            0
        );
    });
}
