//! What is kept when a receiver ends, and what happens to files that exist already.

use std::sync::{Mutex, mpsc};

use super::*;
use crate::disk::store::queue::EXTENT_BYTES;

#[test]
fn a_transfer_goes_on_where_it_was_dropped() {
    let scratch = Scratch::new();
    let manifest = manifest(tree());
    let bytes = content(&manifest);
    let parts = [0..700, 5_000..600_000, 900_000..900_001];
    let mut store = prepared(&scratch.0, Existing::Refuse, &manifest).0;
    for part in &parts {
        assert!(store.write(part.start as u64, &bytes[part.clone()]));
    }
    drop(store);

    let (store, held) = prepared(&scratch.0, Existing::Refuse, &manifest);

    let expected = parts.map(|part| part.start as u64..part.end as u64);
    assert_eq!(held.iter().collect::<Vec<_>>(), expected);
    let (last, sent) = finish(store, &manifest, held, 1000);
    assert_eq!(last, StoreEvent::Committed);
    assert_eq!(sent, manifest.content_bytes() - 595_701);
    assert_whole(&scratch.0, &manifest);
}

#[test]
fn a_damaged_journal_never_claims_what_is_not_there() {
    let scratch = Scratch::new();
    let manifest = manifest(vec![Entry::file("f", 300_000)]);
    let bytes = content(&manifest);
    let mut store = prepared(&scratch.0, Existing::Refuse, &manifest).0;
    let parts: Vec<_> = (0..20).map(|n| n * 10_000..n * 10_000 + 7_000).collect();
    for part in &parts {
        assert!(store.write(part.start as u64, &bytes[part.clone()]));
    }
    drop(store);
    let path = staging_of(&scratch, &manifest).join("journal");
    let journal = fs::read(&path).unwrap();
    let mut rng = base::Rng::new(7);
    for round in 0..300 {
        let mut damaged = journal.clone();
        let at = rng.below(damaged.len() as u64) as usize;
        match round % 3 {
            0 => damaged[at] ^= 1 << rng.below(8),
            1 => damaged.truncate(at),
            _ => damaged[at..].fill(0),
        }
        fs::write(&path, &damaged).unwrap();
        let place = Directory::open(path.parent().unwrap()).unwrap();
        let Some(found) = journal::Found::read(&place, &manifest) else {
            assert!(at < 64, "only a header that is damaged is none");
            continue;
        };
        let is_true = |range: std::ops::Range<u64>| {
            let fits = |p: &std::ops::Range<usize>| {
                p.start as u64 == range.start && p.end as u64 == range.end
            };
            parts.iter().any(fits)
        };
        assert!(found.held.iter().all(is_true), "round {round}");
    }
    // With the last damage the transfer still ends whole.
    let (store, held) = prepared(&scratch.0, Existing::Refuse, &manifest);
    assert_eq!(
        finish(store, &manifest, held, 1400).0,
        StoreEvent::Committed
    );
    assert_whole(&scratch.0, &manifest);
}

#[test]
fn a_journal_of_another_version_or_plan_is_none() {
    let scratch = Scratch::new();
    let manifest = manifest(vec![Entry::file("f", 3000)]);
    let other = super::manifest(vec![Entry::file("g", 3000)]);
    let mut store = prepared(&scratch.0, Existing::Refuse, &manifest).0;
    assert!(store.write(0, &content(&manifest)));
    drop(store);
    let staged = staging_of(&scratch, &manifest);
    let place = Directory::open(&staged).unwrap();
    assert_eq!(
        journal::Found::read(&place, &manifest)
            .unwrap()
            .held
            .bytes(),
        3000
    );
    assert!(journal::Found::read(&place, &other).is_none());
}

