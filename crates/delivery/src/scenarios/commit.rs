//! A receiver that is putting its files in place: nothing but its disk decides how that ends.

use wire::object::{ErrorCode, Phase};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A world whose first receiver puts its files in place until its disk is told to end that.
fn putting_in_place(seed: u64) -> World {
    let mut world = World::new(seed, 1, tree());
    world.nodes[0].store_mut().faults.commit_hangs = true;
    let is_committing =
        |world: &World| world.nodes[0].receiver.progress().phase == Phase::Committing;
    assert!(world.run_until(MINUTE, is_committing));
    world
}

/// The same, and the sender is stopped meanwhile.
fn without_a_sender(seed: u64) -> World {
    let mut world = putting_in_place(seed);
    let (now, code) = (world.now, ErrorCode::Cancelled);
    world.sender.cancel(now, code, "interrupted");
    world
}

/// Its disk ends now: the receiver after that.
fn ended(world: &mut World) -> &Node {
    // Longer than it would look for a sender otherwise.
    world.run_until(MINUTE, |_| false);
    assert!(!world.nodes[0].receiver.is_over());
    world.nodes[0].store_mut().faults.commit_hangs = false;
    assert!(world.run_until(MINUTE, |world| world.nodes[0].receiver.is_over()));
    &world.nodes[0]
}

#[test]
fn the_senders_end_does_not_stop_it() {
    let mut world = without_a_sender(27);
    let last = ended(&mut world).events.last();
    assert!(
        matches!(last, Some(TransferReceiverEvent::Delivered { .. })),
        "{last:?}"
    );
    let committed = world.nodes[0].store().committed();
    assert_eq!(committed, Some(&world.content[..]));
}

#[test]
fn a_connection_that_is_lost_does_not_stop_it_and_the_proof_comes_with_the_next() {
    let mut world = putting_in_place(29);
    world.fabric.crash(0);
    let node = ended(&mut world);
    assert_eq!(
        node.events.last(),
        Some(&TransferReceiverEvent::Acknowledged)
    );
}

#[test]
fn a_disk_that_fails_after_the_senders_end_is_told() {
    let mut world = without_a_sender(28);
    world.nodes[0].store_mut().faults.commit = Some(ErrorCode::Io);
    let told = ended(&mut world).events.last();
    assert!(
        matches!(
            told,
            Some(TransferReceiverEvent::Failed {
                code: ErrorCode::Io,
                ..
            })
        ),
        "{told:?}"
    );
}
