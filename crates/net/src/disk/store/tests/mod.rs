//! Stores on a real disk: what arrives, what is refused, and that nothing leaves the directory.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use delivery::{Entry, ManifestLimits, OwnerNames, RangeSet, hash_bytes};
use sys::file::Directory;
use wire::object::Mtime;

use super::*;
use crate::Tree;

mod attributes;

mod crash;

mod fault;

mod links;

mod modes;

mod owner;

mod private;

mod resume;

mod room;

mod sparse;

mod surplus;

mod withdrawn;

/// A directory of its own for each test, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        Self::try_below(&std::env::temp_dir()).unwrap()
    }

    /// Makes a directory in memory where that is possible, for tests that do something hundreds of
    /// times. A killed process leaves there what it would leave on a disk.
    fn fast() -> Self {
        let memory = Path::new("/dev/shm");
        match Self::try_below(memory) {
            Ok(scratch) => scratch,
            Err(_) => Self::new(),
        }
    }

    fn try_below(place: &Path) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("towline-store-{}-{number}", std::process::id());
        let path = place.join(name);
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.join(below)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn open(directory: &Path, existing: Existing) -> FileStore {
    FileStore::new(directory, existing)
}

fn manifest(entries: Vec<Entry>) -> Arc<Manifest> {
    Arc::new(Manifest::build([1; 16], entries, &ManifestLimits::default()).unwrap())
}

fn content(manifest: &Manifest) -> Vec<u8> {
    (0..manifest.content_bytes())
        .map(|at| (at % 251) as u8 ^ (at >> 9) as u8)
        .collect()
}