#[test]
fn after_another_start_of_the_machine_nothing_is_believed_but_everything_is_compared() {
    let scratch = Scratch::new();
    let manifest = manifest(vec![Entry::file("f", 3 << 20)]);
    let bytes = content(&manifest);
    let mut store = prepared(&scratch.0, Existing::Refuse, &manifest).0;
    for (number, block) in bytes[..2_500_000].chunks(60_000).enumerate() {
        write(&mut store, number as u64 * 60_000, block);
    }
    drop(store);
    let staged = staging_of(&scratch, &manifest);
    let mut journal = fs::read(staged.join("journal")).unwrap();
    let header = journal::header_of(manifest.id(), &[9; 16], manifest.content_bytes());
    journal[..header.len()].copy_from_slice(&header);
    fs::write(staged.join("journal"), journal).unwrap();
    // The power failed before the second slab was on the disk.
    let file = fs::File::options().write(true).open(staged.join("tree/f"));
    let zeros = vec![0; 1 << 20];
    std::os::unix::fs::FileExt::write_all_at(&file.unwrap(), &zeros, 1 << 20).unwrap();

    let (mut store, held) = prepared(&scratch.0, Existing::Refuse, &manifest);

    let notes = store.take_notes();
    assert!(
        notes.iter().any(|note| note.contains("was started since")),
        "{notes:?}"
    );
    assert_eq!(held.bytes(), 2_500_000);
    let (last, sent) = finish(store, &manifest, held, 1400);
    assert_eq!(last, StoreEvent::Committed);
    assert_eq!(sent, (3 << 20) - 2_500_000 + (1 << 20));
    assert_whole(&scratch.0, &manifest);
}

#[test]
fn a_staged_file_that_others_cut_or_removed_counts_as_not_received() {
    let scratch = Scratch::new();
    let manifest = manifest(vec![
        Entry::file("cut", 200_000),
        Entry::file("gone", 3000),
        Entry::file("kept", 70_000),
    ]);
    let mut store = prepared(&scratch.0, Existing::Refuse, &manifest).0;
    assert!(store.write(0, &content(&manifest)));
    drop(store);
    let staged = staging_of(&scratch, &manifest).join("tree");
    let cut = fs::File::options().write(true).open(staged.join("cut"));
    cut.unwrap().set_len(100).unwrap();
    fs::remove_file(staged.join("gone")).unwrap();

    let (store, held) = prepared(&scratch.0, Existing::Refuse, &manifest);

    assert_eq!(held.iter().next(), Some(203_000..273_000));
    assert_eq!(held.range_count(), 1);
    assert_eq!(
        finish(store, &manifest, held, 1000).0,
        StoreEvent::Committed
    );
    assert_whole(&scratch.0, &manifest);
}

#[test]
fn bytes_turned_on_the_disk_are_fetched_again() {
    let scratch = Scratch::new();
    let manifest = manifest(vec![Entry::file("f", 3 << 20)]);
    let mut store = prepared(&scratch.0, Existing::Refuse, &manifest).0;
    for (number, block) in content(&manifest).chunks(60_000).enumerate() {
        write(&mut store, number as u64 * 60_000, block);
    }
    drop(store);
    let staged = staging_of(&scratch, &manifest).join("tree/f");
    let file = fs::File::options().write(true).open(staged).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"turned", 1_500_000).unwrap();

    let (store, held) = prepared(&scratch.0, Existing::Refuse, &manifest);

    assert_eq!(held.bytes(), 3 << 20);
    let (last, sent) = finish(store, &manifest, held, 1400);
    assert_eq!((last, sent), (StoreEvent::Committed, 1 << 20));
    assert_whole(&scratch.0, &manifest);
}

