//! Every call to the disk is made to fail, at every time: the failure is named, nothing is
//! half-written, and the next attempt resumes.

use super::*;
use crate::disk::store::disk::STAND_STILL;

#[test]
fn whatever_call_fails_and_whenever_it_is_told_and_the_next_attempt_ends_whole() {
    let calls = [
        DiskCall::Create,
        DiskCall::Open,
        DiskCall::MakeDirectory,
        DiskCall::MakeLink,
        DiskCall::Allocate,
        DiskCall::Write,
        DiskCall::Read,
        DiskCall::SetAttributes,
        DiskCall::Sync,
        DiskCall::Rename,
    ];
    for call in calls {
        let mut failed = 0;
        for (errno, code) in [(28, ErrorCode::DiskFull), (5, ErrorCode::Io)] {
            for after in 0..40 {
                if !fails(DiskFault { call, after, errno }, code) {
                    break;
                }
                failed += 1;
            }
        }
        assert!(failed > 0, "{call:?} is never made");
    }
}

#[test]
fn what_comes_in_order_is_not_read_back() {
    let scratch = Scratch::fast();
    let manifest = manifest(vec![Entry::file("large", (4 << 20) + 70_000)]);
    let (call, after, errno) = (DiskCall::Read, 0, 5);
    let mut store = faulty(&scratch.0, DiskFault { call, after, errno });
    store.prepare(&manifest);
    let StoreEvent::Prepared { held } = outcome(&mut store) else {
        panic!("nothing is read to prepare");
    };
    // Every hash is asked for after the last slab has come.
    assert_eq!(
        finish(store, &manifest, held, 60_000).0,
        StoreEvent::Committed
    );
}

#[test]
fn a_disk_that_stands_still_delays_no_call_of_the_thread_that_serves_others() {
    let calls = [
        DiskCall::Create,
        DiskCall::MakeDirectory,
        DiskCall::Write,
        DiskCall::Sync,
        DiskCall::Rename,
    ];
    for call in calls {
        // Once the store works to the end, and once it is dropped while the disk stands still.
        for is_dropped in [false, true] {
            // A call that waits for the disk is slow in every try. A busy machine makes one try
            // slow, so one fast try of three is enough.
            let mut longest = (0..3).map(|_| longest_beside_a_stall(call, is_dropped));
            let is_prompt = longest.any(|it| it < STAND_STILL / 2);
            assert!(is_prompt, "{call:?}, dropped: {is_dropped}");
        }
    }
}

/// Delivers into a store whose disk stands still at a call; returns the time of the longest call of
/// the thread that also serves others.
fn longest_beside_a_stall(call: DiskCall, is_dropped: bool) -> Duration {
    let (scratch, endings) = (Scratch::fast(), Endings::default());
    let (after, errno) = (0, 0);
    let options = StoreOptions {
        fault: Some(DiskFault { call, after, errno }),
        endings: Some(endings.clone()),
        ..StoreOptions::default()
    };
    let manifest = manifest(vec![
        Entry::directory("dir"),
        Entry::file("dir/one", 100_000),
    ]);
    let bytes = content(&manifest);
    let began = Instant::now();
    let mut store = FileStore::new(&scratch.path("new"), options);
    let made = began.elapsed();
    let longest = longest_call(&mut store, &manifest, &bytes, is_dropped).max(made);
    let dropped = Instant::now();
    drop(store);
    let longest = longest.max(dropped.elapsed());
    drop(endings);
    assert!(began.elapsed() >= STAND_STILL, "{call:?} was made");
    longest
}

#[test]
fn whoever_makes_a_store_makes_no_call_to_the_disk() {
    let scratch = Scratch::fast();
    let target = scratch.path("in/here");
    let mut store = open(&target, Existing::Refuse);
    assert!(!target.exists(), "its thread makes it");
    let manifest = manifest(vec![Entry::file("one", 10)]);
    assert_eq!(deliver(&mut store, &manifest, 9), StoreEvent::Committed);
    assert_whole(&target, &manifest);
    // The failure says what keeps the thread from making the directory.
    let beneath_a_file = target.join("one/below");
    let mut store = open(&beneath_a_file, Existing::Refuse);
    store.prepare(&manifest);
    let (code, text) = failure(outcome(&mut store));
    assert_eq!(code, ErrorCode::Io);
    assert!(
        text.contains(&beneath_a_file.display().to_string()),
        "{text}"
    );
}

