//! Extended attributes: those of users become the sender's, where the receiver's owner asks.

use std::fs::File;

use delivery::{Attribute, Unset};
use sys::file::{attribute, attribute_names, set_attribute};

use super::*;

fn attributes(pairs: &[(&str, &str)]) -> Option<Vec<Attribute>> {
    let attributes = pairs.iter().map(|(name, value)| Attribute {
        name: name.as_bytes().to_vec(),
        value: value.as_bytes().to_vec(),
    });
    Some(attributes.collect())
}

/// Makes a manifest with attributes on the directory and on files, some of them read-only, and with
/// files without attributes.
fn told() -> Arc<Manifest> {
    let mut entries = vec![
        Entry::directory("d"),
        Entry::file("d/large", 70_000),
        Entry::file("d/small", 11),
        Entry::file("d/empty", 0),
        Entry::file("d/plain", 5),
        Entry::symlink("d/to", "small"),
    ];
    let both = [("user.a", "1"), ("user.b", "two")];
    entries[0].attributes = attributes(&both);
    entries[1].attributes = attributes(&both[..1]);
    entries[2].attributes = attributes(&both);
    entries[3].attributes = attributes(&[("user.empty", "")]);
    entries[4].attributes = attributes(&[]);
    entries[2].mode = 0o444;
    entries[3].mode = 0o400;
    entries[0].mode = 0o555;
    entries.push(Entry::hard_link("d/zero", "d/large"));
    manifest(entries)
}

fn manifest(entries: Vec<Entry>) -> Arc<Manifest> {
    Arc::new(Manifest::build([1; 16], entries, &ManifestLimits::default()).unwrap())
}

