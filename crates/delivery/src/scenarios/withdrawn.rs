//! Files that change while they are sent, at a sender that may go on without them.

use proptest::prelude::*;

use super::*;
use crate::SlowPolicy;

const MINUTE: Duration = Duration::from_secs(60);

/// Makes a world whose sender cannot read a file from position `fails_at` on.
fn world(seed: u64, receivers: usize, fails_at: u64) -> World {
    let mut world = World::new(seed, receivers, tree());
    let mut config = TransferSenderConfig::new(SESSION, u32::try_from(receivers).unwrap(), SEED);
    config.withdraws = true;
    let mut content = MemoryContent::new(world.content.clone());
    content.fails_at = Some(fails_at);
    let manifest = Arc::clone(&world.manifest);
    world.sender = TransferSender::new(config, manifest, content, world.now);
    world
}

/// Returns the content, with zeros in place of the file that contains `position`.
fn without(world: &World, position: u64) -> Vec<u8> {
    let file = world.manifest.files()[world.manifest.file_at(position)];
    let start = usize::try_from(file.start).unwrap();
    let mut content = world.content.clone();
    content[start..start + usize::try_from(file.size_bytes).unwrap()].fill(0);
    content
}

fn path_at(world: &World, position: u64) -> Vec<u8> {
    let file = &world.manifest.files()[world.manifest.file_at(position)];
    world.manifest.path_of(file).to_vec()
}

/// Checks the same as [`assert_proven_without`], and that the sender has acknowledged each proof.
fn assert_withdrawn(world: &World, position: u64) {
    assert_proven_without(world, position);
    for node in &world.nodes {
        let last = node.events.last();
        assert_eq!(last, Some(&TransferReceiverEvent::Acknowledged));
    }
}

/// Checks that all receivers have proved the content without the file at `position`, and know that
/// the file is absent.
fn assert_proven_without(world: &World, position: u64) {
    let outcome = world.sender.outcome();
    let path = path_at(world, position);
    let unsent: Vec<_> = outcome.unsent.iter().map(|unsent| &unsent.path).collect();
    assert_eq!(unsent, [&path]);
    let expected = without(world, position);
    for node in &world.nodes {
        let events = &node.events;
        assert!(
            node.store().committed() == Some(&expected[..]),
            "{events:?}"
        );
        let withdrawn = TransferReceiverEvent::Withdrawn {
            paths: vec![path.clone()],
        };
        assert!(events.contains(&withdrawn), "{events:?}");
        let proof = node.receiver.proof().unwrap();
        assert_eq!(Some(proof.root), outcome.root);
        assert_eq!(proof.numbers.bytes, outcome.content_bytes);
    }
}

#[test]
fn a_file_that_changes_is_withdrawn_and_the_rest_is_proven() {
    let mut world = world(19, 2, 1_500_000);
    let outcome = world.run(MINUTE);
    assert!(
        outcome.is_proven() && outcome.failure.is_none(),
        "{outcome:#?}"
    );
    assert_withdrawn(&world, 1_500_000);
    let path = path_at(&world, 1_500_000);
    let mut roots = world.sender.file_roots().unwrap();
    assert!(roots.all(|(other, _)| other != path));
    // A withdrawn file that does not come is no reason to demote a receiver.
    assert_eq!(world.sender.counters().demoted, 0);
}

#[test]
fn a_file_that_changes_at_its_first_byte_costs_almost_nothing() {
    let entries = vec![Entry::file("a", 1000), Entry::file("large", 20 << 20)];
    let mut world = World::new(20, 2, entries);
    let mut config = TransferSenderConfig::new(SESSION, 2, SEED);
    config.withdraws = true;
    let mut content = MemoryContent::new(world.content.clone());
    content.fails_at = Some(1000);
    let manifest = Arc::clone(&world.manifest);
    world.sender = TransferSender::new(config, manifest, content, world.now);
    assert!(world.run(MINUTE).is_proven());
    assert_withdrawn(&world, 1000);
    let counters = world.sender.counters();
    assert!(
        counters.block_bytes + counters.fill_bytes < 1 << 20,
        "{counters:?}"
    );
}

#[test]
fn a_file_that_changes_before_a_repair_is_withdrawn_from_those_that_lack_it() {
    let mut world = world(21, 2, u64::MAX);
    world.nodes[1].loss.per_mille = 100;
    // Waits until the sender has read all content, and so knows the seals.
    let is_read = |world: &World| world.sender.outcome().root.is_some();
    assert!(world.run_until(MINUTE, is_read));
    let held: Vec<_> = world.nodes[1].receiver.held_slabs().collect();
    let slabs = (0..world.manifest.slab_count()).map(|index| world.manifest.slab(index));
    let mut lacking = slabs.filter(|slab| !held.contains(&slab.range()));
    let file = world.manifest.files()[lacking.next().unwrap().file as usize];
    let lacking = file.start;
    world.sender.content_mut().fails_at = Some(lacking);
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    let path = path_at(&world, lacking);
    assert_eq!(outcome.unsent[0].path, path);
    let second = &world.nodes[1];
    assert!(second.store().committed() == Some(&without(&world, lacking)[..]));
    assert_eq!(
        second.events.last(),
        Some(&TransferReceiverEvent::Acknowledged)
    );
}

