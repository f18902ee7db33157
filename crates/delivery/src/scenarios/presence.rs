//! Which receivers count when none is expected by name or number, and what becomes of guests.

use super::{transfers::config, *};
use crate::{ReceiverReport, ReceiverState};

const MINUTE: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_millis(300);

fn settling() -> TransferSenderConfig {
    let mut config = config(0);
    config.settle = Some(SETTLE);
    config
}

fn done_count(outcome: &TransferOutcome) -> usize {
    let receivers = outcome.receivers.iter();
    let is_done = |report: &&ReceiverReport| matches!(report.state, ReceiverState::Done { .. });
    receivers.filter(is_done).count()
}

#[test]
fn all_who_come_shortly_after_each_other_are_expected_and_served() {
    let mut world = World::with(60, 4, tree(), settling());
    for (node, after_ms) in [(0, 900), (1, 1_150), (2, 1_400), (3, 1_400)] {
        world.nodes[node].joins_at = world.now + Duration::from_millis(after_ms);
    }
    let began = world.now;
    assert!(world.run_until(MINUTE, |world| world.sender.may_send_content()));
    let waited = world.now.since(began);
    let last_joined = Duration::from_millis(1_400);
    assert!(waited >= last_joined + SETTLE, "{waited:?}");
    assert!(waited < last_joined + 2 * SETTLE, "{waited:?}");
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    assert_eq!(done_count(&outcome), 4);
    world.assert_whole();
}

#[test]
fn whoever_joins_in_the_middle_of_a_transfer_to_all_is_proven_or_the_transfer_is_not() {
    let large = vec![Entry::file("f", 20 << 20)];
    for (seed, is_crashing) in [(61, false), (62, true)] {
        let mut config = settling();
        config.reconnect_timeout = Duration::from_secs(1);
        let mut world = World::with(seed, 3, large.clone(), config);
        world.nodes[2].joins_at = Instant::NEVER;
        assert!(world.run_until(MINUTE, |world| world.sender.may_send_content()));
        world.nodes[2].joins_at = world.now + Duration::from_millis(40);
        if is_crashing {
            let has_joined = |world: &World| world.sender.outcome().receivers.len() == 3;
            assert!(world.run_until(MINUTE, has_joined));
            world.crash(2);
        }
        let outcome = world.run(MINUTE);
        assert_eq!(outcome.receivers.len(), 3);
        assert!(outcome.receivers.iter().all(|report| report.is_expected));
        assert_eq!(outcome.is_proven(), !is_crashing, "{outcome:#?}");
        assert_eq!(done_count(&outcome), if is_crashing { 2 } else { 3 });
        world.assert_whole();
    }
}

#[test]
fn nobody_at_all_is_missed_at_the_join_deadline() {
    let mut config = settling();
    config.join_timeout = Duration::from_secs(2);
    let mut world = World::with(63, 0, tree(), config);
    let outcome = world.run(MINUTE);
    assert!(outcome.is_final && !outcome.is_proven());
    assert_eq!(outcome.missing, 1);
}

#[test]
fn guests_that_have_joined_are_served_to_the_end() {
    let large = vec![Entry::file("f", 8 << 20)];
    for seed in 64..69 {
        let mut world = World::with(seed, 3, large.clone(), config(1));
        for node in &mut world.nodes {
            node.loss.per_mille = 50;
        }
        // The sender waits for one receiver only, but all three join in time.
        let outcome = world.run(MINUTE);
        assert!(outcome.is_proven(), "{outcome:#?}");
        assert_eq!(done_count(&outcome), outcome.receivers.len());
        assert_eq!(outcome.receivers.len(), 3);
        world.assert_whole();
    }
}

