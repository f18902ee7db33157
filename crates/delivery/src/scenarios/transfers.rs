//! Whole transfers: loss, crashes, late joiners, broken connections, stores that fail.

use proptest::prelude::*;
use wire::object::{ErrorCode, Phase};

use super::*;
use crate::{Demotion, Limit, ReceiverState, SlowPolicy, memory::StoreFaults};

const MINUTE: Duration = Duration::from_secs(60);

fn state(outcome: &TransferOutcome, name: &str) -> ReceiverState {
    let report = outcome.receivers.iter().find(|report| report.name == name);
    report.expect("it joined").state.clone()
}

fn failure(outcome: &TransferOutcome, name: &str) -> (ErrorCode, String) {
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
    let bytes = world.manifest.content_bytes() + world.manifest.seals_bytes();
    assert_eq!(counters.block_bytes, bytes);
    assert_eq!(counters.fill_bytes, world.manifest.bytes().len() as u64);
    assert_eq!(
        world.sender.content().bytes_read,
        world.manifest.content_bytes()
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
    let again = world.sender.counters().block_bytes - world.manifest.content_bytes();
    assert!(
        again < world.manifest.content_bytes() / 20,
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
    // Blocks that only few receivers lack are sent to those receivers alone. For all 200 receivers
    // together, that takes less than four times the content.
    let counters = world.sender.counters();
    assert!(
        counters.fill_bytes < 4 * world.manifest.content_bytes(),
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
        // With 20 receivers, some commit before they answer pass 0.
        for receivers in [1, 2, 20] {
            let mut world = World::new(4, receivers, entries.clone());
            let outcome = world.run(MINUTE);
            assert!(outcome.is_proven(), "{outcome:#?}");
            world.assert_whole();
        }
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
        assert!(world.sender.counters().fill_bytes >= world.manifest.content_bytes());
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
    let mut config = TransferSenderConfig::new(SESSION, 3, SEED);
    config.report_interval = Duration::from_millis(5);
    let mut world = World::with(7, 3, vec![Entry::file("f", 20 << 20)], config);
    let half = world.manifest.content_bytes() / 2;
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
    assert!(
        (half..world.manifest.content_bytes()).contains(&held),
        "{held}"
    );
    world.assert_whole();
}

#[test]
fn a_stopped_receiver_is_given_up_after_the_progress_timeout() {
    let mut world = World::new(8, 2, tree());
    assert!(world.run_until(MINUTE, |world| world.sender.may_send_content()));
    // The connection stays open, like that of a stopped process.
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
    let mut config = TransferSenderConfig::new(SESSION, 2, SEED);
    config.progress_timeout = Duration::from_secs(2);
    let limit = config.commit_timeout();
    let mut world = World::with(24, 2, vec![Entry::file("f", 1 << 20)], config);
    world.nodes[0].store_mut().faults.commit_hangs = true;
    let began = world.now;
    assert!(world.run_until(2 * MINUTE, |world| world.sender.is_finished()));
    let took = world.now.since(began);
    let outcome = world.run(2 * MINUTE);
    let (code, text) = failure(&outcome, "r1");
    assert_eq!(code, ErrorCode::TimedOut);
    assert!(text.contains("while syncing"), "{text}");
    let spread = Duration::from_secs(3);
    assert!((limit - spread..limit + spread).contains(&took), "{took:?}");
    assert!(matches!(state(&outcome, "r2"), ReceiverState::Done { .. }));
}

#[test]
fn a_receiver_that_never_comes_is_counted_as_missing() {
    let mut config = TransferSenderConfig::new(SESSION, 3, SEED);
    config.join_timeout = Duration::from_secs(2);
    let mut world = World::with(9, 2, tree(), config);
    let outcome = world.run(MINUTE);
    assert_eq!(outcome.missing, 1);
    assert!(!outcome.is_proven());
    world.assert_whole();
    let mut config = TransferSenderConfig::new(SESSION, 1, SEED);
    config.join_timeout = Duration::from_secs(2);
    let mut world = World::with(9, 0, tree(), config);
    let outcome = world.run(MINUTE);
    assert!(outcome.is_final && !outcome.is_proven());
}

#[test]
fn whoever_has_come_by_the_deadline_is_expected_when_no_number_is() {
    let mut config = TransferSenderConfig::new(SESSION, 0, SEED);
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
            let config = TransferSenderConfig::new(SESSION, 2, SEED);
            TransferSender::new(config, Arc::clone(&world.manifest), content, world.now)
        };
        assert!(world.run_until(MINUTE, |world| world.sender.may_send_content()));
        world.nodes[2].joins_at = world.now + Duration::from_millis(after_ms);
        // Receiver r3 is a guest: the sender expects only two. A slow store at r1 gives r3 more
        // time.
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
    let mut config = TransferSenderConfig::new(SESSION, 2, SEED);
    config.join_timeout = Duration::from_millis(100);
    let mut world = World::with(12, 2, vec![Entry::file("f", 20 << 20)], config);
    world.nodes[1].joins_at = world.now + Duration::from_millis(120);
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
}

#[test]
fn a_transfer_takes_the_time_from_its_first_content_without_the_wait_for_others() {
    let mut config = TransferSenderConfig::new(SESSION, 2, SEED);
    config.join_timeout = Duration::from_secs(30);
    let mut world = World::with(47, 2, vec![Entry::file("f", 20 << 20)], config);
    world.nodes[1].joins_at = world.now + Duration::from_secs(5);
    let outcome = world.run(MINUTE);
    for receiver in &outcome.receivers {
        let ReceiverState::Done { numbers, .. } = &receiver.state else {
            panic!("{receiver:#?}");
        };
        let time = Duration::from_nanos(numbers.time_ns);
        assert!(
            !time.is_zero() && time < Duration::from_secs(3),
            "{receiver:#?}"
        );
    }
}

#[test]
fn joiners_beyond_the_expected_set_do_not_delay_the_end() {
    let mut world = World::new(13, 2, tree());
    world.sender = {
        let content = MemoryContent::new(world.content.clone());
        let config = TransferSenderConfig::new(SESSION, 1, SEED);
        TransferSender::new(config, Arc::clone(&world.manifest), content, world.now)
    };
    // The receiver that joins second stands still from then on.
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
fn a_connection_that_breaks_while_the_store_makes_room_is_made_again() {
    let mut world = World::new(14, 2, tree());
    world.nodes[0].store_mut().faults.prepare_polls = 3;
    let is_preparing = |world: &World| world.nodes[0].receiver.progress().phase == Phase::Preparing;
    assert!(world.run_until(MINUTE, is_preparing));
    world.run_until(Duration::from_millis(300), |_| false);
    world.fabric.cut(1);
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
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
    // Now only the second receiver begins with half of the content, and one bit of it is wrong.
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
                hashes_wrong: 1000,
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
        assert!(matches!(told, Some(TransferReceiverEvent::Failed { code: c, .. }) if *c == code));
        assert_eq!(world.nodes[0].store().committed(), None);
    }
}

#[test]
fn a_store_that_is_often_full_and_sometimes_wrong_still_ends_whole() {
    let mut world = World::new(18, 3, tree());
    world.nodes[0].store_mut().faults.full_every = 3;
    world.nodes[1].store_mut().faults.hashes_wrong = 2;
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
        let config = TransferSenderConfig::new(SESSION, 2, SEED);
        TransferSender::new(config, Arc::clone(&world.manifest), content, world.now)
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
            Some(TransferReceiverEvent::Failed {
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

pub(super) fn config(expected: u32) -> TransferSenderConfig {
    let mut config = TransferSenderConfig::new(SESSION, expected, SEED);
    config.report_interval = Duration::from_millis(5);
    config
}

/// The most bytes that may be sent after a restart, in addition to those that the receiver lacks.
const RESTART_MAX: u64 = 8 << 20;

pub(super) fn large() -> Vec<Entry> {
    vec![Entry::file("f", 24 << 20), Entry::file("g", 100)]
}

/// Runs until the first receiver holds `percent` of the content.
pub(super) fn run_to(world: &mut World, percent: u64) {
    let mark = world.manifest.content_bytes() * percent / 100;
    let held = |world: &World| world.nodes[0].receiver.progress().numbers.held;
    assert!(world.run_until(MINUTE, |world| held(world) >= mark));
}

fn report<'a>(outcome: &'a TransferOutcome, name: &str) -> &'a crate::ReceiverReport {
    let mut all = outcome.receivers.iter();
    all.find(|report| report.name == name).expect("it joined")
}

/// Makes the successor of a killed receiver, with the slabs that the killed one had completed.
fn successor(world: &World, index: usize, instance: u64) -> Node {
    let node = &world.nodes[index];
    let mut store = MemoryStore::default();
    let slabs = node.receiver.held_slabs();
    for range in slabs {
        let place = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        store
            .resumed
            .insert(range.start, node.store().staged()[place].to_vec());
    }
    let config = TransferReceiverConfig::new(format!("r{}", index + 1), instance);
    Node::with(world.now, config, store)
}

#[test]
fn a_killed_receivers_successor_gets_only_what_is_lacking() {
    for percent in [10, 50, 99] {
        let mut world = World::with(40, 2, large(), config(2));
        run_to(&mut world, percent);
        world.crash(0);
        world.run_until(Duration::from_millis(20), |_| false);
        world.nodes[0] = successor(&world, 0, 1001);
        let outcome = world.run(2 * MINUTE);
        assert!(outcome.is_proven(), "{percent} %: {outcome:#?}");
        world.assert_whole();
        let first = report(&outcome, "r1");
        let lacking = outcome.content_bytes - first.held_at_join;
        assert!(first.held_at_join > 0, "{percent} %");
        assert!(
            first.sent_since_join <= lacking + RESTART_MAX,
            "{percent} %: {first:?}"
        );
        assert_eq!(world.sender.counters().successors, 1);
    }
}

#[test]
fn a_restarted_senders_receivers_get_only_what_is_lacking() {
    for percent in [10, 50, 99] {
        let mut world = World::with(41, 3, large(), config(3));
        run_to(&mut world, percent);
        world.crash_sender();
        world.run_until(Duration::from_millis(300), |_| false);
        world.restart_sender(config(3));
        let outcome = world.run(2 * MINUTE);
        assert!(outcome.is_proven(), "{percent} %: {outcome:#?}");
        world.assert_whole();
        let least = outcome
            .receivers
            .iter()
            .map(|report| report.held_at_join)
            .min()
            .unwrap();
        assert!(
            least >= outcome.content_bytes * percent / 100 / 2,
            "{percent} %: {outcome:#?}"
        );
        let sent = outcome.multicast_bytes + outcome.unicast_bytes;
        assert!(
            sent <= outcome.content_bytes - least + RESTART_MAX,
            "{percent} %: {outcome:#?}"
        );
    }
}

#[test]
fn a_sender_that_gave_everybody_up_and_sends_again_goes_on_with_what_is_held() {
    let sending = || TransferSenderConfig {
        progress_timeout: Duration::from_secs(3),
        ..config(2)
    };
    let mut world = World::with(66, 2, large(), sending());
    run_to(&mut world, 30);
    // The sender's host is cut off: no receiver hears anything, and no connection is closed.
    for node in &mut world.nodes {
        node.is_up = false;
    }
    assert!(world.run_until(MINUTE, |world| world.sender.is_finished()));
    let outcome = world.sender.outcome();
    for name in ["r1", "r2"] {
        assert!(failure(&outcome, name).1.contains("no progress for 3 s"));
    }
    for node in &mut world.nodes {
        node.is_up = true;
    }
    // The old sender's last messages arrive before a new sender starts.
    let is_told = |world: &World| world.nodes.iter().all(|node| node.receiver.is_given_up());
    world.fabric.listening.clear();
    assert!(world.run_until(MINUTE, is_told));
    let held: u64 = world
        .nodes
        .iter()
        .map(|node| node.receiver.progress().numbers.held)
        .min()
        .unwrap();
    world.restart_sender(sending());
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
    for report in &outcome.receivers {
        let again = report.sent_since_join;
        assert!(held > 0 && report.held_at_join >= held, "{outcome:#?}");
        assert!(
            again <= world.manifest.content_bytes() - held + (8 << 20),
            "{again}"
        );
    }
    for node in &world.nodes {
        let given_up = node.events.iter();
        let given_up =
            given_up.filter(|event| matches!(event, TransferReceiverEvent::GivenUp { .. }));
        assert_eq!(given_up.count(), 1, "{:?}", node.events);
    }
}

#[test]
fn sender_and_receiver_both_killed_end_whole() {
    let mut world = World::with(42, 2, large(), config(2));
    run_to(&mut world, 50);
    world.crash_sender();
    world.crash(0);
    world.run_until(Duration::from_millis(100), |_| false);
    world.nodes[0] = successor(&world, 0, 1001);
    world.restart_sender(config(2));
    let outcome = world.run(2 * MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
    let sent = outcome.multicast_bytes + outcome.unicast_bytes;
    let least = outcome
        .receivers
        .iter()
        .map(|report| report.held_at_join)
        .min()
        .unwrap();
    assert!(
        sent <= outcome.content_bytes - least + RESTART_MAX,
        "{outcome:#?}"
    );
}

#[test]
fn a_receiver_that_had_proved_delivery_proves_it_to_a_restarted_sender() {
    let mut world = World::with(43, 2, tree(), config(2));
    let has_delivered = |world: &World| world.nodes.iter().all(|n| n.receiver.proof().is_some());
    assert!(world.run_until(MINUTE, has_delivered));
    world.crash_sender();
    world.run_until(Duration::from_millis(50), |_| false);
    assert!(
        world.nodes.iter().all(|node| !node.receiver.is_over()),
        "unacknowledged"
    );
    world.restart_sender(config(2));
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    assert_eq!(outcome.multicast_bytes + outcome.unicast_bytes, 0);
    world.assert_whole();
}

#[test]
fn content_that_changed_between_two_lives_of_a_sender_is_fetched_anew() {
    let mut world = World::with(44, 2, large(), config(2));
    run_to(&mut world, 60);
    world.crash_sender();
    world.run_until(Duration::from_millis(50), |_| false);
    world.content[5] ^= 1;
    world.restart_sender(config(2));
    let outcome = world.run(2 * MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
}

#[test]
fn receivers_expected_by_name_are_named_when_they_do_not_come() {
    let mut config = config(0);
    config.expected_names = ["r1", "r2", "gone"].map(str::to_owned).to_vec();
    config.join_timeout = Duration::from_secs(2);
    let mut world = World::with(45, 3, tree(), config);
    let outcome = world.run(MINUTE);
    assert!(!outcome.is_proven());
    assert_eq!(
        (outcome.missing, &outcome.missing_names[..]),
        (1, &["gone".to_owned()][..])
    );
    for (name, is_expected) in [("r1", true), ("r2", true), ("r3", false)] {
        assert_eq!(report(&outcome, name).is_expected, is_expected, "{name}");
    }
}

#[test]
fn a_guest_never_delays_the_others() {
    let mut config = config(0);
    config.expected_names = vec!["r2".to_owned()];
    let mut world = World::with(46, 2, tree(), config);
    // The first receiver is a guest: only r2 is expected. It joins first, but loses every packet.
    world.nodes[0].loss.per_mille = 1000;
    world.nodes[1].joins_at = world.now + Duration::from_millis(200);
    let began = world.now;
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    assert!(
        world.now.since(began) < Duration::from_secs(4),
        "with the time to say good-bye"
    );
    assert_eq!(outcome.multicast_bytes, outcome.content_bytes);
}

#[test]
fn a_dead_receivers_successor_takes_its_place_even_after_it_was_given_up() {
    let mut config = config(2);
    config.reconnect_timeout = Duration::from_millis(100);
    let mut world = World::with(47, 2, large(), config);
    world.blocks_per_step = 20;
    run_to(&mut world, 20);
    world.crash(0);
    world.run_until(Duration::from_millis(300), |_| false);
    assert!(matches!(
        state(&world.sender.outcome(), "r1"),
        ReceiverState::Failed { .. }
    ));
    world.nodes[0] = successor(&world, 0, 1001);
    let outcome = world.run(2 * MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    assert_eq!(outcome.receivers.len(), 2);
    world.assert_whole();
}

#[test]
fn a_second_live_receiver_of_one_name_is_refused() {
    let mut world = World::with(48, 2, large(), config(2));
    run_to(&mut world, 20);
    let config = TransferReceiverConfig::new("r1", 1001);
    world
        .nodes
        .push(Node::with(world.now, config, MemoryStore::default()));
    let outcome = world.run(2 * MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    let told = world.nodes[2].events.last();
    let Some(TransferReceiverEvent::Failed { text, .. }) = told else {
        panic!("{told:?}");
    };
    assert!(text.contains("has this name"), "{text}");
}

#[test]
fn the_successor_of_one_whose_end_was_not_heard_is_let_in() {
    let mut world = World::with(48, 2, large(), config(2));
    run_to(&mut world, 20);
    // The connection of the first receiver stays open at the sender, but is silent.
    world.nodes[0] = successor(&world, 0, 1001);
    let outcome = world.run(2 * MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
    assert_eq!(world.sender.counters().successors, 1);
}

#[test]
fn an_expected_receiver_that_joins_at_ninety_percent_ends_whole() {
    let mut config = config(2);
    config.join_timeout = Duration::from_millis(30);
    let mut world = World::with(49, 2, large(), config);
    world.nodes[1].joins_at = Instant::NEVER;
    run_to(&mut world, 90);
    world.nodes[1].joins_at = world.now;
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
    let late = report(&outcome, "r2");
    assert!(
        late.sent_since_join <= outcome.content_bytes + RESTART_MAX,
        "{late:?}"
    );
}

#[test]
fn nothing_is_sent_while_no_expected_receiver_is_there() {
    let mut config = config(1);
    config.progress_timeout = Duration::from_secs(4);
    let mut world = World::with(50, 1, large(), config);
    run_to(&mut world, 30);
    world.crash(0);
    world.run_until(Duration::from_millis(10), |_| false);
    let sent = world.sender.counters().block_bytes;
    let began = world.now;
    let outcome = world.run(MINUTE);
    assert_eq!(world.sender.counters().block_bytes, sent);
    assert_eq!(world.sender.counters().pauses, 1);
    assert_eq!(failure(&outcome, "r1").0, ErrorCode::TimedOut);
    // The receiver may be away for the progress timeout only, because that is shorter than the
    // reconnect timeout.
    assert!(world.now.since(began) < Duration::from_secs(7));
}

#[test]
fn sending_goes_on_when_the_only_receiver_comes_back() {
    let mut world = World::with(51, 1, large(), config(1));
    run_to(&mut world, 30);
    world.crash(0);
    world.run_until(Duration::from_secs(1), |_| false);
    world.nodes[0] = successor(&world, 0, 1001);
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
}

/// Makes a world of three receivers. The first takes a tenth of what the packet stream could carry.
fn with_a_slow_one(policy: SlowPolicy) -> World {
    let mut config = config(3);
    config.slow = policy;
    config.slow_after = Duration::from_millis(500);
    let mut world = World::with(52, 3, large(), config);
    (world.blocks_per_step, world.window) = (100, 3000);
    world.nodes[0].blocks_per_step = 10;
    world
}

fn demotions(world: &World) -> Vec<Demotion> {
    let events = world.events.iter();
    let reasons = events.filter_map(|event| match event {
        TransferSenderEvent::Demoted { reason, .. } => Some(*reason),
        _ => None,
    });
    reasons.collect()
}

#[test]
fn a_slow_receiver_is_waited_for_by_default_and_named() {
    let mut world = with_a_slow_one(SlowPolicy::Wait);
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
    assert_eq!(demotions(&world), []);
    assert_eq!(outcome.slowest, Some(report(&outcome, "r1").slot));
    assert_eq!(
        outcome.multicast_bytes, outcome.content_bytes,
        "the stream went at its pace"
    );
}

#[test]
fn a_slow_receiver_is_demoted_where_the_policy_says_so() {
    let mut world = with_a_slow_one(SlowPolicy::Demote);
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
    assert_eq!(demotions(&world), [Demotion::Slow]);
    assert_eq!(report(&outcome, "r1").demoted, Some(Demotion::Slow));
    assert_eq!(report(&outcome, "r2").demoted, None);
    assert!(outcome.unicast_bytes > 0);
}

#[test]
fn a_slow_receiver_is_dropped_where_the_policy_says_so() {
    let mut world = with_a_slow_one(SlowPolicy::Drop);
    world.nodes[0].host_drops = 9;
    let outcome = world.run(MINUTE);
    let (code, text) = failure(&outcome, "r1");
    assert_eq!(code, ErrorCode::TooSlow);
    assert!(text.contains("limited by its CPU"), "{text}");
    assert!(matches!(state(&outcome, "r2"), ReceiverState::Done { .. }));
    assert!(matches!(state(&outcome, "r3"), ReceiverState::Done { .. }));
}

#[test]
fn equal_receivers_are_never_slow() {
    for policy in [SlowPolicy::Demote, SlowPolicy::Drop] {
        let mut world = with_a_slow_one(policy);
        for node in &mut world.nodes {
            node.blocks_per_step = 10;
        }
        let outcome = world.run(MINUTE);
        assert!(outcome.is_proven(), "{outcome:#?}");
        assert_eq!(demotions(&world), []);
    }
}

#[test]
fn what_limits_each_receiver_is_told_from_its_reports() {
    let mut world = World::with(53, 4, large(), config(4));
    world.nodes[0].loss.per_mille = 100;
    world.nodes[1].store_mut().faults.full_every = 10;
    world.nodes[2].host_drops = 1000;
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    let limits = [
        ("r1", Limit::Network),
        ("r2", Limit::Disk),
        ("r3", Limit::Host),
        ("r4", Limit::Rate),
    ];
    for (name, limit) in limits {
        assert_eq!(report(&outcome, name).limited_by, limit, "{name}");
    }
}

#[test]
fn eight_receivers_with_growing_loss_all_become_whole_and_the_slowest_is_named() {
    let mut world = World::with(54, 8, large(), config(8));
    for (node, per_mille) in world.nodes.iter_mut().zip([0, 5, 10, 20, 30, 50, 70, 100]) {
        node.loss.per_mille = per_mille;
    }
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
    let slowest = outcome.slowest.expect("there are eight") as usize;
    let slowest = outcome
        .receivers
        .iter()
        .find(|report| report.slot as usize == slowest);
    assert_eq!(slowest.unwrap().limited_by, Limit::Network, "{outcome:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever happens, nobody ends with wrong content or without an outcome: every receiver ends
    /// whole or with a reason, and so does the sender.
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
                Some(TransferReceiverEvent::Acknowledged | TransferReceiverEvent::Failed { .. }
                    | TransferReceiverEvent::Delivered { .. })
            );
            prop_assert!(is_told, "{:?}", node.events);
        }
        if !has_crashed && losses.iter().take(receivers).all(|loss| loss.2 == 0) {
            prop_assert!(outcome.is_proven(), "{:#?}", outcome);
            world.assert_whole();
        }
    }
}
