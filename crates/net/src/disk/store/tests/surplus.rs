//! Files that the receiver has and its sender does not have, with links and directories that change
//! places.

use std::sync::atomic::AtomicBool;

use delivery::Surplus;
use sys::file::{Kind, Taken};
use wire::object::ManifestHeader;

use super::{
    super::surplus::{Delete, sweep},
    *,
};

fn flagged(flags: u16, entries: Vec<Entry>) -> Arc<Manifest> {
    let limits = ManifestLimits::default();
    Arc::new(
        Manifest::build_with(flags, &OwnerNames::default(), [1; 16], entries, &limits).unwrap(),
    )
}

fn deleting(scratch: &Scratch, delete: Delete) -> FileStore {
    let options = StoreOptions {
        existing: Existing::Replace,
        delete,
        ..StoreOptions::default()
    };
    FileStore::new(&scratch.path("in"), options)
}

/// Delivers a manifest. Returns the surplus that was found, in the order of the names.
fn found(store: &mut FileStore, manifest: &Arc<Manifest>) -> Vec<Surplus> {
    let mut found = Vec::new();
    let mut event = deliver(store, manifest, 9);
    if let StoreEvent::Surplus(surplus) = event {
        found = surplus;
        event = outcome(store);
    }
    assert_eq!(event, StoreEvent::Committed);
    found.sort_by_key(|surplus| match surplus {
        Surplus::Deleted { path } | Surplus::Listed { path } | Surplus::Kept { path, .. } => {
            path.clone()
        }
        other => panic!("{other:?}"),
    });
    found
}

fn deleted(path: &str) -> Surplus {
    let path = path.into();
    Surplus::Deleted { path }
}

/// A tree at the receiver with more than its sender has, and a directory beside it.
fn crowded(scratch: &Scratch) {
    fs::create_dir_all(scratch.path("in/d/more/deep")).unwrap();
    fs::create_dir_all(scratch.path("in/other")).unwrap();
    fs::create_dir_all(scratch.path("out/kept")).unwrap();
    for path in [
        "in/d/x",
        "in/d/more/deep/f",
        "in/beside",
        "in/other/f",
        "out/kept/f",
    ] {
        fs::write(scratch.path(path), "old").unwrap();
    }
    symlink(scratch.path("out"), scratch.path("in/d/link")).unwrap();
    symlink(
        scratch.path("out/kept"),
        scratch.path("in/d/more/deep/link"),
    )
    .unwrap();
}

fn tree() -> Vec<Entry> {
    vec![
        Entry::directory("d"),
        Entry::directory("d/e"),
        Entry::file("d/f", 300),
    ]
}

#[test]
fn what_the_sender_has_not_goes_and_nothing_outside_the_tree_does() {
    let scratch = Scratch::new();
    crowded(&scratch);
    let manifest = manifest(tree());
    let found = found(&mut deleting(&scratch, Delete::Surplus), &manifest);
    assert_eq!(
        found,
        [deleted("d/link"), deleted("d/more"), deleted("d/x")]
    );
    assert!(scratch.path("in/beside").exists() && scratch.path("in/other/f").exists());
    assert!(scratch.path("out/kept/f").exists());
    let left = fs::read_dir(scratch.path("in/d")).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["e", "f"]);
    // Deleting something in a directory changes its time.
    let modified = fs::metadata(scratch.path("in/d")).unwrap().mtime();
    assert_eq!(modified, manifest.entry(0).mtime.seconds);
}

#[test]
fn a_long_list_comes_whole_and_at_once() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("in/d")).unwrap();
    let count = 5000;
    for n in 0..count {
        fs::write(scratch.path(&format!("in/d/{n}")), "").unwrap();
    }
    let mut store = deleting(&scratch, Delete::List);
    let StoreEvent::Surplus(listed) = deliver(&mut store, &manifest(tree()), 9) else {
        panic!("the first event is no list");
    };
    assert_eq!(listed.len(), count);
    assert_eq!(outcome(&mut store), StoreEvent::Committed);
}

#[test]
fn of_the_contents_of_a_directory_the_receivers_own_is_the_tree() {
    let scratch = Scratch::new();
    crowded(&scratch);
    let manifest = flagged(ManifestHeader::CONTENTS, tree());
    let mut store = deleting(&scratch, Delete::Surplus);
    let found = found(&mut store, &manifest);
    let names = ["beside", "d/link", "d/more", "d/x", "other"];
    assert_eq!(found, names.map(deleted));
}

