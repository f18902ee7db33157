//! Frames to receivers behind a switch that loses packets.

use std::{
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabSpec};
use serde_json::Value;

use crate::{
    ends::{End, alone, towline},
    schema_kit::check_schema,
};

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

/// Sends the same frames over two networks, and cuts the one at the switch for a while. `words`
/// name both networks to both ends.
fn cut_one_of_two(words: &str, size: &str, frames: u64, cut: Duration) -> (Value, Value) {
    let lab = Lab::new(&LabSpec::new(2)).unwrap();
    lab.add_cable(0, 1).unwrap();
    let receive = format!("frames recv {words} --json");
    let receiver = End::start(towline(lab.host(1), &receive));
    receiver.await_session();
    let send = format!(
        "frames send {words} --json --size {size} --fps 20 --deadline 500ms --count {frames}"
    );
    let sender = End::start(towline(lab.host(0), &send));
    receiver.await_counter("frame_arbiter.frames_whole", 20);
    lab.unplug(0).unwrap();
    thread::sleep(cut);
    lab.plug(0).unwrap();
    let sent = sender.finish(LIMIT).1;
    // Without a lost frame it ends well.
    let received = receiver.report(LIMIT);
    assert_eq!(check_schema(&sent).0, "frames-send");
    let received = check_schema(&received.to_string()).1;
    (serde_json::from_str(&sent).unwrap(), received)
}

/// Checks that no frame is missing, and that the feed at `cut` alone lost some.
fn assert_cut_alone(sent: &Value, received: &Value, frames: u64, cut: usize) {
    assert_eq!(number(sent, ["frames"]), frames, "{sent}");
    assert_accounted(sent, received);
    assert_eq!(number(received, ["frames"]), frames, "{received}");
    let feeds = [0, 1].map(|index| &received["feeds"][index]);
    let of = |index: usize, name| number(feeds[index], [name]);
    let lost = |index: usize| of(index, "saved") + of(index, "lost");
    assert!(of(cut, "saved") > 20, "{received}");
    assert_eq!((of(cut, "lost"), lost(1 - cut)), (0, 0), "{received}");
    assert_eq!(of(0, "first") + of(1, "first"), frames);
    assert!(of(1 - cut, "only") >= of(cut, "saved"), "{received}");
    let is_dead = [0, 1].map(|index| feeds[index]["is_dead"].as_bool());
    assert_eq!(is_dead, [Some(false); 2], "both are back: {received}");
    // Both feeds have told of every frame: the one that was cut has come back.
    for index in [0, 1] {
        let whole = of(index, "first") + of(index, "second") + of(index, "late");
        let told = whole + lost(index);
        // The last frames may still be on their way by the feed that ends later.
        assert!((frames - 2..=frames).contains(&told), "{received}");
        // Without a carrier, a feed has no room for frames after a while; they are numbered.
        let feed = &sent["feeds"][index];
        let numbered = number(feed, ["frames"]) + number(feed, ["overrun"]);
        assert_eq!(numbered, frames, "{sent}");
    }
    assert_eq!(number(received, ["senders", "found"]), 1);
    assert_eq!(number(received, ["senders", "ended"]), 1);
}

const FIRST: &str = "-g 239.192.0.1@e0:7500 --also 239.192.0.2@e1";
const SECOND: &str = "-g 239.192.0.2@e1:7500 --also 239.192.0.1@e0";

#[test]
fn one_of_two_feeds_is_cut_and_no_frame_is_lost() {
    alone(|| {
        let (sent, received) = cut_one_of_two(FIRST, "50kB", 160, Duration::from_secs(2));
        assert_cut_alone(&sent, &received, 160, 0);
    });
}

#[test]
fn the_other_of_two_feeds_is_cut_and_no_frame_is_lost() {
    alone(|| {
        let (sent, received) = cut_one_of_two(SECOND, "50kB", 160, Duration::from_secs(2));
        assert_cut_alone(&sent, &received, 160, 1);
    });
}

/// The bar: images of 2.8 MB, 20 a second.
#[test]
#[ignore = "takes half a minute, and needs the machine for itself"]
fn one_of_two_feeds_of_images_is_cut_for_five_seconds_and_no_frame_is_lost() {
    alone(|| {
        for (words, cut) in [(FIRST, 0), (SECOND, 1)] {
            let time = Duration::from_secs(5);
            let (sent, received) = cut_one_of_two(words, "1360x1024x2", 240, time);
            println!("feeds {:#}", received["feeds"]);
            assert_accounted(&sent, &received);
            assert_eq!(number(&received, ["frames"]), 240, "{received}");
            let feeds = [0, 1].map(|index| &received["feeds"][index]);
            assert!(number(feeds[cut], ["saved"]) > 60, "{received}");
            assert_eq!(feeds.map(|feed| number(feed, ["lost"])), [0, 0]);
        }
    });
}

