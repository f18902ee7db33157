//! A receiver that is putting its files in place: only its disk decides how that ends.

use wire::object::{ErrorCode, Phase};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// Makes a world whose only receiver is putting its files in place, and whose disk hangs meanwhile.
fn putting_in_place(seed: u64) -> World {
    let mut world = World::new(seed, 1, tree());
    world.nodes[0].store_mut().faults.commit_hangs = true;
    let is_committing =
        |world: &World| world.nodes[0].receiver.progress().phase == Phase::Committing;
    assert!(world.run_until(MINUTE, is_committing));
    world
}

/// Makes the world of [`putting_in_place`], and cancels the transfer at the sender.
fn without_a_sender(seed: u64) -> World {
    let mut world = putting_in_place(seed);
    let (now, code) = (world.now, ErrorCode::Cancelled);
    world.sender.cancel(now, code, "interrupted");
    world
}

/// Ends the hang of the disk after a minute. Returns the receiver once its transfer is over.
fn ended(world: &mut World) -> &Node {
    // Without a sender, a receiver gives up after 30 s, but not while it commits.
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