#[test]
fn a_guest_that_stands_still_ends_no_later_than_a_second_after_the_others() {
    let large = vec![Entry::file("f", 20 << 20)];
    let mut world = World::with(70, 2, large, config(1));
    let guest = |world: &World| {
        let outcome = world.sender.outcome();
        let mut receivers = outcome.receivers.into_iter();
        receivers.find(|report| !report.is_expected)
    };
    assert!(world.run_until(MINUTE, |world| guest(world).is_some()));
    assert!(world.run_until(MINUTE, |world| world.sender.may_send_content()));
    let name = guest(&world).expect("it has joined").name;
    let index = usize::from(name == "r2");
    // The guest takes nothing from here on, and its connection stays open.
    world.nodes[index].blocks_per_step = 0;
    world.nodes[index].is_up = false;
    let expected_done = |world: &World| {
        let outcome = world.sender.outcome();
        let mut receivers = outcome.receivers.iter();
        receivers.any(|it| it.is_expected && matches!(it.state, ReceiverState::Done { .. }))
    };
    assert!(world.run_until(MINUTE, expected_done));
    let done_at = world.now;
    assert!(world.run_until(MINUTE, |world| world.sender.is_finished()));
    let waited = world.now.since(done_at);
    assert!(waited <= Duration::from_millis(1_200), "{waited:?}");
    let outcome = world.sender.outcome();
    assert!(outcome.is_proven(), "{outcome:#?}");
    assert_eq!(done_count(&outcome), 1);
}

#[test]
fn the_slowest_is_the_one_whose_row_has_the_longest_time() {
    for seed in 71..81 {
        let mut world = World::with(seed, 3, tree(), config(3));
        for node in 0..3 {
            let after = Duration::from_millis(40 * node as u64);
            world.nodes[node].joins_at = world.now + after;
            world.nodes[node].loss.per_mille = 100;
        }
        let outcome = world.run(MINUTE);
        assert!(outcome.is_proven(), "{outcome:#?}");
        let longest = outcome.receivers.iter().filter_map(|it| it.took).max();
        let slowest = outcome.receivers.iter();
        let mut slowest = slowest.filter(|it| Some(it.slot) == outcome.slowest);
        assert_eq!(slowest.next().and_then(|it| it.took), longest);
    }
}

#[test]
fn a_receiver_that_comes_from_many_addresses_takes_no_host_of_another() {
    let mut config = TransferSenderConfig::new(SESSION, 2, SEED);
    config.receivers_max = 2;
    let mut world = World::with(71, 0, tree(), config);
    for (name, node) in (10..20).map(|node| ("moving", node)).chain([("r2", 30)]) {
        greet(&mut world, name, node);
    }
    let has_host = |node| world.sender.has_host(Fabric::address(node).ip());
    let known: Vec<usize> = (10..40).filter(|&node| has_host(node)).collect();
    assert_eq!(known, [19, 30]);
}

#[test]
fn a_host_takes_half_of_the_places_and_none_of_a_name_that_is_expected() {
    let mut config = TransferSenderConfig::new(SESSION, 0, SEED);
    config.receivers_max = 4;
    config.expected_names = vec!["rack1".to_owned()];
    let mut world = World::with(72, 0, tree(), config);
    for name in ["a", "b", "c", "d", "e", "f"] {
        greet(&mut world, name, 10);
    }
    for (name, node) in [("g", 11), ("h", 12), ("i", 13), ("rack1", 14), ("j", 15)] {
        greet(&mut world, name, node);
    }
    let outcome = world.sender.outcome();
    let here: Vec<_> = outcome.receivers.iter().map(|it| &it.name[..]).collect();
    assert_eq!(here, ["a", "b", "g", "h", "rack1"]);
    assert_eq!(outcome.missing, 0);
}

/// Sends a HELLO from the host of node `node`, as a receiver named `name` would.
fn greet(world: &mut World, name: &str, node: usize) {
    let link = world.fabric.dial(node, 0);
    let hello = wire::object::Hello {
        version_min: 1,
        version_max: 1,
        instance: 77,
        session_id: SESSION,
        name,
        nonce: None,
    };
    let mut bytes = Vec::new();
    wire::object::Message::Hello(hello).emit(&mut bytes);
    world.fabric.send(node, link, bytes, false);
    world.run_until(Duration::from_millis(50), |_| false);
}
