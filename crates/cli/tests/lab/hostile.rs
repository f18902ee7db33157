//! Hostile packets against a live receiver and a live source, while real traffic runs.
//!
//! Two attackers: one on a host of its own, and one on the sender's host, whose packets carry the
//! sender's own address and so pass for its own.

use std::time::{Duration, Instant};

use lab::{Lab, LabSpec};
use serde_json::Value;

use crate::{
    addresses::groups,
    attacker::{Attacker, RUN, overhear},
    ends::{End, alone, assert_complete, towline},
};

const GROUP: &str = "239.192.0.1:7500";
const LIMIT: Duration = Duration::from_secs(120);
/// Real traffic: a message a packet.
const MESSAGES: u64 = 110_000;
const RATE: &str = "10MB/s";

fn attack<'a>(far: &mut Attacker<'a>, near: &mut Attacker<'a>) {
    for attacker in [far, near] {
        attacker.at(1_000, 500, |attacker, _| attacker.nothing());
        attacker.at(1_000, 500, |attacker, _| attacker.short_data());
        attacker.at(1_000, 500, |attacker, _| attacker.endless_option());
        attacker.at(10, 5, |attacker, _| attacker.far_lead());
    }
}

fn count(report: &Value, name: &str) -> u64 {
    let value = report["counters"][name].as_u64();
    value.unwrap_or_else(|| panic!("{name} in {report:#}"))
}

fn drops(report: &Value) -> u64 {
    let counters = report["counters"].as_object().unwrap();
    let drops = counters
        .iter()
        .filter(|(name, _)| name.starts_with("drop."));
    drops.map(|(_, value)| value.as_u64().unwrap()).sum()
}

#[test]
fn hostile_packets_stop_nothing() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let group = format!("-g {GROUP}");
        let words = format!("load recv {group} --json --count {MESSAGES} --timeout 30s");
        let mut receiver = End::start(towline(lab.host(1), &words));
        let words = format!(
            "load send {group} --json --receivers 1 --policy wait --count {MESSAGES} --size 1400 \
             --rate {RATE} --timeout 30s"
        );
        let mut source = End::start(towline(lab.host(0), &words));
        let session = overhear(lab.host(2), GROUP.parse().unwrap(), true);
        let mut far = Attacker::new(lab.host(2), &session);
        let mut near = Attacker::new(lab.host(0), &session);
        attack(&mut far, &mut near);
        let mut heavy = |what: &str, run: &dyn Fn(&mut Attacker<'_>)| {
            let (start, before) = (Instant::now(), far.sent);
            run(&mut far);
            let memory = [receiver.resident_kib(), source.resident_kib()];
            let sent = far.sent - before;
            println!("{what}: {sent} in {:?}; KiB {memory:?}", start.elapsed());
            assert!(receiver.is_running() && source.is_running(), "{what}");
            assert!(memory.iter().all(|&kib| kib < MEMORY_KIB_MAX), "{what}");
        };
        heavy("NAK lists", &|far| {
            far.at(10_000, 20_000, |far, index| {
                far.greedy_nak(index % 64 * 63);
            });
        });
        heavy("noise", &|far| {
            (0..50_000).for_each(|_| far.noise());
        });
        heavy("strangers", &|far| {
            far.strangers(1_000_000_u32.div_ceil(RUN as u32));
        });
        let received = receiver.report(LIMIT);
        let sent = source.report(LIMIT);
        for key in ["missing", "duplicates", "out_of_order", "lost_packets"] {
            assert_eq!(received[key], 0, "{key} in {received:#}");
        }
        assert_eq!(received["messages"], MESSAGES, "{received:#}");
        assert_eq!(sent["messages"], MESSAGES, "{sent:#}");
        assert_eq!(sent["is_confirmed"], true, "{sent:#}");
        let shown = received["drops"].as_object().unwrap();
        let shown = shown.values().map(|value| value.as_u64().unwrap());
        let at_kernel = count(&received, "udp.kernel_drops");
        assert_eq!(
            shown.sum::<u64>(),
            drops(&received) + at_kernel,
            "{received:#}"
        );
        let seen = count(&received, "receiver.seen_packets");
        let used = ["payload", "held", "control"]
            .map(|what| count(&received, &format!("receiver.{what}_packets")));
        assert_eq!(
            used.iter().sum::<u64>() + drops(&received),
            seen,
            "{received:#}"
        );
        assert_eq!(seen, count(&received, "udp.received_datagrams"));
        let seen = count(&sent, "source.upstream_packets");
        let handled = count(&sent, "source.upstream_handled");
        assert_eq!(handled + drops(&sent), seen, "{sent:#}");
        assert_eq!(seen, count(&sent, "udp.received_datagrams"));
        println!(
            "sent in {} s, received in {} s",
            sent["seconds"], received["seconds"]
        );
    });
}

#[test]
fn forged_ends_cost_no_message_without_a_key_at_any_kind_of_address() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        for (from, to) in groups(&lab) {
            let words = format!("load recv -g {from} --json --count 5000 --timeout 60s");
            let receiver = End::start(towline(lab.host(1), &words));
            let words = format!(
                "load send -g {to} --json --receivers 1 --count 5000 --size 1400 --rate 2MB/s \
                 --timeout 60s"
            );
            let source = End::start(towline(lab.host(0), &words));
            let session = overhear(lab.host(2), to.parse().unwrap(), true);
            // In the sender's name: ends, resets, and trails far ahead.
            let mut near = Attacker::new(lab.host(0), &session);
            near.at(200, 400, Attacker::forged_end);
            near.at(20, 20, |near, _| near.far_lead());
            assert_complete(&receiver.report(LIMIT), 5_000);
            let sent = source.report(LIMIT);
            assert_eq!(sent["is_confirmed"], true, "{to}: {sent:#}");
        }
    });
}

/// Half of a megabyte for each of 64 senders, 64 MiB of held data, and the program: far below what
/// a million senders would take.
const MEMORY_KIB_MAX: u64 = 300 * 1024;
