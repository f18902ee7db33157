//! Several senders, late receivers, uninvited ones, and ones that lose much.

use std::{
    thread,
    time::{Duration, Instant},
};

use lab::isolated;

use super::{
    scene::{GROUP, LIMIT, Scene, assert_equal, assert_proven, ended, journals, make_tree, row},
    watch::Watch,
};
use crate::ends::{End, towline};

/// Waits until a receiver has staged `plans` plans: it has joined so many transfers.
fn await_plans(scene: &Scene, number: usize, plans: usize) {
    let end = Instant::now() + LIMIT;
    while journals(&scene.directory(number)).len() < plans {
        assert!(Instant::now() < end, "r{number} does not join");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn two_senders_on_one_group_do_not_mix() {
    isolated(|| {
        let scene = Scene::new("two-senders", 3, 12);
        let other = scene.root.join("other");
        make_tree(&other, 12, 2);
        let services =
            [2, 3].map(|n| scene.receive(n, &format!("--serve --faults loss=2%,seed={n}")));
        thread::sleep(Duration::from_millis(300));
        let one = scene.send("--receivers 2 --rate 4MB/s");
        let words = format!(
            "send {} {GROUP} --receivers 2 --rate 4MB/s",
            other.display()
        );
        let two = End::start(towline(scene.lab.host(1), &words));
        // Both are under way at once at both.
        await_plans(&scene, 2, 2);
        await_plans(&scene, 3, 2);
        let ends = [ended(one), ended(two)];
        for (code, sent) in &ends {
            assert_proven(*code, sent);
        }
        assert_ne!(ends[0].1["root"], ends[1].1["root"]);
        for (service, number) in services.into_iter().zip([2, 3]) {
            for tree in ["tree", "other"] {
                let received = scene.directory(number).join(tree);
                assert_equal(&scene.root.join(tree), &received);
            }
            service.signal("-TERM");
            let (_, text) = service.finish(LIMIT);
            let documents = serde_json::Deserializer::from_str(&text);
            let last = documents.into_iter::<serde_json::Value>().last();
            let total = last.unwrap().unwrap();
            let counts = (&total["complete"], &total["failed"]);
            assert_eq!(counts, (&2.into(), &0.into()), "{text}");
        }
    });
}

#[test]
fn a_receiver_that_joins_at_nine_tenths_ends_whole() {
    isolated(|| {
        let scene = Scene::new("late", 2, 16);
        let watches = scene.watch_all(2);
        let first = scene.receive_all(1).remove(0);
        let sender = scene.send("--receivers 2 --join-timeout 1s --rate 8MB/s");
        assert!(scene.await_share(1, 90));
        // Time stands still for the late one: the stream waits for who is stopped.
        first.signal("-STOP");
        let late = scene.receive(2, "");
        await_plans(&scene, 2, 1);
        first.signal("-CONT");
        let (code, sent) = ended(sender);
        assert_proven(code, &sent);
        assert_eq!(row(&sent, 2)["is_expected"], true);
        scene.assert_economy(&sent, 2, 0, "joined at 90 %");
        for (receiver, number) in [first, late].into_iter().zip(1..) {
            assert_eq!(ended(receiver).0, Some(0));
            scene.assert_whole(number);
        }
        Watch::finish_all(watches);
    });
}

#[test]
fn a_receiver_beyond_the_expected_set_never_delays_the_end() {
    isolated(|| {
        let scene = Scene::new("guest", 2, 16);
        let watches = scene.watch_all(2);
        let first = scene.receive_all(1).remove(0);
        let sender = scene.send("--expect r1 --rate 4MB/s");
        assert!(scene.await_share(1, 30));
        let guest = scene.receive(2, "");
        await_plans(&scene, 2, 1);
        guest.signal("-STOP");
        let (code, sent) = ended(sender);
        assert_proven(code, &sent);
        let row = row(&sent, 2);
        assert_eq!(row["is_expected"], false, "{sent:#}");
        // Not because its time was up: the end did not wait for that.
        assert_eq!(
            (row["state"].as_str(), row["error"].as_str()),
            (Some("failed"), Some("the sender has finished without it")),
            "{sent:#}"
        );
        assert!(row["bytes"].as_u64().unwrap() < scene.bytes, "{sent:#}");
        assert_eq!(ended(first).0, Some(0));
        scene.assert_whole(1);
        drop(guest);
        Watch::finish_all(watches);
    });
}

#[test]
fn eight_receivers_that_lose_up_to_a_tenth_end_whole_and_the_slowest_is_named() {
    isolated(|| {
        let scene = Scene::new("eight", 8, 8);
        let watches = scene.watch_all(8);
        let losing = |number: usize| {
            let tenths = (number - 1) * 100 / 7;
            let loss = format!("{}.{}%", tenths / 10, tenths % 10);
            scene.receive(number, &format!("--faults loss={loss},seed={number}"))
        };
        let receivers: Vec<End> = (1..=8).map(losing).collect();
        thread::sleep(Duration::from_millis(300));
        let (code, sent) = ended(scene.send("--receivers 8 --rate 4MB/s"));
        assert_proven(code, &sent);
        for (receiver, number) in receivers.into_iter().zip(1..) {
            let (code, report) = ended(receiver);
            assert_eq!(code, Some(0), "{report:#}");
            scene.assert_whole(number);
            let lost = row(&sent, number)["packets_lost"].as_u64().unwrap();
            println!("r{number}: {lost} packets lost");
            assert_eq!(lost > 0, number > 1, "{sent:#}");
        }
        let slowest = sent["slowest"].as_str().unwrap();
        assert!((1..=8).any(|number| slowest == format!("r{number}")));
        println!("slowest: {slowest}; {} bytes sent", sent["multicast_bytes"]);
        Watch::finish_all(watches);
    });
}
