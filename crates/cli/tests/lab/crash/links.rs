//! Links that are cut and connections that are reset.

use std::{thread, time::Duration};

use super::{
    scene::{LIMIT, Scene, assert_failed, assert_proven, ended, reports, row},
    watch::Watch,
};
use lab::{Host, isolated};
use serde_json::Value;

#[test]
fn a_link_cut_for_seconds_delays_and_loses_nothing() {
    isolated(|| {
        for attempt in 0.. {
            let scene = Scene::new(&format!("cut-{attempt}"), 2, 16);
            let watches = scene.watch_all(2);
            let receivers = scene.receive_all(2);
            let sender = scene.send("--receivers 2 --rate 4MB/s");
            let is_caught = scene.await_share(1, 30);
            scene.lab.unplug(1).unwrap();
            thread::sleep(Duration::from_secs(5));
            let missed = scene.bytes - scene.held(1);
            let is_caught = is_caught && !scene.is_seen(1) && missed > 0;
            scene.lab.plug(1).unwrap();
            let (code, sent) = ended(sender);
            assert_proven(code, &sent);
            for (receiver, number) in receivers.into_iter().zip(1..) {
                let (code, report) = ended(receiver);
                assert_eq!(code, Some(0), "{report:#}");
                scene.assert_whole(number);
                let missed = if number == 1 { missed } else { NOT_CUT };
                assert_sent_once(&scene, &sent, number, missed, &report);
            }
            Watch::finish_all(watches);
            if is_caught {
                // What it missed went to it alone.
                let again = row(&sent, 1)["bytes_sent_since_join"].as_u64();
                assert!(again.is_some_and(|again| again > scene.bytes), "{sent:#}");
                return;
            }
            // Everything had arrived before this test came to cut the link.
            assert!(attempt < 5, "not one link was cut in time");
        }
    });
}

/// Asserts that a receiver whose link was cut was sent everything once, and what it then lacked
/// once more, to it alone.
///
/// That is not the bound of a restart, which goes on from what is held: nobody has left here, so
/// the sender's count runs from the beginning, and what passed by while the link was down counts as
/// sent. What comes over the connection faster than the receiver's disk takes it waits there
/// unread; blocks that were not kept all the same are counted by the receiver, and nothing but them
/// may come on top, within the bound of a restart.
fn assert_sent_once(scene: &Scene, sent: &Value, number: usize, missed: u64, report: &Value) {
    let again = row(sent, number)["bytes_sent_since_join"].as_u64().unwrap();
    let refused = report["counters"]["transfer_receiver.blocks_store_full"].as_u64();
    let refused = refused.unwrap() * BLOCK_BYTES_MAX;
    let bytes = scene.bytes;
    println!("link cut: r{number} missed {missed} of {bytes}, was sent {again}, {refused} in vain");
    assert!(
        again <= bytes + missed + refused.min(AGAIN_BYTES_MAX),
        "{sent:#}\n{report:#}"
    );
}

/// What may be sent again beside what is lacking.
const AGAIN_BYTES_MAX: u64 = 8 << 20;
/// What a receiver may miss whose link was not cut.
const NOT_CUT: u64 = 1 << 20;
/// The most that a block on a connection carries.
const BLOCK_BYTES_MAX: u64 = 32 << 10;

#[test]
fn a_link_cut_for_good_is_named_and_the_others_are_served() {
    isolated(|| {
        let scene = Scene::new("cut-for-good", 2, 16);
        let watches = scene.watch_all(2);
        let lost = scene.receive(1, "--timeout 4s");
        let other = scene.receive(2, "");
        thread::sleep(Duration::from_millis(300));
        let sender = scene.send("--receivers 2 --rate 4MB/s --timeout 3s");
        assert!(scene.await_share(1, 30));
        scene.lab.unplug(1).unwrap();
        let end = ended(sender);
        let said = assert_failed(&end, 1, &["no progress for 3 s"]);
        assert!(said > 0 && said < scene.bytes, "{:#}", end.1);
        assert_eq!(row(&end.1, 2)["state"], "proven", "{:#}", end.1);
        assert_eq!(ended(other).0, Some(0));
        scene.assert_whole(2);
        let (code, report) = ended(lost);
        assert_eq!(code, Some(1), "{report:#}");
        let held = report["bytes_held"].as_u64().unwrap();
        assert!(held >= said && held < scene.bytes, "{report:#}");
        assert!(report["error"].as_str().is_some(), "{report:#}");
        assert!(!scene.is_seen(1));
        Watch::finish_all(watches);
    });
}

