//! Repairs in turns: a receiver that asks for thousands does not delay another's few.

use std::time::Duration;

use towline_sim::{Fault, Ratio};

mod flow_kit;
use flow_kit::{Flow, Outcome, percentile};

/// 20,000 messages a second; one receiver loses one in 200, the other stops for 300 ms with a
/// socket buffer that holds 20 ms of them.
fn run() -> Outcome {
    let loss = Fault::Loss(Ratio::new(1, 200));
    let mut flow = Flow::to(&[&[loss], &[]]).set(&[("repair_bytes_per_s_max", "10MB/s")]);
    flow.burst = 2;
    flow.gap = Duration::from_micros(100);
    flow.length = Duration::from_secs(3);
    flow.receive_buffer_bytes = 500_000;
    flow.pauses = vec![(Duration::from_secs(1), 1, Duration::from_millis(300))];
    flow.run()
}

/// How long the healthy receiver waited for each repair, ascending.
fn waits() -> Vec<Duration> {
    let outcome = run();
    let [healthy, stopped] = &outcome.receivers[..] else {
        panic!("two receivers");
    };
    for receiver in [healthy, stopped] {
        assert_eq!(receiver.lost, 0);
        assert_eq!(receiver.came.len() as u64, outcome.sender.messages);
    }
    let usual = Duration::from_micros(150);
    let asked = stopped.repaired(usual).len();
    assert!(asked > 4000, "{asked}");
    let waits = healthy.repaired(usual);
    assert!(waits.len() > 150, "{}", waits.len());
    waits
}

#[test]
fn one_who_asks_for_thousands_does_not_delay_anothers_few() {
    let waits = waits();
    // Some repairs are lost as well, and asked for again.
    let (most, longest) = (percentile(&waits, 98), percentile(&waits, 100));
    assert!(most < Duration::from_millis(10), "{most:?}");
    assert!(longest < Duration::from_millis(100), "{longest:?}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn in_one_line_it_does() {
    use base::planted::{Bug, plant};
    plant(Some(Bug::RepairsInOneLine));
    let most = percentile(&waits(), 98);
    plant(None);
    assert!(most > Duration::from_millis(200), "{most:?}");
}
