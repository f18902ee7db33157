//! Permission bits and names that a sender chooses, and what becomes of them.

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn open_to_all() -> Arc<Manifest> {
    let with = |mut entry: Entry, mode| {
        entry.mode = mode;
        entry
    };
    manifest(vec![
        with(Entry::directory("all"), 0o7777),
        with(Entry::file("all/file", 900), 0o7777),
        with(Entry::file("all/long", 300_000), 0o666),
        with(Entry::directory("shut"), 0),
        with(Entry::file("shut/file", 5), 0),
    ])
}

#[test]
fn what_others_may_do_is_up_to_the_receivers_umask_unless_told_otherwise() {
    // The mask belongs to the whole process, so this test takes it as it is.
    let mask = sys::file::creation_mask().unwrap();
    for modes in [Modes::Umask, Modes::Exact] {
        let scratch = Scratch::new();
        let options = StoreOptions {
            modes,
            ..StoreOptions::default()
        };
        let mut store = FileStore::new(&scratch.0, options);
        let event = deliver(&mut store, &open_to_all(), 60_000);
        assert_eq!(event, StoreEvent::Committed);
        drop(store);
        let (kept, entered) = match modes {
            Modes::Umask => (!mask, 0o500),
            Modes::Exact => (0o777, 0),
        };
        let path = |below| scratch.path(below);
        assert_eq!(mode(&path("all")), 0o777 & kept, "{modes:?}");
        assert_eq!(mode(&path("all/file")), 0o777 & kept, "{modes:?}");
        assert_eq!(mode(&path("all/long")), 0o666 & kept, "{modes:?}");
        assert_eq!(mode(&path("shut")), entered, "{modes:?}");
        fs::set_permissions(path("shut"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(mode(&path("shut/file")), 0, "{modes:?}");
    }
}

#[test]
fn names_with_a_dot_are_taken_at_the_top_only_where_they_are_allowed() {
    for entries in [
        vec![Entry::file(".bashrc", 9)],
        vec![
            Entry::directory(".ssh"),
            Entry::file(".ssh/authorized_keys", 9),
        ],
        vec![Entry::file("a", 9), Entry::symlink(".profile", "a")],
    ] {
        let scratch = Scratch::new();
        let manifest = manifest(entries);
        let mut store = open(&scratch.0, Existing::Refuse);
        let (code, text) = failure(deliver(&mut store, &manifest, 9));
        assert_eq!(code, ErrorCode::ManifestRefused);
        assert!(text.contains("begin with a dot"), "{text}");
        drop(store);
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
        let options = StoreOptions {
            takes_dot_names: true,
            ..StoreOptions::default()
        };
        let mut store = FileStore::new(&scratch.0, options);
        assert_eq!(deliver(&mut store, &manifest, 9), StoreEvent::Committed);
    }
    let scratch = Scratch::new();
    let below = manifest(vec![Entry::directory("d"), Entry::file("d/.hidden", 9)]);
    let mut store = open(&scratch.0, Existing::Refuse);
    assert_eq!(deliver(&mut store, &below, 9), StoreEvent::Committed);
}