#[test]
fn a_list_deletes_nothing_and_a_sender_that_has_not_told_all_neither() {
    let scratch = Scratch::new();
    crowded(&scratch);
    let manifest = manifest(tree());
    let listed = found(&mut deleting(&scratch, Delete::List), &manifest);
    let name = |path: &str| Surplus::Listed { path: path.into() };
    assert_eq!(listed, ["d/link", "d/more", "d/x"].map(name));
    assert_eq!(
        found(&mut deleting(&scratch, Delete::Nothing), &manifest),
        []
    );
    for (flag, delete, why) in [
        (
            ManifestHeader::INCOMPLETE,
            Delete::Surplus,
            "could not read",
        ),
        (
            ManifestHeader::INCOMPLETE,
            Delete::Excluded,
            "could not read",
        ),
        (ManifestHeader::SELECTED, Delete::Surplus, "by its rules"),
        (ManifestHeader::SELECTED, Delete::List, "by its rules"),
    ] {
        let manifest = flagged(flag, tree());
        let found = found(&mut deleting(&scratch, delete), &manifest);
        let [Surplus::Kept { path, why: said }] = &found[..] else {
            panic!("{found:?}");
        };
        assert!(path.is_empty() && said.contains(why), "{said}");
        assert!(scratch.path("in/d/more/deep/f").exists());
    }
    let manifest = flagged(ManifestHeader::SELECTED, tree());
    let found = found(&mut deleting(&scratch, Delete::Excluded), &manifest);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(!scratch.path("in/d/more").exists());
}

#[test]
fn what_is_withdrawn_is_the_senders_all_the_same() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("in/d")).unwrap();
    fs::write(scratch.path("in/d/f"), "older").unwrap();
    let mut store = deleting(&scratch, Delete::Surplus);
    store.prepare(&manifest(tree()));
    assert!(matches!(outcome(&mut store), StoreEvent::Prepared { .. }));
    store.commit(&[0]);
    assert_eq!(outcome(&mut store), StoreEvent::Committed);
    assert_eq!(fs::read(scratch.path("in/d/f")).unwrap(), b"older");
}

#[test]
fn a_directory_that_has_become_a_link_is_not_followed() {
    let scratch = Scratch::new();
    crowded(&scratch);
    fs::remove_dir_all(scratch.path("in/d")).unwrap();
    symlink(scratch.path("out"), scratch.path("in/d")).unwrap();
    let directory = Directory::open(&scratch.path("in")).unwrap();
    let found = sweep(
        (&directory, &Disk::new(None, Modes::Umask)),
        &manifest(tree()),
        Delete::Surplus,
    );
    assert!(
        found
            .iter()
            .all(|surplus| matches!(surplus, Surplus::Kept { .. }))
            && !found.is_empty(),
        "{found:?}"
    );
    assert!(scratch.path("out/kept/f").exists());
}

#[test]
fn links_and_directories_that_change_places_meanwhile_lead_nowhere() {
    let scratch = Scratch::fast();
    crowded(&scratch);
    let directory = Directory::open(&scratch.path("in")).unwrap();
    let manifest = manifest(vec![Entry::directory("d"), Entry::directory("d/e")]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // The two names change places for as long as the other thread deletes.
        scope.spawn(|| {
            let inside = Directory::open(&scratch.path("in")).unwrap();
            let swap = |from: &str, to: &str| {
                let (from, to) = (Path::new(from), Path::new(to));
                drop(inside.rename(from, &inside, to, Taken::Replace));
            };
            while !is_over.load(Ordering::Relaxed) {
                drop(fs::create_dir_all(scratch.path("in/d/more/deep")));
                drop(fs::create_dir_all(scratch.path("in/d/e/below")));
                drop(symlink(scratch.path("out"), scratch.path("in/swapped")));
                swap("d/more/deep", "other/deep");
                swap("swapped", "d/more/deep");
                swap("d/e", "other/e");
                drop(symlink(scratch.path("out/kept"), scratch.path("in/d/e")));
                drop(inside.remove_file(Path::new("d/e")));
                drop(fs::remove_dir_all(scratch.path("in/other")));
                drop(fs::create_dir(scratch.path("in/other")));
            }
        });
        for _ in 0..300 {
            sweep(
                (&directory, &Disk::new(None, Modes::Umask)),
                &manifest,
                Delete::Surplus,
            );
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let kept = Directory::open(&scratch.path("out/kept")).unwrap();
    assert_eq!(kept.status(Path::new("f")).unwrap().kind, Kind::File);
    assert!(scratch.path("in/beside").exists());
}

#[test]
fn a_tree_that_is_walked_says_what_a_receiver_may_take_for_surplus() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("t")).unwrap();
    fs::write(scratch.path("t/a"), "a").unwrap();
    let flags = |path: &str, takes: bool| {
        let source = crate::TreeSource::Path(path.into());
        let is_wanted = |path: &Path, _| takes || !path.ends_with("a");
        let tree = Tree::select(vec![source], crate::TreeOptions::default(), is_wanted).unwrap();
        let all = [
            ManifestHeader::INCOMPLETE,
            ManifestHeader::SELECTED,
            ManifestHeader::CONTENTS,
        ];
        all.map(|flag| tree.manifest.has_flag(flag))
    };
    let (whole, contents) = (scratch.path("t"), scratch.path("t/"));
    let (whole, contents) = (whole.to_str().unwrap(), format!("{}/", contents.display()));
    assert_eq!(flags(whole, true), [false, false, false]);
    assert_eq!(flags(whole, false), [false, true, false]);
    let contents = contents.replace("//", "/");
    assert_eq!(flags(&contents, true), [false, false, true]);
}