/// Waits for the next event, and returns it.
fn outcome(store: &mut FileStore) -> StoreEvent {
    let began = Instant::now();
    loop {
        if let Some(event) = store.poll_event() {
            return event;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "no outcome");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Delivers all of a manifest in blocks of `step` bytes, every third block late. Returns the last
/// outcome.
fn deliver(store: &mut FileStore, manifest: &Arc<Manifest>, step: usize) -> StoreEvent {
    store.prepare(manifest);
    match outcome(store) {
        StoreEvent::Prepared { .. } => {}
        failed => return failed,
    }
    let bytes = content(manifest);
    let blocks: Vec<_> = bytes.chunks(step).enumerate().collect();
    let (late, prompt): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|(n, _)| n % 3 == 2);
    for (number, block) in prompt.into_iter().chain(late) {
        assert!(store.write((number * step) as u64, block));
    }
    for slab in 0..manifest.slab_count() {
        assert!(store.hash_slab(slab));
        let place = manifest.slab(slab);
        let range = usize::try_from(place.start).unwrap()..;
        let mut hasher = place.hasher();
        hasher.update(&bytes[range][..place.len as usize]);
        let hash = hasher.finish();
        assert_eq!(outcome(store), StoreEvent::Hashed { slab, hash });
    }
    store.commit(&[]);
    outcome(store)
}

/// Makes a store that has prepared a manifest. Returns the store and the ranges that are held
/// already.
fn prepared(
    directory: &Path,
    existing: Existing,
    manifest: &Arc<Manifest>,
) -> (FileStore, RangeSet) {
    let mut store = open(directory, existing);
    store.prepare(manifest);
    match outcome(&mut store) {
        StoreEvent::Prepared { held } => (store, held),
        other => panic!("it does not prepare: {other:?}"),
    }
}

/// Writes, and tries again while the queue is full.
fn write(store: &mut FileStore, offset: u64, bytes: &[u8]) {
    while !store.write(offset, bytes) {
        assert!(store.is_open, "it takes nothing any more");
        thread::yield_now();
    }
}

/// Does what a receiver does: sends what is lacking, compares every slab, sends the wrong ones
/// again, commits. Returns the last outcome, and the number of bytes sent.
fn finish(
    mut store: FileStore,
    manifest: &Manifest,
    mut held: RangeSet,
    step: u64,
) -> (StoreEvent, u64) {
    let bytes = content(manifest);
    let (mut sent, mut good) = (0, 0);
    let mut open: VecDeque<u32> = (0..manifest.slab_count()).collect();
    while good < manifest.slab_count() {
        for gap in held.missing(manifest.content_bytes()).collect::<Vec<_>>() {
            let mut at = gap.start;
            while at < gap.end {
                let end = gap.end.min(at + step);
                let block = &bytes[usize::try_from(at).unwrap()..usize::try_from(end).unwrap()];
                while !store.write(at, block) {
                    if let Some(event) = store.poll_event() {
                        return (event, sent);
                    }
                    thread::yield_now();
                }
                sent += end - at;
                at = end;
            }
            held.insert(gap, |_| {}).unwrap();
        }
        while open.front().is_some_and(|&slab| store.hash_slab(slab)) {
            open.pop_front();
        }
        let StoreEvent::Hashed { slab, hash } = (match outcome(&mut store) {
            sealed @ StoreEvent::Hashed { .. } => sealed,
            other => return (other, sent),
        }) else {
            unreachable!("only that goes on");
        };
        let place = manifest.slab(slab);
        let mut hasher = place.hasher();
        hasher.update(&bytes[usize::try_from(place.start).unwrap()..][..place.len as usize]);
        if hasher.finish() == hash {
            good += 1;
        } else {
            held.remove(place.range()).unwrap();
            open.push_back(slab);
        }
    }
    store.commit(&[]);
    (outcome(&mut store), sent)
}

fn staging_of(scratch: &Scratch, manifest: &Manifest) -> PathBuf {
    scratch.path(STAGING).join(manifest.id().to_string())
}

/// Asserts that every file is in place with its content.
fn assert_whole(directory: &Path, manifest: &Manifest) {
    assert_eq!(count_whole(directory, manifest), manifest.files().len());
}

/// Asserts that every file is either in place with its content or absent.
fn assert_nothing_half_written(directory: &Path, manifest: &Manifest) {
    count_whole(directory, manifest);
}

fn count_whole(directory: &Path, manifest: &Manifest) -> usize {
    let bytes = content(manifest);
    let mut whole = 0;
    for file in manifest.files() {
        let path = directory.join(OsStr::from_bytes(manifest.path_of(file)));
        let Ok(found) = fs::read(&path) else {
            continue;
        };
        let start = usize::try_from(file.start).unwrap();
        let expected = &bytes[start..start + usize::try_from(file.size_bytes).unwrap()];
        assert!(found == expected, "{} is not whole", path.display());
        whole += 1;
    }
    whole
}

fn failure(event: StoreEvent) -> (ErrorCode, String) {
    match event {
        StoreEvent::Failed { code, text } => (code, text),
        other => panic!("it did not fail: {other:?}"),
    }
}

fn tree() -> Vec<Entry> {
    let mut program = Entry::file("d/run", 10);
    program.mode = 0o6755;
    program.mtime = Mtime {
        seconds: 1_000_000_000,
        nanoseconds: 123_456_789,
    };
    let mut directory = Entry::directory("d");
    directory.mode = 0o500;
    directory.mtime = Mtime {
        seconds: 999_999_999,
        nanoseconds: 0,
    };
    let small = (0..30).map(|n| Entry::file(&format!("d/{n:02}"), n * 11));
    let fixed = [
        directory,
        program,
        Entry::symlink("d/to", "run"),
        Entry::file("large", (1 << 20) + 77),
    ];
    fixed.into_iter().chain(small).collect()
}

#[test]
fn a_tree_is_put_in_place_with_its_attributes() {
    let scratch = Scratch::new();
    for (name, step) in [("a", 1000), ("b", 70_000)] {
        let target = scratch.path(name);
        let mut store = open(&target, Existing::Refuse);
        let manifest = manifest(tree());
        assert_eq!(deliver(&mut store, &manifest, step), StoreEvent::Committed);
        let bytes = content(&manifest);
        for file in manifest.files() {
            let path = target.join(OsStr::from_bytes(manifest.path_of(file)));
            let start = usize::try_from(file.start).unwrap();
            let expected = &bytes[start..start + usize::try_from(file.size_bytes).unwrap()];
            assert!(fs::read(&path).unwrap() == expected, "{}", path.display());
        }
        let program = fs::metadata(target.join("d/run")).unwrap();
        assert_eq!(
            program.permissions().mode() & 0o7777,
            0o755,
            "no set-user-id"
        );
        assert_eq!(
            (program.mtime(), program.mtime_nsec()),
            (1_000_000_000, 123_456_789)
        );
        let directory = fs::metadata(target.join("d")).unwrap();
        assert_eq!(directory.permissions().mode() & 0o7777, 0o500);
        assert_eq!(directory.mtime(), 999_999_999);
        assert_eq!(
            fs::read_link(target.join("d/to")).unwrap(),
            Path::new("run")
        );
        drop(store);
        assert!(!target.join(STAGING).exists());
        fs::set_permissions(target.join("d"), fs::Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn nothing_has_its_final_name_before_the_commit_and_nothing_stays_after_giving_up() {
    let scratch = Scratch::new();
    let options = StoreOptions {
        keep_staged: false,
        ..StoreOptions::default()
    };
    let mut store = FileStore::new(&scratch.0, options);
    let manifest = manifest(vec![Entry::file("f", 3000)]);
    store.prepare(&manifest);
    outcome(&mut store);
    assert!(store.write(0, &content(&manifest)));
    assert!(!scratch.path("f").exists());
    assert!(scratch.path(STAGING).exists());
    store.abandon();
    assert!(!store.write(0, &[1]), "nothing is taken any more");
    drop(store);
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
}

#[test]
fn what_exists_is_kept_unless_it_may_be_replaced() {
    let scratch = Scratch::new();
    fs::write(scratch.path("f"), "mine").unwrap();
    let manifest = manifest(vec![Entry::file("f", 3)]);
    let mut store = open(&scratch.0, Existing::Refuse);
    let (code, text) = failure(deliver(&mut store, &manifest, 9));
    assert_eq!(code, ErrorCode::Exists);
    assert!(text.contains("have the receiver replace"), "{text}");
    assert_eq!(fs::read(scratch.path("f")).unwrap(), b"mine");
    let mut store = open(&scratch.0, Existing::Replace);
    assert_eq!(deliver(&mut store, &manifest, 9), StoreEvent::Committed);
    assert_eq!(fs::read(scratch.path("f")).unwrap(), content(&manifest));
}

#[test]
fn a_name_in_a_reason_commands_no_terminal() {
    let scratch = Scratch::new();
    let manifest = manifest(vec![Entry::file("a\u{1b}[2Jb", 3)]);
    fs::write(scratch.path("a\u{1b}[2Jb"), "own").unwrap();
    let mut store = open(&scratch.0, Existing::Refuse);
    let (code, text) = failure(deliver(&mut store, &manifest, 1));
    assert_eq!(code, ErrorCode::Exists);
    assert!(text.contains("a\\u{1b}[2Jb"), "{text:?}");
}

#[test]
fn a_name_that_is_taken_while_content_comes_in_is_not_replaced() {
    let scratch = Scratch::new();
    let mut store = open(&scratch.0, Existing::Refuse);
    let manifest = manifest(vec![Entry::file("f", 3)]);
    store.prepare(&manifest);
    outcome(&mut store);
    assert!(store.write(0, &content(&manifest)));
    fs::write(scratch.path("f"), "mine").unwrap();
    store.commit(&[]);
    assert_eq!(failure(outcome(&mut store)).0, ErrorCode::Exists);
    assert_eq!(fs::read(scratch.path("f")).unwrap(), b"mine");
}

#[test]
fn kinds_that_do_not_fit_are_refused_early_even_when_replacing() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("d")).unwrap();
    fs::write(scratch.path("f"), "").unwrap();
    let as_file = manifest(vec![Entry::file("d", 3)]);
    let as_directory = manifest(vec![Entry::directory("f"), Entry::file("f/x", 1)]);
    for manifest in [as_file, as_directory] {
        let mut store = open(&scratch.0, Existing::Replace);
        store.prepare(&manifest);
        assert_eq!(failure(outcome(&mut store)).0, ErrorCode::Io);
    }
}

#[test]
fn links_in_the_directory_are_never_followed() {
    let scratch = Scratch::new();
    let (inside, outside) = (scratch.path("in"), scratch.path("out"));
    fs::create_dir(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("canary"), "alive").unwrap();
    symlink(&outside, inside.join("d")).unwrap();
    symlink(outside.join("canary"), inside.join("f")).unwrap();
    symlink(&outside, inside.join("late")).unwrap();
    let through = manifest(vec![Entry::directory("d"), Entry::file("d/canary", 3)]);
    for existing in [Existing::Refuse, Existing::Replace] {
        let mut store = open(&inside, existing);
        failure(deliver(&mut store, &through, 9));
    }
    // A link in the place of a file is itself replaced, not the file that it leads to.
    let mut store = open(&inside, Existing::Replace);
    let over = manifest(vec![Entry::file("f", 3)]);
    assert_eq!(deliver(&mut store, &over, 9), StoreEvent::Committed);
    assert!(fs::symlink_metadata(inside.join("f")).unwrap().is_file());
    assert_eq!(fs::read(outside.join("canary")).unwrap(), b"alive");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn a_link_put_on_the_way_during_the_transfer_is_not_followed() {
    let scratch = Scratch::new();
    let (inside, outside) = (scratch.path("in"), scratch.path("out"));
    fs::create_dir(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    let mut store = open(&inside, Existing::Replace);
    let manifest = manifest(vec![Entry::directory("d"), Entry::file("d/f", 3)]);
    store.prepare(&manifest);
    outcome(&mut store);
    assert!(store.write(0, &content(&manifest)));
    symlink(&outside, inside.join("d")).unwrap();
    store.commit(&[]);
    failure(outcome(&mut store));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn a_staging_directory_that_is_a_link_is_refused() {
    let scratch = Scratch::new();
    let (inside, outside) = (scratch.path("in"), scratch.path("out"));
    fs::create_dir(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink(&outside, inside.join(STAGING)).unwrap();
    let mut store = open(&inside, Existing::Replace);
    store.prepare(&manifest(vec![Entry::file("f", 3)]));
    failure(outcome(&mut store));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn a_plan_larger_than_the_disk_is_refused_before_anything_is_written() {
    let scratch = Scratch::new();
    let mut store = open(&scratch.0, Existing::Refuse);
    let limits = ManifestLimits::default();
    let huge = Manifest::build([1; 16], vec![Entry::file("f", 1 << 50)], &limits).unwrap();
    store.prepare(&Arc::new(huge));
    let (code, text) = failure(outcome(&mut store));
    assert_eq!(code, ErrorCode::DiskFull);
    assert!(text.contains("make room"), "{text}");
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
}

#[test]
fn a_second_receiver_of_a_plan_is_refused_and_leaves_the_first_alone() {
    let scratch = Scratch::new();
    let manifest = manifest(vec![Entry::file("f", 3000)]);
    let mut first = open(&scratch.0, Existing::Replace);
    first.prepare(&manifest);
    outcome(&mut first);
    assert!(first.write(0, &content(&manifest)));
    let mut second = open(&scratch.0, Existing::Replace);
    second.prepare(&manifest);
    let (code, text) = failure(outcome(&mut second));
    assert_eq!(code, ErrorCode::Io);
    assert!(text.contains("another receiver takes this"), "{text}");
    assert!(!text.contains("replace"), "{text}");
    drop(second);
    first.commit(&[]);
    assert_eq!(outcome(&mut first), StoreEvent::Committed);
    assert_eq!(fs::read(scratch.path("f")).unwrap(), content(&manifest));
    drop(first);
    assert!(!scratch.path(STAGING).exists());
    let mut third = open(&scratch.0, Existing::Replace);
    assert_eq!(deliver(&mut third, &manifest, 9), StoreEvent::Committed);
    drop(third);
    assert!(!scratch.path(STAGING).exists());
}

#[test]
fn what_a_killed_receiver_left_hinders_nobody() {
    let scratch = Scratch::new();
    let manifest = manifest(vec![Entry::file("f", 30)]);
    let staged = scratch.path(STAGING).join(manifest.id().to_string());
    fs::create_dir_all(&staged).unwrap();
    fs::write(staged.join("0"), "old").unwrap();
    fs::write(staged.with_extension("lock"), "").unwrap();
    let mut store = open(&scratch.0, Existing::Refuse);
    assert_eq!(deliver(&mut store, &manifest, 9), StoreEvent::Committed);
    assert_eq!(fs::read(scratch.path("f")).unwrap(), content(&manifest));
    drop(store);
    assert!(!scratch.path(STAGING).exists());
}

#[test]
fn a_failed_commit_keeps_what_is_staged_until_the_name_is_free() {
    let scratch = Scratch::new();
    let mut store = open(&scratch.0, Existing::Refuse);
    let manifest = manifest(vec![Entry::file("f", 3)]);
    store.prepare(&manifest);
    outcome(&mut store);
    assert!(store.write(0, &content(&manifest)));
    fs::write(scratch.path("f"), "mine").unwrap();
    store.commit(&[]);
    failure(outcome(&mut store));
    drop(store);
    fs::remove_file(scratch.path("f")).unwrap();
    let mut store = open(&scratch.0, Existing::Refuse);
    store.prepare(&manifest);
    let StoreEvent::Prepared { held } = outcome(&mut store) else {
        panic!("it does not prepare");
    };
    assert_eq!(held.bytes(), 3);
    store.commit(&[]);
    assert_eq!(outcome(&mut store), StoreEvent::Committed);
    assert_eq!(fs::read(scratch.path("f")).unwrap(), content(&manifest));
}

#[test]
fn a_tree_that_was_walked_arrives_the_same() {
    let scratch = Scratch::new();
    let source = scratch.path("source");
    fs::create_dir_all(source.join("d/e")).unwrap();
    fs::write(source.join("d/f"), vec![7; 300_000]).unwrap();
    fs::write(source.join("none"), "").unwrap();
    symlink("../none", source.join("d/inside")).unwrap();
    symlink("/etc/passwd", source.join("d/outside")).unwrap();
    symlink("../../../x", source.join("d/above")).unwrap();
    let Tree {
        manifest,
        mut content,
        notes,
        ..
    } = Tree::read(&[source]).unwrap();
    let paths: Vec<_> = manifest
        .entries()
        .map(|e| e.path.escape_ascii().to_string())
        .collect();
    let expected = [
        "source",
        "source/d",
        "source/d/e",
        "source/d/f",
        "source/d/inside",
    ];
    assert_eq!(paths[..5], expected);
    assert_eq!(paths[5..], ["source/none"]);
    assert_eq!(notes.len(), 2, "{notes:?}");
    let mut bytes = vec![0; 300_000];
    content.read_now(&manifest, 0, &mut bytes).unwrap();
    assert_eq!(hash_bytes(&bytes), hash_bytes(&[7; 300_000]));
    fs::write(scratch.path("source/d/f"), vec![8; 300_000]).unwrap();
    let mut content = Tree::read(&[scratch.path("source")]).unwrap().content;
    let changed = content.read_now(&manifest, 0, &mut bytes).unwrap_err();
    assert_eq!(changed.code, ErrorCode::SourceChanged);
}

#[test]
fn a_file_changed_in_place_while_it_is_sent_ends_the_transfer() {
    let scratch = Scratch::new();
    let path = scratch.path("f");
    fs::write(&path, vec![7; 3000]).unwrap();
    let Tree {
        manifest,
        mut content,
        ..
    } = Tree::read(std::slice::from_ref(&path)).unwrap();
    let mut bytes = vec![0; 1000];
    content.read_now(&manifest, 0, &mut bytes).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[8; 1000], 1000).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let last = content.read_now(&manifest, 2000, &mut bytes).unwrap_err();
    assert_eq!(last.code, ErrorCode::SourceChanged);
}

#[test]
fn what_is_no_file_any_more_is_refused_and_holds_nothing_up() {
    let scratch = Scratch::new();
    let path = scratch.path("f");
    fs::write(&path, "content").unwrap();
    let read = Tree::read(std::slice::from_ref(&path)).unwrap();
    let (manifest, mut content) = (read.manifest, read.content);
    let mut bytes = vec![0; 7];
    fs::rename(&path, scratch.path("moved")).unwrap();
    symlink("moved", &path).unwrap();
    let link = content.read_now(&manifest, 0, &mut bytes).unwrap_err();
    assert_eq!(link.code, ErrorCode::SourceChanged, "{link:?}");
    fs::remove_file(&path).unwrap();
    match std::process::Command::new("mkfifo").arg(&path).status() {
        Ok(status) if status.success() => {}
        _ => return println!("skipped: no mkfifo here"),
    }
    let pipe = content.read_now(&manifest, 0, &mut bytes).unwrap_err();
    assert_eq!(pipe.code, ErrorCode::SourceChanged, "{pipe:?}");
}