/// Receives the missing content. Returns the attributes that could not be set.
fn receive(directory: &Path, attributes: bool, manifest: &Arc<Manifest>) -> Vec<Unset> {
    let options = StoreOptions {
        existing: Existing::SkipUnchanged,
        attributes,
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

/// Returns the `user.*` attributes that a file or directory has.
fn found(path: &Path) -> Vec<(String, String)> {
    let open = File::open(path).unwrap();
    let mut names = attribute_names(&open).unwrap();
    names.retain(|name| name.starts_with(b"user."));
    names.sort();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let pairs = names.into_iter().map(|name| {
        let value = attribute(&open, &name).unwrap().unwrap();
        (text(name), text(value))
    });
    pairs.collect()
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = of.iter();
    pairs
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// Returns true when files here can have `user.*` attributes; otherwise prints that the test is
/// skipped.
fn are_possible(scratch: &Scratch) -> bool {
    let probe = scratch.path("probe");
    let file = File::create(&probe).unwrap();
    fs::remove_file(&probe).unwrap();
    let set = set_attribute(&file, b"user.probe", b"");
    if let Err(error) = &set {
        println!("skipped: no attributes of users here: {error}");
    }
    set.is_ok()
}

fn assert_told(directory: &Path) {
    let both = [("user.a", "1"), ("user.b", "two")];
    for (name, expected) in [
        ("d", &both[..]),
        ("d/large", &both[..1]),
        ("d/zero", &both[..1]),
        ("d/small", &both),
        ("d/empty", &[("user.empty", "")]),
        ("d/plain", &[]),
    ] {
        assert_eq!(found(&directory.join(name)), pairs(expected), "{name}");
    }
    let mode = |name: &str| fs::metadata(directory.join(name)).unwrap().mode() & 0o777;
    assert_eq!(["d", "d/small", "d/empty"].map(mode), [0o555, 0o444, 0o400]);
}

/// Makes the directory `d` of the manifest writable, so that it can be changed and removed.
fn reopen(directory: &Path) {
    fs::set_permissions(directory.join("d"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn nothing_is_set_unless_the_receiver_asks_for_it() {
    let scratch = Scratch::new();
    assert_eq!(receive(&scratch.0, false, &told()), []);
    assert_eq!(found(&scratch.path("d/large")), []);
    reopen(&scratch.0);
}

#[test]
fn what_arrives_and_what_is_in_place_gets_the_attributes_of_the_senders() {
    let scratch = Scratch::new();
    if !are_possible(&scratch) {
        return;
    }
    let manifest = told();
    let mut before = None;
    // Round 0: new files. Round 1: the same again. Round 2: after somebody has changed, removed and
    // added attributes.
    for round in 0..3 {
        if round == 2 {
            reopen(&scratch.0);
            let open = |name: &str| File::open(scratch.path(name)).unwrap();
            set_attribute(&open("d/large"), b"user.a", b"other").unwrap();
            set_attribute(&open("d/plain"), b"user.more", b"").unwrap();
            sys::file::remove_attribute(&open("d"), b"user.b").unwrap();
        }
        assert_eq!(receive(&scratch.0, true, &manifest), [], "{round}");
        assert_whole(&scratch.0, &manifest);
        assert_told(&scratch.0);
        let inode = fs::metadata(scratch.path("d/large")).unwrap().ino();
        assert_eq!(*before.get_or_insert(inode), inode, "{round}");
    }
    reopen(&scratch.0);
}

#[test]
fn what_has_another_name_elsewhere_is_left_alone_and_copied() {
    let scratch = Scratch::new();
    if !are_possible(&scratch) {
        return;
    }
    let (inside, manifest) = (scratch.path("in"), told());
    receive(&inside, false, &manifest);
    reopen(&inside);
    fs::hard_link(inside.join("d/large"), scratch.path("mine")).unwrap();
    assert_eq!(receive(&inside, true, &manifest), []);
    assert_eq!(found(&scratch.path("mine")), []);
    assert_eq!(fs::metadata(scratch.path("mine")).unwrap().nlink(), 1);
    assert_whole(&inside, &manifest);
    assert_told(&inside);
    reopen(&inside);
}

#[test]
fn privileges_and_access_lists_are_never_taken_and_what_cannot_be_set_is_named_once() {
    let scratch = Scratch::new();
    if !are_possible(&scratch) {
        return;
    }
    let list = "system.posix_acl_access";
    let names = ["security.capability", list, "user.fine"];
    let entries = ["a", "b"].map(|path| Entry {
        attributes: attributes(&names.map(|name| (name, "x"))),
        ..Entry::file(path, 3)
    });
    let unset = receive(&scratch.0, true, &manifest(entries.to_vec()));
    let told: Vec<_> = unset.iter().map(|it| (&it.what[..], it.entries)).collect();
    let never = "receivers never take these from the network";
    let capability = format!("attribute security.capability: {never}");
    let list = format!("attribute {list}: {never}");
    assert_eq!(told, [(&capability[..], 2), (&list, 2)]);
    assert_eq!(found(&scratch.path("b")), pairs(&[("user.fine", "x")]));

    // A namespace that no filesystem knows, with more names than are listed.
    let many = (0..40).map(|number| Attribute {
        name: format!("nonsense.{number:02}").into_bytes(),
        value: Vec::new(),
    });
    let entry = Entry {
        attributes: Some(many.collect()),
        ..Entry::file("c", 3)
    };
    let unset = receive(&scratch.0, true, &manifest(vec![entry]));
    assert_eq!(unset.len(), 17, "{unset:?}");
    assert!(
        unset[0].what.starts_with("attribute nonsense.00: "),
        "{unset:?}"
    );
    assert_eq!(
        unset[16],
        Unset::new("attributes of other names".to_owned(), 24)
    );
}

#[test]
fn a_walk_tells_attributes_only_when_asked() {
    let scratch = Scratch::new();
    if !are_possible(&scratch) {
        return;
    }
    fs::create_dir(scratch.path("t")).unwrap();
    fs::write(scratch.path("t/one"), "one").unwrap();
    fs::write(scratch.path("t/two"), "two").unwrap();
    symlink("one", scratch.path("t/to")).unwrap();
    for (name, attribute) in [("t", "user.of-directory"), ("t/one", "user.of-file")] {
        let open = File::open(scratch.path(name)).unwrap();
        set_attribute(&open, attribute.as_bytes(), b"v").unwrap();
    }
    let read = |attributes| {
        let source = crate::TreeSource::Path(scratch.path("t"));
        let options = crate::TreeOptions {
            attributes,
            ..crate::TreeOptions::default()
        };
        Tree::select(vec![source], options, |_, _| true)
            .unwrap()
            .manifest
    };
    assert_eq!(read(false).sections().attributes, None);
    let manifest = read(true);
    let attributes = manifest.sections().attributes.unwrap();
    let of = |entry| {
        let set = attributes.of(entry).checked_sub(1)?;
        let mut names = attributes.sets().nth(set as usize)?;
        let name = names.find(|it| it.name.starts_with(b"user."))?.name;
        Some(String::from_utf8(name.to_vec()).unwrap())
    };
    // In the manifest's order: t, t/one, t/to, t/two.
    assert_eq!(of(0).as_deref(), Some("user.of-directory"));
    assert_eq!(of(1).as_deref(), Some("user.of-file"));
    assert_eq!([of(2), of(3)], [None, None]);
}
