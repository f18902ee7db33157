//! Frames to receivers behind a switch that loses packets.

use std::time::Duration;

use lab::{Lab, LabSpec};
use serde_json::Value;

use crate::ends::{End, alone, towline};

const GROUP: &str = "239.192.0.1:7500";
const LIMIT: Duration = Duration::from_secs(60);

/// Sends frames to two receivers, each of which loses `lost` of 1000 packets. Returns the sender's
/// report and those of the receivers.
fn transfer(lost: u32, words: &str) -> (Value, Vec<Value>) {
    let lab = Lab::new(&LabSpec::new(3).segments_at_switch()).unwrap();
    let receive = format!("frames recv -g {GROUP} --json --fail-on none");
    let receivers: Vec<_> = lab.hosts()[1..]
        .iter()
        .map(|host| {
            if lost > 0 {
                host.set_loss(lost, 1000).unwrap();
            }
            let end = End::start(towline(host, &receive));
            end.await_session();
            end
        })
        .collect();
    let send = format!("frames send -g {GROUP} --json --receivers 2 {words}");
    let sent = End::start(towline(lab.host(0), &send)).report(LIMIT);
    let received = receivers.into_iter().map(|end| end.report(LIMIT));
    let received = received.collect();
    (sent, received)
}

/// Returns the number under these keys.
fn number<const N: usize>(report: &Value, keys: [&str; N]) -> u64 {
    let value = keys.iter().fold(report, |at, key| &at[key]);
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{keys:?}: {report}"))
}

/// Checks that every frame of the sender is accounted for at a receiver, and none is damaged.
fn assert_accounted(sent: &Value, received: &Value) {
    let causes = ["network", "socket_buffer", "late", "overrun", "refused"];
    let lost = causes.map(|cause| number(received, ["lost", cause]));
    let lost: u64 = lost.iter().sum();
    let numbered = number(sent, ["frames"]) + number(sent, ["overrun"]);
    assert_eq!(number(received, ["frames"]) + lost, numbered, "{received}");
    assert_eq!(number(received, ["frames_sent"]), numbered);
    assert_eq!(
        number(received, ["lost", "overrun"]),
        number(sent, ["overrun"])
    );
    assert_eq!(number(received, ["damaged"]), 0);
    assert_eq!(received["is_end_known"], true);
}

#[test]
fn every_frame_is_whole_or_accounted_for_and_lost_packets_are_repaired() {
    alone(|| {
        // The size leaves room for programs without optimisation on a machine that does other work.
        let words = "--size 100kB --fps 10 --count 30 --deadline 2s";
        let (sent, received) = transfer(20, words);
        assert_eq!(number(&sent, ["frames"]) + number(&sent, ["overrun"]), 30);
        for report in &received {
            assert_accounted(&sent, report);
            assert!(number(report, ["frames"]) > 0, "{report}");
            assert!(number(report, ["repaired"]) > 0, "{report}");
            assert_eq!(
                number(report, ["counters", "receiver.lost_sqns"]),
                0,
                "{report}"
            );
        }
        assert!(number(&sent, ["counters", "source.rdata_packets"]) > 0);
    });
}

#[test]
fn a_frame_that_is_longer_than_a_receiver_takes_is_refused_and_counted() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let words = format!("frames recv -g {GROUP} --json --fail-on none --max-frame 50kB");
        let end = End::start(towline(lab.host(1), &words));
        end.await_session();
        let words = format!("frames send -g {GROUP} --json --size 60kB --fps 50 --count 10");
        let sent = End::start(towline(lab.host(0), &words)).report(LIMIT);
        let (_, received) = end.finish(LIMIT);
        let received: Value = serde_json::from_str(&received).unwrap();
        assert_accounted(&sent, &received);
        assert_eq!(
            number(&received, ["lost", "refused"]),
            number(&sent, ["frames"])
        );
    });
}

#[test]
fn frames_leave_only_while_somebody_listens() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let words =
            format!("frames send -g {GROUP} --json --receivers 0 --size 10kB --fps 50 --count 20");
        let sent = End::start(towline(lab.host(0), &words)).report(LIMIT);
        assert_eq!(number(&sent, ["unheard"]), 20);
        assert_eq!(number(&sent, ["frames"]), 0);
        // Only the word that there were no frames.
        assert!(number(&sent, ["counters", "source.odata_packets"]) <= 1);
    });
}
