//! Owners: they are set where the receiver asks for it, and only on files that are the transfer's
//! own. Owners that cannot be set are named.

use std::os::unix::fs::lchown;

use delivery::{Owner, Unset};

use super::*;

/// Numbers that no machine of a test has.
const USER: u32 = 61_234;
const GROUP: u32 = 62_345;

/// Makes a manifest whose entries all have the same owner, with this user name.
fn owned(name: &str) -> Arc<Manifest> {
    let mut entries = vec![
        Entry::directory("d"),
        Entry::file("d/large", 70_000),
        Entry::file("d/small", 11),
        Entry::file("d/empty", 0),
        Entry::symlink("d/to", "small"),
    ];
    for entry in &mut entries {
        let (user, group) = (USER, GROUP);
        entry.owner = Some(Owner { user, group });
    }
    entries.push(Entry::hard_link("d/zero", "d/large"));
    let mut names = OwnerNames::default();
    names.users.insert(USER, name.into());
    let limits = ManifestLimits::default();
    Arc::new(Manifest::build_with(0, &names, [1; 16], entries, &limits).unwrap())
}

/// Receives the missing content. Returns the owners that could not be set.
fn receive(directory: &Path, owner: Owners, manifest: &Arc<Manifest>) -> Vec<Unset> {
    let options = StoreOptions {
        existing: Existing::SkipUnchanged,
        owner,
        ..StoreOptions::default()
    };
    let mut store = FileStore::new(directory, options);
    store.prepare(manifest);
    let StoreEvent::Prepared { held } = outcome(&mut store) else {
        panic!("it does not prepare");
    };
    let bytes = content(manifest);
    for gap in held.missing(manifest.content_bytes()).collect::<Vec<_>>() {
        let piece = usize::try_from(gap.start).unwrap()..usize::try_from(gap.end).unwrap();
        write(&mut store, gap.start, &bytes[piece]);
    }
    store.commit(&[]);
    let mut unset = Vec::new();
    loop {
        match outcome(&mut store) {
            StoreEvent::Unset(found) => unset.extend(found),
            StoreEvent::Committed => return unset,
            other => panic!("{other:?}"),
        }
    }
}

fn owner(path: PathBuf) -> (u32, u32) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.uid(), metadata.gid())
}

const ALL: [&str; 6] = ["d", "d/large", "d/small", "d/empty", "d/to", "d/zero"];

fn assert_owned(directory: &Path, expected: (u32, u32)) {
    for name in ALL {
        assert_eq!(owner(directory.join(name)), expected, "{name}");
    }
}

/// Returns true when this process may give files in this directory to other users.
fn may_give(scratch: &Scratch) -> bool {
    let probe = scratch.path("probe");
    fs::write(&probe, "").unwrap();
    let may_give = lchown(&probe, Some(USER), Some(GROUP)).is_ok();
    fs::remove_file(&probe).unwrap();
    may_give
}

fn own(scratch: &Scratch) -> (u32, u32) {
    owner(scratch.0.clone())
}

#[test]
fn nothing_is_given_away_unless_the_receiver_asks_for_it() {
    let scratch = Scratch::new();
    assert_eq!(receive(&scratch.0, Owners::Receiver, &owned("root")), []);
    let (user, _) = own(&scratch);
    assert!(ALL.iter().all(|name| owner(scratch.path(name)).0 == user));
}

#[test]
fn what_arrives_and_what_is_in_place_gets_its_owner_or_that_is_named_once() {
    let scratch = Scratch::new();
    let manifest = owned("no such user here");
    let may_give = may_give(&scratch);
    // Round 0: new files. Round 1: the same again. Round 2: after the files were given to another
    // user.
    for round in 0..3 {
        if round == 2 && may_give {
            for name in ALL {
                lchown(scratch.path(name), Some(3), Some(4)).unwrap();
            }
        }
        let before = (round > 0).then(|| fs::metadata(scratch.path("d/large")).unwrap().ino());
        let unset = receive(&scratch.0, Owners::Names, &manifest);
        assert_whole(&scratch.0, &manifest);
        if may_give {
            assert_eq!(unset, []);
            assert_owned(&scratch.0, (USER, GROUP));
            let after = fs::metadata(scratch.path("d/large")).unwrap().ino();
            assert!(before.is_none_or(|before| before == after), "{round}");
        } else {
            let [user, group] = &unset[..] else {
                panic!("{unset:?}");
            };
            let what = format!("user no such user here ({USER}): ");
            assert!(user.what.starts_with(&what), "{unset:?}");
            assert!(group.what.starts_with(&format!("group {GROUP}: ")));
            assert_eq!((user.entries, group.entries), (5, 5));
        }
    }
}

#[test]
fn names_that_both_ends_know_count_more_than_numbers() {
    let scratch = Scratch::new();
    let Some(daemon) = sys::account::user_number(b"daemon").filter(|_| may_give(&scratch)) else {
        return println!("skipped: no user daemon, or files cannot be given away here");
    };
    assert_eq!(receive(&scratch.0, Owners::Names, &owned("daemon")), []);
    assert_owned(&scratch.0, (daemon, GROUP));
    // The same files again, now with owners by number.
    assert_eq!(receive(&scratch.0, Owners::Numbers, &owned("daemon")), []);
    assert_owned(&scratch.0, (USER, GROUP));
}

#[test]
fn what_has_another_name_elsewhere_is_not_given_away_but_copied() {
    let scratch = Scratch::new();
    let inside = scratch.path("in");
    let manifest = owned("");
    receive(&inside, Owners::Receiver, &manifest);
    let mine = own(&scratch);
    fs::hard_link(inside.join("d/small"), scratch.path("mine")).unwrap();
    fs::hard_link(inside.join("d/large"), scratch.path("large")).unwrap();
    symlink(scratch.path("mine"), inside.join("other")).unwrap();
    receive(&inside, Owners::Numbers, &manifest);
    assert_eq!(owner(scratch.path("mine")), mine);
    assert_eq!(owner(scratch.path("large")), mine);
    assert_eq!(fs::metadata(scratch.path("large")).unwrap().nlink(), 1);
    assert_whole(&inside, &manifest);
    if may_give(&scratch) {
        assert_owned(&inside, (USER, GROUP));
    }
}

#[test]
fn a_walk_tells_owners_only_when_asked() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("t")).unwrap();
    fs::write(scratch.path("t/one"), "one").unwrap();
    fs::hard_link(scratch.path("t/one"), scratch.path("t/two")).unwrap();
    let read = |owner| {
        let source = crate::TreeSource::Path(scratch.path("t"));
        let options = crate::TreeOptions {
            hard_links: true,
            owner,
            ..crate::TreeOptions::default()
        };
        Tree::select(vec![source], options, |_, _| true)
            .unwrap()
            .manifest
    };
    assert_eq!(read(false).sections().owners, None);
    let manifest = read(true);
    let owners = manifest.sections().owners.unwrap();
    let (user, group) = owner(scratch.path("t/one"));
    let told = owners.users().next().unwrap();
    assert_eq!(told.number, user);
    assert_eq!(Some(told.name.to_vec()), sys::account::user_name(user));
    assert!(owners.groups().any(|told| told.number == group));
    assert_eq!([owners.of(0), owners.of(1), owners.of(2)], [(0, 0); 3]);
}
