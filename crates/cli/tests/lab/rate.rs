//! A rate that sets itself, through a slow cable: found, hardly anything lost, nothing for good.

use std::{
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabSpec};

use crate::ends::{End, alone, assert_complete, towline};

const GROUP: &str = "239.192.0.9:7509";
const LIMIT: Duration = Duration::from_secs(60);
/// What the search for the rate takes, and for how long it is then watched.
const START_TIME: Duration = Duration::from_secs(3);
const WATCH_TIME: Duration = Duration::from_secs(4);

/// What the cable carried and what was sent, both up to now.
struct Sample {
    taken: Instant,
    carried: u64,
    packets: u64,
    repairs: u64,
}

impl Sample {
    fn take(lab: &Lab, sender: &End) -> Self {
        let count = |name| sender.counter(name).expect("the sender runs");
        Self {
            taken: Instant::now(),
            carried: lab.bytes_to(1).unwrap(),
            packets: count("source.odata_packets"),
            repairs: count("source.rdata_packets"),
        }
    }
}

/// Per mille of the cable that is used once the rate is found, and of packets repaired meanwhile.
fn steady(mbit_per_s: u32) -> (u64, u64) {
    let bytes_per_s = mbit_per_s * 125_000;
    let lab = Lab::new(&LabSpec::new(2).segments_at_switch()).unwrap();
    // As much as 16 ms carry: no more than a switch has for a port.
    lab.set_bottleneck(1, bytes_per_s, bytes_per_s / 1000 * 16)
        .unwrap();
    let words = format!("load recv -g {GROUP} --json --timeout 30s");
    let receiver = End::start(towline(lab.host(1), &words));
    let words = format!(
        "load send -g {GROUP} --json --receivers 1 --policy wait --rate auto --size 1400 \
         --seconds 9"
    );
    let sender = End::start(towline(lab.host(0), &words));
    sender.await_counter("source.odata_packets", 1);
    thread::sleep(START_TIME);
    let first = Sample::take(&lab, &sender);
    thread::sleep(WATCH_TIME);
    let last = Sample::take(&lab, &sender);
    let report = sender.report(LIMIT);
    let messages = report["messages"].as_u64().unwrap();
    assert_complete(&receiver.report(LIMIT), messages);
    let watched_ms = u64::try_from((last.taken - first.taken).as_millis()).unwrap();
    let used = (last.carried - first.carried) * 1_000_000 / watched_ms / u64::from(bytes_per_s);
    let packets = last.packets - first.packets;
    (used, (last.repairs - first.repairs) * 1000 / packets.max(1))
}

/// The bounds are wide: other tests may take half of the machine away.
fn check(mbit_per_s: u32) {
    alone(|| {
        let (used, repaired) = steady(mbit_per_s);
        println!("{mbit_per_s} Mbit/s: {used} per mille used, {repaired} repaired");
        assert!((400..=1050).contains(&used), "{used} per mille used");
        assert!(repaired < 50, "{repaired} per mille repaired");
    });
}

/// Without the search for the rate every packet would leave several times, each repair too.
#[test]
fn a_file_through_a_slow_cable_is_sent_hardly_more_than_once() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2).segments_at_switch()).unwrap();
        lab.set_bottleneck(1, 6_250_000, 100_000).unwrap();
        let root = std::env::temp_dir().join(format!("towline-rate-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let file = root.join("file");
        std::fs::write(&file, vec![7; 12_000_000]).unwrap();
        let into = root.join("into");
        let words = format!("recv {} -g {GROUP} --from any --json", into.display());
        let receiver = End::start(towline(lab.host(1), &words));
        let words = format!("send {} -g {GROUP} --receivers 1 --json", file.display());
        let sent = End::start(towline(lab.host(0), &words)).report(LIMIT);
        assert_eq!(receiver.report(LIMIT)["is_complete"], true);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(sent["is_proven"], true, "{sent:#}");
        assert_eq!(sent["receivers"][0]["limited_by"], "the network");
        let count = |name: &str| sent["counters"][name].as_u64().unwrap();
        let (packets, repairs) = (count("source.odata_packets"), count("source.rdata_packets"));
        println!("{packets} packets, {repairs} repairs");
        assert!(repairs < packets / 2, "{repairs} of {packets}");
    });
}

#[test]
fn a_cable_of_50_mbit_per_s_is_found() {
    check(50);
}

#[test]
fn a_cable_of_200_mbit_per_s_is_found() {
    check(200);
}
