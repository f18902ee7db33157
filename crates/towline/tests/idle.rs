//! What sessions cost that do nothing, in a process of their own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use towline::{Publisher, SessionBuilder, Subscriber};

fn session(number: u16) -> SessionBuilder {
    let group = format!("239.192.83.1@lo:{}", 18_100 + number);
    SessionBuilder::new(group.parse().unwrap())
}

/// Resident memory of this process, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    let word = line.unwrap().split_whitespace().nth(1).unwrap();
    word.parse().unwrap()
}

#[test]
fn idle_sessions_take_little_memory_and_no_thread() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let (before, threads_before) = (resident_kib(), threads());
    let mut publishers: Vec<_> = (0..10)
        .map(|number| Publisher::builder(session(number)).open().unwrap())
        .collect();
    let subscribers: Vec<_> = (0..10)
        .map(|number| Subscriber::open(&session(number)).unwrap())
        .collect();
    for publisher in &mut publishers {
        publisher.send(&[0; 1000]).unwrap();
        publisher.flush().unwrap();
    }
    let each = (resident_kib() - before) / 10;
    assert_eq!(threads(), threads_before);
    // The transmit window of 64 MiB is not there before it is used.
    assert!(each < 2_048, "{each} KiB for a publisher and a subscriber");
    drop((publishers, subscribers));
}