#[test]
fn a_crash_between_any_two_renames_leaves_whole_files_and_a_rest_that_can_be_finished() {
    for renames in 1..9 {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path("d")).unwrap();
        let mut read_only = Entry::file("d/read-only", 300);
        read_only.mode = 0o400;
        let manifest = manifest(vec![
            Entry::directory("d"),
            read_only,
            Entry::file("d/empty", 0),
            Entry::file("d/large", 100_000),
            Entry::symlink("d/link", "large"),
            Entry::directory("new"),
            Entry::file("new/f", 10),
            Entry::file("z", 70_000),
        ]);
        let options = StoreOptions {
            // The first rename is the journal's.
            fault: Some(DiskFault {
                call: DiskCall::Rename,
                after: renames,
                errno: 5,
            }),
            ..StoreOptions::default()
        };
        let mut store = FileStore::new(&scratch.0, options);
        store.prepare(&manifest);
        let StoreEvent::Prepared { held } = outcome(&mut store) else {
            panic!("it does not prepare");
        };
        let last = finish(store, &manifest, held, 1000).0;
        if renames < 7 {
            assert_eq!(failure(last).0, ErrorCode::Io, "{renames}");
        }
        assert_nothing_half_written(&scratch.0, &manifest);

        let (store, held) = prepared(&scratch.0, Existing::Refuse, &manifest);

        assert_eq!(held.bytes(), manifest.content_bytes(), "{renames}");
        let (last, sent) = finish(store, &manifest, held, 1000);
        assert_eq!((last, sent), (StoreEvent::Committed, 0), "{renames}");
        assert_whole(&scratch.0, &manifest);
        assert!(!scratch.path(STAGING).exists());
        if renames > 6 {
            break;
        }
    }
}

#[test]
fn what_is_unchanged_is_compared_where_it_lies_and_left_alone() {
    let scratch = Scratch::new();
    let entries = || vec![Entry::file("a", 3 << 20), Entry::file("b", 900)];
    let manifest = manifest(entries());
    let first = prepared(&scratch.0, Existing::SkipUnchanged, &manifest);
    assert_eq!(
        finish(first.0, &manifest, first.1, 1400).0,
        StoreEvent::Committed
    );
    let inode = |name| fs::metadata(scratch.path(name)).unwrap().ino();
    let before = [inode("a"), inode("b")];

    let (store, held) = prepared(&scratch.0, Existing::SkipUnchanged, &manifest);
    assert_eq!(held.bytes(), manifest.content_bytes());
    let again = finish(store, &manifest, held, 1400);
    assert_eq!(again, (StoreEvent::Committed, 0));
    assert_eq!([inode("a"), inode("b")], before);

    // Equal in length and time, but not in content.
    let path = scratch.path("a");
    let file = fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"changed", 2 << 20).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let (store, held) = prepared(&scratch.0, Existing::SkipUnchanged, &manifest);
    let mended = finish(store, &manifest, held, 1400);
    assert_eq!(mended, (StoreEvent::Committed, 1 << 20));
    assert_ne!(inode("a"), before[0]);
    assert_whole(&scratch.0, &manifest);
}

#[test]
fn what_changes_while_it_is_compared_ends_the_transfer() {
    let scratch = Scratch::new();
    let manifest = manifest(vec![Entry::file("a", 3000)]);
    let first = prepared(&scratch.0, Existing::SkipUnchanged, &manifest);
    assert_eq!(
        finish(first.0, &manifest, first.1, 1400).0,
        StoreEvent::Committed
    );
    let (mut store, held) = prepared(&scratch.0, Existing::SkipUnchanged, &manifest);
    assert_eq!(held.bytes(), 3000);
    assert!(store.hash_slab(0));
    outcome(&mut store);
    fs::write(scratch.path("a"), "mine").unwrap();
    store.commit(&[]);
    let (code, text) = failure(outcome(&mut store));
    assert_eq!(code, ErrorCode::Io);
    assert!(text.contains("it changed while it was compared"), "{text}");
    assert_eq!(fs::read(scratch.path("a")).unwrap(), b"mine");
}

#[test]
fn a_full_disk_at_a_second_attempt_leaves_the_first_ones_bytes() {
    let scratch = Scratch::new();
    let manifest = manifest(vec![Entry::file("a", 300_000), Entry::file("b", 300_000)]);
    let mut store = prepared(&scratch.0, Existing::Refuse, &manifest).0;
    assert!(store.write(0, &content(&manifest)[..100_000]));
    drop(store);
    let options = StoreOptions {
        fault: Some(DiskFault {
            call: DiskCall::Allocate,
            after: 0,
            errno: 28,
        }),
        ..StoreOptions::default()
    };
    let mut store = FileStore::new(&scratch.0, options);
    store.prepare(&manifest);
    assert!(matches!(outcome(&mut store), StoreEvent::Prepared { .. }));
    write(&mut store, 300_000, &content(&manifest)[300_000..400_000]);
    store.hand_over();
    assert_eq!(failure(outcome(&mut store)).0, ErrorCode::DiskFull);
    drop(store);
    let (_, held) = prepared(&scratch.0, Existing::Refuse, &manifest);
    assert_eq!(held.bytes(), 100_000);
}

