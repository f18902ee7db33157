//! How much of the disk transfers take, and how much they leave free.

use super::*;

const MIB: u64 = 1 << 20;

fn limited(directory: &Path, room: &Room) -> FileStore {
    let options = StoreOptions {
        room: room.clone(),
        ..StoreOptions::default()
    };
    FileStore::new(directory, options)
}

fn quota(bytes: u64) -> Room {
    Room::new(RoomLimits {
        quota_bytes: Some(bytes),
        keep_free: KeepFree::Bytes(0),
    })
}

fn one(name: &str, bytes: u64) -> Arc<Manifest> {
    manifest(vec![Entry::file(name, bytes)])
}

/// Bytes that everything below a directory takes on the disk.
fn taken(directory: &Path) -> u64 {
    super::super::room::taken_bytes(&Directory::open(directory).unwrap())
}

fn ready(store: &mut FileStore, manifest: &Arc<Manifest>) {
    store.prepare(manifest);
    let event = outcome(store);
    assert!(matches!(event, StoreEvent::Prepared { .. }), "{event:?}");
}

#[test]
fn a_manifests_word_takes_no_room_and_next_to_nothing_is_not_kept() {
    let scratch = Scratch::new();
    let small = (0..200).map(|n| Entry::file(&format!("small{n}"), 60_000));
    let large = Entry::file("large", 1 << 30);
    let manifest = manifest(small.chain([large]).collect());
    let mut store = open(&scratch.0, Existing::Refuse);
    ready(&mut store, &manifest);
    let before = taken(&scratch.0);
    assert!(before < MIB, "{before} bytes for a manifest's word");
    // The attack: a sender sends one byte here and there, and then leaves.
    for at in [0, 5 << 20, 500 << 20, (1 << 30) - 1] {
        write(&mut store, at, &[1]);
        store.hand_over();
    }
    store.abandon();
    let queue = store.ending.take().unwrap();
    queue.wait_for_end(Duration::from_secs(30));
    drop(store);
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
}

#[test]
fn transfers_that_buy_at_the_same_time_stay_within_the_quota() {
    let scratch = Scratch::new();
    let directory = Directory::open(&scratch.0).unwrap();
    for round in 0..500 {
        let room = quota(1);
        let start = std::sync::Barrier::new(2);
        let buy = || {
            start.wait();
            room.try_take(&directory, 1).is_ok()
        };
        let bought = thread::scope(|scope| {
            let buyers = [(); 2].map(|()| scope.spawn(buy));
            buyers.map(|buyer| buyer.join().unwrap())
        });
        assert!(bought[0] != bought[1], "round {round}: {bought:?}");
    }
}

#[test]
fn what_a_file_was_given_counts_until_it_is_written() {
    let scratch = Scratch::new();
    let directory = Directory::open(&scratch.0).unwrap();
    let room = quota(3 * MIB);
    let mut share = super::super::room::Share::new(room.clone(), 0);
    share.pay(&directory, MIB, MIB, &mut || false).unwrap();
    // Nothing is in the directory yet, and another transfer asks.
    assert!(room.try_take(&directory, 3 * MIB).is_err());
    drop(share);
    assert!(room.try_take(&directory, 3 * MIB).is_ok());
}

#[test]
fn what_is_taken_grows_with_what_has_come() {
    let scratch = Scratch::new();
    let manifest = one("large", 1 << 30);
    let mut store = open(&scratch.0, Existing::Refuse);
    ready(&mut store, &manifest);
    for at in 0..64_u64 {
        write(&mut store, at * 64 * 1024, &[1; 64 * 1024]);
    }
    // A byte far out, and one in every MiB.
    for at in 0..400_u64 {
        write(&mut store, 100 * MIB + at * MIB, &[1]);
    }
    assert!(
        store.hash_slab(0),
        "the last request, so all is written then"
    );
    let event = outcome(&mut store);
    assert!(matches!(event, StoreEvent::Hashed { .. }), "{event:?}");
    let taken = taken(&scratch.0);
    // At most: twice the 4 MiB, the first step of 1 MiB, and 8 KiB for each of the 400 single
    // bytes.
    assert!(taken >= 4 * MIB, "{taken}");
    assert!(taken <= 2 * 4 * MIB + MIB + 400 * 8192, "{taken}");
}

