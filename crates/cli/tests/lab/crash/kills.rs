//! Ends that are killed and started again.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use lab::isolated;

use super::{
    scene::{LIMIT, SLACK, Scene, assert_failed, assert_proven, ended, row},
    watch::Watch,
};

/// Kills one of two receivers when it holds `percent` of the content, and starts it again.
fn receiver_killed_at(percent: u64) {
    for attempt in 0.. {
        let scene = Scene::new(&format!("killed-{percent}-{attempt}"), 2, 24);
        let watches = scene.watch_all(2);
        let mut receivers = scene.receive_all(2);
        let sender = scene.send("--receivers 2 --rate 10MB/s");
        let is_caught = scene.await_share(1, percent);
        drop(receivers.remove(0));
        if !is_caught || scene.is_seen(1) {
            // It was quicker than this test.
            assert!(attempt < 5, "not one receiver was killed in time");
            continue;
        }
        let held = scene.held(1);
        receivers.push(scene.receive(1, ""));
        let (code, sent) = ended(sender);
        assert_proven(code, &sent);
        let what = format!("receiver killed at {percent} %");
        scene.assert_economy(&sent, 1, held, &what);
        for (receiver, number) in receivers.into_iter().zip([2, 1]) {
            let (code, report) = ended(receiver);
            assert_eq!(code, Some(0), "{report:#}");
            scene.assert_whole(number);
        }
        Watch::finish_all(watches);
        return;
    }
}

#[test]
fn a_receiver_killed_at_a_tenth_goes_on() {
    isolated(|| receiver_killed_at(10));
}

#[test]
fn a_receiver_killed_at_half_goes_on() {
    isolated(|| receiver_killed_at(50));
}

#[test]
fn a_receiver_killed_just_before_the_end_goes_on() {
    isolated(|| receiver_killed_at(99));
}

#[test]
fn a_receiver_killed_while_it_gives_names_goes_on() {
    isolated(|| {
        for attempt in 0.. {
            let mut scene = Scene::new(&format!("killed-naming-{attempt}"), 1, 1);
            let many = scene.add_small_files(FILES);
            // In a directory that is there each file gets its name by itself.
            let many = scene.directory(1).join(many);
            fs::create_dir_all(&many).unwrap();
            let named = || fs::read_dir(&many).unwrap().count() as u64;
            let watches = scene.watch_all(1);
            let receivers = scene.receive_all(1);
            let sender = scene.send("");
            let end = Instant::now() + LIMIT;
            while named() == 0 {
                assert!(Instant::now() < end, "no file gets its name");
                thread::sleep(Duration::from_micros(100));
            }
            drop(receivers);
            let count = named();
            if count == FILES {
                assert!(attempt < 5, "not once were only some files named");
                continue;
            }
            let receiver = scene.receive(1, "");
            let (code, sent) = ended(sender);
            assert_proven(code, &sent);
            let again = row(&sent, 1)["bytes_sent_since_join"].as_u64().unwrap();
            println!("killed with {count} of {FILES} names given: was sent {again} bytes more");
            assert_eq!(again, 0, "it held everything: {sent:#}");
            let (code, report) = ended(receiver);
            assert_eq!(code, Some(0), "{report:#}");
            scene.assert_whole(1);
            Watch::finish_all(watches);
            return;
        }
    });
}

#[test]
fn a_sender_killed_goes_on_where_its_receivers_are() {
    isolated(|| {
        let scene = Scene::new("sender-killed", 2, 24);
        let watches = scene.watch_all(2);
        let receivers = scene.receive_all(2);
        let first = scene.send("--receivers 2 --rate 10MB/s");
        assert!(scene.await_share(1, 50) && scene.await_share(2, 50));
        drop(first);
        let held = [scene.held(1), scene.held(2)];
        let (code, sent) = ended(scene.send("--receivers 2"));
        assert_proven(code, &sent);
        for ((receiver, number), held) in receivers.into_iter().zip(1..).zip(held) {
            scene.assert_economy(&sent, number, held, "sender killed");
            let (code, report) = ended(receiver);
            assert_eq!(code, Some(0), "{report:#}");
            assert_eq!(report["root"], sent["root"]);
            scene.assert_whole(number);
        }
        Watch::finish_all(watches);
    });
}

#[test]
fn both_ends_killed_go_on() {
    isolated(|| {
        let scene = Scene::new("both-killed", 2, 24);
        let watches = scene.watch_all(2);
        let mut receivers = scene.receive_all(2);
        let first = scene.send("--receivers 2 --rate 10MB/s");
        assert!(scene.await_share(1, 50));
        drop(receivers.remove(0));
        drop(first);
        let held = scene.held(1);
        receivers.push(scene.receive(1, ""));
        let (code, sent) = ended(scene.send("--receivers 2"));
        assert_proven(code, &sent);
        scene.assert_economy(&sent, 1, held, "both killed");
        for (receiver, number) in receivers.into_iter().zip([2, 1]) {
            let (code, report) = ended(receiver);
            assert_eq!(code, Some(0), "{report:#}");
            scene.assert_whole(number);
        }
        Watch::finish_all(watches);
    });
}

#[test]
fn nothing_is_sent_to_nobody_when_the_only_receiver_is_dead() {
    isolated(|| {
        let scene = Scene::new("nobody", 1, 24);
        let watches = scene.watch_all(1);
        let receivers = scene.receive_all(1);
        let sender = scene.send("--timeout 4s --rate 4MB/s");
        assert!(scene.await_share(1, 20));
        drop(receivers);
        let held = scene.held(1);
        let end = ended(sender);
        let said = assert_failed(&end, 1, &["the connection to it was lost"]);
        let sent = &end.1;
        let sent_bytes = sent["multicast_bytes"].as_u64().unwrap();
        println!("the only receiver killed: held {held}, said {said}, {sent_bytes} were sent");
        assert!(said > 0 && said <= sent_bytes, "{sent:#}");
        // What was on the way, and what went out before the kernel's FIN.
        assert!(sent_bytes <= held + SLACK, "{sent:#}");
        assert!(sent_bytes < scene.bytes, "{sent:#}");
        assert_eq!(sent["counters"]["transfer_sender.pauses"], 1, "{sent:#}");
        assert_eq!(row(sent, 1)["is_expected"], true);
        assert!(!scene.is_seen(1));
        Watch::finish_all(watches);
    });
}

/// Files whose names take a while.
const FILES: u64 = 400;
