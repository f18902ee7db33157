//! Several senders, late receivers, uninvited ones, and ones that lose much.

use std::{
    thread,
    time::{Duration, Instant},
};

use lab::isolated;
use serde_json::Value;

use super::{
    scene::{
        GROUP, LIMIT, SLACK, Scene, assert_equal, assert_proven, ended, journals, make_tree, row,
    },
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

/// Two senders to two services, the first of which `disturb` may replace when both are under way.
fn two_senders(name: &str, disturb: impl FnOnce(&Scene, &mut [End])) -> [Value; 2] {
    let scene = Scene::new(name, 3, 12);
    let other = scene.root.join("other");
    make_tree(&other, 12, 2);
    let mut services = [2, 3].map(|number| serve(&scene, number));
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
    disturb(&scene, &mut services);
    let ends = [ended(one), ended(two)];
    for (code, sent) in &ends {
        assert_proven(*code, sent);
    }
    for (service, number) in services.into_iter().zip([2, 3]) {
        for tree in ["tree", "other"] {
            let received = scene.directory(number).join(tree);
            assert_equal(&scene.root.join(tree), &received);
        }
        service.signal("-TERM");
        let (_, text) = service.finish(LIMIT);
        let documents = serde_json::Deserializer::from_str(&text);
        let last = documents.into_iter::<Value>().last();
        let total = last.unwrap().unwrap();
        let counts = (&total["complete"], &total["failed"]);
        assert_eq!(counts, (&2.into(), &0.into()), "{text}");
    }
    ends.map(|(_, sent)| sent)
}

fn serve(scene: &Scene, number: usize) -> End {
    scene.receive(number, &format!("--serve --faults loss=2%,seed={number}"))
}

#[test]
fn two_senders_on_one_group_do_not_mix() {
    isolated(|| {
        let [one, two] = two_senders("two-senders", |_, _| {});
        assert_ne!(one["root"], two["root"]);
    });
}

#[test]
fn a_service_killed_amid_two_transfers_goes_on_with_both() {
    isolated(|| {
        let mut held = 0;
        let sent = two_senders("service-killed", |scene, services| {
            let end = Instant::now() + LIMIT;
            while scene.held(2) < scene.bytes {
                assert!(Instant::now() < end, "no half of both");
                thread::sleep(Duration::from_millis(2));
            }
            services[0].signal("-KILL");
            assert_eq!(journals(&scene.directory(2)).len(), 2);
            held = scene.held(2);
            services[0] = serve(scene, 2);
        });
        let sum = |key| -> u64 {
            let rows = sent.iter().map(|sent| row(sent, 2));
            rows.map(|row| row[key].as_u64().unwrap()).sum()
        };
        let (resumed, again) = (sum("bytes_resumed"), sum("bytes_sent_since_join"));
        let bytes: u64 = sent
            .iter()
            .map(|sent| sent["bytes"].as_u64().unwrap())
            .sum();
        println!("service killed: held {held} of {bytes}, said {resumed}, was sent {again} more");
        assert!(resumed >= held && again <= bytes - held + 2 * SLACK);
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
        let reason = "the sender has ended the transfer, and does not wait for receivers that it \
                      was not told to expect";
        assert_eq!(
            (row["state"].as_str(), row["error"].as_str()),
            (Some("failed"), Some(reason)),
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