#[test]
fn a_directory_holds_no_more_than_its_quota() {
    let scratch = Scratch::new();
    fs::write(scratch.path("mine"), vec![1; 1 << 20]).unwrap();
    let room = quota(4 * MIB);
    let first = one("first", 2 * MIB);
    let mut store = limited(&scratch.0, &room);
    assert_eq!(deliver(&mut store, &first, 60_000), StoreEvent::Committed);
    drop(store);

    // The quota counts the user's own file and the first transfer, too.
    let second = one("second", 2 * MIB);
    let mut store = limited(&scratch.0, &room);
    let (code, text) = failure(deliver(&mut store, &second, 60_000));
    assert_eq!(code, ErrorCode::DiskFull);
    assert!(text.contains("needs 2097152 bytes"), "{text}");
    assert!(
        text.contains("the quota") && text.contains("4MiB"),
        "{text}"
    );
    drop(store);

    // The room of a removed file is free again.
    fs::remove_file(scratch.path("first")).unwrap();
    let mut store = limited(&scratch.0, &room);
    assert_eq!(deliver(&mut store, &second, 60_000), StoreEvent::Committed);
}

#[test]
fn transfers_at_a_time_share_the_quota() {
    let scratch = Scratch::new();
    let room = quota(5 * MIB);
    let (first, second) = (one("first", 3 * MIB), one("second", 3 * MIB));
    let mut one = limited(&scratch.0, &room);
    let mut other = limited(&scratch.0, &room);
    // Each transfer fits by itself, and neither takes any room before its content comes.
    ready(&mut one, &first);
    ready(&mut other, &second);
    write(&mut one, 0, &content(&first));
    assert!(one.hash_slab(0));
    outcome(&mut one);
    let bytes = content(&second);
    let mut told = None;
    for (nth, block) in bytes.chunks(60_000).enumerate() {
        if !other.write(nth as u64 * 60_000, block) {
            break;
        }
        other.hand_over();
        thread::sleep(Duration::from_millis(1));
        told = told.or_else(|| other.poll_event());
    }
    let (code, text) = failure(told.unwrap_or_else(|| outcome(&mut other)));
    assert_eq!(code, ErrorCode::DiskFull);
    assert!(text.contains("more than its quota"), "{text}");
    let taken = taken(&scratch.0);
    // Directories and journals come on top.
    assert!((3 * MIB..=5 * MIB + (64 << 10)).contains(&taken), "{taken}");
    // The other one goes on.
    for slab in 1..first.slab_count() {
        assert!(one.hash_slab(slab));
        outcome(&mut one);
    }
    one.commit(&[]);
    assert_eq!(outcome(&mut one), StoreEvent::Committed);
}

#[test]
fn what_was_left_goes_when_another_transfer_has_come_that_far_and_not_before() {
    let scratch = Scratch::new();
    let room = quota(5 * MIB);
    let left = one("left", 4 * MIB);
    let mut store = limited(&scratch.0, &room);
    ready(&mut store, &left);
    write(&mut store, 0, &content(&left)[..3 << 20]);
    drop(store);
    let kept = |scratch: &Scratch| leftovers(&scratch.0).unwrap().len();
    assert_eq!(kept(&scratch), 1);

    let next = one("next", 3 * MIB);
    let mut store = limited(&scratch.0, &room);
    ready(&mut store, &next);
    assert_eq!(kept(&scratch), 2, "a manifest's word removes nothing");
    let held = RangeSet::new(8);
    let (event, _) = finish(store, &next, held, 60_000);
    assert_eq!(event, StoreEvent::Committed);
    assert_eq!(kept(&scratch), 0);
    assert_whole(&scratch.0, &next);
}

#[test]
fn what_must_stay_free_is_not_taken() {
    let scratch = Scratch::new();
    let room = Room::new(RoomLimits {
        quota_bytes: None,
        keep_free: KeepFree::Bytes(1 << 60),
    });
    let mut store = limited(&scratch.0, &room);
    let (code, text) = failure(deliver(&mut store, &one("f", 9), 9));
    assert_eq!(code, ErrorCode::DiskFull);
    assert!(
        text.contains("needs 9 bytes, and the disk has 0 left"),
        "{text}"
    );
    assert!(text.contains("keep free"), "{text}");
}
