//! `tcp watch` and `tcp writes` held against what was made to happen: each cause, made on purpose,
//! has the largest share; and the delayed acknowledgement is seen.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use lab::{Host, Lab, LabSpec, isolated};
use serde_json::Value;

use crate::ends::{End, alone, towline};

const PORT: u16 = 9;
const LIMIT: Duration = Duration::from_secs(60);

/// How an application writes or reads: so many bytes at a time, with a rest behind each.
#[derive(Clone, Copy)]
struct Habit {
    bytes: usize,
    rest: Duration,
}

const EAGER: Habit = Habit {
    bytes: 65_536,
    rest: Duration::ZERO,
};

/// What is made to happen on a connection from host 0 to host 1.
struct Scene {
    writer: Habit,
    reader: Habit,
}

fn rest(habit: Habit) {
    if !habit.rest.is_zero() {
        thread::sleep(habit.rest);
    }
}

fn write(mut stream: &TcpStream, habit: Habit, is_over: &AtomicBool) {
    let bytes = vec![7; habit.bytes];
    while !is_over.load(Ordering::Relaxed) && stream.write_all(&bytes).is_ok() {
        rest(habit);
    }
}

fn read(mut stream: &TcpStream, habit: Habit) {
    let mut room = vec![0; habit.bytes];
    while let Ok(1..) = stream.read(&mut room) {
        rest(habit);
    }
}

/// Watches the sender's end of a scene; returns its row of the closing report.
fn watched(lab: &Lab, scene: &Scene) -> Value {
    let at = |host: &Host| SocketAddr::new(host.ipv4().into(), PORT);
    let to = at(lab.host(1));
    let listener = lab.host(1).enter(|| TcpListener::bind(to));
    let listener = listener.unwrap().unwrap();
    let stream = lab.host(0).enter(|| TcpStream::connect(to));
    let stream = stream.unwrap().unwrap();
    let (peer, _) = listener.accept().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| write(&stream, scene.writer, &is_over));
        scope.spawn(|| read(&peer, scene.reader));
        // The window has opened, and the buffers are full.
        thread::sleep(Duration::from_millis(500));
        let words = format!("tcp watch --port {PORT} --for 2s --every 500ms --json");
        let (status, text) = End::start(towline(lab.host(0), &words)).finish(LIMIT);
        is_over.store(true, Ordering::Relaxed);
        for end in [&stream, &peer] {
            drop(end.shutdown(Shutdown::Both));
        }
        assert!(status.success(), "{text}");
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let last = lines.last().unwrap();
        assert_eq!(last["schema"], "towline.tcp-watch", "{last:#}");
        assert!(lines.len() >= 4, "a line for each look: {text}");
        for line in &lines[..lines.len() - 1] {
            assert_eq!(line["schema"], "towline.tcp-connection");
            sums_to_the_whole(line);
        }
        let rows = last["connections"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "{last:#}");
        sums_to_the_whole(&rows[0]);
        rows[0].clone()
    })
}

fn sums_to_the_whole(row: &Value) {
    let shares = row["shares"].as_object().unwrap();
    let sum: f64 = shares.values().map(|share| share.as_f64().unwrap()).sum();
    assert!((sum - 100.0).abs() < 0.001, "{row:#}");
}

fn is_held_back_by(name: &str, lab: &Lab, scene: &Scene, causes: &[&str]) {
    let row = watched(lab, scene);
    println!("{name}: {} {}", row["limited_by"], row["shares"]);
    let limit = row["limited_by"].as_str().unwrap();
    assert!(causes.contains(&limit), "{name}: {row:#}");
}

#[test]
fn the_largest_share_is_that_of_what_was_made_to_happen() {
    alone(|| {
        let slow = |bytes, ms| Habit {
            bytes,
            rest: Duration::from_millis(ms),
        };
        let plain = Scene {
            writer: EAGER,
            reader: EAGER,
        };
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let reader = Scene {
            reader: slow(10_000, 10),
            ..plain
        };
        is_held_back_by("slow reader", &lab, &reader, &["receiver"]);
        let writer = Scene {
            writer: slow(3_000, 30),
            ..plain
        };
        is_held_back_by("slow writer", &lab, &writer, &["application"]);
        let lossy = Lab::new(&LabSpec::new(2)).unwrap();
        lossy.host(1).set_loss(1, 20).unwrap();
        // Up to 64 kB cross this lab as one packet, and few of them are lost: the network it is, of
        // whichever kind.
        let network = ["loss", "queue", "path"];
        is_held_back_by("lossy link", &lossy, &plain, &network);
        let slow_link = Lab::new(&LabSpec::new(2)).unwrap();
        slow_link.set_bottleneck(1, 2_000_000, 400_000).unwrap();
        is_held_back_by("rate-limited link", &slow_link, &plain, &network);
    });
}

#[test]
fn a_call_of_two_small_writes_waits_for_a_delayed_acknowledgement_unless_told_otherwise() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let server = End::start(towline(lab.host(1), "tcp serve"));
        server.await_said("answering at");
        let words = format!(
            "tcp writes {} --size 64 --calls 15 --json",
            lab.host(1).ipv4()
        );
        let (status, text) = End::start(towline(lab.host(0), &words)).finish(LIMIT);
        assert!(status.success(), "{text}");
        let report: Value = serde_json::from_str(&text).unwrap();
        let rows = report["rows"].as_array().unwrap();
        let p50 = |mode: &str| {
            let row = rows.iter().find(|row| row["coalescing"] == mode).unwrap();
            row["p50_ms"].as_f64().unwrap()
        };
        println!(
            "two writes of 64 B: nagle {} ms, no-delay {} ms, cork {} ms",
            p50("nagle"),
            p50("no-delay"),
            p50("cork")
        );
        // Not how long, but how much longer: ten times and more.
        assert!(p50("nagle") > 10.0 * p50("no-delay"), "{report:#}");
        assert!(p50("nagle") > 10.0 * p50("cork"), "{report:#}");
        server.signal("-INT");
        let (status, text) = server.finish(LIMIT);
        assert!(status.success() && text.contains("45 calls"), "{text}");
    });
}
