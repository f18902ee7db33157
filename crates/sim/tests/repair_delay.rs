//! How long a repair takes with timers that set themselves, and with fixed ones, as a table.
//!
//! Steady: 5,000 messages a second, 1 % of everything lost on the way to each receiver. Last: the
//! last of five messages before a pause of half a second, 20 % lost, so that nothing but an SPM
//! tells of it. Times are those from offering a message to its arrival by a repair.

use std::{fmt::Write as _, time::Duration};

use towline_sim::{Fault, Ratio};

mod flow_kit;
use flow_kit::{Flow, Outcome, percentile};

/// A LAN's, as other implementations ask for them to be set by hand.
const FIXED: [(&str, &str); 6] = [
    ("nak_backoff_min", "200us"),
    ("nak_backoff_max", "2ms"),
    ("nak_repeat_interval", "10ms"),
    ("nak_rdata_interval", "20ms"),
    ("elimination_interval", "4ms"),
    ("spm_heartbeat_min", "5ms"),
];

/// A row of the table: delays of 50 and 99 of 100 repairs, in microseconds.
struct Row {
    steady: [u128; 2],
    last: [u128; 2],
    naks_per_lost_percent: u64,
}

fn row(round_trip_us: u64, receivers: usize, settings: &[(&str, &str)]) -> Row {
    let one_way = Duration::from_micros(round_trip_us) / 2;
    let usual = one_way + Duration::from_micros(100);
    let run = |percent, burst, gap_us, length| {
        let loss = [Fault::Loss(Ratio::percent(percent))];
        let mut flow = Flow::to(&vec![&loss[..]; receivers]).set(settings);
        flow.one_way = one_way;
        (flow.burst, flow.gap) = (burst, Duration::from_micros(gap_us));
        flow.length = Duration::from_secs(length);
        let outcome = flow.run();
        assert!(outcome.receivers.iter().all(|taken| taken.lost == 0));
        outcome
    };
    let both = |mut delays: Vec<Duration>| {
        delays.sort_unstable();
        assert!(delays.len() > 50, "{} delays", delays.len());
        [50, 99].map(|percent| percentile(&delays, percent).as_micros())
    };
    let late = |outcome: &Outcome, is_wanted: &dyn Fn(u64) -> bool| {
        let all = outcome.receivers.iter().flat_map(|taken| &taken.came);
        let late = all.filter(|came| came.after > usual && is_wanted(came.number));
        late.map(|came| came.after).collect::<Vec<_>>()
    };
    let steady = run(1, 1, 200, 10);
    let delays = late(&steady, &|_| true);
    let naks: u64 = steady.receivers.iter().map(|taken| taken.naks).sum();
    Row {
        naks_per_lost_percent: naks * 100 / delays.len() as u64,
        steady: both(delays),
        last: both(late(&run(20, 5, 500_000, 2_000), &|number| number % 5 == 4)),
    }
}

/// Timers that set themselves serve no row worse than fixed ones, but for what their storm of NAKs
/// buys on a long way: a packet whose repairs are lost too.
fn check(round_trip_us: u64, auto: &Row, fixed: &Row) {
    let is_long = round_trip_us >= 100_000;
    for (auto, fixed, percent) in [
        (auto.steady[0], fixed.steady[0], 105),
        (auto.steady[1], fixed.steady[1], 105),
        (auto.last[0], fixed.last[0], 105),
        (auto.last[1], fixed.last[1], 150),
    ] {
        assert!(
            auto * 100 <= fixed * percent,
            "round trip of {round_trip_us} us: {auto} us instead of {fixed} us"
        );
    }
    let naks_max = if is_long { 150 } else { 110 };
    assert!(auto.naks_per_lost_percent <= naks_max);
}

/// One table for so many receivers.
fn table(receivers: usize) -> String {
    let mut text = String::from(
        "round trip  timers  steady p50      p99  last p50      p99  NAKs per repair\n\
         (delays and round trips in ms)\n",
    );
    for round_trip_us in [50, 1_000, 20_000, 200_000] {
        let rows = [("auto", &[][..]), ("fixed", &FIXED)]
            .map(|(name, settings)| (name, row(round_trip_us, receivers, settings)));
        check(round_trip_us, &rows[0].1, &rows[1].1);
        for (name, row) in rows {
            let ms = |us: u128| us as f64 / 1000.0;
            let [s50, s99] = row.steady.map(ms);
            let [l50, l99] = row.last.map(ms);
            writeln!(
                text,
                "{:>10.2}  {name:<6}  {s50:>10.2} {s99:>8.2}  {l50:>8.2} {l99:>8.2}  {:>15.2}",
                round_trip_us as f64 / 1000.0,
                row.naks_per_lost_percent as f64 / 100.0,
            )
            .expect("a String takes everything");
        }
    }
    text
}

#[test]
fn repairs_to_one_receiver() {
    insta::assert_snapshot!(table(1));
}

#[test]
fn repairs_to_four_receivers() {
    insta::assert_snapshot!(table(4));
}

#[test]
fn a_source_is_asked_at_the_port_that_it_tells() {
    let loss = [Fault::Loss(Ratio::percent(10))];
    let usual = Flow::to(&[&loss, &loss]);
    let elsewhere = Flow {
        upstream_port: 40_123,
        ..usual.clone()
    };
    for outcome in [usual.run(), elsewhere.run()] {
        assert!(outcome.sender.repairs > 100);
        for receiver in &outcome.receivers {
            assert_eq!(receiver.came.len() as u64, outcome.sender.messages);
        }
    }
}
