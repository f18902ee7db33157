//! Trees to many receivers under the swarm's faults, and how much their reports cost a sender.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::{fmt::Write as _, path::Path};

use towline_sim::{
    Fault, Plan, Ratio, Report, Span,
    plan::{EndPlan, FileChange},
    replay::all_must_hold,
    run, swarm,
};

fn seeds(range: std::ops::Range<u64>) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    all_must_hold(range, swarm::tree_plan, "--trees --seed", dir);
}

macro_rules! parts {
    ($($name:ident $range:expr;)+) => {
        $(#[test] fn $name() { seeds($range); })+
    };
}

// Parts, so that the test runner spreads them over the machine's cores.
parts! {
    seeds_0_to_75 0..75;
    seeds_75_to_150 75..150;
    seeds_150_to_225 150..225;
    seeds_225_to_300 225..300;
}

/// A killed receiver's successor that greets before the end of its predecessor is heard; a host
/// that loses power while it is off.
#[test]
fn seeds_that_failed_once_hold() {
    seeds(1946..1947);
    seeds(2046..2047);
}

/// A small tree to so many receivers, each losing 1 % of the packets.
fn tree_plan(receivers: usize) -> Plan {
    let mut plan = Plan::parse("name = \"reports\"\nreceiver = []").unwrap();
    plan.objects = Some(towline_sim::plan::ObjectsPlan {
        files: 10,
        file_bytes_max: 20_000,
        expected: receivers,
        join_timeout: Span::millis(60_000),
        ..towline_sim::plan::ObjectsPlan::default()
    });
    plan.receivers = vec![
        EndPlan {
            ingress: vec![
                Fault::Loss(Ratio::percent(1)),
                Fault::Delay(Span::micros(50))
            ],
            ..EndPlan::default()
        };
        receivers
    ];
    plan.check.all_delivered = true;
    plan.check.proven = true;
    plan
}

fn tree_to(receivers: usize) -> Report {
    let report = run(&tree_plan(receivers), 11).unwrap();
    assert!(report.is_good(), "{report:.2000}");
    report
}

/// A file that changes in the middle of the first pass, or while repairs are read, is left out, and
/// everybody proves the rest.
#[test]
fn a_file_that_changes_during_the_transfer_is_left_out_and_the_rest_is_proven() {
    for after_bytes in [0, 60_000, 250_000] {
        let mut plan = tree_plan(5);
        let objects = plan.objects.as_mut().unwrap();
        objects.file_bytes_max = 100_000;
        objects.change = Some(FileChange {
            position: u64::MAX / 2,
            after_bytes,
        });
        for seed in 0..10 {
            let report = run(&plan, seed).unwrap();
            assert!(report.is_good(), "{report:.2000}");
        }
    }
}

/// One line of the table for each group. The design's bound is one report of a kind every 0.2 ms
/// of all receivers together; each draws its time within the interval, so a second has now and then
/// more of them than its share.
fn table(groups: &[usize]) -> String {
    let mut table = String::from(
        "receivers     time  messages     bytes  reports  at most each  \
         of a kind in the busiest second\n",
    );
    for &receivers in groups {
        let report = tree_to(receivers);
        let control = report.control;
        assert!(
            control.reports_a_second_max <= REPORTS_A_SECOND_MAX + DEVIATIONS_MAX,
            "{receivers} receivers: {control:?}"
        );
        writeln!(
            table,
            "{receivers:>9} {:>7.2}s {:>9} {:>9} {:>8} {:>13} {:>32}",
            report.took.as_secs_f64(),
            control.messages,
            control.bytes,
            control.reports,
            control.reports_each_max,
            control.reports_a_second_max,
        )
        .unwrap();
    }
    table
}

#[test]
fn reports_of_up_to_a_thousand_receivers_stay_within_their_bounds() {
    insta::assert_snapshot!("reports_by_receivers", table(&[1, 10, 100, 1000]));
}

#[test]
#[ignore = "minutes; by hand, in release"]
fn reports_of_ten_thousand_receivers_stay_within_their_bounds() {
    insta::assert_snapshot!("reports_of_ten_thousand", table(&[10_000]));
}

/// One every 0.2 ms.
const REPORTS_A_SECOND_MAX: u64 = 5_000;
/// Four standard deviations of so many independent draws, which is the root of their number.
const DEVIATIONS_MAX: u64 = 4 * 71;
