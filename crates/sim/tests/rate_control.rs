//! A rate that sets itself, on links that are slow, lossy, or end in a slow host.

use std::{fmt::Write as _, time::Duration};

use base::Pace;
use delivery::RateCause;
use towline_sim::{Fault, Ratio, Span};

mod flow_kit;
use flow_kit::{Flow, Outcome, Sample};

/// What was sent from second `from` on to the end: share of the bytes that `bytes_per_s` carries,
/// and packets repaired for each sent, both in per mille.
fn steady(outcome: &Outcome, from: usize, bytes_per_s: u64) -> (u64, u64) {
    let samples = &outcome.sender.samples[from * 10..];
    let (first, last): (&Sample, &Sample) = (&samples[0], &samples[samples.len() - 11]);
    let seconds_tenths = (samples.len() - 11) as u64;
    // The link counts 38 bytes more for each packet than the source does.
    let packets = last.packets - first.packets;
    let repairs = last.repairs - first.repairs;
    let bytes = last.wire_bytes - first.wire_bytes + 38 * (packets + repairs);
    let share = bytes * 10_000 / seconds_tenths / bytes_per_s;
    (share, repairs * 1000 / packets.max(1))
}

fn slow_link(mbit_per_s: u64, queue_bytes: u64, seconds: u64) -> (u64, u64) {
    let bytes_per_s = mbit_per_s * 125_000;
    let mut flow = Flow::flood(&[&[], &[], &[]]);
    flow.egress = vec![Fault::Rate {
        bytes_per_s,
        queue_bytes,
    }];
    flow.one_way = Duration::from_micros(200);
    flow.length = Duration::from_secs(seconds);
    let outcome = flow.run();
    for receiver in &outcome.receivers {
        assert_eq!(receiver.came.len() as u64, outcome.sender.messages);
    }
    steady(&outcome, 3, bytes_per_s)
}

#[test]
fn a_slow_link_is_found_and_hardly_anything_lost() {
    let mut table = "link         carried, per mille   repaired, per mille\n".to_owned();
    for (mbit_per_s, queue_bytes, seconds) in
        [(50, 100_000, 10), (200, 400_000, 8), (1000, 1_000_000, 6)]
    {
        let (share, repaired) = slow_link(mbit_per_s, queue_bytes, seconds);
        let link = format!("{mbit_per_s} Mbit/s");
        writeln!(table, "{link:<11} {share:>20} {repaired:>21}").unwrap();
        assert!(
            (900..=1005).contains(&share),
            "{mbit_per_s} Mbit/s: {share} per mille"
        );
        assert!(
            repaired < 10,
            "{mbit_per_s} Mbit/s: {repaired} per mille repaired"
        );
    }
    insta::assert_snapshot!("goodput_of_slow_links", table);
}

#[test]
fn random_loss_sets_no_limit() {
    for percent in [1, 5] {
        let loss = [Fault::Loss(Ratio::percent(percent))];
        let mut flow = Flow::flood(&[&loss]);
        flow.length = Duration::from_secs(2);
        // What the sender's host can do, with a queue that never fills.
        flow.egress = vec![Fault::Delay(Span::micros(1))];
        flow.gap = Duration::from_micros(20);
        let outcome = flow.run();
        let limited = outcome
            .sender
            .samples
            .iter()
            .filter(|sample| sample.limit.is_some());
        assert_eq!(limited.count(), 0, "{percent} %");
        assert_eq!(
            outcome.sender.samples.last().map(|sample| sample.pace),
            Some(Pace::Unlimited)
        );
    }
}

#[test]
fn a_host_that_drops_sets_the_limit_and_is_named() {
    let mut flow = Flow::flood(&[&[], &[]]);
    // 50,000 packets a second, and a socket that holds less than the flow window.
    flow.first_datagram_cost = Duration::from_micros(20);
    flow.receive_buffer_bytes = 500_000;
    flow.length = Duration::from_secs(5);
    let outcome = flow.run();
    let (share, _) = steady(&outcome, 2, 50_000 * 1490);
    assert!(
        (600..=1005).contains(&share),
        "{share} per mille of what the host takes"
    );
    let last = outcome.sender.samples[45];
    assert_eq!(last.limiting_host, Some([10, 0, 0, 2].into()));
    assert_eq!(last.limit.map(|limit| limit.cause), Some(RateCause::Host));
}
