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
    send_buffer_bytes: Option<usize>,
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
    if let Some(bytes) = scene.send_buffer_bytes {
        sys::tcp::set_send_buffer(&stream, bytes).unwrap();
    }
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

fn every_cause_has_the_largest_share_where_it_was_made_to_happen() {
    let slow = |bytes, ms| Habit {
        bytes,
        rest: Duration::from_millis(ms),
    };
    let plain = Scene {
        writer: EAGER,
        reader: EAGER,
        send_buffer_bytes: None,
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
    // There is a round trip to wait for.
    let late = Lab::new(&LabSpec::new(2)).unwrap();
    let _path = late.lengthen(1, Duration::from_millis(10)).unwrap();
    let buffer = Scene {
        send_buffer_bytes: Some(16_384),
        ..plain
    };
    is_held_back_by("small send buffer", &late, &buffer, &["send-buffer"]);
    // A line that carries single packets: what is lost is a packet, not a run of 64 kB.
    let lossy = Lab::new(&LabSpec::new(2).segments_at_switch()).unwrap();
    lossy.host(1).set_segment_loss(1, 20).unwrap();
    is_held_back_by("lossy link", &lossy, &plain, &["loss"]);
    assert!(lossy.host(1).lost_packets().unwrap() > 0);
    let slow_link = Lab::new(&LabSpec::new(2)).unwrap();
    slow_link.set_bottleneck(1, 2_000_000, 400_000).unwrap();
    // What overflows the queue of the line is lost.
    let network = ["loss", "queue"];
    is_held_back_by("rate-limited link", &slow_link, &plain, &network);
}

#[test]
#[ignore = "fails: not every cause has been seen to have the largest share"]
fn the_largest_share_is_that_of_what_was_made_to_happen() {
    alone(every_cause_has_the_largest_share_where_it_was_made_to_happen);
}

#[test]
#[ignore = "takes three minutes"]
fn in_ten_runs_of_ten_the_largest_share_is_that_of_what_was_made_to_happen() {
    alone(|| {
        for run in 1..=10 {
            println!("run {run}");
            every_cause_has_the_largest_share_where_it_was_made_to_happen();
        }
    });
}

#[test]
fn a_watched_process_that_ends_ends_the_watch_with_its_report() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let to = SocketAddr::new(lab.host(1).ipv4().into(), PORT);
        let listener = lab.host(1).enter(|| TcpListener::bind(to));
        let listener = listener.unwrap().unwrap();
        let file = std::env::temp_dir().join(format!("towline-watched-{}", std::process::id()));
        std::fs::write(&file, vec![7; 30_000_000]).unwrap();
        let words = format!("send {} --to {to} --plain", file.display());
        let watched = End::start(towline(lab.host(0), &words));
        let (peer, _) = listener.accept().unwrap();
        let pid = watched.pid();
        let words = format!("tcp watch --pid {pid} --every 100ms --json");
        let watch = End::start(towline(lab.host(0), &words));
        watch.await_said("watching");
        thread::scope(|scope| {
            let habit = Habit {
                bytes: 10_000,
                rest: Duration::from_millis(1),
            };
            scope.spawn(move || read(&peer, habit));
            thread::sleep(Duration::from_millis(600));
            watched.signal("-KILL");
            let (status, text) = watch.finish(LIMIT);
            assert!(status.success(), "{text}");
            let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
            assert_eq!(last["schema"], "towline.tcp-watch");
            let rows = last["connections"].as_array().unwrap();
            assert_eq!(rows.len(), 1, "{last:#}");
            assert_eq!(rows[0]["process"]["pid"], pid, "{last:#}");
        });
        std::fs::remove_file(file).unwrap();
    });
}

#[test]
fn a_call_of_two_small_writes_waits_for_a_delayed_acknowledgement_unless_told_otherwise() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let server = End::start(towline(lab.host(1), "tcp serve"));
        server.await_said("answering at");
        let picture = std::env::temp_dir().join(format!("calls-{}.svg", std::process::id()));
        let words = format!(
            "tcp writes {} --size 64 --calls 15 --json --to {}",
            lab.host(1).ipv4(),
            picture.display()
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
        let drawn = std::fs::read_to_string(&picture).unwrap();
        assert!(
            drawn.contains("median of a call, ms") && drawn.contains("nagle"),
            "{drawn}"
        );
        std::fs::remove_file(picture).unwrap();
        server.signal("-INT");
        let (status, text) = server.finish(LIMIT);
        assert!(status.success() && text.contains("45 calls"), "{text}");
    });
}