#[test]
fn a_feed_that_stays_cut_is_told_as_dead_and_holds_no_end_up() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        lab.add_cable(0, 1).unwrap();
        let receiver = End::start(towline(lab.host(1), &format!("frames recv {FIRST} --json")));
        receiver.await_session();
        let timeout = Duration::from_secs(45);
        let words = "--json --size 50kB --fps 20 --count 100 --timeout 45s";
        let begun = Instant::now();
        let sender = End::start(towline(
            lab.host(0),
            &format!("frames send {FIRST} {words}"),
        ));
        receiver.await_counter("frame_arbiter.frames_whole", 20);
        lab.unplug(0).unwrap();
        let sent = sender.report(LIMIT);
        assert!(begun.elapsed() < timeout, "the cut feed was waited for");
        let received = receiver.report(LIMIT);
        assert_eq!(number(&sent, ["frames"]), 100);
        assert_accounted(&sent, &received);
        assert_eq!(number(&received, ["frames"]), 100);
        assert_eq!(received["feeds"][0]["is_dead"], true, "{received}");
        assert_eq!(received["feeds"][1]["is_dead"], false, "{received}");
        assert!(number(&received["feeds"][1], ["only"]) > 50, "{received}");
    });
}

#[test]
fn a_sender_with_one_network_left_begins_and_ends_on_it() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        lab.add_cable(0, 1).unwrap();
        lab.unplug(0).unwrap();
        let receiver = End::start(towline(lab.host(1), &format!("frames recv {FIRST} --json")));
        receiver.await_session();
        let words = "--json --size 50kB --fps 20 --count 20";
        let sent = End::start(towline(
            lab.host(0),
            &format!("frames send {FIRST} {words}"),
        ));
        let sent = sent.report(LIMIT);
        let received = receiver.report(LIMIT);
        assert_eq!(number(&sent, ["frames"]), 20);
        assert_accounted(&sent, &received);
        assert_eq!(number(&received, ["frames"]), 20);
        assert_eq!(number(&received["feeds"][1], ["first"]), 20);
    });
}

/// A receiver's misfortune in the middle of a transfer to two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Misfortune {
    /// It stands still for so long, and goes on.
    Stops(Duration),
    /// It is killed, and another is started.
    Restarts,
}

/// Sends frames to two receivers, of which the second has a misfortune. Returns the sender's report
/// and those of the receivers at the end.
fn beside(misfortune: Misfortune) -> (Value, [Value; 2]) {
    let lab = Lab::new(&LabSpec::new(3)).unwrap();
    let start = |host: usize| {
        let words = format!("frames recv -g {GROUP} --json --fail-on none");
        let end = End::start(towline(lab.host(host), &words));
        end.await_session();
        end
    };
    let (first, mut second) = (start(1), start(2));
    let words = "--json --receivers 2 --size 100kB --fps 10 --count 120 --deadline 1s";
    let send = format!("frames send -g {GROUP} {words}");
    let sender = End::start(towline(lab.host(0), &send));
    second.await_counter("frame_receiver.frames_whole", 10);
    match misfortune {
        Misfortune::Stops(time) => {
            second.signal("-STOP");
            thread::sleep(time);
            second.signal("-CONT");
        }
        Misfortune::Restarts => {
            second.signal("-KILL");
            thread::sleep(Duration::from_secs(1));
            second = start(2);
        }
    }
    let sent = sender.report(LIMIT);
    (sent, [first, second].map(|end| end.report(LIMIT)))
}

/// Checks that a receiver has every frame that left.
fn assert_untouched(sent: &Value, received: &Value) {
    assert_accounted(sent, received);
    let frames = number(sent, ["frames"]);
    assert!(frames > 100, "{sent}");
    assert_eq!(number(received, ["frames"]), frames, "{received}");
}

#[test]
fn a_receiver_that_stands_still_loses_alone_and_names_its_own_cause() {
    alone(|| {
        let (sent, [first, second]) = beside(Misfortune::Stops(Duration::from_secs(5)));
        assert_untouched(&sent, &first);
        assert_accounted(&sent, &second);
        let lost = |cause| number(&second, ["lost", cause]);
        assert!(lost("late") + lost("socket_buffer") > 20, "{second}");
        assert_eq!(lost("network"), 0, "{second}");
    });
}

#[test]
fn a_receiver_that_is_started_again_begins_with_the_next_frame() {
    alone(|| {
        let (sent, [first, second]) = beside(Misfortune::Restarts);
        assert_untouched(&sent, &first);
        let causes = ["network", "socket_buffer", "late", "refused"];
        let lost = causes.map(|cause| number(&second, ["lost", cause]));
        assert_eq!(lost, [0; 4], "{second}");
        let frames = number(&second, ["frames"]);
        assert!(
            (20..number(&sent, ["frames"])).contains(&frames),
            "{second}"
        );
        assert_eq!(second["is_end_known"], true);
    });
}