#[test]
fn a_sender_that_is_cut_off_names_everybody_and_goes_on_when_it_is_back() {
    isolated(|| {
        let scene = Scene::new("sender-cut", 2, 16);
        let watches = scene.watch_all(2);
        // One that serves and one that takes a single transfer: what the first sender still tells
        // them, once it is heard again, ends neither.
        let receivers = [scene.receive(1, "--serve"), scene.receive(2, "")];
        thread::sleep(Duration::from_millis(300));
        let sender = scene.send("--receivers 2 --rate 4MB/s --timeout 3s");
        assert!(scene.await_share(1, 30) && scene.await_share(2, 30));
        scene.lab.unplug(0).unwrap();
        let end = ended(sender);
        for number in 1..3 {
            let said = assert_failed(&end, number, &["no progress for 3 s"]);
            assert!(said > 0 && said < scene.bytes, "{:#}", end.1);
            assert!(!scene.is_seen(number));
        }
        let held = [scene.held(1), scene.held(2)];
        scene.lab.plug(0).unwrap();
        // Both hear that they were given up.
        for receiver in &receivers {
            receiver.await_counter("transfer_receiver.given_up", 1);
        }
        let (code, sent) = ended(scene.send("--receivers 2"));
        assert_proven(code, &sent);
        for (number, held) in (1..).zip(held) {
            scene.assert_economy(&sent, number, held, "sender cut off");
            scene.assert_whole(number);
        }
        let [service, single] = receivers;
        service.signal("-TERM");
        let (_, text) = service.finish(LIMIT);
        let reports = reports(&text);
        assert_eq!(reports.last().unwrap()["complete"], 1, "{text}");
        // The counters are the service's, whatever it received.
        for report in &reports {
            let is_sum = report["schema"] == "towline.recv-serve";
            assert_eq!(report.get("counters").is_some(), is_sum, "{text}");
        }
        let (code, report) = ended(single);
        assert_eq!(
            (code, &report["is_complete"]),
            (Some(0), &true.into()),
            "{report:#}"
        );
        Watch::finish_all(watches);
    });
}

#[test]
fn a_receiver_that_was_given_up_for_good_says_by_whom_and_how_far_it_came() {
    isolated(|| {
        let scene = Scene::new("given-up", 1, 16);
        let watches = scene.watch_all(1);
        let receiver = scene.receive(1, "--timeout 10s");
        thread::sleep(Duration::from_millis(300));
        let sender = scene.send("--rate 4MB/s --timeout 2s");
        assert!(scene.await_share(1, 30));
        scene.lab.unplug(0).unwrap();
        assert_failed(&ended(sender), 1, &["no progress for 2 s"]);
        scene.lab.plug(0).unwrap();
        receiver.await_counter("transfer_receiver.given_up", 1);
        let (code, report) = ended(receiver);
        assert_eq!(code, Some(1), "{report:#}");
        let error = report["error"].as_str().unwrap();
        assert!(
            error.contains("given this receiver up: no progress for 2 s"),
            "{error}"
        );
        let held = report["bytes_held"].as_u64().unwrap();
        assert!(held > 0 && held < scene.bytes, "{report:#}");
        assert!(
            report["sender"].is_string() && !scene.is_seen(1),
            "{report:#}"
        );
        Watch::finish_all(watches);
    });
}

#[test]
fn a_service_whose_transfer_stands_still_gives_that_up_and_goes_on() {
    isolated(|| {
        let scene = Scene::new("stands-still", 1, 16);
        let watches = scene.watch_all(1);
        let mut service = scene.receive(1, "--serve --timeout 2s");
        // Nobody sends for longer than a transfer may stand still: that is what services are for.
        thread::sleep(Duration::from_secs(3));
        assert!(service.is_running());
        let sender = scene.send("--rate 4MB/s --timeout 3s");
        assert!(scene.await_share(1, 30));
        scene.lab.unplug(0).unwrap();
        assert_failed(&ended(sender), 1, &["no progress for 3 s"]);
        let held = scene.held(1);
        scene.lab.plug(0).unwrap();
        assert!(service.is_running());
        let (code, sent) = ended(scene.send(""));
        assert_proven(code, &sent);
        scene.assert_economy(&sent, 1, held, "given up by a service");
        service.signal("-TERM");
        let (_, text) = service.finish(LIMIT);
        let reports = reports(&text);
        let error = reports[0]["error"].as_str().unwrap();
        assert!(
            error.contains("no progress within the time allowed (--timeout)"),
            "{text}"
        );
        let total = reports.last().unwrap();
        let counts = (&total["complete"], &total["failed"]);
        assert_eq!(counts, (&1.into(), &1.into()), "{text}");
        scene.assert_whole(1);
        Watch::finish_all(watches);
    });
}

/// Resets every TCP connection of a host, both ends; false where the kernel cannot, which is
/// printed.
fn reset_connections(host: &Host) -> bool {
    let output = host
        .command("ss")
        .args(["--kill", "--tcp", "--no-header", "state", "established"])
        .output();
    // The ones that were reset are listed.
    let is_done = output.is_ok_and(|output| !output.stdout.is_empty());
    if !is_done {
        println!("skipped: ss --kill needs iproute2 and a kernel with INET_DIAG_DESTROY");
    }
    is_done
}

#[test]
fn a_control_connection_that_is_reset_comes_back() {
    isolated(|| {
        let scene = Scene::new("reset", 2, 24);
        let watches = scene.watch_all(2);
        let receivers = scene.receive_all(2);
        let sender = scene.send("--receivers 2 --rate 8MB/s");
        // One receiver's, then all of the sender's.
        for (host, percent) in [(1, 20), (0, 50)] {
            assert!(scene.await_share(1, percent));
            if !reset_connections(scene.lab.host(host)) {
                return;
            }
        }
        let held = [scene.held(1), scene.held(2)];
        let (code, sent) = ended(sender);
        assert_proven(code, &sent);
        for ((receiver, number), held) in receivers.into_iter().zip(1..).zip(held) {
            scene.assert_economy(&sent, number, held, "connection reset");
            assert_eq!(ended(receiver).0, Some(0));
            scene.assert_whole(number);
        }
        assert_eq!(
            sent["counters"]["transfer_sender.successors"], 0,
            "{sent:#}"
        );
        Watch::finish_all(watches);
    });
}
