//! What senders can cost a receiver that serves, and what a host can cost a sender of files, at
//! each kind of address.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabSpec, isolated};
use sys::namespace::{CommandExt as _, Namespace};
use wire::pgm::Profile;

use crate::{
    addresses::{address, at_each_kind, groups},
    attacker::{Attacker, Session, overhear},
    ends::{End, alone, towline},
    files::{documents, write_program},
    siege::key_of,
    signals::Place,
};

const LIMIT: Duration = Duration::from_secs(60);
/// Transfers that one host may have at a receiver that serves.
const SHARE: usize = 8;

#[test]
fn transfers_that_stand_still_leave_their_places_to_another_sender() {
    alone(|| {
        let (lab, place) = (Lab::new(&LabSpec::new(2)).unwrap(), Place::new("idle"));
        for number in 0..SHARE {
            fs::write(place.file(&format!("idle{number}")), vec![7; 1 << 20]).unwrap();
        }
        fs::write(place.file("last"), "the last one").unwrap();
        at_each_kind(&lab, |kind, from, to| {
            let directory = place.file(&format!("in{kind}"));
            let words =
                format!("recv {directory} -g {from} --from any --serve --timeout 3s --json");
            let service = End::start(towline(lab.host(1), &words));
            service.await_session();
            let send = |name: &str, more: &str| {
                let words = format!(
                    "send {} -g {to} --json --receivers 1 {more}",
                    place.file(name)
                );
                End::start(towline(lab.host(0), &words))
            };
            // The attack: transfers begin, and nothing more comes of them.
            let slow = |number| send(&format!("idle{number}"), "--rate 50kB/s");
            let idle: Vec<End> = (0..SHARE).map(slow).collect();
            for sender in &idle {
                sender.await_counter("source.odata_packets", 3);
                sender.signal("-STOP");
            }
            let last = send("last", "--join-timeout 30s").report(LIMIT);
            assert_eq!(last["is_proven"], true, "{to}: {last:#}");
            service.signal("-TERM");
            let (_, text) = service.finish(LIMIT);
            drop(idle);
            let documents = documents(&text);
            let (sum, transfers) = documents.split_last().unwrap();
            assert_eq!(sum["transfers"], SHARE + 1, "{to}: {sum:#}");
            assert_eq!(sum["complete"], 1, "{to}: {sum:#}");
            let why = |text: &str| text.contains("no progress within the time allowed");
            let errors = transfers.iter().filter_map(|it| it["error"].as_str());
            assert!(errors.filter(|text| why(text)).count() > 0, "{to}: {text}");
        });
    });
}

#[test]
fn who_takes_a_transfer_over_is_named_to_hooks_and_in_the_report() {
    alone(|| {
        let (lab, place) = (Lab::new(&LabSpec::new(3)).unwrap(), Place::new("takeover"));
        let (key, file) = (key_of(&place), place.file("file"));
        fs::write(&file, vec![7; 1 << 20]).unwrap();
        at_each_kind(&lab, |kind, from, to| {
            if from.contains('@') {
                // Of a group of one source, a receiver does not hear another sender at all.
                return;
            }
            let (hook, log) = (format!("hook{kind}"), format!("log{kind}"));
            let (hook, log) = (place.file(&hook), place.file(&log));
            let script = format!("#!/bin/sh\necho $TOWLINE_SENDER >> {log}\n");
            write_program(Path::new(&hook), &script);
            let directory = place.file(&format!("in{kind}"));
            let words = format!("recv {directory} -g {from} --serve --exec {hook} --json {key}");
            let service = End::start(towline(lab.host(2), &words));
            service.await_session();
            // The same machine, at two addresses: by its name, a tree is the same one again.
            let name = Namespace::host_name("mover").unwrap();
            let send = |host: usize, more: &str| {
                let words = format!("send {file} -g {to} --json --receivers 1 {key} {more}");
                let mut command = towline(lab.host(host), &words);
                command.namespace(&name);
                End::start(command)
            };
            let first = send(0, "--rate 100kB/s");
            first.await_counter("source.odata_packets", 20);
            first.signal("-KILL");
            drop(first);
            let taker = address(lab.host(1), to);
            let sent = send(1, "").report(LIMIT);
            assert_eq!(sent["is_proven"], true, "{to}: {sent:#}");
            service.await_said(&format!("the sender is back at {taker}"));
            service.signal("-TERM");
            let (status, text) = service.finish(LIMIT);
            assert!(status.success(), "{to}: {text}");
            let documents = documents(&text);
            assert_eq!(documents.len(), 2, "{to}: {text}");
            assert_eq!(documents[0]["sender"], taker.to_string(), "{to}: {text}");
            let told = fs::read_to_string(&log).unwrap();
            assert_eq!(told, format!("{taker}\n"), "{to}");
        });
    });
}

