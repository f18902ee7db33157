//! Whole transfers: loss, crashes, late joiners, broken connections, stores that fail.

use proptest::prelude::*;
use wire::object::ErrorCode;

use super::*;
use crate::{ReceiverState, memory::StoreFaults};

const MINUTE: Duration = Duration::from_secs(60);

fn state(outcome: &PlanOutcome, name: &str) -> ReceiverState {
    let report = outcome.receivers.iter().find(|report| report.name == name);
    report.expect("it joined").state.clone()
}

fn failure(outcome: &PlanOutcome, name: &str) -> (ErrorCode, String) {
    match state(outcome, name) {
        ReceiverState::Failed { code, text } => (code, text),
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn a_tree_reaches_one_receiver_without_loss_in_one_pass() {
    let mut world = World::new(1, 1, tree());
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
    let counters = world.sender.counters();
    assert_eq!(counters.passes, 2, "manifest and content");
    let bytes = world.plan.content_bytes() + world.plan.seals_bytes();
    assert_eq!(counters.block_bytes, bytes);
    assert_eq!(counters.fill_bytes, world.plan.manifest().len() as u64);
    assert_eq!(
        world.sender.content().bytes_read,
        world.plan.content_bytes()
    );
}

#[test]
fn three_receivers_with_loss_all_become_whole() {
    let loss = Loss {
        per_mille: 50,
        late_per_mille: 100,
        turned_per_mille: 0,
    };
    let mut world = World::new(2, 3, tree()).lossy(loss);
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
    assert!(
        world.sender.counters().fill_bytes > 0,
        "what one alone lacks goes to it alone"
    );
    let again = world.sender.counters().block_bytes - world.plan.content_bytes();
    assert!(
        again < world.plan.content_bytes() / 20,
        "only what several lack goes to all again"
    );
}

#[test]
fn twenty_receivers_with_different_loss_all_become_whole() {
    let mut world = World::new(3, 20, tree());
    for (index, node) in world.nodes.iter_mut().enumerate() {
        node.loss.per_mille = index as u64 * 15;
        node.loss.late_per_mille = 20;
    }
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
}

#[test]
fn two_hundred_receivers_all_become_whole_with_few_reports() {
    let mut world = World::new(23, 200, vec![Entry::file("f", 3 << 20)]);
    for (index, node) in world.nodes.iter_mut().enumerate() {
        node.loss.per_mille = index as u64 % 5;
    }
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven());
    world.assert_whole();
    // What few lack goes to them alone: that is far less than a further pass to all.
    let counters = world.sender.counters();
    assert!(
        counters.fill_bytes < 4 * world.plan.content_bytes(),
        "{counters:?}"
    );
    assert!(counters.passes < 10, "{counters:?}");
}

#[test]
fn a_tree_without_content_is_delivered_too() {
    for entries in [
        vec![],
        vec![Entry::directory("d"), Entry::file("d/none", 0)],
    ] {
        let mut world = World::new(4, 2, entries);
        let outcome = world.run(MINUTE);
        assert!(outcome.is_proven(), "{outcome:#?}");
        world.assert_whole();
    }
}

#[test]
fn who_hears_no_multicast_gets_everything_over_its_connection() {
    for deaf in [1, 3] {
        let mut world = World::new(5, 3, tree());
        for node in world.nodes.iter_mut().take(deaf) {
            node.loss.per_mille = 1000;
        }
        let outcome = world.run(MINUTE);
        assert!(outcome.is_proven(), "{outcome:#?}");
        world.assert_whole();
        assert!(world.sender.counters().fill_bytes >= world.plan.content_bytes());
    }
}

#[test]
fn turned_bits_are_found_and_fetched_again() {
    let loss = Loss {
        turned_per_mille: 2,
        ..Loss::default()
    };
    let mut world = World::new(6, 3, tree()).lossy(loss);
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
    let bad: u64 = world
        .nodes
        .iter()
        .map(|node| node.receiver.counters().slabs_bad)
        .sum();
    assert!(bad > 0);
}

#[test]
fn a_killed_receiver_is_named_with_how_far_it_got() {
    let mut config = PlanSenderConfig::new(SESSION, 3);
    config.report_interval = Duration::from_millis(5);
    let mut world = World::with(7, 3, vec![Entry::file("f", 20 << 20)], config);
    let half = world.plan.content_bytes() / 2;
    let is_under_way = |world: &World| {
        world
            .sender
            .outcome()
            .receivers
            .first()
            .is_some_and(|first| first.progress.held > half)
    };
    assert!(world.run_until(MINUTE, is_under_way));
    let name = world.sender.outcome().receivers[0].name.clone();
    let index = name[1..].parse::<usize>().unwrap() - 1;
    world.crash(index);
    let outcome = world.run(MINUTE);
    assert!(!outcome.is_proven() && outcome.is_final);
    assert_eq!(failure(&outcome, &name).0, ErrorCode::TimedOut);
    let held = outcome.receivers[0].progress.held;
    assert!((half..world.plan.content_bytes()).contains(&held), "{held}");
    world.assert_whole();
}

#[test]
fn a_stopped_receiver_is_given_up_after_the_progress_timeout() {
    let mut world = World::new(8, 2, tree());
    assert!(world.run_until(MINUTE, |world| world.sender.may_send_content()));
    // Its connection stays, as that of a stopped process does.
    world.nodes[0].is_up = false;
    let began = world.now;
    let outcome = world.run(2 * MINUTE);
    let (code, text) = failure(&outcome, "r1");
    assert_eq!(code, ErrorCode::TimedOut);
    assert!(text.contains("no progress for 30 s"), "{text}");
    assert!(world.now.since(began) < Duration::from_secs(45));
    assert!(matches!(state(&outcome, "r2"), ReceiverState::Done { .. }));
}

#[test]
fn a_receiver_whose_disk_hangs_is_given_up_after_the_commit_timeout() {
    let mut config = PlanSenderConfig::new(SESSION, 2);
    config.progress_timeout = Duration::from_secs(2);
    let limit = config.commit_timeout();
    let mut world = World::with(24, 2, vec![Entry::file("f", 1 << 20)], config);
    world.nodes[0].store_mut().faults.commit_hangs = true;
    let began = world.now;
    let outcome = world.run(2 * MINUTE);
    let (code, text) = failure(&outcome, "r1");
    assert_eq!(code, ErrorCode::TimedOut);
    assert!(text.contains("while syncing"), "{text}");
    let took = world.now.since(began);
    let spread = Duration::from_secs(3);
    assert!((limit - spread..limit + spread).contains(&took), "{took:?}");
    assert!(matches!(state(&outcome, "r2"), ReceiverState::Done { .. }));
}

#[test]
fn a_receiver_that_never_comes_is_counted_as_missing() {
    let mut config = PlanSenderConfig::new(SESSION, 3);
    config.join_timeout = Duration::from_secs(2);
    let mut world = World::with(9, 2, tree(), config);
    let outcome = world.run(MINUTE);
    assert_eq!(outcome.missing, 1);
    assert!(!outcome.is_proven());
    world.assert_whole();
    let mut config = PlanSenderConfig::new(SESSION, 1);
    config.join_timeout = Duration::from_secs(2);
    let mut world = World::with(9, 0, tree(), config);
    let outcome = world.run(MINUTE);
    assert!(outcome.is_final && !outcome.is_proven());
}

#[test]
fn whoever_has_come_by_the_deadline_is_expected_when_no_number_is() {
    let mut config = PlanSenderConfig::new(SESSION, 0);
    config.join_timeout = Duration::from_secs(1);
    let mut world = World::with(10, 2, tree(), config);
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
}

#[test]
fn a_late_joiner_ends_whole() {
    let large = vec![Entry::file("f", 8 << 20)];
    for after_ms in [5, 15, 30, 45] {
        let mut world = World::new(11, 3, large.clone());
        world.nodes[2].joins_at = Instant::NEVER;
        world.sender = {
            let content = MemoryContent::new(world.content.clone());
            let config = PlanSenderConfig::new(SESSION, 2);
            PlanSender::new(config, Arc::clone(&world.plan), content, world.now)
        };
        assert!(world.run_until(MINUTE, |world| world.sender.may_send_content()));
        world.nodes[2].joins_at = world.now + Duration::from_millis(after_ms);
        // It is beyond the expected set: the others' end would cut it off, so they stay a while.
        world.nodes[0].store_mut().faults.full_every = 2;
        let outcome = world.run(MINUTE);
        assert!(outcome.is_proven(), "{outcome:#?}");
        let late = outcome.receivers.iter().find(|report| report.name == "r3");
        if let Some(ReceiverState::Done { .. }) = late.map(|report| &report.state) {
            world.assert_whole();
        }
    }
}

#[test]
fn an_expected_receiver_that_joins_after_the_deadline_is_waited_for() {
    let mut config = PlanSenderConfig::new(SESSION, 2);
    config.join_timeout = Duration::from_millis(100);
    let mut world = World::with(12, 2, vec![Entry::file("f", 20 << 20)], config);
    world.nodes[1].joins_at = world.now + Duration::from_millis(120);
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
}

#[test]
fn joiners_beyond_the_expected_set_do_not_delay_the_end() {
    let mut world = World::new(13, 2, tree());
    world.sender = {
        let content = MemoryContent::new(world.content.clone());
        let config = PlanSenderConfig::new(SESSION, 1);
        PlanSender::new(config, Arc::clone(&world.plan), content, world.now)
    };
    // Whichever joins second stands still from then on.
    assert!(world.run_until(MINUTE, |world| world.sender.outcome().receivers.len() == 2));
    let second = world.sender.outcome().receivers[1].name.clone();
    let index = second[1..].parse::<usize>().unwrap() - 1;
    world.nodes[index].is_up = false;
    let began = world.now;
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    assert!(world.now.since(began) < Duration::from_secs(10));
}

#[test]
fn broken_connections_are_made_again_at_any_point() {
    for after_ms in [1, 4, 8, 12, 16, 20, 25, 30, 40, 60] {
        let mut world = World::new(14, 2, tree());
        for node in &mut world.nodes {
            node.loss.per_mille = 30;
        }
        let at = world.now + Duration::from_millis(after_ms);
        world.run_until(MINUTE, |world| world.now >= at);
        world.fabric.cut(1);
        world.run_until(Duration::from_millis(7), |_| false);
        world.fabric.cut(2);
        let outcome = world.run(2 * MINUTE);
        assert!(outcome.is_proven(), "cut after {after_ms} ms: {outcome:#?}");
        world.assert_whole();
    }
}

#[test]
fn a_restarted_receiver_begins_anew_under_its_name() {
    let mut world = World::new(15, 2, tree());
    assert!(world.run_until(MINUTE, |world| world.sender.may_send_content()));
    world.crash(0);
    world.run_until(Duration::from_millis(50), |_| false);
    world.nodes[0] = Node::new(world.now, "r1", 1001);
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
}

#[test]
fn what_an_earlier_attempt_left_is_verified_and_not_sent_again() {
    let mut world = World::new(16, 2, tree());
    let half = world.content.len() / 2;
    for node in &mut world.nodes {
        let store = node.store_mut();
        store.resumed.insert(0, world.content[..half].to_vec());
    }
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
    assert!(world.sender.counters().block_bytes < world.content.len() as u64 * 6 / 10);
    // The same with a byte on the disk gone wrong since.
    let mut world = World::new(16, 2, tree());
    let mut stale = world.content[..half].to_vec();
    stale[half / 2] ^= 1;
    world.nodes[1].store_mut().resumed.insert(0, stale);
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
}

#[test]
fn a_store_that_fails_is_reported_with_its_reason() {
    for (faults, code) in [
        (
            StoreFaults {
                prepare: Some(ErrorCode::DiskFull),
                ..StoreFaults::default()
            },
            ErrorCode::DiskFull,
        ),
        (
            StoreFaults {
                commit: Some(ErrorCode::Exists),
                ..StoreFaults::default()
            },
            ErrorCode::Exists,
        ),
        (
            StoreFaults {
                seals_wrong: 1000,
                ..StoreFaults::default()
            },
            ErrorCode::HashMismatch,
        ),
    ] {
        let mut world = World::new(17, 2, tree());
        world.nodes[0].store_mut().faults = faults;
        let outcome = world.run(MINUTE);
        assert_eq!(failure(&outcome, "r1").0, code);
        assert!(matches!(state(&outcome, "r2"), ReceiverState::Done { .. }));
        assert!(!outcome.is_proven());
        let told = world.nodes[0].events.last();
        assert!(matches!(told, Some(PlanReceiverEvent::Failed { code: c, .. }) if *c == code));
        assert_eq!(world.nodes[0].store().committed(), None);
    }
}

#[test]
fn a_store_that_is_often_full_and_sometimes_wrong_still_ends_whole() {
    let mut world = World::new(18, 3, tree());
    world.nodes[0].store_mut().faults.full_every = 3;
    world.nodes[1].store_mut().faults.seals_wrong = 2;
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
}

#[test]
fn a_file_that_changes_while_it_is_sent_ends_the_transfer_with_its_reason() {
    let mut world = World::new(19, 2, tree());
    world.sender = {
        let mut content = MemoryContent::new(world.content.clone());
        content.fails_at = Some(1_500_000);
        let config = PlanSenderConfig::new(SESSION, 2);
        PlanSender::new(config, Arc::clone(&world.plan), content, world.now)
    };
    let outcome = world.run(MINUTE);
    assert_eq!(
        outcome.failure.as_ref().unwrap().0,
        ErrorCode::SourceChanged
    );
    assert!(!outcome.is_proven());
    for node in &world.nodes {
        let told = node.events.last();
        let is_told = matches!(
            told,
            Some(PlanReceiverEvent::Failed {
                code: ErrorCode::SourceChanged,
                ..
            })
        );
        assert!(is_told, "{told:?}");
    }
}

#[test]
fn a_sender_that_vanishes_is_given_up_by_its_receivers() {
    let mut world = World::new(20, 2, vec![Entry::file("f", 8 << 20)]);
    assert!(world.run_until(MINUTE, |world| world.sender.may_send_content()));
    world.fabric.listening.clear();
    world.fabric.crash(0);
    let began = world.now;
    for _ in 0..60_000 {
        world.now += Duration::from_millis(1);
        for index in 0..2 {
            world.step_node(index);
        }
        if world.all_over() {
            break;
        }
    }
    assert!(world.all_over());
    let took = world.now.since(began);
    assert!(
        (Duration::from_secs(29)..Duration::from_secs(33)).contains(&took),
        "{took:?}"
    );
}

#[test]
fn a_receiver_that_cancels_is_named() {
    let mut world = World::new(21, 2, tree());
    assert!(world.run_until(MINUTE, |world| world.sender.may_send_content()));
    let now = world.now;
    world.nodes[0]
        .receiver
        .cancel(now, "interrupted by the user");
    let outcome = world.run(MINUTE);
    let (code, text) = failure(&outcome, "r1");
    assert_eq!(
        (code, text.as_str()),
        (ErrorCode::Cancelled, "interrupted by the user")
    );
}

#[test]
fn a_cancelled_sender_tells_everybody() {
    let mut world = World::new(22, 2, tree());
    assert!(world.run_until(MINUTE, |world| world.sender.may_send_content()));
    let now = world.now;
    world
        .sender
        .cancel(now, ErrorCode::Cancelled, "interrupted");
    let outcome = world.run(MINUTE);
    assert!(!outcome.is_proven() && outcome.failure.is_some());
    assert!(world.sender.is_closed() && world.all_over());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Never wrong content, never silence: whatever happens, every receiver ends whole or with a
    /// reason, and so does the sender.
    #[test]
    fn any_mix_of_faults_ends_whole_or_named(
        seed in any::<u64>(),
        receivers in 1..6_usize,
        losses in proptest::collection::vec((0..300_u64, 0..200_u64, 0..4_u64), 6),
        cuts in proptest::collection::vec((0..200_u64, 0..6_usize), 0..4),
        crash in proptest::option::of((0..300_u64, 0..6_usize)),
        full_every in 0..5_u64,
    ) {
        let mut world = World::new(seed, receivers, tree());
        let nodes = world.nodes.iter_mut();
        for (node, &(per_mille, late_per_mille, turned_per_mille)) in nodes.zip(&losses) {
            node.loss = Loss { per_mille, late_per_mille, turned_per_mille };
        }
        if full_every > 1 {
            world.nodes[0].store_mut().faults.full_every = full_every;
        }
        for at in 0..300_u64 {
            world.step();
            for &(when, which) in &cuts {
                if when == at && which <= receivers {
                    world.fabric.cut(which);
                }
            }
            if let Some((when, which)) = crash && when == at && which < receivers {
                world.crash(which);
            }
        }
        let outcome = world.run(5 * MINUTE);
        prop_assert!(outcome.is_final, "{:#?}", outcome);
        let has_crashed = world.nodes.iter().any(|node| !node.is_up);
        for (index, node) in world.nodes.iter().enumerate() {
            if !node.is_up {
                continue;
            }
            if let Some(bytes) = node.store().committed() {
                prop_assert!(bytes == &world.content[..], "wrong content at {}", index);
            }
            let is_told = matches!(
                node.events.last(),
                Some(PlanReceiverEvent::Acknowledged | PlanReceiverEvent::Failed { .. }
                    | PlanReceiverEvent::Delivered { .. })
            );
            prop_assert!(is_told, "{:?}", node.events);
        }
        if !has_crashed && losses.iter().take(receivers).all(|loss| loss.2 == 0) {
            prop_assert!(outcome.is_proven(), "{:#?}", outcome);
            world.assert_whole();
        }
    }
}
