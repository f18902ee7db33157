//! What `send --to` names as having held it back is what was made to hold it back: each cause in
//! turn, at the end of a transfer that is proven all the same.

use std::{fs, net::SocketAddr, path::PathBuf, process::Command, thread, time::Duration};

use lab::{Host, Lab, LabSpec};
use serde_json::Value;

use crate::ends::{End, alone, towline};

const LIMIT: Duration = Duration::from_secs(60);
const PORT: u16 = 7500;

/// Sends a file from host 0 to host 1, while `meddle` does something to the two programs. Returns
/// the sender's word for the limit; the shares of time are printed.
fn limit(lab: &Lab, name: &str, bytes: usize, meddle: impl Fn(&mut End, &End)) -> String {
    let root = std::env::temp_dir().join(format!("towline-limit-{name}-{}", std::process::id()));
    drop(fs::remove_dir_all(&root));
    fs::create_dir_all(&root).unwrap();
    fs::write(root.join("file"), content(bytes)).unwrap();
    let words = format!(
        "recv {} --listen {PORT} --from 10.77.0.0/24 --json",
        root.join("in").display()
    );
    let receiver = End::start(towline(lab.host(1), &words));
    receiver.await_session();
    let to = SocketAddr::new(lab.host(1).ipv4().into(), PORT);
    let words = format!("send {} --to {to} --json", root.join("file").display());
    let mut sender = End::start(towline(lab.host(0), &words));
    meddle(&mut sender, &receiver);
    let sent = sender.report(LIMIT);
    assert_eq!(sent["is_proven"], true, "{name}: {sent:#}");
    assert_eq!(receiver.report(LIMIT)["is_complete"], true, "{name}");
    fs::remove_dir_all(&root).unwrap();
    let row = &sent["receivers"][0];
    sums_to_the_whole(name, row);
    println!(
        "{name}: {} in {} s: {}",
        row["limited_by"], sent["seconds"], row["held_back"]
    );
    row["limited_by"].as_str().unwrap().to_owned()
}

fn sums_to_the_whole(name: &str, row: &Value) {
    let shares = row["held_back"].as_object();
    let shares = shares.unwrap_or_else(|| panic!("{name}: the kernel counts nothing: {row:#}"));
    let sum: f64 = shares.values().map(|share| share.as_f64().unwrap()).sum();
    assert!((sum - 100.0).abs() < 0.001, "{name}: {row:#}");
}

/// Bytes that repeat nowhere.
fn content(bytes: usize) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes + 8);
    let mut word = 7_u64;
    while all.len() < bytes {
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        all.extend_from_slice(&word.rotate_left(29).to_le_bytes());
    }
    all.truncate(bytes);
    all
}

/// Gives a process the processor for 10 ms between two stops, until the sender has ended.
fn starve(pid: u32, sender: &mut End, stop: Duration) {
    let signal = |name: &str| {
        let kill = Command::new("kill").args([name, &pid.to_string()]).output();
        drop(kill.unwrap());
    };
    while sender.is_running() {
        signal("-STOP");
        thread::sleep(stop);
        signal("-CONT");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Sets a network setting of one host; false where that is not allowed.
fn set(host: &Host, name: &str, value: &str) -> bool {
    let path = PathBuf::from("/proc/sys/net/ipv4").join(name);
    let written = host.enter(|| fs::write(&path, value)).unwrap();
    if let Err(error) = &written {
        println!("skipped: cannot set {}: {error}", path.display());
    }
    written.is_ok()
}

#[test]
fn a_sender_that_is_hardly_given_the_processor_is_named() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let limit = limit(&lab, "sender", 30_000_000, |sender, _| {
            starve(sender.pid(), sender, Duration::from_millis(90));
        });
        assert_eq!(limit, "the sender: reading and hashing");
    });
}

#[test]
fn a_receiver_that_is_hardly_given_the_processor_is_named() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        // Many times what its socket takes while it is stopped.
        let limit = limit(&lab, "receiver", 100_000_000, |sender, receiver| {
            starve(receiver.pid(), sender, Duration::from_millis(200));
        });
        assert_eq!(limit, "the receiver's window");
    });
}

#[test]
fn a_send_buffer_that_is_too_small_for_a_long_path_is_named() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let _path = lab.lengthen(1, Duration::from_millis(10)).unwrap();
        if !set(lab.host(0), "tcp_wmem", "4096 16384 16384") {
            return;
        }
        let limit = limit(&lab, "send-buffer", 2_000_000, |_, _| {});
        assert_eq!(limit, "the send buffer");
    });
}

#[test]
fn a_line_that_loses_segments_is_named() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2).segments_at_switch()).unwrap();
        lab.host(1).set_segment_loss(1, 5).unwrap();
        let limit = limit(&lab, "loss", 30_000_000, |_, _| {});
        assert!(lab.host(1).lost_packets().unwrap() > 0);
        assert_eq!(limit, "the network: loss");
    });
}

/// The window grows until the queue holds a second of the line: no congestion control that looks at
/// the delay alone.
#[test]
fn a_queue_on_the_way_is_named() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        lab.set_bottleneck(1, 1_000_000, 30_000_000).unwrap();
        if !set(lab.host(0), "tcp_congestion_control", "reno") {
            return;
        }
        let limit = limit(&lab, "queue", 4_000_000, |_, _| {});
        assert_eq!(limit, "the network: a queue on the way");
    });
}

/// What is sent fits into a few round trips, each of which the window has to wait for.
#[test]
fn a_long_path_is_named_as_the_network() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let _path = lab.lengthen(1, Duration::from_millis(40)).unwrap();
        let limit = limit(&lab, "path", 3_000_000, |_, _| {});
        assert_eq!(limit, "the network");
    });
}