#[test]
fn who_connects_again_and_again_does_not_keep_a_sender_from_its_end_at_any_kind_of_address() {
    alone(|| {
        let (lab, place) = (Lab::new(&LabSpec::new(3)).unwrap(), Place::new("dialled"));
        let file = place.file("file");
        fs::write(&file, vec![7; 1 << 20]).unwrap();
        at_each_kind(&lab, |kind, from, to| {
            let words = format!("send {file} -g {to} --json --receivers 1 --rate 1MB/s");
            let sender = End::start(towline(lab.host(0), &words));
            let session = overhear(lab.host(2), to.parse().unwrap(), false);
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                let attack = scope.spawn(|| {
                    let connect = || {
                        let (mut held, began) = (Vec::new(), Instant::now());
                        while !is_over.load(Ordering::Relaxed) && began.elapsed() < LIMIT {
                            held.extend(TcpStream::connect(session.control));
                            thread::sleep(Duration::from_millis(50));
                        }
                        held.len()
                    };
                    lab.host(2).enter(connect).unwrap()
                });
                let directory = place.file(&format!("in{kind}"));
                let words = format!("recv {directory} -g {from} --from any --json");
                let receiver = End::start(towline(lab.host(1), &words));
                // The attack goes on until the sender has ended.
                let (status, text) = sender.finish(LIMIT);
                is_over.store(true, Ordering::Relaxed);
                assert!(status.success(), "{to}: {text}");
                assert!(receiver.finish(LIMIT).0.success(), "{to}");
                assert!(attack.join().unwrap() > 10, "{to}: it did not attack");
            });
        });
    });
}

#[test]
fn what_receivers_dial_for_a_forged_announcement_is_at_most_three_times_its_bytes() {
    // So few that each is dialled.
    const SESSIONS: u16 = 6;
    alone(|| {
        let (lab, place) = (Lab::new(&LabSpec::new(3)).unwrap(), Place::new("dials"));
        let file = place.file("file");
        fs::write(&file, "some file").unwrap();
        // A host that does not answer at all is sent most packets: the kernel repeats them until a
        // receiver's patience ends. In the name of this one, the attacker announces.
        lab.host(0).set_segment_loss(1, 1).unwrap();
        let mut attacks = Vec::new();
        for (kind, (from, to)) in groups(&lab).into_iter().enumerate() {
            let words = format!("send {file} -g {to} --receivers 1");
            let sender = End::start(towline(lab.host(0), &words));
            let session = overhear(lab.host(2), to.parse().unwrap(), false);
            drop(sender);
            let directory = place.file(&format!("in{kind}"));
            let receivers = [
                format!("recv {directory} -g {from} --from any --serve"),
                format!("sub -g {from}"),
            ];
            let receivers = receivers.map(|words| End::start(towline(lab.host(1), &words)));
            receivers.iter().for_each(End::await_session);
            attacks.push((session, receivers));
        }
        // What joins a group says so for a while.
        thread::sleep(Duration::from_secs(1));
        let (before, mut came) = (lab.bytes_to(0).unwrap(), 0);
        for (session, _) in &attacks {
            let mut attacker = Attacker::new(lab.host(0), session);
            for number in 0..SESSIONS {
                came += attacker.forged_session(1 + 2 * number, Profile::Objects, None);
                came += attacker.forged_session(2 + 2 * number, Profile::Messages, None);
            }
        }
        // A receiver's patience is over, and it had time to dial again.
        thread::sleep(Duration::from_secs(12));
        let brought = lab.bytes_to(0).unwrap() - before;
        println!("{came} bytes brought {brought}");
        assert!(brought > came / 2, "{came} bytes brought {brought}");
        assert!(brought <= 3 * came, "{came} bytes brought {brought}");
    });
}