/// Leaves an unfinished transfer of `manifest` behind, last changed `days` days ago.
fn leave_behind(scratch: &Scratch, manifest: &Arc<Manifest>, days: u64) {
    let mut store = prepared(&scratch.0, Existing::Replace, manifest).0;
    assert!(store.write(0, &content(manifest)[..2000]));
    drop(store);
    let journal = staging_of(scratch, manifest).join("journal");
    let then = std::time::SystemTime::now() - Duration::from_secs(days * 86_400);
    let file = fs::File::options().write(true).open(journal).unwrap();
    file.set_modified(then).unwrap();
}

#[test]
fn leftovers_are_listed_and_removed_on_demand_unless_they_are_in_use() {
    let scratch = Scratch::new();
    let other = manifest(vec![Entry::file("other", 3000)]);
    let mut store = prepared(&scratch.0, Existing::Refuse, &other).0;
    assert!(store.write(0, &content(&other)[..2000]));
    let busy = discard_leftover(&scratch.0, other.id()).unwrap_err();
    assert!(busy.to_string().contains("another receiver"), "{busy}");
    drop(store);
    let list = leftovers(&scratch.0).unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!((list[0].manifest, list[0].bytes), (other.id(), 2000));
    discard_leftover(&scratch.0, other.id()).unwrap();
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
}

#[test]
fn leftovers_that_are_old_go_with_the_next_transfer_and_others_stay() {
    let scratch = Scratch::new();
    let (old, young) = (
        manifest(vec![Entry::file("old", 3000)]),
        manifest(vec![Entry::file("young", 3000)]),
    );
    leave_behind(&scratch, &young, 6);
    let in_use = manifest(vec![Entry::file("in use", 3000)]);
    leave_behind(&scratch, &in_use, 0);
    let holder = prepared(&scratch.0, Existing::Replace, &in_use).0;
    let journal = staging_of(&scratch, &in_use).join("journal");
    let then = std::time::SystemTime::now() - Duration::from_secs(9 * 86_400);
    let file = fs::File::options().write(true).open(journal).unwrap();
    file.set_modified(then).unwrap();
    leave_behind(&scratch, &old, 8);
    // This receiver was killed before it had written anything: only its lock file is left.
    let lock = scratch.0.join(format!(".towline/{}.lock", "0a".repeat(16)));
    fs::write(&lock, b"").unwrap();

    let mut store = prepared(&scratch.0, Existing::Refuse, &manifest(tree())).0;

    let notes = store.take_notes();
    let is_named = |note: &String| note.contains(&old.id().to_string());
    assert!(notes.iter().any(is_named), "{notes:?}");
    assert!(!lock.exists());
    drop(store);
    let list = leftovers(&scratch.0).unwrap();
    let left: Vec<_> = list.iter().map(|leftover| leftover.manifest).collect();
    assert_eq!(left, [in_use.id(), young.id()]);
    drop(holder);
}

