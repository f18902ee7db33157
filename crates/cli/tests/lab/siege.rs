//! One attacker, who also has the sender's address, against sessions with a key: 3,000 packets and
//! 1,000 connections a second, from before the first receiver is there until the end.
//!
//! Each run is of the next kind of group: IPv4 and IPv6, of any source and of one. With
//! `TOWLINE_REPEATS=10` in the environment, as `make besieged` sets it, 220 MB are sent that often,
//! and the rate must be at least half of that without the attacker. Without it each kind of group
//! has one run of 20 MB, which must be proven, however long that takes.

use std::{
    env, fs,
    io::Write as _,
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt as _,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use lab::{Host, Lab, LabSpec};
use serde_json::Value;
use wire::object::{Hello, Message};

use crate::{
    addresses::groups,
    attacker::{Attacker, overhear},
    ends::{End, alone, assert_complete, towline},
    signals::Place,
};

const LIMIT: Duration = Duration::from_secs(240);
const PACKETS_PER_S: u64 = 3_000;
const CONNECTIONS_PER_S: u64 = 1_000;
/// Threads that connect, and the connections that each keeps open at a time.
const CONNECTORS: u32 = 16;
const KEPT_MAX: usize = 32;
/// A sender that is slow to take connections is tried by the next.
const CONNECTING_TIME_MAX: Duration = Duration::from_millis(12);
const RECEIVERS: usize = 3;

/// How often, and how many bytes.
fn size(groups: usize) -> (usize, usize) {
    let repeats = env::var("TOWLINE_REPEATS").ok();
    repeats.map_or((groups, 20_000_000), |it| {
        (it.parse().unwrap(), 220_000_000)
    })
}

fn is_long() -> bool {
    env::var_os("TOWLINE_REPEATS").is_some()
}

/// What an attacker has done.
#[derive(Debug, Default)]
struct Done {
    packets: AtomicU64,
    connections: AtomicU64,
}

/// Runs `body` while a host and another program on the sender's host attack the session to `group`.
fn besieged<T: Send>(lab: &Lab, group: &str, body: impl FnOnce() -> T) -> (T, Done, Duration) {
    let group: SocketAddr = group.parse().unwrap();
    let session = overhear(lab.host(RECEIVERS + 1), group, false);
    let (is_over, done) = (AtomicBool::new(false), Done::default());
    let began = Instant::now();
    let out = thread::scope(|scope| {
        let far = Attacker::new(lab.host(RECEIVERS + 1), &session);
        let near = Attacker::new(lab.host(0), &session);
        let (over, done) = (&is_over, &done);
        scope.spawn(move || attack_with_packets([far, near], over, done));
        let (to, number) = (session.control, session.mark.session_id);
        for _ in 0..CONNECTORS {
            scope.spawn(move || {
                attack_with_connections(lab.host(RECEIVERS + 1), to, number, over, done);
            });
        }
        let out = body();
        is_over.store(true, Ordering::Relaxed);
        out
    });
    (out, done, began.elapsed())
}

/// Sends packets of all kinds in the sender's name, from both hosts in turn.
fn attack_with_packets(mut hosts: [Attacker<'_>; 2], is_over: &AtomicBool, done: &Done) {
    let began = Instant::now();
    for number in 0_u32.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let sent: u64 = hosts.iter().map(|host| host.sent).sum();
        done.packets.store(sent, Ordering::Relaxed);
        let due = Duration::from_secs(1) * u32::try_from(sent).unwrap() / PACKETS_PER_S as u32;
        thread::sleep(due.saturating_sub(began.elapsed()));
        let host = &mut hosts[number as usize % 2];
        match number / 2 % 8 {
            kind @ (0 | 1) => host.forged_data(number, kind == 0),
            2 => host.forged_end(number),
            3 => host.far_lead(),
            4 => host.greedy_nak(number % 64 * 63),
            5 => host.replay(number),
            6 => host.endless_option(),
            _ => host.noise(),
        }
    }
}

/// Opens connections to the sender, greets wrongly on some of them, and keeps the newest open.
fn attack_with_connections(
    host: &Host,
    to: SocketAddr,
    session_id: u64,
    is_over: &AtomicBool,
    done: &Done,
) {
    let mut greeting = Vec::new();
    let hello = Hello {
        version_min: 1,
        version_max: 1,
        instance: 7,
        session_id,
        name: "",
        nonce: Some([7; 16]),
    };
    Message::Hello(hello).emit(&mut greeting);
    let words: [&[u8]; 4] = [b"", &greeting, &greeting[..20], b"GET / HTTP/1.1\r\n\r\n"];
    host.enter(|| {
        let (mut kept, began) = (std::collections::VecDeque::new(), Instant::now());
        for number in 0_u32.. {
            let due = Duration::from_secs(1) * CONNECTORS * number / CONNECTIONS_PER_S as u32;
            thread::sleep(due.saturating_sub(began.elapsed()));
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            done.connections.fetch_add(1, Ordering::Relaxed);
            // Refused once the sender has ended.
            let Ok(mut connection) = TcpStream::connect_timeout(&to, CONNECTING_TIME_MAX) else {
                continue;
            };
            drop(connection.write_all(words[number as usize % 4]));
            kept.push_back(connection);
            if kept.len() > KEPT_MAX {
                kept.pop_front();
            }
        }
    })
    .unwrap();
}

/// A key that all ends have.
pub(crate) fn key_of(place: &Place) -> String {
    let key = place.file("key");
    fs::write(&key, (100..=131).collect::<Vec<u8>>()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    format!("--key-file {key}")
}

/// Sends a file to three receivers; all have it in the end. Gives the sender's report.
fn transfer(lab: &Lab, place: &Place, (from, to): &(String, String), is_attacked: bool) -> Value {
    let key = key_of(place);
    // Each run begins with empty directories: to free the files of the run before takes time.
    for number in 1..=RECEIVERS {
        drop(fs::remove_dir_all(place.file(&format!("in{number}"))));
    }
    let words = format!(
        "send {} -g {to} --json --receivers {RECEIVERS} --join-timeout 60s {key}",
        place.file("content")
    );
    let sender = End::start(towline(lab.host(0), &words));
    let receive = || {
        let ends: Vec<End> = (1..=RECEIVERS)
            .map(|number| {
                let directory = place.file(&format!("in{number}"));
                let words = format!("recv {directory} -g {from} --json --name r{number} {key}");
                End::start(towline(lab.host(number), &words))
            })
            .collect();
        let sent = sender.report(LIMIT);
        for end in ends {
            let report = end.report(LIMIT);
            assert_eq!(report["is_complete"], true, "{report:#}");
        }
        sent
    };
    let sent = if is_attacked {
        let (sent, done, time) = besieged(lab, to, receive);
        assert_siege(&done, time);
        sent
    } else {
        receive()
    };
    assert_eq!(sent["is_proven"], true, "{sent:#}");
    let content = fs::read(place.file("content")).unwrap();
    for number in 1..=RECEIVERS {
        let came = fs::read(place.file(&format!("in{number}/content"))).unwrap();
        assert!(came == content, "receiver {number}");
    }
    sent
}

/// The attacker was really there: in the long form, which needs the machine for itself, with nine
/// tenths of what it should do, else with a quarter.
fn assert_siege(done: &Done, time: Duration) {
    let packets = done.packets.load(Ordering::Relaxed);
    let connections = done.connections.load(Ordering::Relaxed);
    println!("attacker: {packets} packets, {connections} connections in {time:?}");
    let percent = if is_long() { 90 } else { 25 };
    let least = |per_s: u64| per_s * percent * time.as_millis() as u64 / 100_000;
    assert!(packets > least(PACKETS_PER_S), "{packets} in {time:?}");
    assert!(
        connections > least(CONNECTIONS_PER_S),
        "{connections} in {time:?}"
    );
}

#[test]
fn one_attacker_does_not_stop_a_transfer_with_a_key_nor_halve_its_rate() {
    alone(|| {
        let (lab, place) = (Lab::new(&LabSpec::new(5)).unwrap(), Place::new("siege"));
        let groups = groups(&lab);
        let (repeats, bytes) = size(groups.len());
        let content: Vec<u8> = (0..bytes as u64)
            .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
            .collect();
        fs::write(place.file("content"), &content).unwrap();
        let rate = |sent: &Value| sent["bytes_per_s"].as_f64().unwrap() / 1e6;
        for run in 0..repeats {
            let group = &groups[run % groups.len()];
            let alone = rate(&transfer(&lab, &place, group, false));
            let attacked = rate(&transfer(&lab, &place, group, true));
            let share = attacked / alone;
            println!(
                "run {run} to {}: {attacked:.0} of {alone:.0} MB/s, {share:.2}",
                group.1
            );
            assert!(!is_long() || share >= 0.5, "{share:.2}");
        }
        println!("{repeats} of {repeats} transfers proven at all receivers");
    });
}

#[test]
fn one_attacker_costs_messages_with_a_key_none_and_changes_none() {
    alone(|| {
        let (lab, place) = (Lab::new(&LabSpec::new(5)).unwrap(), Place::new("siege-m"));
        let groups = groups(&lab);
        let (repeats, _) = size(groups.len());
        let count = if is_long() { 30_000 } else { 5_000 };
        let key = key_of(&place);
        for run in 0..repeats {
            let (from, to) = &groups[run % groups.len()];
            let delays = [false, true].map(|is_attacked| {
                let words = format!(
                    "load send -g {to} --json --receivers {RECEIVERS} --timeout 60s --stamp {key} \
                     --size 32-2000 --count {count} --rate 20Mbit/s"
                );
                let sender = End::start(towline(lab.host(0), &words));
                let receive = || {
                    let words = format!(
                        "load recv -g {from} --json --stamp --count {count} --timeout 60s {key}"
                    );
                    let ends: Vec<End> = (1..=RECEIVERS)
                        .map(|number| End::start(towline(lab.host(number), &words)))
                        .collect();
                    let sent = sender.report(LIMIT);
                    assert_eq!(sent["is_confirmed"], true, "{sent:#}");
                    let reports = ends.into_iter().map(|end| end.report(LIMIT));
                    reports.collect::<Vec<_>>()
                };
                let reports = if is_attacked {
                    let (reports, done, time) = besieged(&lab, to, receive);
                    assert_siege(&done, time);
                    for (report, why) in reports
                        .iter()
                        .flat_map(|it| ["forged", "unprotected", "replayed"].map(|why| (it, why)))
                    {
                        assert!(report["drops"][why].as_u64() > Some(0), "{why}: {report:#}");
                    }
                    reports
                } else {
                    receive()
                };
                let delays = reports.iter().map(|report| {
                    assert_complete(report, count);
                    report["delay"]["max_ns"].as_u64().unwrap()
                });
                delays.max().unwrap()
            });
            let [floor, attacked] = delays.map(|ns| ns as f64 / 1e6);
            println!("run {run} to {to}: latest {attacked:.1} ms, alone {floor:.1} ms");
            assert!(
                !is_long() || attacked <= 3.0 * floor,
                "{attacked} ms, alone {floor} ms"
            );
        }
        println!("{repeats} of {repeats} runs: no message lost or altered");
    });
}