#[test]
fn sessions_that_refuse_or_stay_silent_keep_no_transfer_out_at_any_kind_of_address() {
    alone(|| {
        let (lab, place) = (Lab::new(&LabSpec::new(3)).unwrap(), Place::new("prospects"));
        let (key, file) = (key_of(&place), place.file("file"));
        fs::write(&file, vec![7; 1 << 20]).unwrap();
        for rule in ["--from any", &key] {
            at_each_kind(&lab, |kind, from, to| {
                let has_key = rule == key;
                let key = if has_key { rule } else { "" };
                let words =
                    format!("send {file} -g {to} --json --receivers 1 --join-timeout 30s {key}");
                let sender = End::start(towline(lab.host(0), &words));
                let session = overhear(lab.host(2), to.parse().unwrap(), false);
                let is_over = AtomicBool::new(false);
                let sent = thread::scope(|scope| {
                    let attack = scope.spawn(|| announce(&lab, &session, to, &is_over));
                    // Both kinds of session are there before the receiver is.
                    thread::sleep(Duration::from_millis(500));
                    let directory = place.file(&format!("in{kind}{has_key}"));
                    let words = format!("recv {directory} -g {from} --serve --json {rule}");
                    let service = End::start(towline(lab.host(1), &words));
                    let sent = sender.report(LIMIT);
                    is_over.store(true, Ordering::Relaxed);
                    assert!(attack.join().unwrap() > 5, "{to}: it did not attack");
                    service.signal("-TERM");
                    service.finish(LIMIT);
                    sent
                });
                assert_eq!(sent["is_proven"], true, "{rule}: {to}: {sent:#}");
            });
        }
    });
}

/// Announces sessions to the group until `is_over`: on the sender's host, and in its name, such
/// that refuse connections, and on another host such that take them and say nothing. Returns how
/// many.
fn announce(lab: &Lab, session: &Session, group: &str, is_over: &AtomicBool) -> u16 {
    let own = address(lab.host(2), group);
    let silent = lab.host(2).enter(|| TcpListener::bind((own, 0)));
    let silent = silent.unwrap().unwrap();
    silent.set_nonblocking(true).unwrap();
    let control: SocketAddr = silent.local_addr().unwrap();
    let mut near = Attacker::new(lab.host(0), session);
    let mut far = Attacker::new(lab.host(2), session);
    let (mut count, mut held, began) = (0, Vec::new(), Instant::now());
    while !is_over.load(Ordering::Relaxed) && began.elapsed() < LIMIT {
        near.forged_session(1 + 2 * count, Profile::Objects, None);
        far.forged_session(2 + 2 * count, Profile::Objects, Some(control));
        count += 1;
        held.extend(silent.accept());
        // Eight of each kind a second, as in the review.
        thread::sleep(Duration::from_millis(125));
    }
    count
}

#[test]
fn a_receiver_that_others_reach_does_not_start_without_a_rule() {
    isolated(|| {
        let (lab, place) = (Lab::new(&LabSpec::new(2)).unwrap(), Place::new("no-rule"));
        let host = lab.host(1);
        let mut attempts = vec![
            "-g 239.192.0.1:7500".to_owned(),
            "--listen 7500".to_owned(),
            format!("--listen {}:7500", host.ipv4()),
        ];
        if host.has_ipv6() {
            let link_local = "-g [ff12::1%e0]:7500".to_owned();
            attempts.extend(["-g [ff15::1]:7500".to_owned(), link_local]);
            attempts.push(format!("--listen [{}]:7500", host.ipv6()));
        }
        for attempt in attempts {
            let words = format!("recv {} {attempt}", place.file("in"));
            let (status, _, said) = End::start(towline(host, &words)).finish_all(LIMIT);
            assert_eq!(status.code(), Some(2), "{attempt}: {said}");
            assert!(said.contains("no sender is named"), "{attempt}: {said}");
        }
    });
}