#[test]
fn who_verified_a_file_before_it_was_withdrawn_still_proves_what_it_holds() {
    let mut world = world(23, 2, u64::MAX);
    // The first receiver holds everything, but its disk delays the commit. The second lacks a file.
    world.nodes[0].store_mut().faults.commit_hangs = true;
    world.nodes[1].loss.per_mille = 100;
    let is_read = |world: &World| world.sender.outcome().root.is_some();
    assert!(world.run_until(MINUTE, is_read));
    let held: Vec<_> = world.nodes[1].receiver.held_slabs().collect();
    let slabs = (0..world.manifest.slab_count()).map(|index| world.manifest.slab(index));
    let mut lacking = slabs.filter(|slab| !held.contains(&slab.range()));
    let file = world.manifest.files()[lacking.next().unwrap().file as usize];
    world.sender.content_mut().fails_at = Some(file.start);
    assert!(world.run_until(MINUTE, |world| !world.sender.outcome().unsent.is_empty()));
    world.nodes[0].store_mut().faults.commit_hangs = false;
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    let proof = world.nodes[0].receiver.proof().unwrap();
    assert_ne!(Some(proof.root), outcome.root);
    assert_eq!(proof.numbers.bytes, world.manifest.content_bytes());
}

#[test]
fn who_joins_late_learns_what_is_withdrawn() {
    let mut world = world(22, 2, 1_500_000);
    world.nodes[1].joins_at = world.now + Duration::from_secs(12);
    world.nodes[0].store_mut().faults.commit_hangs = true;
    let is_there = |world: &World| world.sender.outcome().receivers.len() == 2;
    assert!(world.run_until(MINUTE, is_there));
    world.nodes[0].store_mut().faults.commit_hangs = false;
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    assert_withdrawn(&world, 1_500_000);
}

/// The sender knows the seals once it has read the last content, but sends them to the group only
/// after that content. A demoted receiver, which gets everything over its own connection, may get
/// the seals earlier.
#[test]
fn who_was_told_the_seals_before_the_pass_was_over_proves_what_they_name() {
    let entries = vec![Entry::file("f", 8 << 20), Entry::file("g", 250_000)];
    let mut config = TransferSenderConfig::new(SESSION, 4, SEED);
    config.withdraws = true;
    config.slow = SlowPolicy::Demote;
    config.slow_after = Duration::from_millis(300);
    let mut world = World::with(24, 4, entries, config);
    (world.blocks_per_step, world.window) = (100, 2_000);
    for slow in [0, 1] {
        world.nodes[slow].blocks_per_step = 1;
    }
    let demoted = |world: &World| -> Vec<usize> {
        let is_demoted = |index: &usize| {
            let name = format!("r{}", index + 1);
            let reports = world.sender.outcome().receivers;
            let mut reports = reports.iter();
            reports.any(|it| it.name == name && it.demoted.is_some())
        };
        (0..4).filter(is_demoted).collect()
    };
    // Each slow receiver is stopped once it is demoted, so the sender reads content for it later.
    assert!(world.run_until(MINUTE, |world| !demoted(world).is_empty()));
    let later = demoted(&world)[0];
    world.nodes[later].is_up = false;
    assert!(world.run_until(MINUTE, |world| demoted(world).len() == 2));
    let early = 1 - later;
    world.nodes[early].is_up = false;
    world.blocks_per_step = 10;
    assert!(world.run_until(MINUTE, |world| world.sender.file_roots().is_some()));
    world.blocks_per_step = 0;
    world.nodes[early].is_up = true;
    let has_all = |world: &World| world.nodes[early].receiver.proof().is_some();
    assert!(world.run_until(MINUTE, has_all));
    assert!(world.sender.may_send_content(), "the pass is over");
    world.sender.content_mut().fails_at = Some(0);
    world.nodes[later].is_up = true;
    assert!(world.run_until(MINUTE, |world| !world.sender.outcome().unsent.is_empty()));
    world.blocks_per_step = BLOCKS_PER_STEP;
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    let proof = world.nodes[early].receiver.proof().unwrap();
    assert_ne!(Some(proof.root), outcome.root);
    assert_eq!(proof.numbers.bytes, world.manifest.content_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is lost and whichever file changes, all receivers prove the content without that
    /// file.
    #[test]
    fn any_loss_and_any_file_ends_proven_without_it(
        seed in any::<u64>(),
        receivers in 1..5_usize,
        losses in proptest::collection::vec((0..300_u64, 0..200_u64), 5),
        at in 0..3_000_000_u64,
        cut in proptest::option::of((0..200_u64, 0..5_usize)),
        full_every in 0..5_u64,
    ) {
        let mut world = world(seed, receivers, 0);
        let at = at % world.manifest.content_bytes();
        world.sender.content_mut().fails_at = Some(at);
        for (node, &(per_mille, late_per_mille)) in world.nodes.iter_mut().zip(&losses) {
            node.loss = Loss { per_mille, late_per_mille, turned_per_mille: 0 };
        }
        if full_every > 1 {
            world.nodes[0].store_mut().faults.full_every = full_every;
        }
        for step in 0..200_u64 {
            world.step();
            if let Some((when, which)) = cut && when == step && which <= receivers {
                world.fabric.cut(which);
            }
        }
        let outcome = world.run(5 * MINUTE);
        prop_assert!(outcome.is_proven(), "{:#?}", outcome);
        if cut.is_some() {
            // The cut may have lost the acknowledgement: the sender then has the proof, and has
            // ended.
            assert_proven_without(&world, at);
        } else {
            assert_withdrawn(&world, at);
        }
    }
}
