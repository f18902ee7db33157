//! Runs of zeros take no room on the disk, and the files' content stays the same.

use wire::object::ManifestHeader;

use super::*;

/// The bytes that are put at some positions of the content, which is zeros elsewhere.
const DATA: &[u8] = &[7; 5000];

fn sparse(flags: u16, entries: Vec<Entry>) -> Arc<Manifest> {
    let limits = ManifestLimits::default();
    Arc::new(
        Manifest::build_with(flags, &OwnerNames::default(), [1; 16], entries, &limits).unwrap(),
    )
}

/// Writes content that is zeros except for [`DATA`] at the positions `at`, in blocks of `step`
/// bytes, and commits.
fn receive(mut store: FileStore, manifest: &Arc<Manifest>, at: &[usize], step: usize) {
    store.prepare(manifest);
    let prepared = outcome(&mut store);
    assert!(
        matches!(prepared, StoreEvent::Prepared { .. }),
        "{prepared:?}"
    );
    let bytes = holey(manifest, at);
    for (number, block) in bytes.chunks(step).enumerate() {
        write(&mut store, (number * step) as u64, block);
    }
    hash_all(&mut store, manifest, &bytes);
    store.commit(&[]);
    assert_eq!(outcome(&mut store), StoreEvent::Committed);
}

fn holey(manifest: &Manifest, at: &[usize]) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(manifest.content_bytes()).unwrap()];
    for &at in at {
        bytes[at..at + DATA.len()].copy_from_slice(DATA);
    }
    bytes
}

/// Asserts that the store computes the hashes of `bytes`.
fn hash_all(store: &mut FileStore, manifest: &Manifest, bytes: &[u8]) {
    for slab in 0..manifest.slab_count() {
        let place = manifest.slab(slab);
        let start = usize::try_from(place.start).unwrap();
        let mut hasher = place.hasher();
        hasher.update(&bytes[start..start + place.len as usize]);
        assert!(store.hash_slab(slab));
        let hash = hasher.finish();
        assert_eq!(outcome(store), StoreEvent::Hashed { slab, hash });
    }
}