#[test]
fn a_manifest_offered_again_waits_until_its_former_store_has_written_what_it_had() {
    // The owner may still have the former store, to tell its sender something, or not.
    for is_dropped in [true, false] {
        let (scratch, endings) = (Scratch::fast(), Endings::default());
        let with = |fault| StoreOptions {
            fault,
            endings: Some(endings.clone()),
            ..StoreOptions::default()
        };
        let manifest = manifest(vec![Entry::file("one", 100_000)]);
        // The first write is the journal's, before any content comes.
        let (call, after, errno) = (DiskCall::Write, 1, 0);
        let stands_still = with(Some(DiskFault { call, after, errno }));
        let mut former = FileStore::new(&scratch.0, stands_still);
        former.prepare(&manifest);
        let StoreEvent::Prepared { .. } = outcome(&mut former) else {
            panic!("nothing is written to prepare");
        };
        let began = Instant::now();
        assert!(former.write(0, &content(&manifest)) && former.hash_slab(0));
        // Content that came before the end is written all the same.
        former.abandon();
        let kept = (!is_dropped).then_some(former);
        assert_eq!(endings.count(), 1, "it still works");
        let mut store = FileStore::new(&scratch.0, with(None));
        store.prepare(&manifest);
        let held = match outcome(&mut store) {
            StoreEvent::Prepared { held } => held,
            other => panic!("{other:?}"),
        };
        assert!(began.elapsed() >= STAND_STILL, "it stood still");
        assert_eq!(held.bytes(), 100_000, "nothing is sent twice");
        let (last, sent) = finish(store, &manifest, held, 60_000);
        assert_eq!((last, sent), (StoreEvent::Committed, 0));
        while endings.count() > 0 {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "it works for ever"
            );
            thread::sleep(Duration::from_millis(1));
        }
        assert_whole(&scratch.0, &manifest);
        drop(kept);
    }
}

#[test]
fn a_former_store_that_does_not_end_is_told_as_what_it_is() {
    let (scratch, endings) = (Scratch::fast(), Endings::default());
    let manifest = manifest(vec![Entry::file("one", 10)]);
    let stuck = Arc::new(Queue::new(0, None));
    endings.add(manifest.id(), Arc::clone(&stuck));
    let options = StoreOptions {
        endings: Some(endings),
        ..StoreOptions::default()
    };
    let mut store = FileStore::new(&scratch.0, options);
    store.prepare(&manifest);
    let (code, text) = failure(outcome(&mut store));
    assert_eq!(code, ErrorCode::Io);
    assert!(text.contains("an earlier attempt"), "{text}");
    stuck.ended();
}

/// Delivers a manifest, or as much as is asked for until the disk stands still; returns the time of
/// the longest call.
fn longest_call(
    store: &mut FileStore,
    manifest: &Arc<Manifest>,
    bytes: &[u8],
    is_dropped: bool,
) -> Duration {
    let mut longest = Duration::ZERO;
    let mut timed = |store: &mut FileStore, call: &mut dyn FnMut(&mut FileStore)| {
        let began = Instant::now();
        call(store);
        longest = longest.max(began.elapsed());
    };
    let began = Instant::now();
    let mut asked = 0;
    timed(store, &mut |store| store.prepare(manifest));
    loop {
        let mut event = None;
        timed(store, &mut |store| event = store.poll_event());
        match event {
            Some(StoreEvent::Prepared { .. }) => {
                for (nth, block) in bytes.chunks(10_000).enumerate() {
                    let mut is_taken = false;
                    timed(store, &mut |store| {
                        is_taken = store.write(nth as u64 * 10_000, block);
                    });
                    assert!(is_taken, "one extent has room for all");
                }
                for slab in 0..manifest.slab_count() {
                    timed(store, &mut |store| assert!(store.hash_slab(slab)));
                }
                asked = manifest.slab_count();
            }
            Some(StoreEvent::Hashed { .. }) => {
                asked -= 1;
                if asked == 0 {
                    timed(store, &mut |store| store.commit(&[]));
                }
            }
            Some(StoreEvent::Committed) => return longest,
            Some(other) => panic!("{other:?}"),
            None => thread::sleep(Duration::from_millis(1)),
        }
        if is_dropped && began.elapsed() > STAND_STILL / 4 {
            return longest;
        }
    }
}

fn faulty(directory: &Path, fault: DiskFault) -> FileStore {
    let options = StoreOptions {
        fault: Some(fault),
        ..StoreOptions::default()
    };
    FileStore::new(directory, options)
}

/// Delivers with one fault. Returns false when the transfer made too few calls to meet the fault.
fn fails(fault: DiskFault, expected: ErrorCode) -> bool {
    let scratch = Scratch::fast();
    let manifest = manifest(vec![
        Entry::directory("d"),
        Entry::file("d/large", (1 << 20) + 70_000),
        Entry::file("d/small", 900),
        Entry::file("empty", 0),
        Entry::symlink("link", "empty"),
        Entry::file("middle", 100_000),
    ]);
    let mut store = faulty(&scratch.0, fault);
    store.prepare(&manifest);
    let last = match outcome(&mut store) {
        StoreEvent::Prepared { mut held } => {
            // Out of order, so that the bytes around both ends of this piece are read back.
            write(&mut store, 500_000, &content(&manifest)[500_000..600_000]);
            held.insert(500_000..600_000, |_| {}).unwrap();
            finish(store, &manifest, held, 60_000).0
        }
        failed => {
            drop(store);
            assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0, "{fault:?}");
            failed
        }
    };
    let is_met = last != StoreEvent::Committed;
    if is_met {
        let (code, text) = failure(last);
        assert_eq!(code, expected, "{fault:?}: {text}");
        let names = text.contains(&scratch.0.display().to_string());
        assert!(names && text.contains("; "), "{text}");
        assert_nothing_half_written(&scratch.0, &manifest);
        let (store, held) = prepared(&scratch.0, Existing::Refuse, &manifest);
        assert_eq!(
            finish(store, &manifest, held, 60_000).0,
            StoreEvent::Committed,
            "{fault:?}"
        );
    }
    assert_whole(&scratch.0, &manifest);
    assert!(!scratch.path(STAGING).exists(), "{fault:?}");
    is_met
}