#[test]
fn the_same_paths_under_another_manifest_supersede_what_was_left() {
    let scratch = Scratch::new();
    let first = manifest(vec![Entry::file("log", 3000), Entry::file("data", 3000)]);
    let elsewhere = manifest(vec![Entry::file("log", 3000), Entry::file("more", 3000)]);
    leave_behind(&scratch, &first, 0);
    leave_behind(&scratch, &elsewhere, 0);
    // `elsewhere` has staged only the beginning of its first file, and `second` has the same path.
    // One more staged file, which `second` does not have, keeps `elsewhere` from being removed.
    let own = staging_of(&scratch, &elsewhere).join("tree/more");
    fs::write(own, b"m").unwrap();
    let second = manifest(vec![Entry::file("log", 4000), Entry::file("data", 3000)]);
    let mut store = open(&scratch.0, Existing::Replace);
    assert_eq!(deliver(&mut store, &second, 1000), StoreEvent::Committed);
    drop(store);
    let list = leftovers(&scratch.0).unwrap();
    let left: Vec<_> = list.iter().map(|leftover| leftover.manifest).collect();
    assert_eq!(left, [elsewhere.id()]);
}

#[test]
fn every_outcome_ends_the_wait_of_who_polls() {
    let scratch = Scratch::new();
    let (bell, rings) = mpsc::channel();
    let bell = Mutex::new(bell);
    let options = StoreOptions {
        notify: Some(Box::new(move || {
            // Nobody listens at the end.
            let _is_heard = bell.lock().unwrap().send(()).is_ok();
        })),
        ..StoreOptions::default()
    };
    let mut store = FileStore::new(&scratch.0, options);
    let wait = |store: &mut FileStore| loop {
        if let Some(event) = store.poll_event() {
            return event;
        }
        rings
            .recv_timeout(Duration::from_secs(30))
            .expect("nobody rings");
    };
    let manifest = manifest(vec![Entry::file("a", 3000)]);
    store.prepare(&manifest);
    assert!(matches!(wait(&mut store), StoreEvent::Prepared { .. }));
    assert!(store.write(0, &content(&manifest)));
    assert!(store.hash_slab(0));
    assert!(matches!(wait(&mut store), StoreEvent::Hashed { .. }));
    store.commit(&[]);
    assert_eq!(wait(&mut store), StoreEvent::Committed);
}

#[test]
fn the_queue_takes_no_more_than_it_may_and_everything_once_there_is_room() {
    let scratch = Scratch::new();
    let manifest = manifest(vec![Entry::file("a", 40 << 20)]);
    let options = StoreOptions {
        queue_bytes_max: 1 << 20,
        ..StoreOptions::default()
    };
    let mut store = FileStore::new(&scratch.0, options);
    store.prepare(&manifest);
    let StoreEvent::Prepared { held } = outcome(&mut store) else {
        panic!("it does not prepare");
    };
    assert_eq!(
        finish(store, &manifest, held, 1400).0,
        StoreEvent::Committed
    );
    assert_whole(&scratch.0, &manifest);
}

#[test]
fn a_disk_with_nothing_to_do_is_woken_for_what_somebody_waits_for_or_for_a_good_part() {
    let scratch = Scratch::new();
    let manifest = manifest(vec![Entry::file("a", 1 << 20)]);
    let (mut store, _) = prepared(&scratch.0, Existing::Refuse, &manifest);
    let bytes = content(&manifest);
    let is_held_back = |store: &mut FileStore| {
        // Until then the extent waits for the disk.
        while store.queue.as_ref().unwrap().poll(true).1 != Idle::Yes {
            thread::yield_now();
        }
        assert_eq!(store.poll_event(), None);
        store
            .extent
            .as_ref()
            .is_some_and(|extent| !extent.is_empty())
    };
    write(&mut store, 0, &bytes[..3_000]);
    assert!(is_held_back(&mut store), "a few packets wake the disk");
    write(&mut store, 3_000, &bytes[3_000..EXTENT_BYTES / 4]);
    assert!(!is_held_back(&mut store), "a good part is kept waiting");
    let slab = usize::try_from(manifest.slab(0).len).unwrap();
    for (nth, block) in bytes[EXTENT_BYTES / 4..slab].chunks(1_000).enumerate() {
        write(&mut store, (EXTENT_BYTES / 4 + nth * 1_000) as u64, block);
    }
    assert!(store.hash_slab(0));
    let event = outcome(&mut store);
    assert!(
        matches!(event, StoreEvent::Hashed { slab: 0, .. }),
        "{event:?}"
    );
}
