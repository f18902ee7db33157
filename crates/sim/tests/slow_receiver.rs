//! One receiver that stops reading, or loses half of all packets: what the others notice of it.

use std::time::Duration;

use delivery::Policy;
use towline_sim::{Fault, Ratio};

mod flow_kit;
use flow_kit::{Flow, Outcome};

/// Two receivers that are well and one that is not, at 20 MB/s.
fn flow(policy: Policy, faults: &[Fault]) -> Flow {
    let mut flow = Flow::flood(&[&[], &[], faults]).set(&[("rate", "20MB/s")]);
    flow.policy = policy;
    flow.length = Duration::from_secs(6);
    flow
}

/// Messages sent, in per cent of `usual`; the first two were given each of them.
fn percent(outcome: &Outcome, usual: u64) -> u64 {
    for receiver in &outcome.receivers[..2] {
        assert_eq!(receiver.lost, 0);
        assert_eq!(receiver.came.len() as u64, outcome.sender.messages);
    }
    outcome.sender.messages * 100 / usual
}

/// Messages sent when all are well.
fn usual() -> u64 {
    flow(Policy::Lose, &[]).run().sender.messages
}

#[test]
fn who_stops_reading_slows_the_others_as_the_policy_says() {
    let usual = usual();
    let stopped = |policy| {
        let mut flow = flow(policy, &[]);
        flow.pauses = vec![(Duration::from_secs(1), 2, Duration::from_secs(10))];
        flow.run()
    };
    let lose = percent(&stopped(Policy::Lose), usual);
    assert!(lose >= 99, "{lose} %");
    // Two of six seconds, until it is given up.
    let drop = percent(&stopped(Policy::Drop), usual);
    assert!((62..72).contains(&drop), "{drop} %");
    let wait = stopped(Policy::Wait).sender.messages * 100 / usual;
    assert!(wait < 20, "{wait} %");
}

#[test]
fn who_loses_half_takes_the_share_of_repairs_and_no_more() {
    let usual = usual();
    let half = [Fault::Loss(Ratio::percent(50))];
    for policy in [Policy::Lose, Policy::Drop, Policy::Wait] {
        let count = percent(&flow(policy, &half).run(), usual);
        assert!(count >= 48, "{policy:?}: {count} %");
    }
    let flow = flow(Policy::Lose, &half).set(&[("repair_share", "10")]);
    let outcome = flow.run();
    let count = percent(&outcome, usual);
    // Confirmations have an eighth of their own.
    assert!(count >= 70, "{count} %");
    assert!(outcome.receivers[2].lost > 0, "its losses are its own");
}

/// The first receiver takes 400 us for a packet, a sixth of the rate, and is never 2 s behind: the
/// flow window is smaller than that.
#[test]
fn who_holds_the_others_back_is_dropped_though_it_is_not_far_behind() {
    let mut flow = flow(Policy::Drop, &[]).set(&[("flow_window_bytes", "1MiB")]);
    flow.first_datagram_cost = Duration::from_micros(400);
    let outcome = flow.run();
    for receiver in &outcome.receivers[1..] {
        assert_eq!(receiver.came.len() as u64, outcome.sender.messages);
    }
    // In six seconds 15,000 at the slow one's pace, 85,000 at the sender's: it is dropped after
    // little more than two.
    let count = outcome.sender.messages;
    assert!((40_000..70_000).contains(&count), "{count} messages");
    let slow = outcome.receivers[0].came.len();
    assert!(slow < 15_000, "the slow one was there to the end: {slow}");
}

/// All take less than is offered, so that each is always behind: none holds the others back.
#[test]
fn who_is_as_slow_as_the_others_is_not_dropped() {
    let slow: &[Fault] = &[Fault::Rate {
        bytes_per_s: 5_000_000,
        queue_bytes: 4 << 20,
    }];
    let limits = [("rate", "20MB/s"), ("flow_window_bytes", "1MiB")];
    let mut flow = Flow::flood(&[slow, slow, slow]).set(&limits);
    flow.policy = Policy::Drop;
    let outcome = flow.run();
    // What the flow window holds may still be on its way at the end.
    let least = outcome.sender.messages - (1 << 20) / 1400;
    for receiver in &outcome.receivers {
        let came = receiver.came.len() as u64;
        assert!(came >= least, "{came}, and {least} were due");
    }
}