/// Bytes that a file takes on the disk.
fn room(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// Returns false where the filesystem of the tests has no holes: then these tests can show nothing.
fn has_holes(scratch: &Scratch) -> bool {
    let file = fs::File::create(scratch.path("probe")).unwrap();
    file.set_len(1 << 20).unwrap();
    let has_holes = room(&scratch.path("probe")) == 0;
    fs::remove_file(scratch.path("probe")).unwrap();
    if !has_holes {
        println!("skipped: no holes on this filesystem");
    }
    has_holes
}

#[test]
fn zeros_take_no_room_when_either_end_asks_for_it_and_all_of_it_otherwise() {
    let scratch = Scratch::new();
    if !has_holes(&scratch) {
        return;
    }
    let mib = 1 << 20;
    let entries = || {
        vec![
            Entry::file("large", 8 << 20),
            Entry::file("small", 60_000),
            Entry::file("tail", 40_000),
        ]
    };
    // Positions in the large file, and in the last one.
    let at = [2 * mib + 100, 5 * mib - 1, 8 * mib + 60_000 + 3];
    for (name, flags, asks, step) in [
        ("both", ManifestHeader::SPARSE, true, 1400),
        ("sender", ManifestHeader::SPARSE, false, 70_000),
        ("receiver", 0, true, 1400),
        ("neither", 0, false, 70_000),
    ] {
        let target = scratch.path(name);
        let options = StoreOptions {
            sparse: asks,
            ..StoreOptions::default()
        };
        let manifest = sparse(flags, entries());
        let store = FileStore::new(&target, options);
        receive(store, &manifest, &at, step);
        let bytes = holey(&manifest, &at);
        let found = ["large", "small", "tail"].map(|name| fs::read(target.join(name)).unwrap());
        assert!(found.concat() == bytes, "{name}");
        let rooms = ["large", "small", "tail"].map(|name| room(&target.join(name)));
        if name == "neither" {
            assert!(rooms[0] >= 8 << 20 && rooms[1] >= 60_000, "{rooms:?}");
        } else {
            // Of 8 MiB no more than the data and the pieces around it.
            assert!(rooms[0] <= 128 << 10, "{name}: {rooms:?}");
            assert_eq!(rooms[1], 0, "{name}");
            assert!(rooms[2] <= 16 << 10, "{name}: {rooms:?}");
        }
    }
}

#[test]
fn zeros_over_what_was_wrong_are_zeros() {
    let scratch = Scratch::new();
    let manifest = sparse(ManifestHeader::SPARSE, vec![Entry::file("f", 3 << 20)]);
    let (mut store, _) = prepared(&scratch.0, Existing::Refuse, &manifest);
    let bytes = holey(&manifest, &[100]);
    // A repair with the wrong bytes, then the right ones, in one extent and in two.
    write(&mut store, 0, &vec![9; 300_000]);
    write(&mut store, 0, &bytes[..200_000]);
    write(&mut store, 200_000, &bytes[200_000..]);
    hash_all(&mut store, &manifest, &bytes);
    store.commit(&[]);
    assert_eq!(outcome(&mut store), StoreEvent::Committed);
    assert!(fs::read(scratch.path("f")).unwrap() == bytes);
}

#[test]
fn an_attempt_that_goes_on_and_a_file_that_is_put_right_keep_their_holes() {
    let scratch = Scratch::new();
    if !has_holes(&scratch) {
        return;
    }
    let mib = 1 << 20;
    let manifest = sparse(ManifestHeader::SPARSE, vec![Entry::file("f", 8 << 20)]);
    let bytes = holey(&manifest, &[100, 6 * mib]);
    let (mut store, _) = prepared(&scratch.0, Existing::Refuse, &manifest);
    write(&mut store, 0, &bytes[..5 * mib]);
    drop(store);
    let (mut store, held) = prepared(&scratch.0, Existing::Refuse, &manifest);
    assert_eq!(held.bytes(), 5 << 20);
    write(&mut store, 5 << 20, &bytes[5 * mib..]);
    hash_all(&mut store, &manifest, &bytes);
    store.commit(&[]);
    assert_eq!(outcome(&mut store), StoreEvent::Committed);
    drop(store);
    assert!(room(&scratch.path("f")) <= 64 << 10);

    // The file becomes wrong in one place, and keeps its time.
    let file = fs::File::options()
        .write(true)
        .open(scratch.path("f"))
        .unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[1; 9], 3 << 20).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let (mut store, held) = prepared(&scratch.0, Existing::SkipUnchanged, &manifest);
    assert_eq!(held.bytes(), 8 << 20);
    write(&mut store, 3 << 20, &bytes[3 * mib..4 * mib]);
    hash_all(&mut store, &manifest, &bytes);
    store.commit(&[]);
    assert_eq!(outcome(&mut store), StoreEvent::Committed);
    assert!(fs::read(scratch.path("f")).unwrap() == bytes);
    assert!(room(&scratch.path("f")) <= 64 << 10);
}

#[test]
fn a_file_larger_than_the_disk_has_room_for_its_data() {
    let scratch = Scratch::new();
    if !has_holes(&scratch) {
        return;
    }
    let space = Directory::open(&scratch.0).unwrap().space().unwrap();
    let size = (space.available_bytes * 2).clamp(1 << 30, 1 << 42);
    let file = vec![Entry::file("f", size)];
    let options = || StoreOptions {
        sparse: true,
        ..StoreOptions::default()
    };
    let mut store = FileStore::new(&scratch.0, options());
    store.prepare(&sparse(0, file));
    let event = outcome(&mut store);
    assert!(matches!(event, StoreEvent::Prepared { .. }), "{event:?}");
}
