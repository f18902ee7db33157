//! Messages that share packets, over a network that loses some.

use std::time::Duration;

use towline_sim::{Fault, Ratio};

mod flow_kit;
use flow_kit::Flow;

#[test]
fn every_message_comes_once_through_loss() {
    let loss = Fault::Loss(Ratio::new(1, 20));
    let mut flow = Flow::to(&[&[loss], &[loss], &[]]).set(&[("pack", "true")]);
    flow.bytes = 64;
    flow.burst = 50;
    flow.length = Duration::from_secs(2);
    let outcome = flow.run();
    assert!(outcome.sender.messages > 50_000);
    for receiver in &outcome.receivers {
        assert_eq!(receiver.lost, 0);
        // This kit's receivers hand over what arrives, not in order.
        let mut numbers: Vec<_> = receiver.came.iter().map(|came| came.number).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..outcome.sender.messages));
    }
    assert!(outcome.receivers[0].naks > 100);
}
