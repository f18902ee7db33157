//! How much the reports of many receivers of messages cost their sender.

use towline_sim::{
    Fault, Plan, Ratio, Span,
    plan::{EndPlan, PolicyPlan, Workload},
    run,
};

/// A thousand receivers of one sender by policy wait. Every packet makes all of them move, a
/// quarter of the flow window makes a report of each due before its interval, and the pauses let
/// all of them catch up at once.
#[test]
fn reports_of_a_thousand_receivers_of_messages_stay_within_their_bound() {
    let mut plan = Plan::parse("name = \"reports of messages\"\nreceiver = []").unwrap();
    plan.session.policy = PolicyPlan::Wait;
    plan.session.reports = true;
    plan.senders = vec![EndPlan::default()];
    plan.receivers = vec![
        EndPlan {
            ingress: vec![
                Fault::Loss(Ratio::per_mille(1)),
                Fault::Delay(Span::micros(50)),
            ],
            ..EndPlan::default()
        };
        RECEIVERS
    ];
    plan.workload = Workload {
        messages: 600,
        size_min: 1000,
        size_max: 1000,
        small_one_in: 0,
        gap: Span::millis(100),
        burst: 30,
    };
    plan.config.insert("flow_window_sqns".into(), "64".into());
    plan.check.all_delivered = true;
    plan.check.all_ended = true;
    let report = run(&plan, 5).unwrap();
    assert!(report.is_good(), "{report:.2000}");
    let control = report.control;
    println!("took {:?}, {control:?}", report.took);
    assert!(control.reports > 4 * RECEIVERS as u64, "{control:?}");
    assert!(
        control.reports_a_second_max <= REPORTS_A_SECOND_MAX,
        "{control:?}"
    );
}

const RECEIVERS: usize = 1000;
/// One every 0.2 ms and four standard deviations of as many draws; the one that holds the rest back
/// reports every 5 ms besides, and with the end of the session come the last words of all.
const REPORTS_A_SECOND_MAX: u64 = 5_000 + 4 * 71 + 200 + RECEIVERS as u64;
