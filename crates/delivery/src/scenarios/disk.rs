//! A disk that cannot keep up. The sender waits for a receiver's disk, in the packet stream and on
//! a connection. Of its own disk it waits only for what it sends next.

use super::{
    transfers::{config, large, run_to},
    *,
};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_disk_that_is_behind_holds_the_sender_back() {
    let mut world = World::with(20, 1, large(), config(1));
    run_to(&mut world, 10);
    let hold = |world: &World| world.sender.hold(world.lead()).unwrap();
    world.nodes[0].store_mut().faults.is_behind = true;
    // Reports from before the disk fell behind may still be under way.
    (0..10).for_each(|_| world.step());
    let held_at = hold(&world);
    // The sender would wait less than 4 s for a silent receiver. The simulated stream does not obey
    // `hold`, so the test slows the stream down for the 4 s.
    let pace = std::mem::replace(&mut world.blocks_per_step, 1);
    let end = world.now + Duration::from_secs(4);
    while world.now < end {
        world.step();
    }
    world.blocks_per_step = pace;
    assert_eq!(hold(&world), held_at);
    assert!(world.nodes[0].receiver.counters().holds >= 20);
    world.nodes[0].store_mut().faults.is_behind = false;
    (0..20).for_each(|_| world.step());
    assert!(hold(&world) > held_at);
    assert!(world.run(MINUTE).is_proven());
}

#[test]
fn blocks_on_the_connection_wait_for_a_disk_that_is_behind() {
    let mut world = World::with(21, 1, large(), config(1));
    // All of the content comes over the connection.
    world.nodes[0].loss.per_mille = 1000;
    run_to(&mut world, 10);
    let held = |world: &World| world.nodes[0].receiver.progress().numbers.held;
    let mut reads = 0;
    while !world.nodes[0].receiver.is_over() {
        world.nodes[0].store_mut().faults.is_behind = true;
        (0..3).for_each(|_| world.step());
        let before = held(&world);
        (0..900).for_each(|_| world.step());
        assert_eq!(held(&world), before, "nothing is read meanwhile");
        world.nodes[0].store_mut().faults.is_behind = false;
        (0..3).for_each(|_| world.step());
        reads += 1;
        assert!(reads < 1000);
    }
    assert_eq!(world.nodes[0].receiver.counters().reads_rested, reads);
    assert!(world.run(MINUTE).is_proven());
    world.assert_whole();
}

#[test]
fn a_disk_that_hangs_does_not_silence_its_connection() {
    let mut world = World::with(22, 1, large(), config(1));
    world.nodes[0].loss.per_mille = 1000;
    run_to(&mut world, 10);
    let held = |world: &World| world.nodes[0].receiver.progress().numbers.held;
    world.nodes[0].store_mut().faults.is_behind = true;
    let before = held(&world);
    (0..5_000).for_each(|_| world.step());
    assert!(held(&world) > before, "it is looked at once a second");
    assert_eq!(world.nodes[0].receiver.counters().connections_lost, 0);
}

#[test]
fn a_senders_disk_that_stands_still_again_and_again_only_takes_time() {
    for seed in 30..40 {
        let loss = Loss {
            per_mille: 50,
            ..Loss::default()
        };
        let mut world = World::with(seed, 3, tree(), config(3)).lossy(loss);
        let (mut rng, bytes) = (Rng::new(seed), world.content.len() as u64);
        for _ in 0..1_000 {
            let comes_at = Some(rng.below(bytes)).filter(|_| rng.below(5) > 0);
            world.sender.content_mut().comes_at = comes_at;
            (0..3).for_each(|_| world.step());
        }
        world.sender.content_mut().comes_at = None;
        assert!(world.run(MINUTE).is_proven(), "{seed}");
        world.assert_whole();
    }
}

#[test]
fn what_the_sender_has_at_hand_does_not_wait_for_its_disk() {
    const LEN: usize = 1 << 20;
    let entries = vec![Entry::file("a", LEN as u64), Entry::file("b", LEN as u64)];
    let loss = Loss {
        per_mille: 1000,
        ..Loss::default()
    };
    let mut world = World::with(41, 2, entries, config(2)).lossy(loss);
    // One lacks the first file, the other the second. Nothing reaches them but by their
    // connections.
    let [a, b] = [0, LEN].map(|at| (at as u64, world.content[at..at + LEN].to_vec()));
    world.nodes[0].store_mut().resumed.extend([b]);
    world.nodes[1].store_mut().resumed.extend([a]);
    let held = |world: &World, node: usize| world.nodes[node].receiver.progress().numbers.held;
    let are_demoted = |world: &World| {
        let demoted =
            |event: &&TransferSenderEvent| matches!(event, TransferSenderEvent::Demoted { .. });
        world.events.iter().filter(demoted).count() == 2
    };
    assert!(world.run_until(MINUTE, are_demoted));
    world.sender.content_mut().comes_at = Some(0);
    let before = held(&world, 0);
    let has_second = |world: &World| held(world, 1) == 2 * LEN as u64;
    assert!(world.run_until(MINUTE, has_second));
    let first = held(&world, 0);
    assert!(
        first < 2 * LEN as u64 && first <= before + (1 << 18),
        "{first}"
    );
    world.sender.content_mut().comes_at = None;
    assert!(world.run(MINUTE).is_proven());
    world.assert_whole();
}

#[test]
fn a_senders_disk_that_hangs_is_named_as_what_a_receiver_waited_for() {
    let mut world = World::with(42, 1, large(), config(1));
    world.nodes[0].loss.per_mille = 1000;
    run_to(&mut world, 10);
    world.sender.content_mut().comes_at = Some(world.content.len() as u64 / 2);
    let outcome = world.run(10 * MINUTE);
    let state = format!("{:?}", outcome.receivers[0].state);
    assert!(
        state.contains("the sender's own disk gave nothing"),
        "{state}"
    );
}
