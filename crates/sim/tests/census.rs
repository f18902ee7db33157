//! A source counts its receivers by polls and finds the farthest, with the shipped loop.

use std::time::Duration;

use towline_sim::{Fault, Ratio, Span};

mod flow_kit;
use flow_kit::Flow;

/// Receivers 2 ms away, and 1 ms more each, with a count every second.
fn flow(receivers: u64, loss: Ratio) -> Flow {
    let ways: Vec<_> = (1..=receivers)
        .map(|number| vec![Fault::Delay(Span::millis(number)), Fault::Loss(loss)])
        .collect();
    let ways: Vec<_> = ways.iter().map(Vec::as_slice).collect();
    let mut flow = Flow::to(&ways).set(&[("poll_interval", "1s")]);
    flow.one_way = Duration::from_millis(1);
    flow.gap = Duration::from_millis(20);
    flow.length = Duration::from_secs(12);
    flow
}

#[test]
fn a_source_counts_its_receivers_and_measures_the_farthest() {
    for receivers in [1, 12, 40] {
        let outcome = flow(receivers, Ratio::ZERO).run();
        let census = outcome.sender.census.unwrap();
        assert_eq!((census.receivers, census.is_complete), (receivers, true));
        let farthest = census.farthest_round_trip.unwrap();
        let way = Duration::from_millis(2 + receivers);
        assert!(
            (way..way + Duration::from_millis(1)).contains(&farthest),
            "{receivers}: {farthest:?}"
        );
    }
}

#[test]
fn lost_polls_cost_the_count_no_more_than_their_receivers() {
    for seed in 1..=10 {
        let mut flow = flow(20, Ratio::percent(5));
        flow.seed = seed;
        let census = flow.run().sender.census.unwrap();
        assert!((15..=20).contains(&census.receivers), "{census:?}");
    }
}
